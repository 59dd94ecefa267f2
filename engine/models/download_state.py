"""What a download remembers on disk: which files of which commit, and which of their bytes are there for certain.

Each download has a folder of its own under `<models>/.incomplete/`, with `state.json` beside numbered parts. No name
from a server is used in it, all of a download lies in it until the whole set is right, and nothing else lies in it:
deleting the folder deletes the download.
"""

from __future__ import annotations

import errno
import shutil
import stat
import sys
import time
from bisect import bisect_left
from contextlib import suppress
from pathlib import Path

import msgspec

from engine.errors import AlreadyRunning, EngineError, StorageFailed
from engine.message import ErrorInfo
from engine.models import safe_names
from engine.paths import atomic_write, make_private_folder, storage_error

STAGING = ".incomplete"
STATE_FILE = "state.json"
LOCK_FILE = "lock"
VERSION = 1
_NEW = "new-"
_FORGOTTEN_S = 3600
#: a folder that somebody removes while it is made is made again
_ATTEMPTS, _PAUSE_S = 50, 0.001


class Intervals:
    """Byte ranges [start, end) that are there, sorted and merged. Not safe for threads by itself."""

    __slots__ = ("items",)

    def __init__(self, items: list[tuple[int, int]] | None = None) -> None:
        self.items: list[tuple[int, int]] = []
        for start, end in sorted(items or []):
            if 0 <= start < end:
                self.add(start, end)

    def add(self, start: int, end: int) -> None:
        if end <= start:
            return
        items = self.items
        first = bisect_left(items, (start,))
        if first and items[first - 1][1] >= start:
            first -= 1
            start = items[first][0]
        last = first
        while last < len(items) and items[last][0] <= end:
            end = max(end, items[last][1])
            last += 1
        items[first:last] = [(start, end)]

    @property
    def total(self) -> int:
        return sum(end - start for start, end in self.items)

    @property
    def prefix(self) -> int:
        """Bytes from the start without a gap."""
        return self.items[0][1] if self.items and self.items[0][0] == 0 else 0

    def missing(self, size: int) -> list[tuple[int, int]]:
        gaps, at = [], 0
        for start, end in self.items:
            if start > at:
                gaps.append((at, min(start, size)))
            at = max(at, end)
        if at < size:
            gaps.append((at, size))
        return [(a, b) for a, b in gaps if a < b]

    def cut(self, size: int) -> None:
        """Forget what lies past `size`."""
        self.items = [(start, min(end, size)) for start, end in self.items if start < size]


class SavedFile(msgspec.Struct, omit_defaults=True):
    """One file of a download.

    Attributes:
        path: in the repository; checked before it was stored, and again before it is used.
        etag: of the storage, for If-Range.
        done: ranges that were on disk when the state was written.
        status: "part" (not all there), "ready" (all there and right), "placed" (under its own name), "damaged".
    """

    path: str
    size_bytes: int
    sha256: str | None = None
    etag: str = ""
    done: list[tuple[int, int]] = []
    status: str = "part"


class SavedDownload(msgspec.Struct, omit_defaults=True):
    """A download as it is stored.

    Attributes:
        endpoint: hub it was added from.
        status: "queued", "running", "paused" or "failed", as it was last.
    """

    id: str
    repo: str
    revision: str
    label: str
    endpoint: str
    files: list[SavedFile]
    added: float = 0.0
    status: str = "queued"
    error: ErrorInfo | None = None
    version: int = VERSION

    @property
    def bytes_total(self) -> int:
        return sum(file.size_bytes for file in self.files)

    @property
    def bytes_done(self) -> int:
        return sum(
            Intervals(file.done).total if file.status == "part" else file.size_bytes
            for file in self.files
            if file.status != "damaged"
        )


class _Form(msgspec.Struct):
    version: int = 0


def staging_folder(models: Path) -> Path:
    """Raises StorageFailed where a link or a file has its name."""
    folder = models / STAGING
    try:
        is_plain = stat.S_ISDIR(folder.lstat().st_mode)  # one look: whoever empties it removes it at any moment
    except (FileNotFoundError, NotADirectoryError):
        return folder
    if not is_plain:
        raise StorageFailed(
            f"{folder} is not a plain folder, so no download can be kept in it", details={"path": str(folder)}
        )
    return folder


