"""Reading the header of a GGUF file that may be hostile.

Format: ggml's docs/gguf.md; verdicts follow ggml's own reader (gguf.cpp) so that nothing passes here that would abort
there. Every count and length is checked against the size of the file before anything is allocated, nothing
recurses, and long lists are kept as their bytes until someone asks for the values.
"""

from __future__ import annotations

import math
import os
import stat
import struct
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from engine.errors import (
    InvalidRequest,
    ModelFileDamaged,
    ModelNotFound,
    NotAModel,
    StorageFailed,
    UnsupportedModel,
)
from engine.models import quant
from engine.models.gguf_header import (
    ARRAY,
    BOOL,
    SCALARS,
    STRING,
    TYPE_NAMES,
    GgufArray,
    GgufHeader,
    TensorInfo,
    text_value,
)
from engine.models.not_gguf import MAGIC, name_the_kind, shown

DEFAULT_ALIGNMENT = 32
#: ggml refuses larger ones only by accident; no real file has more than a page
MAX_ALIGNMENT = 1 << 20
MAX_DIMS = 4
MAX_TENSOR_NAME = 63
MAX_KEY_BYTES = 65535
#: real headers have up to 30 MiB (vocabularies of 260,000 tokens with merges)
MAX_HEADER_BYTES = 512 * 1024 * 1024
#: strings of all lists together; the largest real vocabularies have under a million tokens and merges
MAX_LIST_STRINGS = 8_000_000
_CHUNK = 1024 * 1024
_INT64_MAX = 2**63 - 1

_U32, _I32, _U64, _I64 = SCALARS[4], SCALARS[5], SCALARS[10], SCALARS[11]


class _Reader:
    """Bytes of a file from the front, read in pieces as they are needed and never past its end."""

    def __init__(self, file: BinaryIO, path: Path, size: int) -> None:
        self.file, self.path, self.size = file, path, size
        self.data = bytearray()
        self.base = 0  # position in the file of data[0]
        self.at = 0  # position in data
        self.list_strings = 0

    @property
    def position(self) -> int:
        return self.base + self.at

    def damaged(self, what: str) -> NoReturn:
        raise ModelFileDamaged(
            f"{shown(self.path)} is damaged: {what}",
            hint="Download it again; if it stays so, the file was made wrongly.",
            details={"have_bytes": self.size, "at_byte": self.position},
        )

    def cut_short(self) -> NoReturn:
        self.damaged("its header does not end within the file")

    def need(self, n: int) -> None:
        """Make the next n bytes available in `data`."""
        if self.at + n <= len(self.data):
            return
        if self.position + n > self.size:
            self.cut_short()
        if self.position + n > MAX_HEADER_BYTES:
            self.damaged(f"its header has more than {MAX_HEADER_BYTES >> 20} MiB")
        missing = self.at + n - len(self.data)
        piece = self.file.read(max(missing, _CHUNK))
        if len(piece) < missing:  # the file became shorter while we read
            self.cut_short()
        self.data += piece

    def forget(self) -> None:
        """Drop what was read; only between values."""
        if self.at > _CHUNK:
            del self.data[: self.at]
            self.base += self.at
            self.at = 0

    def number(self, form: struct.Struct) -> Any:
        self.need(form.size)
        (value,) = form.unpack_from(self.data, self.at)
        self.at += form.size
        return value

    def name(self, longest: int) -> str:
        raw = self.string(longest)
        if b"\0" in raw:  # llama.cpp would take it for the shorter name before the NUL
            self.damaged("a name holds a NUL character")
        return raw.decode("utf-8", "backslashreplace")

    def string(self, longest: int) -> bytes:
        size: int = self.number(_U64)
        if size > longest:
            self.damaged(f"a name of {size} bytes is longer than {longest}")
        return self.take(size)

    def take(self, size: int) -> bytes:
        self.need(size)
        self.at += size
        return bytes(self.data[self.at - size : self.at])

    def list_value(self, key: str, max_array: int | None) -> GgufArray:
        type_id: int = self.number(_U32)
        count: int = self.number(_U64)
        if type_id == ARRAY:
            raise UnsupportedModel(
                f"{shown(self.path)} holds a list of lists ({key}), which llama.cpp does not read",
                details={"key": key},
            )
        if type_id != STRING and type_id not in SCALARS:
            self.damaged(f"the list {key} has elements of the unknown type {type_id}")
        least = 8 if type_id == STRING else SCALARS[type_id].size
        if count * least > self.size - self.position:
            self.damaged(f"the list {key} has {count} entries, more than the file can hold")
        begin = self.at
        if type_id == STRING:
            self._walk_strings(key, count)
            raw = bytes(self.data[begin : self.at])
        else:
            raw = self.take(count * least)
        return GgufArray(type_id, count, raw if max_array is None or count <= max_array else None)

    def _walk_strings(self, key: str, count: int) -> None:
        """Step over the strings of a list. Tight loop: vocabularies have 250,000 of them."""
        self.list_strings += count
        if self.list_strings > MAX_LIST_STRINGS:
            self.damaged(f"its lists have more than {MAX_LIST_STRINGS} texts (in {key})")
        at, data, unpack, have = self.at, self.data, _U64.unpack_from, len(self.data)
        for _ in range(count):
            if at + 8 > have:
                self.at = at
                self.need(8)
                have = len(data)
            end = at + 8 + unpack(data, at)[0]
            if end > have:
                self.at = at
                self.need(end - at)
                have = len(data)
            at = end
        self.at = at


