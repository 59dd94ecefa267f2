"""Finite automata of regular parts of a grammar, to see how far a match can go on."""

from __future__ import annotations

from dataclasses import dataclass

from engine.formats import gbnf_nodes as n
from engine.formats.gbnf_nodes import Chars, Choice, Node, Range, Ref, Repeat, Seq, Text

Ranges = tuple[Range, ...]
Edge = tuple[Ranges, int]
_MAX_WORK = 250_000


class TooMuchWork(Exception):
    """The question is not worth its answer."""


class Work:
    """Counts steps."""

    def __init__(self) -> None:
        self._left = _MAX_WORK

    def step(self, count: int = 1) -> None:
        self._left -= count
        if self._left < 0:
            raise TooMuchWork


@dataclass(frozen=True)
class Automaton:
    """States are numbers; every edge takes one character.

    Attributes:
        edges: of each state.
        accepting: states in which a match may end.
    """

    start: int
    edges: dict[int, list[Edge]]
    accepting: frozenset[int]

    def beside(self, other: Automaton, work: Work) -> tuple[bool, Ranges]:
        """Both begin at the same place. Gives whether both can match the same text (of at least one character), and
        the characters with which `other` can go on where this one has just matched."""
        both, further = False, []
        seen = {(self.start, other.start)}
        waiting = [(self.start, other.start)]
        while waiting:
            mine, theirs = waiting.pop()
            for ranges, target in self.edges[mine]:
                for other_ranges, other_target in other.edges[theirs]:
                    work.step()
                    pair = (target, other_target)
                    if pair in seen or not n.overlap(ranges, other_ranges):
                        continue
                    seen.add(pair)
                    waiting.append(pair)
                    if target in self.accepting:
                        both = both or other_target in other.accepting
                        further += [r for more, _ in other.edges[other_target] for r in more]
        return both, n.merged(further)


def automaton(node: Node, rules: dict[str, Node], work: Work) -> Automaton:
    """The automaton of a regular node.

    Raises:
        TooMuchWork: it would be too large.
    """
    maker = _Maker(rules, work)
    start, end = maker.state(), maker.state()
    maker.add(node, start, end)
    return maker.finished(start, end)


class _Maker:
    """Builds with free moves first (Thompson), and takes them out at the end."""

    def __init__(self, rules: dict[str, Node], work: Work) -> None:
        self._rules, self._work = rules, work
        self._free: list[list[int]] = []
        self._edges: list[list[Edge]] = []

    def state(self) -> int:
        self._work.step()
        self._free.append([])
        self._edges.append([])
        return len(self._free) - 1

    def add(self, node: Node, start: int, end: int) -> None:
        match node:
            case Text():
                for character in node.text:
                    following = self.state()
                    self._edges[start].append((((ord(character), ord(character)),), following))
                    start = following
                self._free[start].append(end)
            case Chars():
                self._edges[start].append((node.ranges, end))
            case Ref():
                self.add(self._rules[node.name], start, end)
            case Choice():
                for part in node.nodes:
                    self.add(part, start, end)
            case Seq():
                self._sequence(list(node.nodes), start, end)
            case Repeat():
                if node.most is None:
                    self._sequence([node.node] * node.least, start, loop := self.state())
                    self.add(node.node, loop, loop)
                    self._free[loop].append(end)
                    return
                self._sequence([node.node] * node.least, start, at := self.state())
                for _ in range(node.most - node.least):
                    self._free[at].append(end)
                    self.add(node.node, at, following := self.state())
                    at = following
                self._free[at].append(end)

    def _sequence(self, nodes: list[Node], start: int, end: int) -> None:
        for part in nodes:
            following = self.state()
            self.add(part, start, following)
            start = following
        self._free[start].append(end)

    def finished(self, start: int, end: int) -> Automaton:
        edges: dict[int, list[Edge]] = {}
        accepting = set()
        waiting = [start]
        while waiting:
            state = waiting.pop()
            if state in edges:
                continue
            reached = self._reached(state)
            edges[state] = [edge for place in reached for edge in self._edges[place]]
            if end in reached:
                accepting.add(state)
            waiting += [target for _, target in edges[state]]
        return Automaton(start, edges, frozenset(accepting))

    def _reached(self, state: int) -> set[int]:
        reached, waiting = {state}, [state]
        while waiting:
            for following in self._free[waiting.pop()]:
                self._work.step()
                if following not in reached:
                    reached.add(following)
                    waiting.append(following)
        return reached
