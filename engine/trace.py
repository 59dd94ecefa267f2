"""The trace of one answer: what the model read, how each token was chosen, and where the time went.

It is made of the worker's events, kept compressed beside the message, and holds all that is needed to explain the
answer, to branch from one of its tokens or to take one of its steps again.
"""

from __future__ import annotations

import json
import sys
import zlib
from array import array
from typing import Any, Literal

import msgspec

from engine.events import Candidate, Marks, TokenDetail
from engine.message import AnswerFormat, FinishReason, Overflow, PromptMessage, Reread, Timings, Usage
from engine.sampling import SamplingParams

#: raised when a stored trace of before cannot be read any more
FORMAT = 1
#: a request that came to the worker sooner than this had nothing to wait for
_NO_WAIT_S = 0.1


#: what was deleted of an answer, so that its trace can only be read: its chat, or itself; "" for nothing
Lost = Literal["", "chat", "message"]


class TraceMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message as it was sent. id: 0 for one that is not stored (the system prompt)."""

    id: int
    message: PromptMessage

    @property
    def role(self) -> str:
        return self.message.role

    @property
    def text(self) -> str:
        return self.message.content


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """Prompt tokens that were computed in one step: `count` of them from number `first` on. Times are in seconds,
    `began_s` since the request arrived at the worker."""

    first: int
    count: int
    began_s: float
    took_s: float


class Step(msgspec.Struct, frozen=True, array_like=True):
    """One generated token.

    Attributes:
        piece: its bytes; of a control token its name.
        time_s: when it had been chosen, in seconds since the request arrived at the worker.
        logprob: natural logarithm of its probability before any sampler.
        drafted: it had been guessed, and was only checked. n_rejected: guesses that its step had computed in vain.
        forced: it was not chosen: the answer was made to begin so.
        detail: None where the worker told nothing (an older trace, a scripted worker).
    """

    token_id: int
    piece: bytes
    time_s: float
    logprob: float | None = None
    channel: Literal["text", "reasoning"] = "text"
    drafted: bool = False
    n_rejected: int = 0
    forced: bool = False
    detail: TokenDetail | None = None


class Part(msgspec.Struct, frozen=True):
    """A part of the time line; the next one begins where it ends. Where the request ended before its last token, the
    last part is what it was at then.

    Attributes:
        name: "load" (waiting for the model to be loaded; only where it was), "queue" (until the worker took it up),
            "template" (rendering the template and tokenizing), "wait" (for a free slot, or what is on disk), "cache"
            (copying or putting back what could be reused), "prefill", "sample" (choosing the first token), "decode"
            (from the first token to the last), "end".
        from_s, to_s: seconds since the request was handed over.
    """

    name: str
    from_s: float
    to_s: float

    @property
    def took_s(self) -> float:
        return self.to_s - self.from_s


class Trace(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is kept of one answer.

    Attributes:
        message_id, chat_id: the answer. Of one that was continued, the trace is that of its last part.
        created_s: when it was asked for, seconds since the epoch.
        messages: the conversation as it was sent; `owners` counts in it.
        tokens, owners: as in `events.PromptTrace`; see `prompt_tokens` and `prompt_owners`.
        pieces: bytes of each token of the prompt; of a control token its name.
        n_cached, n_shifted, n_restored, n_forced, exact, reread: as in `events.PromptTrace`.
        chunks: how the prompt was read, in order.
        steps: what was written, in order. end: the token that ended the answer, if one did.
        marks: None while it is written, and where the worker has not told the end.
        wall_s: from handing the request over to its end, by the clock of this process; None as `marks`.
        seed, sampling, answer_format, overflow: how it was asked for.
        continued: an unfinished answer was written on: it is the last of `messages`.
        model_name, model_path, n_ctx: the model that wrote it.
        n_bytes: what it takes on disk, filled when it is read from there.
    """

    message_id: int
    chat_id: int = 0
    created_s: float = 0.0
    messages: tuple[TraceMessage, ...] = ()
    tokens: bytes = b""
    pieces: tuple[bytes, ...] = ()
    owners: bytes = b""
    exact: bool = True
    n_cached: int = 0
    n_shifted: int = 0
    n_restored: int = 0
    n_forced: int = 0
    reread: Reread | None = None
    chunks: tuple[Chunk, ...] = ()
    steps: tuple[Step, ...] = ()
    end: Step | None = None
    marks: Marks | None = None
    wall_s: float | None = None
    timings: Timings = Timings()
    usage: Usage = Usage()
    finish_reason: FinishReason | None = None
    sampling: SamplingParams = SamplingParams()
    answer_format: AnswerFormat = AnswerFormat()
    overflow: Overflow = "error"
    continued: bool = False
    model_name: str = ""
    model_path: str = ""
    n_ctx: int = 0
    n_bytes: int = 0

    @property
    def seed(self) -> int:
        """The 32-bit seed that was used."""
        return self.sampling.seed or 0

    @property
    def prompt_tokens(self) -> array[int]:
        """Ids of the prompt's tokens; made anew at each call."""
        return _numbers("i", self.tokens)

    @property
    def prompt_owners(self) -> array[int]:
        """Which of `messages` each token of the prompt holds text of, -1 for what the template wrote; made anew at
        each call."""
        return _numbers("h", self.owners)

    @property
    def n_prompt(self) -> int:
        return len(self.tokens) // 4

    @property
    def n_known(self) -> int:
        """Tokens of the prompt that the model knows: from the cache, or computed. Fewer than `n_prompt` while the
        prompt is read, and where the request ended before that was done."""
        chosen = self.end is not None or any(not step.forced for step in self.steps[-1:])
        if chosen or (self.marks is not None and self.marks.prefilled_s is not None):
            return self.n_prompt
        computed = max((chunk.first + chunk.count for chunk in self.chunks), default=0)
        return min(self.n_prompt, max(self.n_cached, computed))

    @property
    def n_read(self) -> int:
        """Tokens of the prompt that were computed for this request."""
        return max(0, self.n_known - self.n_cached)

    @property
    def arrived_s(self) -> float:
        """When the request came to the worker, in seconds since it was handed over. To be added to the times of
        chunks and steps to place them on the time line of `parts`; 0 where it had nothing to wait for."""
        if self.marks is None or self.wall_s is None:
            return 0.0
        before = self.wall_s - self.marks.end_s
        return before if before > _NO_WAIT_S else 0.0

    def parts(self) -> tuple[Part, ...]:
        """The time line, without gaps; its sum is the wall time. Empty while the answer is written."""
        marks = self.marks
        if marks is None:
            return ()
        arrived = self.arrived_s
        parts = [Part("load", 0.0, arrived)] if arrived else []
        at = arrived
        for name, mark in (
            ("queue", marks.template_from_s),
            ("template", marks.template_to_s),
            ("wait", marks.started_s),
            ("cache", marks.cached_s),
            ("prefill", marks.prefilled_s),
            ("sample", marks.first_s),
            ("decode", marks.last_s),
            ("end", marks.end_s),
        ):
            # what was never done was being done when it ended
            to_s = max(at, arrived + (marks.end_s if mark is None else mark))
            parts.append(Part(name, at, to_s))
            at = to_s
            if mark is None:
                break
        return tuple(parts)

    # ------------------------------------------------------------------ on disk and for others

    def packed(self) -> bytes:
        """The compact form in which it is stored."""
        return zlib.compress(_encoder.encode((FORMAT, self)), 6)

    @classmethod
    def unpacked(cls, data: bytes) -> Trace:
        """Raises: ValueError: it is damaged, or was written by another version of this program."""
        try:
            number, trace = _decoder.decode(zlib.decompress(data))
        except (zlib.error, msgspec.DecodeError) as error:
            raise ValueError(f"not a trace: {error}") from error
        if number != FORMAT:
            raise ValueError(f"a trace of format {number}")
        return msgspec.structs.replace(trace, n_bytes=len(data))

    def to_json(self) -> str:
        """All of it as readable JSON. Bytes that are no text of their own stand beside their text, as "hex"."""
        owners = self.prompt_owners
        fields = msgspec.to_builtins(
            msgspec.structs.replace(self, tokens=b"", pieces=(), owners=b"", steps=(), chunks=(), end=None)
        )
        plain = {key: value for key, value in fields.items() if key not in ("tokens", "pieces", "owners")}
        prompt = [
            {"token_id": token, **_said(piece), "message": owner}
            for token, piece, owner in zip(self.prompt_tokens, self.pieces, owners or [-1] * self.n_prompt, strict=True)
        ]
        return json.dumps(
            {
                "format": f"inglenook-trace-{FORMAT}",
                **plain,
                "seed": self.seed,
                "n_known": self.n_known,
                "parts": [msgspec.to_builtins(part) for part in self.parts()],
                "prompt": prompt,
                "chunks": [
                    {"first": c.first, "count": c.count, "began_s": c.began_s, "took_s": c.took_s} for c in self.chunks
                ],
                "steps": [_step(step) for step in self.steps],
                "end": _step(self.end) if self.end is not None else None,
            },
            ensure_ascii=False,
            indent=1,
        )


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[int, Trace])


