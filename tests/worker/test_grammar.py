"""JSON Schemas and grammars: what can be held is held exactly, what cannot is refused by name, nothing hangs."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
import schema_check
from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from schema_cases import CASES, REFUSED, Case

from engine.errors import EngineError, GrammarFailed, InvalidRequest
from engine.formats.gbnf_lark import to_lark
from engine.formats.json_schema import prepare
from engine.worker import format_desk, grammar
from engine.worker.candidates import tokens_of
from engine.worker.constraint import Constraint
from engine.worker.format_desk import FormatDesk
from engine.worker.inbox import Inbox, Job
from engine.worker.prompt import BuiltPrompt
from engine.worker.protocol import Generate

BYTES = LLTokenizer("byte")


def matcher(schema: Any) -> LLMatcher:
    made = LLMatcher(BYTES, grammar.schema_grammar(prepare(json.dumps(schema)).schema), log_level=0)
    assert not made.is_error(), made.get_error()
    return made


def accepts(start: LLMatcher, text: str) -> bool:
    one = start.deep_copy()
    data = list(text.encode())
    return one.try_consume_tokens(data) == len(data) and one.is_accepting()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_right_values_can_be_written_and_wrong_ones_cannot(case: Case) -> None:
    start = matcher(case.schema)
    for text in case.right:
        assert schema_check.is_valid(schema_check.loads(text), case.schema), text
        assert accepts(start, text), text
    for text in case.wrong:
        assert not accepts(start, text), text


def test_the_cases_use_the_words_that_people_use() -> None:
    from engine.formats.schema_words import HELD

    used: set[str] = set()

    def collect(node: Any) -> None:
        if isinstance(node, dict):
            used.update(node)
            for value in node.values():
                collect(value)
        elif isinstance(node, list):
            for value in node:
                collect(value)

    for case in CASES:
        collect(case.schema)
    assert set(HELD) - used == set()
    assert len(CASES) >= 20


@pytest.mark.parametrize(("schema", "word", "path"), REFUSED, ids=lambda value: value if isinstance(value, str) else "")
def test_what_cannot_be_held_is_refused_by_name_and_place(schema: Any, word: str, path: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        grammar.check("schema", json.dumps(schema))
    assert caught.value.details["keyword"] == word and caught.value.details["path"] == path
    assert word in caught.value.message and path in caught.value.message


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("{", "line 1, column 2"),
        ('{"type": "string",}', "line 1"),
        ('{"a": 1, "a": 2}', "twice"),
        ('{"minimum": NaN}', "NaN"),
        ("[]", "must be an object"),
        ("false", "no answer at all"),
        ('{"const": "\\ud800"}', "half a character"),
        ('{"minimum": 1e999}', "64-bit"),
    ],
)
def test_a_text_that_is_no_schema(text: str, says: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        grammar.check("schema", text)
    assert says in caught.value.message and caught.value.details["field"] == "json_schema"


def test_words_that_change_nothing_are_let_through() -> None:
    grammar.check("schema", "true")
    grammar.check("schema", '{"uniqueItems": false, "nullable": false, "x-mine": {"any": ["thing"]}}')
    grammar.check("schema", '{"type": "integer", "format": "int32"}')
    grammar.check("schema", '{"type": "object", "minProperties": 2, "required": ["a", "b"]}')
    # nothing in the text can switch off a check of the library
    loose = {"lenient": True, "whitespace_flexible": True}
    start = matcher({"x-guidance": loose, "type": "object", "maxProperties": 0})
    assert accepts(start, "{}") and not accepts(start, "{          }")


@pytest.mark.parametrize(
    ("reference", "right"),
    [("#/$defs/a~1b", '"x"'), ("#/$defs/c%20d", "1"), ("#here", "null"), ("#/items/0", "true"), ("#", "[[],[]]")],
)
def test_references_lead_where_they_say(reference: str, right: str) -> None:
    schema = {
        "$defs": {"a/b": {"const": "x"}, "c d": {"const": 1}, "e": {"$anchor": "here", "type": "null"}},
        "items": [{"type": "boolean"}],
        "properties": {"v": {"$ref": reference}},
        "required": ["v"],
        "type": ["object", "array"],
    }
    if reference == "#":
        schema = {"type": "array", "items": {"$ref": "#"}}
        assert accepts(matcher(schema), right)
        return
    start = matcher(schema)
    assert accepts(start, f'{{"v":{right}}}') and not accepts(start, '{"v":[7]}')


LETTERS = 'a"\\]/0 \n-^'
SHORT_TEXTS = ["".join(letters) for length in range(4) for letters in itertools.product(LETTERS, repeat=length)]


@pytest.mark.parametrize(
    "pattern",
    [
        r'^[^"\\]{0,3}$', r'^[^"]{0,3}$', r"^[^\\]+$", r"^[\\a]*$", r"^\\$", r"\\", r"^[^\\\]]*$", r"^[\]\\]+$",
        r"^a\/0$", r"^[a/]+$", r"^[^\x5c]*$", r"^[\w\-]+$", r"^[\d\s]*$", r"^[^\n]*$", r"^.*$", r"^(a|\\)*$",
        r"^[ -~]*$", r"^[!-\\]*$", r'^[^\s"]*$', r"^[\W]*$", r"^[^\W]*$", r"^\S*$", r"^[^\S]+$", r'^([^"]|b)*$',
        r'^[^"]$', r"^[\x00-\x21\x23-\x7f]*$", r"^[^\x00-\x22]*$", r"^[-a]+$", r"^[a-]+$", r"^[\u0061\u{30}]*$",
        r"^\u0061+$", r"0", r"^$", r"^[^]$",
    ],
)  # fmt: skip
def test_patterns_mean_what_they_mean_elsewhere(pattern: str) -> None:
    start = matcher({"type": "string", "pattern": pattern})
    alike = pattern.replace("$", r"\Z").replace("[^]", r"[\s\S]").replace(r"\u{30}", "0")
    for text in SHORT_TEXTS:
        expected = re.search(alike, text) is not None
        assert accepts(start, json.dumps(text)) == expected, (pattern, text)


@pytest.mark.parametrize("pattern", ["[a", "[]", "[z-a]", r"[\q]", r"\ud800", "a{", "(", "(?=a)"])
def test_patterns_that_are_wrong_or_too_much(pattern: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        grammar.check("schema", json.dumps({"items": {"pattern": pattern}}))
    assert caught.value.details["keyword"] == "pattern" and caught.value.details["path"].startswith("#/items")


# ---------------------------------------------------------------------- hostile texts


def _chain(length: int) -> dict[str, Any]:
    definitions: dict[str, Any] = {f"d{i}": {"items": {"$ref": f"#/$defs/d{i + 1}"}} for i in range(length)}
    return {"$defs": {**definitions, f"d{length}": {"type": "null"}}, "$ref": "#/$defs/d0"}


def _nested(depth: int, word: str = "items") -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "null"}
    for _ in range(depth):
        schema = {word: schema} if word == "items" else {word: [schema, {"type": "array"}]}
    return schema


def _doubling(depth: int, word: str) -> dict[str, Any]:
    definitions = {f"d{i}": {word: [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(depth)}
    return {"$defs": {**definitions, f"d{depth}": {"properties": {"a": {"minimum": 1}}}}, "$ref": "#/$defs/d0"}


HOSTILE: dict[str, Any] = {
    "10 MB": {"enum": ["x" * 100] * 100_000},
    "1 MB of words": {"enum": [f"word {i}" for i in range(50_000)]},
    "1 MB of properties": {"properties": {f"p{i}": {"type": "integer"} for i in range(20_000)}},
    "deep lists": '{"items": ' * 2000 + "{}" + "}" * 2000,
    "deep to the limit": _nested(45),
    "deep anyOf": _nested(45, "anyOf"),
    "chain of references": _chain(1500),
    "long chain of references": _chain(18_000),
    "doubling allOf": _doubling(40, "allOf"),
    "doubling anyOf": _doubling(40, "anyOf"),
    "product of anyOf": {"allOf": [{"anyOf": [{"minimum": i}, {"maxLength": i}, {"maxItems": i}]} for i in range(12)]},
    "itself": {"$ref": "#"},
    "itself in allOf": {"allOf": [{"$ref": "#"}]},
    "itself in anyOf": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]},
    "a ring": {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
    "great lengths": {"type": "string", "minLength": 2**31, "maxLength": 2**31},
    "great counts": {"type": "array", "minItems": 10**6, "maxItems": 10**9},
    "repeats in repeats": {"type": "string", "pattern": "^((((a{0,1000}){0,1000}){0,1000}){0,1000})$"},
    "a regular expression that explodes": {"type": "string", "pattern": "^(a|b)*a(a|b){60}$"},
    "an intersection that explodes": {"type": "string", "pattern": "^(.*a.{30})(.*b.{30})$", "minLength": 5000},
    "a great multiple": {"type": "integer", "multipleOf": 4294967291, "minimum": 1, "maximum": 2**53},
    "a tiny multiple": {"type": "number", "multipleOf": 1e-300},
    "great bounds": {"type": "number", "minimum": -1.7e308, "maximum": 1.7e308},
    "many pattern properties": {"patternProperties": {f"^{i}a*": {} for i in range(300)}},
}


def hostile(name: str) -> str:
    schema = HOSTILE[name]
    return schema if isinstance(schema, str) else json.dumps(schema)


@pytest.mark.serial
@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_schemas_cost_little(name: str) -> None:
    """In a process with 4 GiB of memory, as the check of the settings runs."""
    text = hostile(name)
    began = time.perf_counter()
    done = _in_a_process(text)
    assert time.perf_counter() - began < 12
    assert done in ("held", "refused"), done


def _in_a_process(text: str) -> str:
    """What becomes of a schema in a process with bounded memory: checked, and the first steps taken."""
    resource: Any = pytest.importorskip("resource", reason="Windows bounds memory in other ways")
    code = """
