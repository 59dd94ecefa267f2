"""A grammar as the engine reads it: Lark's notation, in which lexemes are terminals and the rest are rules."""

from __future__ import annotations

import json

from engine.formats import gbnf_lexemes
from engine.formats import gbnf_nodes as n
from engine.formats.gbnf import parse
from engine.formats.gbnf_lexemes import Cut
from engine.formats.gbnf_nodes import EMPTY, LAST, Chars, Choice, Lexeme, Node, Range, Ref, Repeat, Seq, Text
from engine.formats.gbnf_rules import Grammar, analyse

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")


def to_lark(text: str) -> str:
    """A GBNF grammar in Lark's notation.

    Raises:
        InvalidRequest: names the line where it can.
    """
    grammar = analyse(parse(text))
    return write(grammar, gbnf_lexemes.cut(grammar))


def write(grammar: Grammar, cut: Cut) -> str:
    """The grammar as it was cut. The notation has no empty text inside a choice, and no empty match of a lexeme; both
    are written as what may be left out."""
    empty = {place for place, lexeme in enumerate(cut.lexemes) if grammar.may_be_empty(lexeme)}
    rules = {name: f"r{place}" for place, name in enumerate(cut.rules)}
    shared = {name: f"S{place}" for place, name in enumerate(grammar.order) if name in grammar.regular}
    lines = ["%llguidance {}"]
    if not cut.rules:
        lines.append("start: L0?" if empty else "start: L0")
    else:
        lines.append(f"start: {rules['root']}")
    for name, body in cut.rules.items():
        lines.append(f"{rules[name]}: {_text(_with_gaps(body, empty), rules, 0)}")
    for number, lexeme in enumerate(cut.lexemes):
        lines.append(f"L{number}: {_text(lexeme, shared, 0)}")
    if any(not isinstance(lexeme, Chars) for lexeme in cut.lexemes):
        lines += [
            f"{shared[name]}: {_text(grammar.rules[name], shared, 0)}" for name in grammar.order if name in shared
        ]
    return "\n".join(lines) + "\n"


def _text(node: Node, names: dict[str, str], tightness: int) -> str:
    """tightness: 0 at the top, 1 inside a sequence, 2 before a repetition; brackets are put where it needs them."""
    match node:
        case Text():
            return json.dumps(node.text, ensure_ascii=False)
        case Chars():
            return f"/{_set(node.ranges)}/"
        case Ref():
            return names[node.name]
        case Lexeme():
            return f"L{node.number}"
        case Repeat():
            text, needs = _text(node.node, names, 2) + _times(node), 2
        case Seq():
            text, needs = " ".join(_text(part, names, 1) for part in node.nodes), 2
        case Choice():
            parts = [part for part in node.nodes if part != EMPTY]
            if len(parts) < len(node.nodes):
                return _text(Repeat(n.choice(parts), 0, 1), names, tightness)
            text, needs = " | ".join(_text(part, names, 1) for part in parts), 1
    return f"({text})" if tightness >= needs else text


def _with_gaps(body: Node, empty: set[int]) -> Node:
    """The body, with lexemes that may be empty as such that may be left out."""
    match body:
        case Lexeme():
            return Repeat(body, 0, 1) if body.number in empty else body
        case Repeat():
            return Repeat(_with_gaps(body.node, empty), body.least, body.most)
        case Seq():
            return Seq(tuple(_with_gaps(part, empty) for part in body.nodes))
        case Choice():
            return Choice(tuple(_with_gaps(part, empty) for part in body.nodes))
    return body


def _times(node: Repeat) -> str:
    known = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((node.least, node.most))
    most = "" if node.most is None else node.most
    return known or f"{{{node.least},{most}}}"


def _set(ranges: tuple[Range, ...]) -> str:
    if ranges[0][0] == 0 and ranges[-1][1] == LAST and len(ranges) == 2:
        return "(?s:.)"
    return "[" + "".join(_char(low) + (f"-{_char(high)}" if high > low else "") for low, high in ranges) + "]"


def _char(code: int) -> str:
    return chr(code) if chr(code) in _PLAIN else f"\\x{{{code:x}}}"
