"""Which chat is open, on disk a moment after it was switched: also a program that is killed comes back to it."""

from __future__ import annotations

from PySide6.QtCore import QObject, QSettings, QTimer

from desktop.tasks import Tasks

SAVE_DELAY_MS = 300
_KEY = "last_chat"


class OpenChat(QObject):
    """Remembers the open chat in the file of the window's state; 0 is the chat that does not exist yet."""

    def __init__(self, state_file: QSettings, tasks: Tasks, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._state_file = state_file
        self._path = state_file.fileName()
        self._chat_id = self.stored
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(SAVE_DELAY_MS)
        self._timer.timeout.connect(lambda: tasks.run(self._save))

    @property
    def stored(self) -> int:
        """The chat that was open at the last look; 0 if none was or the file is damaged."""
        try:
            return int(str(self._state_file.value(_KEY, 0) or 0))
        except ValueError:
            return 0

    def put(self, chat_id: int | None) -> None:
        """Another chat is open now."""
        if (chat_id or 0) != self._chat_id:
            self._chat_id = chat_id or 0
            self._timer.start()

    def _save(self) -> None:
        # A QSettings of its own: one object belongs to one thread, and Qt shares the content of the file between them.
        # What is written is what is open now, so that of two that overlap the later is right, whichever it is.
        settings = QSettings(self._path, QSettings.Format.IniFormat)
        settings.setValue(_KEY, self._chat_id)
        settings.sync()
