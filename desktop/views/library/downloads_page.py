"""The downloads: one strip each, with progress, speed, time left, and what can be done."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QProgressBar, QPushButton, QScrollArea, QVBoxLayout, QWidget

from desktop import figures
from desktop.errors import describe, sentences
from desktop.model_desk import ModelDesk
from desktop.models.downloads import ACTIONS, permille, status_words
from desktop.theme import Theme
from desktop.views.hub.page_parts import page_margins
from desktop.widgets.elided_label import ElidedLabel
from desktop.widgets.term import explain
from engine.events import DownloadInfo

_MOST_WIDE = 1000
_WORDS = {
    "pause": ("Pause", "Stop here; it goes on from this place later"),
    "resume": ("Resume", "Go on where it stopped"),
    "retry": ("Try again", "Go on where it stopped"),
    "cancel": ("Cancel", "Take it out of the queue and delete what has come"),
    "show": ("Show in library", "Show this model in the library"),
    "remove": ("Clear", "Take it off this list; the model stays"),
}


class DownloadStrip(QFrame):
    """One download.

    Signals:
        action(str, str): what is to be done (a key of `_WORDS`) with which download.
    """

    action = Signal(str, str)

    def __init__(self, info: DownloadInfo) -> None:
        super().__init__()
        self.setObjectName("download_strip")
        self.setProperty("role", "download")
        self._id = info.id
        self.name = ElidedLabel()
        self.name.setProperty("role", "strong")
        self.repo = ElidedLabel()
        self.repo.setProperty("role", "label")
        self.bar = QProgressBar()
        self.bar.setObjectName("download_progress")
        self.bar.setRange(0, 1000)
        self.bar.setTextVisible(False)
        self.words = QLabel()
        self.words.setObjectName("download_words")
        self.words.setProperty("role", "small")
        self.words.setWordWrap(True)
        self.error = QLabel()
        self.error.setObjectName("download_error")
        self.error.setProperty("role", "bad")
        self.error.setWordWrap(True)
        self.error.setTextFormat(Qt.TextFormat.PlainText)
        self.buttons: dict[str, QPushButton] = {}
        row = QHBoxLayout()
        row.setSpacing(8)
        texts = QVBoxLayout()
        texts.setSpacing(0)
        texts.addWidget(self.name)
        texts.addWidget(self.repo)
        row.addLayout(texts, 1)
        for key, (words, tip) in _WORDS.items():
            button = QPushButton(words)
            button.setObjectName(f"download_{key}")
            button.setToolTip(tip)
            button.clicked.connect(lambda _=False, key=key: self.action.emit(key, self._id))
            self.buttons[key] = button
            row.addWidget(button)
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 14, 0, 14)
        box.setSpacing(6)
        box.addLayout(row)
        for widget in (self.bar, self.words, self.error):
            box.addWidget(widget)
        explain(self, "gguf", "")
        explain(self.name, "quant_names")
        explain(self.repo, "repository")
        explain(self.words, "checksum")
        explain(self.bar, "checksum", "")
        self.show_info(info)

    def show_info(self, info: DownloadInfo) -> None:
        """Take the newest state."""
        title = f"{info.repo.partition('/')[2] or info.repo} · {info.label}"
        self.name.setText(title)
        self.repo.setText(info.repo)
        self.bar.setValue(permille(info))
        self.bar.setVisible(info.status != "done")
        words = status_words(info)
        self.words.setText(words)
        self.bar.setAccessibleName(f"Progress of {title}")
        self.bar.setAccessibleDescription(words)
        self.bar.setToolTip(words)
        self.setAccessibleName(f"{title}, {words}")
        error = describe(info.error) if info.error is not None and info.status != "running" else None
        self.error.setText(sentences(error.text, error.hint) if error else "")
        self.error.setVisible(error is not None)
        _set_role(self.error, "bad" if info.status == "failed" else "warn")
        had_focus = next((key for key, button in self.buttons.items() if button.hasFocus()), "")
        possible = ACTIONS.get(info.status, ())
        for key, button in self.buttons.items():
            button.setVisible(key in possible)
            button.setAccessibleName(f"{_WORDS[key][0]} {title}")
        if had_focus and had_focus not in possible and possible:
            self.buttons[possible[0]].setFocus()  # the keyboard stays on this download


class DownloadsPage(QScrollArea):
    """Signals:
    show_model(str): show this file in the library.
    """

    show_model = Signal(str)

    def __init__(self, desk: ModelDesk, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("downloads_scroll")
        self.setWidgetResizable(True)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._desk = desk
        self._strips: dict[str, DownloadStrip] = {}
        title = QLabel("Downloads")
        title.setProperty("role", "title")
        self.empty = QLabel("Nothing is being downloaded. Choose a model under Discover.")
        self.empty.setObjectName("downloads_empty")
        self.empty.setProperty("role", "secondary")
        self.empty.setWordWrap(True)
        explain(title, "open_weights")
        explain(self.empty, "open_weights")
        column = QWidget()
        self._column = column
        self._list = QVBoxLayout()
        self._list.setSpacing(0)
        box = QVBoxLayout(column)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(8)
        box.addWidget(title)
        box.addWidget(self.empty)
        box.addLayout(self._list)
        box.addStretch(1)
        page = QWidget()
        page.setObjectName("downloads_page")
        page.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        outer = QHBoxLayout(page)
        self._outer = outer
        outer.addWidget(column, 1000)
        outer.addStretch(1)
        self.setWidget(page)
        desk.downloads.listed.connect(self._rebuild)
        desk.downloads.changed.connect(self._on_changed)
        self._rebuild()

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self._column.setMaximumWidth(round(_MOST_WIDE * scale))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        page_margins(self._outer, self.viewport().width())

    @property
    def strips(self) -> list[DownloadStrip]:
        return list(self._strips.values())

    def _rebuild(self) -> None:
        infos = self._desk.downloads.infos
        wanted = {info.id for info in infos}
        for gone in [key for key in self._strips if key not in wanted]:
            strip = self._strips.pop(gone)
            self._list.removeWidget(strip)
            strip.hide()
            strip.deleteLater()
        for place, info in enumerate(infos):
            if info.id not in self._strips:
                strip = DownloadStrip(info)
                strip.action.connect(self._on_action)
                self._strips[info.id] = strip
                self._list.insertWidget(place, strip)
        self.empty.setVisible(not infos)

    def _on_changed(self, download_id: str) -> None:
        info, strip = self._desk.downloads.get(download_id), self._strips.get(download_id)
        if info is not None and strip is not None:
            strip.show_info(info)

    def _on_action(self, action: str, download_id: str) -> None:
        info = self._desk.downloads.get(download_id)
        if action == "show":
            if info is not None and info.paths:
                self.show_model.emit(info.paths[0])
        else:
            self._desk.hub.do(action, download_id)


class DownloadsPanel(QWidget):
    """Beside the downloads: where they go and what room there is."""

    def __init__(self, desk: ModelDesk, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("downloads_panel")
        self._desk = desk
        self.room = QLabel()
        self.room.setObjectName("free_space")
        self.need = QLabel()
        self.need.setObjectName("need_space")
        self.folder = QLabel()
        self.folder.setObjectName("models_folder")
        box = QVBoxLayout(self)
        box.setContentsMargins(10, 8, 10, 0)
        box.setSpacing(4)
        for heading, label in (("Free on the disk", self.room), ("Still to come", self.need), ("Folder", self.folder)):
            words = QLabel(heading)
            words.setProperty("role", "label")
            label.setWordWrap(True)
            label.setTextFormat(Qt.TextFormat.PlainText)
            box.addWidget(words)
            box.addWidget(label)
            box.addSpacing(8)
        box.addStretch(1)
        desk.downloads.listed.connect(self.refresh)

    def refresh(self) -> None:
        """Ask the disk again."""
        self._desk.hub.free_space(self._on_free)
        self.folder.setText(str(self._desk.folder).replace("/", "/\u200b"))

    def _on_free(self, free: int) -> None:
        self.room.setText(figures.size(free))
        left = self._desk.downloads.bytes_left
        self.need.setText(figures.size(left) if left else "nothing")
        short = 0 <= free < left
        _set_role(self.need, "bad" if short else "")


def _set_role(label: QLabel, role: str) -> None:
    if label.property("role") != role:
        label.setProperty("role", role)
        label.style().unpolish(label)
        label.style().polish(label)
