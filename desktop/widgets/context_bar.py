"""The context window as a bar of kinds: system prompt, turns, what would be left out, the draft, the room behind.

Each kind has its colour and its hatching, the same in the meter, in the list and wherever else it is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QRectF
from PySide6.QtGui import QPainter, QPainterPath

from desktop.theme import Theme
from desktop.widgets.memory_bar import paint_stretch

_RADIUS = 2.0
_LEAST = 2.0


@dataclass(frozen=True)
class ContextKind:
    """token: colour of the theme. words: in lists. tip: what it is, in a sentence. pattern: how it is hatched."""

    token: str
    words: str
    tip: str
    pattern: str = "solid"


KINDS: dict[str, ContextKind] = {
    "system": ContextKind("mem_compute", "system prompt", "What stands before the first turn", "falling"),
    "dropped": ContextKind("mem_other", "left out", "Turns that no longer fit and would not be sent", "upright"),
    "pinned": ContextKind("mem_kv", "pinned turns", "Turns that stay because a message in them is pinned", "rising"),
    "history": ContextKind("mem_weights", "earlier turns", "What was said before, with what the template writes"),
    "draft": ContextKind("accent", "your message", "What you are writing, not sent yet"),
    "written": ContextKind("accent", "the answer", "What has been written of the answer"),
    "answer": ContextKind("accent_soft", "kept for the answer", "Room that the answer can fill"),
    "free": ContextKind("mem_free", "free", "Tokens that nothing needs yet"),
}


@dataclass(frozen=True)
class Segment:
    """One stretch of the bar; `kind` is a key of `KINDS`."""

    kind: str
    n_tokens: int

    @property
    def words(self) -> str:
        return f"{KINDS[self.kind].words} {self.n_tokens:,}"


def place(segments: Sequence[Segment], total: int, width: float) -> list[tuple[Segment, float, float]]:
    """(segment, left, width) of each stretch in pixels; narrow ones can still be seen. Free room is what is left."""
    shown = [segment for segment in segments if segment.n_tokens > 0 and segment.kind != "free"]
    whole = max(total, sum(segment.n_tokens for segment in shown), 1)
    scale = width / whole
    taken = sum(max(0.0, _LEAST - segment.n_tokens * scale) for segment in shown)
    scale *= max(0.0, 1 - taken / max(width, 1.0))
    left = 0.0
    placed = []
    for segment in shown:
        stretch = min(max(_LEAST, segment.n_tokens * scale), width - left)
        if stretch > 0:
            placed.append((segment, left, stretch))
            left += stretch
    return placed


def paint(painter: QPainter, rect: QRectF, segments: Sequence[Segment], total: int, theme: Theme) -> None:
    """The whole bar."""
    painter.save()
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    outline = QPainterPath()
    outline.addRoundedRect(rect, _RADIUS, _RADIUS)
    painter.fillPath(outline, theme.color("mem_free"))
    painter.setClipPath(outline)
    for segment, left, width in place(segments, total, rect.width()):
        kind = KINDS[segment.kind]
        stretch = QRectF(rect.left() + left, rect.top(), width, rect.height())
        paint_stretch(painter, stretch, kind.token, kind.pattern, theme)
        if width > 2 * _LEAST:
            painter.fillRect(QRectF(stretch.right() - 1, rect.top(), 1, rect.height()), theme.color("paper"))
    painter.restore()


def paint_swatch(painter: QPainter, rect: QRectF, kind: str, theme: Theme) -> None:
    """A small square of one kind."""
    painter.save()
    path = QPainterPath()
    path.addRoundedRect(rect, _RADIUS, _RADIUS)
    painter.setClipPath(path)
    paint_stretch(painter, rect, KINDS[kind].token, KINDS[kind].pattern, theme)
    painter.restore()
    if kind in ("free", "answer"):
        painter.setPen(theme.color("control" if kind == "answer" else "hairline"))
        painter.drawPath(path)
