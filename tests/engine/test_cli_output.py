"""What goes to standard output and what to standard error, terminal or pipe."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.cli_output import JsonOutput, PlainOutput, error_record, exit_status, figures, for_terminal, json_line
from engine.errors import ContextFull, EngineError, InvalidRequest, NotAModel, WorkerDied
from engine.events import Done, LoadProgress, Token
from engine.message import Timings, Usage


def token(index: int, text: str, channel: str = "text") -> Token:
    return Token(index=index, token_id=1, piece=text.encode(), text=text, channel=channel)


def done(text: str, **more: object) -> Done:
    values: dict[str, object] = {"finish_reason": "stop", "usage": Usage(), "timings": Timings(), **more}
    return Done(text=text, **values)


def on_terminal() -> PlainOutput:
    output = PlainOutput()
    output.terminal = True
    output.expect(thinks=True)
    return output


def test_a_pipe_gets_the_answer_alone(capsys: pytest.CaptureFixture[str]) -> None:
    output = PlainOutput(figures=True)
    output.expect(thinks=False)
    for event in (LoadProgress(fraction=0.5), token(0, "Hel"), token(1, "lo"), done("Hello", notes=("A note.",))):
        output.event(event)
    captured = capsys.readouterr()
    assert captured.out == "Hello\n"
    assert captured.err == "inglenook: A note.\n"


def test_a_pipe_waits_where_text_may_become_thinking(capsys: pytest.CaptureFixture[str]) -> None:
    output = PlainOutput()
    output.expect(thinks=True)
    output.event(token(0, "hmm"))
    assert capsys.readouterr().out == ""
    output.event(done("Answer", reasoning="hmm"))
    assert capsys.readouterr().out == "Answer\n"


def test_a_terminal_shows_thinking_dimmed(capsys: pytest.CaptureFixture[str]) -> None:
    output = on_terminal()
    for event in (token(0, "hmm", "reasoning"), token(1, "\n\nYes"), done("\n\nYes", reasoning="hmm")):
        output.event(event)
    assert capsys.readouterr().out == "\x1b[2mhmm\x1b[0m\n\nYes\n"


def test_a_terminal_takes_back_what_was_thinking(capsys: pytest.CaptureFixture[str]) -> None:
    output = on_terminal()
    for event in (token(0, "hmm"), done("Yes", reasoning="hmm")):
        output.event(event)
    assert capsys.readouterr().out == "hmm\n\nYes\n"


def test_a_model_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    output = on_terminal()
    output.event(token(0, "a\x1b]0;title\x07\x9b2Jb"))
    output.event(done("a\x1b]0;title\x07\x9b2Jb"))
    assert capsys.readouterr().out == "a\ufffd]0;title\ufffd\ufffd2Jb\n"
    assert for_terminal("a\tb\nc\r\x7f") == "a\tb\nc\ufffd\ufffd"


def test_two_answers_do_not_mix(capsys: pytest.CaptureFixture[str]) -> None:
    output = PlainOutput()
    for text in ("one", "two\n"):
        output.event(token(0, text))
        output.event(done(text))
    assert capsys.readouterr().out == "one\ntwo\n"


def test_an_error_in_the_middle_of_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    output = PlainOutput()
    output.event(token(0, "Hel"))
    output.error(WorkerDied("It stopped.", hint="Try again."))
    captured = capsys.readouterr()
    assert captured.out == "Hel\n"
    assert captured.err == "inglenook: It stopped.\n  Try again.\n"


def test_json_is_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    output = JsonOutput()
    output.event(token(0, "line\nbreak \u2028"))
    output.note("said elsewhere")
    output.event(done("line\nbreak", usage=Usage(3, 2, 1), timings=Timings(ttft_s=0.5)))
    output.error(ContextFull("Full.", hint="h", details={"n_ctx": 5, "path": Path("x")}))
    captured = capsys.readouterr()
    assert captured.err == ""
    first, second, third = map(json.loads, captured.out.split("\n")[:-1])
    assert first["type"] == "token"
    assert {k: v for k, v in second["usage"].items() if v} == {
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "cached_tokens": 1,
    }
    assert second["timings"]["decode_tps"] is None
    assert third == {
        "type": "error",
        "error": {"code": "context_full", "message": "Full.", "hint": "h", "details": {"n_ctx": 5, "path": "x"}},
    }


def test_json_with_text_that_utf8_cannot_hold() -> None:
    line = json_line(error_record(NotAModel("caf\udce9", details={"names": ["\udce9"]})))
    assert json.loads(line)["error"]["message"] == "caf?"


def test_exit_statuses() -> None:
    assert exit_status(InvalidRequest("x")) == 2
    assert exit_status(EngineError("x")) == 1
    statuses = [exit_status(kind("x")) for kind in (NotAModel, ContextFull, WorkerDied)]
    assert len(set(statuses)) == 3
    assert 0 not in statuses


@pytest.mark.parametrize(
    ("timings", "expected"),
    [
        (Timings(ttft_s=0.214, decode_tps=118.04), "0.21 s · 118.0 tok/s · 2 tokens · stop"),
        (Timings(ttft_s=0.5), "0.50 s · – · 2 tokens · stop"),
        (Timings(), "– · – · 2 tokens · stop"),
    ],
)
def test_figures(timings: Timings, expected: str) -> None:
    assert figures(done("x", timings=timings, usage=Usage(1, 2))) == expected
