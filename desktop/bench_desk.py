"""Measuring models as the window does it: one at a time, on a thread of its own, the results kept in the profile."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from desktop.bridge import EngineBridge
from desktop.tasks import Tasks
from engine.bench_history import BenchHistory, BenchResult, history_file
from engine.errors import Busy, EngineError

if TYPE_CHECKING:
    from engine.bench import Benchmark, BenchSpec, Progress
    from engine.service import Engine

_log = logging.getLogger("inglenook.desktop")


class BenchDesk(QObject):
    """Signals:
    progress(object): `engine.bench.Progress`. finished(object): `BenchResult`, kept already.
    ended(object): the error that ended a measurement; `Cancelled` after `stop`.
    history_changed(object): all results that are kept, oldest first.
    failed(object): something else went wrong (the history cannot be written).
    """

    progress = Signal(object)
    finished = Signal(object)
    ended = Signal(object)
    history_changed = Signal(object)
    failed = Signal(object)

    def __init__(self, engine: Engine, bridge: EngineBridge, tasks: Tasks, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._engine, self._bridge, self._tasks = engine, bridge, tasks
        self._history = BenchHistory(history_file(engine.paths.data))
        self._running: Benchmark | None = None
        self._thread: threading.Thread | None = None

    @property
    def running(self) -> bool:
        return self._running is not None

    def start(self, spec: BenchSpec) -> None:
        """Begin; `finished` or `ended` follows.

        Raises:
            Busy: a model is loading or writing, which would spoil both; or one runs already.
            InvalidRequest: the measurement cannot be made so.
        """
        from engine.bench import Benchmark

        if self._running is not None:
            raise Busy("A model is being measured already")
        if self._engine.model_state.status == "loading" or self._engine.chats.generating():
            hint = "Wait for its end, then try again."
            raise Busy("A model is at work, so nothing can be measured now", hint=hint)
        bench = Benchmark(spec, progress=self._on_progress, settings=self._engine.settings)
        self._running = bench
        result: Future[BenchResult] = Future()
        # a daemon: where it does not end in time its process ends with its pipe
        self._thread = threading.Thread(target=self._work, args=(bench, result), name="bench", daemon=True)
        self._thread.start()
        self._bridge.run(result, self._on_finished, self._on_ended, owner=self)

    def stop(self) -> None:
        """End a measurement soon."""
        if self._running is not None:
            self._running.stop()

    def wait_for_end(self, timeout_s: float) -> None:
        """For the end of the program, on a thread that may wait: its model process is gone afterwards."""
        self.stop()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _work(self, bench: Benchmark, result: Future[BenchResult]) -> None:
        try:
            found = bench.run()
        except BaseException as error:
            if not isinstance(error, EngineError):
                _log.error("a measurement failed", exc_info=error)
            result.set_exception(error)
            return
        try:
            self._history.add(found)
        except EngineError as error:  # the figures are there all the same
            self._bridge.post(partial(self.failed.emit, error))
        result.set_result(found)

    def _on_progress(self, now: Progress) -> None:
        """Called from the measurement's threads."""
        self._bridge.post(lambda: self.progress.emit(now) if self.running else None)

    def _on_finished(self, result: BenchResult) -> None:
        self._running = None
        self.finished.emit(result)
        self.read_history()

    def _on_ended(self, error: BaseException) -> None:
        self._running = None
        self.ended.emit(error)

    # ---- history

    def read_history(self) -> None:
        """`history_changed` follows."""
        self._tasks.run(self._history.results, self.history_changed.emit, self.failed.emit, owner=self)

    def remove(self, result: BenchResult) -> None:
        """Forget a result; `restore` brings it back."""
        self._change(lambda: self._history.remove(result))

    def restore(self, result: BenchResult) -> None:
        self._change(lambda: self._history.add(result))

    def _change(self, work: Callable[[], None]) -> None:
        self._tasks.run(work, lambda _: self.read_history(), self.failed.emit, owner=self)
