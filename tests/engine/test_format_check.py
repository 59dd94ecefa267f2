"""Checking an answer format outside this process, whatever becomes of the checker."""

from __future__ import annotations

import sys
import time

import pytest

from engine import format_check
from engine.errors import EngineError, InvalidRequest, WorkerDied
from engine.formats.json_schema import ANY_JSON
from engine.message import AnswerFormat


def test_free_text_and_any_json_need_no_check() -> None:
    for kind in ("text", "json"):
        format_check.check(AnswerFormat(kind), child=["nothing that could be run"])  # type: ignore[arg-type]
    assert format_check.request_fields(AnswerFormat()) == {}
    assert format_check.request_fields(AnswerFormat("json")) == {"json_schema": ANY_JSON}
    assert format_check.request_fields(AnswerFormat("schema", "{}")) == {"json_schema": "{}"}
    assert format_check.request_fields(AnswerFormat("grammar", "x")) == {"grammar": "x"}


def test_what_is_wrong_in_most_cases_is_seen_without_a_child() -> None:
    with pytest.raises(InvalidRequest, match="uniqueItems"):
        format_check.check(AnswerFormat("schema", '{"uniqueItems": true}'), child=["nothing that could be run"])
    with pytest.raises(InvalidRequest, match="Line 1"):
        format_check.check(AnswerFormat("grammar", "root ::= x"), child=["nothing that could be run"])


def test_the_real_checker() -> None:
    format_check.check(AnswerFormat("schema", '{"type": "string", "pattern": "^[a-z]+$"}'))
    format_check.check(AnswerFormat("grammar", 'root ::= "a" root | "b"'))
    with pytest.raises(InvalidRequest) as caught:
        format_check.check(AnswerFormat("schema", '{"items": {"pattern": "(?!a)b"}}'))
    assert caught.value.details == {"field": "json_schema", "keyword": "pattern", "path": "#/items"}


@pytest.mark.parametrize(
    ("code", "error", "says"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", WorkerDied, ""),
        ("import sys; sys.stdin.read(); print('no verdict')", WorkerDied, ""),
        ("import sys; sys.exit('cannot')", WorkerDied, ""),
        ("import time; time.sleep(60)", InvalidRequest, r"more than 0\.5 s"),
    ],
)
def test_a_checker_that_gives_no_verdict(code: str, error: type[EngineError], says: str) -> None:
    began = time.monotonic()
    with pytest.raises(error, match=says or None):
        format_check.check(
            AnswerFormat("schema", "{}"), child=[sys.executable, "-c", code], timeout_s=0.5 if says else 20
        )
    assert time.monotonic() - began < 10
