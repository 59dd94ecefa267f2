"""Draws the rows of the context's list: swatch, title, note, tokens."""

from __future__ import annotations

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QFontMetrics, QPainter
from PySide6.QtWidgets import QStyle, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from desktop import fonts
from desktop.models.context import Roles, Row
from desktop.theme import LIGHT, RADIUS, Theme
from desktop.widgets.context_bar import paint_swatch

Index = QModelIndex | QPersistentModelIndex
_QUIET = ("dropped", "answer", "free")


class ContextRowDelegate(QStyledItemDelegate):
    """Colours from the theme, sizes from the user's text size."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.apply_theme(LIGHT, 1.0)

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self._theme, self._scale = theme, scale
        self._text_font = fonts.ui_font(scale)
        self._figure_font = fonts.tabular(fonts.ui_font(scale))
        self._note_font = fonts.label_font(scale)

    def _px(self, value: float) -> int:
        return round(value * self._scale)

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(0, self._px(28))

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        row = index.data(Roles.ROW)
        if not isinstance(row, Row):
            return
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        rect: QRect = option.rect
        self._paint_ground(painter, rect, option.state)
        room = rect.adjusted(self._px(10), 0, -self._px(10), 0)
        side = self._px(10)
        paint_swatch(painter, QRectF(room.left(), room.center().y() - side / 2 + 1, side, side), row.kind, self._theme)
        room.setLeft(room.left() + side + self._px(8))
        middle = Qt.AlignmentFlag.AlignVCenter
        figure = f"{row.n_tokens:,}"
        painter.setFont(self._figure_font)
        painter.setPen(self._theme.color("ink2"))
        painter.drawText(room, middle | Qt.AlignmentFlag.AlignRight, figure)
        room.setRight(room.right() - QFontMetrics(self._figure_font).horizontalAdvance(figure) - self._px(12))
        if row.note:
            painter.setFont(self._note_font)
            painter.setPen(self._theme.color("warn" if row.kind == "dropped" else "ink3"))
            painter.drawText(room, middle | Qt.AlignmentFlag.AlignRight, row.note)
            room.setRight(room.right() - QFontMetrics(self._note_font).horizontalAdvance(row.note) - self._px(10))
        painter.setFont(self._text_font)
        painter.setPen(self._theme.color("ink3" if row.kind in _QUIET else "ink"))
        title = QFontMetrics(self._text_font).elidedText(row.title, Qt.TextElideMode.ElideRight, room.width())
        painter.drawText(room, middle | Qt.AlignmentFlag.AlignLeft, title)
        painter.restore()

    def _paint_ground(self, painter: QPainter, rect: QRect, state: QStyle.StateFlag) -> None:
        ground = QRectF(rect).adjusted(0.5, 0.5, -0.5, -0.5)
        focused = bool(state & QStyle.StateFlag.State_HasFocus)
        if focused or state & QStyle.StateFlag.State_MouseOver:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(self._theme.color("accent_soft" if focused else "hover"))
            painter.drawRoundedRect(ground, RADIUS, RADIUS)
        if focused and state & QStyle.StateFlag.State_KeyboardFocusChange:
            painter.setPen(self._theme.color("focus"))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(ground, RADIUS, RADIUS)
