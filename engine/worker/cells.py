"""Which cells of a context hold which sequence: llama.cpp does not tell, so it is counted here.

A cell that several sequences share (a beginning that was copied) is counted once. Shared are always the first cells of
a sequence, never ones in its middle: only beginnings are copied.
"""

from __future__ import annotations

from collections.abc import Iterable


class Cells:
    """Sequences as lists of cells, by position. Cells have numbers of our own; llama.cpp's places are its business.

    Attributes:
        total: how many there are.
        used: how many hold something.
    """

    def __init__(self, total: int, n_sequences: int) -> None:
        self.total, self.used = total, 0
        self._lists: list[list[int]] = [[] for _ in range(n_sequences)]
        #: cell -> how many sequences hold it, if more than one does
        self._holders: dict[int, int] = {}
        #: positions (from, to) of each sequence whose cells were moved there
        self._moved: list[tuple[int, int]] = [(0, 0)] * n_sequences
        self._next = 0

    @property
    def free(self) -> int:
        return self.total - self.used

    def length(self, sequence: int) -> int:
        return len(self._lists[sequence])

    def grow(self, sequence: int, count: int) -> None:
        """So many new cells at its end."""
        self._lists[sequence].extend(range(self._next, self._next + count))
        self._next += count
        self.used += count

    def cut(self, sequence: int, length: int) -> None:
        """Everything from position `length` on is given up."""
        cells = self._lists[sequence]
        self._leave(cells[length:])
        del cells[length:]
        self._clip(sequence)

    def copy(self, source: int, target: int, length: int) -> None:
        """`target`, which is empty, begins as the first `length` cells of `source`."""
        cells = self._lists[source][:length]
        self._lists[target] = cells
        self._moved[target] = self._moved[source]
        self._clip(target)
        holders = self._holders
        for cell in cells:
            holders[cell] = holders.get(cell, 1) + 1

    def close_gap(self, sequence: int, start: int, stop: int) -> None:
        """Positions `start` to `stop` (excluded) are given up, and what comes after them moves there."""
        cells = self._lists[sequence]
        self._leave(cells[start:stop])
        del cells[start:stop]
        first, last = self._moved[sequence]
        self._moved[sequence] = (min(first, start) if last > first else start, len(cells))

    def moved(self, sequence: int) -> tuple[int, int]:
        """(first position, how many) of its cells that were moved to where they are, (0, 0) for none."""
        first, last = self._moved[sequence]
        return (first, last - first) if last > first else (0, 0)

    def same(self, one: int, other: int) -> int:
        """How many cells at their beginning two sequences hold together."""
        if not self._holders:
            return 0
        a, b = self._lists[one], self._lists[other]
        low, high = 0, min(len(a), len(b))
        while low < high:  # what is copied is a beginning: once they differ, they differ to the end
            middle = (low + high + 1) // 2
            low, high = (middle, high) if a[middle - 1] == b[middle - 1] else (low, middle - 1)
        return low

    def shared(self, sequence: int) -> int:
        """How many cells at its beginning it shares with others."""
        if not self._holders:
            return 0
        cells = self._lists[sequence]
        return next((i for i in range(len(cells), 0, -1) if cells[i - 1] in self._holders), 0)

    def held(self, sequences: Iterable[int]) -> int:
        """How many cells these sequences hold together."""
        lists = [self._lists[i] for i in sequences]
        return sum(map(len, lists)) if not self._holders else len(set().union(*lists))

    def sharers(self, sequence: int, position: int) -> list[int]:
        """The other sequences that hold its cell of this position."""
        cell = self._lists[sequence][position]
        if cell not in self._holders:
            return []
        return [i for i, cells in enumerate(self._lists) if i != sequence and cells[position : position + 1] == [cell]]

    def _clip(self, sequence: int) -> None:
        first, last = self._moved[sequence]
        last = min(last, len(self._lists[sequence]))
        self._moved[sequence] = (first, last) if last > first else (0, 0)

    def _leave(self, cells: list[int]) -> None:
        holders = self._holders
        if not holders:
            self.used -= len(cells)
            return
        for cell in cells:
            count = holders.get(cell, 0)
            if count > 2:
                holders[cell] = count - 1
            elif count == 2:
                del holders[cell]
            else:
                self.used -= 1
