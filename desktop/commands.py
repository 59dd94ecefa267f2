"""Commands of the window that need more than one of its parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QUrl
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QWidget

from desktop.actions import UiState
from desktop.bridge import EngineBridge
from desktop.tasks import Tasks
from desktop.views.settings.chat_settings import ChatSettingsDialog
from engine import format_check
from engine.message import AnswerFormat, ChatSettings

if TYPE_CHECKING:
    from desktop.main_window import MainWindow
    from engine.service import Engine

_SCALE_STEP = 0.1
_SCALE_MIN, _SCALE_MAX = 0.8, 2.0


class Commands(QObject):
    """Works on the parts of one window."""

    def __init__(self, engine: Engine, bridge: EngineBridge, tasks: Tasks, window: MainWindow) -> None:
        super().__init__(window)
        self._tasks = tasks
        self._engine = engine
        self._bridge = bridge
        self._window = window

    def delete_chat(self, chat_id: int, title: str) -> None:
        """Put a chat away; the toast can bring it back."""
        view = self._window.chat_view

        def deleted(_: object) -> None:
            if view.presenter.chat_id == chat_id:
                view.new_chat()
            self._window.toast.show_message(f"Deleted “{_short(title)}”", lambda: self._restore_chat(chat_id))

        self._bridge.run(self._engine.chats.delete(chat_id), deleted, view.show_error, owner=self)

    def _restore_chat(self, chat_id: int) -> None:
        view = self._window.chat_view
        self._bridge.run(
            self._engine.chats.restore(chat_id), lambda _: view.open_chat(chat_id), view.show_error, owner=self
        )

    def offer_message_back(self, message_id: int) -> None:
        """Say that a message was deleted; the toast can bring it back."""
        restore = self._window.chat_view.presenter.commands.restore
        self._window.toast.show_message("Deleted the message and what followed", lambda: restore(message_id))

    def open_chat_settings(self) -> None:
        """System prompt and sampling of the open chat, in a window beside it."""
        presenter = self._window.chat_view.presenter
        settings = self._engine.settings
        dialog = ChatSettingsDialog(
            presenter.chat.settings if presenter.chat is not None else ChatSettings(),
            settings.system_prompt,
            settings.sampling,
            self._window.theme,
            settings.text_scale,
            self._check_format,
            self._window,
        )
        dialog.addAction(self._window.actions_["explain"])  # a dialog is a window of its own for shortcuts
        dialog.changed.connect(presenter.set_settings)
        presenter.chat_switched.connect(dialog.close)
        self._window.views.currentChanged.connect(dialog.close)  # it would lie over what has nothing to do with it
        dialog.show()

    def close_chat_settings(self) -> None:
        """What was typed in the settings of a chat is kept."""
        for dialog in self._window.findChildren(ChatSettingsDialog):
            dialog.close()

    def _check_format(
        self,
        answer_format: AnswerFormat,
        held: Callable[[], None],
        failed: Callable[[BaseException], None],
        owner: QWidget,
    ) -> None:
        """Whether answers can keep to a format; it is asked in a process of its own."""
        self._tasks.run(lambda: format_check.check(answer_format), lambda _: held(), failed, owner=owner)

    def larger_text(self) -> None:
        self._change_scale(_SCALE_STEP)

    def smaller_text(self) -> None:
        self._change_scale(-_SCALE_STEP)

    def _change_scale(self, step: float) -> None:
        scale = round(min(_SCALE_MAX, max(_SCALE_MIN, self._engine.settings.text_scale + step)), 2)
        self._bridge.run(self._engine.change_settings(text_scale=scale), owner=self)

    def open_link(self, url: str) -> None:
        """Open a link that the user clicked, in the system's browser or mail program."""
        target = QUrl(url)
        if target.scheme() in ("http", "https", "mailto"):
            QDesktopServices.openUrl(target)

    def update_actions(self) -> None:
        """Enable what is possible now."""
        window = self._window
        presenter = window.chat_view.presenter
        status = window.control.state.status
        window.actions_.update(
            UiState(
                has_chat=presenter.chat_id is not None or window.chat_list.view.currentIndex().isValid(),
                has_answer=presenter.branch.last("assistant") is not None,
                has_user_message=presenter.branch.last("user") is not None,
                generating=presenter.generating,
                model_ready=status == "ready",
                model_loading=status == "loading",
                can_undo=window.toast.can_undo,
            )
        )


def _short(title: str) -> str:
    return title if len(title) <= 40 else title[:39].rstrip() + "…"
