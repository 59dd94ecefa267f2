"""Stop works in every phase, within a second, and the next request is answered."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from raw_worker import RawWorker

Make = Callable[..., dict[str, Any]]
TAIL = "[reply]"


@pytest.fixture(scope="module")
def model(scripted_model: Make) -> str:
    return str(scripted_model(["Hello", " world", "!"], tail=TAIL)["path"])


@pytest.fixture(scope="module")
def talker(scripted_model: Make) -> str:
    """A model that never ends by itself."""
    return str(scripted_model([" one", " two", " three", " four"], tail=TAIL, loop=True)["path"])


def ask_hello(worker: RawWorker) -> None:
    answer = worker.ask(prompt=f"Go{TAIL}", temperature=0)
    assert answer.text == "Hello world!" and answer.reason == "stop"


def test_while_the_prompt_is_read_and_twice(model: str) -> None:
    with RawWorker(hooks={"SLOW_PREFILL_S": "10"}) as worker:
        worker.load(model, n_ctx=1024)
        request = worker.generate(prompt="word " * 200 + TAIL, sampling={"temperature": 0})
        worker.wait("prompt_progress", id=request)
        time.sleep(0.5)
        worker.stop(request)
        worker.stop(request)
        asked = time.monotonic()
        answer = worker.answer(request)
        assert answer.reason == "cancelled" and answer.text == "" and answer.done["_at"] - asked < 1
        assert answer.done["usage"]["completion_tokens"] == 0 and answer.done["timings"].get("ttft_s") is None


def test_real_reading_is_interrupted_inside_llama_decode(starter_model: Path) -> None:
    """One chunk of 2,048 tokens in one llama_decode takes seconds; the abort callback ends it."""
    with RawWorker() as worker:
        worker.load(starter_model, n_ctx=4096, n_ubatch=2048)
        request = worker.generate(prompt="word " * 2000, sampling={"temperature": 0, "max_tokens": 5})
        worker.wait("prompt_progress", id=request)
        time.sleep(0.3)
        worker.stop(request)
        asked = time.monotonic()
        answer = worker.answer(request)
        assert answer.reason == "cancelled" and answer.done["_at"] - asked < 1
        assert answer.events[-3]["type"] == "prompt_progress" and answer.events[-3]["n_done"] == 0
        assert not [e for e in worker.events if e["type"] == "log"], "an asked-for abort is no warning"
        first = worker.ask("Hi", temperature=0, max_tokens=4)
        worker.load(starter_model, n_ctx=4096, n_ubatch=2048)
        assert worker.ask("Hi", temperature=0, max_tokens=4).ids == first.ids


def test_while_an_answer_is_written(talker: str) -> None:
    with RawWorker() as worker:
        worker.load(talker, n_ctx=4096)
        request = worker.generate(prompt=f"Go{TAIL}", sampling={"temperature": 0})
        for _ in range(10):
            worker.wait("token", id=request)
        worker.stop(request)
        asked = time.monotonic()
        answer = worker.answer(request)
        assert answer.reason == "cancelled" and answer.done["_at"] - asked < 1
        assert answer.text == answer.streamed and answer.text.startswith(" one two three four one")
        again = worker.ask(prompt=f"Go{TAIL}", temperature=0, max_tokens=6)
        assert again.text == " one two three four one two"


def test_held_back_text_is_shown_when_stopped(talker: str) -> None:
    with RawWorker(hooks={"SLOW_TOKEN_S": "0.2"}) as worker:
        worker.load(talker, n_ctx=256)
        request = worker.generate(prompt=f"Go{TAIL}", sampling={"temperature": 0, "stop": [" one two thrice"]})
        for _ in range(3):
            worker.wait("token", id=request)
        worker.stop(request)
        answer = worker.answer(request)
        assert answer.text == answer.streamed != "" and answer.reason == "cancelled"


def test_while_queued(talker: str) -> None:
    with RawWorker() as worker:
        worker.load(talker, n_ctx=4096, n_slots=1)
        running = worker.generate(prompt=f"Go{TAIL}", sampling={"temperature": 0})
        worker.wait("token", id=running)
        queued = worker.generate(prompt=f"Go{TAIL}", sampling={"temperature": 0})
        worker.stop(queued)
        asked = time.monotonic()
        answer = worker.answer(queued)
        assert answer.reason == "cancelled" and answer.text == "" and answer.done["_at"] - asked < 1
        worker.stop(running)
        assert worker.answer(running).reason == "cancelled"


def test_while_loading_and_what_waits_for_the_load(model: str) -> None:
    with RawWorker(hooks={"SLOW_LOAD_S": "10"}) as worker:
        load = worker.send("load", path=model)
        worker.wait("load_progress", id=load)
        waiting = worker.generate(prompt=f"Go{TAIL}", sampling={"temperature": 0})
        worker.stop(waiting)
        asked = time.monotonic()
        assert worker.answer(waiting).reason == "cancelled"
        worker.stop(load)
        event = worker.wait("error", "loaded", id=load)
        assert event["type"] == "error" and event["error"]["code"] == "cancelled" and event["_at"] - asked < 1
        assert worker.ask(prompt="a").error["code"] == "model_not_loaded"
    with RawWorker() as worker:
        worker.load(model)
        ask_hello(worker)


def test_an_unknown_target_is_ignored(model: str) -> None:
    with RawWorker() as worker:
        worker.stop("nobody")
        worker.load(model, n_ctx=256)
        worker.stop("nobody")
        ask_hello(worker)


def test_stop_of_one_leaves_the_other_right(talker: str) -> None:
    with RawWorker(hooks={"SLOW_TOKEN_S": "0.005"}) as worker:
        worker.load(talker, n_ctx=4096)
        keep = worker.generate(prompt=f"Keep{TAIL}", sampling={"temperature": 0, "max_tokens": 60})
        worker.wait("token", id=keep)
        for _ in range(8):
            other = worker.generate(prompt="word " * 300 + TAIL, sampling={"temperature": 0})
            worker.wait("prompt_progress", "token", id=other)
            worker.stop(other)
            assert worker.answer(other).reason == "cancelled"
        assert worker.answer(keep).text == " one two three four" * 15
