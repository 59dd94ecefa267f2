"""Writes GGUF files byte by byte, also ones that no honest writer would make."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARR, U64, I64, F64 = range(13)
_CODES = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q", I64: "q", F64: "d"}


def string(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def value(type_id: int, content: Any) -> bytes:
    """A value without its type; of a list `content` is (element type, items)."""
    if type_id == STR:
        return string(content)
    if type_id == ARR:
        item_type, items = content
        head = struct.pack("<IQ", item_type, len(items))
        return head + b"".join(value(item_type, item) for item in items)
    return struct.pack(f"<{_CODES[type_id]}", content)


def entry(key: str | bytes, type_id: int, content: Any) -> bytes:
    return string(key) + struct.pack("<I", type_id) + value(type_id, content)


def tensor(name: str | bytes, dims: Sequence[int], type_id: int, offset: int) -> bytes:
    sizes = struct.pack(f"<{len(dims)}q", *dims)
    return string(name) + struct.pack("<I", len(dims)) + sizes + struct.pack("<iQ", type_id, offset)


@dataclass
class Maker:
    """A GGUF file in parts. Whatever is set here is written as it is, sound or not."""

    magic: bytes = b"GGUF"
    version: int = 3
    entries: list[bytes] = field(default_factory=list)
    tensors: list[bytes] = field(default_factory=list)
    n_entries: int | None = None
    n_tensors: int | None = None
    alignment: int = 32
    data: bytes = b""

    def add(self, key: str | bytes, type_id: int, content: Any) -> Maker:
        self.entries.append(entry(key, type_id, content))
        return self

    def header(self) -> bytes:
        n_tensors = len(self.tensors) if self.n_tensors is None else self.n_tensors
        n_entries = len(self.entries) if self.n_entries is None else self.n_entries
        counts = struct.pack("<IQQ", self.version, n_tensors % 2**64, n_entries % 2**64)
        return self.magic + counts + b"".join(self.entries) + b"".join(self.tensors)

    def bytes(self) -> bytes:
        head = self.header()
        return head + bytes(-len(head) % self.alignment) + self.data

    def write(self, path: Path) -> Path:
        path.write_bytes(self.bytes())
        return path


def small_model(n_tensors: int = 3, rows: int = 4, architecture: str = "llama") -> Maker:
    """A sound file in form (no model): F32 tensors of `rows` x 8."""
    maker = Maker().add("general.architecture", STR, architecture)
    size = rows * 8 * 4
    for index in range(n_tensors):
        maker.tensors.append(tensor(f"blk.{index}.weight", (8, rows), 0, index * size))
    maker.data = bytes(size * n_tensors)
    return maker
