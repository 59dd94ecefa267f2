"""Resident memory of the window's and the model's process, measured every second and a half off the GUI thread."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, Signal

from desktop.tasks import Tasks

if TYPE_CHECKING:
    from engine.service import Engine

INTERVAL_MS = 1500


def rss_bytes(pid: int | None) -> int | None:
    """Resident set of a process, None if there is none."""
    import psutil

    if pid is None:
        return None
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except (psutil.Error, OSError):
        return None


class MemoryWatch(QObject):
    """Signals:
    measured(object, object): bytes of this process and of the worker; None where there is no process.
    """

    measured = Signal(object, object)

    def __init__(self, engine: Engine, tasks: Tasks, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._engine = engine
        self._tasks = tasks
        self._busy = False
        self._timer = QTimer(self)
        self._timer.setInterval(INTERVAL_MS)
        self._timer.timeout.connect(self._measure)

    def start(self) -> None:
        self._timer.start()
        self._measure()

    def stop(self) -> None:
        self._timer.stop()

    def _measure(self) -> None:
        if self._busy:
            return
        self._busy = True
        pid = self._engine.worker_pid
        self._tasks.run(lambda: (rss_bytes(os.getpid()), rss_bytes(pid)), self._done, self._failed, owner=self)

    def _done(self, result: tuple[int | None, int | None]) -> None:
        self._busy = False
        self.measured.emit(*result)

    def _failed(self, _: BaseException) -> None:
        self._busy = False
