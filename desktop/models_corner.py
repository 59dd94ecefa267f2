"""Everything about finding, keeping and fitting models, made when it is first wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject

from desktop.bridge import EngineBridge
from desktop.fit_desk import FitDesk
from desktop.fit_sources import EngineFitter
from desktop.model_control import ModelControl
from desktop.model_desk import ModelDesk
from desktop.tasks import Tasks

if TYPE_CHECKING:
    from desktop.main_window import MainWindow
    from desktop.theme import Theme
    from desktop.views.first_run.first_run import FirstRun
    from desktop.views.hub.models_view import ModelsView
    from engine.events import ModelState
    from engine.message import Chat
    from engine.models.catalog import CatalogModel
    from engine.models.links import ModelLink
    from engine.service import Engine

_SEEN = "first_run_seen"


class ModelsCorner(QObject):
    """Owns the desks and the view of the models.

    Attributes:
        view: None until it is first shown. first_run: None but at the first start.
    """

    def __init__(
        self, window: MainWindow, engine: Engine, bridge: EngineBridge, tasks: Tasks, control: ModelControl
    ) -> None:
        super().__init__(window)
        self._window, self._engine, self._bridge = window, engine, bridge
        self._tasks, self._control = tasks, control
        self.desk = ModelDesk(engine, bridge, tasks, self)
        self.fit = FitDesk(bridge, EngineFitter(engine), self)
        self.view: ModelsView | None = None
        self.first_run: FirstRun | None = None
        self.desk.failed.connect(self._on_failed)
        bridge.model_state_changed.connect(self._on_state)
        bridge.resumed.connect(self.fit.renew)

    def made(self) -> ModelsView:
        """The view; made at the first call."""
        if self.view is None:
            from desktop.views.hub.models_view import ModelsView

            view = ModelsView(self.desk, self.fit, self._control, self._tasks)
            view.link_activated.connect(self._window.commands.open_link)
            view.message.connect(lambda text, undo: self._window.toast.show_message(text, undo, over=view.pages))
            view.set_state(self._control.state)
            self.view = view
            self._window.views.addWidget(view)
            self._window.apply_theme(self._window.theme)
            self.desk.hub.list_downloads()
        return self.view

    def show_link(self, link: ModelLink) -> None:
        """The page of the model that a link names, from what is known without a network."""

        def show(models: list[CatalogModel]) -> None:
            named = link.repo.casefold()
            known = next((model for model in models if model.repo.casefold() == named), None)
            view = self._window.show_models()
            view.show_tab(0)
            view.discover.list.mark("")
            view.discover.leave_choice()
            view.model_page.show_link(link, known)
            view.pages.setCurrentWidget(view.model_page)

        self.desk.hub.catalog(show)

    # ---- the first start

    def offer_first_run(self) -> None:
        """Show the first steps where the profile is empty; to be asked before a model is loaded."""
        settings, stored = self._engine.settings, self._window.state_file
        if settings.last_model or settings.recent_models or stored.value(_SEEN, False, type=bool):
            return

        def known(chats: list[Chat]) -> None:
            if not chats and self._window.views.currentWidget() is self._window.chat_page:
                self._show_first_run()

        self._bridge.run(self._engine.chats.list(), known, self._on_failed, owner=self)

    def _show_first_run(self) -> None:
        from desktop.views.first_run.first_run import FirstRun

        page = FirstRun(self.desk, self.fit)
        page.chat_requested.connect(self.end_first_run)
        page.closed.connect(self.end_first_run)
        page.models_requested.connect(lambda: self.end_first_run(show=self._window.show_models))
        self.first_run = page
        self._window.views.addWidget(page)
        self._window.views.setCurrentWidget(page)
        self._window.apply_theme(self._window.theme)
        page.start()

    def end_first_run(self, *, show: Callable[[], object] | None = None) -> None:
        """It was read, or is not wanted: it does not come again."""
        page, self.first_run = self.first_run, None
        self._window.state_file.setValue(_SEEN, True)
        (show or self._window.show_chat)()
        if page is not None:
            self._window.views.removeWidget(page)
            page.deleteLater()

    def apply_theme(self, theme: Theme, scale: float) -> None:
        for part in (self.view, self.first_run):
            if part is not None:
                part.apply_theme(theme, scale)

    def stop(self) -> None:
        """Ask for nothing any more."""
        self.desk.stop()
        self.fit.close()

    def _on_state(self, state: ModelState) -> None:
        if self.view is not None:
            self.view.set_state(state)
            if state.status in ("ready", "none") and self.view.isVisible():
                self.fit.look()  # what is free has changed

    def _on_failed(self, error: BaseException) -> None:
        from desktop.errors import describe, sentences

        if self.view is not None and self.view.isVisible():
            words = describe(error)
            text = sentences(words.text, words.hint)
            self._window.toast.show_message(text, over=self.view.pages)
        else:
            self._window.chat_view.show_error(error)
