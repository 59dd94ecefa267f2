"""A column of thousands of rows of unequal height of which only those near the viewport exist as widgets.

Rows are built a few in one turn of the event loop, those in sight first.
"""

from __future__ import annotations

from collections.abc import Hashable
from time import perf_counter
from typing import cast

from PySide6.QtCore import QEvent, Qt, QTimer
from PySide6.QtGui import QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QWidget

from desktop.views.chat.column_geometry import ColumnGeometry, Heights, Row

#: Seconds that building rows may take in one turn of the event loop: for what is seen, and ahead of it.
VISIBLE_BUDGET_S = 0.008
AHEAD_BUDGET_S = 0.006
#: Viewport heights: how far rows are built ahead, and how far away they are let go.
AHEAD = 1.0
KEEP = 3.0
#: With more widgets than this those far away are let go even while new ones are being built.
MANY = 40


class LazyColumn(ColumnGeometry):
    """The column. A subclass says what the rows are: `row_key`, `row_number`, `estimate`, `make_row`."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self._build_more)

    # ------------------------------------------------------------------ rows

    def reset_rows(self, count: int, *, to_end: bool) -> None:
        """All rows may be others now; those with the same key keep their widgets and, if not to_end, the place."""
        width = self.viewport().width()
        known = self._known
        self._heights = Heights([known.get(self.row_key(row)) or self.estimate(row, width) for row in range(count)])
        for key in list(self._rows):
            if self.row_number(key) is None:
                self._drop(key)
        self._known = {key: height for key, height in known.items() if self.row_number(key) is not None}
        if to_end or self._anchor is None or self.row_number(self._anchor[0]) is None:
            self._set_follow(True)
        self._build_now()

    def add_row(self) -> None:
        """A row was added at the end."""
        self._heights.append(self.estimate(len(self._heights), self.viewport().width()))
        self._build_now()

    def cut_rows(self, count: int) -> None:
        """Only the first `count` rows are left."""
        self._heights.cut(count)
        for key in list(self._rows):
            if self.row_number(key) is None:
                self._drop(key)
                self._known.pop(key, None)
        self._build_now()

    def row_changed(self, key: Hashable) -> None:
        """A row's widget has something to show or another height."""
        if key in self._rows:
            self._unfinished[key] = None
            self._timer.start(0)

    def rebuild_rows(self) -> None:
        """Make all widgets anew, in place."""
        for key in list(self._rows):
            self._drop(key)
        self._build_now()

    def scrollContentsBy(self, dx: int, dy: int) -> None:
        if self._arranging:
            return
        bar = self.verticalScrollBar()
        self._set_follow(bar.value() >= bar.maximum() - 2)
        self._take_anchor()
        self._build_now()

    def scroll_to_end(self) -> None:
        """Go to the end and stay there."""
        self._set_follow(True)
        self._build_now()

    def scroll_to_row(self, row: int) -> None:
        """Bring a row into view, with as little movement as possible."""
        if not 0 <= row < len(self._heights):
            return
        key = self.row_key(row)
        if key not in self._rows:
            self._make(row, perf_counter() + VISIBLE_BUDGET_S)
        tops = self._heights.tops()
        value, height = self.verticalScrollBar().value(), self.viewport().height()
        top, bottom = tops[row], tops[row + 1]
        if top < value or bottom - top > height:
            offset = 0
        elif bottom > value + height:
            offset = height - (bottom - top)
        else:
            return
        self._anchor = (key, offset)
        self._set_follow(False)
        self._anchor = (key, offset)
        self._build_now()

    # ------------------------------------------------------------------ building

    def _wanted(self, extra: float) -> range:
        if not len(self._heights):
            return range(0)
        height = self.viewport().height()
        value = self.verticalScrollBar().value()
        first = self._heights.at(round(value - extra * height))
        last = self._heights.at(round(value + height + extra * height) - 1)
        return range(first, last + 1)

    def _make(self, row: int, deadline: float) -> None:
        key = self.row_key(row)
        widget = self.make_row(row)
        self._rows[key] = widget
        widget.resize(self.viewport().width(), 10)
        if not cast(Row, widget).work(deadline):
            self._unfinished[key] = None
        self.measure(key)

    def _build_now(self) -> None:
        """Arrange, build what is seen as far as the budget allows, and leave the rest to the timer."""
        self.arrange()
        self._build(0.0, perf_counter() + VISIBLE_BUDGET_S)
        self._timer.start(0)

    def _build(self, extra: float, deadline: float) -> bool:
        """Build missing rows; True if none is missing."""
        for _round in range(40):
            missing = [row for row in self._wanted(extra) if self.row_key(row) not in self._rows]
            if not missing:
                return True
            self._make(missing[-1] if self._follow else missing[0], deadline)
            self.arrange()
            if perf_counter() >= deadline:
                return False
        return False

    def _build_more(self) -> None:
        begin = perf_counter()
        changed = False
        seen = {self.row_key(row) for row in self._wanted(0.0)}
        for key in sorted(self._unfinished, key=lambda key: key not in seen):
            if key in self._rows and cast(Row, self._rows[key]).work(begin + VISIBLE_BUDGET_S):
                self._unfinished.pop(key, None)
            changed = self.measure(key) or changed
            if perf_counter() >= begin + VISIBLE_BUDGET_S:
                break
        if changed:
            self.arrange()
        done = self._build(0.0, begin + VISIBLE_BUDGET_S) and not self._unfinished
        if done and perf_counter() < begin + AHEAD_BUDGET_S:
            done = self._build(AHEAD, begin + AHEAD_BUDGET_S)
        if done or len(self._rows) > MANY:
            self._let_go()
        if not done:
            self._timer.start(1)

    def _let_go(self) -> None:
        """Give up widgets that are far away and that nobody uses."""
        height = self.viewport().height()
        near = self._wanted(KEEP)
        if len(self._rows) <= len(near) or height <= 0:
            return
        for key, widget in list(self._rows.items()):
            row = self.row_number(key)
            if row is not None and row not in near and not cast(Row, widget).held:
                self._drop(key)

    # ------------------------------------------------------------------ events

    def resizeEvent(self, event: QResizeEvent) -> None:
        if event.size().width() != event.oldSize().width():
            self.forget_heights()
            for key in list(self._rows):
                self.measure(key)
        self._build_now()

    def viewportEvent(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.LayoutRequest:
            return True
        return super().viewportEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        bar = self.verticalScrollBar()
        if event.key() == Qt.Key.Key_Home:
            bar.setValue(0)
        elif event.key() == Qt.Key.Key_End:
            self.scroll_to_end()
        else:
            super().keyPressEvent(event)
