"""What of a prompt has been computed before, where it can be found, and why something has to be read again."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from engine.message import Reread

#: a stretch shorter than this is read again rather than moved: it may be the same words at another place
SHORTEST = 16
_WORD = array("i").itemsize
Cause = Literal["changed", "tokens", "thinking", "dropped", "window", "state", "given_up", "stopped"]


def common_prefix(one: Sequence[int], other: Sequence[int], limit: int | None = None) -> int:
    """How many of the first tokens are the same."""
    low, high = 0, min(len(one), len(other)) if limit is None else min(len(one), len(other), limit)
    while low < high:  # comparing slices is so much quicker than comparing items that doing it often is
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def gaps_between(held: Sequence[int], wanted: Sequence[int], start: int) -> tuple[list[tuple[int, int]], int]:
    """What to take out of `held` so that it goes on as `wanted` does, where both are the same up to `start`.

    Returns:
        (stretches of `held`, end excluded, in order; how many tokens of `wanted` it then begins with)
    """
    gaps: list[tuple[int, int]] = []
    have = want = start
    text = array("i", held).tobytes()
    while want + SHORTEST <= len(wanted):
        at = _find(text, array("i", wanted[want : want + SHORTEST]).tobytes(), have)
        if at < 0:
            break
        gaps.append((have, at))
        length = common_prefix(held[at:], wanted[want:])
        have, want = at + length, want + length
    return gaps, want


def _find(text: bytes, part: bytes, start: int) -> int:
    """Index of the token with which `part` begins, -1 if it is not there."""
    at = text.find(part, start * _WORD)
    while at >= 0 and at % _WORD:
        at = text.find(part, at + 1)
    return at // _WORD if at >= 0 else -1


@dataclass(frozen=True)
class Past:
    """What a chat's last prompt and answer were, as far as they had been computed.

    Attributes:
        thought: (start, end) of the answer's thinking, (0, 0) for none.
        stopped: a part was lost when computing was interrupted.
    """

    tokens: Sequence[int]
    thought: tuple[int, int] = (0, 0)
    stopped: bool = False


def why_reread(
    past: Past,
    prompt: Sequence[int],
    n_cached: int,
    *,
    dropped: bool,
    limits: Literal["", "window", "state"],
    here: bool,
    piece: Callable[[int], bytes],
) -> Reread | None:
    """Why tokens are read again that had been computed for this chat; None if none are.

    Args:
        n_cached: how many tokens of the prompt need not be computed.
        dropped: turns were left out of the prompt.
        limits: what keeps the model's memory from going back freely.
        here: what was computed is still in the context.
    """
    same = common_prefix(past.tokens, prompt)
    reach = min(len(past.tokens), len(prompt) - 1)  # the last token is always computed
    if n_cached >= reach:
        return None
    cause: Cause
    if n_cached >= same:
        cause, index = _what_differs(past, prompt, same, dropped, piece), same
    elif past.stopped:
        cause, index = "stopped", n_cached
    elif here and limits:
        cause, index = limits, min(same, reach)
    else:
        cause, index = "given_up", n_cached
    return Reread(
        index=index,
        cause=cause,
        n_tokens=reach - n_cached,
        old=_word(past.tokens, index, piece),
        new=_word(prompt, index, piece),
    )


def _what_differs(past: Past, prompt: Sequence[int], at: int, dropped: bool, piece: Callable[[int], bytes]) -> Cause:
    if dropped:
        return "dropped"
    start, end = past.thought
    if end and start - SHORTEST <= at < end:
        return "thinking"
    old = b"".join(map(piece, past.tokens[at : at + SHORTEST]))
    new = b"".join(map(piece, prompt[at : at + SHORTEST]))
    length = min(len(old), len(new))
    return "tokens" if length and old[:length] == new[:length] else "changed"


def _word(tokens: Sequence[int], index: int, piece: Callable[[int], bytes]) -> str:
    return piece(tokens[index]).decode("utf-8", "replace") if index < len(tokens) else ""
