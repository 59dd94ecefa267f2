"""The left side of the trace: time line, what the model read, how it was read, what it wrote."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QFontMetricsF, QGuiApplication, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QScrollArea, QSizePolicy, QVBoxLayout, QWidget

from desktop import fonts
from desktop.theme import LIGHT, Theme
from desktop.views.trace import words
from desktop.views.trace.chips import STATES, PromptChips, edge_style, paint_state
from desktop.views.trace.chunk_list import ChunkList
from desktop.views.trace.prompt_text import PromptText, State
from desktop.views.trace.timeline import TimeLegend, TimeLine
from desktop.views.trace.written import WrittenText
from desktop.widgets.elided_label import ElidedLabel
from desktop.widgets.term import explain
from engine.trace import Trace


def link(name: str, text: str, tip: str) -> QPushButton:
    """A button that looks like a word."""
    button = QPushButton(text)
    button.setObjectName(name)
    button.setProperty("kind", "link")
    button.setToolTip(tip)
    button.setAutoDefault(False)
    button.setCursor(Qt.CursorShape.PointingHandCursor)
    return button


class Head(QWidget):
    """A heading, words at its right, and buttons behind them."""

    def __init__(self, title: str, name: str, *buttons: QPushButton, term: str = "") -> None:
        super().__init__()
        self.setObjectName(name)
        self.title = QLabel(title)
        self.title.setProperty("role", "section")
        self.title.setTextFormat(Qt.TextFormat.PlainText)
        if term:
            explain(self.title, term)
        self.note = ElidedLabel()
        self.note.setProperty("role", "label")
        self.note.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 16, 0, 2)
        row.setSpacing(10)
        row.addWidget(self.title)
        row.addWidget(self.note, 1)
        for button in buttons:
            row.addWidget(button)


class StateLegend(QWidget):
    """How many tokens of the prompt came from where, with the marks that the chips have."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("prompt_legend")
        self.setAccessibleName("Where the tokens of the prompt came from")
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self._entries: list[tuple[State, str]] = []
        self._theme, self._scale = LIGHT, 1.0

    def set_text(self, text: PromptText) -> None:
        kept = text.n_cached - text.n_shifted
        restored = min(text.n_restored, max(0, kept))
        counts: tuple[tuple[State, int], ...] = (
            ("cached", max(0, kept - restored)),
            ("restored", restored),
            ("shifted", min(text.n_shifted, text.n_cached)),
            ("read", text.n_read),
            ("unread", len(text) - text.n_cached - text.n_read),
        )
        self._entries = [(state, f"{STATES[state][0]} {n:,}") for state, n in counts if n]
        self.setAccessibleDescription(", ".join(said for _, said in self._entries))
        self.setToolTip(
            "\n".join(f"{said}: {STATES[state][1][:1].lower()}{STATES[state][1][1:]}" for state, said in self._entries)
        )
        self.update()

    @property
    def entries(self) -> list[tuple[State, str]]:
        return self._entries

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self._theme, self._scale = theme, scale
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(200, round(QFontMetricsF(fonts.label_font(self._scale)).height() + 6 * self._scale))

    def minimumSizeHint(self) -> QSize:
        return QSize(80, self.sizeHint().height())

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        font = fonts.label_font(self._scale)
        metrics = QFontMetricsF(font)
        painter.setFont(font)
        x, side = 0.0, 14 * self._scale
        for state, said in self._entries:
            middle = self.height() / 2
            box = QRectF(x + 0.5, middle - 5 * self._scale, side, 10 * self._scale)
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(QPen(self._theme.color("control"), 1, edge_style(state)))
            painter.drawRoundedRect(box, 3, 3)
            paint_state(painter, QPointF(box.left() + 2, box.bottom()), side - 4, state, self._theme)
            painter.setPen(self._theme.color("ink2"))
            x += side + 6 * self._scale
            painter.drawText(QPointF(x, middle + metrics.ascent() / 2 - 1), said)
            x += metrics.horizontalAdvance(said) + 14 * self._scale
        painter.end()


