"""Counting cells, finding what a prompt has in common with what was computed, saying why something is read again."""

from __future__ import annotations

import random

import numpy as np
import pytest

from engine.worker.cells import Cells
from engine.worker.checkpoints import Checkpoints
from engine.worker.pace import STEP_S, Pace
from engine.worker.reuse import SHORTEST, Past, common_prefix, gaps_between, why_reread


def test_shared_cells_count_once_until_the_last_one_leaves() -> None:
    cells = Cells(1000, 3)
    cells.grow(0, 100)
    cells.copy(0, 1, 60)
    cells.copy(1, 2, 40)
    assert (cells.used, cells.free) == (100, 900)
    assert [cells.shared(i) for i in range(3)] == [60, 60, 40]
    assert cells.sharers(0, 39) == [1, 2] and cells.sharers(0, 59) == [1] and cells.sharers(0, 60) == []
    cells.grow(1, 10)
    assert cells.used == 110 and cells.held([1, 2]) == 70 and cells.held([0, 1, 2]) == 110
    cells.cut(0, 0)
    assert cells.used == 70 and cells.shared(1) == 40
    cells.cut(1, 20)
    assert cells.used == 40 and cells.shared(2) == 20
    cells.cut(2, 0)
    cells.cut(1, 0)
    assert cells.used == 0 and cells.held([0, 1, 2]) == 0


def test_cells_agree_with_a_plain_model_of_them() -> None:
    """A thousand random steps beside sets of cells by name."""
    draw, cells, n = random.Random(5), Cells(10**6, 4), 0
    plain: list[list[int]] = [[] for _ in range(4)]
    for _ in range(1000):
        one = draw.randrange(4)
        match draw.randrange(4):
            case 0:
                count = draw.randrange(30)
                cells.grow(one, count)
                plain[one] += range(n, n + count)
                n += count
            case 1:
                length = draw.randrange(len(plain[one]) + 1)
                cells.cut(one, length)
                del plain[one][length:]
            case 2:
                other = (one + 1) % 4
                length = draw.randrange(len(plain[one]) + 1)
                cells.cut(other, 0)
                cells.copy(one, other, length)
                plain[other] = plain[one][:length]
            case 3:
                shared = cells.shared(one)
                if shared < len(plain[one]):
                    start = draw.randrange(len(plain[one]))
                    stop = draw.randrange(max(start, shared), len(plain[one]) + 1)
                    cells.close_gap(one, start, stop)
                    del plain[one][start:stop]
        assert [cells.length(i) for i in range(4)] == [len(p) for p in plain]
        assert cells.used == len(set().union(*map(set, plain)))
        assert cells.held([0, 2]) == len({*plain[0], *plain[2]})
        for i in range(4):
            others = set().union(*(set(p) for j, p in enumerate(plain) if j != i))
            assert cells.shared(i) == max((k + 1 for k, cell in enumerate(plain[i]) if cell in others), default=0)


@pytest.mark.parametrize("n", [0, 1, 2, 7, 100])
def test_common_prefix(n: int) -> None:
    one = list(range(100))
    other = [*range(n), *range(1000, 1000 + 100 - n)]
    assert common_prefix(one, other) == n == common_prefix(other, one)
    assert common_prefix(one, one[:n]) == n
    assert common_prefix(one, other, 5) == min(n, 5)


def test_dropped_turns_are_found_as_gaps() -> None:
    draw = random.Random(1)
    system, *turns = ([draw.randrange(256, 9000) for _ in range(80)] for _ in range(6))
    held = [*system, *(t for turn in turns[:4] for t in turn)]
    wanted = [*system, *turns[1], *turns[3], *turns[4]]  # the second is kept, the first and the third go
    gaps, length = gaps_between(held, wanted, 80)
    assert gaps == [(80, 160), (240, 320)] and length == 240
    rest = [t for i, t in enumerate(held) if not any(a <= i < b for a, b in gaps)]
    assert rest[:length] == wanted[:length]


