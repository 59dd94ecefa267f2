"""Memory as a bar of kinds: weights, KV cache, compute, other programs, free.

Each kind has its colour and its hatching, the same in every bar, chart and legend, so that they can be told apart
without colours. All of it is painted here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QPoint, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPainterPath, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from desktop import figures, terms
from desktop.theme import LIGHT, Theme
from desktop.widgets.legend import Legend
from desktop.widgets.term import explain

_STEP = 5.0
_GAP = 1.0
_RADIUS = 4.0


@dataclass(frozen=True)
class Kind:
    """token: colour of the theme. words: in legends. tip: the term in one sentence. pattern: how it is hatched."""

    token: str
    words: str
    tip: str
    pattern: str


KINDS: dict[str, Kind] = {
    "weights": Kind("mem_weights", "weights", "The model's own numbers, read from the file", "solid"),
    "kv": Kind("mem_kv", "KV", "KV cache: what the model keeps of every token of the context", "rising"),
    "compute": Kind("mem_compute", "compute", "Scratch memory for computing, and what a first answer adds", "falling"),
    "other": Kind("mem_other", "other programs", "Memory that other programs hold now", "upright"),
    "free": Kind("mem_free", "free", "Memory that stays free", "solid"),
}


@dataclass(frozen=True)
class Part:
    """One stretch of a bar; `kind` is a key of `KINDS`."""

    kind: str
    n_bytes: int


def gib(n_bytes: int) -> str:
    """A figure for sums that stand beside each other: GiB with two digits, no unit."""
    return f"{max(0, n_bytes) / 1024**3:.2f}"


def stripes(kind: str, rect: QRectF) -> list[tuple[QPointF, QPointF]]:
    """The hatching of a kind inside a rectangle, as lines; the painter has to be clipped to it."""
    return hatching(KINDS[kind].pattern, rect)


def hatching(pattern: str, rect: QRectF) -> list[tuple[QPointF, QPointF]]:
    """The lines of a pattern: "solid" (none), "upright", "rising", "falling"."""
    if pattern == "solid":
        return []
    if pattern == "upright":
        places = [rect.left() + 2 + i * (_STEP - 1) for i in range(int(rect.width() / (_STEP - 1)) + 1)]
        return [(QPointF(x, rect.top()), QPointF(x, rect.bottom())) for x in places]
    height = rect.height()
    count = int((rect.width() + height) / (_STEP + 1)) + 2
    lines = []
    for i in range(count):
        x = rect.left() - height + i * (_STEP + 1)
        if pattern == "rising":
            lines.append((QPointF(x, rect.bottom()), QPointF(x + height, rect.top())))
        else:
            lines.append((QPointF(x, rect.top()), QPointF(x + height, rect.bottom())))
    return lines


def paint_kind(painter: QPainter, rect: QRectF, kind: str, theme: Theme) -> None:
    """One stretch: colour and hatching."""
    paint_stretch(painter, rect, KINDS[kind].token, KINDS[kind].pattern, theme)


def paint_stretch(painter: QPainter, rect: QRectF, token: str, pattern: str, theme: Theme) -> None:
    """A rectangle in a colour of the theme, hatched."""
    painter.fillRect(rect, theme.color(token))
    lines = hatching(pattern, rect)
    if not lines:
        return
    painter.save()
    painter.setClipRect(rect, Qt.ClipOperation.IntersectClip)
    colour = QColor(theme.paper)
    colour.setAlpha(150)
    painter.setPen(QPen(colour, 1.4))
    for start, end in lines:
        painter.drawLine(start, end)
    painter.restore()


def layout_parts(parts: Sequence[Part], total_bytes: int, width: float) -> list[tuple[str, float, float]]:
    """(kind, left, width) of each stretch, in pixels. What is more than the total shortens all in proportion."""
    used = sum(max(0, part.n_bytes) for part in parts if part.kind != "free")
    whole = max(total_bytes, used, 1)
    left = 0.0
    placed = []
    for part in parts:
        if part.kind == "free" or part.n_bytes <= 0:
            continue
        stretch = max(2.0, part.n_bytes / whole * width)
        stretch = min(stretch, width - left)
        if stretch > 0:
            placed.append((part.kind, left, stretch))
            left += stretch
    return placed


def paint_bar(painter: QPainter, rect: QRectF, parts: Sequence[Part], total_bytes: int, theme: Theme) -> None:
    """The whole bar. Where more is wanted than there is, a line marks the end of the real memory."""
    painter.save()
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    outline = QPainterPath()
    outline.addRoundedRect(rect, _RADIUS, _RADIUS)
    painter.fillPath(outline, theme.color("mem_free"))
    painter.setClipPath(outline)
    for kind, left, width in layout_parts(parts, total_bytes, rect.width()):
        paint_kind(painter, QRectF(rect.left() + left, rect.top(), width, rect.height()), kind, theme)
        edge = rect.left() + left + width
        if edge < rect.right() - 1:
            painter.fillRect(QRectF(edge - _GAP, rect.top(), _GAP, rect.height()), theme.color("paper"))
    used = sum(max(0, part.n_bytes) for part in parts if part.kind != "free")
    if 0 < total_bytes < used:
        end = rect.left() + total_bytes / used * rect.width()
        painter.fillRect(QRectF(end - 2, rect.top(), 1, rect.height()), theme.color("paper"))
        painter.fillRect(QRectF(end - 1, rect.top(), 3, rect.height()), theme.color("bad"))
        painter.fillRect(QRectF(end + 2, rect.top(), 1, rect.height()), theme.color("paper"))
    painter.restore()


def words_of(parts: Sequence[Part], total_bytes: int) -> str:
    """The bar as a sentence."""
    said = [f"{KINDS[p.kind].words} {figures.size(p.n_bytes)}" for p in parts if p.n_bytes > 0 and p.kind != "free"]
    used = sum(max(0, p.n_bytes) for p in parts if p.kind != "free")
    if used > total_bytes:
        said.append(f"{figures.size(used - total_bytes)} more than the {figures.size(total_bytes)} there are")
    else:
        said.append(f"{figures.size(total_bytes - used)} of {figures.size(total_bytes)} stay free")
    return ", ".join(said)


class MemoryBar(QWidget):
    """One device's memory."""

    def __init__(self, name: str = "", height: int = 22, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = LIGHT
        self._height = height
        self._parts: tuple[Part, ...] = ()
        self._total = 0
        self.setObjectName("memory_bar")
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(name or "Memory")
        explain(self, terms.MEMORY["free"], "")

    def apply_theme(self, theme: Theme) -> None:
        self._theme = theme
        self.update()

    def set_parts(self, parts: Sequence[Part], total_bytes: int) -> None:
        """Show these stretches of `total_bytes`; "free" is what is left and need not be given."""
        new = tuple(parts)
        if (new, total_bytes) == (self._parts, self._total):
            return
        self._parts, self._total = new, total_bytes
        words = words_of(new, total_bytes)
        self.setAccessibleDescription(words)
        self.setToolTip(words)
        self.update()

    @property
    def parts(self) -> tuple[Part, ...]:
        return self._parts

    @property
    def total_bytes(self) -> int:
        return self._total

    def term_at(self, place: QPoint) -> str:
        """The term of the stretch at a place; empty where it is free."""
        for kind, left, width in layout_parts(self._parts, self._total, self.width()):
            if left <= place.x() < left + width:
                return terms.MEMORY[kind]
        return ""

    @property
    def over_bytes(self) -> int:
        """What is wanted beyond the total."""
        return max(0, sum(part.n_bytes for part in self._parts if part.kind != "free") - self._total)

    def sizeHint(self) -> QSize:
        return QSize(280, self._height)

    def minimumSizeHint(self) -> QSize:
        return QSize(80, self._height)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint_bar(painter, QRectF(self.rect()), self._parts, self._total, self._theme)


class MemoryLegend(Legend):
    """Swatch, word and figure of each kind."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("memory_legend", "Legend of the memory bars, in GiB", paint_kind, parent, outlined=["free"])
        self._entries: tuple[tuple[str, str], ...] = ()
        explain(self, terms.MEMORY["free"], "")

    def set_entries(self, entries: Sequence[tuple[str, str]]) -> None:
        """(kind, figure) of each entry, for instance ("weights", "5.29 + 0.51")."""
        self._entries = tuple(entries)
        self.set_words([(kind, f"{KINDS[kind].words} {figure}".strip()) for kind, figure in entries])
        self.setToolTip("\n".join(f"{KINDS[kind].words}: {KINDS[kind].tip}" for kind, _ in entries))

    def term_at(self, place: QPoint) -> str:
        """The term of the entry at a place."""
        kind = self.key_at(place)
        return terms.MEMORY[kind] if kind else ""

    @property
    def entries(self) -> tuple[tuple[str, str], ...]:
        return self._entries
