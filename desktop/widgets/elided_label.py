"""A label that shortens its text with an ellipsis instead of pushing the layout."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QLabel, QStyleOption, QWidget


class ElidedLabel(QLabel):
    """One line of plain text, cut where the room ends; the tooltip has it all when it is cut."""

    def __init__(self, text: str = "", parent: QWidget | None = None) -> None:
        super().__init__(text, parent)
        self.setTextFormat(Qt.TextFormat.PlainText)
        self._own_tip = ""

    def minimumSizeHint(self) -> QSize:
        hint = super().minimumSizeHint()
        return QSize(min(hint.width(), self.fontMetrics().averageCharWidth() * 6), hint.height())

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        option = QStyleOption()
        option.initFrom(self)
        room = self.contentsRect()
        shown = self.fontMetrics().elidedText(self.text(), Qt.TextElideMode.ElideRight, room.width())
        self.style().drawItemText(
            painter,
            room,
            self.alignment().value,
            option.palette,
            self.isEnabled(),
            shown,
            self.foregroundRole(),
        )
        tip = self.text() if shown != self.text() else ""
        if tip != self._own_tip and self.toolTip() in ("", self._own_tip):
            self._own_tip = tip
            self.setToolTip(tip)
