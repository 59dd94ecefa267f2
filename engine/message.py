"""Messages and the record of how an answer was made.

A message is a list of parts, not a string, so that images, documents and tool calls can join later. Messages of
one chat form a tree: an edit or a new answer is a sibling under the same parent, and nothing is overwritten.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from engine.errors import EngineError, by_code
from engine.sampling import SamplingParams

Role = Literal["system", "user", "assistant", "tool"]
#: complete: ended by itself; stopped: by the user; failed: an error (see `GenerationRecord.error`);
#: streaming: being written now; interrupted: the program ended while it was being written.
Status = Literal["complete", "streaming", "stopped", "failed", "interrupted"]
FinishReason = Literal["stop", "length", "cancelled", "error"]
#: What happens when a conversation no longer fits the context. error: nothing is sent. drop_oldest: the oldest whole
#: turns are left out; system, pinned messages and the last turn stay. roll: the same, and an answer that reaches the
#: end of the context goes on after more of the oldest turns have been given up.
Overflow = Literal["error", "drop_oldest", "roll"]


class TextPart(msgspec.Struct, frozen=True, tag="text", omit_defaults=True):
    text: str


class ReasoningPart(msgspec.Struct, frozen=True, tag="reasoning", omit_defaults=True):
    """What the model thought before it answered.

    Attributes:
        text: the thinking, without its tags.
        tag: the tag's name, for instance "think".
        closed: False if the answer ended before the closing tag came.
        n_tokens: tokens of the thinking, tags included.
        duration_s: seconds from its first to its last token.
    """

    text: str
    tag: str = "think"
    closed: bool = True
    n_tokens: int = 0
    duration_s: float = 0.0


Part = TextPart | ReasoningPart


class Usage(msgspec.Struct, frozen=True):
    """Token counts of one request.

    Attributes:
        cached_tokens: the part of prompt_tokens that did not have to be computed.
        shifted_tokens: the part of cached_tokens that was moved in the KV cache, to where dropped turns had been.
        restored_tokens: the part of cached_tokens that came from disk.
        drafted_tokens, accepted_tokens: tokens that speculative decoding guessed, and those of them that were right.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    shifted_tokens: int = 0
    restored_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0


