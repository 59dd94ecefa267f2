"""Many small items in rows, as words stand in a text: laid out piece by piece, painted only where they are seen.

Thirty thousand tokens of a prompt take a tenth of a second to measure; that happens in slices between which the window
goes on. Widths stay known, so another width of the window only moves things. Nothing is done while it is hidden.
"""

from __future__ import annotations

from time import perf_counter
from typing import cast

from PySide6.QtCore import QEvent, QPointF, QRect, QRectF, Qt, QTimer, Signal
from PySide6.QtGui import (
    QFont,
    QFontMetricsF,
    QHelpEvent,
    QHideEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QResizeEvent,
    QShowEvent,
)
from PySide6.QtWidgets import QScrollArea, QSizePolicy, QToolTip, QWidget

from desktop import fonts
from desktop.theme import LIGHT, Theme
from desktop.views.trace.flow_rows import FlowRows

#: seconds of laying out before the window may go on
SLICE_S = 0.006
_LOOK = 256  # items between two looks at the clock


def token_font(scale: float, step: int = 0) -> QFont:
    """The monospace without ligatures: two characters of a token stay two."""
    font = fonts.mono_font(scale, step=step)
    tag = QFont.Tag.fromString("calt")
    if tag is not None:
        font.setFeature(tag, 0)
    return font


class Measure:
    """Widths of texts in a monospaced font: counted for plain ASCII, measured once for everything else."""

    def __init__(self, font: QFont) -> None:
        self._metrics = QFontMetricsF(font)
        self._advance = self._metrics.horizontalAdvance("0")
        self._known: dict[str, float] = {}

    def width(self, text: str) -> float:
        if text.isascii():
            return len(text) * self._advance
        known = self._known.get(text)
        if known is None:
            known = self._known[text] = self._metrics.horizontalAdvance(text)
        return known


