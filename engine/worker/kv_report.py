"""Tells those who watch what the KV cache holds: only when it has changed, and not more often than they asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from engine import events
from engine.worker.cells import Cells
from engine.worker.slots import Slot

#: however often somebody asks for it, it is not sent more often than this
SHORTEST_S = 0.25


class KvReport:
    """Runs on the owner thread.

    Args:
        send: takes the events.
    """

    def __init__(self, send: Callable[[events.Event], None]) -> None:
        self._send = send
        self._interval_s = 0.0
        self._due_s = 0.0
        self._said: object = None

    def watch(self, interval_s: float) -> None:
        """Report at most so often from now on, beginning at once; 0: no more."""
        self._interval_s = max(SHORTEST_S, interval_s) if interval_s > 0 else 0.0
        self._due_s, self._said = 0.0, None

    @property
    def watched(self) -> bool:
        return self._interval_s > 0

    def look(self, slots: Sequence[Slot], cells: Cells) -> float | None:
        """Report if there is something new. To be called after every step and before a rest.

        Returns:
            The seconds after which it has to be called again, None if that is not needed.
        """
        if not self._interval_s:
            return None
        rest_s = self._due_s - time.monotonic()
        # all that a map shows: two answers may hold as many cells, of which others were moved
        state = (
            [(s.n_past, s.n_saved, s.key, s.answer is not None, cells.moved(s.id)) for s in slots],
            cells.used,
        )
        if state == self._said:
            return None
        if rest_s > 0:
            return rest_s
        self._said = state
        self._due_s = time.monotonic() + self._interval_s
        self._send(kv_map(slots, cells))
        return None


def kv_map(slots: Sequence[Slot], cells: Cells) -> events.KvMap:
    """What each sequence holds."""
    found = []
    for slot in slots:
        number = slot.id
        if not (n_cells := slot.n_past):
            continue
        before = [cells.same(number, other.id) for other in slots if other.id < number]
        after = [cells.same(number, other.id) for other in slots if other.id > number]
        moved_from, n_moved = cells.moved(number)
        found.append(
            events.KvSequence(
                slot=number,
                key=slot.key,
                n_cells=n_cells,
                n_shared=max([0, *before, *after]),
                n_listed=max([0, *before]),
                moved_from=moved_from,
                n_moved=n_moved,
                n_saved=min(slot.n_saved, n_cells),
                active=slot.answer is not None,
            )
        )
    return events.KvMap(n_ctx=cells.total, n_used=cells.used, sequences=tuple(found))
