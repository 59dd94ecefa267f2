"""What was computed is used again where that is right, in every kind of memory that llama.cpp has, and only there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import memory_models
import pytest
from raw_worker import Answer, RawWorker

LOAD = {"n_ctx": 1024, "n_slots": 3, "n_threads": 1, "kv_type_k": "f32", "kv_type_v": "f32", "flash_attention": "off"}
SYSTEM = "You are a patient helper who answers in a few plain words and never guesses what nobody has said. " * 6
#: what rounding may do to the logarithm of a probability when all is computed in 32 bits
NOISE = 2e-3
GREEDY = {"temperature": 0, "max_tokens": 12}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("tiny")
    return {kind: memory_models.build(folder / f"{kind}.gguf", kind) for kind in memory_models.KINDS}


@pytest.fixture(scope="module")
def worker() -> Iterator[RawWorker]:
    with RawWorker() as one:
        yield one


@pytest.fixture(params=memory_models.KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def messages(*texts: str) -> list[dict[str, str]]:
    roles = ["system", *["user", "assistant"] * len(texts)]
    return [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]


def probabilities(answer: Answer) -> list[float]:
    return [e["logprob"] for e in answer.tokens]


def same(one: Answer, other: Answer) -> bool:
    """The same tokens, each as probable as the other time."""
    differences = [abs(a - b) for a, b in zip(probabilities(one), probabilities(other), strict=True)]
    return one.ids == other.ids and max(differences) < NOISE


def fresh(worker: RawWorker, model: Path, n_ubatch: int = 512, **request: Any) -> Answer:
    """The answer of a model that has seen nothing before."""
    worker.load(model, n_ubatch=n_ubatch, **LOAD)
    return worker.ask(**request, **GREEDY)


def cached(answer: Answer) -> int:
    return int(answer.done["usage"]["cached_tokens"])


def cells(worker: RawWorker) -> int:
    return int(next(e["kv_used_cells"] for e in reversed(worker.events) if e["type"] == "memory"))


def test_another_chat_begins_with_the_cells_of_the_first(worker: RawWorker, models: dict[str, Path], kind: str) -> None:
    """Both have the same instructions. Their cells are there once, and the answer is that of a chat of its own."""
    first, second = messages(SYSTEM, "Name a fruit."), messages(SYSTEM, "Which day comes after Monday?")
    alone = fresh(worker, models[kind], messages=second)
    before = fresh(worker, models[kind], messages=first, cache_key="a")
    used = cells(worker)
    after = worker.ask(messages=second, cache_key="b", **GREEDY)
    assert same(after, alone)
    n_prompt, n_cached = after.done["usage"]["prompt_tokens"], cached(after)
    if kind == "recurrent" or kind == "hybrid":
        assert n_cached == 0, "its state stands behind what is common"
    else:
        assert n_cached > 120 and cells(worker) <= used + n_prompt - n_cached + len(after.tokens)
    again = worker.ask(messages=first, cache_key="a", **GREEDY)
    assert same(again, before) and cached(again) >= before.done["usage"]["prompt_tokens"] - 9


def test_from_a_chat_that_is_writing(models: dict[str, Path], kind: str) -> None:
    """The beginning is taken over while its chat goes on, and neither sees the other's words."""
    if kind in ("recurrent", "hybrid"):
        pytest.skip("its state stands behind what is common")
    first, second = messages(SYSTEM, "Name a fruit."), messages(SYSTEM, "Which day comes after Monday?")
    with RawWorker() as plain:
        expected = [fresh(plain, models[kind], messages=m) for m in (first, second)]
    with RawWorker(hooks={"SLOW_TOKEN_S": "0.05"}) as worker:
        worker.load(models[kind], **LOAD)
        running = worker.generate(messages=first, sampling=GREEDY)
        worker.wait("token", id=running)
        beside = worker.ask(messages=second, **GREEDY)
        assert cached(beside) > 120 and same(beside, expected[1])
        assert same(worker.answer(running), expected[0])


def test_two_chats_go_on_from_the_same_place(worker: RawWorker, models: dict[str, Path], kind: str) -> None:
    """All that the first has computed is the beginning of the second: also a recurrent state can be taken over, and
    each goes its own way from there."""
    start = f"{SYSTEM} And then she said"
    longer = [f"{start} that {what} was gone, and nobody asked" for what in ("the ship", "her old coat")]
    alone = [fresh(worker, models[kind], prompt=text) for text in longer]
    worker.load(models[kind], **LOAD)
    first = worker.ask(prompt=start, cache_key="a", temperature=0, max_tokens=1)
    n_start = first.done["usage"]["prompt_tokens"]
    for text, key, expected in zip(longer, "bc", alone, strict=True):
        answer = worker.ask(prompt=text, cache_key=key, **GREEDY)
        assert cached(answer) >= n_start and same(answer, expected)
    again = worker.ask(prompt=longer[0], cache_key="b", **GREEDY)
    assert same(again, alone[0])


def test_the_next_turn_reads_only_what_is_new(worker: RawWorker, models: dict[str, Path], kind: str) -> None:
    first = messages(SYSTEM, "Name a fruit.")
    said = fresh(worker, models[kind], messages=first, cache_key="a")
    n_prompt = said.done["usage"]["prompt_tokens"]
    prompt = worker.wait("tokenized", id=worker.send("tokenize", messages=first))["prompt"]
    longer = prompt + said.text + "\n[user] And a bird?\n[assistant]"
    alone_tokens = worker.tokens_of(text=longer, add_special=True)
    if alone_tokens[: n_prompt + len(said.ids)] != worker.tokens_of(text=prompt, add_special=True) + said.ids:
        longer = prompt + "\n[user] And a bird?\n[assistant]"  # random words need not be cut as they were said
    answer = worker.ask(prompt=longer, cache_key="a", **GREEDY)
    assert cached(answer) >= n_prompt - 9
    assert same(answer, fresh(worker, models[kind], prompt=longer))


