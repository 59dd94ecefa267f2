"""What a GGUF header says, as records. Reading it from bytes is in `gguf_format`."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import msgspec

STRING, BOOL, ARRAY = 8, 7, 9
#: how each number of the format is packed, by type id
SCALARS: dict[int, struct.Struct] = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    BOOL: struct.Struct("<B"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
TYPE_NAMES = (
    *("uint8", "int8", "uint16", "int16", "uint32", "int32", "float32"),
    *("bool", "string", "array", "uint64", "int64", "float64"),
)


def text_value(raw: bytes) -> str | bytes:
    """A string value; the bytes themselves where they are not UTF-8, so that one bad value spoils no other."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw


class GgufArray(Sequence[Any]):
    """A list of a header, decoded when it is read.

    Attributes:
        item_type: the element type's name ("string", "int32", ...).
        kept: False if the values were left out on request (`max_array` of `read_header`); its length is still known.
    """

    __slots__ = ("_count", "_raw", "_type", "_values", "item_type", "kept")

    def __init__(self, type_id: int, count: int, raw: bytes | None) -> None:
        self._type, self._count, self._raw = type_id, count, raw
        self._values: list[Any] | None = None
        self.item_type = TYPE_NAMES[type_id]
        self.kept = raw is not None

    def _decoded(self) -> list[Any]:
        if self._values is not None:
            return self._values
        raw = self._raw
        if raw is None:
            raise ValueError("this list was left out when the header was read")
        if self._type == STRING:
            values: list[Any] = []
            at = 0
            for _ in range(self._count):
                (size,) = SCALARS[10].unpack_from(raw, at)
                at += 8 + size
                values.append(text_value(raw[at - size : at]))
        else:
            code = SCALARS[self._type].format[1:]
            values = list(struct.unpack(f"<{self._count}{code}", raw))
            if self._type == BOOL:
                values = [bool(value) for value in values]
        self._values, self._raw = values, b""
        return values

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return self._decoded()[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._decoded())

    def __repr__(self) -> str:
        return f"<{self._count} x {self.item_type}>"


class TensorInfo(msgspec.Struct, frozen=True):
    """One row of the tensor table.

    Attributes:
        dims: sizes as in the file, the fastest running one first.
        type: ggml type id (`quant.TENSOR_TYPES`).
        offset: bytes from the header's `data_offset`.
        n_bytes: size without padding.
    """

    name: str
    dims: tuple[int, ...]
    type: int
    offset: int
    n_bytes: int

    @property
    def n_elements(self) -> int:
        return math.prod(self.dims)


class GgufHeader(msgspec.Struct, frozen=True):
    """All of a GGUF file but the weights.

    Attributes:
        metadata: key -> int, float, bool, str, bytes (a string that is not UTF-8) or `GgufArray`.
        value_types: key -> type name in the file ("uint32", "string", "array", ...).
        data_offset: where the weights begin, in bytes.
    """

    path: Path
    version: int
    metadata: dict[str, Any]
    value_types: dict[str, str]
    tensors: list[TensorInfo]
    data_offset: int
    alignment: int
    file_size: int

    @property
    def architecture(self) -> str:
        return self.text("general.architecture")

    @property
    def need_bytes(self) -> int:
        """Least size of a complete file: up to the last byte of the last tensor."""
        ends = (t.offset + t.n_bytes for t in self.tensors)
        return self.data_offset + max(ends, default=0) if self.tensors else 0

    @property
    def split_count(self) -> int:
        """Files this model is spread over; 1 for a single file."""
        return max(1, self.integer("split.count") or 1)

    @property
    def split_number(self) -> int:
        """Index of this file in its set, from 0."""
        return self.integer("split.no") or 0

    def text(self, key: str) -> str:
        """A string value; "" if it is absent, no string, or not UTF-8."""
        value = self.metadata.get(key)
        return value if isinstance(value, str) else ""

    def integer(self, key: str) -> int | None:
        value = self.metadata.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def integers(self, key: str) -> list[int]:
        """A value that may be one number or one per layer, as a list; empty if absent or of another type."""
        value = self.metadata.get(key)
        if isinstance(value, int):
            return [int(value)]
        if isinstance(value, GgufArray) and value.kept and value.item_type.startswith(("int", "uint", "bool")):
            return [int(item) for item in value]
        return []

    def of_architecture(self, key: str) -> int | None:
        """Value of `<architecture>.<key>`; the largest where it is a list with one number per layer."""
        values = self.integers(f"{self.architecture}.{key}")
        return max(values, default=None)
