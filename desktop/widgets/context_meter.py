"""How much of the context window is used, as a thin bar that can be pressed."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QEvent, QPoint, QRectF, QSize, Qt
from PySide6.QtGui import QHelpEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QAbstractButton, QSizePolicy, QToolTip, QWidget

from desktop import terms
from desktop.theme import LIGHT, Theme
from desktop.widgets import context_bar
from desktop.widgets.context_bar import KINDS, Segment

_HEIGHT = 6
_ROOM = 20


class ContextMeter(QAbstractButton):
    """Stretches side by side; the rest is free. Pressing it asks for the list behind it."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("context_meter")
        self.setAccessibleName("Context used")
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)
        self._theme = LIGHT
        self._segments: tuple[Segment, ...] = ()
        self._total = 0

    def apply_theme(self, theme: Theme) -> None:
        self._theme = theme
        self.update()

    def set_segments(self, segments: Sequence[Segment], total: int, words: str) -> None:
        """Show these of `total` tokens; 0 shows an empty bar. words: all of it for a screen reader."""
        self.setAccessibleDescription(words)
        new = tuple(segments)
        if (new, total) != (self._segments, self._total):
            self._segments, self._total = new, total
            self.update()

    @property
    def segments(self) -> tuple[Segment, ...]:
        return self._segments

    @property
    def total(self) -> int:
        return self._total

    @property
    def fractions(self) -> tuple[float, ...]:
        """Width of each stretch that is shown, as a part of the bar."""
        width = max(1.0, float(self.width()))
        return tuple(wide / width for _, _, wide in context_bar.place(self._segments, self._total, width))

    def words_at(self, x: float) -> str:
        """What the stretch at this place is, for the mouse."""
        for segment, left, width in context_bar.place(self._segments, self._total, self.width()):
            if left <= x < left + width:
                return f"{segment.words} tokens. {KINDS[segment.kind].tip}."
        free = next((segment for segment in self._segments if segment.kind == "free"), None)
        if free is not None:
            return f"{free.words} tokens. {KINDS['free'].tip}."
        return "Context window (n_ctx): tokens that the model can see at once"

    def term_at(self, place: QPoint) -> str:
        """The term of the stretch under a place."""
        for segment, left, width in context_bar.place(self._segments, self._total, self.width()):
            if left <= place.x() < left + width:
                return terms.CONTEXT[segment.kind]
        return terms.CONTEXT["free"]

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            words = f"{self.words_at(event.pos().x())}\nPress to see every turn."
            QToolTip.showText(event.globalPos(), words[:1].upper() + words[1:], self)
            return True
        return super().event(event)

    def sizeHint(self) -> QSize:
        return QSize(200, _ROOM)

    def minimumSizeHint(self) -> QSize:
        return QSize(80, _ROOM)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        height = _HEIGHT + (2 if self.underMouse() else 0)
        bar = QRectF(0, (self.height() - height) / 2, self.width(), height)
        context_bar.paint(painter, bar, self._segments, self._total, self._theme)
        if self.hasFocus():
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(QPen(self._theme.color("focus"), 1))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(QRectF(self.rect()).adjusted(0.5, 1.5, -0.5, -1.5), 4, 4)
