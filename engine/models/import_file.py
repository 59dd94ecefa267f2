"""Taking models into the library: copied into the models folder, or noted where they are.

A copy is made under a hidden name, checked, and renamed only when it is whole. A different file of the same name is
never replaced: the new one gets a name of its own.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.errors import DiskFull, EngineError, ModelNotFound, NotAModel
from engine.models import library_walk
from engine.models.gguf import check_file
from engine.models.hashing import Meter, copy_hashed, same_content
from engine.models.library_walk import FileSet
from engine.models.not_gguf import shown
from engine.paths import free_name, make_private_folder, storage_error, sync_folder

#: room that stays free on the disk
MARGIN_BYTES = 256 << 20
_UNFINISHED = ".inglenook-copy"


@dataclass(frozen=True)
class Imported:
    """A file in the library now. copied: False if the same file was there already."""

    path: Path
    sha256: str
    copied: bool


def sets_at(source: Path) -> list[FileSet]:
    """The models at a path: those of a folder and its folders, or the one that a file (any shard) belongs to.

    Of a folder only what can be used is given; of a file what is wrong with it is raised.

    Raises:
        ModelNotFound, NotAModel, ModelFileDamaged, UnsupportedModel, StorageFailed, InvalidRequest
    """
    if source.is_dir():
        found = [item for item in library_walk.walk(source).sets if not item.missing]
        models = [item for item in found if _is_sound(item)]
        if not models:
            raise ModelNotFound(
                f"There is no usable GGUF model in {shown(source)}",
                hint="Choose a folder that holds .gguf files.",
                details={"path": str(source)},
            )
        return models
    only = library_walk.single(source)
    if only is None or only.missing:
        check_file(only.first if only else source)  # says what is wrong, for instance which parts are missing
        raise NotAModel(f"{shown(source)} is not a model file", hint="Choose a .gguf file.")
    check_file(only.first)
    return [only]


def _is_sound(item: FileSet) -> bool:
    try:
        check_file(item.first)
    except NotAModel as error:
        return error.details.get("kind") == "mmproj"
    except (EngineError, ValueError, OverflowError):
        return False
    return True


def copy_in(sets: Sequence[FileSet], source: Path, folder: Path, meter: Meter) -> list[Imported]:
    """Copy sets into the models folder; of a folder its inner order is kept.

    `meter.total_bytes` should be `total_bytes(sets)`.

    Raises:
        DiskFull (before anything is copied), StorageFailed, Cancelled: sets copied before stay.
    """
    make_private_folder(folder)
    if source.is_dir() and source.resolve().is_relative_to(folder.resolve()):
        return [Imported(Path(stamp.path), "", False) for item in sets for stamp in item.files]
    _check_room(total_bytes(sets), folder)
    done: list[Imported] = []
    for item in sets:
        inner = Path(item.folder).relative_to(source) if source.is_dir() else Path()
        target = folder / source.name / inner if source.is_dir() else folder
        done += _copy_set([Path(stamp.path) for stamp in item.files], target, meter)
    meter.finish()
    return done


def total_bytes(sets: Sequence[FileSet]) -> int:
    return sum(stamp.size_bytes for item in sets for stamp in item.files)


def _check_room(need: int, folder: Path) -> None:
    try:
        free = shutil.disk_usage(folder).free
    except OSError:  # a file system that does not tell
        return
    if free < need + MARGIN_BYTES:
        raise DiskFull(
            f"{need:,} bytes do not fit into {shown(folder)}: {free:,} are free",
            hint="Free some space, choose another models folder, or use the model where it is.",
            details={"need_bytes": need, "free_bytes": free},
        )


def _copy_set(files: Sequence[Path], folder: Path, meter: Meter) -> list[Imported]:
    """A set goes into one folder; into a new one if a different file has one of its names."""
    if all(os.path.realpath(path.parent) == os.path.realpath(folder) for path in files):
        return [Imported(path, "", False) for path in files]
    targets = [folder / _gguf_name(path) for path in files]
    before = meter.done_bytes
    if all(target.is_file() and _equal(path, target, meter) for path, target in zip(files, targets, strict=True)):
        return [Imported(target, "", False) for target in targets]
    meter.done_bytes = before  # what was compared is counted again when it is copied
    if any(os.path.lexists(target) for target in targets):
        if len(files) == 1:
            targets = [_free_file(targets[0])]
        else:  # the names of shards must stay
            folder = free_name(folder / library_walk.plain_name(str(files[0])))
            targets = [folder / target.name for target in targets]
    make_private_folder(folder)
    parts = [target.with_name(f".{target.name}.{os.getpid()}{_UNFINISHED}") for target in targets]
    hashes: list[str] = []
    try:
        for path, part in zip(files, parts, strict=True):
            part.unlink(missing_ok=True)
            hashes.append(copy_hashed(path, part, meter))
        for part, target in zip(parts, targets, strict=True):
            _rename_new(part, target)
    except OSError as error:
        raise storage_error(error, f"{shown(targets[0])} cannot be written") from error
    finally:
        for part in parts:
            part.unlink(missing_ok=True)
    sync_folder(folder)
    return [Imported(target, digest, True) for target, digest in zip(targets, hashes, strict=True)]


def _equal(path: Path, target: Path, meter: Meter) -> bool:
    if path.stat().st_size != target.stat().st_size:
        return False
    return same_content(path, target, meter)


def _gguf_name(path: Path) -> str:
    """Ollama's files have no ending, by which the copy would be known."""
    return path.name if path.suffix.lower() == ".gguf" else f"{path.name}.gguf"


def _free_file(path: Path) -> Path:
    """name.gguf, name-2.gguf, ..."""
    number, candidate = 1, path
    while os.path.lexists(candidate):
        number += 1
        candidate = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return candidate


def _rename_new(part: Path, target: Path) -> None:
    """Rename, but never over a file that has come meanwhile."""
    try:
        os.link(part, target)  # fails if the name is taken, as rename on POSIX does not
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if os.path.lexists(target):
            raise
        part.rename(target)


def remove_leftovers(folder: Path) -> int:
    """Delete unfinished copies of processes that are gone; returns how many there were."""
    import psutil

    count = 0
    for place, _, names in os.walk(folder):
        for name in names:
            if not name.endswith(_UNFINISHED):
                continue
            pid = name.removesuffix(_UNFINISHED).rpartition(".")[2]
            if pid.isdigit() and int(pid) != os.getpid() and not psutil.pid_exists(int(pid)):
                try:
                    (Path(place) / name).unlink()
                    count += 1
                except OSError:
                    continue
    return count
