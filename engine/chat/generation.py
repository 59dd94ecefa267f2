"""One answer while it is being written: what has come so far, and how it becomes a message's parts."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import msgspec

from engine import events
from engine.chat.recorder import Recorder
from engine.message import GenerationRecord, Message, Part, PromptMessage, ReasoningPart, Status, TextPart, Usage


class Generation:
    """Collects the events of one request for one message.

    `add` runs on the worker client's reader thread, the rest on the engine thread; a lock guards the text.

    Attributes:
        message: the message as it was before.
        prefix: parts the message had before (an answer that is continued); empty for a new answer.
        record: how the answer is made; completed by `finish`.
        recorder: makes its trace; None if none is kept.
    """

    def __init__(self, request_id: str, message: Message, record: GenerationRecord, thinking_tag: str) -> None:
        self.request_id = request_id
        self.chat_id = message.chat_id
        self.message_id = message.id
        self.message = message
        self.prefix = message.parts
        self.record = record
        self.abandoned = False
        self.recorder: Recorder | None = None
        self._tag = thinking_tag or "think"
        self._lock = threading.Lock()
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._n_reasoning = 0
        self._reasoning_started: float | None = None
        self._reasoning_last = 0.0
        self._changed_s: float | None = None

    def add(self, token: events.Token) -> None:
        with self._lock:
            if token.channel == "reasoning":
                self._n_reasoning += 1
                if self._reasoning_started is None:
                    self._reasoning_started = token.time_s
                self._reasoning_last = token.time_s
            if not token.text:
                return
            (self._reasoning if token.channel == "reasoning" else self._text).append(token.text)
            if self._changed_s is None:
                self._changed_s = time.monotonic()

    def unsaved_s(self) -> float:
        """Seconds since the oldest text that is not on disk yet came; 0 if all is."""
        with self._lock:
            return 0.0 if self._changed_s is None else time.monotonic() - self._changed_s

    def not_saved(self) -> None:
        """What `parts` gave did not reach the disk."""
        with self._lock:
            if self._changed_s is None:
                self._changed_s = time.monotonic()

    def parts(self) -> tuple[Part, ...]:
        """What there is so far; counts as saved from now on."""
        with self._lock:
            self._changed_s = None
            reasoning, text = "".join(self._reasoning), "".join(self._text)
            duration = self._reasoning_last - (self._reasoning_started or 0.0)
        thought = ReasoningPart(reasoning, self._tag, bool(text), self._n_reasoning, duration)
        return join(self.prefix, thought if reasoning else None, text)

    def finish(self, done: events.Done) -> tuple[tuple[Part, ...], Status, GenerationRecord]:
        """Parts, status and record of the finished message. The event's text is authoritative."""
        thought = None
        if done.reasoning:
            tag = done.reasoning_tag or self._tag
            thought = ReasoningPart(done.reasoning, tag, done.reasoning_closed, done.reasoning_tokens, done.reasoning_s)
        record = completed(self.record, done, continued=bool(self.prefix))
        status: Status = "stopped" if done.finish_reason == "cancelled" else "complete"
        return join(self.prefix, thought, done.text), status, record


def begun(record: GenerationRecord, message: Message, *, continued: bool) -> GenerationRecord:
    """The record as it is while the answer is written; an answer that is continued keeps its first figures."""
    before = message.generation
    if not continued or before is None or not message.parts:
        return record
    return msgspec.structs.replace(record, usage=before.usage, timings=before.timings)


def completed(record: GenerationRecord, done: events.Done, *, continued: bool = False) -> GenerationRecord:
    """The record with what is known at the end. The seed stays: it was drawn before the request was sent.

    `continued`: the record has the figures of the text that was written on; see `GenerationRecord`.
    """
    usage, timings = done.usage, done.timings
    if continued:
        prompt_tokens = max(0, usage.prompt_tokens - record.usage.completion_tokens)
        usage = Usage(
            prompt_tokens=prompt_tokens,
            completion_tokens=record.usage.completion_tokens + usage.completion_tokens,
            cached_tokens=min(usage.cached_tokens, prompt_tokens),
            shifted_tokens=min(usage.shifted_tokens, prompt_tokens),
            restored_tokens=min(usage.restored_tokens, prompt_tokens),
            drafted_tokens=record.usage.drafted_tokens + usage.drafted_tokens,
            accepted_tokens=record.usage.accepted_tokens + usage.accepted_tokens,
        )
        timings = msgspec.structs.replace(record.timings, decode_s=timings.decode_s, decode_tps=timings.decode_tps)
    return msgspec.structs.replace(
        record,
        finish_reason=done.finish_reason,
        stop_string=done.stop_string,
        usage=usage,
        timings=timings,
        template_source=done.template_source,
        n_dropped=done.n_dropped,
        notes=done.notes,
        reread=done.reread,
    )


def join(prefix: tuple[Part, ...], thought: ReasoningPart | None, text: str) -> tuple[Part, ...]:
    """Parts of a message that had `prefix` and was written on. Thinking goes on where the prefix ended in it."""
    parts = list(prefix)
    if thought is not None:
        last = parts[-1] if parts else None
        if isinstance(last, ReasoningPart) and not last.closed:
            parts[-1] = ReasoningPart(
                last.text + thought.text,
                last.tag,
                thought.closed,
                last.n_tokens + thought.n_tokens,
                last.duration_s + thought.duration_s,
            )
        else:
            parts.append(thought)
    if text:
        last = parts[-1] if parts else None
        if isinstance(last, TextPart):
            parts[-1] = TextPart(last.text + text)
        else:
            if isinstance(last, ReasoningPart) and not last.closed:
                parts[-1] = ReasoningPart(last.text, last.tag, True, last.n_tokens, last.duration_s)
            parts.append(TextPart(text))
    return tuple(parts)


def sent_messages(branch: Sequence[Message]) -> list[Message]:
    """The messages that go to the model: not answers that failed before their first word."""
    return [m for m in branch if m.role != "assistant" or m.text or any(isinstance(p, ReasoningPart) for p in m.parts)]


def prompt_messages(system_prompt: str, branch: Sequence[Message]) -> tuple[PromptMessage, ...]:
    """The branch as it goes to the chat template, behind the system prompt if there is one."""
    messages = [PromptMessage("system", system_prompt)] if system_prompt.strip() else []
    for message in sent_messages(branch):
        thought = next((p for p in message.parts if isinstance(p, ReasoningPart)), None)
        messages.append(
            PromptMessage(
                message.role,
                message.text,
                reasoning=message.reasoning,
                reasoning_tag=thought.tag if thought else "think",
                reasoning_closed=thought.closed if thought else True,
                pinned=message.pinned,
            )
        )
    return tuple(messages)
