"""Measures how long the event loop of the GUI thread does not turn."""

from __future__ import annotations

import time
from collections.abc import Callable

from PySide6.QtCore import QEventLoop, Qt, QTimer


class Heartbeat:
    """A timer that ticks every 4 ms and notes every gap. Use it as a context.

    Attributes:
        gaps_s: seconds between ticks; on a busy machine this also counts the time others had the processor.
        turns_s: CPU time of the GUI thread between ticks: what one turn of the loop cost by itself.
        cpu_s: CPU time of the GUI thread while it ran.
    """

    def __init__(self) -> None:
        self.gaps_s: list[float] = []
        self.turns_s: list[float] = []
        self.cpu_s = 0.0
        self._timer = QTimer()
        self._timer.setTimerType(Qt.TimerType.PreciseTimer)
        self._timer.setInterval(4)
        self._timer.timeout.connect(self._tick)

    def __enter__(self) -> Heartbeat:
        self._last = time.perf_counter()
        self._cpu = self._last_cpu = time.thread_time()
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._tick()
        self.cpu_s = time.thread_time() - self._cpu
        self._timer.stop()

    def _tick(self) -> None:
        now = time.perf_counter()
        self.gaps_s.append(now - self._last)
        self._last = now
        cpu = time.thread_time()
        self.turns_s.append(cpu - self._last_cpu)
        self._last_cpu = cpu

    @property
    def longest_turn_s(self) -> float:
        return max(self.turns_s, default=0.0)

    @property
    def longest_s(self) -> float:
        return max(self.gaps_s, default=0.0)

    def count_over(self, seconds: float) -> int:
        """How many gaps were longer."""
        return sum(1 for gap in self.gaps_s if gap > seconds)


def run_until(done: Callable[[], bool], timeout_s: float = 30.0, every_ms: int = 10) -> bool:
    """Let the event loop turn until `done`, which is asked every `every_ms`; False after the timeout."""
    if done():
        return True
    loop = QEventLoop()
    end = time.perf_counter() + timeout_s
    timer = QTimer()
    timer.setTimerType(Qt.TimerType.PreciseTimer)

    def check() -> None:
        if done() or time.perf_counter() > end:
            loop.quit()

    timer.timeout.connect(check)
    timer.start(every_ms)
    loop.exec()
    timer.stop()
    return done()


def run_for(seconds: float) -> None:
    """Let the event loop turn for a while."""
    loop = QEventLoop()
    timer = QTimer()
    timer.setTimerType(Qt.TimerType.PreciseTimer)
    timer.setSingleShot(True)
    timer.timeout.connect(loop.quit)
    timer.start(max(1, round(seconds * 1000)))
    loop.exec()
