"""The starter model: what a fresh installation chats with, and how a model's name becomes a path."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import InvalidRequest, ModelNotFound
from engine.models.gguf import shard_paths
from engine.models.not_gguf import shown
from engine.paths import is_file

if TYPE_CHECKING:
    from engine.paths import Paths

NAME = "SmolLM2 135M"
FILE_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
SIZE_BYTES = 98_362_432
#: names that mean the starter wherever a model is named
ALIASES = ("starter", "Starter", NAME)


def _gguf_files(folder: Path) -> list[Path]:
    try:
        return sorted(p for p in folder.iterdir() if p.suffix.lower() == ".gguf" and is_file(p))
    except OSError:  # absent, no folder, not readable: nothing to offer from here
        return []


def _places(models: Path | None) -> Iterator[Path]:
    named = os.environ.get("INGLENOOK_STARTER")
    if named:
        yield Path(named)
    yield from _gguf_files(Path(sys.prefix) / "share" / "inglenook" / "starter")
    frozen = getattr(sys, "_MEIPASS", None)
    if frozen:
        yield from _gguf_files(Path(frozen) / "resources" / "starter")
    if models is not None:
        yield models / FILE_NAME


def find(models: Path | None = None) -> Path | None:
    """The starter's file, or None if this installation has none.

    Looked for in `$INGLENOOK_STARTER`, `<prefix>/share/inglenook/starter/`, the resources of a packaged application,
    and the folder `models` (of the profile).
    """
    return next((path for path in _places(models) if is_file(path)), None)


def is_starter(path: str | os.PathLike[str], models: Path | None = None) -> bool:
    """True for the file that `find` gives, under any spelling of its path."""
    found = find(models)
    try:
        return found is not None and found.samefile(path)
    except (OSError, ValueError):
        return False


def resolve_model(name_or_path: str | os.PathLike[str], paths: Paths | None = None, recent: Iterable[str] = ()) -> Path:
    """The file that a user means: "starter", a path, or the name of a file in the models folder or used before.

    A later shard of a split model becomes its first, if that is there.

    Raises:
        ModelNotFound: with a hint that says where was looked.
        InvalidRequest: an empty name, or one that no file can have.
    """
    name = os.fspath(name_or_path)
    if not name or "\0" in name:
        raise InvalidRequest("No model is named", details={"field": "model"})
    models = paths.models if paths is not None else None
    direct = _expanded(name)
    if name in ALIASES and not is_file(direct):
        starter = find(models)
        if starter is None:
            raise ModelNotFound(
                "The starter model is not installed",
                hint="Give the path of a GGUF file, or set INGLENOOK_STARTER to one.",
                details={"file": FILE_NAME},
            )
        return starter
    problem = _problem(direct)
    if problem is None:
        return _first_shard(direct)
    found = _by_file_name(name, models, recent)
    if found:
        return _first_shard(found)
    where = f" Looked in {shown(models)} too." if models is not None else ""
    raise ModelNotFound(
        f"There is no model {shown(name)}{problem}",
        hint=f'Give the path of a GGUF file, the name of one in the models folder, or "starter".{where}',
        details={"model": name},
    )


def _problem(path: Path) -> str | None:
    """What is wrong with a path, as the end of a sentence: empty where nothing is there, None for nothing."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        return f": {error.strerror}" if error.strerror else ""
    except ValueError:
        return ""
    return None


def _expanded(name: str) -> Path:
    try:
        return Path(name).expanduser()
    except RuntimeError:  # "~someone" without such a user: then it is a plain name
        return Path(name)


def _by_file_name(name: str, models: Path | None, recent: Iterable[str]) -> Path | None:
    """A known file whose name, or name without its ending, is `name`; capital letters do not matter."""
    if Path(name).name != name:
        return None
    wanted = {name.casefold(), f"{name}.gguf".casefold()}
    candidates = [*(_gguf_files(models) if models is not None else ()), *map(Path, recent)]
    return next((p for p in candidates if p.name.casefold() in wanted and is_file(p)), None)


def _first_shard(path: Path) -> Path:
    first = shard_paths(path)[0]
    return first if is_file(first) else path
