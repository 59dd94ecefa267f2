"""The right side of the trace: one token, what could have been said instead, and how it was chosen."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QScrollArea, QVBoxLayout, QWidget

from desktop.theme import Theme
from desktop.views.trace import pieces, token_rows, words
from desktop.views.trace.alternatives import Alternatives
from desktop.views.trace.figure_rows import FigureRows, Row
from desktop.views.trace.flow import token_font
from desktop.widgets.elided_label import ElidedLabel
from desktop.widgets.term import explain
from engine.trace import Step, Trace

WIDTH = 320


def heading(text: str, name: str) -> QLabel:
    """Above a part of the panel."""
    label = QLabel(text)
    label.setObjectName(name)
    label.setProperty("role", "section")
    label.setContentsMargins(0, 12, 0, 0)
    label.setWordWrap(True)
    return label


class TokenPanel(QScrollArea):
    """Signals:
    branch_requested(int): let the answer go on with this token instead.
    focus_dropped: see `Alternatives`.
    """

    branch_requested = Signal(int)
    focus_dropped = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("token_panel")
        self.setAccessibleName("The chosen token")
        self.setWidgetResizable(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.number = QLabel()
        self.number.setObjectName("token_number")
        self.number.setProperty("role", "section")
        self.place = QLabel()
        self.place.setObjectName("token_place")
        self.place.setProperty("role", "label")
        self.place.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self.piece = ElidedLabel()
        self.piece.setObjectName("token_piece")
        self.note = QLabel()
        self.note.setObjectName("token_note")
        self.note.setProperty("role", "label")
        self.note.setWordWrap(True)
        self.chance = FigureRows("token_chance")
        self.alternatives_head = heading("It could have said", "alternatives_head")
        self.alternatives = Alternatives()
        self.alternatives.branch_requested.connect(self.branch_requested)
        self.alternatives.focus_dropped.connect(self.focus_dropped)
        self.hint = QLabel()
        self.hint.setObjectName("branch_hint")
        self.hint.setWordWrap(True)
        self.chosen_head = heading("How it was chosen", "chosen_head")
        self.chosen = FigureRows("token_chosen")
        self.reading_head = heading("", "reading_head")
        self.reading = QLabel()
        self.reading.setObjectName("reading_words")
        self.reading.setProperty("role", "secondary")
        self.reading.setWordWrap(True)
        self.reading.setTextFormat(Qt.TextFormat.PlainText)
        self.reading.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._blocked = ""
        explain(self.alternatives_head, "probability")
        explain(self.chosen_head, "sampler_chain")
        explain(self.reading_head, "prefix_caching")
        self._build()

    def _build(self) -> None:
        inner = QWidget()
        inner.setObjectName("token_panel_inner")
        box = QVBoxLayout(inner)
        box.setContentsMargins(16, 16, 16, 20)
        box.setSpacing(4)
        top = QHBoxLayout()
        top.setSpacing(8)
        top.addWidget(self.number)
        top.addWidget(self.place, 1)
        box.addLayout(top)
        for part in (
            *(self.piece, self.note, self.chance, self.alternatives_head, self.alternatives, self.hint),
            *(self.chosen_head, self.chosen, self.reading_head, self.reading),
        ):
            box.addWidget(part)
        box.addStretch(1)
        self.setWidget(inner)

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self.piece.setFont(token_font(scale, step=7))
        for rows in (self.chance, self.chosen):
            rows.apply_scale(scale)
        self.alternatives.apply_theme(theme, scale)

    # ---- what it shows

    def show_step(self, trace: Trace, step: Step, index: int | None, note: str, n_vocab: int | None) -> None:
        """One token of the answer. index: None for the token that ended it."""
        label = token_rows.label_of(step)
        self.number.setText("The end" if index is None else f"Token {index + 1:,}")
        place, why = ("", "") if index is None else token_rows.place_words(trace, index)
        self.place.setText(place)
        self.place.setToolTip(why)
        self._show_piece(label, step.token_id, pieces.spoken(step.piece))
        self._set_note(note)
        self.chance.set_rows(token_rows.chance_rows(step))
        detail = step.detail
        candidates = detail.candidates if detail is not None else ()
        self.alternatives.show_candidates(candidates, step.token_id, branching=not self._blocked)
        for part in (self.chance, self.chosen_head, self.chosen):
            part.show()
        for other in (self.alternatives_head, self.alternatives, self.hint):
            other.setVisible(bool(candidates))
        self.chosen.set_rows(token_rows.chosen_rows(detail, label, trace.sampling, n_vocab, forced=step.forced))

    def show_prompt_token(self, label: str, token_id: int, spoken: str, place: str, lines: Sequence[str]) -> None:
        """One token of the prompt."""
        self.number.setText("Token of the prompt")
        self.place.setText(place)
        self.place.setToolTip("Its place in the context")
        self._show_piece(label, token_id, spoken)
        self._set_note("\n".join(lines))
        self.chance.set_rows([Row("id", f"{token_id:,}", "Its number in the model's vocabulary", "token")])
        for part in (self.alternatives_head, self.alternatives, self.hint, self.chosen_head, self.chosen):
            part.hide()
        self.chance.show()

    def show_nothing(self, *, being_written: bool, written: bool) -> None:
        """No token is chosen. written: there is one of the answer."""
        self.number.setText("Being written" if being_written else "No token is chosen")
        self.place.setText("")
        self.piece.hide()
        if written or being_written:
            self._set_note("Click a token of the answer to see what could have come instead, and how it was chosen.")
        else:
            self._set_note("Nothing was written. Click a token of the prompt to see where it came from.")
        for part in (self.chance, self.alternatives_head, self.alternatives, self.hint, self.chosen_head, self.chosen):
            part.hide()

    def show_reading(self, trace: Trace) -> None:
        """Why so much or so little of the prompt was read."""
        known = bool(trace.n_prompt)
        self.reading_head.setVisible(known)
        self.reading.setVisible(known)
        if known:
            self.reading_head.setText(words.reading_title(trace))
            self.reading.setText(words.reading_words(trace))

    def set_blocked(self, why: str) -> None:
        """Whether a click on an alternative branches: "" if it does, else the reason why not."""
        self._blocked = why
        self.hint.setText(why or "Click one to branch the chat from here")
        role = "label" if why else "accent"
        if self.hint.property("role") != role:
            self.hint.setProperty("role", role)
            self.hint.style().unpolish(self.hint)
            self.hint.style().polish(self.hint)
        self.alternatives.set_branching(not why)

    def _show_piece(self, label: str, token_id: int, spoken: str) -> None:
        self.piece.setText(label)
        self.piece.setVisible(bool(label))
        self.piece.setAccessibleName(spoken)
        self.piece.setToolTip(f"id {token_id:,}")

    def _set_note(self, text: str) -> None:
        self.note.setText(text)
        self.note.setVisible(bool(text))
