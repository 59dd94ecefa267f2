"""Which tokens of a prompt hold what: texts of messages, what the template writes, turns, and the room behind.

Works on what the model's process knows: the tokens of a prompt, and which of them hold text of which message.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from engine.chat.context import answer_room, stays, turns_of
from engine.chat.marks import TextRange
from engine.events import ContextLedger, LedgerSpan
from engine.message import Overflow, PromptMessage


@dataclass(frozen=True)
class TurnRange:
    """The tokens of one turn in a prompt, with what the template writes around its messages; `end` is excluded.

    stays: it may not be given up (a pinned one, and the last).
    """

    start: int
    end: int
    stays: bool = False


@dataclass(frozen=True)
class Layout:
    """A prompt's tokens by purpose.

    Attributes:
        texts: tokens that hold text of a message, in order.
        n_keep: tokens at the beginning that belong to no turn.
        turns: from there to the end, side by side.
        exact: whether the borders of the texts are exact.
    """

    texts: tuple[TextRange, ...]
    n_keep: int
    turns: tuple[TurnRange, ...]
    exact: bool = True


def layout(
    messages: Sequence[PromptMessage], tokens: Sequence[int], texts: Sequence[TextRange], *, exact: bool = True
) -> Layout:
    """Where the turns of a conversation lie in its prompt.

    A turn begins with what the template writes before its first message. How far that reaches back is seen from the
    end of what stands between two turns: as far as it is the same before each of them. So a turn that is cut out
    leaves the prompt as the template would have written it without that turn.
    """
    turns = turns_of(messages)
    first = {text.message: text.start for text in reversed(texts)}
    starts = [min((first[index] for index in turn if index in first), default=-1) for turn in turns]
    ends = [text.end for text in texts]
    before = [ends[at - 1] if (at := bisect_right(ends, start)) else 0 for start in starts]
    gaps = [
        tokens[gap:start]
        for turn, gap, start in zip(turns, before, starts, strict=True)
        if start >= 0 and messages[turn[0]].role == "user"
    ]
    lead = _common_suffix(gaps) if gaps else 0
    cuts: list[int] = []
    for gap, start in zip(before, starts, strict=True):
        cut = max(gap, start - lead) if start >= 0 else 0
        cuts.append(max(cut, cuts[-1] if cuts else 0))
    ends = [*cuts[1:], len(tokens)] if cuts else []
    alien = [t for t in texts if messages[t.message].role == "system"]
    ranges = tuple(
        TurnRange(cut, end, stays(messages, turns, number) or any(cut <= t.start < end for t in alien))
        for number, (cut, end) in enumerate(zip(cuts, ends, strict=True))
    )
    return Layout(tuple(texts), cuts[0] if cuts else len(tokens), ranges, exact)


def _common_suffix(runs: Sequence[Sequence[int]]) -> int:
    length = min(len(run) for run in runs)
    for back in range(1, length + 1):
        if any(run[-back] != runs[0][-back] for run in runs):
            return back - 1
    return length


# ------------------------------------------------------------------ the ledger


@dataclass(frozen=True)
class Prompt:
    """A prompt as the ledger needs it.

    Attributes:
        indices: of its messages in the whole conversation.
    """

    n_tokens: int
    layout: Layout
    indices: tuple[int, ...]


def ledger(
    request_id: str,
    messages: Sequence[PromptMessage],
    whole: Prompt,
    sent: Prompt,
    *,
    n_ctx: int,
    overflow: Overflow,
    max_tokens: int | None,
    notes: tuple[str, ...] = (),
) -> ContextLedger:
    """What the prompt `sent` holds, what is left out of `whole` for it, and the room that remains."""
    kept = set(sent.indices)
    turn_of = {index: number for number, turn in enumerate(turns_of(messages)) for index in turn}
    gone = {turn_of[index] for index in whole.indices if index not in kept}
    left_out = [s for s in _spans(messages, whole, turn_of) if s.turn in gone] if gone else []
    spans = _merged(_spans(messages, sent, turn_of), left_out)
    return ContextLedger(
        request_id=request_id,
        spans=(*spans, *_room(sent.n_tokens, n_ctx, max_tokens)),
        n_prompt=sent.n_tokens,
        n_whole=whole.n_tokens,
        n_ctx=n_ctx,
        n_dropped=len(messages) - len(sent.indices),
        overflow=overflow,
        approximate=not (whole.layout.exact and sent.layout.exact),
        notes=notes,
    )


def _spans(messages: Sequence[PromptMessage], prompt: Prompt, turn_of: dict[int, int]) -> list[LedgerSpan]:
    """The prompt from its first token to its last, numbers of messages and turns being those of the conversation."""
    numbers = list(dict.fromkeys(turn_of[index] for index in prompt.indices if index in turn_of))
    starts = [turn.start for turn in prompt.layout.turns]
    spans: list[LedgerSpan] = []
    at = 0
    for text in prompt.layout.texts:
        index = prompt.indices[text.message]
        spans += _template(at, text.start, numbers, starts)
        kind = _kind(messages[index])
        spans.append(LedgerSpan(kind, text.start, text.end, index, turn_of.get(index, -1)))
        at = text.end
    return [*spans, *_template(at, prompt.n_tokens, numbers, starts)]


def _template(start: int, end: int, numbers: Sequence[int], starts: Sequence[int]) -> Iterable[LedgerSpan]:
    """What the template writes in these tokens, apart for each turn that they belong to."""
    while start < end:
        after = bisect_right(starts, start)
        high = min(end, starts[after]) if after < len(starts) else end
        yield LedgerSpan("template", start, high, turn=numbers[after - 1] if after else -1)
        start = high


def _kind(message: PromptMessage) -> Literal["system", "pinned", "user", "assistant", "tool"]:
    return "pinned" if message.pinned and message.role != "system" else message.role


def _merged(sent: Sequence[LedgerSpan], left_out: Sequence[LedgerSpan]) -> list[LedgerSpan]:
    """Both in the order of the conversation."""
    waiting = deque(LedgerSpan(s.kind, s.start, s.end, s.message, s.turn, dropped=True) for s in left_out)
    merged: list[LedgerSpan] = []
    for span in sent:
        while waiting and span.turn > waiting[0].turn:
            merged.append(waiting.popleft())
        merged.append(span)
    return [*merged, *waiting]


def _room(n_prompt: int, n_ctx: int, max_tokens: int | None) -> Iterable[LedgerSpan]:
    if n_prompt >= n_ctx:
        return
    end = min(n_ctx, n_prompt + answer_room(n_ctx, max_tokens))
    yield LedgerSpan("answer", n_prompt, end)
    if end < n_ctx:
        yield LedgerSpan("free", end, n_ctx)
