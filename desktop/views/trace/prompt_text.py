"""The prompt of a trace made ready for showing: text of every token, where rows end, what is folded away.

It is made on another thread: a prompt can have a hundred thousand tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from desktop.views.trace import pieces
from engine.trace import Trace

State = Literal["cached", "shifted", "restored", "read", "unread"]
#: a prompt up to this many tokens is shown whole
WHOLE = 320
#: tokens that stay of what is folded: of the first message, of the last one, around the place where reading began
_HEAD, _TAIL = 40, 12
_LAST_HEAD, _LAST_TAIL = 120, 40
_BEFORE, _AFTER = 8, 16
#: fewer tokens are not worth a fold
_LEAST = 8


@dataclass(frozen=True)
class Fold:
    """Tokens `first` to `end` (not included) are not shown. within: all of them belong to one message."""

    first: int
    end: int
    within: bool

    @property
    def words(self) -> str:
        return f"…{self.end - self.first:,} tokens{'' if self.within else ' of earlier turns'}…"


@dataclass(frozen=True)
class PromptText:
    """Attributes:
    ids, texts, owners: of each token. breaks: the next token begins a row.
    n_cached, n_shifted, n_restored: see `engine.events.PromptTrace`. n_known: see `engine.trace.Trace`.
    roles: of the messages that `owners` counts in.
    """

    ids: list[int]
    texts: list[str]
    owners: list[int]
    breaks: bytearray
    roles: tuple[str, ...] = ()
    n_cached: int = 0
    n_shifted: int = 0
    n_restored: int = 0
    n_known: int = 0
    changed_at: int | None = None
    raw: tuple[bytes, ...] = field(default=(), repr=False)

    def __len__(self) -> int:
        return len(self.ids)

    def state(self, token: int) -> State:
        """Whether a token was read now, or where its keys and values came from; or that it has not been read."""
        if token >= self.n_cached:
            return "read" if token < self.n_known else "unread"
        if token >= self.n_cached - self.n_shifted:
            return "shifted"
        return "restored" if token < self.n_restored else "cached"

    @property
    def text(self) -> str:
        """The prompt as it was rendered."""
        return b"".join(self.raw).decode("utf-8", "replace")

    @property
    def n_read(self) -> int:
        """Tokens that were computed."""
        return max(0, self.n_known - self.n_cached)

    def folds(self) -> list[Fold]:
        """What is not shown at first of a long prompt."""
        n = len(self)
        if n <= WHOLE:
            return []
        kept = self._kept()
        found: list[Fold] = []
        at = 0
        for first, end in kept:
            if first - at >= _LEAST:
                found.append(self._fold(at, first))
            at = max(at, end)
        if n - at >= _LEAST:
            found.append(self._fold(at, n))
        return found

    def _fold(self, first: int, end: int) -> Fold:
        inner = set(self.owners[first:end])
        return Fold(first, end, len(inner) <= 1)

    def _kept(self) -> list[tuple[int, int]]:
        """Stretches that stay, in order; they may overlap."""
        n = len(self)
        said = [i for i, owner in enumerate(self.owners) if owner >= 0]
        stretches = [(0, _HEAD)]
        if said:
            last_owner = self.owners[said[-1]]
            last_end = said[-1] + 1
            last_first = next(i for i in said if self.owners[i] == last_owner)
            if last_end - last_first > _LAST_HEAD + _LAST_TAIL:
                stretches += [(last_first - _BEFORE, last_first + _LAST_HEAD), (last_end - _LAST_TAIL, n)]
            else:
                stretches.append((last_first - _BEFORE, n))
            first_end = next((i for i in range(said[0], n) if self.owners[i] != self.owners[said[0]]), n)
            if _HEAD < first_end < last_first:
                stretches.append((first_end - _TAIL, first_end + 2))
        else:
            stretches.append((n - _LAST_TAIL, n))
        begins = {self.n_cached, self.n_cached - self.n_shifted}
        if self.changed_at is not None:
            begins.add(self.changed_at)
        stretches += [(place - _BEFORE, place + _AFTER) for place in begins if 0 < place < n]
        return sorted((max(0, first), min(n, end)) for first, end in stretches)


def prepare(trace: Trace) -> PromptText:
    """For showing; may take a tenth of a second for a long prompt."""
    ids = list(trace.prompt_tokens)
    owners = list(trace.prompt_owners)
    if len(owners) != len(ids):
        owners = [-1] * len(ids)
    raw = trace.pieces if len(trace.pieces) == len(ids) else (b"",) * len(ids)
    texts = [pieces.shortened(pieces.marked(text)) or "·" for text in pieces.decode(raw)]
    reread = trace.reread
    return PromptText(
        ids=ids,
        texts=texts,
        owners=owners,
        breaks=_breaks(raw, owners),
        roles=tuple(message.role for message in trace.messages),
        n_cached=min(trace.n_cached, len(ids)),
        n_shifted=trace.n_shifted,
        n_restored=trace.n_restored,
        n_known=trace.n_known,
        changed_at=reread.index if reread is not None and reread.index < len(ids) else None,
        raw=raw,
    )


def _breaks(raw: tuple[bytes, ...], owners: list[int]) -> bytearray:
    """Rows end with lines of messages, and in what the template writes between two messages: behind its first line
    end, or where it has none but at its own end, behind its first token."""
    n = len(raw)
    breaks = bytearray(n)
    i = 0
    while i < n:
        if owners[i] >= 0:
            breaks[i] = b"\n" in raw[i]
            i += 1
            continue
        end = i
        while end < n and owners[end] < 0:
            end += 1
        lines = [k for k in range(i, end - 1) if b"\n" in raw[k]]
        if i == 0:  # before the first message a template may have words of its own
            lines = lines[1:][-1:]
        if lines:
            breaks[lines[0]] = 1
        elif end - i > 2 and i > 0:
            breaks[i] = 1
        i = end
    return breaks
