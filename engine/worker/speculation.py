"""How many tokens to guess ahead: as many as pay, by what steps and guesses have been worth so far.

A guess costs the time by which checking it makes a step longer, and gains the steps that the right ones save. Both are
measured all the time. What may be lost by trying is a small share of the time spent on writing, so where guessing does
not pay it stops by itself; now and then it is tried again.
"""

from __future__ import annotations

from engine.engine_options import GUESSED_TOKENS
from engine.worker import hooks
from engine.worker.pace import Pace

FIRST_GUESSES = 2
#: may be lost by trying: this share of the time of writing, and at first so many steps
_MAY_LOSE, _MAY_LOSE_STEPS = 0.01, 1.5
#: what was won counts for no more than so many steps, or a good text would pay for a bad one
_WON_STEPS = 4.0
#: a gain of less than this share of a step is none
_WORTH = 0.05
_WEIGHT = 0.2
_TRIALS = 4.0
_LONG_MATCH = 8
_MOST_TRIALS = 40.0
_TRY_AGAIN = 256


class StepTimes:
    """Seconds of steps that only write, by the number of tokens computed in them."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._known: dict[int, float] = {}

    def note(self, rows: int, took_s: float) -> None:
        before = self._known.get(rows)
        # once in a while a step is slow for no reason of its own
        took_s = took_s if before is None else min(took_s, 3 * before)
        self._known[rows] = took_s if before is None else (1 - _WEIGHT) * before + _WEIGHT * took_s

    def of(self, rows: int) -> float:
        """Measured, or taken from the nearest number of rows and the speed of reading. 0: nothing is known yet."""
        known = self._known.get(rows)
        if known is not None or not self._known:
            return known or 0.0
        nearest = min(self._known, key=lambda n: (abs(n - rows), n))
        if nearest < rows:
            return self._known[nearest] + (rows - nearest) / self._pace.rate
        return self._known[nearest] * (rows + nearest) / (2 * nearest)


class Chances:
    """How often guesses of one kind are right, token by token. It begins with a belief that is soon outweighed."""

    def __init__(self, belief: float) -> None:
        self._right, self._tried = belief * _TRIALS, _TRIALS

    @property
    def share(self) -> float:
        return self._right / self._tried

    def note(self, n_guessed: int, n_right: int) -> None:
        self._right += n_right
        self._tried += n_right + (n_right < n_guessed)  # behind the first wrong one nothing was tried
        if self._tried > _MOST_TRIALS:
            self._right, self._tried = self._right * _MOST_TRIALS / self._tried, _MOST_TRIALS


class Speculation:
    """Decides for all answers of a context, and learns from every step."""

    def __init__(self, pace: Pace) -> None:
        self.times = StepTimes(pace)
        #: by how many of the last tokens stood before a guess
        self._chances = [(3, Chances(0.4)), (5, Chances(0.5)), (8, Chances(0.7)), (14, Chances(0.85))]
        self._by_model = Chances(0.6)
        self._won_s = self._written_s = 0.0
        self._since_tried = 0

    def chances(self, match: int) -> Chances:
        """match: how many of the last tokens stood before the guess; 0: a draft model made it."""
        if not match:
            return self._by_model
        return next(c for n, c in reversed(self._chances) if match >= n)

    def n_worth(self, match: int, ramp: int, n_writing: int, rows: int, *, cost_s: float = 0.0) -> int:
        """How many tokens of such a guess to check; 0: none.

        Args:
            ramp: how many of the last guess of this answer were right, or so.
            n_writing, rows: answers in the step, and tokens computed for them without this guess.
            cost_s: of making one guessed token.
        """
        if hooks.ALWAYS_GUESS:
            return min(FIRST_GUESSES + ramp, GUESSED_TOKENS - (rows - n_writing))
        step_s = self.times.of(n_writing)
        if not step_s or self._won_s < -(_MAY_LOSE * self._written_s + _MAY_LOSE_STEPS * step_s):
            return 0
        share = self.chances(match).share
        if self._since_tried > _TRY_AGAIN and match >= 8:
            share = max(share, self._chances[-1][1].share, 0.9)
        saved_s, base_s = step_s / n_writing, self.times.of(rows)
        best, best_s, right = 0, _WORTH * saved_s, 0.0
        for n in range(1, min(ramp, GUESSED_TOKENS - (rows - n_writing)) + 1):
            right += share**n
            gain_s = right * saved_s - (self.times.of(rows + n) - base_s) - n * cost_s
            if gain_s > best_s:
                best, best_s = n, gain_s
        return best

    @staticmethod
    def ramp_of(match: int, ramp: int) -> int:
        """How many tokens of a guess to think of. A long match makes a long guess likely, and on a CPU only long ones
        pay: two tokens take nearly twice as long as one there, nine not five times."""
        return max(ramp, match) if match >= _LONG_MATCH else ramp

    @staticmethod
    def next_ramp(n_guessed: int, n_right: int) -> int:
        """How many to guess at most the next time: more after a good guess, few after a bad one."""
        return min(GUESSED_TOKENS, 2 * n_guessed) if n_right == n_guessed else max(FIRST_GUESSES, n_right)

    def note(self, n_writing: int, guesses: list[tuple[int, int, int]], took_s: float, drafting_s: float) -> None:
        """A step that only wrote is over.

        Args:
            guesses: (match, tokens guessed, tokens right) for each guess.
            took_s: all of it. drafting_s: the part in which a draft model guessed.
        """
        self._written_s += took_s
        n_guessed = sum(n for _, n, _ in guesses)
        rows = n_writing + n_guessed
        self.times.note(rows, took_s - drafting_s)
        if not guesses:
            self._since_tried += n_writing
            return
        self._since_tried = 0
        for match, guessed, right in guesses:
            self.chances(match).note(guessed, right)
        step_s = self.times.of(n_writing)
        n_right = sum(right for _, _, right in guesses)
        won_s = n_right * step_s / n_writing - (took_s - step_s)
        self._won_s = min(self._won_s + won_s, _WON_STEPS * step_s)
