"""Where the parts of a model are painted: columns for places, rows for layers, widths for bytes."""

from __future__ import annotations

from dataclasses import dataclass, field

from PySide6.QtCore import QRectF
from PySide6.QtGui import QFontMetrics

from desktop import fonts
from engine.anatomy import Anatomy, Row

#: lines of the picture -> height of one and the gap below it, at scale 1
_HEIGHTS = ((34, 16, 4), (52, 12, 3), (90, 9, 2), (1 << 30, 6, 1))
_GAP = 14.0
#: pixels between what is painted and the frame around it
EDGE = 6.0
#: the widest row fills at most so many lines; the scale follows from it
_MOST_LINES = 8
_LEAST_PIECE = 1.5


@dataclass
class Geometry:
    """All of it, in pixels.

    Attributes:
        gutter: width of the names at the left. head: height of the headings.
        line, bar: height of a line, and of what is painted in it.
        columns: (left, width) of each place. tops: of each row, and the bottom of the last.
        spots: (row, place in the row's pieces, rectangle); a piece may have several.
    """

    gutter: float = 0.0
    head: float = 0.0
    line: float = 16.0
    bar: float = 12.0
    columns: list[tuple[float, float]] = field(default_factory=list)
    tops: list[float] = field(default_factory=list)
    spots: list[tuple[int, int, QRectF]] = field(default_factory=list)

    def row_at(self, y: float) -> int:
        """The row at this height, -1 where there is none."""
        return next((row for row in range(len(self.tops) - 1) if self.tops[row] <= y < self.tops[row + 1]), -1)


def lay_out(found: Anatomy, width: float, scale: float) -> Geometry:
    """Lay a model out in this width. scale: the user's text size."""
    made = Geometry()
    small = QFontMetrics(fonts.label_font(scale))
    made.gutter = small.horizontalAdvance("embedding") + 16 * scale
    made.head = small.height() * 2 + 18 * scale
    names = [place.name for place in found.places]
    column = max(24.0, (width - made.gutter - EDGE - _GAP * (len(names) - 1)) / len(names))
    made.columns = [(made.gutter + i * (column + _GAP), column) for i in range(len(names))]
    unit = _unit(found)
    n_lines = [max(1, *(-(-size // unit) for size in _sums(row).values())) for row in found.rows]
    height, gap = next((h, g) for most, h, g in _HEIGHTS if sum(n_lines) <= most)
    made.line, made.bar = height * scale, (height - gap) * scale
    top = made.head
    for number, (row, lines) in enumerate(zip(found.rows, n_lines, strict=True)):
        made.tops.append(top)
        _lay_row(made, names, number, row, top, unit)
        top += lines * made.line
    made.tops.append(top)
    return made


def _sums(row: Row) -> dict[str, int]:
    """Bytes of a row by place; never empty."""
    sums = {"": 0}
    for piece in row.pieces:
        sums[piece.place] = sums.get(piece.place, 0) + piece.n_bytes
    return sums


def _unit(found: Anatomy) -> int:
    """Bytes that the width of a column stands for."""
    layers = [max(_sums(row).values()) for row in found.rows if row.layer >= 0]
    widest = max(max(_sums(row).values()) for row in found.rows)
    return max(1, *layers, -(-widest // _MOST_LINES))


def _lay_row(made: Geometry, names: list[str], number: int, row: Row, top: float, unit: int) -> None:
    reached = dict.fromkeys(names, 0)
    for place, piece in enumerate(row.pieces):
        left, column = made.columns[names.index(piece.place)]
        at, end = reached[piece.place], reached[piece.place] + piece.n_bytes
        reached[piece.place] = end
        while at < end:
            line, offset = divmod(at, unit)
            upto = min(end, (line + 1) * unit)
            x, wide = left + offset / unit * column, (upto - at) / unit * column
            rect = QRectF(x, top + line * made.line, max(_LEAST_PIECE, wide), made.bar)
            made.spots.append((number, place, rect))
            at = upto
