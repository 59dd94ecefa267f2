"""Longer work on the library's models, without threads: checking, duplicates, telling whether a scan still holds."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import msgspec

from engine.errors import InvalidRequest, ModelNotFound
from engine.models.hashing import Meter, Progress, sha256_of
from engine.models.library_index import FileStamp, stamp
from engine.models.library_walk import plain_name
from engine.models.not_gguf import shown

if TYPE_CHECKING:
    from engine.models.library import LibraryModel, Places, Scan
    from engine.models.library_records import LibraryRecords

_SAMPLE = 64 << 10
#: FAT knows even seconds only
_TICK_NS = 2_100_000_000


class Snapshot:
    """A scan and the state of the disk that it was made from."""

    def __init__(self, scan: Scan, places: Places, records: LibraryRecords) -> None:
        self.scan = scan
        self._places, self._version = places, records.version
        self._files = [self._stamp(path) for model in scan.models for path in model.files]
        times = [*scan.folders.values(), *(file.mtime_ns for file in self._files if file is not None)]
        # what changes again within one tick of the disk's clock keeps its time
        self._settled = max(times, default=0) < time.time_ns() - _TICK_NS

    @staticmethod
    def _stamp(path: str) -> FileStamp | None:
        try:
            return stamp(path)
        except OSError:
            return None

    def still_holds(self, places: Places, records: LibraryRecords) -> bool:
        """True if nothing has changed: folders, files, settings, records. Some microseconds per file and folder."""
        if not self._settled or places != self._places or records.version != self._version:
            return False
        for folder, mtime_ns in self.scan.folders.items():
            try:
                if os.stat(folder).st_mtime_ns != mtime_ns:  # noqa: PTH116
                    return False
            except OSError:
                return False
        return all(file is not None and self._stamp(file.path) == file for file in self._files) and all(
            str(root) in self.scan.folders or not root.is_dir() for root in (places.models, *places.extra)
        )


def check_hashes(model: LibraryModel, records: LibraryRecords, meter: Meter) -> None:
    """Hash all files of a model and note the results.

    A file that has no hash to compare with is compared with its own earlier hash: bytes that change while size and
    time stay are a failing disk.

    Raises:
        Cancelled, ModelNotFound, StorageFailed, DiskFull
    """
    for path in model.files:
        at_start = _stamp_or_raise(path)
        known = records.find(at_start)
        digest = sha256_of(Path(path), meter)
        if _stamp_or_raise(path) != at_start:
            raise InvalidRequest(f"{shown(path)} is being written to", hint="Check it when that has ended.")
        earlier = known.sha256 if known is not None and known.mtime_ns == at_start.mtime_ns else ""
        records.hashed(at_start, digest, earlier if earlier != digest else "")
    meter.finish()


def find_duplicates(
    models: Sequence[LibraryModel], records: LibraryRecords, progress: Progress, stop: Event
) -> list[tuple[LibraryModel, ...]]:
    """Groups of models with the same bytes: sizes first, then samples, then hashes.

    Raises:
        Cancelled, StorageFailed, DiskFull
    """
    alike: dict[object, list[LibraryModel]] = {}
    for model in models:
        if model.complete:
            alike.setdefault((model.size_bytes, len(model.files)), []).append(model)
    sampled: dict[object, list[LibraryModel]] = {}
    for group in alike.values():
        if len(group) > 1:
            for model in group:
                sampled.setdefault((model.size_bytes, _sample(model.files)), []).append(model)
    candidates = [group for group in sampled.values() if len(group) > 1]
    unknown = [model for group in candidates for model in group if None in model.hashes]
    meter = Meter(sum(model.size_bytes for model in unknown), progress, stop)
    for model in unknown:
        check_hashes(model, records, meter)
    same: dict[object, list[LibraryModel]] = {}
    for group in candidates:
        for model in group:
            found = [records.find(_stamp_or_raise(path)) for path in model.files]
            hashes = tuple(record.sha256 if record else "" for record in found)
            if all(hashes):
                fresh = msgspec.structs.replace(model, hashes=hashes, sha256=hashes[0])
                same.setdefault((model.size_bytes, hashes), []).append(fresh)
    return [tuple(group) for group in same.values() if len(group) > 1]


def _sample(files: Iterable[str]) -> bytes:
    """Some bytes of the front, the middle and the end: different samples mean different files."""
    digest = hashlib.blake2b()
    for path in files:
        try:
            with Path(path).open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                for at in (0, size // 2, max(0, size - _SAMPLE)):
                    file.seek(at)
                    digest.update(file.read(_SAMPLE))
        except OSError:
            digest.update(os.fsencode(path))  # equal to nothing else
    return digest.digest()


def trash_root(path: Path, folders: Sequence[Path]) -> Path:
    """The folder whose trash takes a file: the innermost of the library's folders that holds it, if it is on the same
    disk; else the file's own.
    """
    inside = [folder for folder in folders if path.is_relative_to(folder)]
    root = max(inside, key=lambda folder: len(folder.parts), default=path.parent)
    try:
        same_disk = root.stat().st_dev == path.parent.stat().st_dev
    except OSError:
        return path.parent
    return root if same_disk else path.parent


def pick(models: Sequence[LibraryModel], wanted: str) -> LibraryModel:
    """The model meant by a path, a name, a file name, `owner/name` of where it is from, or the begin of its hash.

    Raises:
        ModelNotFound, InvalidRequest: none or several fit.
    """
    path = os.path.normcase(os.path.abspath(os.path.expanduser(wanted)))  # noqa: PTH100, PTH111
    for model in models:
        if any(os.path.normcase(file) == path for file in (model.path, *model.files)):
            return model
    word = wanted.casefold()
    repo, _, quant = word.partition(":")

    def fits(model: LibraryModel) -> bool:
        name = Path(model.path).name.casefold()
        if word in (name, plain_name(model.path).casefold(), model.name.casefold()):
            return True
        if model.repo and repo == model.repo.casefold() and quant in ("", model.quantization.casefold()):
            return True
        return len(word) >= 8 and bool(model.sha256) and str(model.sha256).startswith(word)

    found = [model for model in models if fits(model)]
    if not found:
        raise ModelNotFound(
            f"There is no model {shown(wanted)} in the library",
            hint='Give its path or its name; "inglenook models list" shows them.',
            details={"model": wanted},
        )
    if len(found) > 1:
        raise InvalidRequest(
            f"{len(found)} models are called {shown(wanted)}",
            hint="Give the path of one of them: " + ", ".join(shown(model.path) for model in found[:4]),
            details={"field": "model", "paths": [model.path for model in found]},
        )
    return found[0]


def _stamp_or_raise(path: str) -> FileStamp:
    try:
        return stamp(path)
    except OSError as error:
        raise ModelNotFound(f"There is no file {shown(path)} any more", details={"path": path}) from error
