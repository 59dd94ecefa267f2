"""The picture of a model: a row for the embedding, each layer and the output, a column for each place it lies in.

Widths are bytes, on one scale in all columns; what is wider than a column goes on in the next line. All of it is
weights, so all of it has the colour of weights; the parts differ in strength and hatching.
"""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtCore import QEvent, QPoint, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QFont,
    QFontMetrics,
    QHelpEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QResizeEvent,
)
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from desktop import fonts
from desktop.theme import LIGHT, Theme
from desktop.views.anatomy import words
from desktop.views.anatomy.geometry import EDGE, Geometry, lay_out
from desktop.widgets.memory_bar import hatching
from engine.anatomy import Anatomy, Kind, Piece

#: strength of the colour, and hatching
_LOOKS: dict[Kind, tuple[float, str]] = {
    "embedding": (1.0, "upright"),
    "attention": (1.0, "solid"),
    "feed_forward": (0.55, "solid"),
    "experts": (0.55, "rising"),
    "state": (1.0, "rising"),
    "other": (0.3, "solid"),
    "output": (1.0, "falling"),
}


def paint_part(painter: QPainter, rect: QRectF, kind: Kind, theme: Theme) -> None:
    """A stretch in the look of a part."""
    strength, pattern = _LOOKS[kind]
    full, paper = theme.color("mem_weights"), theme.color("paper")
    painter.fillRect(rect, _between(paper, full, strength))
    lines = hatching(pattern, rect)
    if lines:
        painter.save()
        painter.setClipRect(rect, Qt.ClipOperation.IntersectClip)
        colour = QColor(paper)
        colour.setAlpha(150)
        painter.setPen(QPen(colour, 1.4))
        for start, end in lines:
            painter.drawLine(start, end)
        painter.restore()


def _between(low: QColor, high: QColor, part: float) -> QColor:
    pairs = ((low.red(), high.red()), (low.green(), high.green()), (low.blue(), high.blue()))
    return QColor(*(round(a + (b - a) * part) for a, b in pairs))


