"""How the prompt was read: the steps of the prefill with the time that each took."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QFontMetricsF, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from desktop import fonts
from desktop.theme import LIGHT, Theme
from desktop.views.trace import words
from desktop.widgets.memory_bar import paint_stretch
from engine.trace import Chunk

#: so many are shown until all are asked for
FEW = 5


class ChunkList(QWidget):
    """A line for each step: its tokens, a bar of its time, the time, the rate.

    Signals:
        folded(int): so many steps are not shown.
    """

    folded = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("chunk_list")
        self.setAccessibleName("Steps of reading the prompt")
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self._chunks: tuple[Chunk, ...] = ()
        self._all = False
        self._theme, self._scale = LIGHT, 1.0

    def set_chunks(self, chunks: Sequence[Chunk]) -> None:
        self._chunks = tuple(chunks)
        lines = (words.chunk_words(chunk) for chunk in self._chunks)
        self.setAccessibleDescription(". ".join(f"tokens {s}, {took}, {rate} tok/s" for s, _, took, rate in lines))
        self._refresh()

    def show_all(self, on: bool) -> None:
        self._all = on
        self._refresh()

    @property
    def shown(self) -> tuple[Chunk, ...]:
        """The steps that have a line."""
        return self._chunks if self._all or len(self._chunks) <= FEW + 1 else self._chunks[:FEW]

    def _refresh(self) -> None:
        self.folded.emit(len(self._chunks) - len(self.shown))
        self.setVisible(len(self._chunks) > 1)  # one step has no more to tell than the time line
        self.updateGeometry()
        self.update()

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self._theme, self._scale = theme, scale
        self.updateGeometry()
        self.update()

    @property
    def _line(self) -> float:
        return round(20 * self._scale)

    def sizeHint(self) -> QSize:
        return QSize(320, round(self._line * max(1, len(self.shown))))

    def minimumSizeHint(self) -> QSize:
        return QSize(160, self.sizeHint().height())

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        font = fonts.label_font(self._scale)
        painter.setFont(font)
        metrics = QFontMetricsF(font)
        shown = self.shown
        rows = [words.chunk_words(chunk) for chunk in shown]
        gap = 14 * self._scale
        first = max((metrics.horizontalAdvance(f"tokens {row[0]}") for row in rows), default=0.0)
        took = max((metrics.horizontalAdvance(row[2]) for row in rows), default=0.0)
        rate = max((metrics.horizontalAdvance(f"{row[3]} tok/s") for row in rows), default=0.0)
        longest = max((chunk.took_s for chunk in self._chunks), default=0.0)
        bar = min(max(0.0, self.width() - first - took - rate - 3 * gap), 420 * self._scale)
        lines = event.rect()
        for number, (chunk, row) in enumerate(zip(shown, rows, strict=True)):
            top = number * self._line
            if top > lines.bottom() or top + self._line < lines.top():
                continue
            painter.setPen(self._theme.color("ink2"))
            left = Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft
            right = Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignRight
            painter.drawText(QRectF(0, top, first + 2, self._line), int(left), f"tokens {row[0]}")
            if bar > 20 and longest > 0:
                height = 8 * self._scale
                area = QRectF(first + gap, top + (self._line - height) / 2, bar, height)
                painter.fillRect(area, self._theme.color("mem_free"))
                area.setWidth(max(2.0, bar * max(0.0, chunk.took_s) / longest))
                paint_stretch(painter, area, "mem_weights", "solid", self._theme)
            x = first + (bar + 2 * gap if bar > 20 else gap)
            painter.drawText(QRectF(x, top, took, self._line), int(right), row[2])
            painter.drawText(QRectF(x + took + gap, top, rate, self._line), int(right), f"{row[3]} tok/s")
        painter.end()
