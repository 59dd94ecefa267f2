"""Labels with figures at the right, painted as one: new figures several times a second lay nothing out again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QEvent, QPoint, QRect, QSize, Qt
from PySide6.QtGui import QFont, QFontMetrics, QHelpEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from desktop import fonts
from desktop.theme import LIGHT, Theme
from desktop.widgets.term import explain
from engine import glossary


@dataclass(frozen=True)
class Row:
    """One line.

    Attributes:
        label, value: plain text. tip: in the tooltip; for an unknown value the reason.
        term: an id of the glossary, or "".
        tone: "" for a figure, "old" for one that is no longer true, "good", "warn", "bad", "accent".
        kind: "row"; "head": the name of a section; "note": small, in the colour of labels.
    """

    label: str
    value: str = ""
    tip: str = ""
    term: str = ""
    tone: str = ""
    kind: str = "row"

    @property
    def words(self) -> str:
        return f"{self.label}: {self.value}" if self.value else self.label


_GAP, _ABOVE_HEAD = 12, 12
_SPACE = {"row": 6, "head": 4, "note": 4}
_TONES = {"": "ink", "old": "ink3", "good": "good", "warn": "warn", "bad": "bad", "accent": "accent_text"}


class Rows(QWidget):
    """Its lines are also its accessible description."""

    def __init__(self, name: str, words: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName(name)
        self.setAccessibleName(words)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.rows: tuple[Row, ...] = ()
        self._theme, self._scale = LIGHT, 1.0
        self._fonts: dict[str, QFont] = {}
        self._make_fonts()
        explain(self, "", "")

    def set_rows(self, rows: Sequence[Row]) -> None:
        new = tuple(rows)
        if new == self.rows:
            return
        kinds = [row.kind for row in self.rows]
        self.rows = new
        self.setAccessibleDescription("; ".join(row.words for row in new))
        if kinds != [row.kind for row in new]:
            self.setFixedHeight(self._height())
        self.update()

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self._theme, self._scale = theme, scale
        self._make_fonts()
        self.setFixedHeight(self._height())
        self.update()

    def value_of(self, label: str) -> str:
        """The figure beside a label, "" where there is no such line."""
        return next((row.value for row in self.rows if row.label == label), "")

    def term_at(self, place: QPoint) -> str:
        row = self._row_at(place)
        return row.term if row is not None else ""

    def _make_fonts(self) -> None:
        head = fonts.tabular(fonts.ui_font(self._scale))
        head.setWeight(QFont.Weight.DemiBold)
        self._fonts = {
            "head": head,
            "row": fonts.tabular(fonts.ui_font(self._scale)),
            "note": fonts.label_font(self._scale),
        }

    def _line(self, kind: str) -> int:
        return QFontMetrics(self._fonts[kind]).height() + round(_SPACE[kind] * self._scale)

    def _tops(self) -> list[int]:
        """Where each line begins, and where the last one ends. A name among other lines stands off from those above."""
        tops, y = [], 0
        for place, row in enumerate(self.rows):
            if place and row.kind == "head":
                y += round(_ABOVE_HEAD * self._scale)
            tops.append(y)
            y += self._line(row.kind)
        return [*tops, y]

    def _height(self) -> int:
        return self._tops()[-1]

    def sizeHint(self) -> QSize:
        return QSize(240, self._height())

    def minimumSizeHint(self) -> QSize:
        return QSize(120, self._height())

    def _row_at(self, place: QPoint) -> Row | None:
        tops = self._tops()
        return next((row for row, end in zip(self.rows, tops[1:], strict=True) if place.y() < end), None)

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            row = self._row_at(event.pos())
            words = (row.tip or glossary.short(row.term) or "") if row is not None else ""
            if words and row is not None and row.term:
                words += "\nF1 tells more"
            QToolTip.showText(event.globalPos(), words, self)
            return True
        return super().event(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        for row, y in zip(self.rows, self._tops(), strict=False):
            self._paint(painter, row, QRect(0, y, self.width(), self._line(row.kind)))

    def _paint(self, painter: QPainter, row: Row, area: QRect) -> None:
        font = self._fonts[row.kind]
        metrics = QFontMetrics(font)
        right = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        left = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
        value_font = QFont(font)
        if row.kind == "head":
            value_font = self._fonts["note"] if not row.tone else value_font
        room = QFontMetrics(value_font).horizontalAdvance(row.value) + _GAP if row.value else 0
        painter.setFont(font)
        painter.setPen(self._theme.color("ink3" if row.kind == "note" else "ink2"))
        words = metrics.elidedText(row.label, Qt.TextElideMode.ElideRight, max(0, area.width() - room))
        painter.drawText(area, int(left), words)
        if row.value:
            plain = "ink2" if row.kind != "row" and not row.tone else _TONES[row.tone]
            painter.setFont(value_font)
            painter.setPen(self._theme.color(plain))
            painter.drawText(area, int(right), row.value)
