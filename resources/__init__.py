"""Data files that ship with the program, read through importlib.resources (a frozen build has them too)."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path


def _entry(name: str) -> Traversable:
    entry = files(__name__)
    for part in name.split("/"):
        entry = entry.joinpath(part)
    return entry


def path(name: str) -> Path:
    """Path of a file of this package, for instance "fonts/JetBrainsMono-Regular.ttf".

    Raises:
        FileNotFoundError: there is no such file.
    """
    found = Path(str(_entry(name)))
    if not found.exists():
        raise FileNotFoundError(f"resource {name} is missing: {found}")
    return found


def text(name: str) -> str:
    """Content of a UTF-8 text file of this package.

    Raises:
        FileNotFoundError: there is no such file.
    """
    return _entry(name).read_text(encoding="utf-8")


def data(name: str) -> bytes:
    """Content of a file of this package.

    Raises:
        FileNotFoundError: there is no such file.
    """
    return _entry(name).read_bytes()
