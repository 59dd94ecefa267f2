"""LoRA adapters of a model: which of those that fit are loaded with it, and how much each of them changes it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QCheckBox, QFileDialog, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from desktop import figures
from desktop.widgets.controls import ValueSlider
from desktop.widgets.term import explain
from engine.engine_options import Adapter

if TYPE_CHECKING:
    from engine.models.adapter import AdapterFile

_STEP = 0.05
_MOST = 2.0
_WIDTH, _INDENT = 320, 26
_TIP = "How much of the adapter is used: 0 nothing, 1 as it was trained. It can be changed while the model is loaded."


class _Row(QWidget):
    """One adapter.

    Signals:
        switched: it is used now, or not any more. moved: its scale is another.
    """

    switched = Signal()
    moved = Signal()

    def __init__(self, path: str, words: str, number: int) -> None:
        super().__init__()
        self.path = path
        self._scale = 1.0
        self.box = QCheckBox(words)
        self.box.setObjectName(f"adapter_{number}")
        self.box.setAccessibleName(f"Use the adapter {words}")
        explain(self.box, "lora", f"Load this adapter with the model\n{path}")
        self.slider = ValueSlider(
            f"adapter_scale_{number}", "Scale", _TIP, lambda at: f"{at * _STEP:.2f}", term="lora_scale"
        )
        self.slider.slider.setAccessibleName(f"Scale of {words}")
        self.slider.set_range(0, round(_MOST / _STEP), round(1 / _STEP))
        self.slider.setVisible(False)
        inner = QHBoxLayout()
        inner.setContentsMargins(_INDENT, 0, 0, 0)
        inner.addWidget(self.slider, 1000)
        inner.addStretch(1)
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(6)
        box.addWidget(self.box)
        box.addLayout(inner)
        self.box.toggled.connect(self.slider.setVisible)
        self.box.clicked.connect(self.switched)
        self.slider.moved.connect(self._on_moved)

    def apply_scale(self, scale: float) -> None:
        self.slider.apply_scale(scale)
        self.slider.setMaximumWidth(round(_WIDTH * max(1.0, scale)))

    def show_use(self, adapter: Adapter | None) -> None:
        """Whether it is used, and its scale; tells nobody."""
        self.box.setChecked(adapter is not None)
        if adapter is not None:
            self._scale = adapter.scale
            self.slider.set_position(round(adapter.scale / _STEP))

    @property
    def adapter(self) -> Adapter | None:
        """None: it is not used."""
        return Adapter(self.path, self._scale) if self.box.isChecked() else None

    def _on_moved(self, position: int) -> None:
        self._scale = round(position * _STEP, 2)
        self.moved.emit()


class AdaptersList(QWidget):
    """Signals:
    chosen: other adapters are used now. rescaled: the same ones with other scales.
    file_chosen(str): the user wants to use this file.
    """

    chosen = Signal()
    rescaled = Signal()
    file_chosen = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("adapters")
        self.rows: list[_Row] = []
        self._ui_scale = 1.0
        heading = QLabel("Adapters")
        heading.setProperty("role", "section")
        self.add = QPushButton("Use a file…")
        self.add.setObjectName("add_adapter")
        self.add.setProperty("kind", "link")
        self.add.setAutoDefault(False)
        explain(heading, "lora")
        explain(self.add, "lora", "Choose a LoRA adapter in GGUF format that was made for this model")
        self.add.clicked.connect(self.ask_for_file)
        head = QHBoxLayout()
        head.setSpacing(8)
        head.addWidget(heading)
        head.addWidget(self.add)
        head.addStretch(1)
        self.words = QLabel()
        self.words.setObjectName("adapter_words")
        self.words.setProperty("role", "label")
        self.words.setWordWrap(True)
        self.words.setTextFormat(Qt.TextFormat.PlainText)
        self._list = QVBoxLayout()
        self._list.setSpacing(8)
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(6)
        box.addLayout(head)
        box.addWidget(self.words)
        box.addLayout(self._list)

    def apply_scale(self, scale: float) -> None:
        self._ui_scale = scale
        for row in self.rows:
            row.apply_scale(scale)

    @property
    def adapters(self) -> tuple[Adapter, ...]:
        """Those that are used."""
        return tuple(adapter for row in self.rows if (adapter := row.adapter) is not None)

    def show_adapters(self, found: Sequence[AdapterFile], used: Sequence[Adapter]) -> None:
        """The adapters in the library that are for this model, and those that are used, wherever they lie."""
        words = {one.path: f"{one.name} · rank {one.rank} · {figures.size(one.size_bytes)}" for one in found}
        words |= {one.path: PurePath(one.path).name for one in used if one.path not in words}
        if [row.path for row in self.rows] != list(words):
            for row in self.rows:
                self._list.removeWidget(row)
                row.hide()
                row.deleteLater()
            self.rows = [_Row(path, text, number) for number, (path, text) in enumerate(words.items())]
            for row in self.rows:
                row.switched.connect(self.chosen)
                row.moved.connect(self.rescaled)
                row.apply_scale(self._ui_scale)
                self._list.addWidget(row)
        by_path = {one.path: one for one in used}
        for row in self.rows:
            row.show_use(by_path.get(row.path))
        self.say("" if self.rows else "None for this model is in the library.")

    def say(self, words: str, *, bad: bool = False) -> None:
        """A sentence under the heading; empty: none."""
        self.words.setText(words)
        self.words.setVisible(bool(words))
        role = "bad" if bad else "label"
        if self.words.property("role") != role:
            self.words.setProperty("role", role)
            self.words.style().unpolish(self.words)
            self.words.style().polish(self.words)

    def ask_for_file(self) -> None:
        dialog = QFileDialog(self, "Use a LoRA adapter", "", "GGUF files (*.gguf);;All files (*)")
        dialog.setObjectName("adapter_dialog")
        dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
        dialog.fileSelected.connect(self.file_chosen)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()
