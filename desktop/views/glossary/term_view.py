"""One term: its sentence, its text, what it is on this computer now, and what goes with it."""

from __future__ import annotations

import html

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QScrollArea, QVBoxLayout, QWidget

from desktop import fonts, icons
from desktop.theme import Theme
from desktop.views.glossary.facts import OF_ANSWERS, Facts, Known, facts_of
from desktop.widgets.wrap_row import WrapRow
from engine import glossary

_WIDTH = 600
_NO_MODEL = "Load a model to see this with its own figures."
_NO_ANSWER = "After an answer its figures stand here."
_NOT_THERE = "Nothing of this happened in the last answer."
_NOT_HERE = "The loaded model and this computer have nothing of this now."


class TermView(QScrollArea):
    """Signals:
    link_chosen(str): another term is wanted. back_wanted: the one before.
    """

    link_chosen = Signal(str)
    back_wanted = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("glossary_term_scroll")
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setAccessibleName("The term")
        self.setToolTip("")
        self._term: glossary.Term | None = None
        self.back = QPushButton("Back")
        self.back.setObjectName("glossary_back")
        self.back.setProperty("kind", "link")
        self.back.setAccessibleName("Back to the term before")
        self.back.setToolTip("Back to the term before (Alt+Left)")
        self.back.clicked.connect(self.back_wanted)
        self.title = self._label("title", "glossary_title")
        self.group = self._label("label", "glossary_group")
        self.short = self._label("", "glossary_short")
        self.text = self._label("secondary", "glossary_text")
        self.text.setTextFormat(Qt.TextFormat.RichText)
        self.aliases = self._label("label", "glossary_aliases")
        self.live_title = self._label("section", "glossary_live_title")
        self.live = self._label("", "glossary_live_text")
        self.box = QFrame()
        self.box.setObjectName("glossary_live")
        self.see_title = self._label("section", "glossary_see_title")
        self.see_title.setText("See also")
        self._links = QWidget()
        self._row = WrapRow(self._links, spacing=16)
        self._build()

    @staticmethod
    def _label(role: str, name: str) -> QLabel:
        label = QLabel()
        label.setObjectName(name)
        if role:
            label.setProperty("role", role)
        label.setWordWrap(True)
        label.setTextFormat(Qt.TextFormat.PlainText)
        label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        return label

    def _build(self) -> None:
        inside = QVBoxLayout(self.box)
        inside.setContentsMargins(16, 12, 16, 12)
        inside.setSpacing(6)
        inside.addWidget(self.live_title)
        inside.addWidget(self.live)
        self._column = QWidget()
        box = QVBoxLayout(self._column)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(10)
        box.addWidget(self.back, 0, Qt.AlignmentFlag.AlignLeft)
        box.addWidget(self.group)
        box.addWidget(self.title)
        box.addWidget(self.short)
        box.addSpacing(2)
        box.addWidget(self.text)
        box.addWidget(self.aliases)
        box.addSpacing(6)
        box.addWidget(self.box)
        box.addSpacing(6)
        box.addWidget(self.see_title)
        box.addWidget(self._links)
        box.addStretch(1)
        page = QWidget()
        page.setObjectName("glossary_page_body")
        row = self._outer = QHBoxLayout(page)
        self.set_narrow(False)
        row.addWidget(self._column, 1000)
        row.addStretch(1)
        self.setWidget(page)

    def set_narrow(self, narrow: bool) -> None:
        """Less room around the text on a narrow page."""
        self._outer.setContentsMargins(*((14, 14, 10, 20) if narrow else (32, 20, 24, 28)))

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self._column.setMaximumWidth(round(_WIDTH * scale))
        self.short.setFont(fonts.ui_font(scale, step=2))
        icons.set_icon(self.back, "back", theme, "accent")

    # ---- content

    @property
    def term_id(self) -> str:
        return self._term.id if self._term is not None else ""

    def show_term(self, term: glossary.Term, known: Known, *, can_go_back: bool) -> None:
        """Show this term from its top."""
        self._term = term
        self.back.setVisible(can_go_back)
        self.title.setText(term.term)
        self.group.setText(glossary.load().groups[term.group])
        self.short.setText(term.short)
        paragraphs = (f'<p style="line-height:140%">{html.escape(text)}</p>' for text in term.long)
        self.text.setText("".join(paragraphs))
        self.aliases.setText(f"Also: {', '.join(term.aliases)}")
        self.aliases.setVisible(bool(term.aliases))
        self._show_links(term)
        self.show_known(known)
        self.verticalScrollBar().setValue(0)

    def show_known(self, known: Known) -> None:
        """Fill in what is known now."""
        term = self._term
        if term is None:
            return
        facts = facts_of(known)
        said = glossary.live(term, facts)
        self.box.setVisible(bool(term.live))
        self.live_title.setText("On this computer now" if said else "On this computer")
        words = " ".join(said) or why_nothing(term, facts, known)
        if self.live.text() != words:
            self.live.setText(words)

    def _show_links(self, term: glossary.Term) -> None:
        while (item := self._row.takeAt(0)) is not None:
            widget = item.widget()
            if widget is not None:
                widget.hide()
                widget.deleteLater()
        for other_id in term.see:
            other = glossary.term(other_id)
            if other is None:
                continue
            link = QPushButton(other.term)
            link.setObjectName(f"see_{other_id}")
            link.setProperty("kind", "link")
            link.setAccessibleName(f"See {other.term}")
            link.setToolTip(other.short)
            link.clicked.connect(lambda _=False, other_id=other_id: self.link_chosen.emit(other_id))
            self._row.addWidget(link)
        self._links.updateGeometry()

    @property
    def links(self) -> list[QPushButton]:
        """The links to other terms."""
        buttons = (item.widget() for place in range(self._row.count()) if (item := self._row.itemAt(place)) is not None)
        return [button for button in buttons if isinstance(button, QPushButton)]


def why_nothing(term: glossary.Term, facts: Facts, known: Known) -> str:
    """Why no live sentence of a term can be shown, in words."""
    missing = [{name for name in glossary.facts_in(text) if not facts.get(name)} for text in term.live]
    if any(names <= OF_ANSWERS for names in missing):
        return _NOT_THERE if known.record is not None else _NO_ANSWER
    return _NO_MODEL if known.model is None else _NOT_HERE
