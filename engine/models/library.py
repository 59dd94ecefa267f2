"""The models on this computer: one row for each complete model, wherever it is kept.

`scan` looks into the models folder, the user's other folders, the folders of other programs and at files used before.
Damaged and half-copied files are rows too, with what is wrong and what to do next.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from engine.errors import EngineError
from engine.message import ErrorInfo
from engine.models import library_walk, other_apps, starter
from engine.models.adapter import AdapterFile
from engine.models.gguf import ModelFile, check_file, shard_paths, summarize
from engine.models.library_index import FileStamp, IndexEntry, LibraryIndex, missing_parts
from engine.models.library_records import LibraryRecords
from engine.models.library_walk import FileSet, Walk
from engine.models.not_gguf import shown
from engine.models.other_apps import Source

if TYPE_CHECKING:
    from engine.paths import Paths

__all__ = ["LibraryModel", "ModelFile", "Scan", "list_models", "scan"]

HashState = Literal["verified", "unverified", "wrong"]


class LibraryModel(msgspec.Struct, frozen=True, kw_only=True):
    """One model of the library: a file, or a set of shards.

    Attributes:
        path: the file to load; of a set its first.
        name: the model's own name; Ollama's name for it; or the file's.
        n_params: weights counted in the tensor table; 0 where it could not be read.
        licence: as the file or its page says ("apache-2.0"); often empty.
        size_bytes: all shards together, without what is attached.
        complete: it can be loaded as far as its files tell.
        sha256: of the file at `path`, if it was ever hashed; `hashes` has that of each of `files`.
        hash_state: "verified": all hashes equal those of the place it came from; "wrong": one differs from it, or from
            what it was at the last check; "unverified": not hashed yet, or nothing to compare with.
        last_used_s: when it was last loaded, in seconds since 1970.
        source: which program keeps it; "folder": a folder or file of the user's.
        problem: why it cannot be used, or what is wrong with it.
        repo, revision: where it was downloaded from.
        files: all shards that are there. mmproj, drafts: files that belong to it.
        adapters: LoRA adapters anywhere in the library that are for models of this architecture and width.
        removable: `ModelStore.trash` moves its files; otherwise the model is only taken off the list, or refused.
    """

    path: str
    name: str
    architecture: str = ""
    n_params: int = 0
    quantization: str = ""
    n_ctx_train: int = 0
    licence: str = ""
    size_bytes: int = 0
    complete: bool = True
    sha256: str | None = None
    hash_state: HashState = "unverified"
    has_template: bool = False
    last_used_s: float | None = None
    source: Source = "inglenook"
    problem: ErrorInfo | None = None
    repo: str = ""
    revision: str = ""
    files: tuple[str, ...] = ()
    mmproj: tuple[str, ...] = ()
    drafts: tuple[str, ...] = ()
    adapters: tuple[AdapterFile, ...] = ()
    hashes: tuple[str | None, ...] = ()
    removable: bool = False


@dataclass
class Scan:
    """What a scan found. folders: all that were looked at, with their times of change. notes: for the user."""

    models: list[LibraryModel] = field(default_factory=list)
    folders: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Places:
    """Where to look.

    Attributes:
        models: the models folder. extra: the user's other folders. apps: those of other programs.
        files: single files (imported where they are, or used before).
        starter: the starter model's file.
    """

    models: Path
    extra: tuple[Path, ...] = ()
    apps: tuple[other_apps.AppFolder, ...] = ()
    files: tuple[str, ...] = ()
    starter: Path | None = None


@dataclass(frozen=True)
class _Found:
    """A set of files and what its place says of it."""

    files: FileSet
    source: Source
    name: str = ""
    repo: str = ""
    revision: str = ""
    expected: Mapping[str, str] = field(default_factory=dict)
    mmproj: tuple[str, ...] = ()


def scan(places: Places, index: LibraryIndex, records: LibraryRecords) -> Scan:
    """Look everywhere. Reads the headers of new and changed files only; call it off the window's thread."""
    result = Scan()
    found = list(_everything(places, result))
    seen: set[tuple[int, int] | str] = set()
    by_folder: dict[str, list[tuple[_Found, IndexEntry]]] = {}
    entries: dict[str, IndexEntry] = {}
    for item in found:
        key = _identity(item.files)
        if key in seen:
            continue
        seen.add(key)
        entry = _entry(item.files, index)
        by_folder.setdefault(item.files.folder, []).append((item, entry))
        entries[item.files.first] = entry
    for group in by_folder.values():
        result.models += _rows(group, places, records)
    adapters = [entry.adapter for entry in entries.values() if entry.adapter is not None]
    if adapters:
        result.models = [_with_adapters(model, entries[model.path].embedding, adapters) for model in result.models]
    index.save()
    return result


