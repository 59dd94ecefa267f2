"""The engine with the real worker, the real starter model and a real database."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine import events
from engine.errors import Busy, Cancelled, InvalidRequest, ModelNotFound, NotAModel
from engine.message import ChatSettings
from engine.sampling import SamplingParams

GREEDY = SamplingParams(temperature=0.0, max_tokens=24)
LONG = SamplingParams(temperature=0.0, max_tokens=600, logit_bias={2: -1e9, 0: -1e9})
QUESTION = "Why did my Kubernetes pod restart? The container's last termination reason is OOMKilled."


def greedy(w: Any, sampling: SamplingParams = GREEDY) -> None:
    w.engine.change_settings(sampling={f: getattr(sampling, f) for f in sampling.__struct_fields__}).result(5)


def test_question_to_disk(watched: Callable[..., Any]) -> None:
    """A question gets an answer with everything that made it, and both are in the database."""
    w = watched()
    greedy(w)
    info = w.load()
    assert info.n_ctx >= 2048 and info.template.source == "file"
    question, answer = w.answer(QUESTION)
    assert answer.status == "complete" and answer.text.strip()
    record = answer.generation
    assert record is not None and record.sampling.seed is not None
    assert record.usage.prompt_tokens > 20 and 0 < record.usage.completion_tokens <= 24
    assert record.timings.ttft_s and record.timings.decode_tps
    with sqlite3.connect(w.engine.paths.database) as db:
        stored = dict(db.execute("SELECT role, parts FROM messages").fetchall())
    assert QUESTION in stored["user"] and answer.text[:40].split("\n")[0] in stored["assistant"]
    steps = [e.step for e in w.events if isinstance(e, events.GenerationStep) and isinstance(e.step, events.Token)]
    assert "".join(s.text for s in steps) == answer.text
    assert question.id == answer.parent_id


def test_second_turn_reuses_the_first(watched: Callable[..., Any]) -> None:
    w = watched()
    greedy(w)
    w.load()
    question, first = w.answer(QUESTION)
    _, second = w.answer("What should I check first?", question.chat_id)
    assert second.generation.usage.cached_tokens >= first.generation.usage.prompt_tokens - 8
    chat, branch = w.engine.chats.open(question.chat_id).result(5)
    assert [m.role for m in branch] == ["user", "assistant", "user", "assistant"]
    assert chat.title and QUESTION.startswith(chat.title.rstrip("…"))


def test_versions_edit_continue_delete(watched: Callable[..., Any]) -> None:
    w = watched()
    greedy(w)
    w.load()
    chats = w.engine.chats
    question, answer = w.answer(QUESTION)
    other = chats.regenerate(answer.id).result(5)
    other = w.finished(other.id)
    assert (other.version, other.n_versions) == (2, 2) and other.text == answer.text, "greedy: the same text"
    _, branch = chats.switch_version(other.id, -1).result(5)
    assert branch[-1].id == answer.id
    with pytest.raises(InvalidRequest):
        chats.switch_version(answer.id, -1).result(5)

    edited = chats.edit(question.id, "Say hello.").result(5)
    started = w.wait(events.GenerationStarted, lambda e: e.message_id > edited.id)
    w.finished(started.message_id)
    _, branch = chats.open(question.chat_id).result(5)
    assert branch[0].text == "Say hello." and branch[0].n_versions == 2

    chats.switch_version(edited.id, -1).result(5)
    after = len(w.events)
    chats.continue_message(answer.id).result(5)
    longer = w.finished(answer.id, after=after)
    assert longer.text.startswith(answer.text) and len(longer.text) > len(answer.text)

    chats.delete_message(answer.id).result(5)
    _, branch = chats.open(question.chat_id).result(5)
    assert answer.id not in [m.id for m in branch]
    chats.restore_message(answer.id).result(5)
    _, branch = chats.open(question.chat_id).result(5)
    assert branch[-1].id == answer.id


@pytest.mark.parametrize("command", ["continue_message", "switch_version", "delete_message"])
def test_a_command_for_a_message_that_is_gone_changes_nothing(watched: Callable[..., Any], command: str) -> None:
    """A click that comes after the deletion is refused in words, and undo brings the message back as it was."""
    w = watched()
    greedy(w)
    w.load()
    chats = w.engine.chats
    question, answer = w.answer(QUESTION)
    chats.delete_message(answer.id).result(5)
    with pytest.raises(InvalidRequest):
        getattr(chats, command)(*(answer.id, 1) if command == "switch_version" else (answer.id,)).result(5)
    assert not chats.generating()
    chats.restore_message(answer.id).result(5)
    _, branch = chats.open(question.chat_id).result(5)
    assert (branch[-1].id, branch[-1].status, branch[-1].text) == (answer.id, "complete", answer.text)


def test_continuing_is_one_text(watched: Callable[..., Any]) -> None:
    """An answer cut by max_tokens and continued is what the model says without the cut."""
    w = watched()
    greedy(w, SamplingParams(temperature=0.0, max_tokens=40))
    w.load()
    _, whole = w.answer(QUESTION)
    greedy(w, SamplingParams(temperature=0.0, max_tokens=20))
    _, half = w.answer(QUESTION)
    assert half.generation.finish_reason == "length" and whole.text.startswith(half.text)
    after = len(w.events)
    w.engine.chats.continue_message(half.id).result(5)
    joined = w.finished(half.id, after=after)
    assert joined.text == whole.text
    first, last = half.generation, joined.generation
    assert last.usage.completion_tokens == whole.generation.usage.completion_tokens == 40
    assert last.usage.prompt_tokens == first.usage.prompt_tokens == whole.generation.usage.prompt_tokens
    assert last.usage.cached_tokens <= last.usage.prompt_tokens
    assert last.timings.ttft_s == first.timings.ttft_s and last.timings.prefill_tps == first.timings.prefill_tps
    assert last.timings.decode_s != first.timings.decode_s
    assert last.timings.decode_tps == pytest.approx(19 / last.timings.decode_s), "the speed of what was written on"


def test_stop_keeps_the_text_and_the_next_question_is_answered(watched: Callable[..., Any]) -> None:
    w = watched()
    greedy(w, LONG)
    w.load()
    question = w.engine.chats.send(None, QUESTION).result(5)
    w.wait(events.GenerationStep, lambda e: isinstance(e.step, events.Token) and e.step.index == 10)
    with pytest.raises(Busy):
        w.engine.chats.send(question.chat_id, "again").result(5)
    begun = time.monotonic()
    w.engine.chats.stop(question.chat_id)
    done = w.wait(events.GenerationFinished)
    assert time.monotonic() - begun < 1.0
    assert done.message.status == "stopped" and done.message.text
    greedy(w)
    _, answer = w.answer("Hi", question.chat_id)
    assert answer.status == "complete"


def test_stop_that_comes_before_the_answer_has_begun_counts(watched: Callable[..., Any]) -> None:
    """Asked and stopped in one breath: the answer ends. A question after the stop is not stopped with it."""
    w = watched()
    greedy(w, LONG)
    w.load()
    question = w.engine.chats.send(None, QUESTION).result(5)
    w.engine.chats.stop()
    first = w.wait(events.GenerationFinished).message
    assert first.status == "stopped"
    begun, after = time.monotonic(), len(w.events)
    again = w.engine.chats.regenerate(first.id)
    w.engine.chats.stop(question.chat_id)
    assert w.finished(again.result(5).id, after=after).status == "stopped" and time.monotonic() - begun < 3
    greedy(w)
    after = len(w.events)
    w.engine.chats.stop()
    last = w.engine.chats.regenerate(first.id).result(5)
    assert w.finished(last.id, after=after).status == "complete"


def test_question_before_the_model_is_loaded_waits_for_it(watched: Callable[..., Any]) -> None:
    w = watched()
    greedy(w)
    loading = w.engine.load_model("starter")
    question = w.engine.chats.send(None, QUESTION).result(5)
    assert loading.result(60)
    done = w.wait(events.GenerationFinished)
    assert done.message.parent_id == question.id and done.message.status == "complete"
    assert done.message.generation.n_ctx > 0 or done.message.generation.model_name


def test_without_a_model_the_answer_says_so(watched: Callable[..., Any]) -> None:
    w = watched()
    _, answer = w.answer(QUESTION)
    assert answer.status == "failed" and answer.generation.error.code == "model_not_loaded"
    w.load()
    greedy(w)
    again = w.engine.chats.regenerate(answer.id).result(5)
    assert w.finished(again.id).status == "complete"


def test_unloading_while_writing_keeps_the_text(watched: Callable[..., Any]) -> None:
    w = watched()
    greedy(w, LONG)
    w.load()
    w.engine.chats.send(None, QUESTION).result(5)
    w.wait(events.GenerationStep, lambda e: isinstance(e.step, events.Token) and e.step.index == 10)
    w.engine.model.unload().result(10)
    done = w.wait(events.GenerationFinished)
    assert done.message.status == "stopped" and done.message.text
    assert w.engine.model_state.status == "none" and w.engine.worker_pid is None


def test_load_can_be_cancelled_and_another_takes_its_place(watched: Callable[..., Any]) -> None:
    w = watched()
    first = w.engine.load_model("starter")
    w.engine.model.cancel_load()
    with pytest.raises(Cancelled):
        first.result(10)
    second = w.engine.load_model("starter")
    third = w.engine.load_model("starter")
    with pytest.raises(Cancelled):
        second.result(10)
    assert third.result(60).name


def test_missing_model(watched: Callable[..., Any]) -> None:
    w = watched()
    with pytest.raises(ModelNotFound):
        w.engine.load_model("/nowhere/at all.gguf")


def test_text_is_on_disk_while_it_is_written(watched: Callable[..., Any]) -> None:
    """At every moment the database holds what was shown two seconds ago."""
    w = watched()
    greedy(w, SamplingParams(temperature=0.0, max_tokens=300, logit_bias={2: -1e9, 0: -1e9}))
    w.load()
    w.engine.chats.send(None, QUESTION).result(5)
    shown: list[tuple[float, int]] = []
    length = 0

    def on_event(event: events.Event) -> None:
        nonlocal length
        if isinstance(event, events.GenerationStep) and isinstance(event.step, events.Token):
            length += len(event.step.text)
            shown.append((time.monotonic(), length))

    w.engine.subscribe(on_event)
    looks = 0
    while not any(isinstance(e, events.GenerationFinished) for e in w.events):
        with sqlite3.connect(w.engine.paths.database) as db:
            (parts,) = db.execute("SELECT parts FROM messages WHERE role = 'assistant'").fetchone()
        now = time.monotonic()
        due = max((n for t, n in list(shown) if t <= now - 2.0), default=0)
        assert len(parts) >= due, "the database is more than 2 s behind"
        looks += 1
        threading.Event().wait(0.2)
    assert looks > 3


def test_chat_has_its_own_system_prompt_and_sampling(watched: Callable[..., Any]) -> None:
    w = watched()
    w.load()
    chat = w.engine.chats.create().result(5)
    own = ChatSettings(system_prompt="Answer in one word.", sampling=SamplingParams(temperature=0.0, max_tokens=3))
    w.engine.chats.set_settings(chat.id, own).result(5)
    _, answer = w.answer(QUESTION, chat.id)
    assert answer.generation.sampling.max_tokens == 3 and answer.generation.usage.completion_tokens <= 3


@pytest.mark.serial
@pytest.mark.timeout(600)
@pytest.mark.parametrize("phase", ["loading", "writing"])
@pytest.mark.parametrize("sig", [signal.SIGABRT, signal.SIGSEGV, signal.SIGKILL], ids=lambda s: s.name)
def test_death_of_the_worker(watched: Callable[..., Any], phase: str, sig: signal.Signals) -> None:
    """The engine lives, the text is kept, a reload works. (The window goes through twenty of each.)"""
    w = watched()
    greedy(w, LONG)
    deaths = int(os.environ.get("INGLENOOK_DEATHS", "3"))
    for _ in range(deaths):
        after = len(w.events)
        if phase == "loading":
            loading = w.engine.load_model("starter")
            deadline = time.monotonic() + 20
            while (pid := w.engine.worker_pid) is None and time.monotonic() < deadline:
                time.sleep(0.005)
            assert pid
            time.sleep(random.uniform(0, 0.6))  # greeting, reading the weights, making the context
            if loading.done():
                continue
            os.kill(pid, sig)
            error = loading.exception(20)
            assert error is not None and getattr(error, "code", "") == "worker_died" and sig.name in str(error)
        else:
            if w.engine.model_state.status != "ready":
                w.engine.model.reload().result(60) if w.engine.model_state.path else w.load()
            w.engine.chats.send(None, QUESTION).result(5)
            w.wait(events.GenerationStep, lambda e: isinstance(e.step, events.Token) and e.step.index == 5, after=after)
            os.kill(w.engine.worker_pid, sig)
            done = w.wait(events.GenerationFinished, after=after, timeout=5)
            assert done.message.status == "failed" and done.message.text
            assert done.message.generation.error.code == "worker_died"
            gone = w.wait(events.WorkerExited, lambda e: not e.expected, after=after, timeout=5)
            assert sig.name in gone.error.message
        assert w.engine.model_state.status == "failed"
    greedy(w)
    assert w.engine.model.reload().result(60).name
    _, answer = w.answer("Hi")
    assert answer.status == "complete"


def test_a_file_that_is_no_model_leaves_the_loaded_one_alone(watched: Callable[..., Any], tmp_path: Path) -> None:
    w = watched()
    greedy(w)
    w.load()
    pid = w.engine.worker_pid
    page = tmp_path / "saved page.gguf"
    page.write_text("<!DOCTYPE html><html></html>")
    with pytest.raises(NotAModel):
        w.load(page)
    assert w.engine.model_state.status == "ready" and w.engine.worker_pid == pid
    _, answer = w.answer("Hi")
    assert answer.status == "complete"
