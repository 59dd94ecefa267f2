"""What happens inside the model, made when it is first wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject

from desktop.bridge import EngineBridge
from desktop.model_control import ModelControl
from desktop.monitor_corner import MonitorCorner
from desktop.tasks import Tasks
from desktop.widgets.term import TermHelp

if TYPE_CHECKING:
    from desktop.main_window import MainWindow
    from desktop.theme import Theme
    from desktop.views.inside.inside_view import InsideView
    from engine.events import Memory
    from engine.message import GenerationRecord
    from engine.service import Engine


class InsideCorner(QObject):
    """Owns the view with the pages that look inside.

    Attributes:
        window, engine, bridge, tasks, control: what the pages are made of.
        view: None until it is first shown.
        monitor: the monitor beside the chat, and what its page is made of.
        help: opens the glossary for the labels of the window.
    """

    def __init__(
        self, window: MainWindow, engine: Engine, bridge: EngineBridge, tasks: Tasks, control: ModelControl
    ) -> None:
        super().__init__(window)
        self.window, self.engine, self.bridge = window, engine, bridge
        self.tasks, self.control = tasks, control
        self.view: InsideView | None = None
        self.monitor = MonitorCorner(window, engine, bridge, tasks)
        self.help = TermHelp(window, self.show_term)
        self._memory: Memory | None = None  # it comes with a load and with each answer, wanted or not
        bridge.memory_changed.connect(self._on_memory)
        window.chat_view.transcript.set_trace_available(True)
        window.chat_view.transcript.trace_requested.connect(self.show_trace)

    def show(self, page: str = "") -> InsideView:
        """The view with this page, in front; made at the first call.

        Args:
            page: "monitor", "trace", ... as in `inside_view.PAGES`; empty: the one that was last in front.
        """
        view = self.view
        if view is None:
            from desktop.views.inside.inside_view import InsideView

            view = self.view = InsideView(self)
            view.message.connect(lambda text, undo: self.window.toast.show_message(text, undo, over=view.stack))
            view.page_made.connect(lambda _: self.window.apply_theme(self.window.theme))
            self.window.views.addWidget(view)
            self.window.apply_theme(self.window.theme)
        self.window.show_view(view, self.window.rail_inside)
        view.show_page(page)
        view.focus_first()
        return view

    def show_trace(self, message_id: int) -> None:
        """How an answer was made, in front."""
        page: Any = self.show("trace").page("trace")
        page.show_message(message_id)

    def latest_answer(self) -> int:
        """Id of the last answer on screen; 0 if there is none."""
        messages = self.window.chat_view.presenter.messages
        written = (m.id for m in reversed(messages) if m.role == "assistant" and m.generation is not None)
        return next(written, 0)

    def last_known(self) -> tuple[GenerationRecord | None, Memory | None]:
        """How the last answer on screen was made, and what the model's process last said of its memory."""
        messages = reversed(self.window.chat_view.presenter.messages)
        records = (
            m.generation for m in messages if m.generation is not None and m.generation.finish_reason is not None
        )
        return next(records, None), self._memory

    def _on_memory(self, memory: Memory) -> None:
        self._memory = memory

    def show_term(self, term_id: str) -> None:
        """A term of the glossary, in front; empty: the one that was last there."""
        page: Any = self.show("glossary").page("glossary")
        page.show_term(term_id)

    def show_model(self) -> None:
        """What the loaded model is made of, in front."""
        self.show("model")

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self.monitor.apply_theme(theme, scale)
        if self.view is not None:
            self.view.apply_theme(theme, scale)

    def stop(self) -> None:
        """Ask for nothing any more."""
        self.monitor.stop()
        if self.view is not None:
            self.view.stop()
