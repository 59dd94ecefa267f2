"""Draws the rows of the chat list: headings, chats with a badge, hits with what was found."""

from __future__ import annotations

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QFont, QFontMetrics, QPainter, QPalette
from PySide6.QtWidgets import (
    QLineEdit,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from desktop import fonts
from desktop.models.chat_list import Role
from desktop.theme import LIGHT, RADIUS, Theme

Index = QModelIndex | QPersistentModelIndex
_BADGE = "writing"


class ChatListDelegate(QStyledItemDelegate):
    """One look for all rows; colours from the theme, sizes from the user's text size."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = LIGHT
        self._scale = 1.0
        self._set_fonts()

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self._theme, self._scale = theme, scale
        self._set_fonts()

    def _set_fonts(self) -> None:
        self._text_font = fonts.ui_font(self._scale)
        self._small_font = fonts.ui_font(self._scale, step=-2)
        self._heading_font = QFont(self._small_font)
        self._heading_font.setWeight(QFont.Weight.DemiBold)

    def _px(self, value: float) -> int:
        return round(value * self._scale)

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        if index.data(Role.IS_HEADING):
            return QSize(0, self._px(36 if index.row() else 28))
        return QSize(0, self._px(56) if index.data(Role.SNIPPET) else self._px(36))

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        rect: QRect = option.rect
        state: QStyle.StateFlag = option.state
        if index.data(Role.IS_HEADING):
            self._paint_heading(painter, rect, str(index.data()))
        else:
            self._paint_ground(painter, rect, state)
            selected = bool(state & QStyle.StateFlag.State_Selected)
            self._paint_chat(painter, rect.adjusted(self._px(10), 0, -self._px(8), 0), index, selected)
        painter.restore()

    def _paint_heading(self, painter: QPainter, rect: QRect, text: str) -> None:
        painter.setFont(self._heading_font)
        painter.setPen(self._theme.color("ink3"))
        room = rect.adjusted(self._px(10), 0, -self._px(8), -self._px(6))
        painter.drawText(room, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignBottom, text)

    def _paint_ground(self, painter: QPainter, rect: QRect, state: QStyle.StateFlag) -> None:
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

    def _paint_chat(self, painter: QPainter, room: QRect, index: Index, selected: bool) -> None:
        snippet = str(index.data(Role.SNIPPET) or "")
        title_room = QRect(room)
        if snippet:
            title_room.setBottom(room.top() + self._px(30))
        if index.data(Role.IS_WRITING):
            title_room.setRight(self._paint_badge(painter, title_room, selected) - self._px(8))
        painter.setFont(self._text_font)
        painter.setPen(self._theme.color("ink"))
        middle = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
        metrics = QFontMetrics(self._text_font)
        right = Qt.TextElideMode.ElideRight
        painter.drawText(title_room, middle, metrics.elidedText(str(index.data()), right, title_room.width()))
        if snippet:
            small_room = room.adjusted(0, self._px(28), 0, -self._px(6))
            painter.setFont(self._small_font)
            painter.setPen(self._theme.color("ink2"))
            metrics = QFontMetrics(self._small_font)
            painter.drawText(small_room, middle, metrics.elidedText(snippet, right, small_room.width()))

    def _paint_badge(self, painter: QPainter, room: QRect, selected: bool) -> int:
        """Draws the badge at the right end; gives its left edge."""
        metrics = QFontMetrics(self._small_font)
        width = metrics.horizontalAdvance(_BADGE) + self._px(16)
        height = metrics.height() + self._px(4)
        badge = QRectF(room.right() - width, room.center().y() - height / 2 + 0.5, width, height)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self._theme.color("surface" if selected else "accent_soft"))
        painter.drawRoundedRect(badge, height / 2, height / 2)
        painter.setFont(self._small_font)
        painter.setPen(self._theme.color("accent_text"))
        painter.drawText(badge, Qt.AlignmentFlag.AlignCenter, _BADGE)
        return int(badge.left())

    # ---- renaming in place

    def createEditor(self, parent: QWidget, option: QStyleOptionViewItem, index: Index) -> QWidget:
        editor = QLineEdit(parent)
        editor.setObjectName("rename")
        editor.setAccessibleName("Title of the chat")
        editor.setToolTip("Enter keeps the new title, Esc the old one")
        editor.setMaxLength(200)
        palette = editor.palette()
        palette.setColor(QPalette.ColorRole.Base, self._theme.color("surface"))
        editor.setPalette(palette)
        return editor

    def setEditorData(self, editor: QWidget, index: Index) -> None:
        if isinstance(editor, QLineEdit):
            editor.setText(str(index.data(Qt.ItemDataRole.EditRole)))
            editor.selectAll()

    def updateEditorGeometry(self, editor: QWidget, option: QStyleOptionViewItem, index: Index) -> None:
        rect: QRect = option.rect
        editor.setGeometry(rect.adjusted(0, 1, 0, -1))