class TokenFlow(QWidget):
    """Base of the two texts made of tokens. A subclass says what the items are.

    Signals:
        chosen(int): an item is the current one now, by the user.
        laid_out: all items have their place.
    """

    chosen = Signal(int)
    laid_out = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setMouseTracking(True)
        self.theme, self.scale = LIGHT, 1.0
        self.current = -1
        self.hovered = -1  # the item under the mouse
        self.rows = FlowRows()
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self._go_on)

    # ---- for subclasses

    def count(self) -> int:
        """How many items there are."""
        raise NotImplementedError

    def width_of(self, item: int) -> float:
        """In pixels."""
        raise NotImplementedError

    def breaks_after(self, item: int) -> bool:
        """Whether the next item begins a row."""
        return False

    def paint_item(self, painter: QPainter, item: int, area: QRectF) -> None:
        raise NotImplementedError

    def tip_of(self, item: int) -> str:
        """What the mouse over it tells; rich text."""
        return ""

    def spoken_of(self, item: int) -> str:
        """What a screen reader says of it."""
        return ""

    # ---- layout

    def restart(self, *, measured: int = 0) -> None:
        """Lay all out anew; the first `measured` items keep their widths."""
        self.rows.restart(measured)
        self.go_on()

    def go_on(self) -> None:
        """Lay out what has no place yet; to be called when items were added."""
        if self.isVisible():
            self._go_on()

    def _go_on(self) -> None:
        if not self.isVisible():
            return
        end = perf_counter() + SLICE_S
        rows, count, room = self.rows, self.count(), float(self.width())
        while len(rows) < count:
            rows.place(min(count, len(rows) + _LOOK), room, self.width_of, self.breaks_after)
            if perf_counter() > end:
                break
        height = round(max(1, len(rows.firsts)) * rows.height)
        if self.minimumHeight() != height:
            self.setFixedHeight(height)
        self.update()
        if len(rows) < count:
            self._timer.start(0)
        else:
            self.laid_out.emit()

    # ---- look

    def apply_theme(self, theme: Theme, scale: float) -> None:
        same_size = scale == self.scale
        self.theme, self.scale = theme, scale
        self.restart(measured=len(self.rows.widths) if same_size else 0)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        seen, rows, room = event.rect(), self.rows, float(self.width())
        first = max(0, int(seen.top() // rows.height))
        last = min(len(rows.firsts) - 1, int(seen.bottom() // rows.height))
        for row in range(first, last + 1):
            for item in range(*rows.span(row)):
                left, width = rows.lefts[item], min(rows.widths[item], room)
                if left <= seen.right() + 1 and left + width >= seen.left() - 1:
                    self.paint_item(painter, item, QRectF(left, row * rows.height, width, rows.height))
        painter.end()

    # ---- the current item

    def set_current(self, item: int, *, reveal: bool = False) -> None:
        """Mark an item; tells nobody. -1: none."""
        for one in (self.current, item):
            self._update_item(one)
        self.current = item
        self.setAccessibleDescription(self.spoken_of(item) if 0 <= item < self.count() else "")
        if reveal:
            self._reveal(item)

    def _choose(self, item: int) -> None:
        if 0 <= item < len(self.rows):
            self.set_current(item, reveal=True)
            self.chosen.emit(item)

    def _reveal(self, item: int) -> None:
        area = self.rows.area(item, self.width())
        parent = self.parentWidget()
        while parent is not None and not isinstance(parent, QScrollArea):
            parent = parent.parentWidget()
        inner = parent.widget() if isinstance(parent, QScrollArea) else None
        if not isinstance(parent, QScrollArea) or inner is None or area.isEmpty():
            return
        centre = self.mapTo(inner, area.center().toPoint())
        parent.ensureVisible(centre.x(), centre.y(), 0, round(2 * self.rows.height))

    def _update_item(self, item: int) -> None:
        area = self.rows.area(item, self.width())
        if not area.isEmpty():
            self.update(area.toAlignedRect().adjusted(-2, -2, 2, 2))

    def _hover(self, item: int) -> None:
        if item != self.hovered:
            for one in (self.hovered, item):
                self._update_item(one)
            self.hovered = item

    # ---- events

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ToolTip:
            help_event = cast(QHelpEvent, event)
            item = self.rows.at(QPointF(help_event.pos()), self.width())
            words = self.tip_of(item) if item >= 0 else ""
            area = self.rows.area(item, self.width()).toAlignedRect() if item >= 0 else QRect()
            if words:
                QToolTip.showText(help_event.globalPos(), words, self, area)
            else:
                QToolTip.hideText()
            return True
        if event.type() == QEvent.Type.MouseButtonRelease:  # its press was taken
            event.accept()
            return True
        return super().event(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        if event.size().width() != event.oldSize().width():
            self.restart(measured=len(self.rows.widths))
        super().resizeEvent(event)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._go_on()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._timer.stop()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        item = self.rows.at(event.position(), self.width())
        self._hover(item)
        self.setCursor(Qt.CursorShape.PointingHandCursor if item >= 0 else Qt.CursorShape.ArrowCursor)

    def leaveEvent(self, event: QEvent) -> None:
        self._hover(-1)
        super().leaveEvent(event)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        item = self.rows.at(event.position(), self.width())
        if event.button() == Qt.MouseButton.LeftButton and item >= 0:
            self._choose(item)
            return
        super().mousePressEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        last = len(self.rows) - 1
        keys: dict[int, int] = {
            Qt.Key.Key_Left: max(0, self.current - 1),
            Qt.Key.Key_Right: min(last, self.current + 1),
            Qt.Key.Key_Home: 0,
            Qt.Key.Key_End: last,
            Qt.Key.Key_Up: self.rows.beside(self.current, -1),
            Qt.Key.Key_Down: self.rows.beside(self.current, 1),
            Qt.Key.Key_Return: self.current,
            Qt.Key.Key_Enter: self.current,
            Qt.Key.Key_Space: self.current,
        }
        item = keys.get(event.key())
        if item is None or last < 0:
            super().keyPressEvent(event)
            return
        self._choose(item)