def test_a_short_stretch_is_no_gap() -> None:
    system, same = list(range(50)), list(range(500, 500 + SHORTEST - 1))
    assert gaps_between([*system, 1, 2, 3, *same], [*system, *same, 7], 50) == ([], 50)
    held = [*system, 256, 1, 2, 3, *range(600, 700)]
    assert gaps_between(held, [*system, *range(600, 700)], 50) == ([(50, 54)], 150)


def test_bytes_that_look_like_tokens_are_none() -> None:
    """The search is one over bytes; a place between two tokens does not count."""
    held = [0x01020304] * 40
    wanted = [0x04010203] * 40
    assert gaps_between(held, wanted, 0) == ([], 0)


def piece(token: int) -> bytes:
    return f"<{token}>".encode()


def reread(past: Past, prompt: list[int], n_cached: int, **more: object) -> tuple[object, ...] | None:
    options = {"dropped": False, "limits": "", "here": True, "piece": piece, **more}
    found = why_reread(past, prompt, n_cached, **options)  # type: ignore[arg-type]
    return found and (found.index, found.cause, found.n_tokens, found.old, found.new)


def test_why_something_is_read_again() -> None:
    past = Past(list(range(100)))
    longer = [*range(100), *range(500, 520)]
    edited = [*range(60), *range(500, 560)]
    assert reread(past, longer, 100) is None
    assert reread(past, list(range(50)), 49) is None, "the last token of a prompt is always computed"
    assert reread(past, edited, 60) == (60, "changed", 40, "<60>", "<500>")
    assert reread(past, edited, 60, dropped=True) == (60, "dropped", 40, "<60>", "<500>")
    assert reread(past, longer, 0, limits="window") == (100, "window", 100, "", "<500>")
    assert reread(past, edited, 10, limits="state") == (60, "state", 90, "<60>", "<500>")
    assert reread(past, longer, 0, here=False) == (0, "given_up", 100, "<0>", "<0>")
    assert reread(Past(list(range(100)), stopped=True), longer, 40) == (40, "stopped", 60, "<40>", "<40>")
    assert reread(Past(list(range(100)), thought=(62, 90)), edited, 60) == (60, "thinking", 40, "<60>", "<500>")


def test_the_same_text_in_other_tokens() -> None:
    words = {1: b"an", 2: b"swer", 3: b"ans", 4: b"wer", 5: b" rest", 6: b" other"}
    past = Past([9, 1, 2, 5])

    def say(token: int) -> bytes:
        return words.get(token, b"?")

    assert reread(past, [9, 3, 4, 5, 5], 1, piece=say)[1] == "tokens"  # type: ignore[index]
    assert reread(past, [9, 3, 4, 6, 5], 1, piece=say)[1] == "changed"  # type: ignore[index]


def test_kept_states_stay_within_their_budget() -> None:
    def state(n: int) -> np.ndarray:
        return np.zeros(n, np.uint8)

    kept = Checkpoints(2, 100)
    kept.add(0, 10, state(40))
    kept.add(0, 20, state(40))
    kept.add(1, 5, state(40))
    assert kept.best(0, 15) == 0 and kept.best(0, 25) == 20 and kept.best(1, 9) == 5
    kept.copy(0, 1, 30)
    assert kept.best(1, 30) == 20 and not kept.has(1, 5)
    kept.cut(0, 19)
    assert kept.best(0, 99) == 0
    kept.add(1, 90, state(500))
    assert kept.best(1, 99) == 90, "one stays, however large"
    for n in range(100, 200, 5):
        kept.add(1, n, state(1))
    assert kept.best(1, 104) == 100 and len(kept.latest(1, 99)) == 8, "the first one and the last ones"


def test_chunks_follow_the_speed() -> None:
    pace = Pace()
    for _ in range(30):
        pace.note(1, 0, 0.01)
        pace.note(1, pace.chunk(), 0.01 + pace.chunk() / 400)
    assert pace.chunk() == pytest.approx(400 * (STEP_S - 0.01), abs=8)
    for _ in range(40):  # a large model: a step takes longer than it should even without a prompt
        pace.note(1, 0, 0.3)
        pace.note(1, pace.chunk(), 0.3 + pace.chunk() / 50)
    assert 8 <= pace.chunk() <= 50 * 0.3
    assert pace.reading_s(500) == pytest.approx(10, rel=0.3)
