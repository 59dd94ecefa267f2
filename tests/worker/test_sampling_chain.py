"""Every sampling parameter reaches llama.cpp and does what it says."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from raw_worker import RawWorker

Make = Callable[..., dict[str, Any]]
TAIL = "[reply]"
FACES = [" one", " two", " three", " four", " five", " six", " seven", " eight"]
OPEN = {"temperature": 1, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "max_tokens": 60, "seed": 3}


@pytest.fixture(scope="module")
def worker(scripted_model: Make) -> Iterator[RawWorker]:
    dice = scripted_model([], tail=TAIL, dice=[f.replace(" ", "\u2581") for f in FACES])["path"]
    with RawWorker() as one:
        one.load(dice, n_ctx=1024, n_slots=1)
        yield one


def faces(worker: RawWorker, prompt: str = f"Go{TAIL}", **sampling: Any) -> list[str]:
    text = worker.ask(prompt=prompt, **{**OPEN, **sampling}).text
    return text.split()


def test_all_faces_come_up(worker: RawWorker) -> None:
    assert len(set(faces(worker))) == 8


def test_greedy_is_one_face_and_ignores_the_seed(worker: RawWorker) -> None:
    assert len({tuple(faces(worker, temperature=0, seed=s)) for s in (1, 2, 3)}) == 1


def test_top_k_keeps_k(worker: RawWorker) -> None:
    assert len(set(faces(worker, top_k=3))) == 3
    assert len(set(faces(worker, top_k=1))) == 1


def test_top_p_keeps_the_smallest_set(worker: RawWorker) -> None:
    assert len(set(faces(worker, top_p=0.3))) in (2, 3)


def test_min_p_drops_what_is_less_probable_than_its_share_of_the_best(worker: RawWorker) -> None:
    plain, biased = faces(worker), token_ids(worker)
    assert len(set(plain)) == 8
    favoured = {str(biased["one"]): 2.0}
    assert set(faces(worker, logit_bias=favoured, min_p=0.5)) == {"one"}
    assert len(set(faces(worker, logit_bias=favoured))) > 4


def token_ids(worker: RawWorker) -> dict[str, int]:
    return {f.strip(): worker.tokens_of(text=f.strip())[-1] for f in FACES}


def test_logit_bias_bans_and_forces(worker: RawWorker) -> None:
    ids = token_ids(worker)
    assert "one" not in faces(worker, logit_bias={str(ids["one"]): -1e9})
    assert set(faces(worker, logit_bias={str(ids["two"]): 100.0})) == {"two"}
    assert set(faces(worker, logit_bias={str(ids["two"]): 100.0}, temperature=0)) == {"two"}


def test_penalties_see_the_answer(worker: RawWorker) -> None:
    once = faces(worker, presence_penalty=10, repeat_last_n=7, max_tokens=40)
    assert all(len(set(once[i : i + 8])) == 8 for i in range(32)), "a face came again within the window"
    greedy = faces(worker, temperature=0, repeat_penalty=2.0, max_tokens=8)
    assert len(set(greedy)) == 8
    counts = collections.Counter(faces(worker, temperature=0, frequency_penalty=0.5, repeat_last_n=-1, max_tokens=64))
    assert set(counts.values()) == {8}


def test_penalties_see_the_prompt(worker: RawWorker) -> None:
    prompt = f"one one one two three{TAIL}"
    ids = token_ids(worker)
    assert ids["three"] in worker.tokens_of(text=prompt)
    seen = faces(worker, prompt=prompt, presence_penalty=10, repeat_last_n=-1, max_tokens=5)
    assert not {"one", "two", "three"} & set(seen)
    assert "three" in faces(worker, prompt=prompt, presence_penalty=10, repeat_last_n=1, max_tokens=20)


def test_dry_ends_a_loop(worker: RawWorker) -> None:
    loop = faces(worker, top_k=1, max_tokens=30)
    assert len(set(loop)) == 1
    broken = faces(worker, temperature=0, dry_multiplier=10.0, dry_allowed_length=2, max_tokens=30)
    assert len(set(broken)) > 1
    free = faces(worker, temperature=0, dry_multiplier=10.0, dry_penalty_last_n=0, max_tokens=30)
    assert len(set(free)) == 1


def test_xtc_takes_the_top_away(worker: RawWorker) -> None:
    ids = token_ids(worker)
    favoured = {str(ids["one"]): 1.5}
    assert "one" in faces(worker, logit_bias=favoured)
    assert "one" not in faces(worker, logit_bias=favoured, xtc_probability=1.0, xtc_threshold=0.05)


def test_the_rest_is_accepted_and_changes_the_draw(worker: RawWorker) -> None:
    ids = token_ids(worker)
    favoured = {"logit_bias": {str(ids["one"]): 3.0}, "max_tokens": 40}
    plain = faces(worker, **favoured)
    for change in (
        {"temperature": 5.0},
        {"mirostat": 1, "mirostat_tau": 0.1},
        {"mirostat": 2, "mirostat_tau": 0.1, "mirostat_eta": 1.0},
        {"typical_p": 0.2},
        {"top_n_sigma": 0.01},
    ):
        assert faces(worker, **{**favoured, **change}) != plain, change


def test_temperature_flattens(worker: RawWorker) -> None:
    favoured = {"logit_bias": {str(token_ids(worker)["one"]): 3.0}}
    cold = collections.Counter(faces(worker, **favoured, temperature=0.3))["one"]
    warm = collections.Counter(faces(worker, **favoured, temperature=5.0))["one"]
    assert cold == 60 and warm < 30


def test_extreme_values_do_no_harm(worker: RawWorker) -> None:
    big = 2**31 - 1
    answer = worker.ask(
        prompt=f"Go{TAIL}",
        temperature=100.0,
        top_k=big,
        repeat_last_n=big,
        repeat_penalty=10.0,
        presence_penalty=10.0,
        frequency_penalty=-10.0,
        dry_multiplier=100.0,
        dry_base=100.0,
        dry_allowed_length=big,
        dry_penalty_last_n=big,
        dry_sequence_breakers=["\u0000", "x" * 500, "é"],
        xtc_probability=1.0,
        xtc_threshold=0.0,
        typical_p=0.0,
        top_p=0.0,
        min_p=1.0,
        top_n_sigma=0.0,
        logit_bias={"0": -1e38, "5": 1e38},
        max_tokens=5,
        stop=["x" * 1024] * 64,
    )
    assert len(answer.tokens) == 5 or answer.reason == "stop"
    assert len(set(faces(worker))) == 8
