"""Turns that stay are moved when older ones are left out, where the memory allows it, and read again elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import memory_models
import pytest
from raw_worker import Answer, RawWorker
from test_prefix_reuse import LOAD, NOISE, cached, probabilities

Make = Callable[..., dict[str, Any]]
SYSTEM = "You are a patient helper who answers in a few plain words and never guesses what nobody has said."
SUBJECTS = ("the sea", "a mill", "two bridges", "an old clock", "her garden", "that winter", "five coats", "the road")
ASK = {"temperature": 0, "max_tokens": 10}
#: what turning keys to another place may do, all being computed in 32 bits
MOVED = 3 * NOISE
#: with chunks of 64 tokens a cache of the window is smaller than the context, and cannot be shifted
CONTEXT = {**LOAD, "n_ctx": 512, "n_ubatch": 64}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Of one layer, or of one of each kind: keys and values of the first layer know nothing of what stands before them,
    so moving them is exactly the same as computing them there."""
    folder = tmp_path_factory.mktemp("tiny")
    return {
        kind: memory_models.build(folder / f"{kind}.gguf", kind, n_layer=1 if kind == "llama" else 2)
        for kind in memory_models.KINDS
    }


@pytest.fixture(scope="module")
def worker() -> Iterator[RawWorker]:
    with RawWorker() as one:
        yield one


def turn(n: int) -> list[dict[str, str]]:
    what = SUBJECTS[n % len(SUBJECTS)]
    return [
        {
            "role": "user",
            "content": f"Tell me about {what}, how it was made and who came there, number {n} of the list.",
        },
        {
            "role": "assistant",
            "content": f"People say that {what} was there before them; nobody wrote down more than {n}.",
        },
    ]


def conversation(n_turns: int, question: str = "And what came then?") -> list[dict[str, str]]:
    said = [message for n in range(n_turns) for message in turn(n)]
    return [{"role": "system", "content": SYSTEM}, *said, {"role": "user", "content": question}]


def shifted(answer: Answer) -> int:
    return int(answer.done["usage"]["shifted_tokens"])


def close(one: Answer, other: Answer) -> bool:
    pairs = zip(probabilities(one), probabilities(other), strict=True)
    return one.ids == other.ids and max(abs(a - b) for a, b in pairs) < MOVED


def fresh(worker: RawWorker, model: Path, messages: list[dict[str, str]]) -> Answer:
    worker.load(model, **CONTEXT)
    return worker.ask(messages=messages, overflow="drop_oldest", **ASK)


@pytest.mark.parametrize("kind", memory_models.KINDS)
def test_a_long_chat_goes_on_when_its_oldest_turns_are_dropped(
    worker: RawWorker, models: dict[str, Path], kind: str
) -> None:
    expected = {n: fresh(worker, models[kind], conversation(n)) for n in (11, 12, 13)}
    assert all(answer.done.get("n_dropped") for answer in expected.values())
    worker.load(models[kind], **CONTEXT)
    for n in range(14):
        answer = worker.ask(messages=conversation(n), overflow="drop_oldest", cache_key="a", **ASK)
        if n not in expected:
            continue
        usage, reread = answer.done["usage"], answer.done.get("reread")
        assert close(answer, expected[n]), n
        if kind == "llama":
            assert shifted(answer) > 150, "two turns at least stay"
            assert usage["prompt_tokens"] - usage["cached_tokens"] < 80, "only the last answer and the question are new"
        else:
            assert shifted(answer) == 0
            assert reread["cause"] in ("dropped", "window", "state") and reread["n_tokens"] > 150


def test_pinned_turns_leave_two_gaps(worker: RawWorker, models: dict[str, Path]) -> None:
    def pinned(n_turns: int) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = [*conversation(n_turns)]
        messages[3] = {**messages[3], "pinned": True}  # the second question
        return messages

    expected = fresh(worker, models["llama"], pinned(12))
    assert expected.done.get("n_dropped", 0) >= 4
    worker.load(models["llama"], **CONTEXT)
    for n in range(5, 12):
        worker.ask(messages=pinned(n), overflow="drop_oldest", cache_key="a", **ASK)
    answer = worker.ask(messages=pinned(12), overflow="drop_oldest", cache_key="a", **ASK)
    assert close(answer, expected) and shifted(answer) > 150


