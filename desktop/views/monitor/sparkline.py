"""The last minutes of one figure as a line, painted without a library: it stands beside the chat all the time."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QEvent, QPointF, QSize, Qt
from PySide6.QtGui import QHelpEvent, QPainter, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from desktop import figures
from desktop.theme import LIGHT, Theme

_HEIGHT = 52
#: points farther apart than this are not joined: nothing was measured between them
_BREAK_S = 2.0


class Sparkline(QWidget):
    """Points are (seconds, value); a value of None breaks the line. The time runs on from the first to the last point;
    of what was idle between two answers only a gap is shown."""

    def __init__(self, name: str, words: str, unit: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName(name)
        self.setAccessibleName(words)
        self._unit = unit
        self._theme, self._scale = LIGHT, 1.0
        self._lines: list[list[tuple[float, float]]] = []
        self._top = 1.0
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setFixedHeight(_HEIGHT)

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self._theme, self._scale = theme, scale
        self.setFixedHeight(round(_HEIGHT * scale))
        self.update()

    def set_points(self, points: Sequence[tuple[float, float | None]]) -> None:
        lines: list[list[tuple[float, float]]] = [[]]
        place, before = 0.0, None
        for when, value in points:
            step = when - before if before is not None else 0.0
            place += min(step, _BREAK_S)
            before = when
            if value is None or step > _BREAK_S:
                lines.append([])
            if value is not None:
                lines[-1].append((place, value))
        found = [line for line in lines if line]
        if found == self._lines:
            return
        self._lines = found
        values = [value for line in found for _, value in line]
        self._top = max(values, default=0.0) * 1.15 or 1.0
        self.setAccessibleDescription(self._words(values))
        self.update()

    def _words(self, values: Sequence[float]) -> str:
        if not values:
            return "nothing was measured yet"
        low, high, last = figures.rate(min(values)), figures.rate(max(values)), figures.rate(values[-1])
        return f"between {low} and {high} {self._unit}, at last {last}"

    def sizeHint(self) -> QSize:
        return QSize(240, self.height())

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            QToolTip.showText(event.globalPos(), self._tip(event.pos().x()), self)
            return True
        return super().event(event)

    def _tip(self, x: float) -> str:
        """The value that is nearest to a place."""
        placed = [(abs(spot.x() - x), value) for line in self._lines for spot, value in self._spots(line)]
        if not placed:
            return "Nothing was measured yet"
        return f"{figures.rate(min(placed)[1])} {self._unit}\n{self.accessibleDescription()}"

    def _spots(self, line: Sequence[tuple[float, float]]) -> list[tuple[QPointF, float]]:
        first, last = self._lines[0][0][0], self._lines[-1][-1][0]
        span = max(last - first, 10.0)
        width, height = self.width() - 2.0, self.height() - 5.0
        return [
            (QPointF(1 + (place - last + span) / span * width, 2 + height * (1 - value / self._top)), value)
            for place, value in line
        ]

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        bottom = self.height() - 1
        painter.setPen(self._theme.color("hairline"))
        painter.drawLine(0, bottom, self.width(), bottom)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        pen = QPen(self._theme.color("accent"), 1.6)
        pen.setJoinStyle(Qt.PenJoinStyle.RoundJoin)
        for line in self._lines:
            spots = [spot for spot, _ in self._spots(line)]
            painter.setPen(pen)
            if len(spots) > 1:
                painter.drawPolyline(QPolygonF(spots))
            else:
                painter.setBrush(self._theme.color("accent"))
                painter.drawEllipse(spots[0], 1.2, 1.2)
                painter.setBrush(Qt.BrushStyle.NoBrush)
