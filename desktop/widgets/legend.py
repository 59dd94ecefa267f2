"""Swatch and words of each entry, in as many lines as the width asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import QPoint, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QFontMetricsF, QPainter, QPainterPath, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from desktop import fonts
from desktop.theme import LIGHT, Theme

#: pixels at 100 %: of a swatch, from its left to the words, between entries, between lines
_SIDE, _LEAD, _GAP, _LEADING = 10, 16, 16, 6
Paint = Callable[[QPainter, QRectF, str, Theme], None]


class Legend(QWidget):
    """Base of all legends.

    Args:
        paint: paints a rectangle in the look of an entry's key.
        outlined: keys whose swatch would not be seen on paper without a line around it.
    """

    def __init__(
        self, name: str, accessible: str, paint: Paint, parent: QWidget | None = None, *, outlined: Sequence[str] = ()
    ) -> None:
        super().__init__(parent)
        self._theme, self._scale = LIGHT, 1.0
        self._paint, self._outlined = paint, frozenset(outlined)
        self._words: tuple[tuple[str, str], ...] = ()
        self.setObjectName(name)
        self.setAccessibleName(accessible)
        policy = QSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        policy.setHeightForWidth(True)
        self.setSizePolicy(policy)

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self._theme, self._scale = theme, scale
        self.updateGeometry()
        self.update()

    def set_words(self, words: Sequence[tuple[str, str]]) -> None:
        """(key, words) of each entry, in order."""
        new = tuple(words)
        if new == self._words:
            return
        same = [key for key, _ in self._words] == [key for key, _ in new]
        self._words = new
        self.setAccessibleDescription(", ".join(said for _, said in new))
        if not same or self.heightForWidth(self.width()) != self.height():
            self.updateGeometry()
        self.update()

    def key_at(self, place: QPoint) -> str:
        """The key of the entry at a place, "" where there is none."""
        line = self._line()
        found = [key for key, _, x, y in self._places(self.width()) if y <= place.y() < y + line and x <= place.x()]
        return found[-1] if found else ""

    def _metrics(self) -> QFontMetricsF:
        return QFontMetricsF(fonts.label_font(self._scale))

    def _line(self) -> float:
        return self._metrics().height() + _LEADING * self._scale

    def _places(self, width: float) -> list[tuple[str, str, float, float]]:
        """(key, words, x, y) of each entry. Words that are longer than a line are cut in their middle."""
        metrics, line, scale = self._metrics(), self._line(), self._scale
        x = y = 0.0
        places = []
        for key, said in self._words:
            room = max(20.0, width - _LEAD * scale)
            text = metrics.elidedText(said, Qt.TextElideMode.ElideMiddle, room)
            need = _LEAD * scale + metrics.horizontalAdvance(text)
            if x and x + need > width:
                x, y = 0.0, y + line
            places.append((key, text, x, y))
            x += need + _GAP * scale
        return places

    def hasHeightForWidth(self) -> bool:
        return True

    def heightForWidth(self, width: int) -> int:
        places = self._places(width)
        return round((places[-1][3] if places else 0) + self._line())

    def sizeHint(self) -> QSize:
        return QSize(240, self.heightForWidth(max(240, self.width())))

    def minimumSizeHint(self) -> QSize:
        return QSize(120, self.heightForWidth(max(120, self.width())))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setFont(fonts.label_font(self._scale))
        metrics, side = self._metrics(), _SIDE * self._scale
        for key, said, x, y in self._places(self.width()):
            square = QRectF(x, y + (metrics.height() - side) / 2 + 1, side, side)
            path = QPainterPath()
            path.addRoundedRect(square, 2, 2)
            painter.save()
            painter.setClipPath(path)
            self._paint(painter, square, key, self._theme)
            painter.restore()
            if key in self._outlined:
                painter.setPen(self._theme.color("hairline"))
                painter.drawPath(path)
            painter.setPen(self._theme.color("ink2"))
            painter.drawText(QPointF(x + _LEAD * self._scale, y + metrics.ascent() + 1), said)
        painter.end()
