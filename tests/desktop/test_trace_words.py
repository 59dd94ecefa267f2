"""What the trace view says: tokens as text, folds, the time line, stages, why the prompt was read again."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from pytestqt.qtbot import QtBot
from trace_help import prompt_of, trace_of

from desktop.views.trace import pieces, words
from desktop.views.trace.prompt_text import WHOLE, prepare
from desktop.views.trace.sections import Sections
from desktop.views.trace.timeline import places_of
from desktop.views.trace.token_rows import chosen_rows
from desktop.views.trace.written import tint
from engine.events import Marks, Stage, TokenDetail
from engine.message import Reread
from engine.sampling import SamplingParams
from engine.trace import Chunk, Part, Step, Trace


def test_a_character_in_three_tokens_is_shown_once() -> None:
    emoji = "🙂".encode()
    assert pieces.decode([b"a", emoji[:1], emoji[1:3], emoji[3:], b"!"]) == ["a", "◌", "◌", "🙂", "!"]
    assert pieces.decode([b"\xff", b"x"]) == ["\\xff", "x"], "bytes that are no text stay visible"
    assert pieces.decode([emoji[:2], b"x"])[1].endswith("x")
    assert pieces.decode([b""]) == [""]


@pytest.mark.parametrize(
    ("piece", "shown"),
    [
        (b" alone", "␣alone"),
        (b"\n", "↵"),
        (b"\t\tx", "⇥⇥x"),
        (b"", "(nothing)"),
        ("\u00a0".encode(), "⍽"),
        ("\u202e".encode(), "\\u202e"),
        (b"\xe2\x80", "\\xe2\\x80"),
        (b"<|im_end|>", "<|im_end|>"),
    ],
)
def test_a_token_by_itself(piece: bytes, shown: str) -> None:
    assert pieces.label(piece) == shown


def test_long_tokens_lose_their_middle_and_are_spoken() -> None:
    assert len(pieces.label(b"=" * 500)) <= pieces.LONGEST
    assert pieces.spoken(b" alone") == "space, alone"
    assert pieces.spoken(b"\n\n") == "2 times line end"


def test_short_prompts_are_whole_and_long_ones_show_what_matters() -> None:
    assert prepare(trace_of()).folds() == []
    turns = [("user", "word " * 400), ("assistant", "answer " * 400)] * 6
    messages = [("system", "You are terse."), *turns, ("user", "And why?")]
    trace = trace_of(messages=messages, n_cached=4000)
    text = prepare(trace)
    folds = text.folds()
    hidden = {i for fold in folds for i in range(fold.first, fold.end)}
    assert len(text) - len(hidden) < WHOLE
    last = [i for i, owner in enumerate(text.owners) if owner == len(messages) - 1]
    assert not hidden & set(last), "the question is shown"
    assert not hidden & set(range(3, 8)), "the beginning is shown"
    assert not hidden & set(range(3996, 4010)), "where reading began is shown"
    assert all(a.end <= b.first for a, b in pairwise(folds))
    assert "tokens of earlier turns" in folds[0].words


def test_states_and_row_ends_of_the_prompt() -> None:
    text = prepare(trace_of(n_cached=10, n_shifted=3, n_restored=4))
    states = [text.state(i) for i in range(12)]
    assert states == ["restored"] * 4 + ["cached"] * 3 + ["shifted"] * 3 + ["read"] * 2
    raw, owners = prompt_of([("system", "Be terse."), ("user", "Hi")])
    ends = [i for i, on in enumerate(text.breaks) if on]
    assert raw[:3] == [b"<|im_start|>", b"system", b"\n"] and owners[0] == -1
    assert text.breaks[2] == 0, "the first row does not end behind the role"
    assert all(text.raw[i] == b"\n" for i in ends) and len(ends) == 2, "one row for each message"
    assert text.text.startswith("<|im_start|>system\nYou are a terse")


def test_the_time_line_adds_up_and_says_what_came_from_the_cache() -> None:
    trace = trace_of(n_cached=20)
    parts = trace.parts()
    assert trace.wall_s is not None
    assert math.isclose(sum(part.took_s for part in parts), trace.wall_s, rel_tol=0.02)
    said = words.timeline_words(trace)
    assert f"prefill {trace.n_prompt - 20:,} of {trace.n_prompt:,} tokens, 197 ms (20 came from the cache)" in said
    assert words.decode_words(trace, 1.0).startswith(f"decode · {len(trace.steps)} tokens · ")
    branch = trace_of(n_cached=trace.n_prompt, n_forced=5, chunks=())
    assert words.decode_words(branch, 1.0).startswith(f"decode · {len(branch.steps) - 5} tokens · ")
    cached = f"({trace.n_prompt:,} of the prompt came from the cache)"
    assert words.part_words(branch, "prefill", 0.02) == f"prefill up to token 5 of the answer, 20.0 ms {cached}"
    places = places_of(parts, 600.0)
    assert math.isclose(sum(width for _, width in places), 600.0, abs_tol=0.01)
    assert all(width >= 3.0 for part, (_, width) in zip(parts, places, strict=True) if part.took_s > 0)
    assert places_of((Part("queue", 0.0, 0.0),), 600.0) == [(0.0, 0.0)]


def test_nothing_that_is_unknown_is_shown_as_a_number() -> None:
    live = trace_of(marks=None, wall_s=None, end=None, chunks=())
    assert words.timeline_title(live) == "One request" and "comes with the end" in words.timeline_note(live)
    assert words.step_time(live, 0)[0] == "—" and words.step_time(live, 0)[1]
    assert words.percent(None) == words.percent(math.nan) == words.bits(math.inf) == words.duration(-1.0) == "—"
    bare = Step(5, b"x", 0.1)
    assert words.probability(bare) is None and words.surprise(bare) is None
    assert chosen_rows(None, "x", SamplingParams(), None)[0].value == "—"
    assert words.chunk_words(Chunk(0, 5, 0.0, 0.0))[3] == "—"
    assert words.percent(1e-9) == "< 0.01 %"


def test_each_stage_in_words() -> None:
    sampling = SamplingParams(temperature=0.7, top_k=20, repeat_penalty=1.05, logit_bias={5: -1.0})
    told = [
        (Stage("logit_bias", 100, 1), ("logit bias, 1 token", "1 changed")),
        (Stage("penalties", 100, 3), ("repeat penalty 1.05", "3 changed")),
        (Stage("top_k", 20), ("top-k 20", "20 left")),
        (Stage("top_p", 7), ("top-p 0.95", "7 left")),
        (Stage("temperature", 7), ("temperature 0.7", "sharpened")),
        (Stage("format", 12), ("answer format", "12 allowed")),
    ]
    for stage, said in told:
        assert words.stage_words(stage, sampling) == said
    hot = msgspec.structs.replace(sampling, temperature=1.3)
    assert words.stage_words(Stage("temperature", 7), hot)[1] == "flattened"


def test_the_draw_in_words() -> None:
    drawn = TokenDetail(1, 2.0, (), (Stage("top_k", 40),), chosen_p=0.5, draw_from=0.25, draw_to=0.75)
    assert words.draw_words(drawn)[0] == "draw from 0.250 to 0.750"
    greedy = TokenDetail(1, 2.0, (), (Stage("temperature", 1),))
    assert words.draw_words(greedy)[0].startswith("no draw")
    assert words.draw_words(TokenDetail(1, 2.0, ()))[0] == "not drawn"


def test_why_it_was_read_again() -> None:
    fresh = trace_of()
    assert words.reading_title(fresh) == "Why was all of it read?"
    assert f"all {fresh.n_prompt:,} tokens had to be read" in words.reading_words(fresh)
    messages = [("user", "one " * 30), ("assistant", "two " * 30), ("user", "three")]
    follow = trace_of(messages=messages, n_cached=72)
    assert words.reading_title(follow) == "Why was so little read?"
    assert words.reading_words(follow).endswith("Reading began at your new message.")
    edited = msgspec.structs.replace(
        follow, n_cached=20, reread=Reread(index=20, cause="changed", n_tokens=52, old=" one", new=" uno")
    )
    said = words.reading_words(edited)
    assert words.reading_title(edited) == "Why was part of it read again?"
    assert "Token 21 is the first that differs: “␣uno” where “␣one” had been." in said
    for cause in ("tokens", "thinking", "dropped", "window", "state", "given_up", "stopped"):
        one = msgspec.structs.replace(edited, reread=Reread(index=20, cause=cause, n_tokens=52))  # type: ignore[arg-type]
        assert "52 tokens had been read before and were read again: " in words.reading_words(one)


def test_surer_tokens_are_paler() -> None:
    assert tint(1.0) == tint(0.98) == 0.0
    assert 0 < tint(0.9) < tint(0.5) < tint(0.01) <= 1.0


def test_times_of_tokens() -> None:
    trace = trace_of()
    assert words.step_time(trace, 0)[0] == "2.0 ms"
    assert words.step_time(trace, 1)[0] == "20.0 ms"
    early = msgspec.structs.replace(trace, marks=Marks(template_from_s=0.0, template_to_s=0.0, end_s=0.1))
    assert words.step_time(early, 0)[0] == "—", "reading ended at no known time"


def stopped_while_reading(**more: Any) -> Trace:
    """A request that was stopped when 20 tokens of its prompt had been read, 4 of them from the cache."""
    marks = Marks(template_from_s=0.004, template_to_s=0.01, started_s=0.011, cached_s=0.012, end_s=1.5)
    fields = {
        "chunks": (Chunk(4, 16, 0.012, 0.9),),
        "steps": (),
        "end": None,
        "marks": marks,
        "wall_s": 1.5,
        "finish_reason": "cancelled",
        **more,
    }
    return msgspec.structs.replace(trace_of(n_cached=4), **fields)


def test_stopped_while_reading_only_what_was_read_is_called_so() -> None:
    trace = stopped_while_reading()
    n = trace.n_prompt
    assert words.part_words(trace, "prefill", 1.488) == (
        f"prefill 16 of {n} tokens, 1.49 s (4 came from the cache), then it was stopped"
    )
    assert words.part_words(trace, "queue", 0.004) == "queue 4.0 ms", "only the part that was going on was stopped"
    assert f"The request ended when 16 of the {n - 4} tokens had been read." in words.reading_words(trace)
    text = prepare(trace)
    states = [text.state(i) for i in range(n)]
    assert states == ["cached"] * 4 + ["read"] * 16 + ["unread"] * (n - 20) and text.n_read == 16
    failed = stopped_while_reading(finish_reason="error", chunks=())
    assert words.part_words(failed, "prefill", 1.488).endswith("then it failed")
    assert prepare(failed).state(4) == "unread"
    whole = trace_of()
    assert words.cut_short(whole) == "" and "ended when" not in words.reading_words(whole)


def test_while_it_is_read_the_rest_is_not_called_read(qtbot: QtBot) -> None:
    sections = Sections()
    qtbot.addWidget(sections)
    live = stopped_while_reading(marks=None, wall_s=None, finish_reason=None)
    sections.show_trace(live, same_answer=False)
    sections.show_prompt(prepare(live))
    n = live.n_prompt
    told = [said for _, said in sections.state_legend.entries]
    assert told == ["from the cache 4", "read now 16", f"not read {n - 20}"]
    further = msgspec.structs.replace(live, chunks=(*live.chunks, Chunk(20, n - 20, 1.0, 0.5)))
    sections.show_trace(further, same_answer=True)
    assert sections.chips.text.state(n - 1) == "read"
    assert [said for _, said in sections.state_legend.entries] == ["from the cache 4", f"read now {n - 4}"]
    # the prompt may be made ready from an earlier look
    sections.show_prompt(prepare(live))
    assert sections.chips.text.state(n - 1) == "read"
