"""What stands in place of the transcript before the first message: one sentence, one action, three examples."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QScrollArea, QVBoxLayout, QWidget

from engine.events import ModelState

SAMPLES = (
    "Why did my Kubernetes pod restart? The container's last termination reason is OOMKilled.",
    "Explain in three sentences what a KV cache is.",
    "Write a haiku about rain.",
)
_WIDTH = 440
_MARGIN = 24


def sentence(state: ModelState) -> str:
    """What can be done now, in one sentence."""
    match state.status:
        case "ready":
            return "Ask something. It stays on this computer."
        case "loading":
            return f"{state.name} is loading. You can write already."
        case "failed":
            return "The model is not loaded. Choose another one, or try again."
    return "Choose a model to chat with. It runs on this computer, without a network."


class EmptyState(QScrollArea):
    """Signals:
    sample_chosen(str): put this text into the composer. model_wanted: show the list of models.
    """

    sample_chosen = Signal(str)
    model_wanted = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._scale = 1.0
        self.setObjectName("empty_state")
        self.title = QLabel()
        self.title.setObjectName("empty_sentence")
        self.title.setProperty("role", "title")
        self.title.setWordWrap(True)
        self.title.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        self.action = QPushButton("Choose a model")
        self.action.setObjectName("empty_choose_model")
        self.action.setProperty("kind", "primary")
        self.action.setToolTip("Show the list of models")
        self.action.clicked.connect(self.model_wanted)
        column = QWidget()
        self._column = column
        inner = QVBoxLayout(column)
        inner.setContentsMargins(0, 0, 0, 0)
        inner.setSpacing(8)
        inner.addWidget(self.title)
        inner.addSpacing(8)
        inner.addWidget(self.action, 0, Qt.AlignmentFlag.AlignHCenter)
        self._samples: list[QPushButton] = []
        for text in SAMPLES:
            sample = QPushButton()
            sample.setObjectName("sample_prompt")
            sample.setProperty("kind", "sample")
            sample.setAccessibleName(f"Example: {text}")
            sample.setToolTip("Put this text into the message field")
            label = QLabel(text)
            label.setWordWrap(True)
            label.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
            box = QVBoxLayout(sample)
            box.setContentsMargins(14, 9, 14, 9)
            box.addWidget(label)
            sample.clicked.connect(lambda _=False, text=text: self.sample_chosen.emit(text))
            inner.addWidget(sample)
            self._samples.append(sample)
        page = QWidget()
        page.setObjectName("empty_page")
        layout = QVBoxLayout(page)
        layout.setContentsMargins(_MARGIN, _MARGIN, _MARGIN, _MARGIN)
        layout.addStretch(2)
        row = QHBoxLayout()
        row.addStretch(1)
        row.addWidget(column)
        row.addStretch(1)
        layout.addLayout(row)
        layout.addStretch(3)
        self.setWidgetResizable(True)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setWidget(page)
        self.set_state(ModelState(status="none"))

    def apply_scale(self, scale: float) -> None:
        self._scale = scale
        self._fit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        """Wrapped labels do not tell their layout how high they are, so they are told."""
        width = min(round(_WIDTH * max(1.0, self._scale)), max(160, self.viewport().width() - 2 * _MARGIN))
        self._column.setFixedWidth(width)
        self.title.ensurePolished()
        self.title.setFixedHeight(self.title.heightForWidth(width))
        for sample in self._samples:
            inner = sample.layout()
            if inner is not None:
                sample.setFixedHeight(inner.heightForWidth(width) + 2)

    def set_state(self, state: ModelState) -> None:
        self.title.setText(sentence(state))
        self._fit()
        self.action.setVisible(state.status in ("none", "failed"))
        kind = "primary" if state.status == "none" else ""  # above it the error offers what helps
        if self.action.property("kind") != kind:
            self.action.setProperty("kind", kind)
            self.action.style().unpolish(self.action)
            self.action.style().polish(self.action)
