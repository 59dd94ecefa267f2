"""Making the trace of one answer out of the worker's events, while they come."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from engine import events
from engine.message import GenerationRecord, Message
from engine.trace import Chunk, Step, Trace, TraceMessage
from engine.worker import protocol


class Recorder:
    """Collects the events of one request. `take` runs on the worker client's reader thread; the rest on any: a list
    that only grows can be copied at any time.

    Args:
        before: steps of the answer that this one branches from, as far as it begins with them.
    """

    def __init__(
        self,
        message: Message,
        request: protocol.Generate,
        ids: Sequence[int],
        record: GenerationRecord,
        before: Sequence[Step] = (),
    ) -> None:
        self._began_s = time.perf_counter()
        self._trace = Trace(
            message_id=message.id,
            chat_id=message.chat_id,
            created_s=time.time(),
            messages=tuple(TraceMessage(number, sent) for number, sent in zip(ids, request.messages, strict=True)),
            sampling=request.sampling,
            answer_format=record.answer_format,
            overflow=request.overflow,
            continued=request.continue_last,
            model_name=record.model_name,
            model_path=record.model_path,
            n_ctx=record.n_ctx,
        )
        self._before, self._n_forced = tuple(before), len(request.forced)
        self._chunks: list[Chunk] = []
        self._steps: list[Step] = []

    def take(self, event: events.Token | events.PromptProgress | events.PromptTrace) -> None:
        if isinstance(event, events.Token):
            if event.token_id >= 0:
                self._steps.append(self._step(event))
        elif isinstance(event, events.PromptProgress):
            if event.n_chunk:
                self._chunks.append(Chunk(event.first, event.n_chunk, event.began_s, event.took_s))
        else:
            self._trace = msgspec.structs.replace(
                self._trace,
                tokens=event.tokens,
                pieces=event.pieces,
                owners=event.owners,
                exact=event.exact,
                n_cached=event.n_cached,
                n_shifted=event.n_shifted,
                n_restored=event.n_restored,
                n_forced=event.n_forced,
                reread=event.reread,
            )

    def _step(self, token: events.Token) -> Step:
        index = token.index
        forced = 0 <= index < self._n_forced
        step = Step(
            token.token_id,
            token.piece or _name(token),
            token.time_s,
            token.logprob,
            token.channel,
            token.drafted,
            token.n_rejected,
            forced,
            token.detail,
        )
        # what could have come in place of a forced token was seen when it was first written
        if forced and index < len(self._before) and self._before[index].token_id == token.token_id:
            known = self._before[index]
            step = msgspec.structs.replace(step, piece=known.piece, logprob=known.logprob, detail=known.detail)
        return step

    def so_far(self) -> Trace:
        """What has come."""
        return msgspec.structs.replace(self._trace, chunks=tuple(self._chunks), steps=tuple(self._steps))

    def finished(self, record: GenerationRecord, done: events.Done | None) -> Trace:
        """The whole. done: None where the worker has not told the end."""
        trace = msgspec.structs.replace(
            self.so_far(),
            finish_reason=record.finish_reason,
            model_name=record.model_name,
            model_path=record.model_path,
            n_ctx=record.n_ctx,
        )
        if done is None:
            return trace
        end = None if done.end is None else self._step(done.end)
        return msgspec.structs.replace(
            trace,
            marks=done.marks,
            wall_s=time.perf_counter() - self._began_s,
            timings=done.timings,
            usage=done.usage,
            end=end,
        )


def _name(token: events.Token) -> bytes:
    """How a token is written that says nothing."""
    detail = token.detail
    if detail is None:
        return b""
    return next((c.piece for c in detail.candidates if c.token_id == token.token_id), b"")