def text_of(piece: bytes) -> str:
    """What a token says; bytes that are only a part of a character show as U+FFFD."""
    return piece.decode("utf-8", "replace")


def _numbers(code: Literal["i", "h"], data: bytes) -> array[int]:
    numbers = array(code)
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _said(piece: bytes) -> dict[str, str]:
    text = text_of(piece)
    return {"text": text} if text.encode() == piece else {"text": text, "hex": piece.hex()}


def _candidate(candidate: Candidate) -> dict[str, Any]:
    said = {"token_id": candidate.token_id, **_said(candidate.piece), "logprob": candidate.logprob}
    return said if candidate.allowed else {**said, "allowed": False}


def _step(step: Step) -> dict[str, Any]:
    data: dict[str, Any] = {
        "token_id": step.token_id,
        **_said(step.piece),
        "time_s": step.time_s,
        "logprob": step.logprob,
        "channel": step.channel,
        "drafted": step.drafted,
        "n_rejected": step.n_rejected,
        "forced": step.forced,
    }
    detail = step.detail
    if detail is not None:
        data |= {
            "entropy_bits": detail.entropy_bits,
            "candidates": [_candidate(candidate) for candidate in detail.candidates],
            "stages": [{"name": s.name, "n_left": s.n_left, "n_changed": s.n_changed} for s in detail.stages],
            "chosen_p": detail.chosen_p,
            "draw_from": detail.draw_from,
            "draw_to": detail.draw_to,
        }
    return data
