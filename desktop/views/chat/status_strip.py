"""Under the transcript: how much of the context is used, and what was measured of the answer."""

from __future__ import annotations

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QVBoxLayout, QWidget

from desktop import figures, fonts, terms
from desktop.models import context
from desktop.speeds import Speeds
from desktop.theme import Theme
from desktop.widgets.context_bar import Segment
from desktop.widgets.context_meter import ContextMeter
from desktop.widgets.figure_label import FigureLabel
from desktop.widgets.term import explain
from engine.events import ContextLedger, ModelInfo

_REFRESH_MS = 500

_TIPS = {
    "ttft": "Time to first token (TTFT): from your message to the first piece of the answer, in seconds",
    "prefill": "Prefill: how fast the prompt is read, in tokens per second; reused tokens do not count",
    "decode": "Decode: how fast the answer is written, in tokens per second: (tokens - 1) / time after the first",
    "window": "Memory of this program without the model: the window's process (resident set), measured",
    "worker": "Memory of the model's process (resident set, mapped weights included), measured",
}
_NAMES = {
    "ttft": "first token",
    "prefill": "prefill",
    "decode": "decode",
    "window": "app",
    "worker": "model",
}
#: what is given up first where the window is narrow
_LESS_NEEDED = ("worker", "window", "prefill")
_SPACING = 14


