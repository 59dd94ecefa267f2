"""Seeds: drawn fresh for each request, reported, and enough to get the same answer again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from raw_worker import RawWorker

Make = Callable[..., dict[str, Any]]
TAIL = "[reply]"
OPEN = {"temperature": 1, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "max_tokens": 24}


@pytest.fixture(scope="module")
def dice(scripted_model: Make) -> str:
    """A model that throws dice for ever: eight faces of equal probability."""
    faces = [
        "\u2581one",
        "\u2581two",
        "\u2581three",
        "\u2581four",
        "\u2581five",
        "\u2581six",
        "\u2581seven",
        "\u2581eight",
    ]
    return str(scripted_model([], tail=TAIL, dice=faces)["path"])


def throw(worker: RawWorker, **sampling: Any) -> tuple[str, int]:
    answer = worker.ask(prompt=f"Go{TAIL}", **{**OPEN, **sampling})
    return answer.text, answer.done.get("seed", 0)


def test_two_fresh_processes_differ_and_a_seed_repeats(dice: str) -> None:
    seen = []
    for _ in range(2):
        with RawWorker() as worker:
            worker.load(dice, n_ctx=256)
            seen.append((throw(worker), throw(worker), throw(worker, seed=1234), throw(worker, seed=0)))
    texts = [text for process in seen for text, _ in process[:2]]
    assert len(set(texts)) == 4, "no seed given, yet equal"
    assert seen[0][2] == seen[1][2] and seen[0][2][1] == 1234
    assert seen[0][3] == seen[1][3] and seen[0][3][1] == 0
    assert seen[0][2][0] != seen[0][3][0]


def test_the_reported_seed_reproduces_the_answer(dice: str) -> None:
    with RawWorker() as worker:
        worker.load(dice, n_ctx=256)
        text, seed = throw(worker)
        assert throw(worker, seed=seed) == (text, seed)
        largest = 2**32 - 1  # "random" to llama.cpp, an ordinary number here
        assert throw(worker, seed=largest) == throw(worker, seed=largest)


def test_a_seed_gives_the_same_answer_next_to_others(dice: str) -> None:
    with RawWorker() as worker:
        worker.load(dice, n_ctx=1024)
        alone = throw(worker, seed=7)[0]
        ids = [worker.generate(prompt=f"Go{TAIL}", sampling={**OPEN, "seed": s}) for s in (7, 8, 7)]
        texts = [worker.answer(i).text for i in ids]
        assert texts[0] == texts[2] == alone != texts[1]