def _with_adapters(model: LibraryModel, embedding: int, adapters: Sequence[AdapterFile]) -> LibraryModel:
    """Whether every matrix fits is found out before a load; here, what plainly does not is left out."""
    fitting = tuple(
        adapter
        for adapter in adapters
        if adapter.architecture == model.architecture
        and (adapter.embedding == embedding or not adapter.embedding or not embedding)
    )
    return msgspec.structs.replace(model, adapters=fitting) if fitting else model


def _identity(files: FileSet) -> tuple[int, int] | str:
    """The same for every way to one file (links, hard links, two spellings)."""
    try:
        status = os.stat(files.files[0].path)  # noqa: PTH116
        if status.st_ino:
            return status.st_dev, status.st_ino
    except OSError:
        pass
    return os.path.normcase(files.first)


def _entry(files: FileSet, index: LibraryIndex) -> IndexEntry:
    if files.missing:
        return IndexEntry(tuple(files.files), "problem", problem=missing_parts(files.missing, files.count))
    return index.look(files.files)


# ------------------------------------------------------------------ places


def _everything(places: Places, result: Scan) -> Iterator[_Found]:
    """Sets in the order in which a file found twice is credited: own, the user's, other programs', single files."""
    if places.starter is not None and (own := library_walk.single(places.starter)):
        yield _Found(own, "inglenook", expected={own.first: starter.SHA256} if _is_pinned(own) else {})
    for number, folder in enumerate((places.models, *places.extra)):
        source: Source = "folder" if number else "inglenook"
        for files in _walked(folder, result):
            yield _Found(files, _app_of(files.folder, places.apps) or source)
    for app in places.apps:
        yield from _of_app(app, result)
    for path in places.files:
        single = library_walk.single(Path(path))
        if single:
            yield _Found(single, _app_of(single.folder, places.apps) or "folder")


def _is_pinned(files: FileSet) -> bool:
    return files.files[0].size_bytes == starter.SIZE_BYTES and Path(files.first).name == starter.FILE_NAME


def _walked(folder: Path, result: Scan) -> list[FileSet]:
    walked: Walk = library_walk.walk(folder)
    result.folders |= walked.folders
    if walked.truncated:
        result.notes.append(
            f"{shown(folder)} holds more than {library_walk.MAX_ENTRIES:,} files; not all were looked at."
        )
    return walked.sets


def _app_of(folder: str, apps: Sequence[other_apps.AppFolder]) -> Source | None:
    path = Path(folder)
    return next((app.source for app in apps if path.is_relative_to(app.path)), None)


def _of_app(app: other_apps.AppFolder, result: Scan) -> Iterator[_Found]:
    if app.source == "ollama":
        models, watched = other_apps.ollama_models(app.path)
        for folder in watched:
            _watch(folder, result)
        for model in models:
            files = library_walk.single(model.path)
            if files:
                expected = {files.first: model.sha256}
                parts = tuple(str(path) for path in model.mmproj if path.is_file())
                yield _Found(files, "ollama", name=model.name, expected=expected, mmproj=parts)
    elif app.source == "huggingface":
        _watch(app.path, result)
        for snapshot in other_apps.hub_snapshots(app.path):
            _watch(snapshot.parent, result)
            for files in _walked(snapshot, result):
                origins = {f.path: other_apps.hub_origin(Path(f.path), snapshot) for f in files.files}
                first = next(iter(origins.values()))
                expected = {path: origin.sha256 for path, origin in origins.items() if origin.sha256}
                yield _Found(files, "huggingface", repo=first.repo, revision=first.revision, expected=expected)
    else:
        for files in _walked(app.path, result):
            yield _Found(files, app.source)


def _watch(folder: Path, result: Scan) -> None:
    try:
        result.folders[str(folder)] = folder.stat().st_mtime_ns
    except OSError:
        pass


# ------------------------------------------------------------------ rows


def _rows(group: list[tuple[_Found, IndexEntry]], places: Places, records: LibraryRecords) -> Iterator[LibraryModel]:
    """The models of one folder, with the files that belong to them attached."""
    models = [(found, entry) for found, entry in group if entry.kind in ("model", "problem")]
    drafts = [found for found, _ in models if library_walk.is_draft_name(Path(found.files.first).name)]
    if len(drafts) < len(models):  # a folder of drafts alone offers them as models
        models = [(found, entry) for found, entry in models if found not in drafts]
    else:
        drafts = []
    # a half-copied image part is no model either
    models = [m for m in models if m[1].kind == "model" or not library_walk.is_mmproj_name(Path(m[0].files.first).name)]
    images = [(found, entry) for found, entry in group if entry.kind == "mmproj"]
    alone = len({(e.model.architecture, e.model.n_params) for _, e in models if e.model}) == 1
    for found, entry in models:
        path = found.files.first
        fitting = [
            item.files.first
            for item, image in images
            if (not image.embedding or not entry.embedding or image.embedding == entry.embedding)
            and (alone or library_walk.shares_name(Path(item.files.first).name, path))
        ]
        helpers = [d.files.first for d in drafts if alone or library_walk.shares_name(Path(d.files.first).name, path)]
        yield _row(found, entry, places, records, (*found.mmproj, *fitting), tuple(helpers))


