"""The library as the window's views ask for it. What is not here yet is asked for through its `hub`."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from PySide6.QtCore import QObject, QTimer, Signal

from desktop.bridge import EngineBridge
from desktop.hub_desk import Failed, HubDesk
from desktop.load_desk import LoadDesk
from desktop.models.downloads import DownloadList
from desktop.tasks import Tasks
from engine.events import VerifyProgress

if TYPE_CHECKING:
    from engine.models.library import LibraryModel
    from engine.service import Engine

T = TypeVar("T")
_RELOAD_MS = 150


class ModelDesk(QObject):
    """Signals:
    library_changed: `models` is another list now. progress(VerifyProgress): bytes of a file being checked or copied.
    failed(object): an error that no view has asked to be told of.
    """

    library_changed = Signal()
    progress = Signal(object)
    failed = Signal(object)

    def __init__(self, engine: Engine, bridge: EngineBridge, tasks: Tasks, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._engine = engine
        self._bridge = bridge
        self._end_watch: Callable[[], None] | None = None
        self.models: list[LibraryModel] = []
        self.listed = False
        self.checking: dict[str, VerifyProgress] = {}
        self.hub = HubDesk(engine, bridge, tasks, self)
        self.hub.failed.connect(self.failed)
        self.loads = LoadDesk(engine, bridge, self)
        self.loads.failed.connect(self.failed)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(_RELOAD_MS)
        self._timer.timeout.connect(self.reload)
        bridge.library_changed.connect(lambda _: self._timer.start())
        bridge.verify_progress.connect(self._on_progress)

    @property
    def downloads(self) -> DownloadList:
        return self.hub.downloads

    def stop(self) -> None:
        """Ask for nothing any more."""
        self._timer.stop()
        self.unwatch()

    def _run(self, future: Future[T], done: Callable[[T], None] | None, failed: Failed | None) -> None:
        self._bridge.run(future, done, failed or self.failed.emit, owner=self)

    # ---- the library

    def watch(self) -> None:
        """Have changes on disk noticed while the models are on screen."""
        if self._end_watch is None:
            self._end_watch = self._engine.library.watch()

    def unwatch(self) -> None:
        end, self._end_watch = self._end_watch, None
        if end is not None:
            end()

    def reload(self) -> None:
        """Ask for the list again; `library_changed` follows."""
        self._run(self._engine.library.list(), self._on_models, None)

    def scan(self) -> None:
        """Look into every folder again."""
        self._run(self._engine.library.scan(), self._on_models, None)

    def _on_models(self, models: list[LibraryModel]) -> None:
        self.models, self.listed = models, True
        self.library_changed.emit()

    def find(self, path: str) -> LibraryModel | None:
        return next((model for model in self.models if model.path == path), None)

    def here(self, repo: str, label: str, file: str = "") -> LibraryModel | None:
        """The complete model of this repository, by its quantization or the name of its first file."""
        name = file.rpartition("/")[2]
        mine = [model for model in self.models if model.complete and model.repo == repo]
        for model in mine:
            if name and Path(model.path).name == name:
                return model
        return next(
            (model for model in mine if not name.endswith(".gguf") and model.quantization == label.upper()), None
        )

    @property
    def folder(self) -> Path:
        return self._engine.library.folder

    def import_path(self, path: str, copy: bool, done: Callable[[Any], None], failed: Failed) -> None:
        self._run(self._engine.library.import_file(path, copy), done, self._ended(path, failed))

    def verify(self, path: str, done: Callable[[LibraryModel], None]) -> None:
        """Compute the hashes; progress comes as `progress`."""
        self.checking[path] = VerifyProgress(path=path, bytes_done=0, bytes_total=0)

        def ended(model: LibraryModel) -> None:
            self.checking.pop(path, None)
            self.reload()
            done(model)

        self.library_changed.emit()
        self._run(self._engine.library.verify(path), ended, self._ended(path, self.failed.emit))

    def _ended(self, path: str, failed: Failed) -> Failed:
        def end(error: BaseException) -> None:
            self.checking.pop(path, None)
            self.library_changed.emit()
            failed(error)

        return end

    def cancel(self, path: str) -> None:
        """Stop checking or copying."""
        self._engine.library.cancel(path)

    def trash(self, path: str, done: Callable[[LibraryModel], None]) -> None:
        self._run(self._engine.library.trash(path), done, None)

    def restore(self, path: str) -> None:
        self._run(self._engine.library.restore(path), lambda _: self.reload(), None)

    def duplicates_of(self, model: LibraryModel) -> list[LibraryModel]:
        """Others with the same bytes, as far as hashes are known."""
        if not model.sha256:
            return []
        return [m for m in self.models if m.path != model.path and m.hashes == model.hashes and m.sha256]

    def _on_progress(self, event: VerifyProgress) -> None:
        if event.path in self.checking:
            self.checking[event.path] = event
        self.progress.emit(event)
