"""A short message at the bottom of the window with one way to take back what it reports."""

from __future__ import annotations

import re
from collections.abc import Callable

from PySide6.QtCore import QEvent, QObject, Qt, QTimer
from PySide6.QtGui import QEnterEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QWidget

from desktop.undo import Undos

SHOWN_MS = 8000
#: characters; the tip has the rest
MAX_LENGTH = 400
_MARGIN = 24
_WIDEST = 640


class Toast(QFrame):
    """Lies over the bottom of its parent, goes by itself, and waits while the mouse is on it.

    What can be undone stays in `undos` when the message has gone.
    """

    def __init__(self, parent: QWidget, *, then: QWidget | None = None) -> None:
        """then: takes the focus when the button that has it goes away; None: whatever follows."""
        super().__init__(parent)
        self._then = then
        self.setObjectName("toast")
        self.setAccessibleName("Message")
        self.undos = Undos(self)
        self._text = ""
        layout = QHBoxLayout(self)
        layout.setContentsMargins(16, 8, 8, 8)
        layout.setSpacing(12)
        self._label = QLabel()
        self._label.setTextFormat(Qt.TextFormat.PlainText)
        self._label.setWordWrap(True)
        self._button = QPushButton("Undo")
        self._button.setObjectName("undo")
        self._button.setToolTip("Take it back (Ctrl+Z)")
        self._button.setAccessibleName("Undo")
        # a click leaves the focus where it is: the button is gone a moment later, and the focus would go on to the next
        self._button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self._button.clicked.connect(self.undo)
        layout.addWidget(self._label)
        layout.addWidget(self._button, 0, Qt.AlignmentFlag.AlignVCenter)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(SHOWN_MS)
        self._timer.timeout.connect(self.dismiss)
        self._home = parent
        parent.installEventFilter(self)
        self.hide()

    @property
    def text(self) -> str:
        """What is shown."""
        return self._label.text().replace("\u200b", "")

    @property
    def can_undo(self) -> bool:
        return bool(self.undos)

    def show_message(self, text: str, undo: Callable[[], None] | None = None, *, over: QWidget | None = None) -> None:
        """Show a sentence; with `undo` a button calls it once. `over`: lie on this widget instead of the usual one."""
        self._move_to(over or self._home)
        self._text = text
        self.setAccessibleDescription(text)
        self._button.setVisible(undo is not None)
        self._place()
        self.show()
        self.raise_()
        self._timer.start()
        if undo is not None:
            self.undos.add(undo)

    def undo(self) -> None:
        """Take back what was done last; nothing if there is nothing to undo."""
        self.dismiss()
        self.undos.take_back()

    def dismiss(self) -> None:
        self._timer.stop()
        if self._then is not None and self._button.hasFocus() and self._then.isVisible():
            self._then.setFocus(Qt.FocusReason.OtherFocusReason)
        self.hide()

    def _move_to(self, parent: QWidget) -> None:
        before = self.parentWidget()
        if before is not parent:
            if before is not None:
                before.removeEventFilter(self)
            self.setParent(parent)
            parent.installEventFilter(self)

    def _place(self) -> None:
        """As wide as the text, at most as wide as the window; then it has more lines."""
        parent = self.parentWidget()
        if parent is None:
            return
        self.ensurePolished()
        self._label.ensurePolished()
        margins = self.contentsMargins()
        layout = self.layout()
        around = margins.left() + margins.right()
        if layout is not None:
            inner = layout.contentsMargins()
            around += inner.left() + inner.right()
        if not self._button.isHidden():
            around += self._button.sizeHint().width() + 12
        metrics = self._label.fontMetrics()
        widest = min(parent.width() - 2 * _MARGIN, max(_WIDEST, 40 * metrics.averageCharWidth())) - around
        width = max(1, min(metrics.horizontalAdvance(self._text) + 4, widest))
        self._label.setMinimumSize(0, 0)  # else the height would be that of the width before
        length = min(len(self._text), MAX_LENGTH)
        while True:
            self._label.setText(_breakable(_shortened(self._text, length), width // metrics.averageCharWidth()))
            height = self._label.heightForWidth(width)
            if height <= parent.height() - 2 * _MARGIN or length < 20:
                break
            length = length * 4 // 5
        self._label.setToolTip(self._text if length < len(self._text) else "")
        self._label.setFixedSize(width, height)
        self.adjustSize()
        self.move((parent.width() - self.width()) // 2, parent.height() - self.height() - _MARGIN)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Resize and self.isVisible():
            self._place()
        return super().eventFilter(watched, event)

    def enterEvent(self, event: QEnterEvent) -> None:
        self._timer.stop()
        super().enterEvent(event)

    def leaveEvent(self, event: QEvent) -> None:
        if self.isVisible():
            self._timer.start()
        super().leaveEvent(event)


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def _breakable(text: str, columns: int) -> str:
    """Let a line end also in a word that is longer than a line, as the path of a file can be."""
    size = max(4, columns // 2)
    return re.sub(rf"(\S{{{size}}})(?=\S)", "\\1\u200b", text)
