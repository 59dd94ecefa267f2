"""States of sliding windows and recurrent layers, kept to go back to.

Such a memory holds only what stands at the end of a sequence. To go on from an earlier place (an edited message,
another answer, thinking that the template leaves out) its state at that place is needed, or all is read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

State = npt.NDArray[np.uint8]
_MOST = 8


@dataclass(frozen=True)
class SavedState:
    """What llama.cpp's memory held after these tokens. checkpoints: states of earlier places (see `Checkpoints`)."""

    tokens: Sequence[int]
    state: State
    checkpoints: Sequence[tuple[int, State]] = ()

    @property
    def n_bytes(self) -> int:
        return self.state.nbytes + sum(state.nbytes for _, state in self.checkpoints)


class Checkpoints:
    """Kept states of all sequences, by the number of tokens that they stand after.

    Args:
        budget_bytes: of all together; what was taken first goes first. One always stays.
    """

    def __init__(self, n_sequences: int, budget_bytes: int) -> None:
        self._budget = budget_bytes
        self._kept: list[dict[int, State]] = [{} for _ in range(n_sequences)]
        self._order: list[tuple[int, int]] = []
        self._bytes = 0

    def add(self, sequence: int, length: int, state: State) -> None:
        self._forget(sequence, length)
        self._kept[sequence][length] = state
        self._order.append((sequence, length))
        self._bytes += state.nbytes
        lengths = sorted(self._kept[sequence])
        if len(lengths) > _MOST:
            self._forget(sequence, lengths[1])  # the first stands after what later turns begin with too
        while self._bytes > self._budget and len(self._order) > 1:
            self._forget(*self._order[0])

    def has(self, sequence: int, length: int) -> bool:
        return length in self._kept[sequence]

    def best(self, sequence: int, length: int) -> int:
        """The longest kept one of at most that length, 0 if there is none."""
        return max((n for n in self._kept[sequence] if n <= length), default=0)

    def get(self, sequence: int, length: int) -> State:
        return self._kept[sequence][length]

    def latest(self, sequence: int, count: int) -> list[tuple[int, State]]:
        return sorted(self._kept[sequence].items())[-count:]

    def cut(self, sequence: int, length: int) -> None:
        """Those of a greater length are of no use any more."""
        for n in [n for n in self._kept[sequence] if n > length]:
            self._forget(sequence, n)

    def copy(self, source: int, target: int, length: int) -> None:
        self.cut(target, 0)
        for n, state in sorted(self._kept[source].items()):
            if n <= length:
                self.add(target, n, state)

    def _forget(self, sequence: int, length: int) -> None:
        state = self._kept[sequence].pop(length, None)
        if state is not None:
            self._order.remove((sequence, length))
            self._bytes -= state.nbytes
