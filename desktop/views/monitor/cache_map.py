"""The KV cache as a map of squares: which chat holds how much of it, what is shared, and what is free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QEvent, QPoint, QPointF, QRectF, QSize
from PySide6.QtGui import QHelpEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from desktop import figures
from desktop.theme import LIGHT, Theme
from desktop.widgets.legend import Legend
from desktop.widgets.memory_bar import paint_stretch
from engine.events import KvMap, KvSequence

#: kind -> (colour of the theme, hatching, what it is)
KINDS: dict[str, tuple[str, str, str]] = {
    "shared": ("mem_compute", "falling", "The beginning that several chats have in common; it is kept once"),
    "this": ("mem_weights", "solid", "Tokens of the chat on screen, with their keys and values"),
    "moved": ("mem_kv", "rising", "Tokens that were moved to here when older turns had been left out, not read again"),
    "other": ("mem_other", "upright", "Tokens of other chats, kept so that they go on at once"),
    "free": ("mem_free", "solid", "Cells that hold nothing yet"),
}


@dataclass(frozen=True)
class Run:
    """Cells beside each other on the map. saved: they are on disk, too."""

    kind: str
    n_cells: int
    name: str = ""
    saved: bool = False

    @property
    def words(self) -> str:
        saved = ", on disk too" if self.saved else ""
        return f"{self.name} {self.n_cells:,}{saved}"


def runs_of(kv: KvMap, on_screen: int | None, titles: dict[int, str]) -> list[Run]:
    """What lies on the map: shared beginnings first, then the chat on screen, then the others, then what is free."""
    this = [s for s in kv.sequences if on_screen is not None and s.chat_id == on_screen]
    ordered = [*this, *(s for s in kv.sequences if s not in this)]
    runs: list[Run] = []
    n_shared = sum(s.n_shared_new for s in kv.sequences)
    if n_shared:
        runs.append(Run("shared", n_shared, "shared prefix"))
    for sequence in ordered:
        runs += _own(sequence, "this" if sequence in this else "other", titles)
    free = kv.n_ctx - sum(run.n_cells for run in runs)
    if not kv.sequences and kv.n_used:  # only the sum is known
        runs = [Run("other", kv.n_used, "in use")]
        free = kv.n_ctx - kv.n_used
    if free > 0:
        runs.append(Run("free", free, "free"))
    return runs


def _own(sequence: KvSequence, kind: str, titles: dict[int, str]) -> list[Run]:
    name = "this chat" if kind == "this" else titles.get(sequence.chat_id or 0, "another request")
    first, end = sequence.n_shared, sequence.n_cells
    moved_from = max(first, sequence.moved_from) if sequence.n_own_moved else end
    moved_to = moved_from + sequence.n_own_moved
    stretches = [(first, moved_from, kind), (moved_from, moved_to, "moved"), (moved_to, end, kind)]
    runs = []
    for start, stop, what in stretches:
        for a, b, saved in ((start, min(stop, sequence.n_saved), True), (max(start, sequence.n_saved), stop, False)):
            if b > a:
                runs.append(Run(what, b - a, name if what == kind else f"{name}, moved", saved))
    return runs


class CacheMap(QWidget):
    """Squares of equally many cells each."""

    def __init__(self, rows: int = 6, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("cache_map")
        self.setAccessibleName("Map of the KV cache")
        self._most_rows = rows
        self._theme, self._scale = LIGHT, 1.0
        self.runs: tuple[Run, ...] = ()
        self._total = 0
        policy = QSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setSizePolicy(policy)
        self._fit()

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self._theme, self._scale = theme, scale
        self._fit()

    def _fit(self) -> None:
        self.setFixedHeight(round(self._side() * self._most_rows))
        self.update()

    def _side(self) -> float:
        return 10.0 * max(1.0, self._scale)

    def set_runs(self, runs: Sequence[Run]) -> None:
        new = tuple(runs)
        if new == self.runs:
            return
        self.runs, self._total = new, sum(run.n_cells for run in new)
        self.setAccessibleDescription(", ".join(run.words for run in new))
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(280, self.height())

    def minimumSizeHint(self) -> QSize:
        return QSize(120, self.height())

    def _grid(self) -> tuple[int, int]:
        """(columns, squares)."""
        columns = max(8, int((self.width() + 1) / self._side()))
        return columns, columns * self._most_rows

    def _at(self, place: QPoint) -> Run | None:
        columns, squares = self._grid()
        column, row = int(place.x() / ((self.width() + 1) / columns)), int(place.y() / self._side())
        if not (0 <= column < columns and 0 <= row < self._most_rows):
            return None
        return self._places(squares)[row * columns + column]

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            run = self._at(event.pos())
            each = self._total / self._grid()[1]
            words = f"{run.words} tokens\n{KINDS[run.kind][2]}\nEach square: {each:.1f} cells" if run else ""
            QToolTip.showText(event.globalPos(), words, self)
            return True
        return super().event(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        columns, squares = self._grid()
        side = self._side()
        across = (self.width() + 1) / columns  # to the right edge
        places = self._places(squares)
        for number in range(squares):
            run = places[number]
            x, y = number % columns * across, number // columns * side
            token, pattern, _ = KINDS[run.kind if run is not None else "free"]
            rect = QRectF(x, y + 0.5, across - 2, side - 2)
            paint_stretch(painter, rect, token, pattern, self._theme)
            if run is not None and run.saved:
                painter.setPen(QPen(self._theme.color("ink"), 1.2))
                painter.drawLine(QPointF(rect.left(), rect.bottom()), QPointF(rect.right(), rect.bottom()))

    def _places(self, squares: int) -> list[Run | None]:
        """What each square shows. Whatever there is has at least one."""
        places: list[Run | None] = []
        done = 0
        for index, run in enumerate(self.runs):
            done += run.n_cells
            left = len(self.runs) - index - 1
            end = min(round(done / max(1, self._total) * squares), squares - left)
            places += [run] * max(1, end - len(places))
        places = places[:squares]
        return places + [None] * (squares - len(places))


class CacheLegend(Legend):
    """Swatch, name and tokens of each run, in as many lines as the width asks for."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("cache_legend", "Legend of the map, in tokens", _paint_key, parent, outlined=["free", "saved"])

    def set_runs(self, runs: Sequence[Run]) -> None:
        sums: dict[tuple[str, str], int] = {}
        for run in runs:
            sums[run.kind, run.name] = sums.get((run.kind, run.name), 0) + run.n_cells
        new = tuple((kind, f"{name} {figures.count(n)}") for (kind, name), n in sums.items())
        if any(run.saved for run in runs):
            new = (*new, ("saved", "on disk too"))
        self.set_words(new)


def _paint_key(painter: QPainter, rect: QRectF, kind: str, theme: Theme) -> None:
    token, pattern, _ = KINDS.get(kind, KINDS["free"])
    paint_stretch(painter, rect, token, pattern, theme)
    if kind == "saved":
        painter.setPen(QPen(theme.color("ink"), 1.6))
        painter.drawLine(rect.bottomLeft(), rect.bottomRight())
