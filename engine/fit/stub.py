"""Weightless copies of models: hyper-parameters and the tensor table, no vocabulary, a hole where the weights were.

llama.cpp lays such a file out exactly as it would the model itself. It needs a header only, so it can be made before a
model is downloaded, and it takes some ten to a hundred kilobytes of disk whatever its apparent size. A split model
becomes one file.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.errors import StorageFailed, UnsupportedModel
from engine.models.gguf_header import ARRAY, BOOL, SCALARS, STRING, TYPE_NAMES, GgufArray, GgufHeader

_ALIGNMENT = 32
#: more than any file system holds; a table that adds up to more is nonsense
MAX_APPARENT_BYTES = 1 << 43
_TYPE_IDS = {name: number for number, name in enumerate(TYPE_NAMES)}
_UINT32 = 4


def stub_bytes(headers: Sequence[GgufHeader]) -> tuple[bytes, int]:
    """The beginning of a stub file and the size that the file has to have.

    Args:
        headers: of the model's file, or of all its parts, the first of which has the metadata.

    Raises:
        UnsupportedModel: the tensors are larger together than any file.
    """
    metadata = _metadata(headers[0], _vocabulary(headers))
    tensors = [tensor for header in headers for tensor in header.tensors]
    parts = [struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(metadata)), *metadata]
    offset = 0
    for tensor in tensors:
        dims = tensor.dims
        parts.append(_string(tensor.name) + struct.pack(f"<I{len(dims)}qIQ", len(dims), *dims, tensor.type, offset))
        offset += -(-tensor.n_bytes // _ALIGNMENT) * _ALIGNMENT
    data = b"".join(parts)
    size = -(-len(data) // _ALIGNMENT) * _ALIGNMENT + offset
    if size > MAX_APPARENT_BYTES:
        raise UnsupportedModel(f"The model's tensors would take {size:,} bytes, more than a file can have")
    return data, size


def digest(data: bytes) -> str:
    """Name of a stub by its content."""
    return hashlib.sha256(data).hexdigest()


def write_stub(headers: Sequence[GgufHeader], folder: Path) -> Path:
    """Write the stub of a model into a folder, named by its content. One that is there already is kept.

    Raises:
        StorageFailed: the folder is on a full disk or on a file system without files of such a size.
        UnsupportedModel: see `stub_bytes`.
    """
    data, size = stub_bytes(headers)
    path = folder / f"{digest(data)}.gguf"
    if path.exists() and path.stat().st_size == size:
        return path
    partial = path.with_suffix(f".{os.getpid()}.part")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            if sys.platform == "win32":
                _make_sparse(file.fileno())
            file.write(data)
            file.truncate(size)
        partial.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise StorageFailed(
            f"No model of {size:,} bytes can be laid out in {folder}: {error.strerror or error}",
            details={"path": str(folder), "errno": error.errno},
        ) from error
    return path


def _make_sparse(descriptor: int) -> None:
    """NTFS fills the hole with real blocks unless it is told not to (FSCTL_SET_SPARSE)."""
    import ctypes
    import importlib

    handle = importlib.import_module("msvcrt").get_osfhandle(descriptor)
    returned = ctypes.c_ulong(0)
    kernel: Any = ctypes.CDLL("kernel32")
    kernel.DeviceIoControl(
        ctypes.c_void_p(handle), 0x900C4, None, 0, None, 0, ctypes.byref(returned), ctypes.c_void_p(0)
    )


def _vocabulary(headers: Sequence[GgufHeader]) -> int:
    for header in headers:
        for tensor in header.tensors:
            if tensor.name == "token_embd.weight" and len(tensor.dims) > 1:
                return tensor.dims[1]
    tokens = headers[0].metadata.get("tokenizer.ggml.tokens")
    return len(tokens) if isinstance(tokens, GgufArray) else 0


def _metadata(header: GgufHeader, n_vocab: int) -> list[bytes]:
    """Entries of the stub: all of the model's but what is about text, parts and alignment."""
    found = []
    size_key = f"{header.architecture}.vocab_size"
    for key, value in header.metadata.items():
        kind = header.value_types.get(key, "")
        if key.startswith("split.") or key in ("general.alignment", "tokenizer.chat_template"):
            continue
        if key.startswith("tokenizer.") and not kind.startswith(("int", "uint")):
            continue
        entry = _value(value, kind)
        if entry is not None:
            found.append(_string(key) + entry)
    found.append(_string("tokenizer.ggml.model") + _typed(STRING) + _string("no_vocab"))
    if size_key not in header.metadata and n_vocab:
        found.append(_string(size_key) + _typed(_UINT32) + struct.pack("<I", min(n_vocab, 2**32 - 1)))
    return found


def _value(value: Any, kind: str) -> bytes | None:
    if isinstance(value, GgufArray):
        if not value.kept:
            return None
        item = _TYPE_IDS[value.item_type]
        head = _typed(ARRAY) + struct.pack("<IQ", item, len(value))
        if item == STRING:
            return head + b"".join(_string(text) for text in value)
        return head + b"".join(SCALARS[item].pack(number) for number in value)
    number = _TYPE_IDS.get(kind)
    if number is None:
        return None
    if number == STRING:
        return _typed(STRING) + _string(value)
    return _typed(number) + SCALARS[number].pack(int(value) if number == BOOL else value)


def _typed(number: int) -> bytes:
    return struct.pack("<I", number)


def _string(text: str | bytes) -> bytes:
    raw = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(raw)) + raw
