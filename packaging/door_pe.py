"""Which libraries a Windows program or library needs, read from its file (PE/COFF), on any system."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

IMPORTS, DELAYED = 1, 13
"""Places in the table of data directories."""

MACHINES = {0x014C: "x86", 0x8664: "x64", 0xAA64: "arm64"}


class NotPe(ValueError):
    """The file is no program or library of Windows."""


@dataclass(frozen=True)
class Image:
    """What was read of a file.

    Attributes:
        machine: "x64", "x86", "arm64", or a number.
        subsystem: 2 is a program with windows, 3 one with a console.
        needs: names of libraries that are loaded with it. later: those that are loaded when first used.
    """

    machine: str
    subsystem: int
    needs: tuple[str, ...]
    later: tuple[str, ...]


def read(path: Path) -> Image:
    """Raises NotPe, OSError."""
    data = path.read_bytes()
    try:
        return _read(data)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise NotPe(f"{path.name} is cut short or damaged ({error})") from error


def _read(data: bytes) -> Image:
    if data[:2] != b"MZ":
        raise NotPe("it does not begin as a program does")
    (start,) = struct.unpack_from("<I", data, 0x3C)
    if data[start : start + 4] != b"PE\0\0":
        raise NotPe("it is a program for DOS")
    machine, n_sections, _, _, _, optional_size, _ = struct.unpack_from("<HHIIIHH", data, start + 4)
    optional = start + 24
    (magic,) = struct.unpack_from("<H", data, optional)
    directories = optional + (112 if magic == 0x20B else 96)
    (subsystem,) = struct.unpack_from("<H", data, optional + 68)
    (n_directories,) = struct.unpack_from("<I", data, directories - 4)
    sections: list[tuple[int, int, int]] = []
    for number in range(n_sections):
        at = optional + optional_size + 40 * number
        size, address, raw_size, raw = struct.unpack_from("<IIII", data, at + 8)
        sections.append((address, max(size, raw_size), raw))

    def offset(address: int) -> int:
        for first, size, raw in sections:
            if first <= address < first + size:
                return raw + address - first
        raise NotPe("an address in it leads nowhere")

    def names(directory: int, entry: int, field: int) -> tuple[str, ...]:
        if directory >= n_directories:
            return ()
        (address,) = struct.unpack_from("<I", data, directories + 8 * directory)
        found: list[str] = []
        at = offset(address) if address else 0
        while address and len(found) < 4096:
            (name,) = struct.unpack_from("<I", data, at + field)
            if not name:
                break
            begin = offset(name)
            found.append(data[begin : data.index(b"\0", begin)].decode("ascii"))
            at += entry
        return tuple(found)

    kind = MACHINES.get(machine, hex(machine))
    return Image(kind, subsystem, names(IMPORTS, 20, 12), names(DELAYED, 32, 4))
