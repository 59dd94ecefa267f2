"""What the user can do with one message."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, Signal

from desktop.bridge import EngineBridge
from engine.errors import Cancelled

if TYPE_CHECKING:
    from engine.service import Engine


class MessageCommands(QObject):
    """Each returns at once; what changes comes as events.

    Signals:
        failed(object): the error. deleted(int): a message was deleted and can be restored.
    """

    failed = Signal(object)
    deleted = Signal(int)

    def __init__(self, engine: Engine, bridge: EngineBridge, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._engine = engine
        self._bridge = bridge

    def edit(self, message_id: int, text: str) -> None:
        self.run(self._engine.chats.edit(message_id, text))

    def regenerate(self, message_id: int) -> None:
        self.run(self._engine.chats.regenerate(message_id))

    def continue_message(self, message_id: int) -> None:
        self.run(self._engine.chats.continue_message(message_id))

    def delete(self, message_id: int) -> None:
        self.run(self._engine.chats.delete_message(message_id), lambda _: self.deleted.emit(message_id))

    def pin(self, message_id: int, on: bool) -> None:
        self.run(self._engine.chats.pin(message_id, on))

    def restore(self, message_id: int) -> None:
        self.run(self._engine.chats.restore_message(message_id))

    def switch_version(self, message_id: int, step: int) -> None:
        self.run(self._engine.chats.switch_version(message_id, step))

    def run(self, future: Any, on_success: Callable[[Any], None] | None = None) -> None:
        """Deliver a future; an error becomes `failed`, unless the user cancelled it."""

        def failed(error: BaseException) -> None:
            if not isinstance(error, Cancelled):
                self.failed.emit(error)

        self._bridge.run(future, on_success, failed, owner=self)
