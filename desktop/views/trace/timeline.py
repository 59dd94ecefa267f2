"""The time line of one request: where its time went, as a bar with a legend."""

from __future__ import annotations

from typing import cast

from PySide6.QtCore import QEvent, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QFontMetricsF, QHelpEvent, QPainter, QPainterPath, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from desktop import fonts
from desktop.theme import LIGHT, Theme
from desktop.views.trace import words
from desktop.widgets.legend import Legend
from desktop.widgets.memory_bar import paint_stretch
from engine.trace import Part, Trace

_HEIGHT = 26
#: pixels that every part has at least, so that it can be seen and pointed at
_LEAST = 3.0
#: shorter parts are not in the legend; the bar and what a screen reader says have them all
_FELT_S = 0.0005


def places_of(parts: tuple[Part, ...], width: float) -> list[tuple[float, float]]:
    """Left and width of each part in pixels. A part that took no time has none, the others at least `_LEAST`."""
    total = sum(part.took_s for part in parts)
    if total <= 0 or width <= 0:
        return [(0.0, 0.0)] * len(parts)
    raw = [part.took_s / total * width for part in parts]
    small = [0 < one < _LEAST for one in raw]
    lost = sum(_LEAST - one for one, is_small in zip(raw, small, strict=True) if is_small)
    large = sum(one for one, is_small in zip(raw, small, strict=True) if not is_small)
    factor = max(0.0, large - lost) / large if large > 0 else 1.0
    places, left = [], 0.0
    for one, is_small in zip(raw, small, strict=True):
        size = _LEAST if is_small else one * factor
        places.append((left, size))
        left += size
    return places


class TimeLine(QWidget):
    """The bar. Empty while the answer is written."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("time_line")
        self.setAccessibleName("Time line of the request")
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self._trace: Trace | None = None
        self._parts: tuple[Part, ...] = ()
        self._theme, self._scale = LIGHT, 1.0

    def set_trace(self, trace: Trace | None) -> None:
        self._trace = trace
        self._parts = trace.parts() if trace is not None else ()
        self.setAccessibleDescription(words.timeline_words(trace) if trace is not None else "")
        self.update()

    @property
    def parts(self) -> tuple[Part, ...]:
        return self._parts

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self._theme, self._scale = theme, scale
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(320, round(_HEIGHT * self._scale))

    def minimumSizeHint(self) -> QSize:
        return QSize(120, round(_HEIGHT * self._scale))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        outline = QPainterPath()
        outline.addRoundedRect(QRectF(self.rect()), 4, 4)
        painter.fillPath(outline, self._theme.color("mem_free"))
        painter.setClipPath(outline)
        places = places_of(self._parts, self.width())
        for part, (left, width) in zip(self._parts, places, strict=True):
            look = words.look_of(part.name)
            if width <= 0:
                continue
            paint_stretch(painter, QRectF(left, 0, width, self.height()), look.token, look.pattern, self._theme)
            if left > 0:
                painter.fillRect(QRectF(left, 0, 1, self.height()), self._theme.color("paper"))
            if part.name == "decode" and self._trace is not None:
                self._paint_words(painter, QRectF(left, 0, width, self.height()), part)
        painter.end()

    def _paint_words(self, painter: QPainter, area: QRectF, part: Part) -> None:
        text = words.decode_words(self._trace, part.took_s) if self._trace is not None else ""
        font = fonts.label_font(self._scale)
        if QFontMetricsF(font).horizontalAdvance(text) + 20 * self._scale > area.width():
            return
        painter.setFont(font)
        painter.setPen(self._theme.color("on_accent"))
        inner = area.adjusted(10 * self._scale, 0, 0, 0)
        painter.drawText(inner, int(Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft), text)

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ToolTip and self._trace is not None:
            help_event = cast(QHelpEvent, event)
            for part, (left, width) in zip(self._parts, places_of(self._parts, self.width()), strict=True):
                if left <= help_event.pos().x() < left + width:
                    said = f"{words.part_words(self._trace, part.name, part.took_s)}\n{words.look_of(part.name).tip}"
                    area = QRect(round(left), 0, max(1, round(width)), self.height())
                    QToolTip.showText(help_event.globalPos(), said, self, area)
                    return True
            QToolTip.hideText()
            return True
        return super().event(event)


class TimeLegend(Legend):
    """Swatch and words of each part."""

    def __init__(self) -> None:
        super().__init__("time_legend", "Parts of the request", _paint_part)

    def set_trace(self, trace: Trace | None) -> None:
        parts = trace.parts() if trace is not None else ()
        felt = [part for part in parts if part.took_s >= _FELT_S]
        self.set_words([(part.name, words.part_words(trace, part.name, part.took_s)) for part in felt if trace])
        self.setToolTip("\n".join(f"{words.look_of(n).words}: {words.look_of(n).tip}" for n, _ in self.entries))

    @property
    def entries(self) -> list[tuple[str, str]]:
        """Name and words of each part."""
        return list(self._words)


def _paint_part(painter: QPainter, rect: QRectF, name: str, theme: Theme) -> None:
    look = words.look_of(name)
    paint_stretch(painter, rect, look.token, look.pattern, theme)
