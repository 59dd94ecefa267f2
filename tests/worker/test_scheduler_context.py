"""Full contexts: exact limits, sharing, and that the worker goes on after each of them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from raw_worker import RawWorker

Make = Callable[..., dict[str, Any]]
TAIL = "[reply]"


@pytest.fixture(scope="module")
def talker(scripted_model: Make) -> str:
    return str(scripted_model([" one", " two", " three", " four"], tail=TAIL, loop=True)["path"])


@pytest.fixture(scope="module")
def worker(talker: str) -> Iterator[RawWorker]:
    with RawWorker() as one:
        assert one.load(talker, n_ctx=256)["n_ctx"] == 256
        yield one


def prompt_of(worker: RawWorker, n_tokens: int) -> str:
    """A prompt of exactly so many tokens (BOS included)."""
    text = "b" * 4 + TAIL
    base = len(worker.tokens_of(text=text, add_special=True))
    text = "\n" * (n_tokens - base) + text
    found = len(worker.tokens_of(text=text, add_special=True))
    text = "\n" * (n_tokens - found) + text
    assert len(worker.tokens_of(text=text, add_special=True)) == n_tokens
    return text


@pytest.mark.parametrize("size", [255, 256, 257, 400, 3000])
def test_prompts_at_the_limit_and_then_hi(worker: RawWorker, size: int) -> None:
    answer = worker.ask(prompt=prompt_of(worker, size), temperature=0)
    if size < 256:
        assert answer.reason == "length" and len(answer.tokens) == 256 - size
        assert answer.done["usage"]["prompt_tokens"] == size
    else:
        error = answer.error
        assert error["code"] == "context_full"
        assert error["details"]["n_prompt"] == size and error["details"]["n_ctx"] == 256
        assert len(answer.events) == 1, "refused before anything else was said"
    hi = worker.ask(prompt=f"Hi{TAIL}", temperature=0, max_tokens=4)
    assert hi.text == " one two three four"


def test_an_answer_ends_where_the_context_does(worker: RawWorker) -> None:
    answer = worker.ask(prompt=prompt_of(worker, 100), temperature=0)
    usage = answer.done["usage"]
    assert answer.reason == "length" and usage["prompt_tokens"] + usage["completion_tokens"] == 256
    assert answer.text == " one two three four" * 39


def test_answers_that_share_the_context_are_all_complete(worker: RawWorker) -> None:
    """Four answers of 200 tokens need more cells than there are: some wait or are computed again, none is cut."""
    ids = [
        worker.generate(prompt=f"{'x' * n}{TAIL}", sampling={"temperature": 0, "max_tokens": 200}) for n in range(1, 5)
    ]
    for request in ids:
        answer = worker.answer(request)
        assert answer.text == " one two three four" * 50 and answer.reason == "length"
        assert len(answer.tokens) == 200 == answer.done["usage"]["completion_tokens"]


def test_caches_of_old_prompts_give_way(worker: RawWorker) -> None:
    for n in (50, 60, 70, 80, 90, 240):
        assert worker.ask(prompt=prompt_of(worker, n), temperature=0, max_tokens=2).text == " one two"
    assert worker.ask(prompt=prompt_of(worker, 240), temperature=0, max_tokens=2).done["usage"]["cached_tokens"] == 239


def test_the_slot_with_the_longest_common_beginning_is_used(talker: str) -> None:
    with RawWorker() as worker:
        worker.load(talker, n_ctx=1024)
        first, second = "a b c d e f g h " * 8 + TAIL, "1 2 3 4 5 6 7 8 " * 8 + TAIL
        for prompt in (first, second):
            assert worker.ask(prompt=prompt, temperature=0, max_tokens=2).done["usage"]["cached_tokens"] <= 1
        for prompt in (first, second, first):
            usage = worker.ask(prompt=prompt, temperature=0, max_tokens=2).done["usage"]
            assert usage["cached_tokens"] == usage["prompt_tokens"] - 1


def test_a_long_prompt_does_not_hold_up_an_answer(talker: str) -> None:
    """While 3,000 tokens are read (slowed down to 6 s) the running answer keeps coming."""
    with RawWorker(hooks={"SLOW_PREFILL_S": "6"}) as worker:
        worker.load(talker, n_ctx=8192)
        running = worker.generate(prompt=TAIL, sampling={"temperature": 0})
        worker.wait("token", id=running, timeout=20)
        began = time.monotonic()
        paste = worker.generate(prompt="word " * 1500 + TAIL, sampling={"temperature": 0, "max_tokens": 1})
        worker.answer(paste)
        took = time.monotonic() - began
        times = [e["_at"] for e in worker.events if e["type"] == "token" and e["request_id"] == running]
        worker.stop(running)
        during = [t for t in times if t > began]
        gaps = [b - a for a, b in itertools.pairwise(during)]
        assert took > 5 and len(during) > 10
        assert max(gaps) < 1.5, f"longest gap {max(gaps):.2f} s"
