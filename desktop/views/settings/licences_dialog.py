"""What Inglenook is made of: its parts at the left, the licence of the chosen one at the right."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import (
    QAbstractItemView,
    QDialog,
    QLabel,
    QListWidget,
    QListWidgetItem,
    QPlainTextEdit,
    QSplitter,
    QVBoxLayout,
    QWidget,
)

from desktop import fonts
from desktop.bridge import EngineBridge
from desktop.errors import describe
from desktop.tasks import Tasks
from engine import licences
from engine.licences import Part

_PART = Qt.ItemDataRole.UserRole


class LicencesDialog(QDialog):
    """Not modal. The files are read on a thread of its own."""

    def __init__(self, bridge: EngineBridge, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("licences_dialog")
        self.setWindowTitle("Licences")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.resize(1000, 620)
        self._tasks = Tasks(bridge)
        self.finished.connect(lambda _: self._tasks.close(wait=False))
        self.words = QLabel("Reading the list …")
        self.words.setObjectName("licences_words")
        self.words.setProperty("role", "label")
        self.words.setWordWrap(True)
        self.parts = QListWidget()
        self.parts.setObjectName("licence_parts")
        self.parts.setAccessibleName("Parts of Inglenook")
        self.parts.setToolTip("Programs, libraries, fonts and the model that come with Inglenook")
        self.parts.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.parts.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.parts.setTextElideMode(Qt.TextElideMode.ElideRight)
        self.parts.currentItemChanged.connect(self._on_current)
        self.about = QLabel()
        self.about.setObjectName("licence_about")
        self.about.setWordWrap(True)
        self.about.setTextFormat(Qt.TextFormat.PlainText)
        self.text = QPlainTextEdit()
        self.text.setObjectName("licence_text")
        self.text.setAccessibleName("Text of the licence")
        self.text.setToolTip("The licence as it came with the part")
        self.text.setReadOnly(True)
        self.text.setTabChangesFocus(True)
        self.text.setFont(fonts.mono_font())
        right = QWidget()
        column = QVBoxLayout(right)
        column.setContentsMargins(12, 0, 0, 0)
        column.setSpacing(8)
        column.addWidget(self.about)
        column.addWidget(self.text, 1)
        split = QSplitter()
        split.setChildrenCollapsible(False)
        split.addWidget(self.parts)
        split.addWidget(right)
        split.setStretchFactor(1, 1)
        split.setSizes([270, 690])
        box = QVBoxLayout(self)
        box.setContentsMargins(20, 16, 20, 16)
        box.setSpacing(12)
        box.addWidget(self.words)
        box.addWidget(split, 1)
        self._tasks.run(licences.parts, self._on_parts, self._on_failed, owner=self)

    def _on_parts(self, found: list[Part]) -> None:
        self.words.setText(f"Inglenook is made with {len(found) - 1} parts of others. Each has its own licence.")
        for part in found:
            item = QListWidgetItem(f"{part.name} {part.version}".rstrip())
            item.setData(_PART, part)
            item.setToolTip(f"{part.name}: {part.licence or part.kind}")
            self.parts.addItem(item)
        self.parts.setCurrentRow(0)

    def _on_current(self, item: QListWidgetItem | None, _: QListWidgetItem | None = None) -> None:
        if item is None:
            return
        part: Part = item.data(_PART)
        self.about.setText(" · ".join(word for word in (part.name, part.version, part.kind, part.licence) if word))
        self._tasks.run(
            lambda: licences.text(part), lambda words: self._on_text(part, words), self._on_failed, owner=self
        )

    def _on_text(self, part: Part, words: str) -> None:
        current = self.parts.currentItem()
        if current is not None and current.data(_PART) == part:  # an answer for another part came late
            self.text.setPlainText(words)

    def _on_failed(self, error: BaseException) -> None:
        self.text.clear()
        self.words.setText(f"The licences cannot be read. {describe(error).text}")
