"""One SQLite connection, its transactions, and its errors sorted into what the world did and bugs."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from engine.errors import DatabaseDamaged, DiskFull, EngineError, StorageFailed
from engine.paths import shown

#: marks our files in SQLite's header ("Ingl"), so that another program's database is not taken for ours
APPLICATION_ID = 0x496E676C
BUSY_TIMEOUT_S = 5.0
_NEARLY_FULL_BYTES = 1 << 20
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
# what the world can do to a file; all other codes (SQL error, constraint, misuse) are bugs of ours
_WORLD = {
    sqlite3.SQLITE_PERM: "access was refused",
    sqlite3.SQLITE_BUSY: "another program is using it",
    sqlite3.SQLITE_LOCKED: "another program is using it",
    sqlite3.SQLITE_READONLY: "it is read-only",
    sqlite3.SQLITE_IOERR: "reading or writing failed",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened",
    sqlite3.SQLITE_PROTOCOL: "its lock cannot be had",
    sqlite3.SQLITE_NOLFS: "it is too large for this file system",
    sqlite3.SQLITE_AUTH: "access was refused",
}
Row = tuple[Any, ...]


def known_error(error: sqlite3.Error, path: Path) -> EngineError | None:
    """The known error for one of SQLite's, or None if it is a bug."""
    code: int = getattr(error, "sqlite_errorcode", None) or 0
    primary = code & 0xFF
    details = {"sqlite": getattr(error, "sqlite_errorname", ""), "reason": str(error), "path": shown(path)}
    if primary in _DAMAGED:
        return damaged(path, "its content makes no sense", details)
    if primary == sqlite3.SQLITE_FULL or (primary == sqlite3.SQLITE_IOERR and _nearly_full(path)):
        return DiskFull(
            "The chat could not be saved: the disk is full.",
            hint="Free some space and try again; nothing that was saved before is lost.",
            details=details,
        )
    if primary in _WORLD:
        return StorageFailed(
            f"The chat database {shown(path)} cannot be used: {_WORLD[primary]}.",
            hint="Check that the folder can be written to and that no other program has the file open.",
            details=details,
        )
    return None


def damaged(path: Path, why: str, details: dict[str, Any] | None = None) -> DatabaseDamaged:
    return DatabaseDamaged(
        f"The chat database {shown(path)} is damaged: {why}.",
        hint="It can be set aside; what is still readable is copied into a new one, and the old file is kept.",
        details=details or {"path": shown(path)},
    )


@contextmanager
def known_errors(path: Path) -> Iterator[None]:
    """Turns SQLite's errors about the world into `EngineError`s; bugs pass as they are.

    Raises:
        DiskFull, StorageFailed, DatabaseDamaged
    """
    try:
        yield
    except sqlite3.Error as error:
        if known := known_error(error, path):
            raise known from error
        raise


