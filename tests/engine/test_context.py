"""Which messages go when not all of them fit (cases B19, B20)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from engine.chat.context import answer_room, fit, n_droppable, without_oldest
from engine.errors import ContextFull
from engine.message import PromptMessage

SYSTEM = PromptMessage("system", "s" * 10)


def turns(count: int, size: int = 10) -> list[PromptMessage]:
    """`count` finished turns of two messages, and a question."""
    out: list[PromptMessage] = []
    for number in range(count):
        out += [PromptMessage("user", f"{number:0{size}}"), PromptMessage("assistant", f"a{number:0{size - 1}}")]
    return [*out, PromptMessage("user", "q" * size)]


def run(
    messages: Sequence[PromptMessage], n_ctx: int, max_tokens: int | None = None
) -> tuple[list[PromptMessage], int]:
    """A token is a character here."""
    return fit(
        messages,
        n_ctx=n_ctx,
        max_tokens=max_tokens,
        build=list,
        count=lambda some: sum(len(m.content) for m in some),
    )


def test_the_room_for_the_answer() -> None:
    assert answer_room(4096, None) == 1024
    assert answer_room(4096, 100) == 100
    assert answer_room(256, 10_000) == 128


def test_what_fits_goes_whole() -> None:
    messages = [SYSTEM, *turns(3)]
    assert run(messages, 110, 30) == (messages, 0)


@pytest.mark.parametrize("n_turns", [1, 2, 5, 40, 333])
@pytest.mark.parametrize("n_ctx", [60, 100, 256, 1000])
@pytest.mark.parametrize("max_tokens", [None, 1, 20])
def test_whole_oldest_turns_go(n_turns: int, n_ctx: int, max_tokens: int | None) -> None:
    messages = [SYSTEM, *turns(n_turns)]
    kept, n_dropped = run(messages, n_ctx, max_tokens)
    limit = n_ctx - answer_room(n_ctx, max_tokens)
    assert kept == [SYSTEM, *messages[1 + n_dropped :]]
    assert n_dropped % 2 == 0
    assert sum(len(m.content) for m in kept) <= limit
    if n_dropped:  # one turn more would have been too much
        assert sum(len(m.content) for m in [SYSTEM, *messages[1 + n_dropped - 2 :]]) > limit


def test_system_messages_and_the_last_turn_stay_wherever_they_are() -> None:
    middle = PromptMessage("system", "m" * 10)
    last = [PromptMessage("user", "u" * 10), PromptMessage("assistant", "half")]
    messages = [PromptMessage("assistant", "hello" * 4), *turns(4)[:-1], middle, *last]
    kept, n_dropped = run(messages, 50)
    assert kept == [middle, *last]
    assert n_dropped == 9


def test_a_long_question_takes_the_answer_room_before_it_is_refused() -> None:
    messages = [SYSTEM, *turns(2), *turns(0, 80)]
    kept, n_dropped = run(messages, 100)
    assert (kept, n_dropped) == ([SYSTEM, messages[-1]], 5)
    assert run([SYSTEM, *turns(0, 89)], 100)[1] == 0
    with pytest.raises(ContextFull) as caught:
        run([SYSTEM, *turns(2), *turns(0, 90)], 100)
    assert caught.value.details == {"n_prompt": 100, "n_ctx": 100}
    with pytest.raises(ContextFull):
        run(turns(0, 100), 100)


def test_few_renders_for_a_long_chat() -> None:
    calls = 0

    def build(some: Sequence[PromptMessage]) -> int:
        nonlocal calls
        calls += 1
        return sum(len(m.content) for m in some)

    fit(turns(5000), n_ctx=256, max_tokens=None, build=build, count=lambda n: n)
    assert calls < 18


def test_nothing_to_drop() -> None:
    assert n_droppable([]) == n_droppable([SYSTEM]) == n_droppable(turns(0)) == 0
    assert without_oldest(turns(2), 1) == tuple(turns(2)[2:])
