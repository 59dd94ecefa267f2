"""Traces of answers, compressed, beside their messages. The oldest go where there are too many of them."""

from __future__ import annotations

from contextlib import suppress

from engine.errors import DiskFull, StorageFailed
from engine.store.database import Database
from engine.trace import Lost


class TraceStore:
    """Works on the chats' own database, on its thread. Raises what `ChatStore` raises.

    A trace goes with its message for good when that is purged.
    """

    def __init__(self, db: Database) -> None:
        self._db = db

    def put(self, message_id: int, data: bytes, cap_bytes: int) -> None:
        """Keep a trace in place of the one before. Older ones go until all together take at most `cap_bytes`; one
        that is larger than that by itself is not kept. A message that does not exist any more is passed over."""
        with self._db.transaction():
            self._db.run("DELETE FROM traces WHERE message_id = ?", (message_id,))
            if len(data) > cap_bytes or not self._db.value("SELECT 1 FROM messages WHERE id = ?", (message_id,)):
                return
            total = self.usage()[1] + len(data)
            if total > cap_bytes:
                for number, n_bytes in self._db.rows("SELECT number, n_bytes FROM traces ORDER BY number"):
                    self._db.run("DELETE FROM traces WHERE number = ?", (number,))
                    total -= n_bytes
                    if total <= cap_bytes:
                        break
            self._db.run(
                "INSERT INTO traces(message_id, n_bytes, data) VALUES (?, ?, ?)", (message_id, len(data), data)
            )

    def get(self, message_id: int) -> bytes | None:
        """The trace of a message, None if there is none."""
        data: bytes | None = self._db.value("SELECT data FROM traces WHERE message_id = ?", (message_id,))
        return data

    def lost(self, message_id: int) -> Lost:
        """What was deleted of an answer: its chat, or itself with what stood under it; "" if it is there."""
        rows = self._db.rows(
            "SELECT chats.deleted_s IS NOT NULL, messages.deleted_s IS NOT NULL FROM messages"
            " JOIN chats ON chats.id = messages.chat_id WHERE messages.id = ?",
            (message_id,),
        )
        chat, message = rows[0] if rows else (0, 1)
        return "chat" if chat else "message" if message else ""

    def latest(self) -> int | None:
        """The message whose trace was stored last, of those that are not deleted."""
        found: int | None = self._db.value(
            "SELECT message_id FROM traces WHERE message_id IN (SELECT id FROM messages WHERE deleted_s IS NULL)"
            " ORDER BY number DESC LIMIT 1"
        )
        return found

    def usage(self) -> tuple[int, int]:
        """(how many there are, bytes of all of them)"""
        count, n_bytes = self._db.rows("SELECT count(*), coalesce(sum(n_bytes), 0) FROM traces")[0]
        return count, n_bytes

    def clear(self) -> None:
        """Forget all, and give the space back to the disk."""
        self._db.run("DELETE FROM traces")
        with suppress(DiskFull, StorageFailed):  # then the space is used for what comes next
            self._db.run("VACUUM")