def create(models: Path, saved: SavedDownload) -> Path:
    """Makes the folder of a new download, complete with its state, under its name in one step.

    Raises:
        StorageFailed, DiskFull
    """
    temporary = _make_new(models, f"{_NEW}{saved.id}")
    final = temporary.with_name(saved.id)
    save(temporary, saved)
    try:
        temporary.rename(final)
    except OSError as error:
        raise storage_error(error, "The download cannot be stored") from error
    return final


def _make_new(models: Path, name: str) -> Path:
    """Makes a folder in that of the downloads. Once it is there, the one above is not empty and stays."""
    for left in reversed(range(_ATTEMPTS)):
        folder = staging_folder(models) / name
        try:
            make_private_folder(folder)
            break
        except StorageFailed as error:
            # the end of another download may have removed the empty folder above at this very moment
            if not left or (error.details.get("errno") != errno.ENOENT and folder.parent.is_dir()):
                raise
            time.sleep(_PAUSE_S)
    return folder


def save(folder: Path, saved: SavedDownload) -> None:
    """Raises StorageFailed, DiskFull; the state on disk is then the one before."""
    atomic_write(folder / STATE_FILE, msgspec.json.encode(saved))


def part_path(folder: Path, number: int) -> Path:
    return folder / f"{number:04d}.part"


def damaged_path(folder: Path, number: int) -> Path:
    return folder / f"{number:04d}.damaged"


def load_all(models: Path) -> list[tuple[Path, SavedDownload | None]]:
    """All downloads on disk, oldest first; None where a state cannot be read. Sweeps out half-made folders."""
    try:
        folders = sorted(path for path in staging_folder(models).iterdir() if path.is_dir() and not path.is_symlink())
    except (OSError, EngineError):
        return []
    found: list[tuple[Path, SavedDownload | None]] = []
    for folder in folders:
        if folder.name.startswith(_NEW):
            _sweep(folder)
            continue
        found.append((folder, _load(folder)))
    return sorted(found, key=lambda pair: pair[1].added if pair[1] else 0.0)


def why_unusable(folder: Path) -> ErrorInfo:
    """Why `load_all` gave None for a folder, and what can be done."""
    with suppress(OSError, ValueError, RecursionError):
        form = msgspec.json.decode((folder / STATE_FILE).read_bytes(), type=_Form)
        if form.version > VERSION:
            text = "This download was begun by a newer Inglenook"
            return ErrorInfo(
                StorageFailed.code, text, "Update Inglenook to go on with it, or cancel it to delete its parts."
            )
    text = "What was stored of this download cannot be read"
    return ErrorInfo(StorageFailed.code, text, "Cancel it to delete its parts.")


def _load(folder: Path) -> SavedDownload | None:
    try:
        saved = msgspec.json.decode((folder / STATE_FILE).read_bytes(), type=SavedDownload)
        safe_names.repo_parts(saved.repo)
        for number, file in enumerate(saved.files):
            safe_names.safe_parts(file.path)
            part = part_path(folder, number)
            have = part.stat().st_size if part.is_file() else 0
            sound = Intervals(file.done)
            sound.cut(min(have, file.size_bytes))  # the file may be shorter after a power cut
            file.done = sound.items if file.status == "part" else []
    except (OSError, ValueError, EngineError, msgspec.MsgspecError):
        return None
    if saved.version != VERSION or saved.id != folder.name or not saved.files:
        return None
    return saved


def _sweep(folder: Path) -> None:
    """Another process may just be making it: only an old one is left over."""
    with suppress(OSError):
        if time.time() - folder.stat().st_mtime > _FORGOTTEN_S:
            remove(folder)


def remove(folder: Path) -> None:
    """Deletes a download with all its parts. Raises StorageFailed if something is left."""
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise storage_error(error, "The partial download cannot be deleted") from error
    with suppress(OSError):
        folder.parent.rmdir()  # only if it is empty


class FolderLock:
    """Keeps two programs from writing one download. Released by the system when the process dies."""

    def __init__(self, folder: Path) -> None:
        try:
            self._file = (folder / LOCK_FILE).open("ab")
        except OSError as error:
            raise storage_error(error, "The download cannot be opened") from error
        try:
            _lock(self._file.fileno())
        except OSError as error:
            self._file.close()
            raise AlreadyRunning(
                "Another Inglenook works on this download", hint="Wait until it is done, or stop it there."
            ) from error

    def release(self) -> None:
        self._file.close()


if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
