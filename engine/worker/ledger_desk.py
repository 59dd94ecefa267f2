"""Ledgers that were asked for: worked out in slices between the steps of running answers."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Generator
from dataclasses import dataclass

from engine import events
from engine.errors import Cancelled, EngineError, LoadFailed
from engine.worker.inbox import Job
from engine.worker.prompt import PromptBuilder
from engine.worker.protocol import Ledger

#: seconds of work between two steps, at least; a slice can be longer by one rendering of the conversation
SLICE_S = 0.004


@dataclass
class _Open:
    job: Job
    key: str
    work: Generator[None, None, events.ContextLedger]


class LedgerDesk:
    """Everything runs on the owner thread. `answer` and `fail` end a job."""

    def __init__(self, answer: Callable[[Job, events.Event], None], fail: Callable[[Job, EngineError], None]) -> None:
        self._answer, self._fail = answer, fail
        self._open: list[_Open] = []

    @property
    def busy(self) -> bool:
        return bool(self._open)

    def take(self, job: Job, request: Ledger, prompts: PromptBuilder) -> None:
        """Begin with a ledger; one of the same key that is not done yet ends as cancelled."""
        for old in [o for o in self._open if o.key == request.key]:
            self._drop(old)
        work = prompts.ledger(request.id, request.messages, overflow=request.overflow, max_tokens=request.max_tokens)
        self._open.append(_Open(job, request.key, work))

    def work(self, seconds: float) -> None:
        """Go on with the oldest one for about so long, but no less than `SLICE_S`."""
        end = time.perf_counter() + max(SLICE_S, seconds)
        while self._open and time.perf_counter() < end:
            first = self._open[0]
            if first.job.stopped:
                self._drop(first)
                continue
            try:
                next(first.work)
            except StopIteration as done:
                self._open.remove(first)
                self._answer(first.job, done.value)
            except EngineError as error:
                self._open.remove(first)
                self._fail(first.job, error)
            except Exception as error:
                traceback.print_exc(file=sys.stderr)
                self._open.remove(first)
                what = f"{type(error).__name__}: {error}"
                self._fail(first.job, LoadFailed("The worker failed on this request", details={"error": what}))

    def cancel_all(self) -> None:
        """The model goes, or the process ends."""
        for one in list(self._open):
            self._drop(one)

    def _drop(self, one: _Open) -> None:
        self._open.remove(one)
        one.work.close()
        self._fail(one.job, Cancelled("A newer ledger took its place" if not one.job.stopped else "Stopped"))
