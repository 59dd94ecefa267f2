"""One model of the library: what it is, what is wrong with it, what can be done with it, and how it is loaded."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, QUrl, Signal
from PySide6.QtGui import QDesktopServices, QResizeEvent
from PySide6.QtWidgets import (
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QProgressBar,
    QPushButton,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from desktop import errors, figures, icons
from desktop.fit_desk import FitDesk
from desktop.model_desk import ModelDesk
from desktop.models.library import details, facts, next_step
from desktop.theme import Theme
from desktop.views.hub.page_parts import page_margins
from desktop.views.library.load_panel import LoadPanel
from desktop.widgets.banner import Banner
from desktop.widgets.term import explain

if TYPE_CHECKING:
    from engine.events import VerifyProgress
    from engine.models.library import LibraryModel

_MOST_WIDE = 1100


class LibraryPage(QScrollArea):
    """Signals:
    delete_requested(str): move it to the trash (its path). download_again(str, str): repository and quantization.
    """

    delete_requested = Signal(str)
    download_again = Signal(str, str)

    def __init__(self, desk: ModelDesk, fit: FitDesk, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("library_scroll")
        self.setWidgetResizable(True)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._desk = desk
        self._model: LibraryModel | None = None
        self.title = QLabel()
        self.title.setObjectName("library_title")
        self.title.setProperty("role", "title")
        self.facts = QLabel()
        self.facts.setObjectName("library_facts")
        self.facts.setProperty("role", "secondary")
        for label in (self.title, self.facts):
            label.setWordWrap(True)
            label.setTextFormat(Qt.TextFormat.PlainText)
        self.verify = self._button("verify", "Verify", "Compute the SHA-256 of its files and compare it", self._verify)
        explain(self.verify, "checksum", self.verify.toolTip())
        self.reveal = self._button("reveal", "Show in folder", "Open the folder that holds it", self._reveal)
        self.delete = self._button("delete_model", "Delete", "Move it to the trash; it can be undone", self._delete)
        self.banner = Banner("library_banner")
        self.progress = QProgressBar()
        self.progress.setObjectName("verify_progress")
        self.progress.setRange(0, 1000)
        self.progress.setTextVisible(False)
        self.progress.setAccessibleName("Checking")
        self.progress.setToolTip("How much of its files has been read")
        self.progress_words = QLabel()
        self.progress_words.setProperty("role", "label")
        self.load_panel = LoadPanel(fit, desk.loads)
        self._rows: list[tuple[QLabel, QLabel]] = []
        self._build()
        desk.library_changed.connect(self._refresh)
        desk.progress.connect(self._on_progress)

    def _button(self, name: str, words: str, tip: str, slot: object) -> QPushButton:
        button = QPushButton(words)
        button.setObjectName(name)
        button.setToolTip(tip)
        button.setAccessibleName(words)
        button.clicked.connect(slot)
        return button

    def _build(self) -> None:
        buttons = QHBoxLayout()
        buttons.setSpacing(8)
        for button in (self.verify, self.reveal, self.delete):
            buttons.addWidget(button)
        buttons.addStretch(1)
        self._grid = QGridLayout()
        self._grid.setHorizontalSpacing(20)
        self._grid.setVerticalSpacing(4)
        self._grid.setColumnStretch(1, 1)
        column = QWidget()
        self._column = column
        box = QVBoxLayout(column)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(6)
        box.addWidget(self.title)
        box.addWidget(self.facts)
        box.addSpacing(6)
        box.addWidget(self.banner)
        box.addLayout(buttons)
        box.addWidget(self.progress)
        box.addWidget(self.progress_words)
        box.addSpacing(14)
        box.addWidget(self.load_panel)
        box.addSpacing(14)
        box.addLayout(self._grid)
        box.addStretch(1)
        page = QWidget()
        page.setObjectName("library_page")
        page.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        outer = QHBoxLayout(page)
        self._outer = outer
        outer.addWidget(column, 1000)
        outer.addStretch(1)
        self.setWidget(page)

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self._column.setMaximumWidth(round(_MOST_WIDE * scale))
        self.load_panel.apply_theme(theme, scale)
        for button, name in ((self.verify, "verify"), (self.reveal, "folder"), (self.delete, "delete")):
            icons.set_icon(button, name, theme)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        page_margins(self._outer, self.viewport().width())

    # ---- content

    @property
    def path(self) -> str:
        return self._model.path if self._model is not None else ""

    def show_model(self, path: str) -> None:
        """Show this model of the library."""
        self._model = self._desk.find(path)
        self._refresh()

    def _refresh(self) -> None:
        if self._model is None:
            return
        model = self._desk.find(self._model.path)
        if model is None:
            return
        self._model = model
        self.title.setText(model.name)
        self.facts.setText(facts(model))
        self._show_step(model)
        self._show_details(details(model, self._desk.duplicates_of(model), dt.datetime.now()))
        self.load_panel.setVisible(model.complete)
        self.load_panel.set_path(model.path if model.complete else "", model.adapters)
        self.delete.setEnabled(model.removable or model.source == "folder")
        tip = "Move it to the trash; it can be undone"
        self.delete.setToolTip(
            tip if self.delete.isEnabled() else "It belongs to another program, or comes with this one"
        )
        checking = self._desk.checking.get(model.path)
        self.verify.setText("Stop checking" if checking else "Verify")
        self._show_progress(checking)

    def _show_step(self, model: LibraryModel) -> None:
        step = next_step(model)
        if step is None:
            self.banner.dismiss()
            return
        words = errors.Words("library", step.title, step.text, step.hint)
        act = {"download": self._download_again, "delete": self._delete}.get(step.action)
        self.banner.show_words(words, action=step.button, tip=step.hint, act=act)

    def _show_details(self, rows: list[tuple[str, str]]) -> None:
        while len(self._rows) < len(rows):
            name, value = QLabel(), QLabel()
            name.setProperty("role", "label")
            value.setProperty("role", "small")
            value.setWordWrap(True)
            value.setTextFormat(Qt.TextFormat.PlainText)
            value.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
            place = len(self._rows)
            self._grid.addWidget(name, place, 0, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignTop)
            self._grid.addWidget(value, place, 1)
            self._rows.append((name, value))
        for number, (name, value) in enumerate(self._rows):
            shown = number < len(rows)
            name.setVisible(shown)
            value.setVisible(shown)
            if shown:
                name.setText(rows[number][0])
                value.setText(_breakable(rows[number][1]))

    # ---- commands

    def _verify(self) -> None:
        if self._model is None:
            return
        if self._model.path in self._desk.checking:
            self._desk.cancel(self._model.path)
        else:
            self._desk.verify(self._model.path, lambda _: None)

    def _on_progress(self, event: VerifyProgress) -> None:
        if self._model is not None and event.path == self._model.path and event.path in self._desk.checking:
            self._show_progress(event)

    def _show_progress(self, event: VerifyProgress | None) -> None:
        self.progress.setVisible(event is not None)
        self.progress_words.setVisible(event is not None)
        if event is not None:
            # byte counts are larger than a widget's numbers
            self.progress.setValue(event.bytes_done * 1000 // event.bytes_total if event.bytes_total else 0)
            self.progress_words.setText(
                f"Checking: {figures.size(event.bytes_done)} of {figures.size(event.bytes_total)} read"
            )

    def _reveal(self) -> None:
        if self._model is not None:
            QDesktopServices.openUrl(QUrl.fromLocalFile(str(Path(self._model.path).parent)))

    def _delete(self) -> None:
        if self._model is not None:
            self.delete_requested.emit(self._model.path)

    def _download_again(self) -> None:
        if self._model is not None:
            self.download_again.emit(self._model.repo, self._model.quantization)


def _breakable(text: str) -> str:
    """Long paths may break after their separators."""
    return text.replace("/", "/\u200b") if "/" in text and " " not in text else text
