"""What every message has: a place for the keyboard focus, keys, the order of Tab, a ring, a line of actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QEvent, QPoint, QRectF, Qt, Signal
from PySide6.QtGui import QContextMenuEvent, QEnterEvent, QFocusEvent, QKeyEvent, QKeySequence, QPainter, QPen
from PySide6.QtWidgets import QApplication, QMenu, QWidget

from desktop.views.chat.message_footer import MessageFooter
from desktop.views.chat.transcript_style import TranscriptStyle
from desktop.widgets.term import add_to_menu, term_of

_KEYBOARD = (
    Qt.FocusReason.TabFocusReason,
    Qt.FocusReason.BacktabFocusReason,
    Qt.FocusReason.ShortcutFocusReason,
)


class MessageFrame(QWidget):
    """Base of a message's widget.

    Signals:
        moved(int): Up (-1) or Down (1) was pressed.
    """

    moved = Signal(int)

    def __init__(self, parent: QWidget, style: TranscriptStyle, *, user: bool) -> None:
        super().__init__(parent)
        self._look = style
        self._column = parent.parentWidget()
        self._ring = False
        self._by_keyboard = False  # the focus came here by a key; a click leaves it here without a wish to see more
        self.footer = MessageFooter(self, style, user=user)
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)

    def copy_source(self) -> None:
        """The message's Markdown to the clipboard."""
        raise NotImplementedError

    def make_menu(self) -> QMenu:
        """The context menu: what can be done with this message."""
        raise NotImplementedError

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        menu = self.make_menu()
        add_to_menu(menu, self, term_of(self.childAt(event.pos()), event.globalPos()))
        menu.exec(event.globalPos())
        menu.deleteLater()

    # ------------------------------------------------------------------ focus, keys, mouse

    def enterEvent(self, event: QEnterEvent) -> None:
        self.footer.show_actions(True)

    def leaveEvent(self, event: QEvent) -> None:
        self._show_actions(QApplication.focusWidget())

    def focus_moved(self, focus: QWidget | None) -> None:
        """The focus is there now: show the actions while it is in this message and a key brought it."""
        if focus is not self:
            self._by_keyboard = self._has(focus) and QApplication.mouseButtons() == Qt.MouseButton.NoButton
        self._show_actions(focus)

    def _has(self, focus: QWidget | None) -> bool:
        return focus is not None and (focus is self or self.isAncestorOf(focus))

    def _show_actions(self, focus: QWidget | None) -> None:
        inside = self._has(focus)
        self.footer.show_actions((inside and self._by_keyboard) or self.underMouse())
        if not inside and self._ring:
            self._ring = False
            self.update()

    def focusInEvent(self, event: QFocusEvent) -> None:
        self._ring = self._by_keyboard = event.reason() in _KEYBOARD
        self._show_actions(self)
        self.update()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        self._ring = False
        self.update()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key = event.key()
        if key in (Qt.Key.Key_Up, Qt.Key.Key_Down) and not event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
            self.moved.emit(-1 if key == Qt.Key.Key_Up else 1)
        elif event.matches(QKeySequence.StandardKey.Copy):
            self.copy_source()
        elif key == Qt.Key.Key_Escape and QApplication.focusWidget() is not self:
            self.setFocus(Qt.FocusReason.ShortcutFocusReason)
        else:
            event.ignore()

    def focusNextPrevChild(self, forward: bool) -> bool:
        """Tab goes through the parts of this message in the order they are seen, then to the next message."""
        stops = self.tab_stops()
        focus: Any = QApplication.focusWidget()
        while focus is not None and focus not in stops:
            focus = focus.parentWidget()
        place = stops.index(focus) if focus is not None else -1
        place += 1 if forward else -1
        if 0 <= place < len(stops):
            reason = Qt.FocusReason.TabFocusReason if forward else Qt.FocusReason.BacktabFocusReason
            stops[place].setFocus(reason)
            return True
        leave: Callable[[QWidget, bool], bool] | None = getattr(self._column, "leave_by_tab", None)
        return leave(self, forward) if leave is not None else super().focusNextPrevChild(forward)

    def tab_stops(self) -> list[QWidget]:
        """All that Tab stops at, in order."""
        found = [
            child
            for child in self.findChildren(QWidget)
            if child.isVisibleTo(self)
            and child.isEnabled()
            and child.focusPolicy() & Qt.FocusPolicy.TabFocus
            and child.width() > 0
            and child.focusProxy() is None
        ]
        found.sort(key=lambda child: child.mapTo(self, QPoint(0, 0)).toTuple()[::-1])
        return [self, *found]

    def paint_ring(self, painter: QPainter) -> None:
        """Draw the ring of the keyboard focus, if it is here."""
        if not self._ring:
            return
        painter.setPen(QPen(self._look.color("focus"), 1.5))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        column = self.footer.geometry()
        room = self._look.px(14)
        painter.drawRoundedRect(QRectF(column.x() - room, 1, column.width() + 2 * room, self.height() - 2), 10, 10)
