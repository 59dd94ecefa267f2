"""What was read of a chat is kept between two runs of the program, goes with the chat, and can be switched off."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import events, kv_files

TEMPLATE = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[reply]"
LONG = "The ship left the harbour at dawn and met a storm before noon. " * 20


@pytest.fixture(scope="module")
def model(scripted_model: Callable[..., dict[str, Any]]) -> str:
    return str(scripted_model(["Hello", " world", "!"], template=TEMPLATE, tail="[reply]")["path"])


@pytest.fixture(autouse=True)
def hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGLENOOK_TEST_HOOKS", "1")
    monkeypatch.setenv("INGLENOOK_TEST_KV_WORTH_S", "0.00001")


def files(w: Any) -> list[Path]:
    return list(kv_files.ours(w.engine.paths.kv_folder))


def until(done: Callable[[], bool]) -> Iterator[None]:
    end = time.monotonic() + 10
    while not done():
        assert time.monotonic() < end
        time.sleep(0.02)
        yield


def test_a_chat_goes_on_after_a_restart_of_the_program(watched: Callable[..., Any], model: str) -> None:
    w = watched()
    w.load(model)
    question, first = w.answer(LONG)
    assert first.generation.usage.restored_tokens == 0 and first.generation.reread is None
    w.engine.stop()
    (path,) = files(w)
    assert kv_files.belongs_to(path, f"chat-{question.chat_id}")

    again = watched()
    again.load(model)
    _, second = again.answer("And then?", question.chat_id)
    usage = second.generation.usage
    assert second.text == first.text == "Hello world!"
    # all but the words that asked for the answer: in the history another word stands before it
    assert usage.restored_tokens == usage.cached_tokens >= first.generation.usage.prompt_tokens - 8
    _, third = again.answer("And after that?", question.chat_id)
    assert third.generation.usage.restored_tokens == 0 < third.generation.usage.cached_tokens
    again.engine.chats.delete(question.chat_id).result(5)
    for _ in until(lambda: not files(again)):
        pass
    again.engine.stop()
    assert files(again) == [], "the process does not write it again when it ends"


def test_a_chat_that_is_deleted_without_a_model_leaves_nothing(watched: Callable[..., Any], model: str) -> None:
    w = watched()
    w.load(model)
    question, _ = w.answer(LONG)
    other, _ = w.answer(LONG)
    w.engine.stop()
    assert len(files(w)) == 2
    again = watched()
    again.engine.chats.delete(question.chat_id).result(5)
    for _ in until(lambda: len(files(again)) < 2):
        pass
    assert kv_files.belongs_to(files(again)[0], f"chat-{other.chat_id}")


def test_the_user_can_switch_it_off(watched: Callable[..., Any], model: str) -> None:
    w = watched()
    w.load(model)
    question, _ = w.answer(LONG)
    w.engine.model.unload().result(10)
    assert len(files(w)) == 1
    w.load(model)
    w.engine.change_settings(kv_on_disk=False).result(5)
    for _ in until(lambda: not files(w)):
        pass
    w.answer("And then?", question.chat_id)
    w.engine.stop()
    assert files(w) == []
    again = watched()
    again.load(model)
    again.answer("And after that?", question.chat_id)
    again.engine.stop()
    assert files(again) == []


def test_the_chat_on_screen_comes_first(
    watched: Callable[..., Any], model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one slot and answers that wait, the one of the chat that is looked at takes the next turn."""
    monkeypatch.setenv("INGLENOOK_TEST_SLOW_TOKEN_S", "0.1")
    w = watched()
    w.load(model, n_slots=1)
    chats = [w.engine.chats.create().result(5).id for _ in range(4)]
    w.engine.chats.look_at(chats[0])
    for chat_id in chats:
        w.engine.chats.send(chat_id, f"Question {chat_id}").result(5)
    w.engine.chats.look_at(chats[3])
    for chat_id in chats:
        w.wait(events.GenerationFinished, lambda e, chat_id=chat_id: e.chat_id == chat_id)
    order = [e.chat_id for e in w.events if isinstance(e, events.GenerationFinished)]
    assert order.index(chats[3]) < order.index(chats[1]) < order.index(chats[2])
    assert all(e.message.text == "Hello world!" for e in w.events if isinstance(e, events.GenerationFinished))
