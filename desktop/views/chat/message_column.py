"""The messages of a chat as rows of a column: their widgets, what the user does to them, the keyboard."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFocusEvent
from PySide6.QtWidgets import QApplication, QWidget

from desktop import focus_order
from desktop.models.transcript import TranscriptModel
from desktop.views.chat.lazy_column import LazyColumn
from desktop.views.chat.message_widget import FOLD_ABOVE, FOLDED_LENGTH, MessageWidget
from desktop.views.chat.transcript_style import TranscriptStyle
from engine.message import Message


class MessageColumn(LazyColumn):
    """A `LazyColumn` of messages. Its signals are described at `TranscriptView`."""

    edit_submitted = Signal(int, str)
    regenerate_requested = Signal(int)
    continue_requested = Signal(int)
    delete_requested = Signal(int)
    trace_requested = Signal(int)
    pin_requested = Signal(int, bool)
    version_requested = Signal(int, int)
    link_activated = Signal(str)

    def __init__(self, parent: QWidget | None, style: TranscriptStyle) -> None:
        super().__init__(parent)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self._style = style
        self._trace = False
        #: controls of the transcript itself that Tab stops at
        self.extra_stops: list[QWidget] = []
        self._memories: dict[Hashable, dict[str, Any]] = {}
        self._model = TranscriptModel(self)
        application = QApplication.instance()
        if isinstance(application, QApplication):
            application.focusChanged.connect(self._focus_changed)

    @property
    def model(self) -> TranscriptModel:
        """The messages on screen."""
        return self._model

    # ------------------------------------------------------------------ rows

    def row_key(self, row: int) -> Hashable:
        return self._model.messages[row].id

    def row_number(self, key: Hashable) -> int | None:
        return self._model.row_of(key)  # type: ignore[arg-type]

    def estimate(self, row: int, width: int) -> int:
        """A guess from the number of characters and lines."""
        message = self._model.messages[row]
        style = self._style
        text = message.text
        length = len(text)
        lines = text.count("\n")
        if length > FOLD_ABOVE:
            lines = round(lines * FOLDED_LENGTH / length)
            length = FOLDED_LENGTH
        column = max(120, min(style.column, width - 2 * style.px(24)))
        per_line = max(10.0, column * (0.8 if message.role == "user" else 1.0) / (style.text_size * 0.55))
        height = (length / per_line + lines * 0.6 + 1) * style.line_height
        return round(height + style.px(60))

    def make_row(self, row: int) -> QWidget:
        message = self._model.messages[row]
        widget = MessageWidget(self.viewport(), self._style, message, trace=self._trace)
        key = message.id
        widget.resized.connect(lambda: self._resized(key))
        widget.grew.connect(lambda: self._grew(key))
        widget.action.connect(lambda name: self._act(key, name))
        widget.edited.connect(lambda text: self.edit_submitted.emit(key, text))
        widget.version_step.connect(lambda step: self.version_requested.emit(key, step))
        widget.link_clicked.connect(self.link_activated)
        widget.moved.connect(lambda step: self._move(key, step))
        self._fill(widget, message)
        if message.role == "user" and row == len(self._model.messages) - 1:
            widget.footer.set_unanswered(True)
        if key in self._memories:
            widget.restore(self._memories.pop(key))
        return widget

    def mark_unanswered(self) -> None:
        """The last message offers to be answered, if it is the user's."""
        last = self._model.messages[-1].id if self._model.messages else None
        for key, widget in self._rows.items():
            if isinstance(widget, MessageWidget) and widget.message.role == "user":
                widget.footer.set_unanswered(key == last)

    def row_let_go(self, key: Hashable, widget: QWidget) -> None:
        memory = widget.memory() if isinstance(widget, MessageWidget) else None
        if memory:
            self._memories[key] = memory

    def _resized(self, key: int) -> None:
        """The user opened or closed something: its upper end stays where it is."""
        row = self._model.row_of(key)
        if row is not None and self._follow and key not in self._model.streaming_ids:
            self._set_follow(False)
            self._anchor = (key, self._heights.tops()[row] - self.verticalScrollBar().value())
        if self.measure(key):
            self.arrange()
        self._set_follow(self.verticalScrollBar().value() >= self.verticalScrollBar().maximum() - 2)
        self.row_changed(key)

    def _grew(self, key: int) -> None:
        if self.measure(key):
            self.arrange()
        self.row_changed(key)

    def _act(self, message_id: int, name: str) -> None:
        signals: dict[str, Any] = {
            "regenerate": self.regenerate_requested,
            "continue": self.continue_requested,
            "delete": self.delete_requested,
            "trace": self.trace_requested,
        }
        if name in ("pin", "unpin"):
            self.pin_requested.emit(message_id, name == "pin")
        else:
            signals[name].emit(message_id)

    # ------------------------------------------------------------------ keyboard

    def _move(self, message_id: int, step: int) -> None:
        row = self._model.row_of(message_id)
        if row is not None:
            self.focus_row(row + step)

    def focus_row(self, row: int) -> None:
        """Put the keyboard focus on a message and bring it into view."""
        if not 0 <= row < len(self._model.messages):
            return
        self.scroll_to_row(row)
        widget = self._rows.get(self.row_key(row))
        if widget is not None:
            widget.setFocus(Qt.FocusReason.ShortcutFocusReason)

    def scroll_to_message(self, message_id: int) -> None:
        """Bring a message into view, if it is on this branch."""
        row = self._model.row_of(message_id)
        if row is not None:
            self.scroll_to_row(row)

    def focus_message(self, message_id: int) -> None:
        """Put the keyboard focus on a message, if it is on this branch."""
        row = self._model.row_of(message_id)
        if row is not None:
            self.focus_row(row)

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Tab comes to the first message that is seen, Shift+Tab to the last part of the last one."""
        rows = [row for row in self._wanted(0.0) if self.row_key(row) in self._rows]
        if rows and event.reason() == Qt.FocusReason.TabFocusReason:
            self._enter(rows[0], forward=True)
        elif rows and event.reason() == Qt.FocusReason.BacktabFocusReason:
            self._enter(rows[-1], forward=False)
        else:
            super().focusInEvent(event)

    def leave_by_tab(self, message: QWidget, forward: bool) -> bool:
        """Move the focus out of a message: to the next one, at the last one to what follows the transcript."""
        row = next(
            (row for key, w in self._rows.items() if w is message and (row := self.row_number(key)) is not None), None
        )
        following = -1 if row is None else row + (1 if forward else -1)
        if 0 <= following < len(self._model.messages):
            self.scroll_to_row(following)
            if self.row_key(following) in self._rows:
                self._enter(following, forward=forward)
                return True
        return focus_order.move(self.window(), self, forward=forward)

    def _enter(self, row: int, *, forward: bool) -> None:
        widget = self._rows[self.row_key(row)]
        reason = Qt.FocusReason.TabFocusReason if forward else Qt.FocusReason.BacktabFocusReason
        widget.setFocus(reason)  # shows its controls
        if not forward and isinstance(widget, MessageWidget):
            widget.tab_stops()[-1].setFocus(reason)

    def _focus_changed(self, old: QWidget | None, now: QWidget | None) -> None:
        for start in (old, now):
            widget: QWidget | None = start
            while widget is not None and not isinstance(widget, MessageWidget):
                widget = widget.parentWidget()
            if isinstance(widget, MessageWidget) and widget.parentWidget() is self.viewport():
                widget.focus_moved(now)

    def _fill(self, widget: MessageWidget, message: Message) -> None:
        state = self._model.stream(message.id)
        if state is None:
            widget.set_message(message)
        else:
            state.take()
            widget.set_stream(message, state)
