"""An engine on a throw-away profile, with everything it reports kept in order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from engine import events, paths
from engine.message import Message
from engine.service import Engine

E = TypeVar("E", bound=events.Event)


class Watched:
    """An engine and the list of its events; `wait` blocks until one of a kind comes."""

    def __init__(self, home: Path, **options: Any) -> None:
        self.engine = Engine(paths.resolve(home), **options)
        self.events: list[events.Event] = []
        self._news = threading.Condition()
        self.engine.subscribe(self._on_event)
        self.engine.start().result(10)

    def _on_event(self, event: events.Event) -> None:
        with self._news:
            self.events.append(event)
            self._news.notify_all()

    def wait(
        self, kind: type[E], where: Callable[[E], bool] = lambda e: True, *, after: int = 0, timeout: float = 30
    ) -> E:
        """The first event of the kind for which `where` holds, from the given place in the list on."""
        deadline = time.monotonic() + timeout
        with self._news:
            while True:
                for event in self.events[after:]:
                    if isinstance(event, kind) and where(event):
                        return event
                left = deadline - time.monotonic()
                if left <= 0:
                    raise AssertionError(f"no {kind.__name__} within {timeout} s; last events: {self.events[-5:]}")
                self._news.wait(left)

    def load(self, model: str | Path = "starter", **options: Any) -> events.ModelInfo:
        return self.engine.load_model(model, **options).result(60)

    def finished(self, message_id: int, *, after: int = 0, timeout: float = 60) -> Message:
        return self.wait(
            events.GenerationFinished, lambda e: e.message.id == message_id, after=after, timeout=timeout
        ).message

    def answer(self, text: str, chat_id: int | None = None) -> tuple[Message, Message]:
        """Ask and wait: the user's message and the finished answer."""
        after = len(self.events)
        question = self.engine.chats.send(chat_id, text).result(10)
        started = self.wait(events.GenerationStarted, lambda e: e.chat_id == question.chat_id, after=after)
        return question, self.finished(started.message_id, after=after)


@pytest.fixture
def watched(home: Path) -> Iterator[Callable[..., Watched]]:
    """Makes watched engines on this test's profile; all are stopped at the end."""
    made: list[Watched] = []

    def make(**options: Any) -> Watched:
        made.append(Watched(home, **options))
        return made[-1]

    yield make
    for each in made:
        each.engine.stop()
