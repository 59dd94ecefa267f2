"""The box in which a message is edited in its place."""

from __future__ import annotations

import math

from PySide6.QtCore import QEvent, Qt, Signal
from PySide6.QtGui import QKeyEvent, QTextCursor
from PySide6.QtWidgets import QPlainTextEdit, QPushButton, QWidget

from desktop.views.chat.transcript_style import TranscriptStyle

_MAX_LINES = 16


class EditText(QPlainTextEdit):
    """The text itself.

    Signals:
        submitted(), cancelled(): Ctrl+Enter and Esc.
    """

    submitted = Signal()
    cancelled = Signal()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        enter = event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
        if enter and event.modifiers() & Qt.KeyboardModifier.ControlModifier:
            self.submitted.emit()
        elif event.key() == Qt.Key.Key_Escape:
            self.cancelled.emit()
        else:
            super().keyPressEvent(event)

    def event(self, event: QEvent) -> bool:
        # Esc belongs to the box, not to a shortcut of the window (which would stop an answer)
        if isinstance(event, QKeyEvent) and event.type() == QEvent.Type.ShortcutOverride:
            is_escape = event.key() == Qt.Key.Key_Escape
            if is_escape:
                event.accept()
                return True
        return super().event(event)


class MessageEdit(QWidget):
    """A text box with its two buttons.

    Signals:
        submitted(str): the new text.
        cancelled(): nothing is to change.
        resized(): the height is another now.
    """

    submitted = Signal(str)
    cancelled = Signal()
    resized = Signal()

    def __init__(self, parent: QWidget, style: TranscriptStyle, text: str, *, user: bool) -> None:
        super().__init__(parent)
        self._look = style
        self._original = text
        self._edit = EditText(self)
        self._edit.setObjectName("message_edit")
        self._edit.setAccessibleName("Edit your message" if user else "Edit this answer")
        self._edit.setTabChangesFocus(True)
        self._edit.document().setDefaultFont(style.text_font)
        self._edit.setPlainText(text)
        self._edit.moveCursor(QTextCursor.MoveOperation.End)
        self._send = QPushButton("Send" if user else "Save", self)
        self._send.setObjectName("message_edit_submit")
        self._send.setProperty("kind", "primary")
        self._send.setToolTip("Ctrl+Enter")
        self._cancel = QPushButton("Cancel", self)
        self._cancel.setObjectName("message_edit_cancel")
        self._cancel.setToolTip("Esc")
        self._edit.submitted.connect(self._submit)
        self._edit.cancelled.connect(self.cancelled)
        self._send.clicked.connect(self._submit)
        self._cancel.clicked.connect(self.cancelled)
        self._edit.blockCountChanged.connect(lambda _count: self.resized.emit())

    @property
    def text(self) -> str:
        return self._edit.toPlainText()

    def focus(self) -> None:
        """Put the caret into the box."""
        self._edit.setFocus(Qt.FocusReason.OtherFocusReason)

    def _submit(self) -> None:
        text = self.text
        if text.strip():
            self.submitted.emit(text)

    def height_for(self, width: int) -> int:
        """Lay out in `width` pixels; the height that takes."""
        px = self._look.px
        metrics = self._edit.fontMetrics()
        per_line = max(10, (width - px(24)) // max(1, metrics.averageCharWidth()))
        lines = 0
        for line in self.text[:20_000].split("\n"):
            lines += max(1, math.ceil(len(line) / per_line))
            if lines >= _MAX_LINES:
                break
        height = (min(lines, _MAX_LINES) + 1) * metrics.lineSpacing() + px(20)
        self._edit.setGeometry(0, 0, width, height)
        x = width
        for button in (self._send, self._cancel):
            size = button.sizeHint()
            x -= size.width()
            button.setGeometry(x, height + px(8), size.width(), size.height())
            x -= px(8)
        return height + px(8) + self._send.sizeHint().height() + px(4)