def _row(
    found: _Found,
    entry: IndexEntry,
    places: Places,
    records: LibraryRecords,
    mmproj: tuple[str, ...],
    drafts: tuple[str, ...],
) -> LibraryModel:
    files, model = found.files, entry.model
    known = [records.find(stamp) for stamp in files.files]
    hashes, state = _hash_state(files.files, known, found.expected)
    origin = next((record for record in known if record is not None and record.repo), None)
    problem = entry.problem
    if origin is None and problem is not None:  # a file of another size than it had: where to get it again
        origin = records.origin(files.first)
    if problem is None and state == "wrong":
        problem = ErrorInfo(
            "checksum_mismatch",
            f"{shown(files.first)} is not what it was where it came from: its SHA-256 differs",
            "Download it again.",
        )
    name = found.name or (model.name if model else library_walk.plain_name(files.first))
    is_starter = places.starter is not None and files.first == str(places.starter)
    own = all(record is not None and record.own for record in known)
    return LibraryModel(
        path=files.first,
        name=starter.NAME if is_starter else name,
        architecture=model.architecture if model else "",
        n_params=model.n_params if model else 0,
        quantization=model.quantization if model else "",
        n_ctx_train=model.n_ctx_train if model else 0,
        licence=entry.licence or (origin.licence if origin else ""),
        size_bytes=sum(max(stamp.size_bytes, 0) for stamp in files.files),
        complete=entry.kind == "model",
        sha256=hashes[0] if files.files[0].path == files.first else None,
        hash_state=state,
        has_template=bool(model and model.has_template),
        last_used_s=records.last_used_s(files.first),
        source=found.source,
        problem=problem,
        repo=found.repo or (origin.repo if origin else ""),
        revision=found.revision or (origin.revision if origin else ""),
        files=tuple(stamp.path for stamp in files.files),
        mmproj=mmproj,
        drafts=drafts,
        hashes=tuple(hashes),
        removable=own or (found.source in ("inglenook", "folder") and _inside(files.folder, places)),
    )


def _inside(folder: str, places: Places) -> bool:
    """In a folder that the user has given to this program."""
    path = Path(folder)
    return any(path.is_relative_to(root) for root in (places.models, *places.extra))


def _hash_state(
    files: Sequence[FileStamp], known: Sequence[object], expected: Mapping[str, str]
) -> tuple[list[str | None], HashState]:
    from engine.models.library_records import FileRecord

    hashes: list[str | None] = []
    verified, wrong = True, False
    for stamp, record in zip(files, known, strict=True):
        measured = ""
        wanted = expected.get(stamp.path, "")
        if isinstance(record, FileRecord):
            wanted = record.expected or wanted
            measured = record.sha256 if record.mtime_ns == stamp.mtime_ns else ""
        hashes.append(measured or None)
        verified &= bool(measured and wanted and measured == wanted)
        wrong |= bool(measured and wanted and measured != wanted)
    return hashes, "wrong" if wrong else "verified" if verified else "unverified"


# ------------------------------------------------------------------ the model picker's list


def list_models(paths: Paths, recent: Iterable[str] = ()) -> list[ModelFile]:
    """The starter, then the GGUF files of the models folder (and its folders), then files used before.

    Every model comes once, a set of shards as one. What cannot be loaded (no model,
    cut short, shards missing) is left out: opening such a file says what is wrong with it.
    Reads one header per file (milliseconds each): call it off the window's thread.
    """
    found: list[ModelFile] = []
    seen: set[Path] = set()
    for path in _candidates(paths, recent):
        first = shard_paths(path)[0]
        try:
            key = first.resolve()
            if key in seen:
                continue
            seen.add(key)
            model = summarize(check_file(first))
        except (EngineError, OSError, ValueError):
            continue
        if starter.is_starter(first, paths.models):
            model = msgspec.structs.replace(model, name=starter.NAME)
        found.append(model)
    return found


def _candidates(paths: Paths, recent: Iterable[str]) -> list[Path]:
    own = starter.find(paths.models)
    try:
        local = sorted(p for p in paths.models.rglob("*") if p.suffix.lower() == ".gguf")
    except OSError:
        local = []
    return [*([own] if own else []), *local, *map(Path, recent)]