def open_regular(path: Path) -> tuple[BinaryIO, int]:
    """Open a regular file and tell its size.

    Raises:
        ModelNotFound, NotAModel (a directory, a device, a pipe), StorageFailed, InvalidRequest.
    """
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise NotAModel(
                f"{shown(path)} is a folder, not a model file",
                hint="Choose a .gguf file inside it.",
                details={"kind": "directory"},
            )
        if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait forever
            raise NotAModel(f"{shown(path)} is not a regular file", details={"kind": "other"})
        return path.open("rb"), status.st_size
    except FileNotFoundError as error:
        raise ModelNotFound(
            f"There is no file {shown(path)}",
            hint="Check the name; it may have been moved or deleted.",
            details={"path": str(path)},
        ) from error
    except OSError as error:
        raise StorageFailed(
            f"{shown(path)} cannot be read: {error.strerror or error}",
            hint="Check the permissions of the file and of the folders above it.",
            details={"path": str(path), "errno": error.errno},
        ) from error
    except ValueError as error:  # a NUL character in the name
        raise InvalidRequest(f"{shown(path)} is not a usable file name", details={"field": "path"}) from error


def read_header(path: str | os.PathLike[str], *, max_array: int | None = None) -> GgufHeader:
    """The header of one file. The weights are not looked at; they may be missing.

    Args:
        max_array: lists longer than this are skipped (their length stays known); None keeps all.

    Raises:
        ModelNotFound, StorageFailed, NotAModel, ModelFileDamaged, UnsupportedModel.
    """
    path = Path(path)
    file, size = open_regular(path)
    try:
        with file:
            return read_header_from(file, path, size, max_array=max_array)
    except OSError as error:
        raise StorageFailed(
            f"{shown(path)} cannot be read: {error.strerror or error}", details={"errno": error.errno}
        ) from error


def read_header_from(file: BinaryIO, path: Path, size: int, *, max_array: int | None = None) -> GgufHeader:
    """The header of an open file of `size` bytes, read from its start. `path` is only the name it is given.

    The file is read forwards after one step back to 0, so that it may also be one that is fetched as it is read.

    Raises:
        NotAModel, ModelFileDamaged, UnsupportedModel; what `file` raises.
    """
    not_gguf = name_the_kind(path, file.read(4096), size)
    if not_gguf:
        raise not_gguf
    file.seek(0)
    return _parse(_Reader(file, path, size), max_array)


