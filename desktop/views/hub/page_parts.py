"""The parts of a model's page and where they stand; what they show is decided in `model_page`."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QScrollArea, QVBoxLayout, QWidget

from desktop.fit_desk import FitDesk
from desktop.theme import Theme
from desktop.views.hub.fit_panel import FitPanel
from desktop.views.hub.hub_state import HubState
from desktop.views.hub.quant_view import QuantView
from desktop.widgets.term import explain

_MOST_WIDE = 1100
PAGE_MARGIN = 36
#: tokens that quantizations are compared at while the user has not chosen
USUAL_CONTEXT = 8192


class ModelPageParts(QScrollArea):
    """Signals:
    link_activated(str): open this address in the browser.
    """

    link_activated = Signal(str)

    def __init__(self, fit: FitDesk, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("model_page_scroll")
        self.setWidgetResizable(True)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.title = _label("", "title", "model_title")
        self.title.setWordWrap(True)
        self.facts = _label("", "secondary", "model_facts")
        self.facts.setWordWrap(True)
        self.card = QPushButton("Model card")
        self.card.setObjectName("model_card")
        self.card.setProperty("kind", "link")
        explain(self.card, "model_card", "Open the page of this model on the Hub in the browser")
        self.facts_below = _label("", "secondary", "model_facts_below")
        self.facts_below.setWordWrap(True)
        self.line = _label("", "small", "model_line")
        self.line.setWordWrap(True)
        self.summary = _label("", "secondary", "model_summary")
        self.summary.setWordWrap(True)
        self.gated = QLabel("access has to be asked for")
        self.gated.setObjectName("model_gated")
        self.gated.setProperty("chip", "warn")
        tip = "The maker wants its terms accepted on the Hub first; then an access token is needed"
        explain(self.gated, "gated_model", tip)
        self.gated.hide()
        self.state = HubState("model_state")
        self.table = QuantView()
        self.note = _label("", "label", "model_note")
        self.note.setWordWrap(True)
        self.ask = QPushButton("Ask the Hub for its files")
        self.ask.setObjectName("ask_repo")
        self.ask.setProperty("kind", "link")
        explain(self.ask, "repository", "Get the exact list of files from the Hub, over the network")
        self.best = QFrame()
        self.best.setObjectName("best_note")
        self.best_text = QLabel()
        self.best_text.setObjectName("best_text")
        self.best_text.setWordWrap(True)
        self.best_text.setTextFormat(Qt.TextFormat.RichText)
        best_box = QVBoxLayout(self.best)
        best_box.setContentsMargins(16, 10, 16, 10)
        best_box.addWidget(self.best_text)
        self.fit_panel = FitPanel(fit, "model_fit", usual_context=USUAL_CONTEXT)
        self._accent = "#000000"
        self._best_words = ("", "")
        self._build()

    def _build(self) -> None:
        head = QHBoxLayout()
        head.setSpacing(12)
        head.addWidget(self.title, 0, Qt.AlignmentFlag.AlignBottom)
        head.addWidget(self.facts, 1, Qt.AlignmentFlag.AlignBottom)
        head.addWidget(self.card, 0, Qt.AlignmentFlag.AlignBottom)
        second = QHBoxLayout()
        second.setSpacing(8)
        second.addWidget(self.line, 1)
        second.addWidget(self.gated)
        below = QHBoxLayout()
        below.addWidget(self.note, 1)
        below.addWidget(self.ask)
        page = QWidget()
        page.setObjectName("model_page")
        page.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        column = QWidget()
        self._column = column
        box = QVBoxLayout(column)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(4)
        box.addLayout(head)
        box.addWidget(self.facts_below)
        box.addLayout(second)
        box.addWidget(self.summary)
        box.addSpacing(8)
        box.addWidget(self.state)
        box.addWidget(self.table)
        box.addLayout(below)
        box.addSpacing(8)
        box.addWidget(self.best)
        box.addSpacing(14)
        box.addWidget(self.fit_panel)
        box.addStretch(1)
        outer = QHBoxLayout(page)
        self._outer = outer
        outer.addWidget(column, 1000)
        outer.addStretch(1)
        self.setWidget(page)

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self._accent = theme.accent_text
        self._column.setMaximumWidth(round(_MOST_WIDE * scale))
        self.table.apply_theme(theme, scale)
        self.fit_panel.apply_theme(theme, scale)
        self.set_best(*self._best_words)

    def set_head(self, title: str, facts: Sequence[str], line: str, summary: str) -> None:
        self.title.setText(title)
        self.set_facts(facts)
        self.line.setText(line)
        self.summary.setText(summary)
        self.summary.setVisible(bool(summary))
        self.gated.hide()
        self._wrap()

    def set_facts(self, facts: Sequence[str]) -> None:
        words = " · ".join(fact for fact in facts if fact)
        self.facts.setText(words)
        self.facts_below.setText(words)
        self._wrap()

    def set_note(self, words: str, *, ask: bool) -> None:
        self.note.setText(words)
        self.ask.setVisible(ask)

    def set_best(self, name: str, words: str) -> None:
        """The sentence that names the best row."""
        self._best_words = (name, words)
        self.best.setVisible(bool(words))
        self.best_text.setText(
            f'<span style="color:{self._accent}; font-weight:600">{_safe(name)}</span> {_safe(words)}'
        )
        self.best.setAccessibleName(f"{name} {words}".strip())

    def show_content(self, shown: bool) -> None:
        for widget in (self.table, self.note, self.fit_panel):
            widget.setVisible(shown)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._wrap()

    def _wrap(self) -> None:
        """A long title keeps to half of the page, a short one to its own width."""
        self.title.ensurePolished()
        self.facts.ensurePolished()
        wide = self.title.fontMetrics().horizontalAdvance(self.title.text()) + 4
        self.title.setMinimumWidth(min(wide, max(120, self.viewport().width() // 2 - 40)))
        beside = (
            self.facts.fontMetrics().horizontalAdvance(self.facts_below.text()) + wide + self.card.sizeHint().width()
        )
        fits = beside + 2 * PAGE_MARGIN + 40 < self.viewport().width()
        self.facts.setText(self.facts_below.text() if fits else "")
        self.facts_below.setVisible(not fits and bool(self.facts_below.text()))
        page_margins(self._outer, self.viewport().width())


def page_margins(layout: QHBoxLayout, width: int) -> None:
    """Room around a page; on a narrow one less of it."""
    side = PAGE_MARGIN if width > 560 else 14
    layout.setContentsMargins(side, 22, side, 24)


def _label(words: str, role: str, name: str) -> QLabel:
    label = QLabel(words)
    label.setObjectName(name)
    label.setProperty("role", role)
    label.setTextFormat(Qt.TextFormat.PlainText)
    return label


def _safe(words: str) -> str:
    return words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
