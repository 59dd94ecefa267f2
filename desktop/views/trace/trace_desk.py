"""What the trace view asks the engine for: a trace, stored or being made; a branch, a replay, an export."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, Signal

from desktop.bridge import EngineBridge
from desktop.tasks import Tasks
from desktop.views.trace.prompt_text import PromptText, prepare
from engine import events
from engine.message import Chat, Message
from engine.paths import atomic_write
from engine.sampling import SamplingParams
from engine.trace import Lost, Trace

if TYPE_CHECKING:
    from engine.service import Engine

#: milliseconds between two looks at an answer that is being written
LIVE_MS = 250
_LOST = {
    "chat": "The chat of this answer was deleted, so its trace can only be read",
    "message": "This answer was deleted, so its trace can only be read",
}


class TraceDesk(QObject):
    """Works for one page. Nothing is asked for while the page is hidden: see `watch`.

    Attributes:
        lost: what was deleted of the answer: "chat", "message", "" for nothing. Then its trace can only be read.

    Signals:
        opened(int): another message is wanted; what was shown goes.
        changed(object): a `Trace` of this message, longer than the one before or complete.
        prompt_ready(object): the `PromptText` of that trace.
        missing(str): there is no trace; why.
        described(object, object): the `Chat`, and the `Message` if it is on the branch on screen, else None.
        branched(object, object): the new `Message`, and the function that goes back.
        replayed(object): the `TokenDetail`. replay_failed(object). exported(str): the path. failed(object): an error.
        state_changed: what is possible may be another now (a model came or went, an answer began or ended).
    """

    opened = Signal(int)
    changed = Signal(object)
    prompt_ready = Signal(object)
    missing = Signal(str)
    described = Signal(object, object)
    branched = Signal(object, object)
    replayed = Signal(object)
    replay_failed = Signal(object)
    exported = Signal(str)
    failed = Signal(object)
    state_changed = Signal()

    def __init__(self, engine: Engine, bridge: EngineBridge, tasks: Tasks, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._engine, self._bridge, self._tasks = engine, bridge, tasks
        self.message_id = 0
        self.trace: Trace | None = None
        self.lost: Lost = ""
        self._n_prepared = -1
        self._watching = self._stopped = self._asking = False
        self._going_back: dict[int, int] = {}  # an answer that is being stopped -> the version to show then
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(LIVE_MS)
        self._timer.timeout.connect(self._ask)
        bridge.generation_finished.connect(self._on_finished)
        bridge.generation_started.connect(self._on_started)
        bridge.model_state_changed.connect(lambda _: self._tell_state())
        bridge.chat_list_changed.connect(lambda _: self._ask_lost())
        bridge.chat_changed.connect(lambda _: self._ask_lost())

    # ---- which trace

    def open(self, message_id: int) -> None:
        """Show the trace of an answer."""
        self.message_id, self.trace, self.lost = message_id, None, ""
        self._n_prepared = -1
        self.opened.emit(message_id)
        self._ask()

    def watch(self, on: bool) -> None:
        """Whether the page is seen: only then an answer that is being written is followed."""
        self._watching = on
        if not on:
            self._timer.stop()
            return
        self._ask_lost()
        if self.message_id and (self.trace is None or self.trace.marks is None):
            self._ask()

    def stop(self) -> None:
        """Ask for nothing any more."""
        self._stopped = True
        self._timer.stop()

    @property
    def is_live(self) -> bool:
        """Whether the answer is being written now."""
        return self.message_id in self._engine.chats.generating().values()

    def _ask(self) -> None:
        if self._stopped or not self.message_id or not self._watching or self._asking:
            return
        self._asking = True
        message_id, live = self.message_id, self.is_live
        traces = self._engine.traces
        future = traces.live(message_id) if live else traces.get(message_id)
        self._bridge.run(
            future,
            lambda trace: self._on_trace(message_id, live, trace),
            lambda error: self._on_error(message_id, error),
            owner=self,
        )

    def _on_trace(self, message_id: int, live: bool, trace: Trace | None) -> None:
        self._asking = False
        if message_id != self.message_id:
            self._ask()
            return
        if live:
            self._timer.start()  # also when it has ended meanwhile: then the stored one is asked for
        if trace is None:
            if not live:
                self.missing.emit(self._why_missing())
            return
        first = self.trace is None
        if first or _extent(trace) != _extent(self.trace):
            self.trace = trace
            if trace.n_prompt != self._n_prepared:
                self._n_prepared = trace.n_prompt
                self._tasks.run(
                    lambda: prepare(trace), lambda text: self._on_prompt(message_id, text), self._fail, owner=self
                )
            self.changed.emit(trace)
        if first and trace.chat_id:
            self._describe(message_id, trace.chat_id)
            self._ask_lost()

    def _on_prompt(self, message_id: int, text: PromptText) -> None:
        if message_id == self.message_id:
            self.prompt_ready.emit(text)

    def _ask_lost(self) -> None:
        """Find out whether the answer is still there, where something of the chats has changed."""
        message_id = self.message_id
        if self._stopped or not self._watching or self.trace is None:
            return

        def known(lost: Lost) -> None:
            if message_id == self.message_id and lost != self.lost:
                self.lost = lost
                self._tell_state()

        self._bridge.run(self._engine.traces.lost(message_id), known, lambda _: None, owner=self)

    def _on_error(self, message_id: int, error: BaseException) -> None:
        self._asking = False
        if message_id == self.message_id:
            self.failed.emit(error)

    def _fail(self, error: BaseException) -> None:
        self.failed.emit(error)

    def _why_missing(self) -> str:
        if not self._engine.settings.trace:
            return "No trace was kept of this answer. Traces are switched off in the settings."
        return (
            "No trace was kept of this answer. It was written while traces were off or by an older version, or it had "
            "to make room for newer ones."
        )

    def _describe(self, message_id: int, chat_id: int) -> None:
        def show(found: tuple[Chat, list[Message]]) -> None:
            if message_id == self.message_id:
                chat, branch = found
                self.described.emit(chat, next((m for m in branch if m.id == message_id), None))

        # a chat that is gone has no name; its trace can be read all the same
        self._bridge.run(self._engine.chats.open(chat_id), show, lambda _: None, owner=self)

    # ---- what happens meanwhile

    def _on_started(self, event: events.GenerationStarted) -> None:
        if event.message_id == self.message_id:  # the answer is written on: its trace is that of the new part
            self.trace, self._n_prepared = None, -1
            self.opened.emit(event.message_id)
            self._ask()
        self._tell_state()

    def _on_finished(self, event: events.GenerationFinished) -> None:
        message_id = event.message.id
        back = self._going_back.pop(message_id, None)
        if back is not None:
            self._show_version(back)
        elif message_id == self.message_id:
            self._timer.stop()
            self._ask()
        self._tell_state()

    def _tell_state(self) -> None:
        if self._watching and not self._stopped:
            self.state_changed.emit()

    # ---- branching

    def why_nothing(self, wanted: str = "branch the chat from here") -> str:
        """Why nothing can be computed for this trace now; "" if it can. wanted: what for."""
        trace, state = self.trace, self._engine.model_state
        if trace is None:
            return "There is no trace"
        if self.lost:
            return _LOST[self.lost]
        if state.status != "ready":
            return f"Load {trace.model_name or 'its model'} to {wanted}"
        if trace.model_path and state.path != trace.model_path:
            return f"Another model is loaded. Load {trace.model_name or 'its own'} to {wanted}"
        return ""

    def why_no_branch(self) -> str:
        """Why a click on an alternative does not branch now; "" if it does."""
        trace = self.trace
        if trace is not None and trace.chat_id in self._engine.chats.generating():
            return "An answer is being written; wait for its end to branch the chat from here"
        return self.why_nothing()

    @property
    def n_vocab(self) -> int | None:
        """Tokens in the vocabulary, where the model that wrote this is loaded."""
        model = self._engine.model_state.model
        return model.n_vocab if model is not None and not self.why_nothing() else None

    def branch(self, index: int, token_id: int) -> None:
        """Let a new version of the answer go on with another token at this place."""
        trace = self.trace
        if trace is None:
            return
        old_id, chat_id = trace.message_id, trace.chat_id

        def made(message: Message) -> None:
            self.branched.emit(message, lambda: self._go_back(chat_id, message.id, old_id))
            self.open(message.id)

        self._bridge.run(self._engine.traces.branch(old_id, index, token_id), made, self._fail, owner=self)

    def _go_back(self, chat_id: int, new_id: int, old_id: int) -> None:
        """Show the version before a branch again. The branch stays as a version."""
        if self._engine.chats.generating().get(chat_id) == new_id:
            self._going_back[new_id] = old_id
            self._engine.chats.stop(chat_id)
        else:
            self._show_version(old_id)

    def _show_version(self, message_id: int) -> None:
        self._bridge.run(self._engine.chats.show(message_id), lambda _: self.open(message_id), self._fail, owner=self)

    # ---- replay, export

    def replay(self, message_id: int, index: int, sampling: SamplingParams) -> None:
        """Take a step again; `replayed` or `replay_failed` follows."""
        future = self._engine.traces.replay(message_id, index, sampling)
        self._bridge.run(future, self.replayed.emit, self.replay_failed.emit, owner=self)

    def export(self, path: Path) -> None:
        """Write the trace as JSON; `exported` or `failed` follows."""

        def write(text: str) -> None:
            data = text.encode()
            self._tasks.run(
                lambda: atomic_write(path, data),
                lambda _: self.exported.emit(str(path)),
                self._fail,
                owner=self,
            )

        self._bridge.run(self._engine.traces.export(self.message_id), write, self._fail, owner=self)


def _extent(trace: Trace | None) -> tuple[object, ...]:
    """What grows in a trace while it is made; comparing all of it would take too long."""
    return () if trace is None else (trace.n_prompt, len(trace.chunks), len(trace.steps), trace.marks)
