"""Finding GGUF files in folders, and which of them belong together."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from engine.models.library_index import FileStamp

#: folders below folders; deeper ones are left out
MAX_DEPTH = 16
#: entries of all folders together, against a models folder that is set to "/"
MAX_ENTRIES = 200_000
_SHARD = re.compile(r"^(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf$", re.DOTALL | re.IGNORECASE)


@dataclass
class FileSet:
    """Files that are one model, by their names.

    Attributes:
        files: those that are there, in order.
        first: path of the first, whether it is there or not.
        missing: names of those that are not.
        count: how many there should be.
    """

    folder: str
    files: list[FileStamp]
    first: str
    missing: list[str] = field(default_factory=list)
    count: int = 1


@dataclass
class Walk:
    """What a walk found.

    Attributes:
        folders: every folder looked at, with its time of change.
        truncated: there was more than `MAX_ENTRIES`.
    """

    sets: list[FileSet] = field(default_factory=list)
    folders: dict[str, int] = field(default_factory=dict)
    truncated: bool = False


def walk(root: Path) -> Walk:
    """All sets of GGUF files in a folder and its folders.

    Folders whose names begin with a dot are left out (caches, trash, unfinished files), and each folder is entered
    once, so that links cannot lead in circles. What cannot be read is left out.
    """
    found = Walk()
    entered: set[tuple[int, int]] = set()
    n_entries = 0
    waiting = [(os.fspath(root), 0)]
    while waiting:
        folder, depth = waiting.pop()
        names: dict[str, FileStamp] = {}
        below: list[str] = []
        try:
            status = os.stat(folder)  # noqa: PTH116
            if (status.st_dev, status.st_ino) in entered:
                continue
            if status.st_ino:  # some file systems give no number
                entered.add((status.st_dev, status.st_ino))
            found.folders[folder] = status.st_mtime_ns
            with os.scandir(folder) as entries:
                for entry in entries:
                    n_entries += 1
                    _sort_in(entry, names, below)
        except (OSError, ValueError):
            pass
        found.sets += group(folder, names)
        if n_entries > MAX_ENTRIES:
            found.truncated = True
            break
        if depth < MAX_DEPTH:
            waiting += [(path, depth + 1) for path in sorted(below, reverse=True)]
    return found


def _sort_in(entry: os.DirEntry[str], names: dict[str, FileStamp], below: list[str]) -> None:
    name = entry.name
    if name.startswith("."):
        return
    try:
        if name[-5:].lower() == ".gguf":
            status = entry.stat()
            if stat.S_ISREG(status.st_mode):
                names[name] = FileStamp(entry.path, status.st_size, status.st_mtime_ns)
        elif entry.is_dir():
            below.append(entry.path)
    except OSError:  # a link to nowhere, or gone meanwhile
        return


def group(folder: str, names: dict[str, FileStamp]) -> list[FileSet]:
    """Files of one folder as sets, in the order of their names."""
    sets: list[FileSet] = []
    shards: dict[tuple[str, str], dict[int, FileStamp]] = {}
    for name in sorted(names):
        match = _SHARD.match(name)
        if match and 1 < int(match["count"]) <= 9999 and 1 <= int(match["number"]) <= int(match["count"]):
            shards.setdefault((match["stem"], match["count"]), {})[int(match["number"])] = names[name]
        else:
            sets.append(FileSet(folder, [names[name]], names[name].path))
    for (stem, count), parts in shards.items():
        wanted = {number: f"{stem}-{number:05d}-of-{count}.gguf" for number in range(1, int(count) + 1)}
        sets.append(
            FileSet(
                folder,
                [parts[number] for number in sorted(parts)],
                os.path.join(folder, wanted[1]),  # noqa: PTH118
                [name for number, name in wanted.items() if number not in parts],
                int(count),
            )
        )
    return sorted(sets, key=lambda item: item.first)


def single(path: Path) -> FileSet | None:
    """The set that a file belongs to, looked for beside it; None if there is no such file."""
    folder = os.fspath(path.parent)
    match = _SHARD.match(path.name)
    names = {}
    for other in _siblings(path, int(match["count"]) if match else 1):
        try:
            status = os.stat(other)  # noqa: PTH116
        except (OSError, ValueError):
            continue
        if stat.S_ISREG(status.st_mode):
            names[Path(other).name] = FileStamp(other, status.st_size, status.st_mtime_ns)
    return next(iter(group(folder, names)), None)


def _siblings(path: Path, count: int) -> Iterator[str]:
    match = _SHARD.match(path.name)
    if not match or not 1 < count <= 9999:
        yield os.fspath(path)
        return
    for number in range(1, count + 1):
        yield os.fspath(path.with_name(f"{match['stem']}-{number:05d}-of-{match['count']}.gguf"))


def plain_name(path: str) -> str:
    """File name without its ending, and without the number of a part."""
    name = Path(path).name
    match = _SHARD.match(name)
    if match:
        return match["stem"]
    return name[:-5] if name[-5:].lower() == ".gguf" else name


def is_mmproj_name(name: str) -> bool:
    return "mmproj" in name.lower()


def is_draft_name(name: str) -> bool:
    """Small models that only serve to speed up their big one (multi-token prediction, speculative decoding)."""
    return bool(re.match(r"(mtp|draft|eagle3?|dflash)[-_.]", name, re.IGNORECASE))


def shares_name(companion: str, model: str) -> bool:
    """True if a companion file's name holds that of the model without its quantization."""
    words = re.sub(r"[-_.]?(UD-)?(IQ\d|Q\d|BF16|F16|F32|MXFP4|TQ\d).*$", "", plain_name(model), flags=re.IGNORECASE)
    return len(words) > 2 and words.casefold() in companion.casefold()
