"""The verdict of a fit as a chip: a few words, a tone, and a sentence for the tooltip."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QFont, QFontMetrics, QPainter
from PySide6.QtWidgets import QLabel, QWidget

from desktop import figures
from desktop.theme import Theme

if TYPE_CHECKING:
    from engine.fit.plan_records import FitPlan


@dataclass(frozen=True)
class Chip:
    """words: on the chip. tone: "good", "warn", "bad", "neutral" or "accent". tip: what they mean."""

    words: str
    tone: str = "neutral"
    tip: str = ""


UNKNOWN = Chip("unknown", "neutral", "Not enough is known about this model to say whether it fits")
ASKING = Chip("…", "neutral", "Being worked out")


def chip_for(plan: FitPlan | None, *, long: bool = False, on_gpu: bool = True) -> Chip:
    """The verdict in words.

    Args:
        long: there is room: "29 of 37 layers" instead of "29 of 37".
        on_gpu: this machine has a GPU, so that the CPU is second best.
    """
    if plan is None:
        return UNKNOWN
    context = f"{plan.needs.n_ctx:,} tokens of context"
    match plan.verdict:
        case "gpu":
            return Chip("fits", "good", f"Everything fits on the GPU with {context}")
        case "split" if plan.options.n_cpu_moe > 0:
            tip = f"The experts of {plan.options.n_cpu_moe} layers stay in main memory; the rest is on the GPU"
            return Chip("experts on CPU", "warn", f"{tip}, with {context}")
        case "split":
            count = f"{plan.needs.n_gpu_layers} of {plan.n_layers}"
            words = f"{count} layers" if long else count
            return Chip(words, "warn", f"{count} layers fit on the GPU with {context}; the CPU computes the others")
        case "cpu" if on_gpu:
            return Chip("CPU", "neutral", f"Nothing of it fits on the GPU; it runs on the CPU with {context}")
        case "cpu":
            return Chip("fits, CPU" if long else "fits", "good", f"Fits in main memory with {context}")
        case "too_large":
            return Chip("too large", "bad", f"Needs {figures.size(plan.missing_bytes)} more memory than is free")
    return UNKNOWN


class FitChip(QLabel):
    """A chip as a widget."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("fit_chip")
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.set_chip(ASKING)

    def set_chip(self, chip: Chip) -> None:
        self.setText(chip.words)
        self.setToolTip(chip.tip)
        self.setAccessibleName(f"Verdict: {chip.words}")
        self.setAccessibleDescription(chip.tip)
        if self.property("chip") != chip.tone:
            self.setProperty("chip", chip.tone)
            self.style().unpolish(self)
            self.style().polish(self)


_GROUNDS = {"good": "good_soft", "warn": "warn_soft", "bad": "bad_soft", "accent": "accent_soft", "neutral": "hover"}
_INKS = {"good": "good", "warn": "warn", "bad": "bad", "accent": "accent_text", "neutral": "ink2"}


def chip_width(words: str, font: QFont, scale: float) -> float:
    return QFontMetrics(font).horizontalAdvance(words) + 16 * scale


def paint_chip(
    painter: QPainter, room: QRectF, chip: Chip, font: QFont, theme: Theme, scale: float, *, right: bool = True
) -> QRectF:
    """Draw a chip at the right (or left) end of a room, in its middle; gives the place it took."""
    metrics = QFontMetrics(font)
    width = min(chip_width(chip.words, font, scale), room.width())
    height = metrics.height() + 4 * scale
    left = room.right() - width if right else room.left()
    place = QRectF(left, room.center().y() - height / 2, width, height)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(theme.color(_GROUNDS[chip.tone]))
    painter.drawRoundedRect(place, height / 2, height / 2)
    painter.setFont(font)
    painter.setPen(theme.color(_INKS[chip.tone]))
    words = metrics.elidedText(chip.words, Qt.TextElideMode.ElideRight, round(width - 8 * scale))
    painter.drawText(place, Qt.AlignmentFlag.AlignCenter, words)
    return place
