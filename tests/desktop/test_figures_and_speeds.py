"""Numbers on screen: units, dashes, and the three speeds of an answer."""

from __future__ import annotations

import math

import pytest

from desktop import figures
from desktop.speeds import Speeds, of_record
from engine.events import PromptProgress, Token
from engine.message import GenerationRecord, Timings, Usage


@pytest.mark.parametrize(
    ("n_bytes", "words"),
    [
        (0, "0 MiB"),
        (5 * 1024**2, "5.0 MiB"),
        (412 * 1024**2, "412 MiB"),
        (5_000_000_000, "4.7 GiB"),
        (None, "—"),
        (-1, "—"),
    ],
)
def test_sizes(n_bytes: int | None, words: str) -> None:
    assert figures.size(n_bytes) == words


def test_rates_and_seconds() -> None:
    assert figures.rate(48.23) == "48.2"
    assert figures.rate(1940.2) == "1,940"
    assert figures.seconds(0.214) == "0.21 s"
    assert figures.seconds(12.34) == "12.3 s"
    assert figures.seconds(125) == "2 min 05 s"
    assert figures.count(1884) == "1,884"
    for nothing in (None, math.inf, math.nan, -1.0):
        assert figures.rate(nothing) == "—"
        assert figures.seconds(nothing) == "—"


def test_prompt_reading_is_not_counted_into_the_writing_speed() -> None:
    """2 s of reading, then 43 tokens, one each 40 ms."""
    speeds = Speeds()
    speeds.add(PromptProgress(n_prompt=1000, n_cached=200, n_done=600, elapsed_s=1.0))
    assert speeds.reading
    assert speeds.prefill_tps == pytest.approx(400)
    speeds.add(PromptProgress(n_prompt=1000, n_cached=200, n_done=1000, elapsed_s=2.0))
    assert speeds.prefill_tps == pytest.approx(400)
    for i in range(43):
        speeds.add(Token(index=i, token_id=1, piece=b"x", text="", time_s=2.0 + 0.04 * i))
    assert speeds.ttft_s == 2.0
    assert speeds.decode_tps == pytest.approx(25, rel=0.02)
    assert speeds.n_written == 43
    assert speeds.n_used == 1043
    assert not speeds.reading


def test_tokens_count_even_without_text() -> None:
    speeds = Speeds()
    for i, text in enumerate(("", "", "é")):
        speeds.add(Token(index=i, token_id=1, piece=b"\xc3", text=text, time_s=float(i)))
    assert speeds.n_written == 3


def test_tokens_that_were_given_tell_no_speed() -> None:
    """A branch: its prompt is in the cache, 50 tokens are given at once, then read, then 11 are written."""
    speeds = Speeds()
    speeds.add(PromptProgress(n_prompt=80, n_cached=80, n_done=80, elapsed_s=0.01))
    for i in range(50):
        speeds.add(Token(index=i, token_id=1, piece=b"x", time_s=0.01 + i * 1e-5, forced=True))
        assert speeds.reading and speeds.ttft_s is None and speeds.decode_tps is None
    assert speeds.n_used - speeds.n_written == 80, "what stands before the answer"
    for i in range(11):
        speeds.add(Token(index=50 + i, token_id=1, piece=b"x", time_s=0.5 + 0.1 * i))
    assert (speeds.ttft_s, speeds.n_written, speeds.n_used) == (0.5, 61, 141)
    assert speeds.decode_tps == pytest.approx(10) and not speeds.reading


def test_what_is_not_defined_is_nothing() -> None:
    speeds = Speeds()
    speeds.add(PromptProgress(n_prompt=10, n_cached=10, n_done=10, elapsed_s=0.0))
    speeds.add(Token(index=0, token_id=1, piece=b"x", time_s=0.5))
    assert speeds.decode_tps is None
    assert speeds.prefill_tps is None
    speeds.add(Token(index=1, token_id=1, piece=b"x", time_s=0.5))  # a clock without progress
    assert speeds.decode_tps is None


def test_a_stored_answer_gives_its_own_figures() -> None:
    record = GenerationRecord(
        usage=Usage(prompt_tokens=100, completion_tokens=20, cached_tokens=60),
        timings=Timings(ttft_s=0.3, prefill_tps=500.0, decode_tps=30.0),
    )
    speeds = of_record(record)
    assert (speeds.n_used, speeds.n_cached, speeds.ttft_s, speeds.decode_tps) == (120, 60, 0.3, 30.0)
    assert of_record(None) == Speeds()