def _parse(reader: _Reader, max_array: int | None) -> GgufHeader:
    reader.take(len(MAGIC))
    version: int = reader.number(_U32)
    n_tensors: int = reader.number(_U64)
    n_kv: int = reader.number(_U64)
    room = reader.size - reader.position
    if n_kv * 14 > room:  # key length, one byte of key, type, one byte of value
        reader.damaged(f"it claims {n_kv} metadata entries, more than the file can hold")
    if n_tensors * 24 > room:  # name length, number of dimensions, type, offset
        reader.damaged(f"it claims {n_tensors} tensors, more than the file can hold")
    metadata, value_types = _metadata(reader, n_kv, max_array)
    alignment = _alignment(reader, metadata, value_types)
    tensors = _tensors(reader, n_tensors, alignment)
    data_offset = -(-reader.position // alignment) * alignment
    return GgufHeader(
        path=reader.path,
        version=version,
        metadata=metadata,
        value_types=value_types,
        tensors=tensors,
        data_offset=data_offset,
        alignment=alignment,
        file_size=reader.size,
    )


def _metadata(reader: _Reader, n_kv: int, max_array: int | None) -> tuple[dict[str, Any], dict[str, str]]:
    metadata: dict[str, Any] = {}
    types: dict[str, str] = {}
    for _ in range(n_kv):
        reader.forget()
        key = reader.name(MAX_KEY_BYTES)
        if not key:
            reader.damaged("a metadata entry has no key")
        if key in metadata:
            reader.damaged(f"the metadata key {key} comes twice")
        type_id: int = reader.number(_U32)
        if type_id == STRING:
            metadata[key] = text_value(reader.string(reader.size))
        elif type_id == ARRAY:
            metadata[key] = reader.list_value(key, max_array)
        elif type_id in SCALARS:
            value = reader.number(SCALARS[type_id])
            metadata[key] = bool(value) if type_id == BOOL else value
        else:
            reader.damaged(f"the metadata entry {key} has the unknown type {type_id}")
        types[key] = TYPE_NAMES[type_id]
    return metadata, types


def _alignment(reader: _Reader, metadata: dict[str, Any], types: dict[str, str]) -> int:
    key = "general.alignment"
    if key not in metadata:
        return DEFAULT_ALIGNMENT
    if types[key] != "uint32":  # ggml aborts the process on another type
        reader.damaged(f"{key} is of type {types[key]}, not uint32")
    alignment: int = metadata[key]
    if alignment == 0 or alignment & (alignment - 1) or alignment > MAX_ALIGNMENT:
        reader.damaged(f"{key} is {alignment}; it must be a power of two up to {MAX_ALIGNMENT}")
    return alignment


def _tensors(reader: _Reader, n_tensors: int, alignment: int) -> list[TensorInfo]:
    tensors: list[TensorInfo] = []
    names: set[str] = set()
    expected = 0
    for _ in range(n_tensors):
        name = reader.name(MAX_TENSOR_NAME)
        if name in names:
            reader.damaged(f"the tensor name {name!r} comes twice")
        names.add(name)
        tensor = _tensor(reader, name)
        if tensor.offset != expected:
            reader.damaged(f"tensor {name!r} begins at {tensor.offset} where {expected} is due")
        expected += -(-tensor.n_bytes // alignment) * alignment
        if expected > _INT64_MAX:
            reader.damaged("its tensors together are too large to be true")
        tensors.append(tensor)
    return tensors


def _tensor(reader: _Reader, name: str) -> TensorInfo:
    n_dims: int = reader.number(_U32)
    if n_dims > MAX_DIMS:
        reader.damaged(f"tensor {name!r} has {n_dims} dimensions; {MAX_DIMS} is the most")
    dims = tuple(reader.number(_I64) for _ in range(n_dims))
    if any(size < 0 for size in dims):
        reader.damaged(f"tensor {name!r} has a negative size")
    n_elements = math.prod(dims)
    if math.prod(max(size, 1) for size in dims) > _INT64_MAX:
        reader.damaged(f"tensor {name!r} has sizes whose product is too large to be true")
    type_id: int = reader.number(_I32)
    layout = quant.TENSOR_TYPES.get(type_id)
    if layout is None:
        if not 0 <= type_id < 1024:
            reader.damaged(f"tensor {name!r} has the impossible type {type_id}")
        raise UnsupportedModel(
            f"{shown(reader.path)} uses a quantization that this version does not know "
            f"({quant.tensor_type_name(type_id)})",
            hint="Choose another quantization of the model, or update Inglenook.",
            details={"tensor_type": type_id, "tensor": name},
        )
    row = dims[0] if dims else 1
    if row % layout.block_size:
        reader.damaged(f"rows of tensor {name!r} ({row}) are no whole blocks of {layout.name}")
    offset: int = reader.number(_U64)
    return TensorInfo(name, dims, type_id, offset, quant.tensor_bytes(type_id, n_elements))
