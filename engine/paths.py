"""Where Inglenook keeps its files, and how it writes them.

Nothing here depends on the language of the user, the letters in a folder's name or the working directory.
"""

from __future__ import annotations

import errno
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from engine.errors import DiskFull, EngineError, StorageFailed

APP = "inglenook"
HOME_VARIABLE = "INGLENOOK_HOME"
_FULL = {errno.ENOSPC, errno.EDQUOT} if hasattr(errno, "EDQUOT") else {errno.ENOSPC}


@dataclass(frozen=True)
class Paths:
    """All folders and files of one profile.

    Attributes:
        home: the folder that holds everything, or the data folder where the system's own places are used.
        data: the database, its backups, the lock.
        models: GGUF files.
    """

    home: Path
    data: Path
    config: Path
    cache: Path
    logs: Path
    models: Path

    @property
    def database(self) -> Path:
        return self.data / "chats.db"

    @property
    def settings_file(self) -> Path:
        return self.config / "settings.json"

    @property
    def kv_folder(self) -> Path:
        """Where states of chats are kept (`engine.kv_files`)."""
        return self.cache / "kv"

    @property
    def lock_file(self) -> Path:
        return self.data / "inglenook.lock"

    def ensure(self) -> Paths:
        """Makes the folders that are missing, readable by their owner only (on POSIX), and returns itself.

        Raises:
            StorageFailed, DiskFull: a folder cannot be made, or the name is taken by a file.
        """
        for folder in (self.home, self.data, self.config, self.cache, self.logs, self.models):
            make_private_folder(folder)
        return self


def resolve(home: Path | None = None) -> Paths:
    """The paths of this profile; touches no disk.

    `home` wins, then the variable INGLENOOK_HOME, then the places of the operating system.

    Raises:
        StorageFailed: there is no home folder.
    """
    if home is None and (value := os.environ.get(HOME_VARIABLE, "")):
        home = Path(value)
    if home is not None:
        home = _absolute(home)
        return Paths(
            home=home,
            data=home / "data",
            config=home / "config",
            cache=home / "cache",
            logs=home / "logs",
            models=home / "models",
        )
    try:
        data = platformdirs.user_data_path(APP, appauthor=False)
        return Paths(
            home=data,
            data=data,
            config=platformdirs.user_config_path(APP, appauthor=False),
            cache=platformdirs.user_cache_path(APP, appauthor=False),
            logs=platformdirs.user_log_path(APP, appauthor=False),
            models=data / "models",
        )
    except RuntimeError as error:  # no HOME, and the system does not know this user
        raise StorageFailed(
            "This user has no home folder, so there is no place for chats and settings.",
            hint=f"Set HOME, or set {HOME_VARIABLE} to a folder that is to hold them.",
            details={"reason": str(error)},
        ) from None


@contextmanager
def temp_home() -> Iterator[Path]:
    """A throw-away home: a fresh folder, deleted with all it holds on exit."""
    # Windows refuses to delete files that a dying worker still maps; the system clears its temp folder later.
    with tempfile.TemporaryDirectory(prefix="inglenook-home-", ignore_cleanup_errors=True) as folder:
        yield Path(folder).resolve()


def make_private_folder(folder: Path) -> None:
    """Makes a folder and its parents if missing; new ones are readable by their owner only (on POSIX).

    Raises:
        StorageFailed, DiskFull
    """
    try:
        missing = [p for p in (folder, *folder.parents) if not p.exists()]
        for part in reversed(missing):
            part.mkdir(mode=0o700, exist_ok=True)
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "a file has this name", str(folder))
    except OSError as error:
        raise storage_error(error, f"The folder {shown(folder)} cannot be made") from error


def atomic_write(path: Path, data: bytes) -> None:
    """Replaces a file's content so that after a crash or power cut either the old or the new content is there.

    A symbolic link stays one; its target is replaced.

    Raises:
        StorageFailed, DiskFull: the old content is untouched.
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f"{target.name}.tmp-{os.getpid()}")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:  # noqa: PTH123
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        _replace(temporary, target)
        sync_folder(target.parent)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise storage_error(error, f"{shown(path)} cannot be written") from error


def sync_folder(folder: Path) -> None:
    """Makes a rename in this folder durable (POSIX; elsewhere the file system does it by itself)."""
    if os.name != "posix":
        return
    with suppress(OSError):  # some network file systems cannot sync a folder
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def storage_error(error: OSError, what: str) -> EngineError:
    """The known error for a failed file operation. `what` is the start of the sentence, without a full stop."""
    details = {"reason": str(error), "errno": error.errno}
    if error.errno in _FULL:
        return DiskFull(f"{what}: the disk is full.", hint="Free some space and try again.", details=details)
    reason = error.strerror or str(error)
    hint = "Check that the folder exists and that you may write to it."
    if error.errno == errno.EROFS:
        hint = f"The disk is read-only. Set {HOME_VARIABLE} to a folder on another disk."
    return StorageFailed(f"{what}: {reason}.", hint=hint, details=details)


def is_file(path: Path) -> bool:
    """Is there a file? False too for a name that is too long, and in a folder that may not be entered."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def shown(path: Path) -> str:
    """A path as text that every screen, log and JSON can hold: bytes that are no text become U+FFFD."""
    return os.fsencode(path).decode("utf-8", "replace")


def time_stamp() -> str:
    """UTC time for file names: sorts by time, legal on every file system."""
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime())


def free_name(path: Path) -> Path:
    """The path itself, or the first of path-2, path-3 ... that does not exist."""
    number, candidate = 1, path
    while os.path.lexists(candidate):
        number += 1
        candidate = path.with_name(f"{path.name}-{number}")
    return candidate


def _absolute(path: Path) -> Path:
    # no resolve(): the user may have chosen a link on purpose
    with suppress(RuntimeError):  # "~someone" without such a user: then it is a plain name
        path = path.expanduser()
    return Path(os.path.abspath(path))  # noqa: PTH100


def _replace(source: Path, target: Path) -> None:
    for wait_s in (0.01, 0.05, 0.2, 0.5):
        try:
            source.replace(target)
            return
        except PermissionError:
            # on Windows a virus scanner may hold the target for a moment
            if os.name != "nt":
                raise
            time.sleep(wait_s)
    source.replace(target)
