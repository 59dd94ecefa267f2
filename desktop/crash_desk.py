"""After the model's process has ended by itself: load it again, load it with less, keep a report of what is known."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QStandardPaths, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QFileDialog

from desktop import errors
from desktop.bridge import EngineBridge
from desktop.model_control import ModelControl
from desktop.widgets.banner import Banner, Offer
from engine.message import ErrorInfo

if TYPE_CHECKING:
    from engine.service import Engine

_SAVE_TIP = "Save what is known about it as a text file. It holds no text of your chats and no paths of your files."


class CrashDesk(QObject):
    """Fills a banner with what helps after a death.

    Signals:
        failed(object): an error while the report was made or saved. saved(str): the file it is in.
    """

    failed = Signal(object)
    saved = Signal(str)

    def __init__(self, engine: Engine, bridge: EngineBridge, control: ModelControl, banner: Banner) -> None:
        super().__init__(banner)
        self._engine, self._bridge, self._control, self._banner = engine, bridge, control, banner

    def show(self, error: ErrorInfo) -> None:
        """Say what happened, and offer what can be done."""
        words = errors.describe(error)
        known = error.code == "worker_died" and self._engine.black_box.last is not None
        self._banner.show_words(
            words,
            action="Reload",
            tip="Load the model again",
            act=self._control.reload,
            copy=self._copy_report if known else None,
        )
        if not known:
            return
        self._banner.add_offer(Offer("save_report", "Save report…", _SAVE_TIP, self._ask_for_file, stays=True))

        def offer(given_up: tuple[str, ...]) -> None:
            if given_up and self._banner.words is words:
                tip = f"Load the model again with less memory: {', '.join(given_up)}"
                safer = Offer("reload_safer", "Reload safer", tip, self._control.reload_safer)
                self._banner.add_offer(safer, first=True)

        self._bridge.run(self._engine.black_box.safer(), offer, self.failed.emit, owner=self)

    def _copy_report(self) -> None:
        clipboard = QGuiApplication.clipboard()
        self._bridge.run(self._engine.black_box.report(), clipboard.setText, self.failed.emit, owner=self)

    def _ask_for_file(self) -> None:
        folder = QStandardPaths.writableLocation(QStandardPaths.StandardLocation.DocumentsLocation)
        name = f"inglenook-report-{time.strftime('%Y%m%d-%H%M')}.txt"
        dialog = QFileDialog(self._banner.window(), "Save the report", folder, "Text files (*.txt);;All files (*)")
        dialog.setObjectName("save_report_dialog")
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setDefaultSuffix("txt")
        dialog.selectFile(name)
        dialog.fileSelected.connect(self.save)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def save(self, file: str) -> None:
        """Write the report there."""
        self._bridge.run(
            self._engine.black_box.save_report(Path(file)),
            lambda _: self.saved.emit(file),
            self.failed.emit,
            owner=self,
        )
