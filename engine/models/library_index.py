"""What the headers of known files said, kept in the cache folder so that a scan reads only what is new or changed.

A file counts as unchanged while its size and its time of change stay the same. The index can be deleted at any time;
it is then made anew from the files.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from engine import log
from engine.errors import EngineError, ModelNotFound, NotAModel
from engine.message import ErrorInfo
from engine.models.adapter import AdapterFile, read_adapter, summarize_adapter
from engine.models.gguf import ModelFile, check_file, summarize
from engine.models.not_gguf import shown
from engine.paths import atomic_write

#: raise it when the meaning of an entry changes, or when the checks find more than before
SCHEMA = 2
MAX_BYTES = 64 << 20
#: GGUF files that are sound, but no models
COMPANIONS = ("mmproj", "adapter", "imatrix", "vocabulary")
_log = log.get("library")


class FileStamp(NamedTuple):
    """By this a file is known again without reading it."""

    path: str
    size_bytes: int
    mtime_ns: int


class IndexEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of one set of files.

    Attributes:
        kind: "model"; a word of `COMPANIONS`; "problem" where the set cannot be used.
        embedding: width of the text model's vectors, or of what an mmproj gives to it; 0 if unknown.
        adapter: of a LoRA adapter; None for one that cannot be used (`problem`).
    """

    stamps: tuple[FileStamp, ...]
    kind: Literal["model", "mmproj", "adapter", "imatrix", "vocabulary", "problem"]
    model: ModelFile | None = None
    licence: str = ""
    embedding: int = 0
    problem: ErrorInfo | None = None
    adapter: AdapterFile | None = None


class _Stored(msgspec.Struct):
    schema: int
    entries: dict[str, IndexEntry]


def stamp(path: str) -> FileStamp:
    """Size and time of change now.

    Raises:
        OSError
    """
    status = os.stat(path)  # noqa: PTH116 (called for every file of a library)
    return FileStamp(path, status.st_size if stat.S_ISREG(status.st_mode) else -1, status.st_mtime_ns)


class LibraryIndex:
    """The remembered entries, by the path of a set's first file. Not thread-safe: one thread uses it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries: dict[str, IndexEntry] = {}
        self._used: dict[str, IndexEntry] = {}
        self._changed = False
        self.n_read = 0
        self._load()

    def _load(self) -> None:
        try:
            if self._path.stat().st_size <= MAX_BYTES:
                stored = msgspec.json.decode(self._path.read_bytes(), type=_Stored)
                if stored.schema == SCHEMA:
                    self._entries = stored.entries
        except FileNotFoundError:
            pass
        except (OSError, ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
            _log.warning("the index of models is made anew: %s", error)

    def look(self, files: Sequence[FileStamp]) -> IndexEntry:
        """What this set of files is; reads headers only if one of them has changed."""
        stamps = tuple(files)
        key = stamps[0].path
        entry = self._entries.get(key)
        if entry is None or entry.stamps != stamps:
            entry = read_entry(stamps)
            self.n_read += 1
            self._entries[key] = entry
            self._changed = True
        self._used[key] = entry
        return entry

    def forget(self, path: str) -> None:
        """Read this set anew at the next look."""
        self._changed |= self._entries.pop(path, None) is not None

    def save(self) -> None:
        """Keep what was looked at since the last save; a disk that refuses costs only time at the next start."""
        entries, self._used = self._used, {}
        if not self._changed and len(entries) == len(self._entries):
            return
        self._entries, self._changed = entries, False
        try:
            storable = {key: entry for key, entry in entries.items() if _is_text(key)}
            atomic_write(self._path, msgspec.json.encode(_Stored(SCHEMA, storable)))
        except (EngineError, UnicodeEncodeError) as error:
            _log.warning("the index of models cannot be kept: %s", error)


def read_entry(stamps: tuple[FileStamp, ...]) -> IndexEntry:
    """Look at the files of a set; what is wrong with them becomes part of the entry."""
    first = Path(stamps[0].path)
    try:
        header = check_file(first)
        found = summarize(header)
    except NotAModel as error:
        kind = error.details.get("kind")
        if kind == "adapter":
            return _adapter_entry(stamps, first)
        if kind in COMPANIONS:
            return IndexEntry(stamps, kind, embedding=_projection(first) if kind == "mmproj" else 0)
        return IndexEntry(stamps, "problem", problem=_info(error))
    except EngineError as error:
        return IndexEntry(stamps, "problem", problem=_info(error))
    except (ValueError, OverflowError, MemoryError) as error:  # a header that fooled every check
        _log.warning("%s cannot be read: %r", shown(first), error)
        damaged = ErrorInfo("model_damaged", f"{shown(first)} cannot be read", "Download it again.")
        return IndexEntry(stamps, "problem", problem=damaged)
    return IndexEntry(
        stamps,
        "model",
        msgspec.structs.replace(found, name=_line(found.name), architecture=_line(found.architecture)),
        licence=_line(header.text("general.license")),
        embedding=header.of_architecture("embedding_length") or 0,
    )


def _adapter_entry(stamps: tuple[FileStamp, ...], path: Path) -> IndexEntry:
    """An adapter that is damaged or of another kind is kept in mind too, so that it is not read again and again."""
    try:
        found = summarize_adapter(read_adapter(path))
    except EngineError as error:
        return IndexEntry(stamps, "adapter", problem=_info(error))
    return IndexEntry(stamps, "adapter", adapter=msgspec.structs.replace(found, name=_line(found.name)))


def missing_parts(missing: Sequence[str], count: int) -> ErrorInfo:
    """The problem of a set of which files are not there."""
    names = ", ".join(map(shown, missing[:5])) + ("" if len(missing) <= 5 else " ...")
    return _info(
        ModelNotFound(
            f"{len(missing)} of {count} parts of this model are missing: {names}",
            hint="Put all parts into one folder, or download the model again.",
            details={"missing": list(missing[:100]), "n_missing": len(missing)},
        )
    )


def _projection(path: Path) -> int:
    from engine.models.gguf_format import read_header

    return read_header(path, max_array=4096).integer("clip.vision.projection_dim") or 0


def _info(error: EngineError) -> ErrorInfo:
    return ErrorInfo(error.code, error.message, error.hint, error.details)


def _line(text: str, longest: int = 200) -> str:
    """Text of a file as it may stand in one line of a list."""
    return " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * longest]).split())[:longest]


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
