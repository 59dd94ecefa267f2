"""The schema, as an ordered list of steps from an empty file to today.

A step is never edited once released; a change is a new step at the end, a fossil of the old schema in
tests/data, and a comment above the step that says why. `PRAGMA user_version` is the number of steps applied; a
file with more steps than this program knows is refused untouched.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from engine.errors import DatabaseTooNew
from engine.paths import free_name, make_private_folder, shown, storage_error, sync_folder, time_stamp
from engine.store.database import APPLICATION_ID, Database, damaged

KEEP_BACKUPS = 3
Migration = Callable[[Database], None]


def m001_chats_and_messages(db: Database) -> None:
    """Chats, and their messages as a tree.

    `parts`, `generation` and `settings` are JSON, because parts and sampling parameters will grow and are only
    ever read whole. `deleted_s` is when a row was deleted, for undo; `deleted_with` names the message whose deletion
    took this one along, `leaf_before_delete` the branch that was on screen then. AUTOINCREMENT: an id is never used
    twice, so an id held by a front end cannot come to mean another message. parent_id has no ON DELETE CASCADE:
    SQLite does that by recursion and fails on a chat of more than 1,000 messages.
    """
    db.run("""
        CREATE TABLE chats (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            title TEXT NOT NULL DEFAULT '',
            created_s REAL NOT NULL,
            updated_s REAL NOT NULL,
            active_leaf_id INTEGER,
            settings TEXT NOT NULL DEFAULT '{}',
            deleted_s REAL
        )""")
    db.run("""
        CREATE TABLE messages (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            chat_id INTEGER NOT NULL REFERENCES chats(id),
            parent_id INTEGER REFERENCES messages(id) DEFERRABLE INITIALLY DEFERRED,
            role TEXT NOT NULL,
            parts TEXT NOT NULL,
            status TEXT NOT NULL,
            created_s REAL NOT NULL,
            generation TEXT,
            indexed INTEGER NOT NULL DEFAULT 0,
            deleted_s REAL,
            deleted_with INTEGER,
            leaf_before_delete INTEGER
        )""")
    db.run("CREATE INDEX chats_by_update ON chats(updated_s DESC, id DESC) WHERE deleted_s IS NULL")
    # deleted_s is in it only so that SQLite takes it for a covering index: the shape of a chat without its texts
    db.run("CREATE INDEX messages_in_tree ON messages(chat_id, parent_id, role, id, deleted_s) WHERE deleted_s IS NULL")
    db.run("CREATE INDEX messages_by_parent ON messages(parent_id)")
    db.run("CREATE INDEX messages_streaming ON messages(id) WHERE status = 'streaming'")
    db.run("CREATE INDEX messages_deleted ON messages(deleted_with) WHERE deleted_s IS NOT NULL")
    # Contentless: the text is already in `messages`; what goes in is `search.index_form` of it. prefix: typing the
    # first letters of a word must not scan the vocabulary.
    db.run("""
        CREATE VIRTUAL TABLE message_index USING fts5(
            text, content='', tokenize='unicode61 remove_diacritics 2', prefix='1 2 3'
        )""")


def m002_pinned_messages(db: Database) -> None:
    """Messages that stay in the context. A column of its own, because it is set without touching the parts."""
    db.run("ALTER TABLE messages ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0")


def m003_traces(db: Database) -> None:
    """How answers came about, one compressed trace for a message. `number` is their age: a message that is written on
    gets a new one. The index lets their sizes be summed up without reading them."""
    db.run("""
        CREATE TABLE traces (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            message_id INTEGER NOT NULL UNIQUE REFERENCES messages(id) ON DELETE CASCADE,
            n_bytes INTEGER NOT NULL,
            data BLOB NOT NULL
        )""")
    db.run("CREATE INDEX trace_sizes ON traces(n_bytes)")


MIGRATIONS: tuple[Migration, ...] = (m001_chats_and_messages, m002_pinned_messages, m003_traces)
SCHEMA = len(MIGRATIONS)


def migrate(db: Database, migrations: Sequence[Migration] = MIGRATIONS) -> Path | None:
    """Brings a database to the newest schema, in one transaction, after a backup copy.

    Returns:
        The backup, or None if nothing had to be done or the file was empty.

    Raises:
        DatabaseTooNew: written by a newer program; the file is untouched.
        DatabaseDamaged: not a database of ours.
        StorageFailed, DiskFull: the file still has its old schema.
    """
    have = schema_of(db)
    if have > len(migrations):
        raise DatabaseTooNew(
            f"The chats in {shown(db.path)} were written by a newer Inglenook.",
            hint="Update Inglenook, or start with another home folder. The file was not changed.",
            details={"schema": have, "known_schema": len(migrations), "path": shown(db.path)},
        )
    if have == len(migrations):
        return None
    backup = _backup(db, have) if have else None
    with db.transaction():
        if not have:
            db.run(f"PRAGMA application_id = {APPLICATION_ID}")
            db.run("CREATE TABLE applied_migrations (name TEXT PRIMARY KEY, applied_s REAL NOT NULL)")
        for migration in migrations[have:]:
            migration(db)
            db.run("INSERT INTO applied_migrations VALUES (?, ?)", (migration.__name__, time.time()))
        db.run(f"PRAGMA user_version = {len(migrations)}")
    return backup


def schema_of(db: Database) -> int:
    """Number of steps applied, 0 for an empty database.

    Raises:
        DatabaseDamaged: the tables are not ours.
    """
    version = int(db.value("PRAGMA user_version") or 0)
    n_tables = int(db.value("SELECT count(*) FROM sqlite_master"))
    ours = db.value("PRAGMA application_id") == APPLICATION_ID
    if n_tables == 0 and version == 0:
        return 0
    if not ours or n_tables == 0 or version == 0:
        raise damaged(db.path, "it is not a database of Inglenook")
    return version


def backup_folder(database: Path) -> Path:
    return database.parent / "backups"


def _backup(db: Database, schema: int) -> Path:
    folder = backup_folder(db.path)
    make_private_folder(folder)
    target = free_name(folder / f"{db.path.stem}-schema{schema}-{time_stamp()}.db")
    unfinished = target.with_suffix(".part")
    try:
        db.backup_to(unfinished)
        os.replace(unfinished, target)  # noqa: PTH105
        sync_folder(folder)
    except OSError as error:
        raise storage_error(error, "A backup of the chats cannot be made") from error
    finally:
        with suppress(OSError):
            unfinished.unlink()
    old = sorted(folder.glob(f"{db.path.stem}-schema*.db"), key=lambda p: p.stat().st_mtime)
    for path in old[:-KEEP_BACKUPS]:
        with suppress(OSError):
            path.unlink()
    return target
