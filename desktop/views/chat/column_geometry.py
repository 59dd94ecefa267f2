"""Where the rows of a long column are: their heights, the scroll range, and the row that is looked at.

Heights of rows never seen are estimates. When a real height takes the place of an estimate, the row that the reader
looks at stays where it is: the scroll position is kept as "this row, this many pixels from the top", not as a
number of pixels from the beginning.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable
from itertools import accumulate
from typing import Protocol, cast

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QAbstractScrollArea, QFrame, QWidget

#: Empty pixels above the first and below the last row.
PAD_TOP = 14
PAD_BOTTOM = 10


class Row(Protocol):
    """What a row's widget must be able to do."""

    @property
    def held(self) -> bool: ...
    def height_for(self, width: int) -> int: ...
    def work(self, deadline: float) -> bool: ...


class Heights:
    """Heights of rows in pixels, and their tops (below an empty strip), summed up only when asked for."""

    def __init__(self, heights: list[int] | None = None) -> None:
        self._heights = heights or []
        self._tops: list[int] = []
        self._valid = False

    def __len__(self) -> int:
        return len(self._heights)

    def __getitem__(self, row: int) -> int:
        return self._heights[row]

    def set(self, row: int, height: int) -> bool:
        """True if that changed anything."""
        if self._heights[row] == height:
            return False
        self._heights[row] = height
        self._valid = False
        return True

    def append(self, height: int) -> None:
        self._heights.append(height)
        self._valid = False

    def cut(self, length: int) -> None:
        del self._heights[length:]
        self._valid = False

    def tops(self) -> list[int]:
        """Top of every row, and the total as one entry more."""
        if not self._valid:
            self._tops = list(accumulate(self._heights, initial=PAD_TOP))
            self._valid = True
        return self._tops

    def total(self) -> int:
        return self.tops()[-1] + (PAD_BOTTOM if self._heights else 0)

    def at(self, y: int) -> int:
        """The row at `y`, the nearest one outside."""
        return max(0, min(len(self._heights) - 1, bisect_right(self.tops(), y) - 1))


class ColumnGeometry(QAbstractScrollArea):
    """The scroll area: where rows are and what is in sight. `LazyColumn` builds the widgets.

    Signals:
        follow_changed(bool): whether the end is kept in sight.
    """

    follow_changed = Signal(bool)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOn)
        self.verticalScrollBar().setSingleStep(48)
        self._heights = Heights()
        self._rows: dict[Hashable, QWidget] = {}
        self._unfinished: dict[Hashable, None] = {}
        self._known: dict[Hashable, int] = {}
        self._anchor: tuple[Hashable, int] | None = None
        self._follow = True
        self._arranging = False

    # ------------------------------------------------------------------ for subclasses

    def row_key(self, row: int) -> Hashable:
        """What a row is known by when its number changes."""
        raise NotImplementedError

    def row_number(self, key: Hashable) -> int | None:
        """The number of a row; None if it is gone."""
        raise NotImplementedError

    def estimate(self, row: int, width: int) -> int:
        """A guess at a row's height in pixels."""
        raise NotImplementedError

    def make_row(self, row: int) -> QWidget:
        """A new widget (a `Row`) in the viewport."""
        raise NotImplementedError

    def row_let_go(self, key: Hashable, widget: QWidget) -> None:
        """A row's widget is about to be deleted; the row may come back as another widget."""

    # ------------------------------------------------------------------ rows

    @property
    def follows(self) -> bool:
        """Whether the end is kept in sight when rows grow."""
        return self._follow

    @property
    def widgets(self) -> dict[Hashable, QWidget]:
        """The rows that exist as widgets, by key."""
        return self._rows

    def forget_heights(self) -> None:
        """Measured heights do not hold any more; they become estimates."""
        width = self.viewport().width()
        self._known.clear()
        self._heights = Heights([self.estimate(row, width) for row in range(len(self._heights))])

    def _drop(self, key: Hashable) -> None:
        widget = self._rows.pop(key)
        self.row_let_go(key, widget)
        self._unfinished.pop(key, None)
        widget.hide()
        widget.deleteLater()

    # ------------------------------------------------------------------ geometry

    def measure(self, key: Hashable) -> bool:
        """Take a row's real height; True if it changed."""
        row = self.row_number(key)
        widget = self._rows.get(key)
        if row is None or widget is None:
            return False
        height = cast(Row, widget).height_for(self.viewport().width())
        self._known[key] = height
        changed = self._heights.set(row, height)
        if widget.height() != height or widget.width() != self.viewport().width():
            widget.resize(self.viewport().width(), height)
        return changed

    def arrange(self) -> None:
        """Set the scroll range and put every widget in its place, with the row that is looked at kept there."""
        if self._arranging:
            return
        self._arranging = True
        bar = self.verticalScrollBar()
        height = self.viewport().height()
        most = max(0, self._heights.total() - height)
        value = most
        if not self._follow and self._anchor is not None:
            row = self.row_number(self._anchor[0])
            value = self._heights.tops()[row] - self._anchor[1] if row is not None else bar.value()
        value = max(0, min(value, most))
        bar.setRange(0, most)
        bar.setEnabled(most > 0)
        bar.setPageStep(height)
        bar.setValue(value)
        tops = self._heights.tops()
        for key, widget in self._rows.items():
            row = self.row_number(key)
            if row is None:
                continue
            y = tops[row] - value
            if widget.y() != y or widget.x() != 0:
                widget.move(0, y)
            seen = y < height and y + widget.height() > 0
            if seen and widget.isHidden():
                widget.show()
        self._arranging = False

    def _take_anchor(self) -> None:
        """Remember the place by a row that is seen; best by one whose height is known."""
        if not len(self._heights):
            self._anchor = None
            return
        value = self.verticalScrollBar().value()
        tops = self._heights.tops()
        first, last = self._heights.at(value), self._heights.at(value + self.viewport().height() - 1)
        keys = {row: self.row_key(row) for row in range(first, last + 1)}
        built = [row for row, key in keys.items() if key in self._rows]
        complete = [row for row in built if keys[row] not in self._unfinished]
        chosen = (complete or built or [first])[0]
        self._anchor = (self.row_key(chosen), tops[chosen] - value)

    def _set_follow(self, on: bool) -> None:
        if on != self._follow:
            self._follow = on
            if not on:
                self._take_anchor()
            self.follow_changed.emit(on)

    def stay_here(self) -> None:
        """Stop keeping the end in sight."""
        self._take_anchor()
        self._set_follow(False)
