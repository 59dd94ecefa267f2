"""UTF-8 and stop texts give the same result however the input is split."""

from __future__ import annotations

import random

import pytest

from engine.worker.text import StopMatcher, Utf8Stream

BYTES = [
    "歪".encode(),
    "👨‍👩‍👧‍👦 é ñ 😀".encode(),
    b"\xe6",
    b"\xffok",
    b"\xe6A",
    b"\xf0\x9f\x98",
    b"\xc0\xaf\xed\xa0\x80\xf8\x88",
    bytes(range(256)),
]


@pytest.mark.parametrize("data", BYTES)
def test_decoding_piece_by_piece_is_decoding_at_once(data: bytes) -> None:
    whole = data.decode("utf-8", "replace")
    for size in (1, 2, 3, len(data)):
        stream = Utf8Stream()
        text = "".join(stream.feed(data[i : i + size]) for i in range(0, len(data), size)) + stream.flush()
        assert text == whole
    assert Utf8Stream().flush() == ""


def test_a_character_comes_with_its_last_byte() -> None:
    stream = Utf8Stream()
    assert [stream.feed(bytes([b])) for b in "歪".encode()] == ["", "", "歪"]


def cut(pieces: list[str], stops: list[str]) -> tuple[str, str, list[str]]:
    matcher = StopMatcher(stops)
    shown = [matcher.feed(p) for p in pieces]
    shown.append(matcher.flush())
    return "".join(shown), matcher.matched, shown


@pytest.mark.parametrize(
    ("text", "stops", "expected", "matched"),
    [
        (" alpha beta gamma delta", ["beta gamma"], " alpha ", "beta gamma"),
        ("alpha beta", ["beta gamma"], "alpha beta", ""),
        ("xabcd", ["bc", "abcd"], "x", "abcd"),  # the one that begins first, though the other is complete before it
        ("xabce", ["bc", "abcd"], "xa", "bc"),
        ("xab", ["b", "abcd"], "xa", "b"),  # the end decides: the longer one did not come
        ("aab", ["ab"], "a", "ab"),
        ("ababac", ["abac"], "ab", "abac"),
        ("你好，世界", ["好，世"], "你", "好，世"),
        ("x\n\nUser:", ["\nUser:"], "x\n", "\nUser:"),
        ("stop", ["stop"], "", "stop"),
        ("abc", ["abc", "ab"], "", "ab"),
    ],
)
def test_the_stop_that_begins_first_wins(text: str, stops: list[str], expected: str, matched: str) -> None:
    for size in (1, 2, 3, len(text)):
        shown, found, _ = cut([text[i : i + size] for i in range(0, len(text), size)], stops)
        assert (shown, found) == (expected, matched), size


def test_nothing_of_a_stop_is_ever_shown_and_nothing_else_is_held_back() -> None:
    matcher = StopMatcher(["beta gamma"])
    assert [matcher.feed(p) for p in ("alpha b", "eta", " ", "x")] == ["alpha ", "", "", "beta x"]
    assert matcher.feed("beta gammaX") == "" and matcher.matched == "beta gamma"
    assert matcher.feed("more") == "" and matcher.flush() == ""


def test_random_splits_of_random_texts() -> None:
    rng = random.Random(5)
    for _ in range(3000):
        text = "".join(rng.choice("ab") for _ in range(rng.randint(0, 14)))
        stops = ["".join(rng.choice("ab") for _ in range(rng.randint(1, 5))) for _ in range(rng.randint(1, 3))]
        starts = [(at, len(s)) for s in stops if (at := text.find(s)) >= 0]
        expected = text[: min(starts)[0]] if starts else text
        matched = text[min(starts)[0] :][: min(starts)[1]] if starts else ""
        pieces, rest = [], text
        while rest:
            n = rng.randint(1, len(rest))
            pieces.append(rest[:n])
            rest = rest[n:]
        shown, found, _ = cut(pieces, stops)
        assert (shown, found) == (expected, matched), (text, stops, pieces)
