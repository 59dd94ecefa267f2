"""What the model wrote: the answer token by token, tinted by how sure the model was of each."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPen

from desktop import fonts
from desktop.theme import Theme
from desktop.views.trace import pieces, words
from desktop.views.trace.flow import Measure, TokenFlow, token_font
from engine.trace import Step

#: of the accent over the paper, for a token that was all but impossible
_STRONGEST = 0.55
#: a probability from which on there is no tint worth painting
_SURE = 0.97


def tint(p: float) -> float:
    """How strongly a token of this probability is tinted, from 0 to 1: nothing when sure, linear below."""
    return 0.0 if p >= _SURE else min(1.0, max(0.0, 1.0 - p))


class WrittenText(TokenFlow):
    """The tokens of an answer; items are its steps, and behind them the token that ended it."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("written_tokens")
        self.setAccessibleName("Tokens of the answer")
        self._steps: list[Step] = []
        self._texts: list[str] = []
        self._end: Step | None = None
        self._decoder = pieces.Decoder()
        self._set_fonts()

    # ---- content

    def set_steps(self, steps: Sequence[Step], end: Step | None, *, same_answer: bool) -> None:
        """Show these.

        Args:
            same_answer: what was shown is the beginning of these; only what is new is laid out.
        """
        if not same_answer or len(steps) < len(self._steps):
            self._steps, self._texts = [], []
            self._decoder = pieces.Decoder()
            self.set_current(-1)
            self.restart()
        elif self._end is not None:  # its place is behind what comes now
            self.restart(measured=len(self._steps))
        self._end = end
        fresh = steps[len(self._steps) :]
        self._steps.extend(fresh)
        self._texts.extend(self._decoder.add(step.piece) for step in fresh)
        self.go_on()

    @property
    def steps(self) -> list[Step]:
        return self._steps

    def step(self, item: int) -> Step:
        """The step of an item; the last item can be the end."""
        if item == len(self._steps) and self._end is not None:
            return self._end
        return self._steps[item]

    def is_end(self, item: int) -> bool:
        """Whether an item is the token that ended the answer."""
        return item == len(self._steps)

    # ---- look

    def apply_theme(self, theme: Theme, scale: float) -> None:
        if scale != self.scale:
            self.scale = scale
            self._set_fonts()
            self.rows.widths.clear()
        super().apply_theme(theme, scale)

    def _set_fonts(self) -> None:
        self._font = token_font(self.scale)
        self._small = fonts.mono_font(self.scale, step=-2)
        self._measure, self._small_measure = Measure(self._font), Measure(self._small)
        self.rows.height = QFontMetricsF(self._font).height() + 12 * self.scale

    # ---- items

    def count(self) -> int:
        return len(self._steps) + (self._end is not None)

    def _label(self, item: int) -> str:
        if self.is_end(item):
            return pieces.label(self.step(item).piece)
        return pieces.shortened(pieces.marked(self._texts[item], " "), 80)

    def width_of(self, item: int) -> float:
        if self.is_end(item):
            return self._small_measure.width(self._label(item)) + 16 * self.scale
        return max(self._measure.width(self._label(item)), 3.0)

    def breaks_after(self, item: int) -> bool:
        return not self.is_end(item) and "\n" in self._texts[item]

    def paint_item(self, painter: QPainter, item: int, area: QRectF) -> None:
        step, theme = self.step(item), self.theme
        box = area.adjusted(0, 3 * self.scale, 0, -3 * self.scale)
        if self.is_end(item):
            self._paint_end(painter, item, box.adjusted(4 * self.scale, 0, 0, 0))
            return
        p = words.probability(step)
        strength = tint(p) if p is not None else 0.0
        if strength > 0:
            colour = QColor(theme.accent)
            colour.setAlphaF(_STRONGEST * strength)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(colour)
            painter.drawRoundedRect(box, 3, 3)
        if item in (self.current, self.hovered):
            self._paint_frame(painter, box, chosen=item == self.current)
        quiet = step.channel == "reasoning" or self._texts[item] in ("\n", "\n\n", pieces.PART)
        painter.setFont(self._font)
        painter.setPen(theme.color("ink2" if quiet else "ink"))
        painter.drawText(box, int(Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft), self._label(item))
        if step.drafted or step.forced:
            painter.setPen(QPen(theme.color("ink3"), 1, Qt.PenStyle.DotLine if step.drafted else Qt.PenStyle.SolidLine))
            painter.drawLine(box.bottomLeft(), box.bottomRight())

    def _paint_frame(self, painter: QPainter, box: QRectF, *, chosen: bool) -> None:
        pen = QPen(self.theme.color("accent" if chosen else "control"), 2 if chosen and self.hasFocus() else 1.5)
        painter.setPen(pen)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRoundedRect(box.adjusted(0.5, 0.5, -0.5, -0.5), 4, 4)

    def _paint_end(self, painter: QPainter, item: int, box: QRectF) -> None:
        picked = item == self.current
        painter.setPen(QPen(self.theme.color("accent" if picked else "hairline"), 1.5 if picked else 1))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRoundedRect(box.adjusted(0.5, 1, -0.5, -1), 4, 4)
        painter.setFont(self._small)
        painter.setPen(self.theme.color("ink3"))
        painter.drawText(box, int(Qt.AlignmentFlag.AlignCenter), self._label(item))

    # ---- words

    def tip_of(self, item: int) -> str:
        step = self.step(item)
        head = f"<b>{escape(pieces.label(step.piece))}</b> {words.percent(words.probability(step))}"
        notes = [text for text in (self._note(step),) if text]
        rows = "".join(
            f"<tr><td>{escape(line.rpartition('  ')[0])}&nbsp;&nbsp;</td>"
            f"<td align='right'>{escape(line.rpartition('  ')[2])}</td></tr>"
            for line in words.alternatives_words(step).splitlines()
        )
        table = f"<table>{rows}</table>" if rows else ""
        return "<br>".join([head, *map(escape, notes)]) + table

    @staticmethod
    def _note(step: Step) -> str:
        said = []
        if step.channel == "reasoning":
            said.append("thinking")
        if step.forced:
            said.append("given, not chosen")
        if step.drafted:
            said.append("guessed ahead and found right")
        if step.n_rejected:
            said.append(f"{step.n_rejected:,} {'guess' if step.n_rejected == 1 else 'guesses'} thrown away")
        return ", ".join(said)

    def note_of(self, item: int) -> str:
        """What is special about how a token came, "" for most."""
        return self._note(self.step(item))

    def spoken_of(self, item: int) -> str:
        step = self.step(item)
        said = [pieces.spoken(step.piece), words.percent(words.probability(step)), self._note(step)]
        return ", ".join(text for text in said if text)
