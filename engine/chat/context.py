"""Fitting a conversation into the context: which messages are sent when not all of them can be.

Whole turns go, the oldest first. A turn is a user message with all that follows it up to the next one. System
messages and the last turn stay, and so does a turn with a pinned message.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from engine.errors import ContextFull
from engine.message import PromptMessage

T = TypeVar("T")
R = TypeVar("R")


def answer_room(n_ctx: int, max_tokens: int | None) -> int:
    """Tokens to keep free for the answer: as many as it may have, else a quarter; never more than half."""
    return min(max_tokens or n_ctx // 4, n_ctx // 2)


def turns_of(messages: Sequence[PromptMessage]) -> list[list[int]]:
    """Indices of the messages of each turn, the oldest turn first; system messages belong to none."""
    turns: list[list[int]] = []
    for index, message in enumerate(messages):
        if message.role == "system":
            continue
        if message.role == "user" or not turns:
            turns.append([])
        turns[-1].append(index)
    return turns


def stays(messages: Sequence[PromptMessage], turns: Sequence[Sequence[int]], number: int) -> bool:
    """Whether a turn is never left out."""
    return number == len(turns) - 1 or any(messages[index].pinned for index in turns[number])


def droppable(messages: Sequence[PromptMessage]) -> list[list[int]]:
    """The turns that can be left out, the oldest first."""
    turns = turns_of(messages)
    return [turn for number, turn in enumerate(turns) if not stays(messages, turns, number)]


def n_droppable(messages: Sequence[PromptMessage]) -> int:
    """How many turns can be left out."""
    return len(droppable(messages))


def oldest(messages: Sequence[PromptMessage], n_turns: int) -> tuple[int, ...]:
    """Indices of the messages in the `n_turns` oldest turns that can be left out."""
    return tuple(index for turn in droppable(messages)[:n_turns] for index in turn)


def without_oldest(messages: Sequence[PromptMessage], n_turns: int) -> tuple[PromptMessage, ...]:
    """The messages without the `n_turns` oldest turns that can be left out."""
    dropped = set(oldest(messages, n_turns))
    return tuple(m for index, m in enumerate(messages) if index not in dropped)


@dataclass(frozen=True)
class Fitted(Generic[T]):
    """What is made of a conversation that may be too long.

    Attributes:
        sent: made of what is sent. It may be too long all the same: then nothing more can be left out.
        whole: made of all messages.
        dropped: indices of the messages left out.
    """

    sent: T
    whole: T
    dropped: tuple[int, ...] = ()


def fitting(
    messages: Sequence[PromptMessage],
    *,
    n_ctx: int,
    max_tokens: int | None,
    build: Callable[[Sequence[PromptMessage]], T],
    count: Callable[[T], int],
    guess: Callable[[T, int], int] | None = None,
) -> Generator[None, None, Fitted[T]]:
    """What `build` makes of the messages that fit. Yields between two builds, so that the work can be spread.

    At first the answer's room is kept free; if what must stay alone does not leave it, that still goes.

    Arguments:
        guess: from what was made of all messages and the tokens there are too many, how many turns have to go. With a
            good one two builds are enough.
    """
    limit = n_ctx - answer_room(n_ctx, max_tokens)
    whole = build(messages)
    yield
    high = n_droppable(messages)
    if not high or count(whole) <= limit:
        return Fitted(whole, whole)
    low, tried = 1, dict[int, T]()
    middle = (low + high) // 2 if guess is None else guess(whole, count(whole) - limit)
    near = guess is not None
    while low < high:
        middle = min(max(middle, low), high - 1)
        tried[middle] = build(without_oldest(messages, middle))
        yield
        fits = count(tried[middle]) <= limit
        low, high = (low, middle) if fits else (middle + 1, high)
        middle = (middle - 1 if fits else middle + 1) if near else (low + high) // 2
        near = False
    sent = tried[high] if high in tried else build(without_oldest(messages, high))
    return Fitted(sent, whole, oldest(messages, high))


def run(work: Generator[None, None, R]) -> R:
    """Do all of the work at once."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: R = end.value
            return result


def fit(
    messages: Sequence[PromptMessage],
    *,
    n_ctx: int,
    max_tokens: int | None,
    build: Callable[[Sequence[PromptMessage]], T],
    count: Callable[[T], int],
) -> tuple[T, int]:
    """What `build` makes of the messages that fit, and how many messages were left out.

    Raises:
        ContextFull: what must stay does not fit.
    """
    fitted = run(fitting(messages, n_ctx=n_ctx, max_tokens=max_tokens, build=build, count=count))
    return checked(fitted.sent, count(fitted.sent), n_ctx), len(fitted.dropped)


def checked(prompt: T, n_prompt: int, n_ctx: int) -> T:
    """The prompt, if at least one token can follow it.

    Raises:
        ContextFull: it cannot; `details` holds `n_prompt` and `n_ctx`.
    """
    if n_prompt >= n_ctx:
        raise ContextFull(
            f"The message needs {n_prompt:,} tokens with what must go with it; the context holds {n_ctx:,}",
            hint="Shorten the message, or load the model with a larger context.",
            details={"n_prompt": n_prompt, "n_ctx": n_ctx},
        )
    return prompt
