"""Chats and messages on disk.

Messages of a chat form a tree; the branch on screen is the path from the root to the chat's active leaf. Nothing is
overwritten by an edit, and what is deleted can be restored until `purge_deleted`.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from engine.message import Chat, ChatSettings, GenerationRecord, Message, Part, Role, Status
from engine.store import records
from engine.store.database import Database, Row
from engine.store.migrations import migrate
from engine.store.recovery import create_if_missing, recover, refuse_unusable, set_aside
from engine.store.search import SearchHit, SearchIndex
from engine.store.traces import TraceStore
from engine.store.tree import Tree, unknown

__all__ = ["ChatStore", "SearchHit", "recover", "set_aside", "title_from"]

TITLE_CHARS = 60
_CHAT = """
    SELECT id, title, created_s, updated_s, active_leaf_id, settings,
        (SELECT count(*) FROM messages AS m WHERE m.chat_id = chats.id AND m.deleted_s IS NULL)
    FROM chats"""
_MESSAGE = "SELECT id, chat_id, parent_id, role, parts, status, created_s, generation, pinned FROM messages"


def title_from(text: str) -> str:
    """A title for a chat: the first words of its first message, one line, at most `TITLE_CHARS` characters."""
    line = " ".join(records.clean_text(text[: 20 * TITLE_CHARS]).replace("\0", " ").split()).lstrip("#>*- ")
    if len(line) <= TITLE_CHARS:
        return line
    cut = line[: TITLE_CHARS - 1]
    space = cut.rfind(" ")
    return (cut[:space] if space > TITLE_CHARS // 2 else cut).rstrip(" ,;:.") + "…"


class ChatStore:
    """All chats of a profile, and `traces` of how their answers came about.

    Every method waits for the disk; call all of them from the thread that made it.

    A change is durable when its method returns. Every method may raise StorageFailed, DiskFull or DatabaseDamaged
    (then nothing was changed) and InvalidRequest for an id that does not exist; a store stays usable after an error.
    """

    def __init__(self, path: Path) -> None:
        """Opens the database; makes it or brings it to today's schema (after a backup) where needed.

        Raises:
            DatabaseTooNew: written by a newer Inglenook; untouched.
            DatabaseDamaged: no sound database; `set_aside` moves it away.
            StorageFailed, DiskFull
        """
        self.path = path
        refuse_unusable(path)
        create_if_missing(path)
        self._db = Database(path)
        try:
            #: copy of the database before its schema was changed, None if it was not
            self.backup = migrate(self._db)
        except BaseException:
            self._db.close()
            raise
        self._index = SearchIndex(self._db)
        self.traces = TraceStore(self._db)
        self._tree = Tree(self._db)

    def close(self) -> None:
        self._db.close()

    # ------------------------------------------------------------------ chats

    def create_chat(self, title: str = "", settings: ChatSettings = ChatSettings()) -> Chat:  # noqa: B008
        now = time.time()
        with self._db.transaction():
            cursor = self._db.run(
                "INSERT INTO chats(title, created_s, updated_s, settings) VALUES (?, ?, ?, ?)",
                (_one_line(title), now, now, records.dump(settings)),
            )
            return self.chat(cursor.lastrowid or 0)

    def chat(self, chat_id: int) -> Chat:
        """Raises InvalidRequest for a deleted chat too."""
        row = self._db.row(f"{_CHAT} WHERE id = ? AND deleted_s IS NULL", (chat_id,))
        if row is None:
            raise unknown("chat", chat_id)
        return _chat(row)

    def chats(self, limit: int | None = None, offset: int = 0) -> list[Chat]:
        """Chats that are not deleted, most lately changed first."""
        rows = self._db.rows(
            f"{_CHAT} WHERE deleted_s IS NULL ORDER BY updated_s DESC, id DESC LIMIT ? OFFSET ?",
            (-1 if limit is None else limit, offset),
        )
        return [_chat(row) for row in rows]

    def rename_chat(self, chat_id: int, title: str) -> Chat:
        """An empty title goes back to the first words of the first user message."""
        with self._db.transaction():
            title = _one_line(title) or self._own_title(chat_id)
            return self._change_chat(chat_id, "title = ?", title)

    def set_chat_settings(self, chat_id: int, settings: ChatSettings) -> Chat:
        with self._db.transaction():
            return self._change_chat(chat_id, "settings = ?", records.dump(settings))

    def delete_chat(self, chat_id: int) -> None:
        """Hides it until `restore_chat` or `purge_deleted`."""
        with self._db.transaction():
            self._change_chat(chat_id, "deleted_s = ?", time.time(), read_back=False)

    def restore_chat(self, chat_id: int) -> Chat:
        with self._db.transaction():
            self._db.run("UPDATE chats SET deleted_s = NULL WHERE id = ?", (chat_id,))
            return self.chat(chat_id)

    def purge_deleted(self, older_than_s: float) -> int:
        """Removes for good what was deleted more than that many seconds ago; returns the number of messages."""
        before = time.time() - older_than_s
        gone = (
            "FROM messages WHERE deleted_s <= :before OR chat_id IN (SELECT id FROM chats WHERE deleted_s <= :before)"
        )
        with self._db.transaction():
            rows = self._db.rows(f"SELECT id, parts, indexed {gone}".replace(":before", "?"), (before, before))
            for message_id, parts, indexed in rows:
                if indexed:
                    self._index.remove(message_id, records.visible_text(records.load_parts(parts)))
            self._db.run(f"DELETE {gone}".replace(":before", "?"), (before, before))
            self._db.run("DELETE FROM chats WHERE deleted_s <= ?", (before,))
        return len(rows)

    # ------------------------------------------------------------------ messages

    def add_message(
        self,
        chat_id: int,
        parent_id: int | None,
        role: Role,
        parts: tuple[Part, ...],
        *,
        status: Status = "complete",
        generation: GenerationRecord | None = None,
        make_active: bool = True,
        pinned: bool = False,
    ) -> Message:
        """Adds a message below `parent_id` (None: at the top); on disk when it returns.

        The first user message gives a chat without a title its title.

        Raises:
            InvalidRequest: no such chat, or the parent is deleted or of another chat.
        """
        now = time.time()
        parts = tuple(parts)
        with self._db.transaction():
            chat = self.chat(chat_id)
            if parent_id is not None and self._tree.live_chat_of(parent_id) != chat_id:
                raise unknown("message", parent_id)
            cursor = self._db.run(
                "INSERT INTO messages(chat_id, parent_id, role, parts, status, created_s, generation, pinned)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (chat_id, parent_id, role, records.dump(parts), status, now, _dump_or_none(generation), pinned),
            )
            message_id = cursor.lastrowid or 0
            text = records.visible_text(parts)
            if status != "streaming":
                self._index.add(message_id, text)
            title = chat.title or (title_from(text) if role == "user" else "")
            leaf = message_id if make_active else chat.active_leaf_id
            self._db.run(
                "UPDATE chats SET title = ?, updated_s = ?, active_leaf_id = ? WHERE id = ?",
                (title, now, leaf, chat_id),
            )
            return self.message(message_id)

    def update_message(
        self,
        message_id: int,
        *,
        parts: tuple[Part, ...] | None = None,
        status: Status | None = None,
        generation: GenerationRecord | None = None,
    ) -> Message:
        """Replaces what is given and leaves the rest. Works on a deleted one too: its answer may still be coming."""
        with self._db.transaction():
            row = self._db.row(
                "SELECT parts, status, generation, indexed, chat_id FROM messages WHERE id = ?", (message_id,)
            )
            if row is None:
                raise unknown("message", message_id)
            old_parts, old_status, old_generation, indexed, chat_id = row
            new_parts = old_parts if parts is None else records.dump(tuple(parts))
            new_status = status or old_status
            if indexed and (new_parts != old_parts or new_status == "streaming"):
                self._index.remove(message_id, records.visible_text(records.load_parts(old_parts)))
                indexed = False
            new_generation = old_generation if generation is None else records.dump(generation)
            self._db.run(
                "UPDATE messages SET parts = ?, status = ?, generation = ? WHERE id = ?",
                (new_parts, new_status, new_generation, message_id),
            )
            if not indexed and new_status != "streaming":
                # while it streams it is not searched: that would write the index anew every second
                self._index.add(message_id, records.visible_text(records.load_parts(new_parts)))
            self._db.run("UPDATE chats SET updated_s = ? WHERE id = ?", (time.time(), chat_id))
            return self.message(message_id)

    def pin_message(self, message_id: int, on: bool) -> Message:
        """Marks a message as one that stays in the context, or takes the mark away. The chat keeps its place."""
        with self._db.transaction():
            self._tree.live_chat_of(message_id)
            self._db.run("UPDATE messages SET pinned = ? WHERE id = ?", (on, message_id))
            return self.message(message_id)

    def message(self, message_id: int) -> Message:
        """A message, deleted or not."""
        row = self._db.row(f"{_MESSAGE} WHERE id = ?", (message_id,))
        if row is None:
            raise unknown("message", message_id)
        same = self._tree.versions(row[1], row[2], row[3])
        version = same.index(message_id) + 1 if message_id in same else 1
        return _message(row, version, max(len(same), 1))

    def branch(self, chat_id: int, leaf_id: int | None = None) -> list[Message]:
        """The messages from the root to a leaf, the active one if none is given."""
        if leaf_id is None:
            leaf_id = self.chat(chat_id).active_leaf_id
            if leaf_id is None:
                return []
        elif self._tree.live_chat_of(leaf_id) != chat_id:
            raise unknown("message", leaf_id)
        shape = self._tree.shape(chat_id)
        ids = json.dumps(shape.path_to(leaf_id))
        # by id is from the root down: a parent is always older than its children
        rows = self._db.rows(f"{_MESSAGE} WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id", (ids,))
        return [_message(row, *shape.version_of[row[0]]) for row in rows]

    def all_messages(self, chat_id: int) -> list[Message]:
        """Every message of a chat that is not deleted, all branches, oldest first: for export."""
        rows = self._db.rows(f"{_MESSAGE} WHERE chat_id = ? AND deleted_s IS NULL ORDER BY id", (chat_id,))
        shape = self._tree.shape(chat_id)
        return [_message(row, *shape.version_of[row[0]]) for row in rows]

    def siblings(self, message_id: int) -> list[int]:
        """Versions of a message in order of age: those of the same role under the same parent, itself included."""
        row = self._db.row("SELECT chat_id, parent_id, role FROM messages WHERE id = ?", (message_id,))
        if row is None:
            raise unknown("message", message_id)
        return self._tree.versions(*row)

    def set_active(self, chat_id: int, message_id: int) -> Chat:
        """Shows the branch through a message, down to its most recent leaf."""
        with self._db.transaction():
            if self._tree.live_chat_of(message_id) != chat_id:
                raise unknown("message", message_id)
            return self._change_chat(chat_id, "active_leaf_id = ?", self._tree.leaf_below(message_id))

    def delete_message(self, message_id: int) -> Chat:
        """Hides a message and all below it.

        If that holds the active leaf, the chat shows the latest other version, else ends at the parent.
        """
        with self._db.transaction():
            chat_id = self._tree.live_chat_of(message_id)
            chat = self.chat(chat_id)
            below = self._tree.all_below(message_id)
            self._db.run_many(
                "UPDATE messages SET deleted_s = ?, deleted_with = ? WHERE id = ?",
                [(time.time(), message_id, each) for each in below],
            )
            leaf = chat.active_leaf_id
            self._db.run("UPDATE messages SET leaf_before_delete = ? WHERE id = ?", (leaf, message_id))
            if leaf in below:
                chat_, parent_id, role = self._db.rows(
                    "SELECT chat_id, parent_id, role FROM messages WHERE id = ?", (message_id,)
                )[0]
                others = self._tree.versions(chat_, parent_id, role)
                leaf = self._tree.leaf_below(others[-1]) if others else parent_id
            return self._change_chat(chat_id, "active_leaf_id = ?", leaf)

    def restore_message(self, message_id: int) -> Chat:
        """Undoes `delete_message`, the branch on screen included.

        Raises:
            InvalidRequest: it was not deleted by itself, or a message above it is still deleted.
        """
        with self._db.transaction():
            row = self._db.row(
                "SELECT chat_id, parent_id, leaf_before_delete FROM messages WHERE id = ? AND deleted_with = id",
                (message_id,),
            )
            if row is None:
                raise unknown("message", message_id)
            chat_id, parent_id, leaf = row
            if parent_id is not None:
                self._tree.live_chat_of(parent_id)
            self._db.run(
                "UPDATE messages SET deleted_s = NULL, deleted_with = NULL WHERE deleted_with = ?", (message_id,)
            )
            alive = self._db.value("SELECT id FROM messages WHERE id = ? AND deleted_s IS NULL", (leaf,))
            return self._change_chat(chat_id, "active_leaf_id = ?", alive or self._tree.leaf_below(message_id))

    def mark_interrupted(self) -> int:
        """At start: answers that were being written when the program ended become "interrupted"."""
        ids = [row[0] for row in self._db.rows("SELECT id FROM messages WHERE status = 'streaming'")]
        if ids:
            with self._db.transaction():
                for message_id in ids:
                    parts = self._db.value("SELECT parts FROM messages WHERE id = ?", (message_id,))
                    self._db.run("UPDATE messages SET status = 'interrupted' WHERE id = ?", (message_id,))
                    self._index.add(message_id, records.visible_text(records.load_parts(parts)))
        return len(ids)

    def search(self, query: str, limit: int = 50) -> list[SearchHit]:
        """Chats whose messages or title hold all words; see `SearchIndex.search`."""
        return self._index.search(query, limit)

    def is_sound(self) -> bool:
        """Reads the whole file and checks its structure: about 1.5 s per GB."""
        return self._db.is_sound()

    # ------------------------------------------------------------------ helpers

    def _change_chat(self, chat_id: int, assignment: str, value: Any, *, read_back: bool = True) -> Chat:
        chat = self.chat(chat_id)
        self._db.run(f"UPDATE chats SET {assignment} WHERE id = ?", (value, chat_id))
        return self.chat(chat_id) if read_back else chat

    def _own_title(self, chat_id: int) -> str:
        parts = self._db.value(
            "SELECT parts FROM messages WHERE chat_id = ? AND role = 'user' AND deleted_s IS NULL ORDER BY id LIMIT 1",
            (chat_id,),
        )
        return title_from(records.visible_text(records.load_parts(parts))) if parts else ""


def _chat(row: Row) -> Chat:
    return Chat(
        id=row[0],
        title=row[1],
        created_s=row[2],
        updated_s=row[3],
        active_leaf_id=row[4],
        settings=records.load_settings(row[5]),
        n_messages=row[6],
    )


def _message(row: Row, version: int, n_versions: int) -> Message:
    return Message(
        id=row[0],
        chat_id=row[1],
        parent_id=row[2],
        role=row[3],
        parts=records.load_parts(row[4]),
        status=row[5],
        created_s=row[6],
        generation=records.load_generation(row[7]),
        pinned=bool(row[8]),
        version=version,
        n_versions=n_versions,
    )


def _dump_or_none(generation: GenerationRecord | None) -> str | None:
    return None if generation is None else records.dump(generation)


def _one_line(title: str) -> str:
    return " ".join(records.clean_text(title).replace("\0", " ").split())
