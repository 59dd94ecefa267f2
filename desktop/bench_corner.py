"""The benchmark, made when it is first wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject

from desktop.bench_desk import BenchDesk
from desktop.bridge import EngineBridge
from desktop.model_control import ModelControl
from desktop.tasks import Tasks

if TYPE_CHECKING:
    from desktop.main_window import MainWindow
    from desktop.theme import Theme
    from desktop.views.bench.bench_view import BenchView
    from engine.service import Engine


class BenchCorner(QObject):
    """Owns the desk and the view of the benchmark.

    Attributes:
        view: None until it is first shown.
    """

    def __init__(
        self, window: MainWindow, engine: Engine, bridge: EngineBridge, tasks: Tasks, control: ModelControl
    ) -> None:
        super().__init__(window)
        self._window, self._control, self._tasks = window, control, tasks
        self.desk = BenchDesk(engine, bridge, tasks, self)
        self.view: BenchView | None = None
        bridge.model_state_changed.connect(self._on_state)

    def show(self) -> BenchView:
        """The view, in front; made at the first call."""
        view = self.view
        if view is None:
            from desktop.views.bench.bench_view import BenchView

            view = self.view = BenchView(self.desk, self._control, self._tasks)
            view.message.connect(lambda text, undo: self._window.toast.show_message(text, undo, over=view.scroll_area))
            self._window.views.addWidget(view)
            self._window.apply_theme(self._window.theme)
        self._window.show_view(view, self._window.rail_bench)
        view.focus_first()
        return view

    def apply_theme(self, theme: Theme, scale: float) -> None:
        if self.view is not None:
            self.view.apply_theme(theme, scale)

    def stop(self) -> None:
        """End what is being measured."""
        self.desk.stop()

    def _on_state(self, _: object) -> None:
        if self.view is not None:
            self.view.set_loaded()
