"""Figures of the answers that are being written, from the worker's own clock. No Qt."""

from __future__ import annotations

import math
import statistics
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from desktop.speeds import Speeds
from engine.events import PromptProgress, Token

#: "now" is this many seconds; an answer from which nothing has come for longer has no speed now
NOW_S = 2.0
#: tokens that came together, as guesses that were right do, tell no speed
LEAST_S = 0.05
_SLOW_STEPS = 3.0
#: steps whose times are kept
N_STEPS = 1024


@dataclass
class Run:
    """One answer on its way.

    Attributes:
        seen_s: when its last event came, on the clock of `time.monotonic`.
        late: its beginning was not seen: when its first token came is not known here.
        n_written: its tokens so far.
        prefill_now: tokens a second of the last step that read the prompt; None before and after.
    """

    message_id: int
    speeds: Speeds = field(default_factory=Speeds)
    seen_s: float = 0.0
    late: bool = False
    n_written: int = 0
    prefill_now: float | None = None
    _times: deque[float] = field(default_factory=lambda: deque(maxlen=1024))
    _in_step: bool = False

    @classmethod
    def joined(cls, message_id: int, speeds: Speeds, now_s: float) -> Run:
        """An answer that was followed elsewhere up to now. How fast it is now is known from its next tokens on."""
        return cls(message_id, replace(speeds), now_s, n_written=speeds.n_written)

    def add(self, step: Token | PromptProgress, now_s: float) -> float | None:
        """Take the next step of the answer.

        Returns:
            The seconds that the decode step behind it took, where it is the first token of one and not of the answer.
        """
        self.seen_s = now_s
        if isinstance(step, Token) and not self.n_written and step.index > 0:
            self.late = True
        self.speeds.add(step)
        if isinstance(step, PromptProgress):
            if step.n_chunk > 0 and step.took_s > 0:
                self.prefill_now = step.n_chunk / step.took_s
            elif self.speeds.prefill_tps is not None:
                self.prefill_now = self.speeds.prefill_tps
            return None
        self.n_written = max(self.n_written, step.index + 1)
        if step.forced:  # given as a branch begins, and not computed by a step of its own
            return None
        self.prefill_now = None
        before = self._times[-1] if self._times else None
        in_step, self._in_step = self._in_step, step.drafted
        self._times.append(step.time_s)
        # a guess that was right came with the step of the token before it
        if before is None or in_step or step.time_s < before:
            return None
        return step.time_s - before

    def decode_now(self, now_s: float) -> float | None:
        """Tokens a second of the last moments by the worker's clock; None where there are none."""
        times = self._times
        if len(times) < 2:
            return None
        first = next(t for t in times if t >= times[-1] - NOW_S)
        n = sum(1 for t in times if t > first)
        if n < 1:
            first, n = times[-2], 1
        took = times[-1] - first
        patience = max(NOW_S, _SLOW_STEPS * took / n)
        return n / took if took >= LEAST_S and now_s - self.seen_s <= patience else None


def total_now(runs: Iterable[Run], now_s: float) -> float | None:
    """Tokens a second of all answers together."""
    rates = [rate for run in runs if (rate := run.decode_now(now_s)) is not None]
    return sum(rates) if rates else None


@dataclass(frozen=True)
class StepTimes:
    """How long decode steps took, in seconds.

    Attributes:
        edges, counts: the histogram; a step is in bin i where edges[i] <= s < edges[i + 1], those beyond the last edge
            are in the last bin.
    """

    n: int
    mean: float
    median: float
    p95: float
    longest: float
    edges: tuple[float, ...]
    counts: tuple[int, ...]


def step_times(steps: Sequence[float], n_bins: int = 24) -> StepTimes | None:
    """The distribution of these steps, None where there are fewer than two."""
    ordered = sorted(one for one in steps if math.isfinite(one) and one >= 0)
    if len(ordered) < 2:
        return None
    p95 = ordered[min(len(ordered) - 1, round(0.95 * (len(ordered) - 1)))]
    median = statistics.median(ordered)
    top = max(min(ordered[-1], max(3 * median, 1.3 * p95)), ordered[0] + 1e-6)
    low = ordered[0]
    width = (top - low) / n_bins
    counts = [0] * n_bins
    for one in ordered:
        counts[min(n_bins - 1, int((one - low) / width))] += 1
    edges = tuple(low + i * width for i in range(n_bins + 1))
    return StepTimes(len(ordered), statistics.fmean(ordered), median, p95, ordered[-1], edges, tuple(counts))


def monotonic_s() -> float:
    """The clock of `Run.seen_s`."""
    return time.monotonic()
