"""The glossary: a field to search in, the terms, and the one that was chosen with its live example."""

from __future__ import annotations

from PySide6.QtCore import QEvent, Qt, Signal
from PySide6.QtGui import QHideEvent, QKeyEvent, QKeySequence, QResizeEvent, QShortcut, QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QLineEdit, QVBoxLayout, QWidget

from desktop.theme import Theme
from desktop.views.glossary.gather import Gatherer
from desktop.views.glossary.term_list import TermList
from desktop.views.glossary.term_view import TermView
from engine import glossary

_FIRST = "token"
_LIST_WIDTH, _LEAST_LIST, _LIST_SHARE = 244, 160, 0.34
_NARROW = 760
_MOST_BACK = 50


class SearchField(QLineEdit):
    """Signals:
    down_pressed: the list below is wanted.
    """

    down_pressed = Signal()

    def _ends_search(self, event: QKeyEvent) -> bool:
        return event.key() == Qt.Key.Key_Escape and bool(self.text())

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ShortcutOverride and isinstance(event, QKeyEvent) and self._ends_search(event):
            event.accept()  # Esc is a shortcut of the window otherwise
            return True
        return super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Down:
            self.down_pressed.emit()
        elif self._ends_search(event):
            self.clear()
        else:
            super().keyPressEvent(event)


class GlossaryPage(QWidget):
    """Works only while it is visible."""

    def __init__(self, gatherer: Gatherer, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("glossary_page")
        self._gatherer = gatherer
        gatherer.setParent(self)
        self._behind: list[str] = []
        self._scale = 1.0
        self._was_chosen = False  # the term on screen was, rather than standing there from the start
        self.search = SearchField()
        self.search.setObjectName("glossary_search")
        self.search.setPlaceholderText("Search the glossary")
        self.search.setAccessibleName("Search the glossary")
        self.search.setToolTip("Words to look for, in names, other names and texts")
        self.list = TermList()
        self.none = QLabel("No term holds these words.")
        self.none.setObjectName("glossary_none")
        self.none.setProperty("role", "label")
        self.none.setWordWrap(True)
        self.none.hide()
        self.view = TermView()
        self._build()
        self.list.show_terms("", _FIRST)
        self._show(_FIRST)
        self.search.textChanged.connect(self._on_search)
        self.search.down_pressed.connect(self._to_list)
        self.search.returnPressed.connect(self._take_first)
        self.list.chosen.connect(self._go)
        self.view.link_chosen.connect(self._go)
        self.view.back_wanted.connect(self.go_back)
        back = QShortcut(QKeySequence("Alt+Left"), self)
        back.setContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
        back.activated.connect(self.go_back)
        gatherer.changed.connect(self._on_facts)

    def _build(self) -> None:
        side = QWidget()
        self._side = side
        column = QVBoxLayout(side)
        column.setContentsMargins(16, 14, 8, 8)
        column.setSpacing(8)
        column.addWidget(self.search)
        column.addWidget(self.none)
        column.addWidget(self.list, 1)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(0)
        row.addWidget(side)
        row.addWidget(self.view, 1)

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self.list.apply_scale(scale)
        self.view.apply_theme(theme, scale)
        self._scale = scale
        self._arrange()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._arrange()

    def _arrange(self) -> None:
        """The list is as wide as its words need, but never takes the room of the text."""
        wanted = round(_LIST_WIDTH * max(1.0, self._scale))
        self._side.setFixedWidth(max(_LEAST_LIST, min(wanted, round(self.width() * _LIST_SHARE))))
        self.view.set_narrow(self.width() < _NARROW * self._scale)

    def stop(self) -> None:
        """Ask for nothing any more."""
        self._gatherer.set_on(False)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._gatherer.set_on(True)

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._gatherer.set_on(False)

    def focus_first(self) -> None:
        self.search.setFocus(Qt.FocusReason.OtherFocusReason)
        self.search.selectAll()

    # ---- terms

    @property
    def term_id(self) -> str:
        """The term on screen."""
        return self.view.term_id

    def show_term(self, term_id: str) -> None:
        """Show a term, with the whole list beside it. An unknown one, or none, leaves what is there."""
        if glossary.term(term_id) is None:
            return
        self.search.clear()
        self._go(term_id)
        self.list.setFocus(Qt.FocusReason.OtherFocusReason)

    def go_back(self) -> None:
        """Show the term before."""
        if self._behind:
            self._show(self._behind.pop())

    def _go(self, term_id: str) -> None:
        if self._was_chosen and term_id != self.term_id:
            self._behind = [*self._behind, self.term_id][-_MOST_BACK:]
        self._was_chosen = True
        self._show(term_id)

    def _show(self, term_id: str) -> None:
        term = glossary.term(term_id)
        if term is not None:
            self.view.show_term(term, self._gatherer.known, can_go_back=bool(self._behind))
            self.list.mark(term_id)

    def _on_facts(self) -> None:
        self.view.show_known(self._gatherer.known)

    # ---- searching

    def _on_search(self, words: str) -> None:
        count = self.list.show_terms(words, self.term_id)
        self.none.setVisible(count == 0)

    def _to_list(self) -> None:
        if self.list.currentItem() is None and self.list.first():
            self._go(self.list.first())
        self.list.setFocus(Qt.FocusReason.TabFocusReason)

    def _take_first(self) -> None:
        if self.list.first() and self.search.text().strip():
            self._go(self.list.first())
