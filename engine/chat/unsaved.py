"""Answers that ended while nothing could be written (a full disk, say): kept in memory until they are on disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from engine import events, log
from engine.errors import DatabaseDamaged, EngineError, InvalidRequest
from engine.message import GenerationRecord, Message, Part, Status
from engine.store.chats import ChatStore

_log = log.get("chat")


class Unsaved:
    """Runs on the engine thread; only its truth value (is there anything?) may be asked from others."""

    def __init__(self, emit: Callable[[events.Event], None]) -> None:
        self._emit = emit
        self._messages: dict[int, Message] = {}
        self._reported = False

    def __bool__(self) -> bool:
        return bool(self._messages)

    def save(
        self, store: ChatStore, message: Message, parts: tuple[Part, ...], status: Status, record: GenerationRecord
    ) -> tuple[Message, EngineError | None]:
        """Write an answer's last state. Gives the message as it is now, and what kept it from the disk.

        Nothing is raised: an answer must end even where it cannot be stored. It is written by `retry` then.
        """
        try:
            saved = store.update_message(message.id, parts=parts, status=status, generation=record)
        except InvalidRequest as error:  # purged meanwhile: there is nothing to keep it for
            return msgspec.structs.replace(message, parts=parts, status=status, generation=record), error
        except EngineError as error:
            message = msgspec.structs.replace(message, parts=parts, status=status, generation=record)
            self._messages[message.id] = message
            self.report(error)
            return message, error
        self._messages.pop(message.id, None)
        self.worked()
        return saved, None

    def retry(self, store: ChatStore) -> None:
        """Write what is waiting, as far as that goes.

        Raises:
            DatabaseDamaged: the file has to be replaced first.
        """
        for message in list(self._messages.values()):
            assert message.generation is not None
            _, error = self.save(store, message, message.parts, message.status, message.generation)
            if isinstance(error, InvalidRequest):
                del self._messages[message.id]
            elif isinstance(error, DatabaseDamaged):
                raise error
            elif error is not None:
                return

    def over(self, messages: Sequence[Message]) -> list[Message]:
        """Messages as read from the store, with what it does not know yet."""
        return [
            msgspec.structs.replace(new, version=old.version, n_versions=old.n_versions, pinned=old.pinned)
            if (new := self._messages.get(old.id)) is not None
            else old
            for old in messages
        ]

    def report(self, error: EngineError) -> None:
        """Say once that writing fails, until it works again."""
        if self._reported:
            return
        self._reported = True
        _log.error("an answer cannot be saved: %s", error.code)
        self._emit(
            events.Notice(
                level="error",
                text=f"{error.message} The answer is kept in memory and saved as soon as that is possible.",
                hint=error.hint,
            )
        )

    def worked(self) -> None:
        """Something could be written; tells so if `report` had said otherwise and nothing is left to write."""
        if self._reported and not self._messages:
            self._reported = False
            self._emit(events.Notice(level="info", text="Saving works again; all answers are on disk."))