class LayerPicture(QWidget):
    """Signals:
    current_changed(str): words of the part under the mouse, or of the one that the keys have chosen; empty: none.
    row_wanted(int, int): the keys have gone to a row between these heights.
    """

    current_changed = Signal(str)
    row_wanted = Signal(int, int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("layer_picture")
        self.setAccessibleName("Where each part of the model lies")
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setMouseTracking(True)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self._theme, self._scale = LIGHT, 1.0
        self._found: Anatomy | None = None
        self._labels: Mapping[str, str] = {}
        self._measured: Mapping[str, int] = {}
        self._geometry = Geometry()
        self._current: tuple[int, int] | None = None
        self._hovered: tuple[int, int] | None = None

    @property
    def anatomy(self) -> Anatomy | None:
        return self._found

    def show_anatomy(self, found: Anatomy, labels: Mapping[str, str], measured: Mapping[str, int]) -> None:
        """Paint this one.

        Args:
            labels: names of devices for people. measured: bytes of llama.cpp's buffers by place; empty: a plan.
        """
        if self._found is None or len(self._found.rows) != len(found.rows):
            self._current = None
        self._found, self._labels, self._measured = found, labels, measured
        self._hovered = None
        self.setAccessibleDescription(f"{words.summary_words(found, labels)} {words.ideal_words(found)}")
        self._arrange()
        self._tell()

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self._theme, self._scale = theme, scale
        self._arrange()

    # ---- where everything is

    def _arrange(self) -> None:
        found, width = self._found, float(max(self.width(), 240))
        self._geometry = lay_out(found, width, self._scale) if found is not None else Geometry()
        self.setFixedHeight(round(self._geometry.tops[-1] + EDGE) if found is not None else 40)
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(480, self.height())

    def minimumSizeHint(self) -> QSize:
        return QSize(240, self.height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if event.size().width() != event.oldSize().width():
            self._arrange()

    # ---- the part that is meant

    def spot_at(self, place: QPointF) -> tuple[int, int] | None:
        """(row, piece) at a place of the widget; the nearest of its row, so that thin ones can be hit."""
        row = self._geometry.row_at(place.y())
        spots = [spot for spot in self._geometry.spots if spot[0] == row]
        line = [spot for spot in spots if spot[2].top() <= place.y() < spot[2].top() + self._geometry.line]
        near = [(_distance(spot[2], place.x()), spot) for spot in line]
        found = min(near, default=None, key=lambda item: item[0])
        return (found[1][0], found[1][1]) if found is not None and found[0] <= 4 else None

    def _shown(self) -> tuple[int, int] | None:
        return self._hovered if self._hovered is not None else self._current

    def piece_words(self, spot: tuple[int, int]) -> str:
        assert self._found is not None
        row = self._found.rows[spot[0]]
        return words.piece_words(row, row.pieces[spot[1]], self._labels)

    def term_at(self, place: QPoint) -> str:
        """The glossary's term of the part at a place."""
        spot = self.spot_at(QPointF(place))
        return words.PARTS[self._piece(spot).kind].term if spot is not None else ""

    def _piece(self, spot: tuple[int, int]) -> Piece:
        assert self._found is not None
        return self._found.rows[spot[0]].pieces[spot[1]]

    def _tell(self) -> None:
        spot = self._shown()
        self.current_changed.emit(self.piece_words(spot) if spot is not None else "")
        self.update()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        spot = self.spot_at(event.position()) if self._found is not None else None
        if spot != self._hovered:
            self._hovered = spot
            self._tell()

    def leaveEvent(self, event: QEvent) -> None:
        super().leaveEvent(event)
        if self._hovered is not None:
            self._hovered = None
            self._tell()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        super().mousePressEvent(event)
        spot = self.spot_at(event.position()) if self._found is not None else None
        if spot is not None:
            self._current = spot
            self._tell()

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            QToolTip.showText(event.globalPos(), self.tip_at(QPointF(event.pos())), self)
            return True
        return super().event(event)

    def tip_at(self, place: QPointF) -> str:
        """Words of the part, or of the heading, at a place; empty where there is nothing."""
        if self._found is None:
            return ""
        if place.y() < self._geometry.head:
            for (left, width), at in zip(self._geometry.columns, self._found.places, strict=True):
                if left <= place.x() < left + width:
                    return words.place_words(at, len(self._found.rows) - 1, self._labels, self._measured)
            return ""
        spot = self.spot_at(place)
        return self.piece_words(spot) if spot is not None else ""

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if self._found is None or not self._step(Qt.Key(event.key())):
            super().keyPressEvent(event)

    def _step(self, key: Qt.Key) -> bool:
        """Go to another part by key; False for a key that is not for this."""
        assert self._found is not None
        filled = [number for number, row in enumerate(self._found.rows) if row.pieces]
        row, piece = self._current or (filled[0], 0)
        at = filled.index(row) if row in filled else 0
        rows = {Qt.Key.Key_Up: -1, Qt.Key.Key_Down: 1, Qt.Key.Key_PageUp: -8, Qt.Key.Key_PageDown: 8}
        if key in rows and self._current is not None:
            at += rows[key]
        elif key in (Qt.Key.Key_Home, Qt.Key.Key_End):
            at = 0 if key == Qt.Key.Key_Home else len(filled) - 1
        elif key in (Qt.Key.Key_Left, Qt.Key.Key_Right):
            piece += (-1 if key == Qt.Key.Key_Left else 1) * (self._current is not None)
        elif key not in rows:
            return False
        row = filled[min(max(0, at), len(filled) - 1)]
        self._current = row, min(max(0, piece), len(self._found.rows[row].pieces) - 1)
        self._hovered = None
        self._tell()
        self.row_wanted.emit(round(self._geometry.tops[row]), round(self._geometry.tops[row + 1]))
        return True

    # ---- painting

    def paintEvent(self, event: QPaintEvent) -> None:
        if self._found is None:
            return
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        made, seen = self._geometry, QRectF(event.rect())
        spot = self._shown()
        if spot is not None:
            top, bottom = made.tops[spot[0]], made.tops[spot[0] + 1]
            painter.fillRect(QRectF(0, top - 1, self.width(), bottom - top), self._theme.color("hover"))
        self._paint_heads(painter)
        self._paint_names(painter, seen)
        outlines = []
        for row, number, rect in made.spots:
            if not rect.intersects(seen):
                continue
            paint_part(painter, rect, self._found.rows[row].pieces[number].kind, self._theme)
            painter.fillRect(QRectF(rect.right() - 0.5, rect.top(), 0.5, rect.height()), self._theme.color("paper"))
            if (row, number) == spot:
                outlines.append(rect)
        painter.setPen(QPen(self._theme.color("ink"), 1.2))
        for rect in outlines:
            painter.drawRect(rect.adjusted(0.5, 0.5, -0.5, -0.5))
        if self.hasFocus():
            painter.setPen(QPen(self._theme.color("focus"), 1))
            painter.drawRoundedRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5), 4, 4)

    def _paint_heads(self, painter: QPainter) -> None:
        assert self._found is not None
        made, theme = self._geometry, self._theme
        small = fonts.label_font(self._scale)
        bold = QFont(small)
        bold.setWeight(QFont.Weight.DemiBold)
        n_layers = len(self._found.rows) - 1
        for (left, width), place in zip(made.columns, self._found.places, strict=True):
            name = words.place_name(place.name, self._labels)
            layers = f"{place.n_layers} of {n_layers} layers" if place.n_layers else "no layers"
            said = ((bold, "ink", name), (small, "ink3", f"{words.size(place.n_bytes)} · {layers}"))
            y = 6 * self._scale
            for font, colour, text in said:
                metrics = QFontMetrics(font)
                painter.setFont(font)
                painter.setPen(theme.color(colour))
                cut = metrics.elidedText(text, Qt.TextElideMode.ElideRight, round(width))
                painter.drawText(QPointF(left, y + metrics.ascent()), cut)
                y += metrics.height()
            painter.fillRect(QRectF(left, made.head - 6 * self._scale, width, 1), theme.color("hairline"))

    def _paint_names(self, painter: QPainter, seen: QRectF) -> None:
        """Names of the rows, as many as there is room for."""
        assert self._found is not None
        made = self._geometry
        font = fonts.label_font(self._scale)
        metrics = QFontMetrics(font)
        painter.setFont(font)
        painter.setPen(self._theme.color("ink3"))
        last = len(self._found.rows) - 1
        free_from = 0.0
        for number, row in enumerate(self._found.rows):
            y = made.tops[number] + (made.bar - metrics.height()) / 2
            ends = number in (0, last)
            room = y >= free_from and (ends or y + metrics.height() <= made.tops[last] - metrics.height() / 4)
            if not (room or ends):
                continue
            free_from = y + metrics.height()
            text = row.name if ends or number == 1 else str(row.layer)
            width = metrics.horizontalAdvance(text)
            painter.drawText(QPointF(made.gutter - 10 * self._scale - width, y + metrics.ascent()), text)


def _distance(rect: QRectF, x: float) -> float:
    return max(rect.left() - x, x - rect.right(), 0.0)
