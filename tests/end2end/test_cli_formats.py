"""`inglenook chat` with answers that keep to a JSON Schema or a grammar, and chats that do."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from cli_runner import answer, run

from engine.message import AnswerFormat, ChatSettings
from engine.paths import resolve
from engine.sampling import SamplingParams
from engine.service import Engine

SCHEMA = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "green", "blue"]}, "n": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["colour", "n"],
    "additionalProperties": False,
}


def written(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_an_answer_by_schema_and_by_grammar(tmp_path: Path, starter_model: Path) -> None:
    schema = written(tmp_path, "schema.json", json.dumps(SCHEMA))
    last = answer("-p", "Name a colour and a number.", "--json-schema", schema, "--seed", "3", "--max-tokens", "80")
    assert last["finish_reason"] == "stop"
    value = json.loads(last["text"])
    assert value["colour"] in ("red", "green", "blue") and 1 <= value["n"] <= 9
    grammar = written(tmp_path, "yes.gbnf", 'root ::= "yes" | "no"')
    done = run("chat", "-p", "Is the sky blue?", "--grammar", grammar)
    assert done.returncode == 0 and done.stdout in ("yes\n", "no\n")


def test_an_answer_that_is_cut_says_so(tmp_path: Path, starter_model: Path) -> None:
    schema = written(tmp_path, "schema.json", json.dumps(SCHEMA))
    done = run("chat", "-p", "Hi", "--json-schema", schema, "--max-tokens", "2")
    assert done.returncode == 0 and "The JSON is not complete." in done.stderr


@pytest.mark.parametrize(
    ("option", "text", "says"),
    [
        ("--json-schema", '{"type": "array", "uniqueItems": true}', '"uniqueItems" at #'),
        ("--json-schema", '{"type": "object",', "line 1"),
        ("--grammar", 'root ::= "a"\nx ::= y', "Line 2"),
    ],
)
def test_a_format_that_cannot_be_used_is_refused_before_anything_is_loaded(
    tmp_path: Path, option: str, text: str, says: str
) -> None:
    began = time.monotonic()
    done = run("chat", "-m", "nothing.gguf", "-p", "Hi", option, written(tmp_path, "format", text))
    assert done.returncode == 2 and says in done.stderr
    assert time.monotonic() - began < 30


def test_one_format_at_a_time(tmp_path: Path) -> None:
    done = run("chat", "-p", "Hi", "--grammar", "a", "--json-schema", "b")
    assert done.returncode == 2 and "not allowed with" in done.stderr
    done = run("chat", "-p", "Hi", "--grammar", str(tmp_path / "none"))
    assert done.returncode == 2 and "cannot be read" in done.stderr


@pytest.fixture
def engine(home: Path) -> Iterator[Engine]:
    one = Engine(resolve(home).ensure())
    one.start()
    yield one
    one.stop()


def result(future: Future[Any]) -> Any:
    return future.result(60)


def test_a_chat_keeps_to_its_format_and_its_answers_remember_it(engine: Engine, starter_model: Path) -> None:
    form = AnswerFormat("schema", json.dumps(SCHEMA))
    chat = result(engine.chats.create())
    sampling = SamplingParams(temperature=0.0, max_tokens=80)
    result(engine.chats.set_settings(chat.id, ChatSettings(sampling=sampling, answer_format=form)))
    result(engine.load_model("starter"))
    result(engine.chats.send(chat.id, "Name a colour and a number."))
    end = time.monotonic() + 60
    while engine.chats.generating() and time.monotonic() < end:
        time.sleep(0.02)
    _, branch = result(engine.chats.open(chat.id))
    assert json.loads(branch[-1].text)["colour"] in ("red", "green", "blue")
    assert branch[-1].generation.answer_format == form and branch[-1].generation.finish_reason == "stop"
    result(engine.chats.set_settings(chat.id, ChatSettings(answer_format=AnswerFormat("schema", '{"not": {}}'))))
    result(engine.chats.send(chat.id, "Again."))
    while engine.chats.generating() and time.monotonic() < end:
        time.sleep(0.02)
    _, branch = result(engine.chats.open(chat.id))
    assert branch[-1].status == "failed" and branch[-1].generation.error.details["keyword"] == "not"
