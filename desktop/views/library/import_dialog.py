"""Taking a file or folder of this computer into the library: where it is, or copied."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QDialog, QHBoxLayout, QLabel, QPushButton, QRadioButton, QVBoxLayout, QWidget

from desktop import figures
from desktop.errors import describe, sentences
from desktop.model_desk import ModelDesk
from desktop.tasks import Tasks
from engine.events import VerifyProgress


class ImportDialog(QDialog):
    """Not modal: the window goes on while a file is copied.

    Signals:
        imported(str): path of the first model that came in.
    """

    imported = Signal(str)

    def __init__(self, desk: ModelDesk, tasks: Tasks, path: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("import_dialog")
        self.setWindowTitle("Import a model")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setMinimumWidth(460)
        self._desk, self._path, self._busy = desk, path, False
        name = QLabel(Path(path).name)
        name.setProperty("role", "title")
        name.setWordWrap(True)
        place = QLabel(str(Path(path).parent).replace("/", "/\u200b"))
        place.setProperty("role", "label")
        place.setWordWrap(True)
        self.in_place = QRadioButton("Use it where it is")
        self.in_place.setObjectName("import_in_place")
        self.in_place.setToolTip("The file stays where it is and takes no more room; if it is moved, it is lost here")
        self.in_place.setChecked(True)
        self.copy = QRadioButton("Copy it into the models folder")
        self.copy.setObjectName("import_copy")
        self.copy.setToolTip(f"A copy goes to {desk.folder}; its SHA-256 is computed on the way")
        self.words = QLabel()
        self.words.setObjectName("import_words")
        self.words.setProperty("role", "small")
        self.words.setWordWrap(True)
        self.words.setTextFormat(Qt.TextFormat.PlainText)
        self.ok = QPushButton("Import")
        self.ok.setObjectName("import_ok")
        self.ok.setProperty("kind", "primary")
        self.ok.setToolTip("Take it into the library")
        self.ok.setDefault(True)
        self.ok.clicked.connect(self._import)
        self.stop = QPushButton("Cancel")
        self.stop.setObjectName("import_cancel")
        self.stop.setToolTip("Leave it out; a copy that was begun is removed")
        self.stop.clicked.connect(self.reject)
        row = QHBoxLayout()
        row.addStretch(1)
        row.addWidget(self.stop)
        row.addWidget(self.ok)
        box = QVBoxLayout(self)
        box.setContentsMargins(20, 20, 20, 16)
        box.setSpacing(8)
        for widget in (name, place, self.in_place, self.copy, self.words):
            box.addWidget(widget)
        box.addLayout(row)
        desk.progress.connect(self._on_progress)
        tasks.run(lambda: _size(Path(path)), self._on_size, owner=self)

    def _on_size(self, n_bytes: int) -> None:
        if n_bytes:
            self.copy.setText(f"Copy it into the models folder ({figures.size(n_bytes)})")

    def _import(self) -> None:
        self._busy = True
        for widget in (self.ok, self.in_place, self.copy):
            widget.setEnabled(False)
        self.words.setText("Reading…")
        self._desk.import_path(self._path, self.copy.isChecked(), self._on_done, self._on_failed)

    def _on_progress(self, event: VerifyProgress) -> None:
        if self._busy and event.path == self._path:
            self.words.setText(f"{figures.size(event.bytes_done)} of {figures.size(event.bytes_total)} copied")

    def _on_done(self, models: object) -> None:
        self._busy = False
        first = next((model.path for model in models), "") if isinstance(models, list) else ""
        self.imported.emit(first)
        self.close()

    def _on_failed(self, error: BaseException) -> None:
        self._busy = False
        words = describe(error)
        self.words.setText(sentences(words.text, words.hint))
        for widget in (self.ok, self.in_place, self.copy):
            widget.setEnabled(True)

    def reject(self) -> None:
        if self._busy:
            self._desk.cancel(self._path)
        super().reject()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:
        return 0
