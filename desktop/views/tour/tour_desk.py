"""The requests of the tour: a question and a follow-up, asked for real, or an answer that is there already."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import msgspec
from PySide6.QtCore import QObject, Signal

from desktop.bridge import EngineBridge
from desktop.tasks import Tasks
from desktop.views.tour.steps import Facts
from desktop.views.trace.prompt_text import PromptText
from desktop.views.trace.trace_desk import TraceDesk
from engine import events
from engine.message import Chat, ChatSettings

if TYPE_CHECKING:
    from engine.service import Engine

#: short, so that the tour need not wait long for the end
_MOST_TOKENS = 160
_SYSTEM = "Answer in one or two short sentences."


class TourDesk(QObject):
    """Signals:
    changed: `facts` are others now. missing(str): there is no trace to show; why. failed(object): an error.
    """

    changed = Signal()
    missing = Signal(str)
    failed = Signal(object)

    def __init__(self, engine: Engine, bridge: EngineBridge, tasks: Tasks, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._engine, self._bridge = engine, bridge
        self.question = TraceDesk(engine, bridge, tasks, self)
        self.follow = TraceDesk(engine, bridge, tasks, self)
        self._texts: dict[TraceDesk, PromptText | None] = {self.question: None, self.follow: None}
        self._waits: TraceDesk | None = None  # for the answer of `_chat_id` to begin
        self._chat_id = 0
        for desk in (self.question, self.follow):
            desk.changed.connect(lambda _: self.changed.emit())
            desk.prompt_ready.connect(lambda text, desk=desk: self._on_text(desk, text))
            desk.failed.connect(self.failed)
        self.question.missing.connect(self.missing)
        self.question.state_changed.connect(self.changed)
        bridge.generation_started.connect(self._on_started)

    def watch(self, on: bool) -> None:
        """Whether the page is seen: only then answers are followed."""
        for desk in (self.question, self.follow):
            desk.watch(on)

    def stop(self) -> None:
        """Ask for nothing any more."""
        for desk in (self.question, self.follow):
            desk.stop()

    # ---- what is known

    def facts(self, chosen: int = 0) -> Facts | None:
        """All that is known; None before the question's trace has begun."""
        trace, follow = self.question.trace, self.follow.trace
        if trace is None:
            return None
        state = self._engine.model_state
        model = state.model if state.status == "ready" and state.path == trace.model_path else None
        return Facts(trace, self._texts[self.question], follow, self._texts[self.follow], model, chosen)

    @property
    def asked(self) -> bool:
        """A question is on its way or there."""
        return bool(self.question.message_id) or self._waits is self.question

    @property
    def follow_asked(self) -> bool:
        return bool(self.follow.message_id) or self._waits is self.follow

    def why_not_ask(self) -> str:
        """Why nothing can be asked now; "" if it can."""
        if not self._engine.settings.trace:
            return "Traces are switched off in the settings; the tour shows the trace of an answer."
        if self._engine.model_state.status != "ready":
            return "Load a model first; it answers the question."
        return ""

    def why_no_follow_up(self) -> str:
        """Why no follow-up can be asked now; "" if it can."""
        trace = self.question.trace
        if trace is None or trace.marks is None or trace.chat_id in self._engine.chats.generating():
            return "The answer is still being written."
        if self.question.lost:
            return "The chat of the question was deleted. Ask again to go on."
        return self.why_not_ask()

    # ---- asking

    def ask(self, text: str) -> None:
        """Ask this in a chat of its own."""
        self._forget()
        self._waits = self.question
        sampling = msgspec.structs.replace(self._engine.settings.sampling, max_tokens=_MOST_TOKENS)
        settings = ChatSettings(system_prompt=_SYSTEM, sampling=sampling)

        def made(chat: Chat) -> None:
            self._chat_id = chat.id
            self._run(self._engine.chats.set_settings(chat.id, settings))
            self._run(self._engine.chats.send(chat.id, text))

        self._bridge.run(self._engine.chats.create(), made, self._fail, owner=self)
        self.changed.emit()

    def ask_follow_up(self, text: str) -> None:
        """Go on in the chat of the question."""
        trace = self.question.trace
        if trace is None:
            return
        self._texts[self.follow] = None
        self._waits, self._chat_id = self.follow, trace.chat_id

        def shown(_: object) -> None:
            self._run(self._engine.chats.send(trace.chat_id, text))

        self._bridge.run(self._engine.chats.show(trace.message_id), shown, self._fail, owner=self)
        self.changed.emit()

    def use(self, message_id: int) -> None:
        """Walk through an answer that is there."""
        self._forget()
        self.question.open(message_id)
        self.changed.emit()

    def forget(self) -> None:
        """Back to the beginning."""
        self._forget()
        self.changed.emit()

    def _forget(self) -> None:
        self._waits, self._chat_id = None, 0
        for desk in (self.question, self.follow):
            desk.open(0)
            self._texts[desk] = None

    def _run(self, future: Future[Any]) -> None:
        self._bridge.run(future, None, self._fail, owner=self)

    def _fail(self, error: BaseException) -> None:
        failed, self._waits = self._waits, None
        if failed is self.question:
            self._forget()
        self.failed.emit(error)
        self.changed.emit()

    # ---- what happens meanwhile

    def _on_started(self, event: events.GenerationStarted) -> None:
        if self._waits is not None and event.chat_id == self._chat_id:
            desk, self._waits = self._waits, None
            desk.open(event.message_id)
            self.changed.emit()

    def _on_text(self, desk: TraceDesk, text: PromptText) -> None:
        self._texts[desk] = text
        self.changed.emit()
