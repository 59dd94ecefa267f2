"""Thinking apart from the answer, however the tokens cut the text (a tag arrives as " <", "th", "ink", ">")."""

from __future__ import annotations

import random

import pytest

from engine.chat.thinking import KNOWN_TAGS, ThinkSplitter, tag_pair

FENCE = "```"


def split(pieces: list[str] | str, **options: object) -> ThinkSplitter:
    splitter = ThinkSplitter(**options)  # type: ignore[arg-type]
    shown: dict[str, str] = {"text": "", "reasoning": ""}
    for piece in [pieces] if isinstance(pieces, str) else pieces:
        for channel, text in splitter.feed(piece):
            shown[channel] += text
    for channel, text in splitter.finish():
        shown[channel] += text
    if not splitter.late:
        assert (shown["text"], shown["reasoning"]) == (splitter.text, splitter.reasoning)
    return splitter


CASES = [
    # answer, options, reasoning, text, closed
    ("<think>abc</think>def", {}, "abc", "def", True),
    ("<think>\nabc\n</think>\n\ndef\n", {}, "abc", "def\n", True),
    ("<think>abc", {}, "abc", "", False),
    ("<think>abc\n  ", {}, "abc", "", False),
    ("<think></think>def", {}, "", "def", True),
    ("<think>\n\n</think>\n\ndef", {}, "", "def", True),
    ("<thinking>abc</thinking>def", {}, "abc", "def", True),
    ("<thinking>abc</think>def", {}, "abc</think>def", "", False),
    ("[THINK]abc[/THINK]def", {"tag": "[THINK]"}, "abc", "def", True),
    ("◁think▷abc◁/think▷def", {}, "abc", "def", True),
    ("<think:opensource>abc</think:opensource>def", {"tag": "think:opensource"}, "abc", "def", True),
    (" \n<think>abc</think> def", {}, "abc", "def", True),
    ("abc</think>def", {"opened": True}, "abc", "def", True),
    ("\nabc\n</think>\n\ndef", {"opened": True, "tag": "think"}, "abc", "def", True),
    ("abc", {"opened": True}, "abc", "", False),
    ("abc</think>def", {"allow_late_close": True}, "abc", "def", True),
    ("abc</think>def", {}, "", "abc</think>def", True),
    ("abc</think>def</think>ghi", {"allow_late_close": True}, "abc", "def</think>ghi", True),
    ("<think>a</think>b</think>c", {"allow_late_close": True}, "a", "b</think>c", True),
    (f"{FENCE}\n<think>\n{FENCE}\nabc", {}, "", f"{FENCE}\n<think>\n{FENCE}\nabc", True),
    (f"{FENCE}\na</think>\n{FENCE}\nb", {"allow_late_close": True}, "", f"{FENCE}\na</think>\n{FENCE}\nb", True),
    (f"{FENCE}\nx\n{FENCE}\na</think>b", {"allow_late_close": True}, f"{FENCE}\nx\n{FENCE}\na", "b", True),
    ("The tag `</think>` ends it", {"allow_late_close": True}, "", "The tag `</think>` ends it", True),
    ("Use <think> here", {}, "", "Use <think> here", True),
    ("<thinker>abc", {}, "", "<thinker>abc", True),
    ("  plain answer \n", {}, "", "  plain answer \n", True),
    ("a < b and <thi", {}, "", "a < b and <thi", True),
    ("<thi", {}, "", "<thi", True),
    ("  ", {}, "", "  ", True),
    ("", {}, "", "", True),
    ("<think>a</think><think>b</think>c", {}, "a\n\nb", "c", True),
    ("<think>a</think>b <think>c</think>", {}, "a", "b <think>c</think>", True),
    ("<think>1 </ 2 </thi", {}, "1 </ 2 </thi", "", False),
]


@pytest.mark.parametrize(("answer", "options", "reasoning", "text", "closed"), CASES)
def test_every_way_of_cutting_gives_the_same(
    answer: str, options: dict[str, object], reasoning: str, text: str, closed: bool
) -> None:
    draw = random.Random(answer)
    ways: list[list[str]] = [[answer], list(answer)]
    for _ in range(30):
        cuts = sorted(draw.sample(range(len(answer) + 1), min(len(answer), draw.randint(1, 5))))
        ways.append([answer[a:b] for a, b in zip([0, *cuts], [*cuts, len(answer)], strict=True)])
    for pieces in ways:
        got = split(pieces, **options)
        assert (got.reasoning, got.text, got.closed) == (reasoning, text, closed), pieces
        assert bool(got.note) == (not closed)


def test_the_way_the_tag_arrives_from_a_real_model() -> None:
    got = split([" <", "th", "ink", ">", "\n", "ab", "c", "\n</", "think", ">\n\n", "def"], tag="think")
    assert (got.reasoning, got.text, got.tag) == ("abc", "def", "think")


def test_text_is_not_held_back_longer_than_a_tag_could_be() -> None:
    splitter = ThinkSplitter("think")
    assert splitter.feed("H") == [("text", "H")]
    assert splitter.feed("i <") == [("text", "i <")]
    inside = ThinkSplitter("think", opened=True)
    assert inside.feed("ab") == [("reasoning", "ab")]
    assert inside.feed("c </th") == [("reasoning", "c")]
    assert inside.feed("at") == [("reasoning", " </that")]


def test_a_late_closing_tag_moves_the_text_to_the_reasoning() -> None:
    splitter = ThinkSplitter("think", allow_late_close=True)
    assert splitter.feed("so that") == [("text", "so that")]
    assert not splitter.late
    assert splitter.feed("</think>\n\nYes") == [("text", "Yes")]
    assert (splitter.late, splitter.reasoning, splitter.text, splitter.tag) == (True, "so that", "Yes", "think")


def test_every_known_tag_has_two_ends() -> None:
    for name in KNOWN_TAGS:
        opening, closing = tag_pair(name)
        assert opening != closing
        got = split(f"{opening}x{closing}y")
        assert (got.tag, got.reasoning, got.text) == (name, "x", "y")


def test_fuzz_no_character_is_lost_or_made() -> None:
    draw = random.Random(7)
    alphabet = ["<think>", "</think>", "<", ">", "/", "think", "a", " ", "\n", "`", "```\n", "</", "<thi"]
    for _ in range(3000):
        answer = "".join(draw.choices(alphabet, k=draw.randint(0, 12)))
        options = {"opened": draw.random() < 0.3, "allow_late_close": draw.random() < 0.5}
        whole, letters = split(answer, **options), split(list(answer), **options)
        assert (whole.text, whole.reasoning, whole.closed) == (letters.text, letters.reasoning, letters.closed), answer
        kept = "".join((whole.reasoning + whole.text).split())
        tags = answer.replace("<think>", "").replace("</think>", "")
        assert len(kept) >= len("".join(tags.split())), answer
