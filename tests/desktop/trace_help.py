"""Traces made by hand, as a worker would tell them."""

from __future__ import annotations

import math
import re
from array import array
from typing import Any

from engine.events import Candidate, Marks, Stage, TokenDetail
from engine.message import PromptMessage
from engine.sampling import SamplingParams
from engine.trace import Chunk, Step, Trace, TraceMessage

QUESTION = "Why did my Kubernetes pod restart? The container's last termination reason is OOMKilled."
ANSWER = (
    "The container used more memory than its limit, so the kernel killed it. OOMKilled alone does not prove a leak."
)
_WORDS = re.compile(r" ?\w+|\n|[^\w\s]| +")


def words_of(text: str) -> list[bytes]:
    """Cut into word-like tokens."""
    return [found.encode() for found in _WORDS.findall(text)]


def prompt_of(messages: list[tuple[str, str]]) -> tuple[list[bytes], list[int]]:
    """Pieces and owners as a ChatML template writes them."""
    pieces: list[bytes] = []
    owners: list[int] = []
    for number, (role, text) in enumerate(messages):
        for piece, owner in (
            *((p, -1) for p in (b"<|im_start|>", role.encode(), b"\n")),
            *((p, number) for p in words_of(text)),
            *((p, -1) for p in (b"<|im_end|>", b"\n")),
        ):
            pieces.append(piece)
            owners.append(owner)
    pieces += [b"<|im_start|>", b"assistant", b"\n"]
    owners += [-1, -1, -1]
    return pieces, owners


def detail_of(piece: bytes, p: float, *, token_id: int = 1, n_more: int = 5) -> TokenDetail:
    """A step in which this token had probability p, and others shared the rest."""
    rest, others = 1.0 - p, []
    for number in range(n_more):
        rest /= 2
        others.append(Candidate(5000 + number, f" other{number}".encode(), math.log(max(rest, 1e-9))))
    candidates = sorted([Candidate(token_id, piece, math.log(p)), *others], key=lambda c: -c.logprob)
    stages = (
        Stage("penalties", 49152, 3),
        Stage("top_k", 40),
        Stage("top_p", 7),
        Stage("min_p", 5),
        Stage("temperature", 5),
    )
    return TokenDetail(
        token_id=token_id,
        entropy_bits=2.1,
        candidates=tuple(candidates),
        stages=stages,
        chosen_p=0.523,
        draw_from=0.1,
        draw_to=0.623,
    )


def trace_of(
    answer: str = ANSWER, messages: list[tuple[str, str]] | None = None, *, n_cached: int = 0, **more: Any
) -> Trace:
    """A complete trace. Probabilities go up and down in a fixed pattern."""
    messages = messages or [("system", "You are a terse assistant."), ("user", QUESTION)]
    pieces, owners = prompt_of(messages)
    n_read = len(pieces) - n_cached
    steps = []
    for number, piece in enumerate(words_of(answer)):
        p = (0.99, 0.97, 0.62, 0.998, 0.31, 0.88, 0.12)[number % 7]
        token_id = 1000 + number
        detail = detail_of(piece, p, token_id=token_id)
        steps.append(Step(token_id, piece, 0.21 + 0.02 * number, math.log(p), detail=detail))
    last_s = steps[-1].time_s if steps else 0.21
    fields: dict[str, Any] = {
        "message_id": 7,
        "chat_id": 0,
        "messages": tuple(
            TraceMessage(number + 1, PromptMessage(role=role, content=text))  # type: ignore[arg-type]
            for number, (role, text) in enumerate(messages)
        ),
        "tokens": array("i", range(100, 100 + len(pieces))).tobytes(),
        "pieces": tuple(pieces),
        "owners": array("h", owners).tobytes(),
        "n_cached": n_cached,
        "chunks": (Chunk(n_cached, n_read, 0.011, 0.197),) if n_read else (),
        "steps": tuple(steps),
        "end": Step(2, b"<|im_end|>", last_s + 0.02, math.log(0.97)),
        "marks": Marks(
            template_from_s=0.004,
            template_to_s=0.010,
            started_s=0.0105,
            cached_s=0.011,
            prefilled_s=0.208,
            first_s=0.21,
            last_s=last_s,
            end_s=last_s + 0.021,
        ),
        "wall_s": last_s + 0.022,
        "sampling": SamplingParams(temperature=0.7, top_k=40, repeat_penalty=1.05, seed=2864434397),
        "model_name": "SmolLM2 135M Q4_1",
        "n_ctx": 8192,
        "n_bytes": 41_000,
    }
    return Trace(**{**fields, **more})
