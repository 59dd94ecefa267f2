"""What the window does with models: choose, load, unload, reload. Looking for files happens off the GUI thread."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QFileDialog, QWidget

from desktop.bridge import EngineBridge
from desktop.tasks import Tasks
from engine.errors import Cancelled, EngineError
from engine.events import ModelInfo, ModelState
from engine.paths import is_file

if TYPE_CHECKING:
    from engine.models.library import LibraryModel, ModelFile
    from engine.service import Engine


class ModelControl(QObject):
    """Commands for the one loaded model.

    Signals:
        failed(object): an error that no `ModelState` reports (the file is not there, for instance).
        found(object): the models on this computer, after `look`.
    """

    failed = Signal(object)
    found = Signal(object)

    def __init__(self, engine: Engine, bridge: EngineBridge, tasks: Tasks, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._engine = engine
        self._bridge = bridge
        self._tasks = tasks
        self._models: list[LibraryModel | ModelFile] = []
        self._library_known = False
        bridge.library_changed.connect(self._on_library_changed)

    @property
    def state(self) -> ModelState:
        return self._engine.model_state

    def name_of(self, state: ModelState) -> str:
        """The name the list of models has for a file; else the one that its header says."""
        return next((model.name for model in self._models if model.path == state.path), "") or state.name

    @property
    def models(self) -> list[LibraryModel | ModelFile]:
        """What the last `look` found."""
        return [*self._models]

    def look(self) -> None:
        """Look for models on this computer; `found` says what there is.

        The first look of the library may have many folders to go through. Until it has ended, what lies in the models
        folder and what was used before is there.
        """
        if not self._library_known:
            self._look_nearby()
        with suppress(RuntimeError):  # the engine has ended
            self._bridge.run(self._engine.library.list(), self._on_library, self.failed.emit, owner=self)

    def _look_nearby(self) -> None:
        paths, recent = self._engine.paths, self._engine.settings.recent_models

        def work() -> list[ModelFile]:
            from engine.models.library import list_models

            return list_models(paths, recent)

        def done(models: list[ModelFile]) -> None:
            if not self._library_known:
                self._models = [*models]
                self.found.emit(self._models)

        self._tasks.run(work, done, self.failed.emit, owner=self)

    def _on_library(self, models: list[LibraryModel]) -> None:
        """Those that can be loaded, the last used first."""
        usable = [model for model in models if model.complete]
        self._library_known = True
        self._models = [*sorted(usable, key=lambda model: -(model.last_used_s or 0.0))]
        self.found.emit(self._models)

    def _on_library_changed(self, _: object) -> None:
        if self._library_known:
            self.look()

    def load(self, model: str | Path, **options: Any) -> None:
        """Load a model by path or name. Progress and failure come as `ModelState` events.

        Args:
            options: fields of `engine.worker.protocol.Load` that the user has chosen.
        """
        self._start(lambda: self._engine.load_model(model, **options))

    def load_first(self, wished: str = "") -> None:
        """Load what the user wished, else the last model, else the starter; nothing if there is none of them."""
        last = self._engine.settings.last_model
        paths = self._engine.paths

        def work() -> Future[ModelInfo] | None:
            from engine.models import starter

            if wished:
                return self._engine.load_model(wished)
            if last and is_file(Path(last)):
                return self._engine.load_model(last)
            return self._engine.load_model("starter") if starter.find(paths.models) else None

        self._start(work)

    def _start(self, work: Callable[[], Future[ModelInfo] | None]) -> None:
        def started(future: Future[ModelInfo] | None) -> None:
            if future is not None:
                self._bridge.run(future, None, self._on_load_error, owner=self)

        self._tasks.run(work, started, self.failed.emit, owner=self)

    def _on_load_error(self, error: BaseException) -> None:
        # a failed load is a ModelState already; news are bugs, and a file that left the loaded model in its place
        kept = isinstance(error, EngineError) and not isinstance(error, Cancelled) and self.state.status == "ready"
        if kept or not isinstance(error, EngineError):
            self.failed.emit(error)

    def reload(self) -> None:
        """Load the last model again."""
        self._start(self._engine.model.reload)

    def reload_safer(self) -> None:
        """Load the last model again with less than before."""
        self._start(self._engine.black_box.reload_safer)

    def unload(self) -> None:
        self._bridge.run(self._engine.model.unload(), None, self.failed.emit, owner=self)

    def cancel(self) -> None:
        """Stop the load in progress."""
        self._engine.model.cancel_load()

    def open_dialog(self, parent: QWidget) -> None:
        """Ask for a GGUF file and load it."""
        last = self._engine.settings.last_model
        folder = str(Path(last).parent) if last else str(self._engine.paths.models)
        dialog = QFileDialog(parent, "Open a GGUF file", folder, "GGUF models (*.gguf);;All files (*)")
        dialog.setObjectName("open_model_dialog")
        dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
        dialog.fileSelected.connect(self.load)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()
