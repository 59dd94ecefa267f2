"""The files in which states of chats are kept: their names, and how both sides of a worker get rid of them.

A file belongs to one chat and one identity (model, llama.cpp build, cache settings). Its name is of hashes of both.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

SUFFIX = ".kv"
#: a file that is being put back into a context; it is no more used if that ends the process
TRIED = ".kv-tried"
#: a file that is being written
PART = ".kv-part"
_CHAT_CHARACTERS, _IDENTITY_CHARACTERS = 24, 16


def path_of(folder: Path, key: str, identity: str) -> Path:
    return folder / f"{_chat(key)}-{identity[:_IDENTITY_CHARACTERS]}{SUFFIX}"


def forget(folder: Path, key: str) -> None:
    """Delete all that is kept of a chat, whatever the model. What cannot be deleted stays."""
    for path in ours(folder):
        if belongs_to(path, key):
            with suppress(OSError):
                path.unlink()


def clear(folder: Path) -> None:
    """Delete all of them. What cannot be deleted stays."""
    for path in ours(folder):
        with suppress(OSError):
            path.unlink()


def belongs_to(path: Path, key: str) -> bool:
    return path.name.startswith(f"{_chat(key)}-")


def ours(folder: Path) -> Iterator[Path]:
    """All files of this kind in the folder."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 (a folder that is not there is an empty one)
    except OSError:
        return
    for name in names:
        if name.endswith((SUFFIX, TRIED, PART)):
            yield folder / name


def _chat(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:_CHAT_CHARACTERS]
