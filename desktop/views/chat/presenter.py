"""What the chat view does: which chat is open, what of the engine's events concerns it, and the user's commands."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from desktop.bridge import EngineBridge
from desktop.speeds import Speeds, of_record
from desktop.views.chat.branch import Branch
from desktop.views.chat.live import LiveAnswer
from desktop.views.chat.message_commands import MessageCommands
from engine import events
from engine.errors import Busy
from engine.message import Chat, ChatSettings, Message

if TYPE_CHECKING:
    from engine.service import Engine

#: seconds between two reports of the speeds while tokens come
SPEEDS_S = 0.1


class ChatPresenter(QObject):
    """Signals are for the view; all run on the GUI thread.

    Signals:
        opened(list[Message]): show this branch. Streaming goes on in its last message if `streaming_id` is set.
        added(Message): show one more at the end. truncated(int): drop what follows this message.
        updated(Message). stream_started(int). stepped(int, step). stream_ended(Message).
        chat_switched(object): another chat (or None: one that is not stored yet) is open, before its messages come.
        speeds_changed(Speeds, bool): figures of the last answer; True if they must be shown at once.
        generating_changed(bool): an answer of the open chat is being written.
    """

    opened = Signal(object)
    added = Signal(object)
    truncated = Signal(int)
    updated = Signal(object)
    stream_started = Signal(int)
    stepped = Signal(int, object)
    stream_ended = Signal(object)
    chat_switched = Signal(object)
    chat_stored = Signal(object)
    speeds_changed = Signal(object, bool)
    generating_changed = Signal(bool)

    def __init__(self, engine: Engine, bridge: EngineBridge, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._engine = engine
        self._bridge = bridge
        self.chat_id: int | None = None
        self.chat: Chat | None = None
        self.branch = Branch()
        self.commands = MessageCommands(engine, bridge, self)
        self.commands.deleted.connect(self._on_deleted)
        self._live: dict[int, LiveAnswer] = {}
        self._new: object | None = None  # the message that makes this chat, until it is stored
        self._opening = 0
        self._last_generating = False
        self._speeds_s = 0.0
        bridge.message_added.connect(self._on_added)
        bridge.message_changed.connect(self._on_message_changed)
        bridge.chat_changed.connect(self._on_chat_changed)
        bridge.generation_started.connect(self._on_started)
        bridge.generation_step.connect(self._on_step)
        bridge.generation_finished.connect(self._on_finished)

    # ---- which chat

    def new_chat(self) -> None:
        """Show an empty chat; it is stored with its first message."""
        self._switch(None)
        self._show([])

    def open_chat(self, chat_id: int, then: Callable[[], None] | None = None, message_id: int = 0) -> None:
        """Show a stored chat, on the branch of `message_id` if given; `then` is called when its messages are there."""
        self._switch(chat_id)
        self._reload(then, message_id)

    def try_open(self, chat_id: int) -> None:
        """Open a chat that may be gone by now; then the new chat stays."""
        future = self._engine.chats.open(chat_id)

        def show(_: object) -> None:
            if self.chat_id is None and not self.messages:
                self.open_chat(chat_id)

        self._bridge.run(future, show, lambda _: None, owner=self)

    def _switch(self, chat_id: int | None) -> None:
        self.chat_id, self.chat = chat_id, None
        self.branch = Branch()  # what is on screen stays there until the messages of the other chat come
        self._new = None
        self._opening += 1
        self.chat_switched.emit(chat_id)
        self._check_generating()

    def _reload(self, then: Callable[[], None] | None = None, message_id: int = 0) -> None:
        if self.chat_id is None:
            return
        self._opening += 1
        number = self._opening

        def show(result: tuple[Chat, list[Message]]) -> None:
            if number == self._opening:
                self.chat = result[0]
                self._show(result[1])
                if then is not None:
                    then()

        def failed(error: BaseException) -> None:
            if number == self._opening:
                if message_id and isinstance(error, Busy):
                    self._reload(then)  # the chat is there, only its other branch has to wait for the answer's end
                else:
                    # what is on screen belongs to another chat, and this one may be gone: nothing may be done in
                    # its name
                    self.new_chat()
            self.commands.failed.emit(error)

        chats = self._engine.chats
        future = chats.show(message_id) if message_id else chats.open(self.chat_id)
        self._bridge.run(future, show, failed, owner=self)

    def _show(self, messages: list[Message]) -> None:
        live = self._live.get(messages[-1].id) if messages else None
        if live is not None:
            messages = [*messages[:-1], live.message(messages[-1])]
        self.branch = Branch(messages)
        self.opened.emit(messages)
        if live is not None:
            self.stream_started.emit(messages[-1].id)
            self.speeds_changed.emit(live.speeds, True)
        else:
            self._show_last_speeds()
        self._check_generating()

    def _show_last_speeds(self) -> None:
        last = self.branch.last("assistant")
        self.speeds_changed.emit(of_record(last.generation) if last else Speeds(), True)

    # ---- commands

    def send(self, text: str, on_failed: Callable[[], None]) -> None:
        """Send a message; `on_failed` is called when it could not be stored."""
        if self._new is not None:  # the message before it is about to make this chat
            on_failed()
            return
        sent = self._new = object() if self.chat_id is None else None

        def stored(message: Message) -> None:
            if sent is not None and sent is self._new:  # else another chat was opened meanwhile
                self._new = None
                self.chat_id = message.chat_id
                self.chat_stored.emit(message.chat_id)
                self._reload()
                self._check_generating()

        def failed(error: BaseException) -> None:
            if sent is self._new:
                self._new = None
            on_failed()
            self.commands.failed.emit(error)

        self._bridge.run(self._engine.chats.send(self.chat_id, text), stored, failed, owner=self)

    def stop(self) -> None:
        """Stop the answer of the open chat."""
        if self.chat_id is not None:
            self._engine.chats.stop(self.chat_id)

    def set_settings(self, settings: ChatSettings) -> None:
        """Settings of the open chat; a chat that is not stored yet is stored for it."""
        if self.chat_id is not None:
            self.commands.run(self._engine.chats.set_settings(self.chat_id, settings), self._keep_chat)
            return

        def created(chat: Chat) -> None:
            self.chat_id, self.chat = chat.id, chat
            self.chat_stored.emit(chat.id)
            self.commands.run(self._engine.chats.set_settings(chat.id, settings), self._keep_chat)

        self.commands.run(self._engine.chats.create(), created)

    def _keep_chat(self, chat: Chat) -> None:
        if chat.id == self.chat_id:
            self.chat = chat

    # ---- what is there

    @property
    def generating(self) -> bool:
        if self.chat_id is None:
            return False
        # an answer is there, empty, a moment before its generation starts
        begun = bool(self.messages) and self.messages[-1].status == "streaming"
        return begun or any(live.chat_id == self.chat_id for live in self._live.values())

    @property
    def streaming_id(self) -> int | None:
        return next((key for key, live in self._live.items() if live.chat_id == self.chat_id), None)

    @property
    def live_speeds(self) -> dict[int, Speeds]:
        """Figures of all answers being written, by message."""
        return {number: live.speeds for number, live in self._live.items()}

    @property
    def messages(self) -> list[Message]:
        """The branch on screen, root first."""
        return self.branch.messages

    # ---- events

    def _on_added(self, event: events.MessageAdded) -> None:
        message = event.message
        if message.chat_id != self.chat_id:
            return
        place = self.branch.place_of(message)
        if place is None:
            self._reload()
            return
        if place < len(self.messages):  # another version of what stood here
            if message.parent_id is None:
                self.opened.emit([])
            else:
                self.truncated.emit(message.parent_id)
        self.added.emit(self.branch.put(place, message))
        self._check_generating()

    def _on_message_changed(self, event: events.MessageChanged) -> None:
        message = self.branch.replace(event.message)
        if message is not None:
            self.updated.emit(message)

    def _on_chat_changed(self, event: events.ChatChanged) -> None:
        if event.chat.id != self.chat_id:
            return
        self.chat = event.chat
        last_id = self.messages[-1].id if self.messages else None
        if event.chat.active_leaf_id != last_id:
            self._reload()

    def _on_deleted(self, message_id: int) -> None:
        """A message was deleted. One that is not on screen was a version of what is: those are counted anew."""
        if self.branch.find(message_id) is None:
            self._reload()

    def _on_started(self, event: events.GenerationStarted) -> None:
        base = self.branch.find(event.message_id)
        self._live[event.message_id] = LiveAnswer(event.chat_id, base)
        if event.chat_id == self.chat_id:
            if base is not None:
                self.stream_started.emit(event.message_id)
            self.speeds_changed.emit(Speeds(), True)
            self._check_generating()

    def _on_step(self, event: events.GenerationStep) -> None:
        live = self._live.get(event.message_id)
        if live is None:
            return
        live.add(event.step)
        if event.chat_id == self.chat_id and self.branch.find(event.message_id) is not None:
            self.stepped.emit(event.message_id, event.step)
            now = time.monotonic()
            reading = isinstance(event.step, events.PromptProgress)  # one for every chunk: these are few
            if reading or now - self._speeds_s >= SPEEDS_S:
                self._speeds_s = now
                self.speeds_changed.emit(live.speeds, reading)

    def _on_finished(self, event: events.GenerationFinished) -> None:
        self._live.pop(event.message.id, None)
        if event.chat_id != self.chat_id:
            return
        message = self.branch.replace(event.message)
        if message is not None:
            self.stream_ended.emit(message)
        self.speeds_changed.emit(of_record(event.message.generation), True)
        self._check_generating()

    def _check_generating(self) -> None:
        generating = self.generating
        if generating != self._last_generating:
            self._last_generating = generating
            self.generating_changed.emit(generating)
