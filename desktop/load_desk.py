"""What the load panel asks of the engine: options kept for a model, the processor, adapters and their scales."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from desktop.bridge import EngineBridge
from engine.engine_options import Adapter, EngineOptions

if TYPE_CHECKING:
    from engine.cores import Cores
    from engine.service import Engine


class LoadDesk(QObject):
    """Signals:
    cores_changed: `cores` is known now.
    failed(object): something could not be saved or changed.
    """

    cores_changed = Signal()
    failed = Signal(object)

    def __init__(self, engine: Engine, bridge: EngineBridge, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._engine, self._bridge = engine, bridge
        self.cores: Cores | None = None

    def look(self) -> None:
        """Find out about the processor, once."""
        if self.cores is None:
            self._bridge.run(self._engine.cores(), self._on_cores, lambda error: None, owner=self)

    def _on_cores(self, cores: Cores) -> None:
        self.cores = cores
        self.cores_changed.emit()

    # ---- options

    @property
    def common(self) -> EngineOptions:
        """What holds for all models."""
        return self._engine.settings.engine

    def own(self, path: str) -> EngineOptions:
        """What is kept for one model."""
        return self._engine.settings.model_engine.get(path, EngineOptions())

    def keep(self, path: str, options: EngineOptions) -> None:
        """Keep these for one model."""
        kept = self._engine.settings.model_engine
        if kept.get(path, EngineOptions()) == options:
            return
        kept[path] = options
        self._bridge.run(self._engine.change_settings(model_engine=kept), None, self.failed.emit, owner=self)

    # ---- adapters

    def set_adapters(self, adapters: Sequence[Adapter], done: Callable[[], None]) -> None:
        """Give the adapters of the loaded model these scales; `done` when it has them."""
        future = self._engine.set_adapters(adapters)
        self._bridge.run(future, lambda _: done(), self.failed.emit, owner=self)
