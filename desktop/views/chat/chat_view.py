"""The chat: header, transcript or empty state, figures, composer. Composition and wiring; the doing is elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import (
    QHBoxLayout,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from desktop import errors
from desktop.actions import Actions
from desktop.bridge import EngineBridge
from desktop.crash_desk import CrashDesk
from desktop.drafts import Draft, Drafts
from desktop.model_control import ModelControl
from desktop.theme import Theme
from desktop.views.chat.chat_header import ChatHeader
from desktop.views.chat.composer import Composer
from desktop.views.chat.context_desk import ContextDesk
from desktop.views.chat.empty_state import EmptyState
from desktop.views.chat.message_widget import MessageWidget
from desktop.views.chat.model_picker import ModelPopup
from desktop.views.chat.presenter import ChatPresenter
from desktop.views.chat.status_strip import StatusStrip
from desktop.views.chat.transcript_view import TranscriptView
from desktop.widgets.banner import Banner
from engine import events
from engine.message import Message

if TYPE_CHECKING:
    from engine.service import Engine

_COLUMN = 684


class ChatView(QWidget):
    """Signals:
    generating_changed(bool). message_deleted(int): can be restored. state_changed: what commands depend on.
    """

    message_deleted = Signal(int)
    state_changed = Signal()

    def __init__(
        self,
        engine: Engine,
        bridge: EngineBridge,
        control: ModelControl,
        actions: Actions,
        drafts: Drafts,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._engine = engine
        self._control = control
        self._last_state = ("none", "")
        self._actions = actions
        self._drafts = drafts
        self.setObjectName("chat_view")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.presenter = ChatPresenter(engine, bridge, self)
        self.transcript = TranscriptView()
        self.empty = EmptyState()
        self.strip = StatusStrip()
        self.composer = Composer(actions)
        self.context = ContextDesk(engine, bridge, self.presenter, self.composer, self.strip, self)
        self.banner = Banner("error_banner")
        self.notice = Banner("notice_banner")
        self.crash = CrashDesk(engine, bridge, control, self.banner)
        self._build()
        self._wire(bridge)
        self._on_model_state(engine.model_state)

    # ---- making

    def _build(self) -> None:
        self.header = ChatHeader(self._actions)
        self.popup = ModelPopup(self._control, self._actions, self)
        self.stack = QStackedWidget()
        self.stack.addWidget(self.empty)
        self.stack.addWidget(self.transcript)
        banners = QWidget()
        banner_box = QVBoxLayout(banners)
        banner_box.setContentsMargins(0, 8, 0, 0)
        banner_box.setSpacing(8)
        banner_box.addWidget(self.notice)
        banner_box.addWidget(self.banner)
        bottom = QWidget()
        bottom_box = QVBoxLayout(bottom)
        bottom_box.setContentsMargins(0, 0, 0, 16)
        bottom_box.setSpacing(6)
        bottom_box.addWidget(self.strip)
        bottom_box.addWidget(self.composer)
        self._columns = (banners, bottom)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self.header)
        layout.addLayout(_centred(banners))
        layout.addWidget(self.stack, 1)
        layout.addLayout(_centred(bottom))

    def _wire(self, bridge: EngineBridge) -> None:
        presenter, transcript = self.presenter, self.transcript
        presenter.opened.connect(self._on_opened)
        presenter.added.connect(self._on_added)
        presenter.truncated.connect(transcript.remove_after)
        presenter.updated.connect(transcript.update_message)
        presenter.stream_started.connect(transcript.begin_stream)
        presenter.stepped.connect(transcript.append_step)
        presenter.stream_ended.connect(self._on_stream_ended)
        presenter.chat_switched.connect(self._on_switched)
        presenter.chat_stored.connect(self._on_stored)
        presenter.speeds_changed.connect(lambda speeds, now: self.strip.set_speeds(speeds, now=now))
        self.strip.refreshed.connect(self.header.show_rate)
        presenter.generating_changed.connect(self._on_generating)
        commands = presenter.commands
        commands.failed.connect(self.show_error)
        commands.deleted.connect(self.message_deleted)
        self.context.failed.connect(self.show_error)
        self.context.message_chosen.connect(transcript.focus_message)
        transcript.edit_submitted.connect(commands.edit)
        transcript.regenerate_requested.connect(commands.regenerate)
        transcript.continue_requested.connect(commands.continue_message)
        transcript.delete_requested.connect(commands.delete)
        transcript.pin_requested.connect(commands.pin)
        transcript.version_requested.connect(commands.switch_version)
        self.composer.send_requested.connect(self._send)
        self.composer.changed.connect(lambda: self._drafts.put(presenter.chat_id, self.composer.draft))
        self.empty.sample_chosen.connect(self._take_sample)
        self.empty.model_wanted.connect(self.open_picker)
        self.header.picker.clicked.connect(self.open_picker)
        self._control.failed.connect(self.show_error)
        self._control.found.connect(lambda _: self._on_model_state(self._control.state))
        bridge.model_state_changed.connect(self._on_model_state)
        bridge.notice.connect(self._on_notice)
        self.crash.failed.connect(lambda error: self.notice.show_words(errors.describe(error)))

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self.header.apply_theme(theme, scale)
        self.popup.apply_theme(theme, scale)
        self.composer.apply_theme(theme, scale)
        self.strip.apply_theme(theme, scale)
        self.context.popup.apply_theme(theme, scale)
        self.empty.apply_scale(scale)
        self.transcript.apply_theme(theme, scale)
        for column in self._columns:
            column.setMaximumWidth(round(_COLUMN * max(1.0, scale)))

    # ---- commands

    def new_chat(self) -> None:
        self.presenter.new_chat()
        self.composer.setFocus()

    def open_chat(self, chat_id: int, message_id: int = 0) -> None:
        """Show a chat; with `message_id` at that message, on the branch where it stands."""

        self.presenter.open_chat(chat_id, lambda: self.transcript.scroll_to_message(message_id), message_id)

    def open_picker(self) -> None:
        """Show the list of models."""
        self.popup.open_below(self.header.picker)

    def copy_last_answer(self) -> None:
        message = self.presenter.branch.last("assistant")
        if message is not None:
            QGuiApplication.clipboard().setText(message.text)

    def edit_last(self) -> None:
        message = self.presenter.branch.last("user")
        row = self.transcript.row_number(message.id) if message is not None else None
        if message is None or row is None:
            return
        self.transcript.focus_row(row)
        widget = self.transcript.widgets.get(message.id)
        if isinstance(widget, MessageWidget):
            widget.begin_edit()

    def regenerate_last(self) -> None:
        """Write the last answer again; a question that has none is answered."""
        if self.presenter.messages:
            self.presenter.commands.regenerate(self.presenter.messages[-1].id)

    def _send(self, text: str) -> None:
        state = self._control.state
        if state.status in ("none", "failed"):
            if not self._can_load():
                self.open_picker()
                return
            self._control.load_first(state.path)
        sent = self.composer.draft
        self.composer.clear()
        chat_id = self.presenter.chat_id
        self._drafts.put(chat_id, Draft())

        def failed() -> None:
            if self.presenter.chat_id == chat_id and not self.composer.draft:
                self.composer.set_draft(sent)  # nothing typed is lost
            self._drafts.put(chat_id, sent)

        self.presenter.send(text, failed)

    def _can_load(self) -> bool:
        return bool(self._control.state.path or self._engine.settings.last_model or self._control.models)

    def _take_sample(self, text: str) -> None:
        self.composer.set_draft(Draft(text))
        self._drafts.put(self.presenter.chat_id, self.composer.draft)
        self.composer.setFocus()

    # ---- messages

    def _on_switched(self, chat_id: int | None) -> None:
        self.composer.set_draft(self._drafts.get(chat_id))
        if self.banner.words is not None and self._control.state.status != "failed":
            self.banner.dismiss()

    def _on_stored(self, chat_id: int) -> None:
        self._drafts.put(0, Draft())
        self._drafts.put(chat_id, self.composer.draft)
        self.state_changed.emit()

    def _on_opened(self, messages: list[Message]) -> None:
        self.transcript.set_messages(messages)
        self._show_stack()

    def _on_added(self, message: Message) -> None:
        self.transcript.add_message(message)
        self._show_stack()

    def _on_stream_ended(self, message: Message) -> None:
        self.transcript.end_stream(message)
        self.state_changed.emit()

    def _show_stack(self) -> None:
        self.stack.setCurrentWidget(self.transcript if self.presenter.messages else self.empty)
        self.state_changed.emit()

    def _on_generating(self, generating: bool) -> None:
        self.composer.set_generating(generating)
        self._show_hint()
        self.state_changed.emit()

    # ---- the model

    def _on_model_state(self, state: events.ModelState) -> None:
        state = msgspec.structs.replace(state, name=self._control.name_of(state))
        self.header.set_state(state)
        self.popup.set_state(state)
        self.empty.set_state(state)
        self.strip.set_model(state.model if state.status == "ready" else None)
        self.context.on_model_state(state)
        if state.model is not None:
            self.transcript.set_calm(state.model.n_gpu_layers < state.model.n_layer)
        is_news = (state.status, state.path) != self._last_state
        self._last_state = (state.status, state.path)
        if state.status == "failed" and state.error is not None and state.error.code != "cancelled":
            self._show_failed(state)
        elif is_news and state.status in ("loading", "ready"):  # else the banner is about something else
            self.banner.dismiss()
        self._show_hint()
        self.state_changed.emit()

    def _show_failed(self, state: events.ModelState) -> None:
        if state.error is None:
            return
        if state.error.code in errors.RELOAD_CODES:
            self.crash.show(state.error)
            return
        words = errors.describe(state.error)
        self.banner.show_words(words, action="Choose a model", tip="Show the list of models", act=self.open_picker)

    def _show_hint(self) -> None:
        state = self._control.state
        hint = ""
        if self.presenter.generating:
            hint = "Writing. Esc stops; what you type here waits."
        elif state.status == "loading":
            hint = "The model is loading; your message is answered as soon as it is there."
        elif state.status != "ready":
            hint = (
                "No model is loaded; sending loads one first."
                if self._can_load()
                else "No model is loaded. Choose one above; your text stays here."
            )
        self.composer.set_hint(hint)

    def _on_notice(self, notice: events.Notice) -> None:
        tone = {"error": "bad", "warning": "warn"}.get(notice.level, "info")
        self.notice.show_words(errors.Words("notice", "Please note", notice.text, notice.hint), tone=tone)

    def show_error(self, error: BaseException) -> None:
        """Show what went wrong above the transcript."""
        self.banner.show_words(errors.describe(error))


def _centred(column: QWidget) -> QHBoxLayout:
    row = QHBoxLayout()
    row.setContentsMargins(20, 0, 20, 0)
    row.addStretch(1)
    row.addWidget(column, 1000)
    row.addStretch(1)
    return row