class Reread(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why tokens of a prompt were read again although the chat's last prompt and answer had been read up to there.

    Attributes:
        index: the first token that could not be used as it was.
        old, new: what stood there and what stands there now; empty where nothing did, equal where it was the same.
        cause: "changed": the text is another one (an edited message, other instructions); "tokens": the same text is
            cut into other tokens; "thinking": the template leaves out what the model thought; "dropped": turns were
            left out and the rest could not be moved; "window", "state": a sliding window or the state of recurrent
            layers does not reach back; "given_up": its place in the context was needed; "stopped": computing was
            interrupted.
        n_tokens: how many tokens were read again.
    """

    index: int
    cause: Literal["changed", "tokens", "thinking", "dropped", "window", "state", "given_up", "stopped"]
    n_tokens: int
    old: str = ""
    new: str = ""


class Timings(msgspec.Struct, frozen=True):
    """Measured times of one request, in seconds, and rates in tokens per second.

    Attributes:
        queue_s: from the arrival of the request to the start of work on it.
        template_s: rendering the template and tokenizing.
        prefill_s: computing the prompt tokens that were not cached.
        ttft_s: time to first token, from the arrival of the request.
        decode_s: from the first to the last generated token.
        prefill_tps: prefilled tokens (without cached ones) per second of prefill_s; None if nothing was prefilled.
        decode_tps: (completion tokens - 1) / decode_s; None with fewer than two tokens.
    """

    queue_s: float = 0.0
    template_s: float = 0.0
    prefill_s: float = 0.0
    ttft_s: float | None = None
    decode_s: float = 0.0
    prefill_tps: float | None = None
    decode_tps: float | None = None


class ErrorInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """An `EngineError` as data."""

    code: str
    message: str
    hint: str = ""
    details: dict[str, Any] = {}


def error_from(info: ErrorInfo) -> EngineError:
    """The exception of an error that came as data."""
    return by_code(info.code)(info.message, hint=info.hint, details=info.details)


class AnswerFormat(msgspec.Struct, frozen=True, omit_defaults=True):
    """The form that answers have to keep to.

    Attributes:
        kind: "text" is free; "json": any JSON object or list; "schema": JSON that follows the JSON Schema `text`;
            "grammar": what the grammar `text` (GBNF) allows.
    """

    kind: Literal["text", "json", "schema", "grammar"] = "text"
    text: str = ""


class GenerationRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything that made an answer, stored with it, so that it can be explained and replayed.

    Of an answer that was continued, `usage.completion_tokens` counts all of its tokens, and `usage.prompt_tokens` those
    before it, so that both together are what stands in the context. Its times up to the first token (`timings.ttft_s`,
    `prefill_s`, ...) are those of its first part; `decode_s` and `decode_tps`, like everything else, those of its last.

    Attributes:
        sampling: the parameters used, with the seed that was drawn.
        answer_format: the form that the answer had to keep to.
        template_source: where the chat template came from (see `events.TemplateInfo.source`).
        n_dropped: messages of the chat that were not sent because they no longer fit the context.
        notes: things the user should see with the answer, in words.
        reread: why tokens of the prompt were read again; None if none were.
    """

    model_name: str = ""
    model_path: str = ""
    model_sha256: str = ""
    n_ctx: int = 0
    sampling: SamplingParams = SamplingParams()
    finish_reason: FinishReason | None = None
    stop_string: str = ""
    usage: Usage = Usage()
    timings: Timings = Timings()
    template_source: str = ""
    n_dropped: int = 0
    notes: tuple[str, ...] = ()
    reread: Reread | None = None
    error: ErrorInfo | None = None
    answer_format: AnswerFormat = AnswerFormat()


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One node of a chat's tree.

    Attributes:
        id: unique in the database; ids grow with time.
        parent_id: the message before it; None for the first of a chat.
        created_s: seconds since the epoch.
        pinned: it stays in the context, with its whole turn, when older turns are left out.
        version, n_versions: this is number `version` (from 1) of `n_versions` siblings of the same role
            under the same parent; filled when read.
    """

    id: int
    chat_id: int
    parent_id: int | None
    role: Role
    parts: tuple[Part, ...]
    status: Status = "complete"
    created_s: float = 0.0
    generation: GenerationRecord | None = None
    pinned: bool = False
    version: int = 1
    n_versions: int = 1

    @property
    def text(self) -> str:
        """The visible text: all text parts joined, thinking left out."""
        return "".join(p.text for p in self.parts if isinstance(p, TextPart))

    @property
    def reasoning(self) -> str:
        return "".join(p.text for p in self.parts if isinstance(p, ReasoningPart))


class ChatSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a chat sets for itself. None means: as in the application's settings."""

    system_prompt: str = ""
    sampling: SamplingParams | None = None
    answer_format: AnswerFormat = AnswerFormat()


class Chat(msgspec.Struct, frozen=True, kw_only=True):
    """A chat without its messages.

    Attributes:
        title: shown in the list; the first words of the first message until it is renamed.
        active_leaf_id: last message of the branch on screen.
        updated_s: last change of any message, seconds since the epoch; the list is sorted by it.
    """

    id: int
    title: str = ""
    created_s: float = 0.0
    updated_s: float = 0.0
    active_leaf_id: int | None = None
    n_messages: int = 0
    settings: ChatSettings = ChatSettings()


class PromptMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message as it goes to the chat template, parts already joined.

    Attributes:
        content: the text.
        reasoning: thinking of an earlier answer; most templates leave it out, some want it.
        reasoning_tag: the tag that thinking stood in ("think"), needed to continue an answer exactly.
        reasoning_closed: False when thinking had not ended.
        pinned: it stays, with its whole turn, when older turns are left out.
    """

    role: Role
    content: str
    reasoning: str = ""
    reasoning_tag: str = "think"
    reasoning_closed: bool = True
    pinned: bool = False