class Sections(QScrollArea):
    """Signals:
    prompt_token_chosen(int), step_chosen(int): by the user. step: one behind the last is the end.
    """

    prompt_token_chosen = Signal(int)
    step_chosen = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("trace_sections")
        self.setWidgetResizable(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.fold = link("prompt_fold", "Show all", "Show every token of the prompt, or fold the middle away")
        self.copy = link("prompt_copy", "Copy", "Copy the prompt exactly as the model got it, as text")
        self.more_chunks = link("chunks_more", "Show all", "Show every step of reading the prompt")
        self.time_head = Head("One request", "time_head", term="trace")
        self.time_line, self.legend = TimeLine(), TimeLegend()
        self.read_head = Head("What the model read", "read_head", self.fold, self.copy, term="prompt")
        self.state_legend, self.chips = StateLegend(), PromptChips()
        self.chunk_head = Head("How it was read", "chunk_head", self.more_chunks, term="chunked_prefill")
        self.chunks = ChunkList()
        self.written_head = Head("What it wrote", "written_head", term="decode")
        self.written = WrittenText()
        self._unfolded = False
        self._growing = self._at_end = False
        self._n_known: int | None = None
        self._build()
        self.verticalScrollBar().valueChanged.connect(self._on_value)
        self.verticalScrollBar().rangeChanged.connect(self._on_range)
        self.fold.clicked.connect(self._toggle_fold)
        self.copy.clicked.connect(lambda: QGuiApplication.clipboard().setText(self.chips.text.text))
        self.more_chunks.clicked.connect(lambda: self.chunks.show_all(True))
        self.chunks.folded.connect(self._on_chunks_folded)
        self.chips.token_chosen.connect(self._on_prompt_token)
        self.written.chosen.connect(self._on_step)

    def _build(self) -> None:
        inner = QWidget()
        inner.setObjectName("trace_sections_inner")
        box = QVBoxLayout(inner)
        box.setContentsMargins(24, 2, 20, 24)
        box.setSpacing(6)
        for part in (
            *(self.time_head, self.time_line, self.legend),
            *(self.read_head, self.state_legend, self.chips),
            *(self.chunk_head, self.chunks),
            *(self.written_head, self.written),
        ):
            box.addWidget(part)
        box.addStretch(1)
        self.setWidget(inner)

    def apply_theme(self, theme: Theme, scale: float) -> None:
        for part in (self.time_line, self.legend, self.state_legend, self.chips, self.chunks, self.written):
            part.apply_theme(theme, scale)

    # ---- content

    def show_trace(self, trace: Trace, *, same_answer: bool) -> None:
        """Show a trace; `same_answer`: it is the one before with more in it."""
        self.time_head.title.setText(words.timeline_title(trace))
        parts = trace.parts()
        self.time_head.note.setText(words.timeline_note(trace))
        self.time_line.set_trace(trace)
        self.legend.set_trace(trace)
        for part in (self.time_line, self.legend):
            part.setVisible(bool(parts))
        self.chunk_head.note.setText(words.chunks_title(trace))
        self.chunks.set_chunks(trace.chunks)
        self.chunk_head.setVisible(bool(trace.chunks))
        self.written.set_steps(trace.steps, trace.end, same_answer=same_answer)
        self._n_known = trace.n_known
        if len(self.chips.text) == trace.n_prompt:
            self._show_known(trace.n_known)
        told = any(step.logprob is not None for step in trace.steps[:8])
        empty = "nothing" if trace.finish_reason is not None and not trace.steps and trace.end is None else ""
        self.written_head.note.setText(
            "tint: how sure it was of each token · click one for the alternatives" if told else empty
        )

    def show_prompt(self, text: PromptText) -> None:
        self.chips.set_text(text)
        self.state_legend.set_text(text)
        if self._n_known is not None:  # more may have been read since it was made ready
            self._show_known(self._n_known)
        exactly = ", exactly" if text.raw and text.raw[0] else ""
        self.read_head.note.setText(f"{words.plural(len(text), 'token')}{exactly}")
        self._unfolded = False
        self.fold.setVisible(bool(self.chips.folds))
        self.fold.setText("Show all")

    def _show_known(self, n_known: int) -> None:
        if n_known != self.chips.text.n_known:
            self.chips.set_known(n_known)
            self.state_legend.set_text(self.chips.text)

    def clear(self) -> None:
        """Nothing is known yet."""
        self._n_known = None
        self.chips.set_text(PromptText([], [], [], bytearray()))
        self.written.set_steps((), None, same_answer=False)
        self.read_head.note.setText("")
        self.fold.hide()
        self.verticalScrollBar().setValue(0)

    def set_growing(self, on: bool) -> None:
        """The answer is being written: where its end is in sight it stays so."""
        self._growing = on

    def _on_value(self, value: int) -> None:
        self._at_end = value >= self.verticalScrollBar().maximum() - 2

    def _on_range(self, _: int, most: int) -> None:
        if self._growing and self._at_end:
            self.verticalScrollBar().setValue(most)

    def choose_step(self, item: int) -> None:
        """Mark a token of the answer; tells nobody."""
        self.chips.set_current(-1)
        self.written.set_current(item)

    def _on_step(self, item: int) -> None:
        self.chips.set_current(-1)
        self.step_chosen.emit(item)

    def _on_prompt_token(self, token: int) -> None:
        self.written.set_current(-1)
        if not self.chips.folds:
            self._unfolded = True
            self.fold.setText("Fold")
        self.prompt_token_chosen.emit(token)

    def _toggle_fold(self) -> None:
        self._unfolded = not self._unfolded
        self.chips.show_all(self._unfolded)
        self.fold.setText("Fold" if self._unfolded else "Show all")

    def _on_chunks_folded(self, n: int) -> None:
        self.more_chunks.setText(f"Show {n:,} more")
        self.more_chunks.setVisible(n > 0)
