"""The end of the settings: where everything lies, which version this is, and whether there is a newer one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, QUrl, Signal
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QCheckBox, QHBoxLayout, QLabel, QPushButton, QWidget

import engine as program
from desktop import icons
from desktop.bridge import EngineBridge
from desktop.theme import Theme
from desktop.update_desk import UpdateDesk
from desktop.views.settings.page import Section
from desktop.widgets.elided_label import ElidedLabel
from engine.errors import EngineError

if TYPE_CHECKING:
    from engine.service import Engine

_STAYS = (
    "Removing Inglenook or installing another version leaves all of this as it is. To be rid of it too, delete {these} "
    "afterwards."
)


def _line(*widgets: QWidget) -> QWidget:
    """Widgets beside each other; the first takes the room."""
    holder = QWidget()
    row = QHBoxLayout(holder)
    row.setContentsMargins(0, 0, 0, 0)
    row.setSpacing(12)
    for number, widget in enumerate(widgets):
        row.addWidget(widget, 0 if number else 1)
    return holder


class DataSection(Section):
    """Where chats, models, settings and logs are."""

    def __init__(self, engine: Engine) -> None:
        super().__init__("Data", "Chats, settings and logs are kept on this computer only.")
        paths = engine.paths
        home = paths.home
        path = ElidedLabel(str(home))
        path.setObjectName("data_folder")
        self._secondary(path)
        self.open_folder = QPushButton("Open folder")
        self.open_folder.setObjectName("open_data_folder")
        self.open_folder.setToolTip("Show the data folder in the file manager")
        self.open_folder.clicked.connect(lambda: QDesktopServices.openUrl(QUrl.fromLocalFile(str(home))))
        self.add(_line(path, self.open_folder))
        apart = outside(home, (paths.config, paths.logs, paths.cache))
        for folder in apart:
            label = ElidedLabel(str(folder))
            self._secondary(label)
            self.add(label)
        self.stays = self.note(_STAYS.format(these="these folders" if apart else "this folder"))
        self.stays.setObjectName("data_stays")
        self.add(self.stays)

    def apply_theme(self, theme: Theme) -> None:
        icons.set_icon(self.open_folder, "folder", theme)

    @staticmethod
    def _secondary(label: QLabel) -> None:
        label.setProperty("role", "secondary")
        label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)


class AboutSection(Section):
    """Signals:
    failed(object): a value could not be saved.
    """

    failed = Signal(object)

    def __init__(self, engine: Engine, bridge: EngineBridge, desk: UpdateDesk) -> None:
        super().__init__("About")
        self._engine, self._bridge, self._desk = engine, bridge, desk
        self._loading = True
        self.version = QLabel(f"Inglenook {program.__version__}")
        self.version.setObjectName("version")
        self.version.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.open_page = QPushButton("Open its page")
        self.open_page.setObjectName("open_update_page")
        self.open_page.setProperty("kind", "primary")
        self.open_page.clicked.connect(self._on_open)
        self.check = QPushButton("Check for updates")
        self.check.setObjectName("check_for_updates")
        self.check.clicked.connect(desk.ask)
        self.licences = QPushButton("Licences")
        self.licences.setObjectName("open_licences")
        self.licences.setToolTip("What Inglenook is made with, and under which licences")
        self.licences.clicked.connect(self._on_licences)
        self.add(_line(self.version, self.open_page, self.check, self.licences))
        self.status = self.note("")
        self.status.setObjectName("update_status")
        self.status.setTextFormat(Qt.TextFormat.PlainText)
        self.add(self.status)
        self.daily = QCheckBox("Look for a new version once a day")
        self.daily.setObjectName("update_daily")
        self.daily.setAccessibleName(self.daily.text())
        self.daily.toggled.connect(self._on_daily)
        self.add(self.daily)
        self.add(
            self.note("Inglenook tells of a new version and shows where it is. It never downloads or installs one.")
        )
        desk.changed.connect(self.load)
        self.load()

    def load(self) -> None:
        """Show how things stand."""
        host, update = self._engine.updates.host, self._desk.update
        self._loading = True
        self.status.setText(self._desk.words)
        self.check.setEnabled(bool(host) and not self._desk.is_asking)
        self.check.setToolTip(
            f"Ask {host} for the number of the newest version" if host else "There is no address to ask"
        )
        self.open_page.setVisible(update is not None)
        self.open_page.setToolTip(
            f"Open {update.page if update is not None else 'the page of the new version'} in the browser"
        )
        self.daily.setEnabled(bool(host))
        self.daily.setChecked(self._engine.settings.update_daily)
        asks = f"Asks {host} for one small file, at most once a day, and sends nothing else. " if host else ""
        self.daily.setToolTip(f"{asks}Off: nothing is asked unless you press the button")
        self._loading = False

    def _on_open(self) -> None:
        update = self._desk.update
        if update is not None:
            QDesktopServices.openUrl(QUrl(update.page, QUrl.ParsingMode.StrictMode))

    def _on_licences(self) -> None:
        from desktop.views.settings.licences_dialog import LicencesDialog

        LicencesDialog(self._bridge, self.window()).show()

    def _on_daily(self, on: bool) -> None:
        if self._loading:
            return
        try:
            future = self._engine.change_settings(update_daily=on)
        except EngineError as error:
            self.failed.emit(error)
            return
        self._bridge.run(future, None, self.failed.emit, owner=self)


def outside(home: Path, folders: tuple[Path, ...]) -> list[Path]:
    """Those of the folders that are not below `home` or below one before them."""
    found: list[Path] = []
    for folder in folders:
        if not any(folder.is_relative_to(one) for one in (home, *found)):
            found.append(folder)
    return found
