"""What a model weighs: the size that its bits promise beside the real one, and each tensor type with its bits."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QFontMetrics, QPainter, QPainterPath, QPaintEvent
from PySide6.QtWidgets import QLabel, QSizePolicy, QVBoxLayout, QWidget

from desktop import fonts
from desktop.theme import LIGHT, Theme
from desktop.views.anatomy import words
from desktop.widgets.memory_bar import paint_stretch
from desktop.widgets.plain_table import Column, PlainTable
from desktop.widgets.term import explain
from engine.anatomy import Anatomy

_MOST_TYPES = 8
_COLUMNS = (
    Column("Type", "How the numbers of a tensor are packed", least="IQ3_XXS"),
    Column("Bits", "Bits per weight, with the scales of its blocks", right=True, least="16.00"),
    Column("Parameters", "Numbers that are stored in this type", right=True, least="8.19 B", first_to_go=1),
    Column("Size", "What they take together", right=True, least="999 MiB"),
    Column("Used in", "Parts of the model that have tensors of this type", grows=True, first_to_go=2),
)
#: stretches of a bar: bytes, (colour token, hatching); a bar: its caption and they
_Stretches = tuple[tuple[int, tuple[str, str]], ...]
_Bar = tuple[str, _Stretches]
_IDEAL, _SCALES, _FINER = ("mem_weights", "solid"), ("mem_weights", "upright"), ("mem_weights", "falling")


class SizeBars(QWidget):
    """The ideal size above the real one, on one scale."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("size_bars")
        self.setAccessibleName("Ideal and real size")
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self._theme, self._scale = LIGHT, 1.0
        self._bars: tuple[_Bar, ...] = ()

    @property
    def captions(self) -> tuple[str, ...]:
        return tuple(caption for caption, _ in self._bars)

    def show_anatomy(self, found: Anatomy) -> None:
        ideal, finer = found.ideal_bytes, found.finer_bytes
        bars: list[_Bar] = []
        parts: _Stretches
        if found.nominal_bits is not None and ideal is not None and finer is not None:
            bars.append((f"ideal, {words.bits(found.nominal_bits)} bits each: {words.size(ideal)}", ((ideal, _IDEAL),)))
            parts = ((ideal + min(0, finer), _IDEAL), (found.scale_bytes, _SCALES), (max(0, finer), _FINER))
        else:
            parts = ((found.n_bytes, _IDEAL),)
        bars.append((f"real, {words.bits(found.bits)} bits each: {words.size(found.n_bytes)}", parts))
        self._bars = tuple(bars)
        said = words.ideal_words(found)
        self.setAccessibleDescription(said)
        self.setToolTip(said)
        self.updateGeometry()
        self.update()

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self._theme, self._scale = theme, scale
        self.updateGeometry()
        self.update()

    def _step(self) -> float:
        return QFontMetrics(fonts.label_font(self._scale)).height() + 28 * self._scale

    def sizeHint(self) -> QSize:
        return QSize(240, round(self._step() * max(1, len(self._bars))))

    def minimumSizeHint(self) -> QSize:
        return QSize(120, self.sizeHint().height())

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        font = fonts.label_font(self._scale)
        metrics = QFontMetrics(font)
        painter.setFont(font)
        whole = max((sum(size for size, _ in parts) for _, parts in self._bars), default=1) or 1
        y = 0.0
        for caption, parts in self._bars:
            painter.setPen(self._theme.color("ink3"))
            painter.drawText(QPointF(0, y + metrics.ascent()), caption)
            top = y + metrics.height() + 4 * self._scale
            path = QPainterPath()
            width = sum(size for size, _ in parts) / whole * self.width()
            path.addRoundedRect(QRectF(0, top, width, 14 * self._scale), 4, 4)
            painter.save()
            painter.setClipPath(path)
            left = 0.0
            for size, (token, pattern) in parts:
                wide = max(0.0, size / whole * self.width())
                paint_stretch(painter, QRectF(left, top, wide, 14 * self._scale), token, pattern, self._theme)
                left += wide
                painter.fillRect(QRectF(left - 1, top, 1, 14 * self._scale), self._theme.color("paper"))
            painter.restore()
            y += self._step()


class WeightsPanel(QWidget):
    """Bars, a sentence on the difference, and a table of the types."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("weights_panel")
        heading = QLabel("What it weighs")
        heading.setProperty("role", "section")
        explain(heading, "bits_per_weight")
        self.bars = SizeBars()
        explain(self.bars, "quantization", "")
        self.words = QLabel()
        self.words.setObjectName("ideal_words")
        self.words.setProperty("role", "small")
        self.words.setWordWrap(True)
        self.words.setTextFormat(Qt.TextFormat.PlainText)
        self.table = PlainTable("tensor_types", "Tensor types of the model", _COLUMNS, most_rows=_MOST_TYPES)
        explain(self.table, "tensor_types", "")
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(8)
        box.addWidget(heading)
        box.addWidget(self.bars)
        box.addWidget(self.words)
        box.addWidget(self.table)
        box.addStretch(1)

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self.bars.apply_theme(theme, scale)
        self.table.apply_theme(theme, scale)

    def show_anatomy(self, found: Anatomy) -> None:
        self.bars.show_anatomy(found)
        said = [words.ideal_words(found)]
        if found.tied:
            said.append("The output has no numbers of its own: it uses those of the embedding.")
        if found.not_loaded_bytes:
            said.append(f"{words.size(found.not_loaded_bytes)} of the file are not loaded.")
        self.words.setText(" ".join(said))
        rows, tips = [], []
        for share in found.types:
            used = ", ".join(words.PARTS[kind].words for kind in share.kinds)
            rows.append(
                (share.name, words.bits(share.bits), words.count(share.n_params), words.size(share.n_bytes), used)
            )
            tips.append((f"{share.n_tensors} tensors", "", f"{share.n_params:,}", f"{share.n_bytes:,} bytes", used))
        self.table.set_rows(rows, tips)
