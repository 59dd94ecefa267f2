"""Deleting models so that it can be taken back.

A deleted model first moves into a hidden folder beside the models (a rename: instant, and undone by another rename).
When the program ends, it goes on to the system's trash. A crash in between loses nothing: the next start finds the
folder and goes on.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from engine import log
from engine.errors import EngineError, InvalidRequest, StorageFailed
from engine.models.not_gguf import shown
from engine.paths import atomic_write, make_private_folder, storage_error

FOLDER = ".inglenook-trash"
_LIST = "trash.json"
_log = log.get("library")


class Trashed(msgspec.Struct, frozen=True):
    """One deleted model: `names` lie in `folder`, and came from `originals`."""

    folder: str
    originals: tuple[str, ...]
    names: tuple[str, ...]


def to_system_trash(path: Path) -> None:
    """Raises:
    OSError: the system has no trash for this disk, or refuses.
    """
    import send2trash

    send2trash.send2trash(os.fspath(path))


def put(files: Sequence[Path], root: Path) -> Trashed:
    """Move files into the trash folder of `root` (on the same disk); all of them or none.

    Raises:
        StorageFailed, DiskFull, InvalidRequest (no file given)
    """
    if not files:
        raise InvalidRequest("There is no file to delete", details={"field": "path"})
    folder = root / FOLDER / secrets.token_hex(8)
    names = tuple(f"{number}-{path.name}" if number else path.name for number, path in enumerate(files))
    trashed = Trashed(str(folder), tuple(map(str, files)), names)
    make_private_folder(folder)
    atomic_write(folder / _LIST, msgspec.json.encode(trashed))
    moved: list[tuple[Path, Path]] = []
    try:
        for path, name in zip(files, names, strict=True):
            path.rename(folder / name)
            moved.append((path, folder / name))
    except OSError as error:
        for path, there in reversed(moved):
            there.rename(path)
        _remove(folder)
        raise storage_error(error, f"{shown(files[0])} cannot be moved to the trash") from error
    return trashed


def restore(trashed: Trashed) -> None:
    """Put the files back where they were; never over another file.

    Raises:
        StorageFailed: a file of that name is there again, or the trash was emptied.
    """
    folder = Path(trashed.folder)
    pairs = [(folder / name, Path(path)) for name, path in zip(trashed.names, trashed.originals, strict=True)]
    for _, path in pairs:
        if os.path.lexists(path):
            raise StorageFailed(
                f"There is another file {shown(path)} now", hint="Move it away, then try again.", details={}
            )
    try:
        for there, path in pairs:
            path.parent.mkdir(parents=True, exist_ok=True)
            there.rename(path)
    except OSError as error:
        raise storage_error(error, f"{shown(pairs[0][1])} cannot be put back") from error
    _remove(folder)


def waiting(roots: Sequence[Path]) -> list[Trashed]:
    """What lies in the trash folders of these roots, also from a run that crashed."""
    found = []
    for root in roots:
        try:
            folders = sorted((root / FOLDER).iterdir())
        except OSError:
            continue
        for folder in folders:
            try:
                trashed = msgspec.json.decode((folder / _LIST).read_bytes(), type=Trashed)
            except (OSError, ValueError) as error:
                _log.warning("%s in the trash folder cannot be understood: %s", folder.name, error)
                continue
            # the list may be moved with its folder, and could name anything: only what lies here counts
            pairs = [
                (path, name)
                for path, name in zip(trashed.originals, trashed.names, strict=False)
                if name == Path(name).name and (folder / name).is_file()
            ]
            if pairs:
                found.append(Trashed(str(folder), tuple(p for p, _ in pairs), tuple(n for _, n in pairs)))
    return found


def flush(trashed: Trashed, send: Callable[[Path], None] = to_system_trash) -> EngineError | None:
    """Hand the files on to the system's trash, under their own place where it is free, so that the system can put them
    back there. What the system refuses stays where it is; the error says so.
    """
    folder = Path(trashed.folder)
    for name, original in zip(trashed.names, trashed.originals, strict=True):
        there, path = folder / name, Path(original)
        if not there.is_file():
            continue
        at_home = _is_below(path, folder.parent.parent) and path.parent.is_dir() and not os.path.lexists(path)
        try:
            if at_home:
                there.rename(path)
            send(path if at_home else there)
        except Exception as error:  # each system's trash has errors of its own
            if at_home and path.exists():
                path.rename(there)
            return StorageFailed(
                f"{shown(path)} could not be moved to the system's trash: {error}",
                hint=f"It is kept in {shown(there)}; delete it there.",
                details={"path": str(there)},
            )
    _remove(folder)
    return None


def _is_below(path: Path, root: Path) -> bool:
    """The list is a file that could name any place; only places beside the trash folder are believed."""
    return path.is_absolute() and ".." not in path.parts and path.is_relative_to(root)


def _remove(folder: Path) -> None:
    """The list and the folder itself, if nothing else is in it."""
    try:
        (folder / _LIST).unlink(missing_ok=True)
        folder.rmdir()
        folder.parent.rmdir()
    except OSError:  # other models lie there, or someone put a file into it
        pass
