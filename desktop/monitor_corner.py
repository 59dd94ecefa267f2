"""The monitor: beside the chat, and as a page; what both show is gathered once, and only while one can be seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QObject

from desktop.bridge import EngineBridge
from desktop.tasks import Tasks

if TYPE_CHECKING:
    from desktop.main_window import MainWindow
    from desktop.theme import Theme
    from desktop.views.monitor.dock import MonitorDock
    from desktop.views.monitor.feed import MonitorFeed
    from desktop.views.monitor.monitor_page import MonitorPage
    from engine.message import Message
    from engine.service import Engine

_OPEN = "monitor_open"
#: pixels at scale 1 that the chat keeps beside the dock
_CHAT_WIDTH = 400


class MonitorCorner(QObject):
    """Owns the dock and what it shows.

    Attributes:
        dock: None until it is first opened.
        wanted: the user has opened it; it is hidden all the same where the window is too narrow for it.
    """

    def __init__(self, window: MainWindow, engine: Engine, bridge: EngineBridge, tasks: Tasks) -> None:
        super().__init__(window)
        self._window, self._engine, self._bridge, self._tasks = window, engine, bridge, tasks
        self._feed: MonitorFeed | None = None
        self.dock: MonitorDock | None = None
        self.wanted = False

    @property
    def feed(self) -> MonitorFeed:
        """What is shown; made at the first call."""
        if self._feed is None:
            from desktop.views.monitor.feed import MonitorFeed

            chat = self._window.chat_view.presenter
            feed = MonitorFeed(
                self._engine,
                self._bridge,
                self._window,
                self._last_answer,
                lambda: chat.chat_id,
                lambda: chat.live_speeds,
            )
            chat.opened.connect(lambda *_: feed.find_last())
            self._feed = feed
        return self._feed

    def make_page(self) -> MonitorPage:
        from desktop.views.monitor.monitor_page import MonitorPage

        return MonitorPage(self.feed, self._tasks, self._titles)

    # ---- the dock

    def restore(self) -> None:
        """Open it if it was open the last time. To be called after the first paint."""
        if self._window.state_file.value(_OPEN, False, type=bool):
            self._set_wanted(True)

    def toggle(self) -> None:
        """Open or close the dock; where there is no room for it the page is shown instead."""
        if self._window.views.currentWidget() is not self._window.chat_page:
            self._window.show_chat()
            self._set_wanted(True)
        elif self.wanted and self.dock is not None and self.dock.isVisible():
            self._set_wanted(False)
        else:
            self._set_wanted(True)
        if self.wanted and self.dock is not None and self.dock.isHidden():
            self._window.inside.show("monitor")

    def _set_wanted(self, wanted: bool) -> None:
        self.wanted = wanted
        self._window.state_file.setValue(_OPEN, wanted)
        if wanted and self.dock is None:
            self._make()
        if not wanted and self.dock is not None and self.dock.isAncestorOf(self._window.focusWidget() or self.dock):
            self._window.chat_view.composer.setFocus()
        self._fit()
        self._window.chat_view.header.monitor_button.setChecked(wanted)

    def _make(self) -> None:
        from desktop.views.monitor.dock import MonitorDock

        dock = self.dock = MonitorDock(self.feed, self._titles)
        dock.hide()
        dock.page_wanted.connect(lambda: self._window.inside.show("monitor"))
        dock.close_wanted.connect(lambda: self._set_wanted(False))
        layout = self._window.chat_page.layout()
        assert layout is not None
        layout.addWidget(dock)
        self._window.chat_page.installEventFilter(self)
        self._window.apply_theme(self._window.theme)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Resize:
            self._fit()
        return super().eventFilter(watched, event)

    def _fit(self) -> None:
        """Show it where it is wanted and the chat keeps its room."""
        if self.dock is None:
            return
        room = self._window.chat_page.width() - self._window.chat_list.width() - self.dock.width()
        self.dock.setVisible(self.wanted and room >= _CHAT_WIDTH)

    def apply_theme(self, theme: Theme, scale: float) -> None:
        if self.dock is not None:
            self.dock.apply_theme(theme, scale)
            self._fit()

    def stop(self) -> None:
        """Ask for nothing any more."""
        if self._feed is not None:
            self._feed.stop()

    # ---- what is known elsewhere

    def _last_answer(self) -> Message | None:
        """The last answer on screen that is over."""
        messages = [m for m in self._window.chat_view.presenter.messages if m.generation is not None]
        over = (m for m in reversed(messages) if m.generation is not None and m.generation.finish_reason is not None)
        return next(over, None)

    def _titles(self) -> dict[int, str]:
        """Names of the chats that are in the cache."""
        kv = self.feed.kv
        held = [s.chat_id for s in kv.sequences if s.chat_id is not None] if kv is not None else []
        return {chat_id: self._window.chat_list.title_of(chat_id) for chat_id in held}
