"""Making a new database, refusing one that is none, and saving what can be saved of a damaged one."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec

from engine.errors import DatabaseDamaged, StorageFailed
from engine.paths import free_name, make_private_folder, shown, storage_error, sync_folder, time_stamp
from engine.store.database import Database, Row, damaged
from engine.store.migrations import migrate
from engine.store.records import load_parts, visible_text
from engine.store.search import SearchIndex

_MAGIC = b"SQLite format 3\0"
_COMPANIONS = ("-wal", "-shm", "-journal")


def refuse_unusable(path: Path) -> None:
    """Looks at the first bytes, so that a file that is no database is not even opened by SQLite.

    An empty file is damage too: `create_if_missing` never leaves one behind.

    Raises:
        DatabaseDamaged, StorageFailed
    """
    try:
        with path.open("rb") as file:
            head = file.read(len(_MAGIC))
    except FileNotFoundError:
        return
    except OSError as error:
        raise storage_error(error, f"The chat database {shown(path)} cannot be read") from error
    if not head:
        raise damaged(path, "it is empty")
    if not head.strip(b"\0"):
        raise damaged(path, "it holds only zero bytes")
    if head != _MAGIC:
        raise damaged(path, "it is not a database")


def create_if_missing(path: Path) -> None:
    """Makes a new database under another name and gives it its name when it is whole.

    A crash at any moment then leaves no file or a sound one.

    Raises:
        StorageFailed, DiskFull
    """
    if path.exists():
        return
    make_private_folder(path.parent)
    if any(_companion(path, suffix).exists() for suffix in _COMPANIONS):
        # a WAL whose database is gone must not be played into the new one
        set_aside(path)
    _build(path, lambda db: None)


def _build(path: Path, fill: Callable[[Database], None]) -> None:
    unfinished = path.with_name(f"{path.name}.new-{os.getpid()}")
    with suppress(OSError):
        unfinished.unlink()
    try:
        db = Database(unfinished)
        try:
            migrate(db)
            fill(db)
            # one file again, without a WAL that would have to be renamed with it
            db.run("PRAGMA journal_mode = DELETE")
        finally:
            db.close()
        _name_without_replacing(unfinished, path)
        sync_folder(path.parent)
    except OSError as error:
        raise storage_error(error, f"The chat database {shown(path)} cannot be made") from error
    finally:
        for leftover in (unfinished, *(_companion(unfinished, suffix) for suffix in _COMPANIONS)):
            with suppress(OSError):
                leftover.unlink()


def set_aside(path: Path) -> Path:
    """Moves a database with its WAL into a new folder `damaged-<time>` beside it; returns the folder.

    No connection to it may be open.

    Raises:
        StorageFailed, DiskFull
    """
    folder = free_name(path.parent / f"damaged-{time_stamp()}")
    make_private_folder(folder)
    moved = False
    try:
        # companions first: a database without its WAL is sound, a WAL without its database is not
        for file in (*(_companion(path, suffix) for suffix in _COMPANIONS), path):
            if file.exists():
                os.replace(file, folder / file.name)  # noqa: PTH105
                moved = True
        sync_folder(path.parent)
    except OSError as error:
        raise storage_error(error, f"The damaged database {shown(path)} cannot be moved away") from error
    if not moved:
        folder.rmdir()
        raise StorageFailed(f"There is no database {shown(path)} to set aside.")
    return folder


class Recovered(msgspec.Struct, frozen=True):
    """What `recover` could save. complete: nothing was unreadable, as far as can be told."""

    n_chats: int = 0
    n_messages: int = 0
    complete: bool = True


#: failed reads after which recovery stops looking: the rest is gone
_MAX_FAILURES = 5000
#: a header that claims more is itself damaged
_MAX_PADDED_BYTES = 1 << 34
_CHAT_COLUMNS = ("id", "title", "created_s", "updated_s", "active_leaf_id", "settings", "deleted_s")
_MESSAGE_COLUMNS = (
    "id",
    "chat_id",
    "parent_id",
    "role",
    "parts",
    "status",
    "created_s",
    "generation",
    "deleted_s",
    "deleted_with",
    "leaf_before_delete",
    "pinned",
)
_ROLES = {"system", "user", "assistant", "tool"}
RECOVERED_TITLE = "Recovered chat"


def recover(folder: Path, path: Path) -> Recovered:
    """Copies what is readable of the database in `folder` (from `set_aside`) into a new one at `path`.

    The files in `folder` are not changed. A message whose parent is lost hangs below the one before it; messages whose
    chat is lost get a chat named "Recovered chat". `path` exists afterwards, also if nothing could be saved.

    Raises:
        StorageFailed, DiskFull
    """
    if path.exists():
        raise StorageFailed(f"{shown(path)} exists already; nothing was recovered.")
    result = Recovered(complete=False)

    def fill(db: Database) -> None:
        nonlocal result
        # a copy, because opening replays the WAL into the file
        with tempfile.TemporaryDirectory(prefix="recover-", dir=path.parent, ignore_cleanup_errors=True) as work:
            for suffix in ("", "-wal"):
                source = _companion(folder / path.name, suffix)
                if source.exists():
                    shutil.copyfile(source, _companion(Path(work) / path.name, suffix))
            _pad(Path(work) / path.name)
            try:
                refuse_unusable(Path(work) / path.name)
                with closing(Database(Path(work) / path.name)) as old:
                    result = _copy(old, db)
            except DatabaseDamaged:
                pass  # not even its first page can be read

    _build(path, fill)
    return result


def _pad(path: Path) -> None:
    """Lengthens a cut file to the size its header names: SQLite reads nothing of a shorter one."""
    with path.open("r+b") as file:
        head = file.read(100)
        # offsets 16 and 28 of the header: page size (1 means 65,536) and number of pages
        page_bytes = int.from_bytes(head[16:18], "big")
        size = int.from_bytes(head[28:32], "big") * (65536 if page_bytes == 1 else page_bytes)
        if file.seek(0, os.SEEK_END) < size < _MAX_PADDED_BYTES:
            file.truncate(size)


def _copy(old: Database, db: Database) -> Recovered:
    failures: list[int] = []
    chats = {row["id"]: row for row in _readable(old, "chats", _CHAT_COLUMNS, failures) if _is_chat(row)}
    messages = sorted(
        (row for row in _readable(old, "messages", _MESSAGE_COLUMNS, failures) if _is_message(row)),
        key=lambda row: int(row["id"]),
    )
    last_of_chat: dict[int, int] = {}
    seen: set[int] = set()
    with db.transaction():
        for row in messages:
            chat_id = row["chat_id"]
            if chat_id not in chats:
                times = {"created_s": row["created_s"], "updated_s": row["created_s"]}
                chats[chat_id] = {"id": chat_id, "title": RECOVERED_TITLE, **times}
                failures.append(chat_id)
            if row["parent_id"] is not None and row["parent_id"] not in seen:
                row["parent_id"] = last_of_chat.get(chat_id)
            seen.add(row["id"])
            if row.get("deleted_s") is None:
                last_of_chat[chat_id] = row["id"]
        for chat in chats.values():
            if chat.get("active_leaf_id") not in seen:
                chat["active_leaf_id"] = last_of_chat.get(chat["id"])
            _insert(db, "chats", _CHAT_COLUMNS, chat, {"settings": "{}"})
        index = SearchIndex(db)
        for row in messages:
            _insert(db, "messages", _MESSAGE_COLUMNS, row, {"pinned": 0})
            if row["status"] != "streaming":
                index.add(row["id"], visible_text(load_parts(row["parts"])))
    return Recovered(len(chats), len(messages), not failures)


def _readable(old: Database, table: str, wanted: tuple[str, ...], failures: list[int]) -> Iterator[dict[str, Any]]:
    """Rows of a damaged table: ranges of ids that fail are halved until single rows are left."""
    try:
        have = {row[1] for row in old.rows(f"PRAGMA table_info({table})")}
    except DatabaseDamaged:
        have = set()
    columns = [name for name in wanted if name in have]
    if "id" not in columns:
        failures.append(0)
        return
    ranges = [(1, _highest_id(old, table))]
    while ranges and len(failures) < _MAX_FAILURES:
        low, high = ranges.pop()
        try:
            rows: list[Row] = old.rows(
                f"SELECT {', '.join(columns)} FROM {table} NOT INDEXED WHERE id BETWEEN ? AND ?", (low, high)
            )
        except DatabaseDamaged:
            if low == high:
                failures.append(low)
            else:
                middle = (low + high) // 2
                ranges += [(middle + 1, high), (low, middle)]
            continue
        for row in rows:
            yield dict(zip(columns, row, strict=True))


def _highest_id(old: Database, table: str) -> int:
    for sql in (f"SELECT seq FROM sqlite_sequence WHERE name = '{table}'", f"SELECT max(id) FROM {table}"):
        try:
            if isinstance(value := old.value(sql), int):
                return value
        except DatabaseDamaged:
            continue
    return 1 << 24  # an empty table, or one whose end is gone


def _is_chat(row: dict[str, Any]) -> bool:
    numbers = (row.get("created_s"), row.get("updated_s"))
    return isinstance(row.get("title"), str) and all(isinstance(n, int | float) for n in numbers)


def _is_message(row: dict[str, Any]) -> bool:
    return (
        row.get("role") in _ROLES
        and isinstance(row.get("chat_id"), int)
        and all(isinstance(row.get(name), str) for name in ("parts", "status"))
        and isinstance(row.get("created_s"), int | float)
    )


def _insert(db: Database, table: str, columns: tuple[str, ...], row: dict[str, Any], empty: dict[str, Any]) -> None:
    values = [row[name] if row.get(name) is not None else empty.get(name) for name in columns]
    db.run(f"INSERT INTO {table}({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})", values)


def _companion(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _name_without_replacing(source: Path, target: Path) -> None:
    """Renames, but never over a file that another program has made meanwhile."""
    try:
        os.link(source, target)
    except FileExistsError:
        pass
    except (OSError, NotImplementedError, AttributeError):  # no hard links here (FAT)
        if not target.exists():
            source.rename(target)
