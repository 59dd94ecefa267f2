"""One step of an answer taken again with other settings: what would have come, beside what came."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import (
    QDialog,
    QFrame,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from desktop import errors
from desktop.theme import Theme
from desktop.views.settings.sampling_fields import GROUPS
from desktop.views.settings.sampling_form import SamplingForm
from desktop.views.trace import pieces, token_rows
from desktop.views.trace.alternatives import Alternatives
from desktop.views.trace.figure_rows import FigureRows
from desktop.views.trace.flow import token_font
from desktop.widgets.elided_label import ElidedLabel
from engine.events import TokenDetail
from engine.sampling import SamplingParams
from engine.trace import Step, Trace


class Outcome(QWidget):
    """One way to take the step: the token, its alternatives, the stages."""

    def __init__(self, title: str, name: str) -> None:
        super().__init__()
        self.setObjectName(name)
        self.title = QLabel(title)
        self.title.setProperty("role", "section")
        self.piece = ElidedLabel()
        self.piece.setObjectName(f"{name}_piece")
        self.note = QLabel()
        self.note.setObjectName(f"{name}_note")
        self.note.setProperty("role", "label")
        self.note.setWordWrap(True)
        self.alternatives = Alternatives(f"{name}_alternatives")
        self.rows = FigureRows(f"{name}_rows")
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(6)
        for part in (self.title, self.piece, self.note, self.alternatives, self.rows):
            box.addWidget(part)
        box.addStretch(1)

    def show_detail(self, detail: TokenDetail, token_id: int, piece: bytes, sampling: SamplingParams) -> None:
        label = pieces.label(piece)
        self.piece.setText(label)
        self.piece.setAccessibleName(f"{self.title.text()}: {pieces.spoken(piece)}")
        self.note.hide()
        self.alternatives.show_candidates(detail.candidates, token_id, branching=False)
        self.rows.set_rows(token_rows.chosen_rows(detail, label, sampling, None))
        self.alternatives.show()
        self.rows.show()

    def say(self, text: str) -> None:
        """Words in place of an outcome."""
        self.piece.setText("")
        self.note.setText(text)
        self.note.show()
        self.alternatives.hide()
        self.rows.hide()

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self.piece.setFont(token_font(scale, step=5))
        self.alternatives.apply_theme(theme, scale)
        self.rows.apply_scale(scale)


class ReplayDialog(QDialog):
    """Not modal: the trace can be looked at beside it. Nothing is stored.

    Signals:
        wanted(object): take the step with these `SamplingParams`; `show_outcome` or `show_error` follows.
    """

    wanted = Signal(object)

    def __init__(self, trace: Trace, index: int, theme: Theme, scale: float, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("replay_dialog")
        at_end = index >= len(trace.steps) and trace.end is not None
        self.setWindowTitle("Replay the end" if at_end else f"Replay token {index + 1:,}")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.message_id, self.index = trace.message_id, index
        self._step: Step = trace.end if at_end and trace.end is not None else trace.steps[index]
        self._asked: SamplingParams | None = None
        self.form = SamplingForm(groups=GROUPS[:-1])  # length, stop texts and seed change nothing here
        self.form.set_params(trace.sampling, trace.sampling)
        self.form.reset_all.setText("Reset to those of the answer")
        self.form.reset_all.setToolTip("Set every value to what the answer was written with")
        self.form.setMinimumWidth(round(340 * max(1.0, scale)))
        self.then = Outcome("It said", "replay_then")
        self.now = Outcome("With these settings", "replay_now")
        self.run = QPushButton("Replay")
        self.run.setObjectName("replay_run")
        self.run.setProperty("kind", "primary")
        self.run.setToolTip("Take this step again with the settings at the left. Nothing is stored")
        self.run.setDefault(True)
        self.run.clicked.connect(self.ask)
        self._close = QPushButton("Close")
        self._close.setObjectName("replay_close")
        self._close.setToolTip("Close this window; nothing was changed")
        self._close.setAutoDefault(False)
        self._close.clicked.connect(self.reject)
        self._build()
        self.form.changed.connect(lambda _: self._on_changed())
        self._show_then(trace)
        self.now.say("Change a setting at the left, then press Replay. The draw gets the same random number as then.")
        self.apply_theme(theme, scale)
        self.resize(round(900 * max(1.0, min(scale, 1.3))), round(640 * max(1.0, min(scale, 1.3))))

    def _build(self) -> None:
        results = QWidget()
        beside = QHBoxLayout(results)
        beside.setContentsMargins(16, 16, 20, 16)
        beside.setSpacing(24)
        beside.addWidget(self.then, 1)
        beside.addWidget(self.now, 1)
        settings = QWidget()
        left = QVBoxLayout(settings)
        left.setContentsMargins(20, 8, 8, 12)
        left.addWidget(self.form)
        row = QHBoxLayout()
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(0)
        row.addWidget(self._scrolled(settings, "replay_settings"), 5)
        row.addWidget(self._scrolled(results, "replay_results"), 6)
        note = QLabel("One token is computed; what stands before it is read from the cache where it is still there.")
        note.setProperty("role", "label")
        note.setWordWrap(True)
        bottom = QHBoxLayout()
        bottom.setContentsMargins(20, 8, 20, 12)
        bottom.setSpacing(8)
        bottom.addWidget(note, 1)
        bottom.addWidget(self._close)
        bottom.addWidget(self.run)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addLayout(row, 1)
        layout.addLayout(bottom)

    @staticmethod
    def _scrolled(inner: QWidget, name: str) -> QScrollArea:
        area = QScrollArea()
        area.setObjectName(name)
        area.setWidgetResizable(True)
        area.setFrameShape(QFrame.Shape.NoFrame)
        area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAsNeeded)
        area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        area.setWidget(inner)
        return area

    def _show_then(self, trace: Trace) -> None:
        step = self._step
        if step.detail is None:
            self.then.say("Nothing was recorded of this step.")
            self.then.piece.setText(pieces.label(step.piece))
        else:
            self.then.show_detail(step.detail, step.token_id, step.piece, trace.sampling)

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self.form.apply_theme(theme, scale)
        self.then.apply_theme(theme, scale)
        self.now.apply_theme(theme, scale)

    # ---- asking

    def ask(self) -> None:
        """Take the step with what the form says now."""
        self.form.commit()
        if not self.form.error.isHidden():
            return
        self._asked = self.form.params
        self.run.setEnabled(False)
        self.now.say("Computing…")
        self.wanted.emit(self._asked)

    def show_outcome(self, detail: TokenDetail) -> None:
        self.run.setEnabled(True)
        piece = next((c.piece for c in detail.candidates if c.token_id == detail.token_id), b"")
        self.now.show_detail(detail, detail.token_id, piece, self._asked or self.form.params)
        same = detail.token_id == self._step.token_id
        self.now.note.setText("The same token" if same else f"Another token than {pieces.label(self._step.piece)}")
        self.now.note.show()

    def show_error(self, error: BaseException) -> None:
        self.run.setEnabled(True)
        said = errors.describe(error)
        self.now.say(errors.sentences(said.text, said.hint))

    def _on_changed(self) -> None:
        """What stands at the right was made with other settings."""
        if self._asked is not None and self.form.params != self._asked and self.run.isEnabled():
            self.now.note.setText("The settings are others now. Press Replay to see what they give.")
            self.now.note.show()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.reject()
            return
        super().keyPressEvent(event)


def why_not(step: Step | None) -> str:
    """Why a step cannot be taken again; "" if it can."""
    if step is None:
        return "Choose a token of the answer first"
    if step.forced:
        return "This token was not chosen: the answer was made to begin with it"
    return ""
