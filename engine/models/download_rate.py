"""Speed and time left, from what really came in the last seconds."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

_WINDOW_S = 6.0
_LEAST_S = 0.5


class Rate:
    """Fed with the bytes done so far; tells nothing rather than something wrong.

    Args:
        quiet_s: without a byte for this long there is no speed.
    """

    def __init__(self, quiet_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._quiet_s = clock, quiet_s
        self._points: deque[tuple[float, int]] = deque()
        self.last_byte_s = clock()

    def restart(self) -> None:
        self._points.clear()
        self.last_byte_s = self._clock()

    def feed(self, bytes_done: int) -> None:
        now = self._clock()
        if self._points and bytes_done < self._points[-1][1]:  # fetched from the beginning again
            self._points.clear()
        if not self._points or bytes_done > self._points[-1][1]:
            self.last_byte_s = now
        self._points.append((now, bytes_done))
        while self._points[-1][0] - self._points[0][0] > _WINDOW_S:
            self._points.popleft()

    @property
    def quiet(self) -> bool:
        return self._clock() - self.last_byte_s >= self._quiet_s

    def speed_bps(self) -> float | None:
        """Bytes a second over the last seconds; None while nothing comes or too little is known."""
        if len(self._points) < 2 or self.quiet:
            return None
        (t0, b0), (t1, b1) = self._points[0], self._points[-1]
        if t1 - t0 < _LEAST_S or b1 <= b0:
            return None
        return (b1 - b0) / (t1 - t0)

    def eta_s(self, bytes_left: int) -> float | None:
        speed = self.speed_bps()
        return bytes_left / speed if speed else None