class StatusStrip(QWidget):
    """Shows measured figures; a dash where there is none.

    Signals:
        refreshed(Speeds): what it shows now. pressed: the list behind the context meter is wanted.
    """

    refreshed = Signal(object)
    pressed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("status_strip")
        self._speeds = Speeds()
        self._n_ctx = 0
        self._ledger: ContextLedger | None = None
        self._has_draft = False
        self._writes = False  # an answer is written, or its figures are newer than the ledger
        self.meter = ContextMeter()
        tip = "Context window (n_ctx): tokens the model can see at once. Press to see every turn"
        explain(self.meter, "context_window", tip)
        self.meter.clicked.connect(self.pressed)
        self.context = FigureLabel()
        self.context.setObjectName("context_text")
        self.context.setProperty("role", "label")
        explain(
            self.context, "context_window", "Tokens in the context window of the loaded model, and how many are left"
        )
        top = QHBoxLayout()
        top.setSpacing(12)
        top.addWidget(self.meter, 1)
        top.addWidget(self.context)
        self._values: dict[str, QLabel] = {}
        self._figures = QWidget()
        row = QHBoxLayout(self._figures)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(_SPACING)
        for key in ("ttft", "prefill", "decode"):
            row.addWidget(self._value(key))
        row.addStretch(1)
        for key in ("window", "worker"):
            row.addWidget(self._value(key))
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 4, 0, 4)
        layout.setSpacing(4)
        layout.addWidget(self._figures)
        layout.addLayout(top)
        self._refresh = QTimer(self)
        self._refresh.setSingleShot(True)
        self._refresh.setInterval(_REFRESH_MS)
        self._refresh.timeout.connect(self._show)
        self._memory: tuple[int | None, int | None] = (None, None)
        self._show()

    def _value(self, key: str) -> QLabel:
        label = FigureLabel()
        label.setObjectName(f"status_{key}")
        label.setProperty("role", "label")
        explain(label, terms.STATUS[key], _TIPS[key])
        label.setTextFormat(Qt.TextFormat.PlainText)
        self._values[key] = label
        return label

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self.meter.apply_theme(theme)
        for label in self._values.values():
            label.setFont(fonts.label_font(scale))
        self.context.setFont(fonts.label_font(scale))
        self._show_context()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._make_room()
        self._show_context()

    def _show_context(self) -> None:
        """Its first words alone where not all of them fit beside the meter."""
        text = self._context_text()
        least = self.meter.minimumSizeHint().width() + _SPACING
        wide = self.context.width_of(text) + least > self.width() > 0
        self.context.setText(text.partition(" · ")[0] if wide else text)
        self.context.setAccessibleDescription(text)

    def _make_room(self) -> None:
        """Leave out what does not fit instead of cutting it; it comes back with the room."""
        widths = {key: label.sizeHint().width() + _SPACING for key, label in self._values.items()}
        left = sum(widths.values()) - self.width()
        for key in _LESS_NEEDED:
            self._values[key].setVisible(left <= 0)
            left -= widths[key]

    # ---- what it shows

    def set_model(self, model: ModelInfo | None) -> None:
        self._n_ctx = model.n_ctx if model else 0
        self._show()

    def set_ledger(self, ledger: ContextLedger | None, *, has_draft: bool = False) -> None:
        """What would be sent now; has_draft: with something that is being typed. None: it is not known."""
        self._ledger, self._has_draft, self._writes = ledger, has_draft, ledger is None
        self._show()

    def set_speeds(self, speeds: Speeds, *, now: bool = True) -> None:
        """Show these figures; with `now` False at most twice a second."""
        self._speeds, self._writes = speeds, True
        if now:
            self._show()
        elif not self._refresh.isActive():
            self._refresh.start()

    def set_memory(self, window_bytes: int | None, worker_bytes: int | None) -> None:
        if (window_bytes, worker_bytes) != self._memory:
            self._memory = (window_bytes, worker_bytes)
            self._show_values()

    def set_figures_visible(self, visible: bool) -> None:
        """The line of figures can be hidden; the context meter stays."""
        self._figures.setVisible(visible)

    def text_of(self, key: str) -> str:
        """What stands at "ttft", "prefill", "decode", "window" or "worker"."""
        return self._values[key].text()

    def _show(self) -> None:
        speeds = self._speeds
        segments, total = self._segments()
        self.meter.set_segments(segments, total, self._meter_words(segments))
        self._show_context()
        self._show_values()
        self.refreshed.emit(speeds)

    def _segments(self) -> tuple[tuple[Segment, ...], int]:
        """What the meter shows, of how many tokens."""
        ledger, speeds = self._ledger, self._speeds
        if not self._n_ctx:
            return (), 0
        if ledger is not None and not self._writes:
            parts = context.segments(ledger)
            return parts, sum(part.n_tokens for part in parts)
        prompt: tuple[Segment, ...] = (Segment("history", speeds.n_used - speeds.n_written),)
        if ledger is not None and ledger.n_prompt == speeds.n_prompt and not speeds.reading:
            prompt = context.sent(ledger)
        free = max(0, self._n_ctx - speeds.n_used)
        parts = (*prompt, Segment("written", speeds.n_written), Segment("free", free))
        return tuple(part for part in parts if part.n_tokens > 0), self._n_ctx

    def _meter_words(self, segments: tuple[Segment, ...]) -> str:
        if not self._n_ctx:
            return "No model is loaded"
        return ", ".join(segment.words for segment in segments) + f"; {self._n_ctx:,} tokens in all"

    def _context_text(self) -> str:
        speeds, ledger = self._speeds, self._ledger
        if speeds.reading and speeds.n_read < speeds.n_prompt:
            return f"reading the prompt {speeds.n_read:,} of {speeds.n_prompt:,}"
        if not self._n_ctx:
            return "no model"
        if ledger is not None and not self._writes:
            if not ledger.fits:
                return f"{ledger.n_prompt:,} tokens do not fit into {self._n_ctx:,}"
            if ledger.n_dropped:
                messages = "1 message" if ledger.n_dropped == 1 else f"{ledger.n_dropped:,} messages"
                return f"{ledger.n_prompt:,} of {self._n_ctx:,} tokens · {messages} left out"
            if self._has_draft or not speeds.n_used:
                return f"{ledger.n_prompt:,} of {self._n_ctx:,} tokens · room for {self._n_ctx - ledger.n_prompt:,}"
        room = max(0, self._n_ctx - speeds.n_used)
        return f"{speeds.n_used:,} of {self._n_ctx:,} tokens · room for {room:,}"

    def _show_values(self) -> None:
        speeds = self._speeds
        window, worker = self._memory

        def with_unit(value: float | None) -> str:
            return figures.DASH if value is None else f"{figures.rate(value)} tok/s"

        texts = {
            "ttft": figures.seconds(speeds.ttft_s),
            "prefill": with_unit(speeds.prefill_tps),
            "decode": with_unit(speeds.decode_tps),
            "window": figures.size(window),
            "worker": figures.size(worker),
        }
        for key, text in texts.items():
            self._values[key].setText(f"{_NAMES[key]} {text}")
        self._make_room()
