"""A disk that fills up while an answer is written: the answer ends, is shown, and is stored when there is room."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import events
from engine.errors import DatabaseDamaged, DiskFull
from engine.message import Message, TextPart
from engine.paths import resolve
from engine.service import Engine

LONG = {"text": "word " * 4000, "delay_s": 0.0006}


class Profile:
    """An engine with a scripted worker, and a switch for the room that its database has."""

    def __init__(self, home: Path, tmp_path: Path) -> None:
        script = json.dumps({"answers": [LONG]})
        self.engine = Engine(
            resolve(home).ensure(), worker_command=[sys.executable, "-m", "engine.worker.fake", "--script", script]
        )
        self.events: list[events.Event] = []
        self.engine.subscribe(self.events.append)
        self.engine.start().result(10)
        model = tmp_path / "tiny.gguf"
        model.write_bytes(b"GGUF")
        self.engine.load_model(model).result(20)

    def limit(self, pages: int) -> None:
        """Pages the database may grow to; SQLite says "full" then, as on a full disk."""
        work = f"PRAGMA max_page_count = {pages}"
        self.engine.chats._run(lambda store: store._db._connection.execute(work)).result(5)

    def wait(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < end
            time.sleep(0.01)

    def of(self, kind: type[events.Event]) -> list[Any]:
        return [e for e in self.events if isinstance(e, kind)]

    def writing(self) -> bool:
        return any(isinstance(e.step, events.Token) for e in self.of(events.GenerationStep))

    def branch(self, chat_id: int) -> list[Message]:
        return self.engine.chats.open(chat_id).result(5)[1]


@pytest.fixture
def profile(home: Path, tmp_path: Path) -> Iterator[Profile]:
    made = Profile(home, tmp_path)
    yield made
    made.engine.stop()


@pytest.mark.parametrize("end", ["complete", "stopped", "deleted", "failed"])
def test_full_disk_while_writing(profile: Profile, end: str) -> None:
    """However the answer ends, it ends: shown in full, said once, the chat usable, and on disk when there is room."""
    chats = profile.engine.chats
    question = chats.send(None, "hello").result(5)
    profile.wait(profile.writing)
    profile.limit(1)
    match end:
        case "stopped":
            time.sleep(0.6)
            chats.stop(question.chat_id)
        case "failed":
            time.sleep(0.6)
            profile.engine.model._client.kill("was ended by the test")  # type: ignore[union-attr]
        case "deleted":
            time.sleep(0.6)
            chats.delete(question.chat_id).result(5)
    profile.wait(lambda: bool(profile.of(events.GenerationFinished)))
    shown = profile.of(events.GenerationFinished)[-1].message
    assert shown.status == ("stopped" if end == "deleted" else end) and len(shown.text) > 1000
    assert not chats.generating()
    assert [n.level for n in profile.of(events.Notice)] == ["error"] and "full" in profile.of(events.Notice)[0].text
    if end != "deleted":
        assert profile.branch(question.chat_id)[-1].text == shown.text, "what is not on disk is shown all the same"

    profile.limit(1_000_000)
    profile.wait(lambda: len(profile.of(events.Notice)) == 2)
    stored = profile.engine.chats._run(lambda store: store.message(shown.id)).result(5)
    assert (stored.text, stored.status) == (shown.text, shown.status)


def test_full_disk_until_the_end(profile: Profile, home: Path, tmp_path: Path) -> None:
    """Closing while nothing can be written ends in time, and the next start has what was saved before."""
    chats = profile.engine.chats
    question = chats.send(None, "hello").result(5)
    profile.wait(profile.writing)
    profile.wait(lambda: bool(chats._run(lambda s: s.branch(question.chat_id)[-1].text).result(5)))
    profile.limit(1)
    began = time.monotonic()
    profile.engine.stop()
    assert time.monotonic() - began < 5
    again = Profile(home, tmp_path)
    last = again.branch(question.chat_id)[-1]
    again.engine.stop()
    assert last.status in ("interrupted", "stopped") and last.text.startswith("word word")


@pytest.mark.parametrize("place", ["add_message", "update_message"])
def test_no_room_for_the_answer(profile: Profile, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """A question that is stored counts as sent; that its answer finds no room is said, and leaves nothing behind."""
    store_type = type(profile.engine._store)
    real = getattr(store_type, place)

    def full(self: Any, *args: Any, **values: Any) -> Any:
        if place == "update_message" or "assistant" in args:
            raise DiskFull("The disk is full.")
        return real(self, *args, **values)

    monkeypatch.setattr(store_type, place, full)
    question = profile.engine.chats.send(None, "hello").result(5)
    profile.wait(lambda: bool(profile.of(events.Notice)))
    assert not profile.engine.chats.generating()
    assert all(m.status != "streaming" for m in profile.branch(question.chat_id))
    monkeypatch.setattr(store_type, place, real)
    second = profile.engine.chats.send(question.chat_id, "again").result(5)
    profile.wait(lambda: any(m.message.text for m in profile.of(events.GenerationFinished)))
    assert [m.text for m in profile.branch(question.chat_id) if m.role == "user"] == ["hello", "again"]
    assert second.chat_id == question.chat_id


def test_damage_found_at_the_end_of_an_answer(profile: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database turns out damaged when the answer is stored: it is replaced, the answer goes into the new one."""
    chats = profile.engine.chats
    question = chats.send(None, "hello").result(5)
    profile.wait(profile.writing)
    store_type = type(profile.engine._store)
    real = store_type.update_message
    hits = []

    def damaged(self: Any, message_id: int, **values: Any) -> Any:
        if values.get("status") == "complete" and not hits:
            hits.append(message_id)
            raise DatabaseDamaged("The chat database is damaged")
        return real(self, message_id, **values)

    monkeypatch.setattr(store_type, "update_message", damaged)
    profile.wait(lambda: bool(profile.of(events.GenerationFinished)))
    shown = profile.of(events.GenerationFinished)[-1].message
    text = (TextPart(LONG["text"]),)
    assert shown.parts == text and not chats.generating()
    profile.wait(lambda: chats._run(lambda s: s.message(shown.id)).result(5).parts == text)
    assert [m.text for m in profile.branch(question.chat_id)] == ["hello", LONG["text"]]
