"""Answers of real models under a JSON Schema or a grammar, through the worker process."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import schema_check
from raw_worker import RawWorker
from schema_cases import CASES
from test_grammar import hostile

QUESTION = "Make up an example and answer in JSON."
YES_NO = 'root ::= "Yes" | "No"'


@pytest.fixture(scope="module")
def worker(starter_model: Path) -> Iterator[RawWorker]:
    with RawWorker() as one:
        one.load(starter_model, n_ctx=4096, n_slots=4)
        yield one


@pytest.mark.timeout(400)
@pytest.mark.parametrize("temperature", [0, 1])
def test_every_whole_answer_is_valid(worker: RawWorker, temperature: float) -> None:
    """All schemas at once over four slots."""
    sampling = {"temperature": temperature, "seed": 7, "max_tokens": 160, "top_k": 0, "top_p": 1, "min_p": 0}
    asked = {
        case.name: worker.generate(QUESTION, sampling=sampling, json_schema=json.dumps(case.schema)) for case in CASES
    }
    whole = 0
    for case in CASES:
        answer = worker.answer(asked[case.name], timeout=380)
        if answer.reason == "length":
            assert answer.done["notes"] == ["The JSON is not complete."]
            continue
        assert answer.reason == "stop" and not answer.done.get("notes"), case.name
        value = schema_check.loads(answer.text)
        assert schema_check.problem(value, case.schema, case.schema) == "", (case.name, answer.text)
        assert answer.streamed == answer.text
        whole += 1
    assert whole >= len(CASES) * 3 // 4, "too few answers came to their end"


def test_a_grammar_is_kept_to(worker: RawWorker) -> None:
    chess = r"""