def test_other_instructions_are_not_moved_under(worker: RawWorker, models: dict[str, Path]) -> None:
    """What was computed under the old instructions must not be used under the new ones."""
    messages = conversation(12)
    messages[0] = {"role": "system", "content": SYSTEM.replace("patient", "grumpy")}
    expected = fresh(worker, models["llama"], messages)
    worker.load(models["llama"], **CONTEXT)
    worker.ask(messages=conversation(11), overflow="drop_oldest", cache_key="a", **ASK)
    answer = worker.ask(messages=messages, overflow="drop_oldest", cache_key="a", **ASK)
    assert shifted(answer) == 0 and cached(answer) < 20 and close(answer, expected)


def test_cells_that_another_chat_shares_are_not_moved_under_it(models: dict[str, Path]) -> None:
    """A cell has one place for all who share it. While the other chat writes, this one reads again; when the other one
    rests, it gives its cells up."""
    with RawWorker() as plain:
        long = fresh(plain, models["llama"], conversation(11))
        plain.load(models["llama"], **CONTEXT)
        other_alone = plain.ask(messages=conversation(6, "Why?"), temperature=0, max_tokens=50)
    for running in (True, False):
        with RawWorker(hooks={"SLOW_TOKEN_S": "0.03"}) as worker:
            worker.load(models["llama"], **{**CONTEXT, "n_ctx": 1024})
            # the limit of 512 stands in for a small context: what is dropped depends on max_tokens only
            first = worker.generate(messages=conversation(6, "Why?"), cache_key="a", sampling={**ASK, "max_tokens": 50})
            worker.wait("token", id=first)
            second = worker.ask(messages=conversation(6), cache_key="b", **ASK)
            assert cached(second) > 200
            if not running:
                worker.answer(first)
            wide = {"temperature": 0, "max_tokens": 1024}
            request = worker.generate(messages=conversation(11), overflow="drop_oldest", cache_key="b", sampling=wide)
            for _ in range(len(long.ids)):
                worker.wait("token", id=request)
            worker.stop(request)
            answer = worker.answer(request)
            usage = answer.done["usage"]
            assert answer.done.get("n_dropped", 0) > 0
            assert (usage["shifted_tokens"] > 100) is not running
            a = worker.answer(first)
            assert a.ids == other_alone.ids
            again = worker.ask(messages=conversation(6, "Why?"), cache_key="a", temperature=0, max_tokens=50)
            assert again.ids == other_alone.ids


TEMPLATE = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[reply]"


@pytest.fixture(scope="module")
def talker(scripted_model: Make) -> str:
    words = [" one", " two", " three", " four"]
    return str(scripted_model(words, template=TEMPLATE, tail="[reply]", loop=True)["path"])


def test_an_answer_rolls_on_past_the_end_of_the_context(talker: str) -> None:
    with RawWorker() as worker:
        assert worker.load(talker, n_ctx=512)["n_ctx"] == 512
        messages = conversation(5)
        n_prompt = len(worker.tokens_of(messages=messages))
        assert 250 < n_prompt < 480
        plain = worker.ask(messages=messages, temperature=0)
        assert plain.reason == "length" and len(plain.tokens) == 512 - n_prompt
        rolled = worker.ask(messages=messages, temperature=0, max_tokens=380, overflow="roll")
        assert len(rolled.tokens) == 380 and rolled.text == " one two three four" * 95
        assert any("oldest" in note for note in rolled.done["notes"])
        assert rolled.done["usage"]["prompt_tokens"] <= n_prompt
        endless = worker.ask(messages=messages, temperature=0, overflow="roll")
        assert endless.reason == "length" and 380 < len(endless.tokens) < 512, "what must stay is never given up"
        assert endless.text.startswith(" one two three four" * 90)
        assert worker.ask(messages=conversation(1), temperature=0, max_tokens=4).text == " one two three four"


@pytest.mark.parametrize("kind", ["window", "recurrent", "hybrid"])
def test_rolling_reads_again_where_nothing_can_be_moved(worker: RawWorker, models: dict[str, Path], kind: str) -> None:
    worker.load(models[kind], **CONTEXT)
    messages = conversation(5)
    answer = worker.ask(messages=messages, temperature=0, max_tokens=300, overflow="roll")
    n_prompt = answer.done["usage"]["prompt_tokens"]
    assert answer.reason in ("length", "stop") and n_prompt + len(answer.tokens) > 512
    # after the roll it says what it would say to the conversation as it is then
    assert any("oldest" in note for note in answer.done["notes"])