import sys, threading
from engine.errors import EngineError
from engine.worker import grammar
from llguidance import LLMatcher, LLTokenizer
text, said = sys.stdin.read(), []
def work():
    try:
        grammar.check("schema", text)
        made = LLMatcher(LLTokenizer("byte"), grammar.schema_grammar(grammar.prepare(text).schema), log_level=0,
                         limits=grammar.limits())
        for _ in range(20):
            mask = made.compute_bitmask()
            allowed = [i for i in range(256) if mask[i // 8] >> i % 8 & 1]
            if made.is_error() or made.is_stopped() or not allowed or not made.consume_token(allowed[-1]):
                break
        said.append("held")
    except EngineError as error:
        said.append("refused")
threading.stack_size(256 * 2**20)
thread = threading.Thread(target=work)
thread.start()
thread.join()
print(*said)
"""

    def bounded() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (4 * 2**30, 4 * 2**30))

    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, input=text.encode(), capture_output=True, timeout=50, preexec_fn=bounded, check=False
    )
    assert done.returncode == 0, (done.returncode, done.stderr.decode()[-2000:])
    return done.stdout.decode().strip()


# ---------------------------------------------------------------------- preparing beside others


class Vocab:
    """The vocabulary of bytes, with an end."""

    n_tokens = 257
    eog_tokens = (256,)

    def piece(self, token: int) -> bytes:
        return bytes([token]) if token < 256 else b""

    def token_text(self, token: int) -> str:
        return "<end>"

    def is_text(self, token: int) -> bool:
        return token < 256

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        return list(text.encode())


def _job(inbox: Inbox, **fields: Any) -> tuple[Job, Generate]:
    request = Generate(id="r", prompt="x", **fields)
    assert inbox.put(request)
    job = inbox.take(wait=False)
    assert job is not None
    return job, request


def _back(inbox: Inbox, timeout_s: float = 20) -> Job | None:
    return inbox.take(wait=True, timeout_s=timeout_s)


def test_a_request_comes_back_with_its_format() -> None:
    inbox = Inbox(lambda: None)
    desk = FormatDesk(Vocab(), inbox)
    job, request = _job(inbox, json_schema='{"const": "yes"}')
    assert desk.puts_aside(job, request)  # another thread makes the format; it may be there at once
    assert _back(inbox) is job
    assert not desk.puts_aside(job, request)
    made = desk.take(job)
    assert made is not None and made.kind == "schema"
    constraint = format_desk.constraint(made, request, BuiltPrompt([1], "x"), "")
    assert constraint is not None
    for letter in b'"yes"':
        assert tokens_of(constraint.allowed()).tolist() == [letter]
        assert not constraint.satisfied
        constraint.accept(letter)
    assert constraint.complete and constraint.satisfied


def test_a_broken_format_comes_back_as_its_error() -> None:
    inbox = Inbox(lambda: None)
    desk = FormatDesk(Vocab(), inbox)
    job, request = _job(inbox, grammar="root ::= x")
    assert desk.puts_aside(job, request) and _back(inbox) is job
    assert not desk.puts_aside(job, request)
    with pytest.raises(InvalidRequest, match="Line 1"):
        desk.take(job)
    with pytest.raises(InvalidRequest, match="either"):
        desk.puts_aside(*_job(Inbox(lambda: None), grammar="", json_schema=""))


def test_a_format_that_takes_too_long_is_refused_and_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    hang = threading.Event()
    compiled = grammar.GrammarCompiler.compile

    def slow(self: Any, kind: Any, text: str) -> Any:
        if "slow" in text:
            hang.wait(30)
        return compiled(self, kind, text)

    monkeypatch.setattr(grammar.GrammarCompiler, "compile", slow)
    monkeypatch.setattr(format_desk, "DEADLINE_S", 0.3)
    inbox = Inbox(lambda: None)
    desk = FormatDesk(Vocab(), inbox)
    job, request = _job(inbox, json_schema='{"const": "slow"}')
    assert desk.puts_aside(job, request) and _back(inbox) is job
    with pytest.raises(InvalidRequest, match=r"more than 0\.3 s"):
        desk.take(job)
    inbox.done(job)
    job, request = _job(inbox, json_schema='{"const": 1}')
    assert desk.puts_aside(job, request) and _back(inbox) is job and desk.take(job) is not None
    hang.set()


def test_a_request_that_is_stopped_while_its_format_is_made_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    hang = threading.Event()
    monkeypatch.setattr(grammar.GrammarCompiler, "compile", lambda *_: hang.wait(30) and EngineError("late"))
    inbox = Inbox(lambda: None)
    desk = FormatDesk(Vocab(), inbox)
    job, request = _job(inbox, json_schema="{}")
    assert desk.puts_aside(job, request)
    assert inbox.stop("r") is job, "whoever stops it also answers it"
    hang.set()
    assert _back(inbox, 0.5) is None and inbox.put(Generate(id="r", prompt="again"))


def test_a_step_that_would_take_too_long_ends_the_answer() -> None:
    source = grammar.TokenBytes(Vocab())
    small = LLParserLimits(step_max_items=20)
    lark = to_lark('root ::= x\nx ::= "a" x x | "b"? x "c" | "a"')
    made = LLMatcher(source.tokenizer, lark, log_level=0, limits=small)
    constraint = Constraint(grammar.Compiled("grammar", source, made))
    with pytest.raises(GrammarFailed, match="could not go on") as caught:
        for _ in range(50):
            constraint.allowed()
            constraint.accept(ord("a"))
    assert caught.value.details["error"]


def test_after_the_model_is_gone_its_vocabulary_is_not_asked() -> None:
    compiler = grammar.GrammarCompiler(Vocab())
    compiler.close()
    with pytest.raises(EngineError, match="unloaded"):
        compiler.compile("schema", "{}")
