"""How much of a prompt to read in one step: a running answer must not stop for it."""

from __future__ import annotations

#: while an answer is being written, a step may take about this long because of a prompt being read
STEP_S = 0.1
#: and this many times as long as a step without it, where the model is slower than that
_SLOW_STEP = 2.0
_FIRST_CHUNK = 64
_SMALLEST_CHUNK = 8
_ROUND_TO = 8
#: a chunk smaller than this tells too little about the speed
_TELLING = 16
_WEIGHT = 0.3
#: tokens of a prompt that are read in the time in which one is written, at least
_LIKELY = 3.0


class Pace:
    """Learns from every step how long tokens take.

    Attributes:
        rate: tokens of a prompt read in a second.
        step_s: seconds of a step that only writes.
    """

    def __init__(self) -> None:
        self.rate = _FIRST_CHUNK / STEP_S
        self.step_s = 0.0
        self._known = False

    def chunk(self) -> int:
        """Tokens of prompts for a step in which an answer is written too."""
        room_s = max(STEP_S, _SLOW_STEP * self.step_s) - self.step_s
        # before anything was read all that is known is how long one token takes
        rate = self.rate if self._known or not self.step_s else min(self.rate, _LIKELY / self.step_s)
        count = int(rate * room_s)
        return max(_SMALLEST_CHUNK, count - count % _ROUND_TO)

    def reading_s(self, n_tokens: int) -> float:
        """Seconds that reading so many tokens takes, as far as can be told."""
        return n_tokens / self.rate

    def note(self, n_writing: int, n_reading: int, took_s: float) -> None:
        """A step has taken so long."""
        if not n_reading:
            self.step_s = took_s if not self.step_s else (1 - _WEIGHT) * self.step_s + _WEIGHT * took_s
        elif n_reading >= _TELLING or n_writing:
            own_s = max(took_s - (self.step_s if n_writing else 0.0), took_s / 4)
            rate = n_reading / max(own_s, 1e-6)
            self.rate = (1 - _WEIGHT) * self.rate + _WEIGHT * rate if self._known else rate
            self._known = True
