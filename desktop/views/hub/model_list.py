"""The list of a panel: rows of two lines, chosen by mouse or keyboard."""

from __future__ import annotations

from PySide6.QtCore import QModelIndex, Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QAbstractItemView, QListView, QWidget

from desktop.delegates.model_rows import ModelRowDelegate
from desktop.models.hub_results import ModelRow, ModelRows, Role
from desktop.theme import Theme

_ARROW_MS = 120


class ModelList(QListView):
    """Signals:
    chosen(str): show this row (its key). activated_key(str): Enter or a double click on it.
    delete_pressed(str): Del on it.
    """

    chosen = Signal(str)
    activated_key = Signal(str)
    delete_pressed = Signal(str)

    def __init__(self, name: str, spoken: str, tip: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName(name)
        self.setAccessibleName(spoken)
        self.setToolTip(tip)
        self.rows = ModelRows(self)
        self._delegate = ModelRowDelegate(self)
        self._current = ""
        self.setModel(self.rows)
        self.setItemDelegate(self._delegate)
        self.setMouseTracking(True)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(_ARROW_MS)
        self._timer.timeout.connect(self._choose_current)
        self.clicked.connect(self._on_clicked)
        self.doubleClicked.connect(lambda index: self._emit_key(self.activated_key, index))
        self.selectionModel().currentChanged.connect(self._on_current)

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self._delegate.apply_theme(theme, scale)
        self.scheduleDelayedItemsLayout()
        self.viewport().update()

    @property
    def current_key(self) -> str:
        return self._current

    def show_rows(self, rows: list[ModelRow]) -> None:
        """Replace the rows; the chosen one stays chosen where it is still there."""
        self.rows.set_rows(rows)
        self.mark(self._current)

    def mark(self, key: str) -> None:
        """Mark a row as chosen; tells nobody."""
        self._current = key
        index = self.rows.index_of(key)
        selection = self.selectionModel()
        if index.isValid():
            if self.currentIndex() != index or not selection.isSelected(index):
                selection.setCurrentIndex(index, selection.SelectionFlag.ClearAndSelect)
        else:
            selection.clear()

    def focus_first(self) -> None:
        """Put the keyboard on the chosen row, or the first."""
        if not self.currentIndex().isValid():
            first = next((row.key for row in self.rows.rows if row.key), "")
            if not first:
                return
            self.setCurrentIndex(self.rows.index_of(first))
        self.setFocus(Qt.FocusReason.TabFocusReason)

    def _on_clicked(self, index: QModelIndex) -> None:
        self._timer.stop()
        self._choose(str(index.data(Role.KEY) or ""), again=True)

    def _on_current(self, current: QModelIndex, _: QModelIndex) -> None:
        if current.isValid() and self.hasFocus() and current.data(Role.KEY) not in ("", self._current):
            self._timer.start()

    def _choose_current(self) -> None:
        self._choose(str(self.currentIndex().data(Role.KEY) or ""))

    def _choose(self, key: str, *, again: bool = False) -> None:
        if key and (again or key != self._current):
            self._current = key
            self.chosen.emit(key)

    def _emit_key(self, signal: object, index: QModelIndex) -> None:
        key = index.data(Role.KEY)
        if key:
            signal.emit(str(key))  # type: ignore[attr-defined]

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self._timer.stop()
            self._choose_current()
            self._emit_key(self.activated_key, self.currentIndex())
        elif event.key() == Qt.Key.Key_Delete:
            self._emit_key(self.delete_pressed, self.currentIndex())
        else:
            super().keyPressEvent(event)
