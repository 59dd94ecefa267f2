"""Questions about the tree that the messages of a chat form. Deleted messages are not part of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.errors import Gone
from engine.store.database import Database


def unknown(what: str, row_id: int | None) -> Gone:
    """The error for an id that does not exist, or is deleted."""
    field = "chat_id" if what == "chat" else "message_id"
    return Gone(f"This {what} was deleted, or was never there", details={"field": field, "id": row_id})


@dataclass
class Shape:
    """A chat without its texts.

    Attributes:
        parent_of: parent of each message.
        version_of: (version, n_versions) of each message.
    """

    parent_of: dict[int, int | None] = field(default_factory=dict)
    version_of: dict[int, tuple[int, int]] = field(default_factory=dict)

    def path_to(self, message_id: int | None) -> list[int]:
        """From the message up to its root."""
        path = []
        while message_id is not None:
            path.append(message_id)
            message_id = self.parent_of[message_id]
        return path


class Tree:
    """Reads only; what it says holds inside the caller's transaction."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def live_chat_of(self, message_id: int) -> int:
        """The chat of a message.

        Raises:
            Gone: no such message, or it is deleted.
        """
        chat_id = self._db.value("SELECT chat_id FROM messages WHERE id = ? AND deleted_s IS NULL", (message_id,))
        if chat_id is None:
            raise unknown("message", message_id)
        return int(chat_id)

    def versions(self, chat_id: int, parent_id: int | None, role: str) -> list[int]:
        """Messages of one role under one parent, oldest first."""
        rows = self._db.rows(
            "SELECT id FROM messages WHERE chat_id = ? AND parent_id IS ? AND role = ? AND deleted_s IS NULL"
            " ORDER BY id",
            (chat_id, parent_id, role),
        )
        return [row[0] for row in rows]

    def shape(self, chat_id: int) -> Shape:
        """Parents and versions of a whole chat at once."""
        shape = Shape()
        groups: dict[tuple[int | None, str], list[int]] = {}
        rows = self._db.rows(
            "SELECT id, parent_id, role FROM messages WHERE chat_id = ? AND deleted_s IS NULL", (chat_id,)
        )
        for message_id, parent_id, role in sorted(rows):
            shape.parent_of[message_id] = parent_id
            groups.setdefault((parent_id, role), []).append(message_id)
        for same in groups.values():
            n_versions = len(same)
            for version, message_id in enumerate(same, 1):
                shape.version_of[message_id] = (version, n_versions)
        return shape

    def all_below(self, message_id: int) -> set[int]:
        """The message and all under it."""
        rows = self._db.rows(
            """WITH RECURSIVE down(id) AS (
                SELECT ? UNION ALL
                SELECT m.id FROM down JOIN messages AS m ON m.parent_id = down.id WHERE m.deleted_s IS NULL
            ) SELECT id FROM down""",
            (message_id,),
        )
        return {row[0] for row in rows}

    def leaf_below(self, message_id: int) -> int:
        """The most recent leaf at or under a message."""
        # the newest message has nothing below it: children are always newer than their parent
        return max(self.all_below(message_id))
