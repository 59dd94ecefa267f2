"""What is known of model files beyond their contents: where they came from, their hashes, when they were used.

Kept in the data folder (unlike the index it cannot be made again). Windows and commands of one profile may run at the
same time: each save takes the file as it is then and changes only its own entries.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from engine import log
from engine.models.library_index import FileStamp
from engine.newer import is_newer
from engine.paths import atomic_write, free_name, time_stamp

SCHEMA = 1
_log = log.get("library")


class FileRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of one file.

    Attributes:
        size_bytes, mtime_ns: the file that `sha256` was computed of; another file under this name has no hash yet.
        sha256: measured; "" if it was never hashed.
        expected: the hash that its origin gave; "" if there is none to compare with.
        repo, revision: where it was downloaded from.
        own: made by this program (downloaded or copied), so it may be moved to the trash wherever it is.
    """

    size_bytes: int
    mtime_ns: int = 0
    sha256: str = ""
    expected: str = ""
    repo: str = ""
    revision: str = ""
    licence: str = ""
    own: bool = False


class _Stored(msgspec.Struct):
    schema: int = SCHEMA
    files: dict[str, FileRecord] = {}
    #: paths of files that were imported where they are
    imported: list[str] = []
    #: path -> time of the last load, in seconds since 1970
    used: dict[str, float] = {}


class LibraryRecords:
    """The records of a profile. Safe from any thread; every change is on disk when the method returns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._stamp: tuple[int, int] | None = None
        self._data = _Stored()
        self._keep_off = False
        self._by_name: dict[tuple[str, int], list[FileRecord]] = {}
        #: another number after every change
        self.version = 0
        self._read()

    # -------------------------------------------------------------- asking

    def find(self, stamp: FileStamp) -> FileRecord | None:
        """The record of a file: by its path, else by name and size (the folder was moved), if that is unambiguous."""
        with self._lock:
            record = self._data.files.get(stamp.path)
            if record is not None and record.size_bytes == stamp.size_bytes:
                return record
            same = self._by_name.get((Path(stamp.path).name, stamp.size_bytes), [])
            return same[0] if len(same) == 1 else None

    def origin(self, path: str) -> FileRecord | None:
        """What was to be at this path, whatever size it has now."""
        with self._lock:
            return self._data.files.get(path)

    def expects(self, path: str, size_bytes: int) -> str | None:
        """The hash that the origin gave for the file at this path; None if none of this size is known there."""
        with self._lock:
            record = self._data.files.get(path)
            return record.expected if record is not None and record.size_bytes == size_bytes else None

    @property
    def imported(self) -> list[str]:
        with self._lock:
            return list(self._data.imported)

    def last_used_s(self, path: str) -> float | None:
        with self._lock:
            return self._data.used.get(path)

    def refresh(self) -> None:
        """Take over what another process of this profile has written."""
        with self._lock:
            if self._disk_stamp() != self._stamp:
                self._read()

    # -------------------------------------------------------------- telling

    def put(self, path: str, record: FileRecord) -> None:
        self.put_all({path: record})

    def put_all(self, records: dict[str, FileRecord]) -> None:
        """Raises:
        StorageFailed, DiskFull
        """
        with self._lock:
            self.refresh()
            self._data.files.update(records)
            self._save()

    def hashed(self, stamp: FileStamp, sha256: str, expected: str = "") -> FileRecord:
        """Note the measured hash of a file; what else is known of it stays.

        Raises:
            StorageFailed, DiskFull
        """
        with self._lock:
            known = self.find(stamp) or FileRecord(stamp.size_bytes)
            record = msgspec.structs.replace(
                known,
                size_bytes=stamp.size_bytes,
                mtime_ns=stamp.mtime_ns,
                sha256=sha256,
                expected=known.expected or expected,
            )
            self.put(stamp.path, record)
            return record

    def remember_use(self, path: str) -> None:
        with self._lock:
            self.refresh()
            self._data.used[path] = time.time()
            self._save()

    def add_imported(self, paths: Iterable[str]) -> None:
        with self._lock:
            self.refresh()
            self._data.imported += [path for path in paths if path not in self._data.imported]
            self._save()

    def drop_imported(self, paths: Iterable[str]) -> None:
        with self._lock:
            self.refresh()
            gone = set(paths)
            self._data.imported = [path for path in self._data.imported if path not in gone]
            self._save()

    # -------------------------------------------------------------- disk

    def _disk_stamp(self) -> tuple[int, int] | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size

    def _read(self) -> None:
        self._stamp = self._disk_stamp()
        try:
            raw = self._path.read_bytes()
            self._keep_off = is_newer(raw, SCHEMA)
            # what is understood of a newer file is used; what changes holds until the program ends
            self._data = msgspec.json.decode(raw, type=_Stored)
        except FileNotFoundError:
            self._data = _Stored()
        except OSError as error:
            _log.warning("the records of models cannot be read: %s", error)
        except (ValueError, RecursionError) as error:
            if self._keep_off:
                self._data = _Stored()
                self._index()
                return
            kept = free_name(self._path.with_name(f"{self._path.name}.damaged-{time_stamp()}"))
            _log.warning("the records of models were damaged (%s), kept as %s", error, kept.name)
            try:
                os.replace(self._path, kept)  # noqa: PTH105
            except OSError:
                pass
            self._data = _Stored()
        self._index()

    def _index(self) -> None:
        self.version += 1
        self._by_name = {}
        for path, record in self._data.files.items():
            same = self._by_name.setdefault((Path(path).name, record.size_bytes), [])
            if not any(other.expected == record.expected and other.sha256 == record.sha256 for other in same):
                same.append(record)

    def _save(self) -> None:
        self._index()
        if self._keep_off:
            return
        text = {path: record for path, record in self._data.files.items() if _is_text(path)}
        used = {path: when for path, when in self._data.used.items() if _is_text(path)}
        stored = _Stored(SCHEMA, text, [path for path in self._data.imported if _is_text(path)], used)
        atomic_write(self._path, msgspec.json.encode(stored))
        self._stamp = self._disk_stamp()


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
