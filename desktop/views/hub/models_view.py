"""The models: what can be had, what is here, what is on its way. A list at the left, one thing at the right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QDragEnterEvent, QDropEvent, QFont, QFontMetrics, QHideEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import (
    QFileDialog,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QSizePolicy,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from desktop import fonts
from desktop.fit_desk import FitDesk
from desktop.model_control import ModelControl
from desktop.model_desk import ModelDesk
from desktop.tasks import Tasks
from desktop.theme import Theme
from desktop.views.hub.discover_panel import DiscoverPanel
from desktop.views.hub.model_page import ModelPage
from desktop.views.library.downloads_page import DownloadsPage, DownloadsPanel
from desktop.views.library.import_dialog import ImportDialog
from desktop.views.library.library_page import LibraryPage
from desktop.views.library.library_panel import LibraryPanel

if TYPE_CHECKING:
    from engine.events import DownloadInfo, ModelState
    from engine.models.catalog import CatalogModel
    from engine.models.library import LibraryModel

DISCOVER, LIBRARY, DOWNLOADS = range(3)
_TABS = (
    ("tab_discover", "Discover", "Models that can be had"),
    ("tab_library", "Library", "Models on this computer"),
    ("tab_downloads", "Downloads", "What is on its way"),
)
_PANEL_WIDTH, _NARROW_WIDTH = 320, 256


class ModelsView(QWidget):
    """Signals:
    link_activated(str): open this address in the browser. message(str, object): say this, with a way back or None.
    chat_requested: a model is being loaded, show the chat.
    """

    link_activated = Signal(str)
    message = Signal(str, object)
    chat_requested = Signal()

    def __init__(
        self, desk: ModelDesk, fit: FitDesk, control: ModelControl, tasks: Tasks, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self.setObjectName("models_view")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setAcceptDrops(True)
        self._desk, self._fit, self._control, self._tasks = desk, fit, control, tasks
        self.discover = DiscoverPanel(desk, fit)
        self.library = LibraryPanel(desk)
        self.downloads_panel = DownloadsPanel(desk)
        self.model_page = ModelPage(desk, fit)
        self.library_page = LibraryPage(desk, fit)
        self.downloads_page = DownloadsPage(desk)
        self.tabs: list[QPushButton] = []
        self.tab = DISCOVER
        self._scale = 1.0
        self._wanted = ""
        self._build()
        self._wire()
        self.show_tab(DISCOVER)

    def _build(self) -> None:
        row = QHBoxLayout()
        row.setSpacing(12)
        for place, (name, words, tip) in enumerate(_TABS):
            tab = QPushButton(words)
            tab.setObjectName(name)
            tab.setProperty("kind", "tab")
            tab.setCheckable(True)
            tab.setAccessibleName(words)
            tab.setToolTip(tip)
            tab.clicked.connect(lambda _=False, place=place: self.show_tab(place))
            self.tabs.append(tab)
            row.addWidget(tab)
        self.badge = QLabel()
        self.badge.setObjectName("downloads_badge")
        self.badge.setProperty("chip", "accent")
        self.badge.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        row.addWidget(self.badge, 0, Qt.AlignmentFlag.AlignVCenter)
        row.addStretch(1)
        row.setContentsMargins(2, 0, 0, 0)
        self.panel = QWidget()
        self.panel.setObjectName("models_panel")
        self.panel.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.panels = QStackedWidget()
        for widget in (self.discover, self.library, self.downloads_panel):
            self.panels.addWidget(widget)
        left = QVBoxLayout(self.panel)
        left.setContentsMargins(14, 14, 14, 10)
        left.setSpacing(10)
        left.addLayout(row)
        left.addWidget(self.panels, 1)
        self.nothing = QLabel("Choose a model at the left.")
        self.nothing.setObjectName("models_nothing")
        self.nothing.setProperty("role", "secondary")
        self.nothing.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.pages = QStackedWidget()
        for page in (self.nothing, self.model_page, self.library_page, self.downloads_page):
            self.pages.addWidget(page)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self.panel)
        layout.addWidget(self.pages, 1)

    def _wire(self) -> None:
        desk = self._desk
        self.discover.catalog_chosen.connect(self.show_model)
        self.discover.repo_chosen.connect(self.show_model)
        self.library.model_chosen.connect(self._show_library)
        self.library.load_requested.connect(lambda path: self._load(path, {}))
        self.library.delete_requested.connect(self.delete)
        self.library.import_requested.connect(self.ask_for_file)
        self.model_page.link_activated.connect(self.link_activated)
        self.model_page.load_requested.connect(self.show_load)
        self.model_page.downloads_requested.connect(lambda: self.show_tab(DOWNLOADS))
        self.model_page.download_started.connect(lambda info: self._say(info, "is being downloaded"))
        self.library_page.delete_requested.connect(self.delete)
        self.library_page.download_again.connect(self._download_again)
        self.library_page.load_panel.load_requested.connect(self._load)
        self.library_page.load_panel.unload_requested.connect(self._control.unload)
        self.downloads_page.show_model.connect(self.show_load)
        desk.downloads.listed.connect(self._on_downloads)
        desk.downloads.changed.connect(lambda _: self._on_downloads())
        desk.downloads.finished.connect(lambda info: self._say(info, "is complete and checked"))
        desk.library_changed.connect(self._on_library)
        self._on_downloads()

    # ---- look

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self._scale = scale
        bold = fonts.ui_font(scale)
        bold.setWeight(QFont.Weight.DemiBold)
        for tab in self.tabs:  # the chosen one is bold and must not grow
            tab.setMinimumWidth(QFontMetrics(bold).horizontalAdvance(tab.text()) + 10)
        self._fit_panel()
        for part in (
            self.discover,
            self.library,
            self.model_page,
            self.library_page,
            self.downloads_page,
        ):
            part.apply_theme(theme, scale)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_panel()

    def _fit_panel(self) -> None:
        """As wide as the design has it, less in a narrow window, never too narrow for the tabs."""
        tabs = sum(tab.minimumWidth() for tab in self.tabs) + 2 * 12 + 32
        badge = self.badge.sizeHint().width() + 12 if self.badge.isVisibleTo(self) else 0
        wide = _PANEL_WIDTH if self.width() >= 900 else _NARROW_WIDTH
        self.panel.setFixedWidth(max(round(wide * min(max(1.0, self._scale), 1.4)), tabs + badge))

    # ---- tabs

    def show_tab(self, place: int) -> None:
        """One of DISCOVER, LIBRARY, DOWNLOADS."""
        self.tab = place
        for number, tab in enumerate(self.tabs):
            tab.setChecked(number == place)
        self.panels.setCurrentIndex(place)
        if place == DOWNLOADS:
            self.downloads_panel.refresh()
            self.pages.setCurrentWidget(self.downloads_page)
            return
        if place == LIBRARY:
            self.library.choose_first()
            shown = bool(self.library_page.path)
            self.nothing.setText("Nothing is here yet." if not shown else "")
            self.pages.setCurrentWidget(self.library_page if shown else self.nothing)
            return
        self.nothing.setText("Choose a model at the left.")
        self.pages.setCurrentWidget(self.model_page if self.model_page.repo else self.nothing)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._desk.watch()
        self._desk.reload()
        self._fit.look()
        self.discover.start()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._desk.unwatch()

    def focus_first(self) -> None:
        """Put the keyboard into the panel that is shown."""
        box = {DISCOVER: self.discover.search, LIBRARY: self.library.filter}.get(self.tab, self.tabs[self.tab])
        box.setFocus(Qt.FocusReason.OtherFocusReason)

    # ---- one model

    def show_model(self, model: CatalogModel | str) -> None:
        """The page of a model of the catalogue, or of a repository of the Hub (asks for its files)."""
        self.discover.leave_choice()
        if isinstance(model, str):
            self.model_page.show_repo(model)
        else:
            self.model_page.show_catalog(model)
        if self.tab == DISCOVER:
            self.pages.setCurrentWidget(self.model_page)

    def _show_library(self, path: str) -> None:
        self.library_page.show_model(path)
        self.library_page.load_panel.show_state(self._control.state)
        if self.tab == LIBRARY:
            self.pages.setCurrentWidget(self.library_page)

    def show_load(self, path: str) -> None:
        """The library with this model and how it would be loaded, as soon as the library knows it."""
        self.show_tab(LIBRARY)
        self.library.filter.clear()
        self._wanted = "" if self._desk.find(path) else path
        if not self._wanted and path:
            self.library.choose(path)
        self.library.focus_list()

    def _download_again(self, repo: str, _: str) -> None:
        self.show_tab(DISCOVER)
        self.discover.list.mark("")
        self.show_model(repo)

    def _on_library(self) -> None:
        if self._wanted and self._desk.find(self._wanted):
            self.show_load(self._wanted)
        elif self.tab == LIBRARY and not self._desk.find(self.library_page.path):
            self.library.list.mark("")
            self.show_tab(LIBRARY)

    # ---- commands

    def set_state(self, state: ModelState) -> None:
        """What happens to the loaded model."""
        self.library.set_loaded(state.path if state.status == "ready" else "")
        self.library_page.load_panel.show_state(state)

    def _load(self, path: str, options: dict[str, object]) -> None:
        self._control.load(path, **options)

    def delete(self, path: str) -> None:
        """Move a model to the trash; the message can bring it back."""

        def done(model: LibraryModel) -> None:
            self._desk.reload()
            self.message.emit(f"Deleted “{model.name}”", lambda: self._desk.restore(path))

        self._desk.trash(path, done)

    def _say(self, info: DownloadInfo, what: str) -> None:
        self.message.emit(f"{info.repo.partition('/')[2]} {info.label} {what}", None)

    def _on_downloads(self) -> None:
        count = self._desk.downloads.n_active
        self.badge.setText(str(count))
        self.badge.setVisible(count > 0)
        self._fit_panel()
        words = f"Downloads, {count} not finished" if count else "Downloads"
        self.badge.setToolTip(words)
        self.tabs[DOWNLOADS].setAccessibleName(words)

    # ---- importing

    def ask_for_file(self) -> None:
        """Ask for a GGUF file, then how it should be taken in."""
        dialog = QFileDialog(self, "Import a GGUF file", str(self._desk.folder), "GGUF models (*.gguf);;All files (*)")
        dialog.setObjectName("import_file_dialog")
        dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
        dialog.fileSelected.connect(self.import_path)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def import_path(self, path: str) -> None:
        """Ask whether this file or folder is used where it is or copied."""
        dialog = ImportDialog(self._desk, self._tasks, path, self)
        dialog.imported.connect(self._on_imported)
        dialog.show()

    def _on_imported(self, path: str) -> None:
        self._desk.reload()
        self.show_load(path)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if _dropped(event):
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        path = _dropped(event)
        if path:
            event.acceptProposedAction()
            self.import_path(path)


def _dropped(event: QDropEvent) -> str:
    """The first local file or folder that is dragged; empty: none. What it is, is said when it is read."""
    files = [url.toLocalFile() for url in event.mimeData().urls() if url.isLocalFile()]
    return next(iter(files), "")
