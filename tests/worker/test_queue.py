"""Who waits, who comes first, who gives way: nobody is lost, nobody is starved, and too many are refused in words."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from raw_worker import RawWorker

Make = Callable[..., dict[str, Any]]
TAIL = "[reply]"
PLAIN = {"temperature": 0, "max_tokens": 8}


@pytest.fixture(scope="module")
def talker(scripted_model: Make) -> str:
    return str(scripted_model([" one", " two", " three", " four"], tail=TAIL, loop=True)["path"])


def test_too_many_are_refused_in_words_and_the_rest_is_answered(talker: str) -> None:
    with RawWorker(hooks={"SLOW_TOKEN_S": "0.2"}) as worker:
        worker.load(talker, n_ctx=1024, n_slots=1)
        running = worker.generate(prompt=f"Go{TAIL}", sampling={"temperature": 0})
        worker.wait("token", id=running)
        ids = [worker.generate(prompt=f"{n}{TAIL}", sampling={**PLAIN, "max_tokens": 1}) for n in range(140)]
        refused = [worker.answer(one, timeout=30) for one in ids[128:]]
        for answer in refused:
            assert answer.error["code"] == "busy" and "128" in answer.error["message"] and answer.error["hint"]
        for one in [*ids[1:128], running]:
            worker.stop(one)
        for one in ids[1:128]:
            assert worker.answer(one).reason == "cancelled"
        assert worker.answer(running).reason == "cancelled"
        assert worker.answer(ids[0]).text == " one"


def test_an_urgent_one_takes_the_place_of_one_that_is_not(talker: str) -> None:
    with RawWorker(hooks={"SLOW_TOKEN_S": "0.01"}) as worker:
        worker.load(talker, n_ctx=1024, n_slots=1)
        slow = worker.generate(prompt=f"Slow{TAIL}", sampling={"temperature": 0, "max_tokens": 200}, priority=1)
        for _ in range(5):
            worker.wait("token", id=slow)
        urgent = worker.ask(prompt=f"Now{TAIL}", **PLAIN)
        assert urgent.text == " one two three four" * 2
        assert not any(e["type"] == "done" and e["request_id"] == slow for e in worker.events)
        answer = worker.answer(slow)
        assert answer.text == " one two three four" * 50 and answer.reason == "length"
        assert [e["index"] for e in answer.tokens] == list(range(200))


def test_a_request_can_become_more_urgent(talker: str) -> None:
    with RawWorker(hooks={"SLOW_TOKEN_S": "0.02"}) as worker:
        worker.load(talker, n_ctx=1024, n_slots=1)
        first = worker.generate(prompt=f"Go{TAIL}", sampling=PLAIN)
        worker.wait("token", id=first)
        later = [worker.generate(prompt=f"{n}{TAIL}", sampling=PLAIN, priority=1) for n in range(3)]
        worker.send("prioritize", target=later[2], priority=0)
        worker.send("prioritize", target="nobody", priority=0)
        for one in later:
            worker.answer(one)
        ends = [e["request_id"] for e in worker.events if e["type"] == "done"]
        # it may even take the place of the first, which has the same priority but came before it
        assert ends.index(later[2]) < ends.index(later[0]) < ends.index(later[1])


def test_a_question_does_not_wait_for_another_chats_book(talker: str) -> None:
    with RawWorker(hooks={"SLOW_PREFILL_S": "4"}) as worker:
        worker.load(talker, n_ctx=8192, n_ubatch=64)
        book = worker.generate(prompt="word " * 3000 + TAIL, sampling=PLAIN)
        worker.wait("prompt_progress", id=book)
        worker.wait("prompt_progress", id=book)
        short = worker.ask(prompt=f"Hi{TAIL}", **PLAIN)
        assert short.text == " one two three four" * 2
        assert not any(e["type"] == "done" and e["request_id"] == book for e in worker.events)
        assert worker.answer(book).text == " one two three four" * 2


def test_a_book_is_read_although_questions_keep_coming(talker: str) -> None:
    with RawWorker() as worker:
        worker.load(talker, n_ctx=8192, n_ubatch=64, n_slots=3)
        book = worker.generate(prompt="word " * 2000 + TAIL, sampling=PLAIN)
        for n in range(400):
            worker.ask(prompt=f"{n} and {'more ' * 60}{TAIL}", temperature=0, max_tokens=1)
            if any(e["type"] == "done" and e["request_id"] == book for e in worker.events):
                break
        assert n < 399 and worker.answer(book).text == " one two three four" * 2


def test_random_stops_leave_nothing_behind(talker: str) -> None:
    """Requests come and are stopped at random; then the cells are all free and the answers are still right."""
    draw = random.Random(3)
    with RawWorker() as worker:
        worker.load(talker, n_ctx=1024, n_slots=3)
        open_, n_done = [], 0
        for n in range(300):
            length = draw.choice((1, 1, 20, 200, 600))
            text = f"chat {n % 7}: {'word ' * draw.randrange(1, length + 1)}{TAIL}"
            open_.append(
                worker.generate(
                    prompt=text,
                    sampling={"temperature": 0, "max_tokens": draw.randrange(1, 60)},
                    priority=draw.randrange(2),
                    cache_key=f"chat-{n % 7}",
                )
            )
            if len(open_) > 6:
                one = open_.pop(draw.randrange(len(open_)))
                if draw.random() < 0.6:
                    worker.stop(one)
                answer = worker.answer(one)
                assert (" one two three four" * 20).startswith(answer.text), answer.text
                n_done += 1
        for one in open_:
            worker.stop(one)
            worker.answer(one)
        for n in range(7):
            worker.send("forget", cache_key=f"chat-{n}")
        last = worker.ask(prompt=f"Hi{TAIL}", **PLAIN)
        used = [e.get("kv_used_cells", 0) for e in worker.events if e["type"] == "memory"]
        assert last.text == " one two three four" * 2
        assert used[-1] == last.done["usage"]["prompt_tokens"] + 7, "nobody else holds a cell"
        assert max(used) <= 1024