class Database:
    """A connection for one thread: the one that made it.

    Every commit waits until the disk has it (WAL with synchronous=FULL), so what was acknowledged survives a
    power cut, not only a killed process. Reads see the last commit.
    """

    def __init__(self, path: Path) -> None:
        """Opens an existing database or makes an empty one.

        Raises:
            DatabaseDamaged, StorageFailed, DiskFull
        """
        self.path = path
        with known_errors(path):
            # isolation_level=None: no hidden BEGIN, transactions are where the code says
            self._connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
            try:
                self._prepare()
            except BaseException:
                self._connection.close()
                raise

    def _prepare(self) -> None:
        if not self._connection.execute("PRAGMA page_count").fetchone()[0]:
            # of a new file only: said of another one it writes into it, and that may be a newer program's
            self._connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        for pragma in (
            "journal_mode = WAL",
            "synchronous = FULL",
            "fullfsync = ON",  # macOS: fsync alone leaves data in the drive's cache
            "checkpoint_fullfsync = ON",
            "foreign_keys = ON",
            "cell_size_check = ON",
            "secure_delete = ON",  # a purged chat is really gone
            "journal_size_limit = 67108864",
            "cache_size = -16384",
        ):
            self._connection.execute(f"PRAGMA {pragma}")

    def close(self) -> None:
        """Closes the connection; what is in the WAL goes into the main file. Never raises for a full disk."""
        with suppress(sqlite3.OperationalError):
            self._connection.close()

    def run(self, sql: str, values: Iterable[Any] = ()) -> sqlite3.Cursor:
        """Executes a statement. Raises as `known_errors` does."""
        with known_errors(self.path):
            return self._connection.execute(sql, tuple(values))

    def run_many(self, sql: str, rows: Iterable[Iterable[Any]]) -> None:
        with known_errors(self.path):
            self._connection.executemany(sql, (tuple(row) for row in rows))

    def rows(self, sql: str, values: Iterable[Any] = ()) -> list[Row]:
        """All rows of a query. Raises as `known_errors` does."""
        with known_errors(self.path):
            try:
                return self._connection.execute(sql, tuple(values)).fetchall()
            except sqlite3.OperationalError as error:
                if hasattr(error, "sqlite_errorcode"):
                    raise
                # Not from SQLite but from Python: broken bytes in a text, from a damaged page. They must not make
                # a whole chat unreadable. From here on every text is decoded leniently, which is slower.
                self._connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
                return self._connection.execute(sql, tuple(values)).fetchall()

    def row(self, sql: str, values: Iterable[Any] = ()) -> Row | None:
        """First row of a query."""
        return next(iter(self.rows(sql, values)), None)

    def value(self, sql: str, values: Iterable[Any] = ()) -> Any:
        """First column of the first row, None if there is none."""
        found = self.row(sql, values)
        return found[0] if found else None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing; durable when the block has ended without an exception.

        Takes the write lock at once, so that what is read inside cannot change before it is written.

        Raises:
            StorageFailed, DiskFull, DatabaseDamaged: nothing was changed.
        """
        with known_errors(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                # SQLite itself has already rolled back after some errors (full disk)
                if self._connection.in_transaction:
                    with suppress(sqlite3.Error):
                        self._connection.execute("ROLLBACK")
                raise

    def backup_to(self, target: Path) -> None:
        """Copies the whole database, including what is only in the WAL, to a new file.

        Raises:
            StorageFailed, DiskFull, DatabaseDamaged
        """
        with known_errors(target):
            copy = sqlite3.connect(target)
            try:
                self._connection.backup(copy)
                # as one file, without -wal and -shm beside it
                copy.execute("PRAGMA journal_mode = DELETE")
            finally:
                copy.close()

    def shrink_some(self, most_bytes: int, *, at_once_bytes: int) -> bool:
        """Give up to `most_bytes` that are free in the file back to the disk; whether there may be more.

        A file that was made before this could be done in pieces is written anew instead, if what is in it is at most
        `at_once_bytes`.

        Raises:
            StorageFailed, DiskFull, DatabaseDamaged
        """
        page, free = self.value("PRAGMA page_size"), self.value("PRAGMA freelist_count")
        if not free:
            self.rows("PRAGMA wal_checkpoint(TRUNCATE)")  # only now the file gets shorter
            return False
        if self.value("PRAGMA auto_vacuum") == 2:
            with known_errors(self.path):  # as a script: else Python stops after one page
                self._connection.executescript(f"PRAGMA incremental_vacuum({max(1, most_bytes // page)})")
            return bool(self.value("PRAGMA freelist_count") < free)
        if (self.value("PRAGMA page_count") - free) * page <= at_once_bytes:
            self.run("PRAGMA auto_vacuum = INCREMENTAL")
            self.run("VACUUM")
            self.rows("PRAGMA wal_checkpoint(TRUNCATE)")
        return False

    def is_sound(self) -> bool:
        """SQLite's own quick check of all pages; reads the whole file."""
        try:
            return bool(self.value("PRAGMA quick_check(1)") == "ok")
        except DatabaseDamaged:
            return False


def _nearly_full(path: Path) -> bool:
    with suppress(OSError):
        return shutil.disk_usage(path.parent).free < _NEARLY_FULL_BYTES
    return False
