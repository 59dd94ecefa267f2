"""Tokens of a long text, in steps that do not hold anything up.

The text is tokenized in windows that overlap. Two windows are joined where they agree about a run of tokens: what a
tokenizer makes of a place depends on a few characters around it, so from there on the second one says what the whole
text would have said. In the same way a text that begins like an earlier one is tokenized from where they part.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from engine.chat.marks import common_prefix

#: characters above which a text is long: 4,000 tokens or so, a few milliseconds
LONG = 16 * 1024
#: bytes of a window, and what it shares with the one before
_WINDOW = 24 * 1024
_OVERLAP = 1536
#: bytes at the end of a window that the cut may have changed
_MARGIN = 256
#: tokens that must be the same in both windows
_RUN = 24

#: tokens of a part: (text, is it the first, is it the last) -> tokens, None if it cannot be done
Tokenize = Callable[[str, bool, bool], "list[int] | None"]
#: bytes up to the end of each token, None if the tokens do not say the text
Ends = Callable[[Sequence[int], str], "list[int] | None"]


class LongText(Protocol):
    """A text whose tokens are known; `ends` as `Ends` gives them."""

    @property
    def text(self) -> str: ...

    @property
    def tokens(self) -> array[int]: ...

    @property
    def ends(self) -> list[int] | None: ...


@dataclass(frozen=True)
class Known:
    """Tokens of another text, of which the first `n_bytes` are the same."""

    tokens: array[int]
    ends: list[int]
    n_bytes: int

    @classmethod
    def best(cls, text: str, texts: Iterable[LongText]) -> Known | None:
        """The text with the longest common beginning, if that is worth something."""
        best: LongText | None = None
        length = LONG // 2
        for other in texts:
            common = common_prefix(text, other.text)
            if common > length and other.ends is not None:
                best, length = other, common
        if best is None or best.ends is None:
            return None
        n_bytes = len(text[:length].encode())
        count = bisect_right(best.ends, n_bytes)
        return cls(best.tokens[:count], best.ends[:count], n_bytes)


def by_windows(
    text: str, known: Known | None, tokenize: Tokenize, ends_of: Ends
) -> Generator[None, None, array[int] | None]:
    """Tokens of the text; None if windows cannot be joined (then it has to be done at once). Yields between windows."""
    data = text.encode()
    if known is not None:
        tokens, ends, valid = known.tokens, known.ends, known.n_bytes
    else:
        valid = _boundary(data, _WINDOW)
        part = data[:valid].decode()
        first = tokenize(part, True, False)
        found = ends_of(first, part) if first is not None else None
        if first is None or found is None:
            return None
        tokens, ends = array("i", first), found
        yield
    done = False
    while not done:
        count = bisect_right(ends, valid - _OVERLAP)
        while count and ends[count - 1] != _boundary(data, ends[count - 1]):
            count -= 1
        if not count:
            return None
        base = ends[count - 1]
        valid_before, valid = valid, _boundary(data, base + _WINDOW)
        done = valid == len(data)
        part = data[base:valid].decode()
        more = tokenize(part, False, done)
        found = ends_of(more, part) if more is not None else None
        if more is None or found is None:
            return None
        meeting = _meeting(tokens, ends, count, more, [base + end for end in found], valid_before - _MARGIN)
        if meeting is None:
            return None
        old, new = meeting
        tokens[old:] = array("i", more[new:])
        ends[old:] = [base + end for end in found[new:]]
        yield
    return tokens


def _meeting(
    tokens: array[int], ends: list[int], count: int, more: list[int], more_ends: list[int], limit: int
) -> tuple[int, int] | None:
    """The first places in both from which a run of tokens is the same, before byte `limit` ends."""
    begins = {more_ends[at - 1]: at for at in range(1, len(more))}
    begins[ends[count - 1]] = next((at for at, end in enumerate(more_ends) if end > ends[count - 1]), 0)
    for old in range(count, len(tokens) - _RUN):
        if ends[old + _RUN - 1] > limit:
            return None
        new = begins.get(ends[old - 1])
        if new is not None and tokens[old : old + _RUN].tolist() == more[new : new + _RUN]:
            return old, new
    return None


def _boundary(data: bytes, at: int) -> int:
    """The last place up to `at` where a character begins."""
    if at >= len(data):
        return len(data)
    while at > 0 and data[at] & 0xC0 == 0x80:
        at -= 1
    return at
