"""The crash black box: what is known of a model process that ended by itself, and what can be done about it.

What the process was at comes from its crumbs (`worker.crumb_record`); `Death` puts beside it what was loaded and how.
"""

from __future__ import annotations

import time
from concurrent.futures import Executor, Future
from pathlib import Path

from engine import black_box_report, events, paths
from engine.black_box_report import Death
from engine.errors import EngineError, ModelNotLoaded
from engine.fit.before_load import LoadPlanner, PlannedLoad
from engine.fit.words import size_text
from engine.message import ErrorInfo
from engine.model_host import ModelHost
from engine.worker.crumb_record import Crumb, LastSeen, last_seen_of

CODE = "worker_died"
#: a stage that lasted for longer than this is worth a word
_LONG_S = 2.0
_STAGES = {
    "start": "starting and looking for devices",
    "idle": "waiting for work",
    "context": "making room for the KV cache",
    "prompt": "making the prompt",
    "sample": "choosing the next token",
    "save": "taking the state of a chat out of the KV cache",
    "restore": "putting the state of a chat into the KV cache",
    "count": "counting tokens",
    "adapters": "changing adapters",
    "embed": "embedding texts",
    "unload": "unloading the model",
}


class BlackBox:
    """The last death of the model's process. `see` has to be called with every event.

    Attributes:
        last: the last death, None if there was none.
    """

    def __init__(self, host: ModelHost, planner: LoadPlanner, executor: Executor) -> None:
        self._host, self._planner, self._executor = host, planner, executor
        self._model: events.ModelInfo | None = None
        self._ready_s = 0.0
        self._n_answers = 0
        self.last: Death | None = None

    def see(self, event: events.Event) -> None:
        """Take note of an event; from any thread, returns at once."""
        if isinstance(event, events.GenerationFinished):
            self._n_answers += 1
        if not isinstance(event, events.ModelState):
            return
        if event.status == "ready" and event.model is not None:
            if self._model is None:  # a change of adapters is news of the same model
                self._ready_s, self._n_answers = time.monotonic(), 0
            self._model = event.model
            return
        if event.status == "failed" and event.error is not None and event.error.code == CODE:
            self._keep(event.error)
        self._model = None

    def _keep(self, error: ErrorInfo) -> None:
        host = self._host
        self.last = Death(
            error=error,
            at_s=time.time(),
            model=self._model,
            request=host.planned.request if host.planned is not None else host.request,
            fit=self._model.fit if self._model is not None else None,
            ran_s=time.monotonic() - self._ready_s if self._model is not None else None,
            n_answers=self._n_answers if self._model is not None else 0,
            hello=host.hello,
        )

    # -------------------------------------------------------------- what can be done

    def safer(self) -> Future[tuple[str, ...]]:
        """What a safer load of the last model would give up, in words; empty if there is nothing left to give up."""

        def work() -> tuple[str, ...]:
            planned = self._host.planned
            found = self._smaller(planned)
            return found.gave_up[len(planned.gave_up) :] if planned is not None and found is not None else ()

        return self._executor.submit(work)

    def reload_safer(self) -> Future[events.ModelInfo]:
        """Load the last model again, one step further down the planner's ladder. Not for the window's thread.

        Raises:
            ModelNotLoaded: there is nothing to load again, or nothing left to give up.
        """
        smaller = self._smaller(self._host.planned)
        if smaller is None:
            raise ModelNotLoaded("There is nothing left that a safer load could give up", hint="Load the model again.")
        return self._host.reload(smaller)

    def _smaller(self, planned: PlannedLoad | None) -> PlannedLoad | None:
        return None if planned is None else self._planner.smaller(planned, asked=True)

    def report(self) -> Future[str]:
        """A report of the last death, to be shown to others: no text of a chat and no path is in it.

        The future raises `ModelNotLoaded` if no model's process has died.
        """
        return self._executor.submit(self._report)

    def save_report(self, path: Path) -> Future[None]:
        """Write the report into a file. The future raises `StorageFailed`, `DiskFull`, and as `report`."""
        return self._executor.submit(lambda: paths.atomic_write(path, self._report().encode()))

    def _report(self) -> str:
        if self.last is None:
            raise ModelNotLoaded("No model process has ended by itself")
        seen = last_seen(self.last.error)
        return black_box_report.text(self.last, _lines(seen) if seen is not None else [])


# -------------------------------------------------------------- in words


def last_seen(error: ErrorInfo | EngineError) -> LastSeen | None:
    """What the black box of a death says; None where it said nothing, and for other errors."""
    return last_seen_of(error.details) if error.code == CODE else None


def sentence(error: ErrorInfo | EngineError) -> str:
    """What the process was at when it ended, as one sentence; empty if that is not known."""
    seen = last_seen(error)
    if seen is None:
        return ""
    crumb = seen.crumb
    free = f"; {size_text(crumb.ram_free_bytes)} of memory were free" if _memory_known(seen) else ""
    busy_for = f", for {_ago(seen.ago_s)}" if seen.ago_s >= _LONG_S and crumb.stage != "idle" else ""
    return f"At the end it was {stage_words(crumb)}{busy_for}{free}."


def details(error: ErrorInfo) -> list[str]:
    """All that the black box of a death says, one fact a line."""
    seen = last_seen(error)
    return [] if seen is None else _lines(seen)


def stage_words(crumb: Crumb) -> str:
    """A stage in words: "computing a step of 512 tokens for 1 answer"."""
    if crumb.stage == "weights":
        return f"reading the weights ({crumb.fraction:.0%} done)"
    if crumb.stage == "step":
        tokens = "1 token" if crumb.n_batch == 1 else f"{crumb.n_batch:,} tokens"
        answers = "1 answer" if crumb.n_answers == 1 else f"{crumb.n_answers} answers"
        return f"computing a step of {tokens} for {answers}"
    return _STAGES.get(crumb.stage, crumb.stage)


def _memory_known(seen: LastSeen) -> bool:
    return seen.crumb.ram_free_bytes >= 0 and seen.is_fresh


def _lines(seen: LastSeen) -> list[str]:
    crumb, found = seen.crumb, []
    found.append(f"last stage: {stage_words(crumb)}, begun {_ago(seen.ago_s)} before the end")
    if crumb.stage in ("step", "sample"):
        if crumb.n_reading:
            found.append(
                f"prompt: {crumb.n_reading:,} tokens in this step, "
                f"{crumb.n_read:,} of {crumb.n_prompt:,} in the cache before it"
            )
        found.append(f"written so far: {crumb.n_written:,} tokens")
    if crumb.n_ctx:
        found.append(f"KV cache: {crumb.used_cells:,} of {crumb.n_ctx:,} cells used")
    if _memory_known(seen):
        found.append(f"memory: {size_text(crumb.ram_free_bytes)} of {size_text(crumb.ram_total_bytes)} free")
    if crumb.rss_bytes >= 0:
        found.append(f"memory of the model process: {size_text(crumb.rss_bytes)}")
    if crumb.device_free_bytes and _memory_known(seen):
        sizes = ", ".join(size_text(size) for size in crumb.device_free_bytes)
        found.append(f"free on devices: {sizes}")
    if 0 <= crumb.n_oom_kills < seen.n_oom_kills:
        found.append("the system ended a process for want of memory at that time")
    return found


def _ago(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.2f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"
