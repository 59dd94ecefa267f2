"""Swatch, word and size of each part of a model."""

from __future__ import annotations

from typing import cast

from PySide6.QtCore import QPoint, QRectF
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import QWidget

from desktop.theme import Theme
from desktop.views.anatomy import words
from desktop.views.anatomy.picture import paint_part
from desktop.widgets.legend import Legend
from engine.anatomy import KINDS, Anatomy, Kind


class PartsLegend(Legend):
    """Of the parts that a model has, what each takes in all places together."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("parts_legend", "Legend of the picture", _paint_key, parent)
        self.entries: tuple[tuple[Kind, str], ...] = ()

    def show_anatomy(self, found: Anatomy) -> None:
        sums: dict[Kind, int] = {}
        for piece in (piece for row in found.rows for piece in row.pieces):
            sums[piece.kind] = sums.get(piece.kind, 0) + piece.n_bytes
        self.entries = tuple((kind, words.size(sums[kind])) for kind in KINDS if sums.get(kind))
        self.set_words([(kind, f"{words.PARTS[kind].words} {size}") for kind, size in self.entries])
        self.setToolTip("\n".join(f"{words.PARTS[kind].words}: {words.PARTS[kind].tip}" for kind, _ in self.entries))

    def term_at(self, place: QPoint) -> str:
        """The glossary's term of the entry at a place."""
        kind = self.key_at(place)
        return words.PARTS[cast(Kind, kind)].term if kind else ""


def _paint_key(painter: QPainter, rect: QRectF, kind: str, theme: Theme) -> None:
    paint_part(painter, rect, cast(Kind, kind), theme)
