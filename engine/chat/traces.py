"""Traces of answers for front ends: read, export, go on from another token, take one step again.

Every public method returns a future at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

import msgspec

from engine import events
from engine.chat.answers import Answers, Asked, Model
from engine.errors import EngineError, Gone, InvalidRequest, ModelNotLoaded
from engine.format_check import request_fields
from engine.message import GenerationRecord, Message, Part, PromptMessage, ReasoningPart, TextPart, error_from
from engine.sampling import SamplingParams
from engine.store.chats import ChatStore
from engine.trace import Lost, Step, Trace
from engine.worker import protocol

T = TypeVar("T")
#: a piece of work on the engine thread, that may give the next one
_Work = Callable[[ChatStore], Any]
_LOST = {"chat": "The chat of this answer was deleted", "message": "This answer was deleted"}


class Traces:
    """`run` puts work on the engine thread, `emit` is called from it."""

    def __init__(
        self,
        run: Callable[[Callable[[ChatStore], Any]], Future[Any]],
        model: Model,
        answers: Answers,
        emit: Callable[[events.Event], None],
        new_id: Callable[[], str],
    ) -> None:
        self._run, self._model, self._answers, self._emit, self._new_id = run, model, answers, emit, new_id

    # -------------------------------------------------------------- reading

    def get(self, message_id: int) -> Future[Trace | None]:
        """The stored trace of an answer, None if there is none (it was switched off, or had to make room)."""
        return self._run(lambda store: _stored(store, message_id))

    def live(self, message_id: int) -> Future[Trace | None]:
        """What has come so far of an answer that is being written, None if it is not; done at once.

        What comes later is told by `GenerationPrompt`, `GenerationStep` and `GenerationFinished`.
        """
        return _ready(self._answers.trace(message_id))

    def latest(self) -> Future[int | None]:
        """The message whose trace was stored last."""
        return self._run(lambda store: store.traces.latest())

    def lost(self, message_id: int) -> Future[Lost]:
        """What was deleted of an answer: "chat", "message"; "" if it is there. Of one that is gone the trace can be
        read, until it is removed for good, but nothing can go on from it."""
        return self._run(lambda store: store.traces.lost(message_id))

    def export(self, message_id: int) -> Future[str]:
        """A trace as JSON; raises `InvalidRequest` through the future if there is none."""
        return self._run(lambda store: self._known(store, message_id).to_json())

    def usage(self) -> Future[tuple[int, int]]:
        """(how many traces are stored, the bytes they take)"""
        return self._run(lambda store: store.traces.usage())

    def clear(self) -> Future[None]:
        """Forget all traces that are stored now, and give their space back. The answers stay.

        It is done in pieces; what else has to get to the disk gets its turn in between.
        """

        def forget(store: ChatStore, last: int | None = None) -> _Work | None:
            more = store.traces.clear_some(last)
            return shrink if more is None else lambda again: forget(again, more)

        def shrink(store: ChatStore) -> _Work | None:
            return shrink if store.traces.shrink_some(busy=bool(self._answers.running())) else None

        result: Future[None] = Future()
        self._in_pieces(forget, result)
        return result

    def _in_pieces(self, work: _Work, result: Future[None]) -> None:
        """Do a piece of work, then the one that it gives, until it gives none."""

        def done(future: Future[_Work | None]) -> None:
            error = CancelledError() if future.cancelled() else future.exception()
            if error is not None:
                result.set_exception(error)
            elif (more := future.result()) is not None:
                self._in_pieces(more, result)
            else:
                result.set_result(None)

        try:
            self._run(work).add_done_callback(done)
        except RuntimeError as error:  # the engine has ended
            result.set_exception(error)

    # -------------------------------------------------------------- from another token

    def branch(self, message_id: int, index: int, token_id: int) -> Future[Message]:
        """Another version of an answer, beside it: the same tokens before step `index`, then `token_id`; from there on
        the model writes, with the same seed and sampling. What it has read of the chat is used again.

        Args:
            index: 0 for the first token of the answer; the number of its steps: go on behind its last one.

        The future gives the new message. It raises `InvalidRequest` where there is no trace or no such step, or
        another model is loaded, `Gone` where the answer or its chat was deleted, `ModelNotLoaded`, and `Busy` while an
        answer of this chat is being written.
        """

        def work(store: ChatStore) -> Message:
            old = store.message(message_id)
            self._answers.refuse_if_running(old.chat_id)
            trace = self._known(store, message_id)
            self._refuse(store, trace)
            steps = _before(trace, index, most=len(trace.steps))
            replaced = trace.steps[index] if index < len(trace.steps) else trace.end
            parts = _parts(trace.messages[-1].message) if trace.continued and trace.messages else ()
            message = store.add_message(
                old.chat_id, old.parent_id, "assistant", parts, status="streaming", generation=GenerationRecord()
            )
            self._emit(events.MessageAdded(message=message))
            asked = Asked(
                messages=trace.messages,
                sampling=trace.sampling,
                answer_format=trace.answer_format,
                overflow=trace.overflow,
                forced=(*(step.token_id for step in steps), token_id),
                before=(*steps, *_instead(replaced, token_id)),
            )
            self._answers.start(store, message, continued=trace.continued, asked=asked)
            self._emit(events.ChatListChanged())
            return message

        return self._run(work)

    def replay(self, message_id: int, index: int, sampling: SamplingParams) -> Future[events.TokenDetail]:
        """Choose token `index` of an answer again, with other settings but the same random number. Nothing is stored.

        The prompt and the tokens before it are read from what is in the context, as far as they are still there. With
        the settings of the answer the same token comes again, but for rounding. Mirostat has learned from the tokens
        before it, as it would have with these settings.

        Args:
            index: 0 for the first token; the number of steps: what came behind the last one.
            sampling: its seed, `max_tokens` and `stop` do not matter.

        Raises as `branch`, through the future, and what keeps the model from choosing (`GrammarFailed`).
        """
        result: Future[events.TokenDetail] = Future()

        def work(store: ChatStore) -> None:
            trace = self._known(store, message_id)
            self._refuse(store, trace)
            steps = _before(trace, index, most=len(trace.steps))
            request = protocol.Generate(
                id=self._new_id(),
                messages=tuple(sent.message for sent in trace.messages),
                sampling=msgspec.structs.replace(sampling, seed=trace.seed, max_tokens=index + 1, stop=()),
                continue_last=trace.continued,
                overflow=trace.overflow,
                trace=True,
                forced=tuple(step.token_id for step in steps),
                n_draws=sum(map(_drew, steps)),
                n_xtc_draws=sum(map(_asked_xtc, steps)),
                surprises=tuple(_surprise(step) for step in steps if not step.forced and step.detail is not None),
                **request_fields(trace.answer_format),
            )
            self._model.submit(request, lambda event: _take_step(result, index, event))

        def asked(future: Future[None]) -> None:
            error = None if future.cancelled() else future.exception()
            if error is not None and not result.done():
                result.set_exception(error)

        self._run(work).add_done_callback(asked)
        return result

    def _known(self, store: ChatStore, message_id: int) -> Trace:
        trace = _stored(store, message_id)
        if trace is None:
            raise InvalidRequest(
                "There is no trace of this answer",
                hint="It was written while traces were switched off, or its trace had to make room for newer ones.",
                details={"field": "message_id"},
            )
        return trace

    def _refuse(self, store: ChatStore, trace: Trace) -> None:
        """Nothing goes on from what was deleted; and tokens of one model mean nothing to another."""
        lost = store.traces.lost(trace.message_id)
        if lost:
            raise Gone(_LOST[lost], hint="Its trace can only be read.", details={"field": "message_id"})
        state = self._model.state
        if state.status not in ("loading", "ready"):
            raise ModelNotLoaded("No model is loaded", hint=f"Load {trace.model_name} first: it wrote this answer.")
        if state.path != trace.model_path:
            raise InvalidRequest(
                "Another model is loaded than the one that wrote this answer",
                hint=f"Load {trace.model_name} first.",
                details={"field": "message_id"},
            )


def _ready(value: T) -> Future[T]:
    future: Future[T] = Future()
    future.set_result(value)
    return future


def _stored(store: ChatStore, message_id: int) -> Trace | None:
    data = store.traces.get(message_id)
    if data is None:
        return None
    try:
        return Trace.unpacked(data)
    except ValueError:
        return None  # of another version of this program


def _before(trace: Trace, index: int, *, most: int) -> tuple[Step, ...]:
    if not 0 <= index <= most:
        raise InvalidRequest("The answer has no such token", details={"field": "index"})
    return trace.steps[:index]


def _parts(message: PromptMessage) -> tuple[Part, ...]:
    """What an answer held that was written on."""
    parts: list[Part] = []
    if message.reasoning:
        parts.append(ReasoningPart(message.reasoning, message.reasoning_tag, message.reasoning_closed))
    if message.content:
        parts.append(TextPart(message.content))
    return tuple(parts)


def _instead(step: Step | None, token_id: int) -> tuple[Step, ...]:
    """The step as it is when this token was taken in place of the one that was chosen."""
    if step is None or step.detail is None:
        return ()
    detail = step.detail
    found = next((c for c in detail.candidates if c.token_id == token_id), None)
    if found is None:
        return ()
    chosen = msgspec.structs.replace(
        detail, token_id=token_id, stages=(), chosen_p=math.exp(found.logprob), draw_from=0.0, draw_to=0.0
    )
    return (Step(token_id, found.piece, step.time_s, found.logprob, forced=True, detail=chosen),)


def _drew(step: Step) -> bool:
    """Whether a random number was used up for it: not where it was forced, or greedy."""
    return not step.forced and (step.detail is None or step.detail.draw_to > 0)


def _surprise(step: Step) -> float:
    """Of the token among what was left when it was drawn, in bits."""
    chosen_p = step.detail.chosen_p if step.detail is not None else 1.0
    return -math.log2(chosen_p) if 0 < chosen_p < 1 else 0.0


def _asked_xtc(step: Step) -> bool:
    """Whether XTC has drawn whether to act: not where only one token was left."""
    stages = step.detail.stages if step.detail is not None else ()
    before = 2
    for stage in stages:
        if stage.name == "xtc":
            return not step.forced and before > 1
        before = stage.n_left
    return False


def _take_step(result: Future[events.TokenDetail], index: int, event: events.Event) -> None:
    """Runs on the worker client's reader thread, or on any thread for a request that never left."""
    if result.done():
        return
    if isinstance(event, events.Token) and event.index == index and event.detail is not None:
        result.set_result(event.detail)
    elif isinstance(event, events.Done):
        if event.end is not None and event.end.detail is not None:
            result.set_result(event.end.detail)
        else:
            result.set_exception(EngineError("The step could not be taken again"))
    elif isinstance(event, events.Error):
        result.set_exception(error_from(event.error))
