"""Grammars: what is refused and where, and that the engine's form of a grammar allows exactly what the grammar does."""

from __future__ import annotations

import itertools
import random
import time

import pytest
from llguidance import LLMatcher, LLTokenizer

from engine.errors import InvalidRequest
from engine.formats import gbnf_lexemes
from engine.formats.gbnf import Rules, parse
from engine.formats.gbnf_lark import to_lark, write
from engine.formats.gbnf_lexemes import Size
from engine.formats.gbnf_nodes import Chars, Choice, Node, Ref, Repeat, Seq, Text
from engine.formats.gbnf_rules import analyse

BYTES = LLTokenizer("byte")

JSON = r"""
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws
string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
# Optional space
ws ::= | " " | "\n" [ \t]{0,20}
"""
ARITHMETIC = r"""
root  ::= (expr "=" ws term "\n")+
expr  ::= term ([-+*/] term)*
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \t\n]*
"""


class Reference:
    """Whether a text belongs to a grammar, straight from its rules: all places where a part can end, until no more are
    found."""

    def __init__(self, rules: Rules, text: str) -> None:
        self.rules, self.text = rules, text
        self.found: dict[tuple[str, int], set[int]] = {("root", 0): set()}
        grown = True
        while grown:
            grown, before = False, len(self.found)
            for name, at in list(self.found):
                new = self.ends(rules[name], at) - self.found[name, at]
                self.found[name, at] |= new
                grown = grown or bool(new)
            grown = grown or len(self.found) > before

    @property
    def belongs(self) -> bool:
        return len(self.text) in self.found["root", 0]

    def ends(self, node: Node, at: int) -> set[int]:
        match node:
            case Text():
                return {at + len(node.text)} if self.text.startswith(node.text, at) else set()
            case Chars():
                ok = at < len(self.text) and any(a <= ord(self.text[at]) <= b for a, b in node.ranges)
                return {at + 1} if ok else set()
            case Ref():
                return self.found.setdefault((node.name, at), set())
            case Choice():
                return set().union(*(self.ends(part, at) for part in node.nodes))
            case Seq():
                places = {at}
                for part in node.nodes:
                    places = set().union(*(self.ends(part, place) for place in places))
                return places
            case Repeat():
                places, ends = {at}, {at} if not node.least else set()
                most = len(self.text) + node.least + 1 if node.most is None else node.most
                for count in range(1, min(most, len(self.text) + node.least + 1) + 1):
                    places = set().union(*(self.ends(node.node, place) for place in places))
                    ends |= places if count >= node.least else set()
                return ends
        raise AssertionError(node)


def matcher(lark: str) -> LLMatcher:
    made = LLMatcher(BYTES, lark, log_level=0)
    assert not made.is_error(), made.get_error() + lark
    return made


def accepts(start: LLMatcher, text: str) -> bool:
    one = start.deep_copy()
    for byte in text.encode():
        if one.is_stopped() or not one.try_consume_tokens([byte]):
            return False
    return one.is_accepting()


TEXTS = ["".join(letters) for length in range(6) for letters in itertools.product("ab", repeat=length)]


def differences(text: str, size: Size | None = None) -> list[str]:
    rules = parse(text)
    grammar = analyse(rules)
    cut = gbnf_lexemes.cut(grammar) if size is None else gbnf_lexemes.cut_in(grammar, size)
    start = matcher(write(grammar, cut))
    return [text for text in TEXTS if accepts(start, text) != Reference(rules, text).belongs]


@pytest.mark.parametrize(
    "text",
    [
        'root ::= [ab]* "b"',
        'root ::= x y\nx ::= "a" | "ab"\ny ::= "b" | "c" | ""',
        'root ::= "a" root "b" | ""',
        'root ::= "a" root | "b"',
        'root ::= root "a" | "b"',
        'root ::= x "b"\nx ::= y x "a" | "a"\ny ::= "b"?',
        'root ::= "a" root "a" | "b" root "b" | "a"?',
        'root ::= (root root)? "a" | "ab"',
        'root ::= r*\nr ::= "a" r "b" | "a"+ | "b"{2,3}',
        'root ::= "a"*+ x{2}{0,1}\nx ::= "b"?',
        'root ::= x\nx ::= ""',
        'root ::= y "a"\ny ::= "b" y y | x\nx ::= "ab" | ""',
        'root ::= x | "a" root | "b"\nx ::= x "a"',
    ],
)
def test_the_same_texts_belong(text: str) -> None:
    assert differences(text) == []


def test_the_longest_match_alone_would_lose_texts() -> None:
    text = 'root ::= "a" root "b" | [ab]+ "a"'
    assert differences(text) == []
    assert differences(text, Size.CHARACTER) == []
    greedy = 'root ::= "(" root ")" | a b\na ::= [a]+ | "(" a ")"\nb ::= "ab"'
    assert accepts(matcher(to_lark(greedy)), "aaab")
    grammar = analyse(parse(greedy))
    stretch = matcher(write(grammar, gbnf_lexemes.cut_in(grammar, Size.PART)))
    assert not accepts(stretch, "aaab"), "if this holds the finer cut is not needed any more"


def some_part(draw: random.Random, depth: int = 0) -> str:
    kind = draw.random()
    if depth > 2 or kind < 0.3:
        return draw.choice(['"a"', '"b"', '"ab"', "[ab]", "x", "y", "root", '""'])
    if kind < 0.5:
        return "(" + " | ".join(some_part(draw, depth + 1) for _ in range(draw.randint(1, 3))) + ")"
    if kind < 0.65:
        return some_part(draw, depth + 1) + draw.choice(["*", "+", "?", "{2}", "{0,2}", "{1,}"])
    return " ".join(some_part(draw, depth + 1) for _ in range(draw.randint(1, 3)))


