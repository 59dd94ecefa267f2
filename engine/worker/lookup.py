"""Guessing the next tokens by what followed the last ones where they stood before (prompt lookup).

An answer that quotes, edits code or fills in a form says again what stands in its prompt.
"""

from __future__ import annotations

from collections.abc import Sequence

#: so many tokens have to be the same before anything is guessed
SHORTEST_MATCH = 3
#: looking further back than this tells nothing more
LONGEST_MATCH = 32


class Lookup:
    """The last place of every three tokens in a list that grows at its end."""

    def __init__(self) -> None:
        self._ends: dict[tuple[int, int, int], int] = {}
        self._n_seen = SHORTEST_MATCH - 1

    def reset(self) -> None:
        """The list is another one now."""
        self._ends.clear()
        self._n_seen = SHORTEST_MATCH - 1

    def guess(self, tokens: Sequence[int], most: int) -> tuple[list[int], int]:
        """(at most so many tokens that may follow, how many of the last tokens stood before them)"""
        end = self._find(tokens)
        if end < 0 or most < 1:
            return [], 0
        guessed = list(tokens[end + 1 : end + 1 + most])
        period = len(guessed)
        while len(guessed) < most:  # the place reaches into the end: something is said again and again
            guessed.append(guessed[-period])
        last, length = len(tokens) - 1, SHORTEST_MATCH
        while length < min(LONGEST_MATCH, end + 1) and tokens[end - length] == tokens[last - length]:
            length += 1
        return guessed, length

    def _find(self, tokens: Sequence[int]) -> int:
        """Where the last three tokens end for the last time before the end, -1 for nowhere."""
        last = len(tokens) - 1
        ends = self._ends
        for i in range(self._n_seen, last):
            ends[tokens[i - 2], tokens[i - 1], tokens[i]] = i
        self._n_seen = max(self._n_seen, last)
        if last < SHORTEST_MATCH:
            return -1
        return ends.get((tokens[last - 2], tokens[last - 1], tokens[last]), -1)
