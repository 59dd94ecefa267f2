"""Is the event loop turning? A heartbeat measures its gaps; in debug a thread says what held it up."""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback

from PySide6.QtCore import QObject, Qt, QTimer

BEAT_S = 0.010
LIMIT_S = 0.100
_log = logging.getLogger("inglenook.watchdog")


class Heartbeat(QObject):
    """Ticks every 10 ms on the thread it lives on and remembers the longest time between two ticks.

    Also the tests' measure of "the window never waits": `reset()`, do it, read `longest_gap_s`.
    """

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._last = time.perf_counter()
        self._longest_s = 0.0
        self._n_beats = 0
        self._timer = QTimer(self)
        self._timer.setTimerType(Qt.TimerType.PreciseTimer)
        self._timer.setInterval(round(BEAT_S * 1000))
        self._timer.timeout.connect(self._beat)
        self._timer.start()

    def _beat(self) -> None:
        now = time.perf_counter()
        self._longest_s = max(self._longest_s, now - self._last)
        self._last = now
        self._n_beats += 1

    def reset(self) -> None:
        """Start measuring anew from now."""
        self._last = time.perf_counter()
        self._longest_s = 0.0
        self._n_beats = 0

    def stop(self) -> None:
        self._timer.stop()

    @property
    def longest_gap_s(self) -> float:
        """Longest time between two beats since `reset`, the running one included, in seconds."""
        return max(self._longest_s, self.since_last_s if self._timer.isActive() else 0.0)

    @property
    def since_last_s(self) -> float:
        """Seconds since the last beat; may be read from any thread."""
        return time.perf_counter() - self._last

    @property
    def n_beats(self) -> int:
        return self._n_beats


class Watchdog:
    """A thread that logs the stack of the thread it was made on whenever its heartbeat is late."""

    def __init__(self, heartbeat: Heartbeat, limit_s: float = LIMIT_S) -> None:
        self._heartbeat = heartbeat
        self._limit_s = limit_s
        self._watched = threading.get_ident()
        self._stop = threading.Event()
        self.n_reports = 0
        self._thread = threading.Thread(target=self._watch, name="inglenook-watchdog", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        reported = False
        while not self._stop.wait(self._limit_s / 4):
            late_s = self._heartbeat.since_last_s
            if late_s <= self._limit_s:
                reported = False
            elif not reported:
                reported = True
                self.n_reports += 1
                frame = sys._current_frames().get(self._watched)
                stack = "".join(traceback.format_stack(frame)) if frame else "(no stack)"
                _log.warning("the event loop has stood still for %.0f ms in:\n%s", late_s * 1000, stack)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=1)
