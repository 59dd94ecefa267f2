"""Icon files of Windows (.ico) and macOS (.icns), put together from the drawn PNG files."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

from door_steps import StepError

ICO_SIZES = (16, 24, 32, 48, 64, 256)
LARGEST_BITMAP = 64
"""Larger ones are PNG inside the .ico; some programs show small ones only as bitmaps."""

ICNS_TYPES = (
    *((b"icp4", 16), (b"icp5", 32), (b"icp6", 64), (b"ic07", 128), (b"ic08", 256), (b"ic09", 512)),
    *((b"ic11", 32), (b"ic12", 64), (b"ic13", 256), (b"ic14", 512)),
)
"""Entries and their pixels; the second row is for screens of double density (16@2x, 32@2x, 128@2x, 256@2x)."""

_PNG = b"\x89PNG\r\n\x1a\n"


def png_of(root: Path, size: int) -> bytes:
    """The drawn icon in one size. Raises StepError."""
    path = root / "packaging" / "linux" / "icons" / f"inglenook-{size}.png"
    try:
        data = path.read_bytes()
    except OSError:
        raise StepError(f"{path.name} is not there: draw it with packaging/render_icons.py") from None
    if data[:8] != _PNG or struct.unpack(">II", data[16:24]) != (size, size):
        raise StepError(f"{path} is no PNG of {size} pixels")
    return data


def ico(root: Path) -> bytes:
    """The icon for Windows. Raises StepError."""
    entries = [
        (size, _bitmap(png_of(root, size)) if size <= LARGEST_BITMAP else png_of(root, size)) for size in ICO_SIZES
    ]
    at = 6 + 16 * len(entries)
    head, body = [struct.pack("<HHH", 0, 1, len(entries))], []
    for size, data in entries:
        head.append(struct.pack("<BBBBHHII", size % 256, size % 256, 0, 0, 1, 32, len(data), at))
        body.append(data)
        at += len(data)
    return b"".join([*head, *body])


def icns(root: Path) -> bytes:
    """The icon for macOS. Raises StepError."""
    parts = []
    for kind, size in ICNS_TYPES:
        data = png_of(root, size)
        parts.append(kind + struct.pack(">I", len(data) + 8) + data)
    body = b"".join(parts)
    return b"icns" + struct.pack(">I", len(body) + 8) + body


def pixels(png: bytes) -> tuple[int, int, bytes]:
    """Width, height and the RGBA bytes of a PNG of 8 bits, not interlaced, with alpha. Raises StepError."""
    width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", png[16:29])
    if (depth, colour, interlaced) != (8, 6, 0):
        raise StepError("an icon is not a plain PNG with 8 bits of red, green, blue and alpha")
    data, at = bytearray(), 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        if png[at + 4 : at + 8] == b"IDAT":
            data += png[at + 8 : at + 8 + length]
        at += 12 + length
    raw, stride = zlib.decompress(bytes(data)), 4 * width
    rows, above = bytearray(), bytearray(stride)
    for y in range(height):
        start = y * (stride + 1)
        row = _unfiltered(raw[start], bytearray(raw[start + 1 : start + 1 + stride]), above)
        rows += row
        above = row
    return width, height, bytes(rows)


def _unfiltered(kind: int, row: bytearray, above: bytearray) -> bytearray:
    """Undo the filter of a row (PNG specification, 9.2)."""
    for x in range(len(row)):
        left = row[x - 4] if x >= 4 else 0
        corner = above[x - 4] if x >= 4 else 0
        guess = (0, left, above[x], (left + above[x]) // 2, _paeth(left, above[x], corner))[kind]
        row[x] = (row[x] + guess) & 255
    return row


def _paeth(left: int, up: int, corner: int) -> int:
    guess = left + up - corner
    return min((left, up, corner), key=lambda value: abs(guess - value))


def _bitmap(png: bytes) -> bytes:
    """A bitmap as it stands in an .ico: from the last row to the first, blue first, then the mask of one bit."""
    width, height, rgba = pixels(png)
    rows, mask = [], []
    for y in reversed(range(height)):
        row = rgba[4 * width * y : 4 * width * (y + 1)]
        swapped = bytearray(row)
        swapped[0::4], swapped[2::4] = row[2::4], row[0::4]
        rows.append(bytes(swapped))
        bits = sum(1 << (width - 1 - x) for x in range(width) if row[4 * x + 3] == 0)
        stride = (width + 31) // 32 * 4
        mask.append((bits << (8 * stride - width)).to_bytes(stride, "big"))
    head = struct.pack("<IiiHHIIiiII", 40, width, 2 * height, 1, 32, 0, 0, 0, 0, 0, 0)
    return b"".join([head, *rows, *mask])
