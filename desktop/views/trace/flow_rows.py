"""Where the items of a flow stand: one after the other in rows as wide as the widget."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from PySide6.QtCore import QPointF, QRectF


class FlowRows:
    """Places of items in pixels.

    Attributes:
        gap: between two items. height: of a row.
        widths: of the items that were measured; they outlive another layout.
        lefts: of the items that have their place. firsts: the first item of each row.
    """

    def __init__(self) -> None:
        self.gap = 0.0
        self.height = 28.0
        self.widths: list[float] = []
        self.lefts: list[float] = []
        self.firsts: list[int] = []
        self._x = 0.0
        self._open = False  # the last row takes another item

    def __len__(self) -> int:
        """Items that have their place."""
        return len(self.lefts)

    def restart(self, measured: int) -> None:
        """No item has a place; the first `measured` keep their widths."""
        del self.widths[measured:]
        self.lefts, self.firsts = [], []
        self._x, self._open = 0.0, False

    def place(
        self, end: int, room: float, width_of: Callable[[int], float], breaks_after: Callable[[int], bool]
    ) -> None:
        """Give the items up to `end` (not included) their places."""
        gap, x = self.gap, self._x
        widths, lefts, firsts = self.widths, self.lefts, self.firsts
        for item in range(len(lefts), end):
            if item == len(widths):
                widths.append(width_of(item))
            width = min(widths[item], room)
            if not self._open or x + width > room:
                firsts.append(item)
                x = 0.0
            lefts.append(x)
            x += width + gap
            self._open = not breaks_after(item)
        self._x = x

    def span(self, row: int) -> tuple[int, int]:
        """First and last item (not included) of a row."""
        end = self.firsts[row + 1] if row + 1 < len(self.firsts) else len(self.lefts)
        return self.firsts[row], end

    def row_of(self, item: int) -> int:
        return bisect_right(self.firsts, item) - 1

    def area(self, item: int, room: float) -> QRectF:
        """The rectangle of an item; empty where it has no place."""
        if not 0 <= item < len(self.lefts):
            return QRectF()
        return QRectF(self.lefts[item], self.row_of(item) * self.height, min(self.widths[item], room), self.height)

    def at(self, place: QPointF, room: float) -> int:
        """The item at a place; -1 where there is none."""
        row = int(place.y() // self.height)
        if not 0 <= row < len(self.firsts):
            return -1
        first, end = self.span(row)
        item = bisect_right(self.lefts, place.x(), first, end) - 1
        if item < first or place.x() > self.lefts[item] + min(self.widths[item], room):
            return -1
        return item

    def beside(self, item: int, step: int) -> int:
        """The item in the next (1) or previous (-1) row at the same place; the item itself where there is no row."""
        if not 0 <= item < len(self.lefts):
            return 0
        row = self.row_of(item) + step
        if not 0 <= row < len(self.firsts):
            return item
        first, end = self.span(row)
        middle = self.lefts[item] + self.widths[item] / 2
        return max(first, bisect_right(self.lefts, middle, first, end) - 1)
