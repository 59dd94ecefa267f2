"""Draws rows of two lines with a chip at the right."""

from __future__ import annotations

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QFont, QFontMetrics, QPainter
from PySide6.QtWidgets import QStyle, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from desktop import fonts
from desktop.models.hub_results import Role
from desktop.theme import LIGHT, RADIUS, Theme
from desktop.widgets.fit_chip import Chip, chip_width, paint_chip

Index = QModelIndex | QPersistentModelIndex


class ModelRowDelegate(QStyledItemDelegate):
    """Colours from the theme, sizes from the user's text size."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.apply_theme(LIGHT, 1.0)

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self._theme, self._scale = theme, scale
        self._title = fonts.ui_font(scale)
        self._title.setWeight(QFont.Weight.DemiBold)
        self._small = fonts.ui_font(scale, step=-1)
        self._label = fonts.label_font(scale)
        self._heading = QFont(self._label)
        self._heading.setWeight(QFont.Weight.DemiBold)

    def _px(self, value: float) -> int:
        return round(value * self._scale)

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        if index.data(Role.IS_HEADING):
            return QSize(0, self._px(34 if index.row() else 28))
        return QSize(0, self._px(56))

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        rect: QRect = option.rect
        state: QStyle.StateFlag = option.state
        if index.data(Role.IS_HEADING):
            painter.setFont(self._heading)
            painter.setPen(self._theme.color("ink3"))
            room = rect.adjusted(self._px(10), 0, -self._px(8), -self._px(6))
            painter.drawText(room, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignBottom, str(index.data()))
        else:
            self._paint_row(painter, rect, state, index)
        painter.restore()

    def _paint_row(self, painter: QPainter, rect: QRect, state: QStyle.StateFlag, index: Index) -> None:
        ground = QRectF(rect).adjusted(0.5, 1.5, -0.5, -1.5)
        selected = bool(state & QStyle.StateFlag.State_Selected)
        if selected or state & QStyle.StateFlag.State_MouseOver:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(self._theme.color("accent_soft" if selected else "hover"))
            painter.drawRoundedRect(ground, RADIUS, RADIUS)
        if state & QStyle.StateFlag.State_HasFocus and state & QStyle.StateFlag.State_KeyboardFocusChange:
            painter.setPen(self._theme.color("focus"))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(ground, RADIUS, RADIUS)
        room = rect.adjusted(self._px(10), 0, -self._px(10), 0)
        chip = index.data(Role.CHIP)
        right = room.right()
        if isinstance(chip, Chip):
            width = min(chip_width(chip.words, self._label, self._scale), room.width() * 0.5)
            place = QRectF(room.right() - width, room.top(), width, room.height())
            right = int(paint_chip(painter, place, chip, self._label, self._theme, self._scale).left()) - self._px(8)
        width = right - room.left()
        elide = Qt.TextElideMode.ElideRight
        middle = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
        upper = QRect(room.left(), rect.top() + self._px(8), width, self._px(20))
        painter.setFont(self._title)
        painter.setPen(self._theme.color("ink"))
        painter.drawText(upper, middle, QFontMetrics(self._title).elidedText(str(index.data()), elide, width))
        lower = QRect(room.left(), rect.top() + self._px(29), width, self._px(18))
        painter.setFont(self._small)
        painter.setPen(self._theme.color("ink2"))
        line = str(index.data(Role.LINE) or "")
        painter.drawText(lower, middle, QFontMetrics(self._small).elidedText(line, elide, width))
