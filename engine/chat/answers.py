"""The answers that are being written: from the request to the model to the finished message on disk."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any, Protocol, cast

import msgspec

from engine import events, log
from engine.chat.generation import Generation, begun, prompt_messages, sent_messages
from engine.chat.recorder import Recorder
from engine.chat.unsaved import Unsaved
from engine.errors import Busy, Cancelled, DatabaseDamaged, EngineError
from engine.format_check import request_fields
from engine.message import AnswerFormat, Chat, ErrorInfo, GenerationRecord, Message, Overflow, Part, Status
from engine.sampling import SamplingParams, with_seed
from engine.settings import Settings
from engine.store.chats import ChatStore
from engine.trace import Step, Trace, TraceMessage
from engine.worker import protocol

#: seconds between looks at the running answers; what is on disk is at most two of these behind
FLUSH_S = 0.5
_log = log.get("chat")


def cache_key(chat_id: int) -> str:
    """Under which a chat's state is kept by the model process."""
    return f"chat-{chat_id}"


class Asked(msgspec.Struct, frozen=True):
    """How an answer is to be made, where that is not said by its chat as it is now: as another one was.

    Attributes:
        forced: tokens with which it begins; before: the steps of the other answer that they were taken from.
    """

    messages: tuple[TraceMessage, ...]
    sampling: SamplingParams
    answer_format: AnswerFormat
    overflow: Overflow
    forced: tuple[int, ...] = ()
    before: tuple[Step, ...] = ()


class Model(Protocol):
    """What conversations need of the loaded model (`engine.model_host.ModelHost`)."""

    @property
    def state(self) -> events.ModelState: ...

    def submit(
        self,
        request: protocol.Generate | protocol.Tokenize | protocol.Ledger,
        handler: Callable[[events.Event], None],
    ) -> None: ...

    def prioritize(self, request_id: str, priority: int) -> None: ...

    def forget(self, cache_key: str) -> None: ...

    def stop_request(self, request_id: str) -> None: ...


