"""What the user should know about a message: notes, and what went wrong."""

from __future__ import annotations

import json

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFont, QPainter, QPaintEvent, QTextCharFormat, QTextCursor
from PySide6.QtWidgets import QWidget

from desktop.errors import BLACK_BOX_KEYS, black_box_lines
from desktop.views.chat.markdown_blocks import safe_text
from desktop.views.chat.small_button import SmallButton
from desktop.views.chat.text_view import BaseText
from desktop.views.chat.transcript_style import TranscriptStyle
from engine.message import ErrorInfo, Message

_MAX_DETAILS = 6_000
#: so many tokens read again are felt
_MANY_TOKENS = 256
#: see `engine.message.Reread`
_REREAD = {
    "changed": "what stands before the answer is not the same as the last time",
    "tokens": "the same text is cut into other tokens now",
    "thinking": "the model's template leaves out what it thought",
    "dropped": "older turns were left out, and the rest could not be moved",
    "window": "the model's sliding window does not reach back that far",
    "state": "the model's recurrent state cannot go back",
    "given_up": "other chats needed their room in the context",
    "stopped": "computing was interrupted",
}


def notes_of(message: Message) -> list[str]:
    """Notes to show with a message, in words."""
    out: list[str] = []
    record = message.generation
    if record is not None:
        if record.n_dropped:
            turns = "1 earlier message was" if record.n_dropped == 1 else f"{record.n_dropped:,} earlier messages were"
            out.append(f"{turns} left out because they no longer fit the context.")
        out += [note for note in record.notes if note]
        if record.reread is not None and record.reread.n_tokens >= _MANY_TOKENS:
            out.append(f"{record.reread.n_tokens:,} tokens were read again: {_REREAD[record.reread.cause]}.")
    if message.role == "assistant" and message.status == "complete" and not message.text and not message.reasoning:
        out.append("The model ended its answer without writing anything.")
    if message.status == "interrupted":
        out.append("The program ended while this was being written. Continue writes on from here.")
    return out


def details_text(error: ErrorInfo) -> str:
    """The details of an error as lines."""
    lines = [f"code: {error.code}", *black_box_lines(error)]
    for key, value in error.details.items():
        if key in BLACK_BOX_KEYS:
            continue
        if isinstance(value, list | tuple):
            lines.append(f"{key}:")
            lines += [f"  {item}" for item in value]
        else:
            lines.append(f"{key}: {value if isinstance(value, str) else json.dumps(value, default=str)}")
    return safe_text("\n".join(lines)[:_MAX_DETAILS])


class NotesBox(QWidget):
    """Notes and the error of one message.

    Signals:
        resized(): the details were opened or closed.
        retry(): "Try again".
    """

    resized = Signal()
    retry = Signal()

    def __init__(self, parent: QWidget, style: TranscriptStyle, notes: list[str], error: ErrorInfo | None) -> None:
        super().__init__(parent)
        self._look = style
        self._error = error
        self._notes: BaseText | None = self._text(notes, "warn", "Notes on this answer") if notes else None
        self._words: BaseText | None = None
        self._details: BaseText | None = None
        self._buttons: list[SmallButton] = []
        self._card = (0, 0)
        if error is not None:
            self._words = self._text([error.message], "ink", "What went wrong", strong=True)
            if error.hint:
                self._add_line(self._words, error.hint, "ink2", strong=False)
            self._retry = SmallButton("Try again", self, "Write this answer again", "accent")
            self._retry.clicked.connect(self.retry)
            self._fold = SmallButton("▸ Details", self, "Show details of the error", "fold")
            self._fold.clicked.connect(self.toggle_details)
            self._buttons = [self._retry, self._fold]

    def _text(self, lines: list[str], colour: str, name: str, *, strong: bool = False) -> BaseText:
        view = BaseText(self, self._look)
        view.set_role("muted", self._look.small_font)
        view.setAccessibleName(name)
        for line in lines:
            self._add_line(view, line, colour, strong=strong)
        return view

    def _add_line(self, view: BaseText, line: str, colour: str, *, strong: bool) -> None:
        form = QTextCharFormat()
        form.setForeground(self._look.color(colour))
        form.setFont(self._look.small_font)
        if strong:
            form.setFontWeight(QFont.Weight.DemiBold)
        cursor = QTextCursor(view.document())
        cursor.movePosition(QTextCursor.MoveOperation.End)
        if view.document().characterCount() > 1:
            cursor.insertBlock()
        cursor.insertText(safe_text(line), form)

    def toggle_details(self) -> None:
        """Show or hide the details of the error."""
        if self._error is None:
            return
        if self._details is None:
            self._details = BaseText(self, self._look)
            self._details.set_role("muted", self._look.mono_font)
            form = QTextCharFormat()
            form.setForeground(self._look.color("ink2"))
            font = QFont(self._look.mono_font)
            font.setPixelSize(self._look.px(11))
            form.setFont(font)
            QTextCursor(self._details.document()).insertText(details_text(self._error), form)
            self._details.setAccessibleName("Details of the error")
            self._details.show()
        else:
            self._details.setVisible(not self._details.isVisibleTo(self))
        is_open = self._details.isVisibleTo(self)
        self._fold.setText("▾ Details" if is_open else "▸ Details")
        self.resized.emit()

    def height_for(self, width: int) -> int:
        """Lay out in `width` pixels; the height that takes."""
        px = self._look.px
        y = 0
        if self._notes is not None:
            height = self._notes.height_for(width - px(14))
            self._notes.setGeometry(px(14), y, width - px(14), height)
            y += height + px(4)
        if self._words is None:
            return y
        top = y
        pad = px(12)
        y += pad
        height = self._words.height_for(width - 2 * pad)
        self._words.setGeometry(pad, y, width - 2 * pad, height)
        y += height + px(6)
        x = pad - px(5)
        for button in self._buttons:
            button_width = button.sizeHint().width()
            button.setGeometry(x, y, button_width, px(24))
            x += button_width + px(8)
        y += px(24)
        if self._details is not None and self._details.isVisibleTo(self):
            height = self._details.height_for(width - 2 * pad)
            self._details.setGeometry(pad, y + px(4), width - 2 * pad, height)
            y += height + px(8)
        y += px(8)
        self._card = (top, y - top)
        return y

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        if self._notes is not None:
            painter.setBrush(self._look.color("warn"))
            painter.drawRoundedRect(self._look.px(2), 2, 3, self._notes.height() - 4, 1.5, 1.5)
        if self._words is not None:
            painter.setBrush(self._look.color("bad_soft"))
            painter.drawRoundedRect(0, self._card[0], self.width(), self._card[1], 8, 8)
        painter.end()
