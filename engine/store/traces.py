"""Traces of answers, compressed, beside their messages. The oldest go where there are too many of them."""

from __future__ import annotations

from contextlib import suppress

from engine.errors import DiskFull, StorageFailed
from engine.store.database import Database
from engine.trace import Lost

#: what is deleted in one piece
_PIECE_BYTES, _MOST_ROWS = 4 << 20, 500
#: a file of before, that cannot give back in pieces, is written anew while nothing else is, where it is no larger
_AT_ONCE_BYTES = 64 << 20


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

    # ------------------------------------------------------------------ all of them

    # Both work in pieces of a few MiB, as much as the disk takes in a moment: what was deleted is overwritten, and in
    # between an answer that is being written has to get to the disk.

    def clear_some(self, last: int | None = None) -> int | None:
        """Forget some of the traces up to number `last`, the oldest first.

        Args:
            last: as the call before gave it; None at first: those that are there now.

        Returns:
            `last`, None where all of them are gone.
        """
        if last is None:
            last = self._db.value("SELECT max(number) FROM traces")
        n_bytes, upto = 0, None
        for number, size in self._db.rows(
            f"SELECT number, n_bytes FROM traces WHERE number <= ? ORDER BY number LIMIT {_MOST_ROWS}", (last,)
        ):
            if upto is not None and n_bytes + size > _PIECE_BYTES:
                break
            n_bytes, upto = n_bytes + size, number
        if upto is None:
            return None
        self._db.run("DELETE FROM traces WHERE number <= ?", (upto,))
        return last if upto != last else None

    def shrink_some(self, *, busy: bool) -> bool:
        """Give some of the space back to the disk that is free in the file. busy: something is being written now.

        Returns:
            Whether there may be more of it.
        """
        with suppress(DiskFull, StorageFailed):  # then the space is used for what comes next
            return self._db.shrink_some(_PIECE_BYTES, at_once_bytes=0 if busy else _AT_ONCE_BYTES)
        return False
