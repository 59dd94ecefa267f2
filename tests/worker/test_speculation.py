"""Guessing ahead: the same answer whatever is guessed, all of it counted, and an end where it does not pay."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import memory_models
import pytest
from raw_worker import Answer, RawWorker
from test_prefix_reuse import LOAD, NOISE, probabilities

from engine.engine_options import GUESSED_TOKENS
from engine.worker.lookup import LONGEST_MATCH, SHORTEST_MATCH, Lookup
from engine.worker.pace import Pace
from engine.worker.speculation import FIRST_GUESSES, Speculation

Make = Callable[..., dict[str, Any]]
TAIL = "[reply]"
#: guesses are made whatever they cost, so that there are some on a computer of any speed
ALWAYS = {"ALWAYS_GUESS": "1"}


# ------------------------------------------------------------------ finding


def plainly(tokens: list[int], most: int) -> tuple[list[int], int]:
    """What `Lookup` should find, looked for in the plainest way."""
    for end in range(len(tokens) - 2, SHORTEST_MATCH - 2, -1):
        if tokens[end - 2 : end + 1] == tokens[-3:]:
            length = 3
            while length < LONGEST_MATCH and end >= length and tokens[end - length] == tokens[-1 - length]:
                length += 1
            guess = list(tokens[end + 1 :])
            for i in itertools.count():
                if len(guess) >= most:
                    return guess[:most], length
                guess.append(guess[i])
    return [], 0


def test_the_last_place_is_found_while_the_list_grows() -> None:
    draw = random.Random(2)
    for n_words in (2, 3, 6, 40):
        tokens, lookup = [draw.randrange(n_words) for _ in range(5)], Lookup()
        for _ in range(150):
            most = draw.randrange(1, 9)
            assert lookup.guess(tokens, most) == plainly(tokens, most), tokens
            tokens.extend(draw.randrange(n_words) for _ in range(draw.randrange(1, 4)))
        assert lookup.guess(tokens, 0) == ([], 0)
        del tokens[10:60]
        lookup.reset()
        assert lookup.guess(tokens, 4) == plainly(tokens, 4)
    assert [Lookup().guess([1] * n, 3)[0] for n in range(5)] == [[], [], [], [], [1, 1, 1]]


# ------------------------------------------------------------------ deciding


def simulate(right: float, step_s: float, row_s: float, n_steps: int = 3000, seed: int = 1) -> tuple[float, int]:
    """(time with guessing / time without it, guesses) where so many guesses are right and a row costs so much."""
    draw, pace = random.Random(seed), Pace()
    pace.note(0, 100, 100 * row_s)  # a prompt was read before
    speculation = Speculation(pace)
    took = written = 0.0
    ramp, n_guessed = FIRST_GUESSES, 0
    for _ in range(n_steps):
        count = speculation.n_worth(9, ramp, 1, 1)
        n_right = next((i for i in range(count) if draw.random() > right), count)
        seconds = step_s + row_s * count
        speculation.note(1, [(9, count, n_right)] if count else [], seconds, 0.0)
        if count:
            ramp = speculation.next_ramp(count, n_right)
        took += seconds
        written += (1 + n_right) * step_s
        n_guessed += count
        assert 0 <= count <= GUESSED_TOKENS
    return took / written, n_guessed


@pytest.mark.parametrize("row_s", [0.001, 0.004, 0.02])
@pytest.mark.parametrize("right", [0.0, 0.3, 0.6, 0.8, 1.0])
def test_it_never_loses_more_than_a_little(right: float, row_s: float) -> None:
    ratio, _ = simulate(right, 0.01, row_s)
    assert ratio < 1.02
    short, _ = simulate(right, 0.01, row_s, n_steps=128)
    assert short < 1.03


def test_it_wins_where_guesses_are_right_and_cheap() -> None:
    ratio, n_guessed = simulate(0.98, 0.01, 0.004)
    assert ratio < 0.75 and n_guessed > 1000
    _, n_guessed = simulate(0.0, 0.01, 0.004)
    assert n_guessed < 60
    _, n_guessed = simulate(1.0, 0.01, 0.011)
    assert n_guessed < 60, "a guess that costs more than a step is never worth it"


# ------------------------------------------------------------------ writing


@pytest.fixture(scope="module")
def talker(scripted_model: Make) -> str:
    return str(scripted_model([" one", " two", " three", " four"], tail=TAIL, loop=True)["path"])


@pytest.fixture(scope="module")
def worker(talker: str) -> Iterator[RawWorker]:
    with RawWorker(hooks=ALWAYS) as one:
        one.load(talker, n_ctx=512)
        yield one


def drafted(answer: Answer) -> tuple[int, int]:
    usage = answer.done["usage"]
    return usage["drafted_tokens"], usage["accepted_tokens"]


def test_guesses_are_counted_and_told(worker: RawWorker) -> None:
    answer = worker.ask(prompt=f"Go{TAIL}", temperature=0, max_tokens=100, speculate=True)
    assert answer.text == " one two three four" * 25 and answer.reason == "length"
    assert [e["index"] for e in answer.tokens] == list(range(100))
    n_guessed, n_right = drafted(answer)
    assert n_guessed >= n_right > 70
    assert sum(e.get("drafted", False) for e in answer.tokens) == n_right
    assert sum(e.get("n_rejected", 0) for e in answer.tokens) == n_guessed - n_right
    plain = worker.ask(prompt=f"Go{TAIL}", temperature=0, max_tokens=100)
    assert plain.text == answer.text and drafted(plain) == (0, 0)


@pytest.mark.parametrize("limit", [1, 2, 3, 20, 21, 22, 23, 24, 25, 26, 27])
def test_an_answer_has_not_a_token_too_many(worker: RawWorker, limit: int) -> None:
    answer = worker.ask(prompt=f"Go{TAIL}", temperature=0, max_tokens=limit, speculate=True)
    assert len(answer.tokens) == limit and answer.reason == "length"
    assert answer.text == "".join(itertools.islice(itertools.cycle([" one", " two", " three", " four"]), limit))


@pytest.mark.parametrize("stop", [" one two thr", "four one two three four one", "e f"])
def test_a_stop_text_inside_the_guesses_ends_it_there(worker: RawWorker, stop: str) -> None:
    for _ in range(2):
        answer = worker.ask(prompt=f"Go {stop}, go{TAIL}", temperature=0, stop=[stop], speculate=True)
        whole = " one two three four" * 30
        assert answer.text == whole[: whole.index(stop)] == answer.streamed and answer.reason == "stop"
    # nothing of what was guessed behind it is left in the cache
    again = worker.ask(prompt=f"Go {stop}, go{TAIL}", temperature=0, max_tokens=9)
    assert again.text == " one two three four one two three four one"


def test_to_the_end_of_the_context(worker: RawWorker) -> None:
    answer = worker.ask(prompt=f"Go{TAIL}", temperature=0, speculate=True)
    usage = answer.done["usage"]
    assert answer.reason == "length" and usage["prompt_tokens"] + usage["completion_tokens"] == 512
    assert (" one two three four" * 130).startswith(answer.text) and drafted(answer)[1] > 300


def test_several_at_once_guess_within_the_room_for_logits(talker: str) -> None:
    with RawWorker(hooks=ALWAYS) as worker:
        worker.load(talker, n_ctx=2048, n_slots=4)
        ids = [
            worker.generate(prompt=f"{n}{TAIL}", sampling={"temperature": 0, "max_tokens": 120}, speculate=True)
            for n in range(9)
        ]
        for one in ids:
            assert worker.answer(one).text == " one two three four" * 30


@pytest.mark.parametrize("kind", memory_models.KINDS)
def test_the_answer_is_the_same_in_every_kind_of_memory(tmp_path: Path, kind: str) -> None:
    """Most guesses are wrong here: what they left in the cache has to be taken away without a trace."""
    model = memory_models.build(tmp_path / "model.gguf", kind)
    only = {str(token): 60.0 for token in (500, 501, 502)}  # so that something stood there before
    asked = {"prompt": "Once " * 40, "temperature": 0.9, "seed": 7, "max_tokens": 80, "logit_bias": only}
    with RawWorker(hooks=ALWAYS) as worker:
        worker.load(model, **LOAD)
        plain = worker.ask(**asked)
        worker.load(model, **LOAD)
        answer = worker.ask(**asked, speculate=True)
    assert answer.ids == plain.ids, "also where tokens are drawn: the draws are the same"
    assert max(abs(a - b) for a, b in zip(probabilities(answer), probabilities(plain), strict=True)) < NOISE
    n_guessed, _ = drafted(answer)
    assert (n_guessed > 0) is (kind in ("llama", "window")), "recurrent layers cannot go back"


# ------------------------------------------------------------------ a small model that guesses


def test_a_draft_model_guesses_and_the_large_one_decides(tmp_path: Path) -> None:
    large = memory_models.build(tmp_path / "large.gguf", "llama")
    stranger = memory_models.build(tmp_path / "other.gguf", "llama", seed=9)
    asked = {"prompt": "The first words of a tale are", "temperature": 0, "max_tokens": 60}
    with RawWorker(hooks=ALWAYS) as worker:
        worker.load(large, **LOAD)
        plain = worker.ask(**asked)
        for draft, least in ((large, 30), (stranger, 0)):
            info = worker.load(large, draft_path=str(draft), **LOAD)
            assert not info.get("warnings")
            answer = worker.ask(**asked, speculate=True)
            assert answer.ids == plain.ids
            n_guessed, n_right = drafted(answer)
            assert n_guessed > 0 and least <= n_right <= n_guessed
            for n in range(6):  # more chats than slots: it follows whoever is writing
                beside = worker.ask(prompt=f"{n} {asked['prompt']}", temperature=0, max_tokens=20, speculate=True)
                assert len(beside.tokens) == 20
            assert worker.ask(**asked, speculate=True).ids == plain.ids


def test_a_draft_model_that_does_not_fit_is_said_and_left_out(tmp_path: Path, scripted_model: Make) -> None:
    large = memory_models.build(tmp_path / "large.gguf", "llama")
    other = scripted_model(["Hello"], vocab="qwen2")["path"]
    recurrent = memory_models.build(tmp_path / "recurrent.gguf", "recurrent")
    (tmp_path / "no.gguf").write_bytes(b"<html>")
    with RawWorker() as worker:
        for draft in (other, recurrent, tmp_path / "no.gguf", tmp_path / "missing.gguf"):
            info = worker.load(large, draft_path=str(draft), **LOAD)
            (warning,) = info["warnings"]
            assert Path(draft).name in warning and "not used" in warning
            assert len(worker.ask(prompt="Once", temperature=0, max_tokens=3, speculate=True).tokens) == 3