root ::= "1. " move " " move "\n" ([1-9] [0-9]? ". " move " " move "\n"){0,2}
move ::= (pawn | piece) [+#]?
piece ::= [NBRQK] [a-h]? [1-8]? "x"? [a-h] [1-8]
pawn ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBRQK])?
"""
    move = r"(([a-h]x)?[a-h][1-8](=[NBRQK])?|[NBRQK][a-h]?[1-8]?x?[a-h][1-8])[+#]?"
    form = re.compile(rf"1\. {move} {move}\n([1-9][0-9]?\. {move} {move}\n){{0,2}}")
    for seed in range(4):
        answer = worker.ask("Play chess.", temperature=1.2, seed=seed, max_tokens=80, grammar=chess)
        if answer.reason == "stop":
            assert form.fullmatch(answer.text), answer.text
        else:
            assert answer.done["notes"] == ["The text in the grammar's form is not complete."]
    for seed in range(6):
        answer = worker.ask("Is water wet?", temperature=2, top_k=0, seed=seed, grammar=YES_NO)
        assert answer.text in ("Yes", "No") and answer.reason == "stop"


def test_recursion_and_finer_lexemes(worker: RawWorker) -> None:
    nested = 'root ::= "(" root* ")" | "[" [a-z]{1,3} "]"'
    greedy = 'root ::= "(" root ")" | a b\na ::= [a]+ | "(" a ")"\nb ::= "ab"'
    for text in (nested, greedy):
        answer = worker.ask("Brackets!", temperature=1, seed=3, max_tokens=60, grammar=text)
        assert answer.text.count("(") >= answer.text.count(")")
        if answer.reason == "stop":
            assert answer.text.count("(") == answer.text.count(")")


def test_no_control_token_comes_and_the_end_only_where_it_may(worker: RawWorker) -> None:
    answer = worker.ask("Say anything.", temperature=1.5, top_k=0, seed=1, grammar="root ::= .{40,60}")
    assert 40 <= len(answer.text) <= 60 and answer.reason == "stop"
    assert all(token["piece"] for token in answer.tokens), "a control token says nothing"
    eager = {str(token): 1e4 for token in (0, 2, 4)}  # the model would end at once
    answer = worker.ask("Say anything.", temperature=0, logit_bias=eager, grammar='root ::= "a" [a-z]{4} "!"*')
    assert re.fullmatch("a[a-z]{4}!{0,3}", answer.text)


def test_probabilities_are_those_of_the_model(worker: RawWorker) -> None:
    free = worker.ask("Is water wet?", temperature=0, max_tokens=1)
    held = worker.ask("Is water wet?", temperature=0, grammar='root ::= "Zebra"')
    forced = worker.ask("Is water wet?", temperature=0, max_tokens=1, logit_bias={str(held.ids[0]): 1e4})
    assert forced.ids == held.ids[:1] != free.ids
    assert held.tokens[0]["logprob"] == pytest.approx(forced.tokens[0]["logprob"], abs=0.05)
    assert held.tokens[0]["logprob"] < free.tokens[0]["logprob"] - 1


def test_the_same_seed_gives_the_same_answer_and_sampling_stays_the_users(worker: RawWorker) -> None:
    schema = json.dumps(CASES[0].schema)
    texts = [worker.ask(QUESTION, temperature=1, seed=seed, json_schema=schema).text for seed in (5, 5, 6, 7, 8)]
    assert texts[0] == texts[1] and len(set(texts)) > 1
    hot = [worker.ask("Say yes.", temperature=50, top_k=0, seed=s, grammar=YES_NO).text for s in range(8)]
    cold = [worker.ask("Say yes.", temperature=0, seed=s, grammar=YES_NO).text for s in range(3)]
    assert len(set(hot)) == 2 and len(set(cold)) == 1


def test_a_stop_text_cuts_the_json(worker: RawWorker) -> None:
    properties = {"a": {"const": 1}, "b": {"const": 2}}
    schema = json.dumps({"type": "object", "properties": properties, "required": ["a", "b"]})
    answer = worker.ask(QUESTION, temperature=0, stop=['"b'], json_schema=schema)
    assert answer.reason == "stop" and answer.done["stop_string"] == '"b' and '"b' not in answer.text
    assert answer.done["notes"] == ["The JSON is not complete."]


def test_an_answer_that_was_cut_is_continued_in_its_format(worker: RawWorker) -> None:
    case = CASES[0]
    schema = json.dumps(case.schema)
    first = worker.ask(QUESTION, temperature=0, max_tokens=6, json_schema=schema)
    assert first.reason == "length" and first.done["notes"] == ["The JSON is not complete."]
    messages = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": first.text}]
    rest = worker.ask(messages=messages, continue_last=True, temperature=0, max_tokens=150, json_schema=schema)
    assert rest.reason == "stop"
    assert schema_check.is_valid(schema_check.loads(first.text + rest.text), case.schema)
    messages[1]["content"] = "Once upon a time"
    refused = worker.ask(messages=messages, continue_last=True, json_schema=schema)
    assert refused.error["code"] == "invalid_request" and "does not keep" in refused.error["message"]


def test_refusals_come_as_errors_and_the_worker_goes_on(worker: RawWorker) -> None:
    refused = worker.ask(QUESTION, json_schema='{"type": "array", "uniqueItems": true}')
    assert refused.error["code"] == "invalid_request"
    assert refused.error["details"] == {"field": "json_schema", "keyword": "uniqueItems", "path": "#"}
    refused = worker.ask(QUESTION, grammar='root ::= "a"\nx ::= y')
    assert refused.error["code"] == "invalid_request"
    assert refused.error["details"] == {"field": "grammar", "line": 2}
    refused = worker.ask(QUESTION, grammar="root ::= [", json_schema="{}")
    assert "either" in refused.error["message"]
    assert worker.ask("Hi", temperature=0, max_tokens=3).reason == "length"


@pytest.mark.serial
@pytest.mark.timeout(240)
def test_hostile_schemas_do_not_stop_an_answer_beside_them(worker: RawWorker) -> None:
    process = psutil.Process(worker.process.pid)
    before = process.memory_info().rss
    beside = worker.generate("Tell a long story.", sampling={"temperature": 0, "max_tokens": 400})
    worker.wait("token", id=beside)
    names = ["10 MB", "deep lists", "doubling allOf", "1 MB of words", "chain of references", "great lengths", "a ring"]
    asked = {
        name: worker.generate(QUESTION, sampling={"max_tokens": 2, "seed": 1}, json_schema=hostile(name))
        for name in names
    }
    for name in names:
        end = worker.answer(asked[name], timeout=60).end
        assert end["type"] == "done" or end["error"]["code"] == "invalid_request", (name, end)
    assert worker.answer(beside, timeout=120).reason in ("length", "stop")
    assert process.memory_info().rss - before < 700 * 2**20


def test_a_stop_while_the_format_is_made(worker: RawWorker) -> None:
    request = worker.generate(QUESTION, sampling={"max_tokens": 5}, json_schema=hostile("1 MB of words"))
    began = time.monotonic()
    worker.stop(request)
    answer = worker.answer(request)
    assert time.monotonic() - began < 2 and (answer.end["type"] == "error" or answer.reason in ("cancelled", "length"))


# ---------------------------------------------------------------------- models that think

NUMBER = "root ::= [0-9]{2}"
TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'assistant' %}{{ m.content.split('</think>')[-1] }}"
    "{% else %}{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}[reply]{% endif %}"
)


@pytest.mark.parametrize(
    "script",
    [
        ["<think>", "Hmm", " 12", "</think>", "\n\n", "7", "5"],
        ["<", "think", ">", "Hmm", "</", "think", ">", "7", "5"],
        ["<think>", "Hmm", "</think>", "75"],
        ["<think>", "Hmm", "</think>", "\n", "None", " of", " that"],
    ],
)
def test_thinking_is_free_and_the_answer_is_held(
    scripted_model: Callable[..., dict[str, Any]], script: list[str]
) -> None:
    path = scripted_model(script, template=TEMPLATE, tail="[reply]")["path"]
    with RawWorker() as worker:
        info = worker.load(path)
        assert info["template"].get("thinking_tag") == "think"
        answer = worker.ask("A number?", temperature=0, max_tokens=40, grammar=NUMBER)
        assert answer.done["reasoning"].startswith("Hmm") and answer.done.get("reasoning_closed", True)
        assert re.fullmatch("[0-9]{2}", answer.text) and answer.reason == "stop"
        if "75" in "".join(script):
            assert answer.text == "75"


def test_an_answer_without_thinking_is_held_from_its_first_token(scripted_model: Callable[..., dict[str, Any]]) -> None:
    path = scripted_model(["7", "5", " Sure"], template=TEMPLATE, tail="[reply]")["path"]
    with RawWorker() as worker:
        worker.load(path)
        answer = worker.ask("A number?", temperature=0, max_tokens=40, grammar=NUMBER)
        assert not answer.done.get("reasoning") and answer.reason == "stop"
        assert answer.text == "75"


def test_a_model_cannot_end_inside_its_thinking(scripted_model: Callable[..., dict[str, Any]]) -> None:
    path = scripted_model(["<think>", "Hm", {"tok": "</s>"}], template=TEMPLATE, tail="[reply]")["path"]
    with RawWorker() as worker:
        worker.load(path)
        answer = worker.ask("A number?", temperature=0, max_tokens=12, grammar=NUMBER)
        assert answer.reason == "length" and "The text in the grammar's form is not complete." in answer.done["notes"]


@pytest.mark.parametrize(
    "sampling", [{"top_k": 0, "typical_p": 0.9}, {"mirostat": 2}, {"mirostat": 1}, {"top_n_sigma": 1.0}]
)
def test_every_way_to_sample_keeps_to_the_format(worker: RawWorker, sampling: dict[str, Any]) -> None:
    grammar = 'root ::= "[" [^xyz\\n]{8,30} "]"'
    answer = worker.ask("Say anything.", temperature=1.2, seed=4, max_tokens=160, grammar=grammar, **sampling)
    assert re.fullmatch(r"\[[^xyz\n]{8,30}\]", answer.text) and answer.reason == "stop"
    assert all(np.isfinite(token["logprob"]) for token in answer.tokens), "the model's own logits are left as they were"
