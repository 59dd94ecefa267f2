"""What can be taken back: the last deletions, newest last, until the program ends."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, Signal

#: as many deletions are remembered
LIMIT = 100


class Undos(QObject):
    """Signals:
    changed(bool): whether there is something to take back.
    """

    changed = Signal(bool)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._entries: list[Callable[[], None]] = []

    def __bool__(self) -> bool:
        return bool(self._entries)

    def add(self, undo: Callable[[], None]) -> None:
        """Remember how to take something back."""
        self._entries.append(undo)
        del self._entries[:-LIMIT]
        self.changed.emit(True)

    def take_back(self) -> None:
        """Take back what was done last; nothing if there is nothing."""
        if self._entries:
            undo = self._entries.pop()
            self.changed.emit(bool(self._entries))
            undo()
