"""The list of the models on this computer, with a filter and the way to take more in."""

from __future__ import annotations

import datetime as dt

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QToolButton, QVBoxLayout, QWidget

from desktop import figures, icons
from desktop.model_desk import ModelDesk
from desktop.models.library import row_of
from desktop.theme import Theme
from desktop.views.hub.discover_panel import SearchBox
from desktop.views.hub.model_list import ModelList


class LibraryPanel(QWidget):
    """Signals:
    model_chosen(str): show this model (its path). load_requested(str): load it now. delete_requested(str).
    import_requested: take a file or folder in.
    """

    model_chosen = Signal(str)
    load_requested = Signal(str)
    delete_requested = Signal(str)
    import_requested = Signal()

    def __init__(self, desk: ModelDesk, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("library_panel")
        self._desk = desk
        self._loaded = ""
        self.filter = SearchBox()
        self.filter.setObjectName("filter_library")
        self.filter.setPlaceholderText("Filter by name")
        self.filter.setAccessibleName("Filter the library")
        self.filter.setToolTip("Show only models whose name or path holds these words")
        self.filter.textChanged.connect(lambda _: self.show_models())
        self.rescan = QToolButton()
        self.rescan.setObjectName("rescan")
        self.rescan.setProperty("kind", "icon")
        self.rescan.setAccessibleName("Look again")
        self.rescan.setToolTip("Look into every folder again")
        self.rescan.clicked.connect(desk.scan)
        self.list = ModelList(
            "library_list", "Models on this computer", "Models on this computer. Enter loads, Del deletes"
        )
        self.list.chosen.connect(self.model_chosen)
        self.list.activated_key.connect(self.load_requested)
        self.list.delete_pressed.connect(self.delete_requested)
        self.filter.leave_down.connect(self.list.focus_first)
        self.filter.returnPressed.connect(self.list.focus_first)
        self.empty = QLabel()
        self.empty.setObjectName("library_empty")
        self.empty.setProperty("role", "label")
        self.empty.setWordWrap(True)
        self.empty.setContentsMargins(10, 8, 8, 0)
        self.count = QLabel()
        self.count.setProperty("role", "label")
        self.add = QPushButton("Import…")
        self.add.setObjectName("import_model")
        self.add.setToolTip("Take GGUF files of this computer into the library; they can also be dropped here")
        self.add.clicked.connect(self.import_requested)
        top = QHBoxLayout()
        top.setSpacing(8)
        top.addWidget(self.filter, 1)
        top.addWidget(self.rescan)
        bottom = QHBoxLayout()
        bottom.setSpacing(8)
        bottom.addWidget(self.count, 1)
        bottom.addWidget(self.add)
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(8)
        box.addLayout(top)
        box.addWidget(self.empty)
        box.addWidget(self.list, 1)
        box.addLayout(bottom)
        desk.library_changed.connect(self.show_models)
        desk.progress.connect(lambda _: self.show_models())

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self.list.apply_theme(theme, scale)
        icons.set_icon(self.rescan, "regenerate", theme, "ink")

    def set_loaded(self, path: str) -> None:
        """Which file is in memory."""
        if path != self._loaded:
            self._loaded = path
            self.show_models()

    def show_models(self) -> None:
        """The list as the library has it, filtered."""
        words = self.filter.text().casefold().split()
        now = dt.datetime.now()
        models = [
            m for m in self._desk.models if all(w in f"{m.name} {m.path} {m.quantization}".casefold() for w in words)
        ]
        self.list.show_rows([row_of(m, now, self._loaded, self._desk.checking.get(m.path)) for m in models])
        size = sum(model.size_bytes for model in models)
        self.count.setText(f"{len(models)} models · {figures.size(size)}" if models else "")
        self.empty.setVisible(not models)
        if not self._desk.listed:
            self.empty.setText("Looking for models…")
        elif words:
            self.empty.setText("No model has these words in its name.")
        else:
            self.empty.setText("No models yet. Download one from Discover, import a file, or drop one here.")

    def choose(self, path: str) -> None:
        """Mark this model and show it."""
        self.list.mark(path)
        if path:
            index = self.list.rows.index_of(path)
            if index.isValid():
                self.list.scrollTo(index)
            self.model_chosen.emit(path)

    def choose_first(self) -> None:
        """Show the loaded model, else the first, where none is shown yet."""
        if self.list.current_key and self._desk.find(self.list.current_key):
            return
        paths = [row.key for row in self.list.rows.rows if row.key]
        if paths:
            self.choose(self._loaded if self._loaded in paths else paths[0])

    def focus_list(self) -> None:
        self.list.setFocus(Qt.FocusReason.OtherFocusReason)
