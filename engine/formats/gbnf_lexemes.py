"""A grammar cut into lexemes, which are what a lexer matches in one go: the longer, the faster.

The engine's lexer takes the longest match, and its parser never comes back to a shorter one. A grammar in which a
shorter match could be the right one would lose answers. `cut` looks for that, and cuts finer until it cannot happen;
single characters are slow but exact for every grammar.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

from engine.formats import gbnf_nodes as n
from engine.formats.gbnf_automaton import TooMuchWork, Work, automaton
from engine.formats.gbnf_nodes import EMPTY, Chars, Choice, Lexeme, Node, Ref, Repeat, Seq, Text
from engine.formats.gbnf_rules import Grammar


@dataclass
class Cut:
    """Attributes:
    rules: bodies of the rules that are no lexemes; empty if the whole answer is lexeme 0.
    lexemes: what is matched at each place that a rule has for one.
    """

    rules: dict[str, Node] = field(default_factory=dict)
    lexemes: list[Node] = field(default_factory=list)


class Size(Enum):
    """How long lexemes are: all that is regular, one part of a sequence, one character."""

    STRETCH = auto()
    PART = auto()
    CHARACTER = auto()


def cut(grammar: Grammar) -> Cut:
    """The grammar in lexemes that are as long as they may be."""
    if "root" in grammar.regular:
        return Cut(lexemes=[Ref("root")])
    for size in (Size.STRETCH, Size.PART):
        found = cut_in(grammar, size)
        if _longest_is_right(grammar, found):
            return found
    return cut_in(grammar, Size.CHARACTER)


def cut_in(grammar: Grammar, size: Size) -> Cut:
    """The grammar in lexemes of a certain size."""
    return _Cutter(grammar, size).cut()


class _Cutter:
    def __init__(self, grammar: Grammar, size: Size) -> None:
        self._grammar, self._size = grammar, size
        self._single = size is Size.CHARACTER
        self._made = Cut()

    def cut(self) -> Cut:
        for name in reversed(self._grammar.order):
            if self._single or name not in self._grammar.regular:
                self._made.rules[name] = self._body(self._grammar.rules[name])
        return self._made

    def _is_lexeme(self, node: Node) -> bool:
        if self._single:
            return isinstance(node, Chars)
        return self._grammar.is_regular(node) and (self._size is Size.STRETCH or not isinstance(node, Seq))

    def _lexeme(self, node: Node) -> Node:
        if node == EMPTY:
            return EMPTY
        self._made.lexemes.append(node)
        return Lexeme(len(self._made.lexemes) - 1)

    def _body(self, node: Node) -> Node:
        if node == EMPTY or self._is_lexeme(node):
            return self._lexeme(node)
        match node:
            case Text():
                return Seq(tuple(self._lexeme(Chars(((ord(c), ord(c)),))) for c in node.text))
            case Repeat():
                return Repeat(self._body(node.node), node.least, node.most)
            case Seq():
                return Seq(tuple(self._body(part) for part in self._joined(node)))
            case Choice():
                together = [] if self._single else [part for part in node.nodes if self._is_lexeme(part)]
                others = [part for part in node.nodes if part not in together]
                return Choice(
                    tuple(self._body(part) for part in [*([n.choice(together)] if together else []), *others])
                )
        return node

    def _joined(self, node: Seq) -> Iterator[Node]:
        """The parts, with neighbours put together that one lexeme can match."""
        run: list[Node] = []
        for part in node.nodes:
            if self._size is Size.STRETCH and self._is_lexeme(part):
                run.append(part)
                continue
            if run:
                yield n.seq(run)
            run = []
            yield part
        if run:
            yield n.seq(run)


# ---------------------------------------------------------------------- is the longest match the right one?


@dataclass
class _Places:
    """Which lexemes can begin and end a body, and whether it may be empty."""

    first: set[int] = field(default_factory=set)
    last: set[int] = field(default_factory=set)
    empty: bool = False


def _longest_is_right(grammar: Grammar, found: Cut) -> bool:
    """Looks at all pairs of lexemes that the parser can expect at one place: where one of them has matched, no other
    may be able to go on with a character with which what follows the first can begin."""
    work = Work()
    try:
        machines = [automaton(lexeme, grammar.rules, work) for lexeme in found.lexemes]
        neighbours = _Neighbours(grammar, found, work)
        starts = [n.merged([r for ranges, _ in machine.edges[machine.start] for r in ranges]) for machine in machines]
        after = [n.merged([r for other in places for r in starts[other]]) for places in neighbours.follows]
        waiting = [(one, other) for one in neighbours.begins for other in neighbours.begins]
        seen = set(waiting)
        while waiting:
            one, other = waiting.pop()
            both, further = machines[one].beside(machines[other], work)
            if n.overlap(further, after[one]):
                return False
            if both:  # the parser goes on behind either
                pairs = {(a, b) for a in neighbours.follows[one] for b in neighbours.follows[other]} - seen
                work.step(1 + len(neighbours.follows[one]) * len(neighbours.follows[other]) // 4)
                seen |= pairs
                waiting += pairs
    except TooMuchWork:
        return False
    return True


class _Neighbours:
    """Which lexemes stand beside each other. Calls of a rule are not told apart, so these may be more than there are.

    Attributes:
        begins: lexemes that can begin an answer.
        follows: of each lexeme, those that can follow it.
    """

    def __init__(self, grammar: Grammar, found: Cut, work: Work) -> None:
        self._work = work
        self._empty = [grammar.may_be_empty(lexeme) for lexeme in found.lexemes]
        self._rules = {name: _Places() for name in found.rules}
        self.follows: list[set[int]] = [set() for _ in found.lexemes]
        changed = True
        while changed:
            changed = False
            for name, body in reversed(found.rules.items()):
                made = self._places(body)
                if made != self._rules[name]:
                    self._rules[name], changed = made, True
        self._noting = True
        for body in found.rules.values():
            self._places(body)
        self.begins = self._rules["root"].first

    _noting = False

    def _note(self, before: set[int], after: set[int]) -> None:
        if self._noting:
            self._work.step(len(before) * (1 + len(after) // 16))
            for place in before:
                self.follows[place] |= after

    def _places(self, body: Node) -> _Places:
        self._work.step()
        match body:
            case Lexeme():
                return _Places({body.number}, {body.number}, self._empty[body.number])
            case Ref():
                return self._rules[body.name]
            case Repeat():
                inner = self._places(body.node)
                if body.most != 1:
                    self._note(inner.last, inner.first)
                return _Places(inner.first, inner.last, inner.empty or not body.least)
            case Choice():
                options = [self._places(part) for part in body.nodes]
                self._work.step(sum(len(option.first) + len(option.last) for option in options) // 8)
                first: set[int] = set().union(*(option.first for option in options))
                last: set[int] = set().union(*(option.last for option in options))
                return _Places(first, last, any(option.empty for option in options))
            case Seq():
                result = _Places(empty=True)
                for part in body.nodes:
                    inner = self._places(part)
                    self._note(result.last, inner.first)
                    result = _Places(
                        result.first | inner.first if result.empty else result.first,
                        result.last | inner.last if inner.empty else inner.last,
                        result.empty and inner.empty,
                    )
                return result
        return _Places(empty=True)
