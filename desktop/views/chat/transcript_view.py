"""The transcript: the messages of a chat, and answers as they are written."""

from __future__ import annotations

from collections.abc import Hashable
from time import perf_counter

from PySide6.QtCore import QModelIndex, Qt, QTimer
from PySide6.QtGui import QPalette, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QPushButton, QWidget

from desktop import theme as themes
from desktop.theme import Theme
from desktop.views.chat.message_column import MessageColumn
from desktop.views.chat.message_widget import MessageWidget
from desktop.views.chat.transcript_style import TranscriptStyle
from engine.events import PromptProgress, Token
from engine.message import Message

#: Seconds between two looks at the tokens that came; longer where a look costs much.
FLUSH_S = 0.033
#: The same while the model computes on the CPU. Its threads wait for each other after every operation, so a core that
#: this window takes for 4 ms stops them all: 30 looks a second cost a tenth of the speed on two cores.
CALM_FLUSH_S = 0.1
MAX_FLUSH_S = 0.25
#: While nobody sees it: often enough that little is to be done at once when the window is back.
UNSEEN_FLUSH_S = 1.0
#: A look may take this part of the time; less where the model wants the CPU.
DUTY, CALM_DUTY = 0.1, 0.02


class TranscriptView(MessageColumn):
    """Shows messages and lets the user act on them.

    Signals:
        edit_submitted(int, str): a message's new text.
        regenerate_requested(int), continue_requested(int), delete_requested(int), trace_requested(int): of a message.
        pin_requested(int, bool): keep a message in the context, or no longer.
        version_requested(int, int): another version of a message, one step back (-1) or on (1).
        link_activated(str): a link was clicked; only http, https and mailto.
    """

    def __init__(self, parent: QWidget | None = None, *, theme: Theme | None = None, scale: float = 1.0) -> None:
        super().__init__(parent, TranscriptStyle(theme or themes.current(), scale))
        self.setObjectName("transcript")
        self.setAccessibleName("Transcript")
        self._chat_id: int | None = None
        self._to_end = True
        self._cost: dict[Hashable, float] = {}
        self._flush_s, self._duty, self._flushed_s = FLUSH_S, DUTY, 0.0
        self._model.modelReset.connect(self._reset)
        self._model.rowsInserted.connect(self._inserted)
        self._model.rowsRemoved.connect(self._removed)
        self._model.dataChanged.connect(self._changed)
        self._flush_timer = QTimer(self)
        self._flush_timer.setSingleShot(True)
        self._flush_timer.setTimerType(Qt.TimerType.PreciseTimer)
        self._flush_timer.timeout.connect(self.flush)
        self._jump = QPushButton("↓ Latest", self)
        self._jump.setObjectName("jump_to_latest")
        self._jump.setAccessibleName("Jump to the latest message")
        self._jump.setToolTip("Jump to the latest message (End)")
        self._jump.setCursor(Qt.CursorShape.PointingHandCursor)
        self._jump.clicked.connect(self.scroll_to_end)
        self._jump.hide()
        self.extra_stops.append(self._jump)
        self.follow_changed.connect(self._place_jump)
        self._apply_style()

    # ------------------------------------------------------------------ messages

    def set_messages(self, messages: list[Message]) -> None:
        """Show another branch or chat. In the same chat the place is kept, in another one the end is shown."""
        chat_id = messages[0].chat_id if messages else None
        self._to_end = chat_id != self._chat_id
        self._chat_id = chat_id
        self._model.set_messages(messages)

    def add_message(self, message: Message) -> None:
        """Add a message at the end. What the user just wrote is always brought into view."""
        if not self._model.messages:
            self._chat_id = message.chat_id
        self._model.add(message)
        if message.role == "user":
            self.scroll_to_end()

    def update_message(self, message: Message) -> None:
        """A stored message has another content or status."""
        self._model.update(message)

    def remove_after(self, message_id: int) -> None:
        """Take away all messages behind this one."""
        self._model.remove_after(message_id)

    # ------------------------------------------------------------------ streaming

    def begin_stream(self, message_id: int) -> None:
        """A message is being written from now on."""
        self._model.begin_stream(message_id)

    def append_step(self, message_id: int, step: Token | PromptProgress) -> None:
        """A token, or how far the prompt is read. Cheap: it is shown by the next `flush`."""
        if self._model.append_step(message_id, step) and not self._flush_timer.isActive():
            # tokens come in groups: one that comes late enough is shown at once, without another turn of the loop
            rest = self._flushed_s + self._flush_interval() - perf_counter()
            self._flush_timer.start(max(0, round(rest * 1000)))

    def end_stream(self, message: Message) -> None:
        """The answer is complete; its own text takes the place of what was shown where they differ."""
        self.flush()
        self._model.end_stream(message)

    def _flush_interval(self) -> float:
        if not self.isVisible() or self.window().isMinimized():
            return UNSEEN_FLUSH_S
        cost = max((self._cost.get(key, 0.0) for key in self._model.streaming_ids), default=0.0)
        return min(MAX_FLUSH_S, max(self._flush_s, cost / self._duty))

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if self._flush_timer.isActive():
            self.flush()

    def set_calm(self, on: bool) -> None:
        """Look at the tokens less often, because the model needs the CPU itself."""
        self._flush_s, self._duty = (CALM_FLUSH_S, CALM_DUTY) if on else (FLUSH_S, DUTY)

    def flush(self) -> None:
        """Show the tokens that came since the last time."""
        self._flush_timer.stop()
        self._flushed_s = perf_counter()
        changed = False
        for message_id in self._model.streaming_ids:
            state = self._model.stream(message_id)
            widget = self._rows.get(message_id)
            if state is None:
                continue
            text, reasoning = state.take()
            if not isinstance(widget, MessageWidget):
                continue
            begin = perf_counter()
            widget.stream(text, reasoning, state)
            if not widget.work(begin + 0.01):
                self.row_changed(message_id)
            changed = self.measure(message_id) or changed
            self._cost[message_id] = perf_counter() - begin
        if changed:
            self.arrange()

    # ------------------------------------------------------------------ the model changed

    def _reset(self) -> None:
        self._cost.clear()
        for message in self._model.messages:
            widget = self._rows.get(message.id)
            if isinstance(widget, MessageWidget) and widget.message != message:
                self._fill(widget, message)
                self.row_changed(message.id)
        self.mark_unanswered()
        self.reset_rows(len(self._model.messages), to_end=self._to_end)

    def _inserted(self, _parent: QModelIndex, _first: int, _last: int) -> None:
        self.mark_unanswered()
        self.add_row()

    def _removed(self, _parent: QModelIndex, first: int, _last: int) -> None:
        self.mark_unanswered()
        self.cut_rows(first)

    def _changed(self, first: QModelIndex, _last: QModelIndex) -> None:
        message = self._model.messages[first.row()]
        widget = self._rows.get(message.id)
        if isinstance(widget, MessageWidget):
            if message.id in self._model.streaming_ids and widget.streaming:
                return  # its stream is ahead of what is stored
            self._fill(widget, message)
            widget.work(perf_counter() + 0.02)
            if self.measure(message.id):
                self.arrange()
            self.row_changed(message.id)

    # ------------------------------------------------------------------ look

    def apply_theme(self, theme: Theme, scale: float | None = None) -> None:
        """Show everything in another theme or text size (1.0 is the system's); the place is kept."""
        same_size = scale is None or scale == self._style.scale
        self._style = TranscriptStyle(theme, self._style.scale if scale is None else scale)
        self._apply_style()
        if not same_size:
            self.forget_heights()
        self.rebuild_rows()

    def set_text_scale(self, scale: float) -> None:
        """Show everything in another text size."""
        self.apply_theme(self._style.theme, scale)

    def set_trace_available(self, on: bool) -> None:
        """Whether answers offer their trace."""
        if on != self._trace:
            self._trace = on
            self.rebuild_rows()

    def _apply_style(self) -> None:
        colours = QPalette(self.palette())
        paper = self._style.color("paper")
        for role in (QPalette.ColorRole.Base, QPalette.ColorRole.Window):
            colours.setColor(role, paper)
        self.viewport().setPalette(colours)
        self.viewport().setAutoFillBackground(True)
        self.setStyleSheet(self._style.qss())
        self._place_jump()

    def _place_jump(self) -> None:
        self._jump.setVisible(not self._follow and len(self._heights) > 0)
        size = self._jump.sizeHint()
        area = self.viewport().geometry()
        self._jump.setGeometry(
            area.center().x() - size.width() // 2,
            area.bottom() - size.height() - self._style.px(12),
            size.width(),
            size.height(),
        )
        self._jump.raise_()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place_jump()
