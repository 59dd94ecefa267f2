"""What reaches the screen: characters, stop texts, end tokens. With models that say exact texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from raw_worker import Answer, RawWorker

TAIL = "[reply]"
Make = Callable[..., dict[str, Any]]
FAMILY = "👨‍👩‍👧‍👦"


@pytest.fixture(scope="module")
def worker() -> Iterator[RawWorker]:
    with RawWorker() as one:
        yield one


@pytest.fixture
def say(worker: RawWorker, scripted_model: Make) -> Callable[..., Answer]:
    """Load a model that says the script; ask it once."""

    def ask(script: Any, build: dict[str, Any] | None = None, **sampling: Any) -> Answer:
        made = scripted_model(script, tail=TAIL, **(build or {}))
        worker.load(made["path"], n_ctx=256, n_slots=1)
        answer = worker.ask(prompt=f"Go{TAIL}", temperature=0, **sampling)
        assert answer.streamed == answer.text
        return answer

    return ask


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ([b"\xe6", b"\xad", b"\xaa"], "歪"),
        ([bytes([b]) for b in FAMILY.encode()], FAMILY),
        (["Hello ", b"\xe6"], "Hello \ufffd"),
        ([b"\xff", "ok"], "\ufffdok"),
        ([b"\xe6", "A"], "\ufffdA"),
        ([b"\xf0", b"\x9f", "x", b"\x98", "y"], "\ufffdx\ufffdy"),
    ],
)
def test_every_byte_arrives(say: Callable[..., Answer], script: Any, expected: str) -> None:
    answer = say(script)
    assert answer.text == expected and answer.reason == "stop"
    assert answer.raw.decode("utf-8", "replace") == expected
    assert answer.done["usage"]["completion_tokens"] == len(answer.tokens) == len(script) + ("Hello " in script)


def test_a_character_cut_by_the_token_limit_shows_that_something_was_there(say: Callable[..., Answer]) -> None:
    answer = say(["ok", *[bytes([b]) for b in "歪".encode()]], max_tokens=3)
    assert answer.text == "ok\ufffd" and answer.reason == "length" and len(answer.tokens) == 3


@pytest.mark.parametrize(
    ("stop", "expected", "matched"),
    [
        (["beta gamma"], " alpha ", "beta gamma"),
        (["gamma delta", "beta"], " alpha ", "beta"),
        (["ta gam"], " alpha be", "ta gam"),
        (["beta gammb"], " alpha beta gamma delta", ""),
        (["delta!"], " alpha beta gamma delta", ""),
    ],
)
def test_stop_texts_across_tokens(say: Callable[..., Answer], stop: list[str], expected: str, matched: str) -> None:
    answer = say([" alpha", " beta", " gamma", " delta"], stop=stop)
    assert answer.text == expected and answer.reason == "stop"
    assert answer.done.get("stop_string", "") == matched


def test_a_beginning_of_a_stop_at_the_end_is_shown(say: Callable[..., Answer]) -> None:
    for limit in (None, 2):
        answer = say([" alpha", " beta"], stop=["beta gamma"], max_tokens=limit)
        assert answer.text == " alpha beta" and "stop_string" not in answer.done


def test_a_stop_inside_a_character_that_takes_several_tokens(say: Callable[..., Answer]) -> None:
    answer = say(["a", *[bytes([b]) for b in "歪b".encode()], "c"], stop=["歪"])
    assert answer.text == "a" and answer.done["stop_string"] == "歪"


def test_every_end_token_of_the_vocabulary_ends_the_answer(say: Callable[..., Answer]) -> None:
    """The named end of turn as well as the end of text, wherever the script puts it; neither is shown or counted."""
    for end in ("<|im_end|>", "<|endoftext|>"):
        answer = say(["Hello", " world"], {"vocab": "qwen2", "end": end})
        assert answer.text == "Hello world" and answer.reason == "stop" and len(answer.tokens) == 2


def test_thinking_is_kept_apart(say: Callable[..., Answer]) -> None:
    answer = say(["<th", "ink>", "Let me", " see", "</th", "ink>", "\n\n", "Yes", "."])
    done = answer.done
    assert done["text"] == "Yes." and done["reasoning"] == "Let me see" and done["reasoning_tag"] == "think"
    thought = [e for e in answer.steps if e.get("channel") == "reasoning"]
    assert "".join(e.get("text", "") for e in thought) == "Let me see"
    assert 2 < done["reasoning_tokens"] < len(answer.tokens)
    assert done["usage"]["completion_tokens"] == len(answer.tokens) == len(answer.steps)


def test_a_user_defined_token_is_text(say: Callable[..., Answer]) -> None:
    """<think> is one token of its own in many vocabularies, of the type whose text is meant to be seen."""
    answer = say(
        [{"tok": "<think>"}, "Hm", {"tok": "</think>"}, "Yes"],
        {"add_tokens": [("<think>", 4), ("</think>", 4)]},
    )
    assert answer.done["text"] == "Yes" and answer.done["reasoning"] == "Hm"
    assert answer.raw == b"<think>Hm</think>Yes"


def test_an_answer_that_ends_inside_thinking_says_so(say: Callable[..., Answer]) -> None:
    done = say(["<think>", "Let me", " see"]).done
    assert done["text"] == "" and done["reasoning"] == "Let me see" and done["reasoning_closed"] is False
    assert done["notes"]
