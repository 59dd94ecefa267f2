"""The parts that a grammar is made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

#: first and last code point of a run of characters
Range = tuple[int, int]
LAST = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)


@dataclass(frozen=True, slots=True)
class Text:
    """Exactly this text; "" is the empty text."""

    text: str


@dataclass(frozen=True, slots=True)
class Chars:
    """One character out of these ranges, which are in order and apart."""

    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class Ref:
    """What another rule says."""

    name: str


@dataclass(frozen=True, slots=True)
class Repeat:
    """`least` to `most` times the same; most None: any number."""

    node: Node
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Seq:
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Lexeme:
    """What the lexer matches in one go, by its number; only in rules that have been cut (`gbnf_lexemes`)."""

    number: int


Node = Text | Chars | Ref | Repeat | Seq | Choice | Lexeme
EMPTY = Text("")


def children(node: Node) -> tuple[Node, ...]:
    if isinstance(node, Seq | Choice):
        return node.nodes
    return (node.node,) if isinstance(node, Repeat) else ()


def walk(node: Node) -> Iterator[Node]:
    """The node and all below it."""
    waiting = [node]
    while waiting:
        found = waiting.pop()
        yield found
        waiting += children(found)


def refs(node: Node) -> set[str]:
    """Names of the rules it refers to."""
    return {part.name for part in walk(node) if isinstance(part, Ref)}


def seq(nodes: list[Node]) -> Node:
    """One after the other, without empty parts and sequences in sequences."""
    flat: list[Node] = []
    for node in nodes:
        flat += node.nodes if isinstance(node, Seq) else () if node == EMPTY else (node,)
    return flat[0] if len(flat) == 1 else Seq(tuple(flat)) if flat else EMPTY


def choice(nodes: list[Node]) -> Node:
    """One of them, without choices in choices and doubles."""
    flat: list[Node] = []
    for node in nodes:
        flat += node.nodes if isinstance(node, Choice) else (node,)
    flat = list(dict.fromkeys(flat))
    return flat[0] if len(flat) == 1 else Choice(tuple(flat))


def merged(ranges: list[Range], *, inverted: bool = False) -> tuple[Range, ...]:
    """The ranges in order and apart; inverted: all other characters. Halves of surrogate pairs are no characters."""
    apart = _in_order(ranges)
    if inverted:
        gaps, start = [], 0
        for low, high in apart:
            gaps.append((start, low - 1))
            start = high + 1
        apart = [(low, high) for low, high in [*gaps, (start, LAST)] if low <= high]
    low_end, high_start = _SURROGATES[0] - 1, _SURROGATES[1] + 1
    cut = [part for low, high in apart for part in ((low, min(high, low_end)), (max(low, high_start), high))]
    return tuple((low, high) for low, high in cut if low <= high)


def _in_order(ranges: list[Range]) -> list[Range]:
    apart: list[Range] = []
    for low, high in sorted(ranges):
        if apart and low <= apart[-1][1] + 1:
            apart[-1] = (apart[-1][0], max(high, apart[-1][1]))
        else:
            apart.append((low, high))
    return apart


def overlap(one: tuple[Range, ...], other: tuple[Range, ...]) -> bool:
    """Whether two sorted lists of ranges share a character."""
    i = j = 0
    while i < len(one) and j < len(other):
        if one[i][1] < other[j][0]:
            i += 1
        elif other[j][1] < one[i][0]:
            j += 1
        else:
            return True
    return False