def test_an_edit_goes_back_to_where_the_new_began(worker: RawWorker, models: dict[str, Path], kind: str) -> None:
    """A state is kept at the beginning and near the end of each prompt: an edited last message reads no history."""
    history = [SYSTEM, "Name a fruit.", "An apple, which grows on trees in many lands of the north."]
    edited = messages(*history, "What colour has it then?")
    alone = fresh(worker, models[kind], messages=edited)
    fresh(worker, models[kind], messages=messages(*history[:2]), cache_key="a")
    n_history = len(worker.tokens_of(messages=messages(*history)))
    worker.ask(messages=messages(*history, "Is it sweet or sour, and who likes to eat it?"), cache_key="a", **GREEDY)
    answer = worker.ask(messages=edited, cache_key="a", **GREEDY)
    assert same(answer, alone)
    if kind == "llama" or kind == "window":
        assert cached(answer) >= n_history - 12
    else:
        assert cached(answer) >= 120
    again = worker.ask(messages=edited, cache_key="a", **GREEDY)
    # states nearer to each other than 64 tokens are not kept
    assert same(again, alone) and cached(again) >= alone.done["usage"]["prompt_tokens"] - 9 - 64


def test_a_window_that_has_moved_on_is_read_again(worker: RawWorker, models: dict[str, Path]) -> None:
    """llama.cpp says yes to going back although the cells that the window needs are gone; that would answer wrongly."""
    words = " ".join(f"number {n}" for n in range(120))
    short, long = f"{SYSTEM}\nStop.", f"{SYSTEM}\n{words}"
    alone = fresh(worker, models["window"], 64, prompt=short)
    fresh(worker, models["window"], 64, prompt=long, cache_key="a")
    answer = worker.ask(prompt=short, cache_key="a", **GREEDY)
    assert same(answer, alone) and cached(answer) == 0
    reread = answer.done["reread"]
    assert reread["cause"] == "window" and reread["n_tokens"] == alone.done["usage"]["prompt_tokens"] - 1


def test_a_stop_costs_the_others_nothing_they_had(models: dict[str, Path], kind: str) -> None:
    """Computing is interrupted while others write: what they have stays or is read again, and they say the same."""
    alone = messages(SYSTEM, "Name a fruit.")
    with RawWorker() as plain:
        worker_options = {**LOAD, "n_ubatch": 64}
        plain.load(models[kind], **worker_options)
        expected = plain.ask(messages=alone, temperature=0, max_tokens=60)
    with RawWorker(hooks={"SLOW_TOKEN_S": "0.01"}) as worker:
        worker.load(models[kind], **worker_options)
        running = worker.generate(messages=alone, sampling={"temperature": 0, "max_tokens": 60})
        worker.wait("token", id=running)
        for n in range(6):
            other = worker.generate(prompt=f"{n} words and " * 60, sampling=GREEDY)
            worker.wait("prompt_progress", id=other)
            time.sleep(0.005 * n)
            worker.stop(other)
            worker.answer(other)
        answer = worker.answer(running)
        # chunks are other ones than alone, so only rounding may differ
        assert (
            answer.ids == expected.ids
            and max(abs(a - b) for a, b in zip(probabilities(answer), probabilities(expected), strict=True)) < 5 * NOISE
        )


def test_why_it_is_read_again_is_said(worker: RawWorker, models: dict[str, Path]) -> None:
    worker.load(models["llama"], **{**LOAD, "n_slots": 1})
    first = worker.ask(messages=messages(SYSTEM, "Name a fruit."), cache_key="a", **GREEDY)
    assert first.done.get("reread") is None
    changed = worker.ask(messages=messages("Be brief. " + SYSTEM, "Name a fruit."), cache_key="a", **GREEDY)
    reread = changed.done["reread"]
    assert reread["cause"] == "changed" and reread["old"] != reread["new"]
    assert reread["index"] == cached(changed) < 10 and reread["n_tokens"] > 100
    worker.ask(prompt="something else", cache_key="b", **GREEDY)
    back = worker.ask(messages=messages("Be brief. " + SYSTEM, "Name a fruit."), cache_key="a", **GREEDY)
    assert back.done["reread"]["cause"] == "given_up"
    again = worker.ask(messages=messages("Be brief. " + SYSTEM, "Name a fruit."), cache_key="a", **GREEDY)
    assert again.done.get("reread") is None and cached(again) == again.done["usage"]["prompt_tokens"] - 1


def test_a_chat_keeps_its_slot_and_the_oldest_gives_way(worker: RawWorker, models: dict[str, Path]) -> None:
    worker.load(models["llama"], **{**LOAD, "n_slots": 2})
    ask = {key: messages(f"{key} {SYSTEM}", "Name a fruit.") for key in "abc"}
    for key in "ab":
        worker.ask(messages=ask[key], cache_key=key, **GREEDY)
    for key, kept in (("a", True), ("b", True), ("c", False), ("b", True), ("a", False)):
        answer = worker.ask(messages=ask[key], cache_key=key, **GREEDY)
        assert (cached(answer) > 100) is kept, key
