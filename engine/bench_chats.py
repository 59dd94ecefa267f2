"""The part of a measurement that goes through stored chats, as the window's own answers do.

Each chat asks once, with a text that is as long as the prompt is to be, and is answered with one token: then its prompt
is in the cache. What is measured is the other version of that answer, written in all chats at the same time.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from engine import events
from engine.errors import EngineError
from engine.message import ChatSettings, Message, PromptMessage, error_from
from engine.model_host import new_id
from engine.sampling import SamplingParams
from engine.service import Engine
from engine.worker import protocol

T = TypeVar("T")
#: tokens that a model process wrote together come within this; the next ones come at least twice as much later
GROUP_S = 0.016
_BAN = -1e9
_WORDS = (
    "the of and to in is that it for was on are as with his they at be this from have or by one had not but what all"
)
_TRIES = 4


class Wait(Protocol):
    """Waits for a future and gives its result. Raises `Cancelled` when the measurement is stopped meanwhile."""

    def __call__(self, future: Future[T], /) -> T: ...


def total_rate(arrivals: Sequence[Sequence[float]]) -> float | None:
    """Tokens a second of all answers together while each of them was being written; None where that was too short.

    Tokens come in groups, so the time is taken from the end of one group to the end of another, and those between are
    counted: the first group's own time is not known.

    Args:
        arrivals: when the tokens of each answer came, in seconds.
    """
    if not arrivals or not all(arrivals):
        return None
    merged = sorted(when for times in arrivals for when in times)
    begin = _end_of_group(merged, max(times[0] for times in arrivals))
    end = _end_of_group(merged, min(times[-1] for times in arrivals))
    if end - begin < 2 * GROUP_S:
        return None
    return sum(begin < when <= end for when in merged) / (end - begin)


def _end_of_group(merged: list[float], moment: float) -> float:
    return max(when for when in merged if when <= moment + GROUP_S)


@dataclass
class _Watch:
    """What has come of the answers that are being written."""

    arrivals: dict[int, list[float]] = field(default_factory=dict)
    finished: dict[int, Message] = field(default_factory=dict)
    news: threading.Condition = field(default_factory=threading.Condition)

    def take(self, event: events.Event) -> None:
        """Called from the engine's threads."""
        if isinstance(event, events.GenerationStep):
            if isinstance(event.step, events.Token) and event.step.token_id >= 0:
                self.arrivals.setdefault(event.message_id, []).append(time.perf_counter())
        elif isinstance(event, events.GenerationFinished):
            with self.news:
                self.finished[event.message.id] = event.message
                self.news.notify_all()


class BenchChats:
    """Chats of a throw-away profile with its loaded model.

    Args:
        check: raises `Cancelled` when the measurement is stopped.
    """

    def __init__(
        self,
        engine: Engine,
        model: events.ModelInfo,
        *,
        n_prompt: int,
        n_generate: int,
        result: Wait,
        check: Callable[[], None],
    ) -> None:
        self._engine, self._model = engine, model
        self._n_prompt, self._n_generate = n_prompt, n_generate
        self._result, self._check = result, check
        self._questions: list[Message] = []
        self._watch = _Watch()
        engine.subscribe(lambda event: self._watch.take(event))

    def measure(self, n_parallel: int) -> float | None:
        """Tokens a second of so many chats together; None where they came too fast to tell.

        Raises:
            Cancelled; EngineError: what ended an answer.
        """
        self._read(n_parallel)
        self._watch = _Watch()
        answers = [self._again(question, self._n_generate) for question in self._questions[:n_parallel]]
        finished = self._wait(answers)
        rate = total_rate([self._watch.arrivals.get(answer.id, []) for answer in answers])
        return rate if rate is not None else _by_worker(finished)

    def _read(self, n_parallel: int) -> None:
        """Have each prompt read, with an answer of one token. Chats that are missing are made."""
        self._watch = _Watch()
        answers = [self._again(question, 1) for question in self._questions[:n_parallel]]
        self._wait(answers)
        for number in range(len(self._questions), n_parallel):
            self._ask(number)

    def _ask(self, number: int) -> None:
        text = self._text(number)
        chat = self._result(self._engine.chats.create())
        self._set_length(chat.id, 1)
        question = self._result(self._engine.chats.send(chat.id, text))
        _, branch = self._result(self._engine.chats.open(chat.id))
        self._questions.append(question)
        self._wait([branch[-1]])

    def _again(self, question: Message, n_tokens: int) -> Message:
        self._set_length(question.chat_id, n_tokens)
        return self._result(self._engine.chats.regenerate(question.id))

    def _set_length(self, chat_id: int, n_tokens: int) -> None:
        bans = dict.fromkeys(self._model.eog_tokens, _BAN)
        sampling = SamplingParams(temperature=0.0, seed=1, max_tokens=n_tokens, logit_bias=bans)
        self._result(self._engine.chats.set_settings(chat_id, ChatSettings(sampling=sampling)))

    def _wait(self, answers: Sequence[Message]) -> list[Message]:
        watch = self._watch
        while True:
            with watch.news:
                if all(answer.id in watch.finished for answer in answers):
                    break
                watch.news.wait(0.1)
            self._check()
        finished = [watch.finished[answer.id] for answer in answers]
        for message in finished:
            record = message.generation
            if message.status == "failed":
                raise error_from(record.error) if record and record.error else EngineError("An answer failed")
        return finished

    # ------------------------------------------------------------------ what is asked

    def _text(self, number: int) -> str:
        """A message of ordinary words with which the prompt has the wished number of tokens, or nearly; each chat's
        own from its first word on, so that no chat profits from another."""
        draw = random.Random(number)
        words = [f"{number + 1}"]
        count = self._count(" ".join(words))
        for _ in range(_TRIES):
            missing = self._n_prompt - count
            if missing > 0:
                words += draw.choices(_WORDS.split(), k=missing)
            elif missing < 0 and len(words) > 1:
                del words[max(1, len(words) + missing) :]
            else:
                break
            count = self._count(" ".join(words))
        return " ".join(words)

    def _count(self, text: str) -> int:
        """Tokens of the prompt that this message makes."""
        counted: Future[int] = Future()

        def on_event(event: events.Event) -> None:
            if isinstance(event, events.Tokenized):
                counted.set_result(len(event.tokens))
            elif isinstance(event, events.Error):
                counted.set_exception(error_from(event.error))

        request = protocol.Tokenize(id=new_id(), messages=(PromptMessage("user", text),))
        self._engine.model.submit(request, on_event)
        return self._result(counted)


def _by_worker(finished: Sequence[Message]) -> float | None:
    """The sum of the rates that the model process measured, where all came in one group."""
    rates = [message.generation.timings.decode_tps if message.generation else None for message in finished]
    return sum(rate for rate in rates if rate) if all(rates) else None