@pytest.mark.parametrize("seed", range(4))
def test_the_same_texts_belong_to_grammars_by_chance(seed: int) -> None:
    draw, checked = random.Random(seed), 0
    while checked < 25:
        text = f"root ::= {some_part(draw)}\nx ::= {some_part(draw)}\ny ::= {some_part(draw)}"
        try:
            found = differences(text)
        except InvalidRequest:
            continue
        assert found == [], text
        checked += 1


def test_the_json_grammar_takes_json_and_is_cut_into_long_lexemes() -> None:
    start = matcher(to_lark(JSON))
    for good in ("{}", '{"a": [1, 2.5e3, "x\\n"], "b": {"c": null}}', '{"\\u00e9": -0}'):
        assert accepts(start, good), good
    for bad in ("[]", '{"a": }', '{"a": 01}', '{"a": "\t"}', '{"a": 1,}'):
        assert not accepts(start, bad), bad
    assert "S" in to_lark(JSON), "strings are one lexeme"
    assert accepts(matcher(to_lark(ARITHMETIC)), "1x = (2)\n") is False
    assert accepts(matcher(to_lark(ARITHMETIC)), "a+(b*2)=7\n")


def test_characters_escapes_and_sets() -> None:
    start = matcher(to_lark(r'root ::= "\x41\u00e9\U0001F600\t\"\\\[\]" [^a-y\-\]] . [\x30-9äöü]'))
    assert accepts(start, 'Aé😀\t"\\[]z\n5') and accepts(start, 'Aé😀\t"\\[]😀xä')
    assert not accepts(start, 'Aé😀\t"\\[]-x5') and not accepts(start, 'Aé😀\t"\\[]zx:')


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("", None, "is empty"),
        ("# nothing", None, "is empty"),
        ('x ::= "a"', None, 'no rule "root"'),
        ('root ::= "a', 1, "never ends"),
        ("root ::= [ab", 1, "never ends"),
        ('root ::= "a"\nx ::= y z\ny ::= "b"', 2, '"z", which is not there'),
        ('root = "a"', 1, '"::="'),
        ('root ::= "a"\nroot ::= "b"', 2, "line 1 did already"),
        ("root ::= [z-a]", 1, "runs backwards"),
        ("root ::= []", 1, "without any character"),
        ('root ::= ("a"\n | "b"', 2, '")"'),
        ('root ::= "a"\n\n  ) "b"', 3, "the name of a rule"),
        ('root ::= "a" ) "b"', 1, "the end of the rule"),
        ('root ::= "a"{3,1}', 1, "3 to 1 times"),
        ('root ::= "a"{2001}', 1, "more than 2000 times"),
        ('root ::= "a"{x}', 1, "a number"),
        ('root ::= "a"{1', 1, '"}"'),
        ("root ::= *", 1, "something to repeat"),
        (r'root ::= "\q"', 1, "unknown escape"),
        (r'root ::= "\x4"', 1, "unknown escape"),
        (r'root ::= "\ud800"', 1, "no character"),
        ("root ::= <think>", 1, "single token"),
        ('root ::= root "a"', None, "ever ends"),
        ("root ::= x\nx ::= y\ny ::= x", None, "ever ends"),
        ("root ::= " + "(" * 70 + '"a"' + ")" * 70, 1, "levels deep"),
        ('root ::= "\udc80"', None, "half a character"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text: str, line: int | None, says: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        to_lark(text)
    assert says in caught.value.message
    assert caught.value.details.get("line") == line and caught.value.details["field"] == "grammar"


def hostile(name: str) -> str:
    return {
        "doubling": "root ::= a0\n" + "\n".join(f"a{i} ::= a{i + 1} a{i + 1}" for i in range(60)) + '\na60 ::= "x"',
        "long": "root ::= " + '"ab" | ' * 20_000 + '"c"',
        "many rules": "root ::= r0\n" + "\n".join(f"r{i} ::= r{i + 1}" for i in range(20_000)) + '\nr20000 ::= "x"',
        "all to all": "\n".join(
            f"{name} ::= " + " | ".join(f'"{i}" r{i} r{i}' for i in range(60)) + ' | "z"'
            for name in ("root", *(f"r{i}" for i in range(60)))
        ),
        "too long": "root ::= " + '"' + "a" * 300_000 + '"',
        "nested repeats": "root ::= " + "(" * 20 + '"a"' + "{0,100})" * 20,
        "ambiguous": 'root ::= x\nx ::= x x | "a" | ""',
        "hidden left recursion": 'root ::= x "b"\nx ::= y x "c" | ""\ny ::= z\nz ::= "a"?',
        "names": "root ::= " + "a" * 100_000,
    }[name]


@pytest.mark.serial
@pytest.mark.parametrize(
    "name",
    [
        "doubling", "long", "many rules", "all to all", "too long", "nested repeats", "ambiguous",
        "hidden left recursion", "names",
    ],
)  # fmt: skip
def test_hostile_grammars_are_read_or_refused_soon(name: str) -> None:
    began = time.process_time()
    try:
        to_lark(hostile(name))
    except InvalidRequest:
        pass
    assert time.process_time() - began < 4
