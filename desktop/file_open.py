"""Files and links that macOS hands to a running program: they come as events there, not as words of a second start."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, Signal
from PySide6.QtGui import QFileOpenEvent


class FileOpens(QObject):
    """Watches the application for them. What comes before `release` is kept until then: the window is not there yet.

    Signals:
        opened(list[str]): paths and links, as words of the command line would be.
    """

    opened = Signal(list)

    def __init__(self, app: QObject) -> None:
        super().__init__(app)
        self._waiting: list[str] | None = []
        app.installEventFilter(self)

    def release(self) -> None:
        """The window is there: give on what came so far, and from now on at once."""
        waiting, self._waiting = self._waiting, None
        if waiting:
            self.opened.emit(waiting)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if not isinstance(event, QFileOpenEvent):
            return False
        word = event.file() or event.url().toString()
        if word and self._waiting is not None:
            self._waiting.append(word)
        elif word:
            self.opened.emit([word])
        return True
