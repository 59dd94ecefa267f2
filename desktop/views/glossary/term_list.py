"""The terms as a list: under headings, or what was searched for, the best first."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QAbstractItemView, QListWidget, QListWidgetItem, QWidget

from desktop import fonts
from engine import glossary

_ID = Qt.ItemDataRole.UserRole


class TermList(QListWidget):
    """Signals:
    chosen(str): another term, by the user.
    """

    chosen = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("glossary_list")
        self.setAccessibleName("Terms")
        self.setToolTip("All terms; the arrow keys move through them")
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setTextElideMode(Qt.TextElideMode.ElideRight)
        self.setUniformItemSizes(False)
        self._scale = 1.0
        self._quiet = False
        self.currentItemChanged.connect(self._on_current)

    def apply_scale(self, scale: float) -> None:
        self._scale = scale
        for place in range(self.count()):
            item = self.item(place)
            if not item.data(_ID):
                item.setFont(fonts.label_font(scale))

    def show_terms(self, words: str, current: str) -> int:
        """List what the words find; without words all, by group. Gives the number of terms.

        `current` is marked where it is among them; tells nobody.
        """
        self._quiet = True
        self.clear()
        found = glossary.search(words)
        if words.strip():
            for term in found:
                self._add(term)
        else:
            for group, heading in glossary.load().groups.items():
                self._add_heading(heading)
                for term in found:
                    if term.group == group:
                        self._add(term)
        self._quiet = False
        self.mark(current)
        return len(found)

    def _add(self, term: glossary.Term) -> None:
        item = QListWidgetItem(term.term)
        item.setData(_ID, term.id)
        item.setToolTip(f"{term.term}: {term.short}")  # the name may be cut in the list
        self.addItem(item)

    def _add_heading(self, words: str) -> None:
        item = QListWidgetItem(words)
        item.setFlags(Qt.ItemFlag.NoItemFlags)
        item.setFont(fonts.label_font(self._scale))
        item.setData(Qt.ItemDataRole.AccessibleTextRole, f"{words}, heading")
        self.addItem(item)

    def mark(self, term_id: str) -> None:
        """Mark a term; tells nobody."""
        self._quiet = True
        found = next((item for item in self._items() if item.data(_ID) == term_id), None)
        if found is not None and found is not self.currentItem():
            self.setCurrentItem(found)
            self.scrollToItem(found, QAbstractItemView.ScrollHint.PositionAtCenter)
        elif found is None:
            self.setCurrentRow(-1)
        self._quiet = False

    @property
    def ids(self) -> list[str]:
        """Ids of the terms that are listed, from the top."""
        return [str(item.data(_ID)) for item in self._items() if item.data(_ID)]

    def first(self) -> str:
        """The first term that is listed; empty where there is none."""
        return next(iter(self.ids), "")

    def _items(self) -> list[QListWidgetItem]:
        return [self.item(place) for place in range(self.count())]

    def _on_current(self, item: QListWidgetItem | None, _: QListWidgetItem | None) -> None:
        if not self._quiet and item is not None and item.data(_ID):
            self.chosen.emit(str(item.data(_ID)))
