"""How an answer came about, token by token: what the worker tells of a request that asked for a trace.

All probabilities are those of the logits as llama.cpp gives them, before any sampler, unless it is said otherwise.
"""

from __future__ import annotations

import msgspec

from engine.events.base import Event
from engine.message import Reread

#: names of the stages, in the order of the chain; "format" is what an answer format allows
STAGES = (
    "format",
    "logit_bias",
    "penalties",
    "dry",
    "top_n_sigma",
    "top_k",
    "typical",
    "top_p",
    "min_p",
    "xtc",
    "temperature",
    "mirostat",
)


class Candidate(msgspec.Struct, frozen=True, array_like=True):
    """A token that could have come.

    Attributes:
        piece: its bytes, or the name of a control token, which says nothing.
        logprob: natural logarithm of its probability (softmax of all raw logits).
        allowed: the answer's format lets it come here.
    """

    token_id: int
    piece: bytes
    logprob: float
    allowed: bool = True


class Stage(msgspec.Struct, frozen=True, array_like=True):
    """What one sampler did in a step.

    Attributes:
        name: one of `STAGES`.
        n_left: tokens that can still be chosen after it.
        n_changed: tokens whose logits it changed without ruling them out (bias, penalties, DRY).
    """

    name: str
    n_left: int
    n_changed: int = 0


class TokenDetail(msgspec.Struct, frozen=True, omit_defaults=True):
    """How one token was chosen.

    Attributes:
        token_id: the chosen one.
        entropy_bits: of the raw distribution.
        candidates: the ten most probable tokens, best first; the chosen one stands behind them where it is not one.
        stages: in the order of the chain, only those that are switched on. Empty where the token was not drawn but
            forced (see `protocol.Generate.forced`).
        chosen_p: probability of the chosen token among what was left, as it was drawn; 1 where greedy.
        draw_from, draw_to: the part of the interval from 0 to 1 that stands for the chosen token: the draw fell into
            it. Tokens stand in it by falling probability, or, where nothing has cut the vocabulary down, by their ids.
            Both 0 where nothing was drawn.
    """

    token_id: int
    entropy_bits: float
    candidates: tuple[Candidate, ...]
    stages: tuple[Stage, ...] = ()
    chosen_p: float = 1.0
    draw_from: float = 0.0
    draw_to: float = 0.0


class PromptTrace(Event, frozen=True):
    """The prompt of a request, once, when work on it begins.

    Attributes:
        tokens: ids, 32-bit little-endian.
        pieces: bytes of each token; of a control token its name.
        owners: 16-bit little-endian: index of the message in the request that each token holds text of, -1 for what
            the template wrote.
        n_cached: how many of the first tokens did not have to be computed; n_shifted of these were moved in the
            cache, n_restored came from disk.
        n_forced: tokens behind the prompt with which the answer was made to begin.
        exact: whether the borders in `owners` are exact.
    """

    tokens: bytes
    pieces: tuple[bytes, ...] = ()
    owners: bytes = b""
    n_cached: int = 0
    n_shifted: int = 0
    n_restored: int = 0
    reread: Reread | None = None
    n_forced: int = 0
    exact: bool = True


class Marks(msgspec.Struct, frozen=True, omit_defaults=True):
    """When what happened, in seconds since the request arrived at the worker; None for what never did.

    Attributes:
        template_from_s, template_to_s: rendering the template and tokenizing, with what else prepares the request.
        started_s: a slot was free, and what is on disk for the chat had been read.
        cached_s: what could be reused had been copied or put back.
        prefilled_s: the last prompt token had been computed.
        first_s, last_s: the first and the last token had been chosen.
        end_s: the answer was over.
    """

    template_from_s: float
    template_to_s: float
    end_s: float
    started_s: float | None = None
    cached_s: float | None = None
    prefilled_s: float | None = None
    first_s: float | None = None
    last_s: float | None = None