class Answers:
    """Running answers by chat, at most one each.

    `start`, `abandon` and `close` run on the engine thread, events come from the worker client's reader thread, and
    a thread of its own sees to it that the text so far reaches the disk. `run` puts work on the engine thread.
    """

    def __init__(
        self,
        run: Callable[[Callable[[ChatStore], Any]], Future[Any]],
        model: Model,
        settings: Settings,
        emit: Callable[[events.Event], None],
        new_id: Callable[[], str],
    ) -> None:
        self._run = run
        self._model = model
        self._settings = settings
        self._emit = emit
        self._new_id = new_id
        self._running: dict[int, Generation] = {}
        self._unsaved = Unsaved(emit)
        self._wake = threading.Event()
        self._closing = False
        self._visible: int | None = None
        threading.Thread(target=self._flush_loop, name="flush", daemon=True).start()

    def running(self) -> dict[int, int]:
        """chat id -> id of the message that is being written."""
        return {chat_id: g.message_id for chat_id, g in list(self._running.items())}

    def refuse_if_running(self, chat_id: int) -> None:
        """Raises: Busy: an answer of this chat is being written."""
        if chat_id in self._running:
            raise Busy("An answer is being written in this chat", hint="Stop it first, or wait for its end.")

    def stop(self, chat_id: int | None = None) -> None:
        for generation in list(self._running.values()):
            if chat_id is None or generation.chat_id == chat_id:
                self._model.stop_request(generation.request_id)

    def look_at(self, chat_id: int | None) -> None:
        """This chat is on screen now: its answers come before those of the others. Any thread may call it."""
        before, self._visible = self._visible, chat_id
        for generation in list(self._running.values()):
            if before != chat_id and generation.chat_id in (before, chat_id):
                self._model.prioritize(generation.request_id, self._priority(generation.chat_id))

    def _priority(self, chat_id: int) -> int:
        return 0 if self._visible in (None, chat_id) else 1

    def forget(self, chat_id: int) -> None:
        """Nothing that the model has read of this chat may stay."""
        self._model.forget(cache_key(chat_id))

    def close(self, store: ChatStore) -> None:
        self._closing = True
        self._wake.set()
        for chat_id in list(self._running):
            self.abandon(store, chat_id)
        self._unsaved.retry(store)

    def known(self, messages: Sequence[Message]) -> list[Message]:
        """Stored messages with what could not be written yet; runs on the engine thread."""
        return self._unsaved.over(messages)

    def trace(self, message_id: int) -> Trace | None:
        """What has come so far of the trace of an answer that is being written."""
        for generation in list(self._running.values()):
            if generation.message_id == message_id and generation.recorder is not None:
                return generation.recorder.so_far()
        return None

    def start(self, store: ChatStore, message: Message, *, continued: bool, asked: Asked | None = None) -> None:
        """Ask the model for the message; `continued`: it goes on where the message ends."""
        chat = store.chat(message.chat_id)
        self._unsaved.retry(store)
        message = self.known([message])[0]
        branch = self.known(store.branch(chat.id, message.id))  # refuses one that was deleted, before anything changes
        asked = asked or self._asked(chat, branch if continued else branch[:-1])
        state = self._model.state
        model = state.model
        record = GenerationRecord(
            model_name=state.name,
            model_path=state.path,
            n_ctx=model.n_ctx if model else 0,
            sampling=asked.sampling,
            answer_format=asked.answer_format,
        )
        record = begun(record, message, continued=continued)
        tag = model.template.thinking_tag if model else ""
        generation = Generation(self._new_id(), message, record, tag)
        try:
            store.update_message(message.id, status="streaming", generation=record)
        except EngineError as error:
            info = ErrorInfo(error.code, error.message, error.hint, error.details)
            record = msgspec.structs.replace(record, finish_reason="error", error=info)
            self._end(store, generation, message.parts, "failed", record)
            return
        request = self._request(generation, asked, continued)
        if request.trace:
            ids = [sent.id for sent in asked.messages]
            generation.recorder = Recorder(message, request, ids, record, asked.before)
        self._running[chat.id] = generation
        self._wake.set()
        self._emit(events.GenerationStarted(request_id=request.id, chat_id=chat.id, message_id=message.id))
        self._model.submit(request, lambda event: self._on_event(generation, event))

    def _asked(self, chat: Chat, branch: Sequence[Message]) -> Asked:
        """What the chat and the settings say now."""
        sent = prompt_messages(chat.settings.system_prompt or self._settings.system_prompt, branch)
        ids = [message.id for message in sent_messages(branch)]
        ids = [*[0] * (len(sent) - len(ids)), *ids]
        return Asked(
            messages=tuple(map(TraceMessage, ids, sent)),
            sampling=with_seed(chat.settings.sampling or self._settings.sampling),
            answer_format=chat.settings.answer_format,
            overflow=cast(Overflow, self._settings.overflow),
        )

    def _request(self, generation: Generation, asked: Asked, continued: bool) -> protocol.Generate:
        return protocol.Generate(
            id=generation.request_id,
            messages=tuple(sent.message for sent in asked.messages),
            sampling=asked.sampling,
            continue_last=continued,
            overflow=asked.overflow,
            priority=self._priority(generation.chat_id),
            cache_key=cache_key(generation.chat_id),
            speculate=self._settings.speculate,
            trace=self._settings.trace,
            forced=asked.forced,
            **request_fields(asked.answer_format),
        )

    def _on_event(self, generation: Generation, event: events.Event) -> None:
        """Runs on the worker client's reader thread (or on any thread, for a request that never left)."""
        if generation.abandoned:
            return
        match event:
            case events.PromptTrace():
                if generation.recorder is not None:
                    generation.recorder.take(event)
                    self._emit(
                        events.GenerationPrompt(
                            request_id=generation.request_id,
                            chat_id=generation.chat_id,
                            message_id=generation.message_id,
                            prompt=event,
                        )
                    )
            case events.Token() | events.PromptProgress():
                if isinstance(event, events.Token):
                    generation.add(event)
                if generation.recorder is not None:
                    generation.recorder.take(event)
                self._emit(
                    events.GenerationStep(
                        request_id=generation.request_id,
                        chat_id=generation.chat_id,
                        message_id=generation.message_id,
                        step=event,
                    )
                )
            case events.Done():
                self._run(lambda store: self._finish(store, generation, event))
            case events.Error():
                error = event.error
                self._run(lambda store: self._fail(store, generation, error))

    def _finish(self, store: ChatStore, generation: Generation, done: events.Done) -> None:
        if generation.abandoned:
            return
        parts, status, record = generation.finish(done)
        if (model := self._model.state.model) is not None and not record.n_ctx:
            # the question came while the model was still loading
            record = msgspec.structs.replace(record, n_ctx=model.n_ctx, model_name=model.name, model_path=model.path)
        self._end(store, generation, parts, status, record, done)

    def _fail(self, store: ChatStore, generation: Generation, error: ErrorInfo) -> None:
        if generation.abandoned:
            return
        if error.code == Cancelled.code:
            record = msgspec.structs.replace(generation.record, finish_reason="cancelled")
        else:
            record = msgspec.structs.replace(generation.record, finish_reason="error", error=error)
        status: Status = "stopped" if error.code == Cancelled.code else "failed"
        self._end(store, generation, generation.parts(), status, record)

    def abandon(self, store: ChatStore, chat_id: int) -> None:
        """End the answer of a chat here and now, with what it has; what the worker still says of it is ignored."""
        generation = self._running.get(chat_id)
        if generation is None:
            return
        generation.abandoned = True
        self._model.stop_request(generation.request_id)
        record = msgspec.structs.replace(generation.record, finish_reason="cancelled")
        self._end(store, generation, generation.parts(), "stopped", record)

    def _end(
        self,
        store: ChatStore,
        generation: Generation,
        parts: tuple[Part, ...],
        status: Status,
        record: GenerationRecord,
        done: events.Done | None = None,
    ) -> None:
        """The answer is over, whether it can be stored or not: no chat stays busy because a disk is full."""
        trace = generation.recorder.finished(record, done) if generation.recorder is not None else None
        message, error = self._unsaved.save(store, generation.message, parts, status, record)
        self._running.pop(generation.chat_id, None)
        self._emit(
            events.GenerationFinished(request_id=generation.request_id, chat_id=generation.chat_id, message=message)
        )
        self._emit(events.ChatListChanged())
        if trace is not None and error is None:
            self._keep(store, trace)
        if self._unsaved:
            self._wake.set()
        if isinstance(error, DatabaseDamaged):
            raise error  # the caller replaces the file

    def _keep(self, store: ChatStore, trace: Trace) -> None:
        """Store a trace. An answer without one is whole all the same."""
        try:
            store.traces.put(trace.message_id, trace.packed(), int(self._settings.trace_cap_mib * 2**20))
        except EngineError as error:
            _log.warning("a trace cannot be saved: %s", error.code)

    # -------------------------------------------------------------- keeping up with the disk

    def _flush_loop(self) -> None:
        while not self._closing:
            self._wake.wait()
            self._wake.clear()
            while (self._running or self._unsaved) and not self._closing:
                try:
                    error = self._run(self._flush).exception()
                except (RuntimeError, CancelledError):
                    return  # the engine thread has ended
                if error is not None:
                    _log.error("the answer so far cannot be saved", exc_info=error)
                time.sleep(FLUSH_S)

    def _flush(self, store: ChatStore) -> None:
        self._unsaved.retry(store)
        for generation in list(self._running.values()):
            if generation.unsaved_s() < FLUSH_S:
                continue
            try:
                store.update_message(generation.message_id, parts=generation.parts())
            except EngineError as error:
                generation.not_saved()
                self._unsaved.report(error)
                if isinstance(error, DatabaseDamaged):
                    raise
                return
            self._unsaved.worked()
