"""Sampling parameters, checked at the edge before anything reaches llama.cpp.

Names and meanings are llama.cpp's (common/common.h, `common_params_sampling`; src/llama-sampler.cpp).
"""

from __future__ import annotations

import math
import secrets
from typing import Any

import msgspec

from engine.errors import InvalidRequest

SEED_MAX = 2**32 - 1


class SamplingParams(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How the next token is chosen. The defaults are llama.cpp's.

    Attributes:
        temperature: 0 is greedy: always the most probable token.
        top_k: keep the k most probable tokens; 0 keeps all.
        top_p: keep the smallest set whose probabilities add up to p; 1 keeps all.
        min_p: drop tokens less probable than min_p times the best one; 0 keeps all.
        typical_p: locally typical sampling; 1 switches it off.
        top_n_sigma: keep logits within n standard deviations of the best; -1 switches it off.
        repeat_penalty: divides logits of tokens among the last `repeat_last_n`; 1 is none.
        repeat_last_n: window of the penalties in tokens; 0 none, -1 the whole context.
        presence_penalty, frequency_penalty: subtracted once, or per occurrence, in the same window.
        dry_multiplier: strength of the "don't repeat yourself" sampler; 0 is off.
        xtc_probability: chance per token to exclude top choices above `xtc_threshold`; 0 is off.
        mirostat: 0 off, 1 or 2 the version; replaces top-k, top-p, min-p and typical.
        logit_bias: token id -> number added to its logit; -inf bans it (written as -1e9 or less in JSON).
        seed: 32-bit; None draws a fresh one per request, which is stored with the answer. 0 is a legal fixed seed.
        max_tokens: most tokens to generate; None until the model stops or the context is full.
        stop: texts that end the answer; they are cut off.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    top_n_sigma: float = -1.0
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = -1
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    logit_bias: dict[int, float] = {}
    seed: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()


# field -> (lowest, highest) allowed, both included
_RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0.0, 100.0),
    "top_k": (0, 2**31 - 1),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "typical_p": (0.0, 1.0),
    "top_n_sigma": (-1.0, 100.0),
    "repeat_penalty": (0.01, 10.0),
    "repeat_last_n": (-1, 2**31 - 1),
    "presence_penalty": (-10.0, 10.0),
    "frequency_penalty": (-10.0, 10.0),
    "dry_multiplier": (0.0, 100.0),
    "dry_base": (1.0, 100.0),
    "dry_allowed_length": (1, 2**31 - 1),
    "dry_penalty_last_n": (-1, 2**31 - 1),
    "xtc_probability": (0.0, 1.0),
    "xtc_threshold": (0.0, 1.0),
    "mirostat": (0, 2),
    "mirostat_tau": (0.01, 100.0),
    "mirostat_eta": (0.0001, 10.0),
    "seed": (0, SEED_MAX),
    "max_tokens": (1, 2**31 - 1),
}
MAX_STOP_STRINGS = 64
MAX_STOP_LENGTH = 1024
MAX_LOGIT_BIAS = 10_000


def _refuse(field: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"{field} {why}", details={"field": field})


def _plain(number: float) -> str:
    return str(number) if isinstance(number, int) else f"{number:g}"


def validate(params: SamplingParams, n_vocab: int | None = None) -> SamplingParams:
    """The same parameters if all are legal.

    Raises:
        InvalidRequest: a value is out of range, not finite, of the wrong type, an empty stop text, a token id
            outside the vocabulary (only if `n_vocab` is given); `details["field"]` names the parameter.
    """
    for field, (low, high) in _RANGES.items():
        value = getattr(params, field)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _refuse(field, f"must be a number, not {value!r}")
        if isinstance(value, float) and not math.isfinite(value):
            raise _refuse(field, "must be a finite number")
        if not low <= value <= high:
            raise _refuse(field, f"must be between {_plain(low)} and {_plain(high)}, not {_plain(value)}")
    if len(params.stop) > MAX_STOP_STRINGS:
        raise _refuse("stop", f"may hold at most {MAX_STOP_STRINGS} texts")
    for text in params.stop:
        if not text:
            raise _refuse("stop", "may not hold an empty text: it would match everywhere")
        if len(text) > MAX_STOP_LENGTH:
            raise _refuse("stop", f"texts may have at most {MAX_STOP_LENGTH} characters")
    if any(not b for b in params.dry_sequence_breakers):
        raise _refuse("dry_sequence_breakers", "may not hold an empty text")
    if len(params.logit_bias) > MAX_LOGIT_BIAS:
        raise _refuse("logit_bias", f"may hold at most {MAX_LOGIT_BIAS} tokens")
    for token, bias in params.logit_bias.items():
        if token < 0 or (n_vocab is not None and token >= n_vocab):
            raise _refuse("logit_bias", f"names token {token}, which this vocabulary does not have")
        if math.isnan(bias) or bias == math.inf:
            raise _refuse("logit_bias", f"for token {token} must be a number")
    return params


def from_mapping(values: dict[str, Any]) -> SamplingParams:
    """Parameters from plain data (settings file, command line, API).

    Raises:
        InvalidRequest: an unknown name, a wrong type or an illegal value.
    """
    try:
        return validate(msgspec.convert(values, SamplingParams, strict=False))
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"sampling parameters: {error}") from error


def with_seed(params: SamplingParams) -> SamplingParams:
    """The same parameters with a fresh 32-bit seed where none is set."""
    if params.seed is not None:
        return params
    return msgspec.structs.replace(params, seed=secrets.randbelow(SEED_MAX + 1))
