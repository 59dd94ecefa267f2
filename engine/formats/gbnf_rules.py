"""What the rules of a grammar are like: which can end, which may be empty, which are regular.

A rule is regular if it can be written without referring back to itself. That is so for rules without recursion, and
for those that only repeat themselves at their end or at their beginning, as grammars write lists and white space.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from engine.formats import gbnf_nodes as n
from engine.formats.gbnf import Rules, refuse
from engine.formats.gbnf_nodes import EMPTY, Chars, Choice, Node, Ref, Repeat, Seq, Text

MAX_RULES = 3000
MAX_PARTS = 20_000
#: parts of a rule after all regular rules that it refers to have been written out
MAX_WRITTEN_OUT = 300_000
_MAX_ROUNDS = 64


@dataclass
class Grammar:
    """Rules that can be reached from the root and can end.

    Attributes:
        order: names, each after those that it refers to, as far as recursion allows.
        regular: names of the rules that are regular; their bodies hold no recursion any more.
        nullable: names of the rules that may be empty.
    """

    rules: Rules
    order: list[str]
    regular: set[str] = field(default_factory=set)
    nullable: set[str] = field(default_factory=set)

    def is_regular(self, node: Node) -> bool:
        return all(part.name in self.regular for part in n.walk(node) if isinstance(part, Ref))

    def may_be_empty(self, node: Node) -> bool:
        match node:
            case Text():
                return not node.text
            case Chars():
                return False
            case Ref():
                return node.name in self.nullable
            case Repeat():
                return not node.least or self.may_be_empty(node.node)
            case Seq():
                return all(self.may_be_empty(part) for part in node.nodes)
            case Choice():
                return any(self.may_be_empty(part) for part in node.nodes)
        return False


def analyse(rules: Rules) -> Grammar:
    """Raises: InvalidRequest: the answer could never end, or the grammar is too large."""
    order = _order(rules)
    if len(order) > MAX_RULES or sum(1 for name in order for _ in n.walk(rules[name])) > MAX_PARTS:
        raise refuse(f"is too large: at most {MAX_RULES} rules and {MAX_PARTS} parts can be used")
    ending = _least(order, lambda name, known: _ends(rules[name], known))
    if "root" not in ending:
        raise refuse('has no answer that ever ends: its rule "root" always leads back into itself')
    kept = {name: _without(rules[name], ending) for name in order if name in ending}
    grammar = Grammar(kept, _order(kept))
    grammar.rules = {name: kept[name] for name in grammar.order}
    for name in grammar.order:
        body = _unrolled(name, grammar.rules[name])
        if grammar.is_regular(body):
            grammar.rules[name] = body
            grammar.regular.add(name)

    def may_be_empty(name: str, known: set[str]) -> bool:
        grammar.nullable = known
        return grammar.may_be_empty(grammar.rules[name])

    grammar.nullable = _least(grammar.order, may_be_empty)
    _refuse_too_large(grammar)
    return grammar


def _order(rules: Rules) -> list[str]:
    """Names that can be reached from the root, each after those it refers to (depth first, without recursion)."""
    order: list[str] = []
    seen = {"root"}
    path = [("root", iter(sorted(n.refs(rules["root"]))))]
    while path:
        name, rest = path[-1]
        following = next((other for other in rest if other not in seen), None)
        if following is None:
            order.append(name)
            path.pop()
        else:
            seen.add(following)
            path.append((following, iter(sorted(n.refs(rules[following])))))
    return order


def _least(order: list[str], holds: Callable[[str, set[str]], bool]) -> set[str]:
    """The smallest set of names for which `holds` is true."""
    known: set[str] = set()
    for _ in range(_MAX_ROUNDS):
        before = len(known)
        for name in order:
            if name not in known and holds(name, known):
                known.add(name)
        if len(known) == before:
            return known
    raise refuse("has rules that lead into each other too often")


def _ends(node: Node, known: set[str]) -> bool:
    match node:
        case Ref():
            return node.name in known
        case Repeat():
            return not node.least or _ends(node.node, known)
        case Seq():
            return all(_ends(part, known) for part in node.nodes)
        case Choice():
            return any(_ends(part, known) for part in node.nodes)
    return True


def _without(node: Node, ending: set[str]) -> Node:
    """The node without choices that never end. The node itself must be able to end."""
    match node:
        case Repeat():
            if not _ends(node.node, ending):
                return EMPTY
            return Repeat(_without(node.node, ending), node.least, node.most)
        case Seq():
            return n.seq([_without(part, ending) for part in node.nodes])
        case Choice():
            return n.choice([_without(part, ending) for part in node.nodes if _ends(part, ending)])
    return node


# ---------------------------------------------------------------------- recursion at an end


def _unrolled(name: str, body: Node) -> Node:
    """A rule that repeats itself only at the end (or only at the beginning) as a repetition; else the body."""
    if name not in n.refs(body):
        return body
    again, own = Ref(name), _options(body)
    rest = [option for option in own if again not in option]
    if any(option == [again] for option in own):
        own = [option for option in own if option != [again]]  # itself alone adds nothing
    for place in (-1, 0):
        loops = [option for option in own if again in option]
        parts = [n.seq(option[:-1] if place else option[1:]) for option in loops if option[place] == again]
        if len(parts) == len(loops) and not any(name in n.refs(part) for part in [*parts, *map(n.seq, rest)]):
            if not parts:
                return n.choice(list(map(n.seq, rest)))
            loop = Repeat(n.choice(parts), 0, None)
            base = n.choice(list(map(n.seq, rest)))
            return n.seq([loop, base] if place else [base, loop])
    return body


def _options(node: Node) -> list[list[Node]]:
    """The choices of a body, each as what it is a sequence of."""
    if isinstance(node, Choice):
        return [option for part in node.nodes for option in _options(part)]
    if isinstance(node, Repeat) and (node.least, node.most) == (0, 1):
        return [*_options(node.node), []]
    return [list(node.nodes) if isinstance(node, Seq) else [node]]


# ---------------------------------------------------------------------- size


def _refuse_too_large(grammar: Grammar) -> None:
    sizes: dict[str, int] = {}
    for name in grammar.order:
        sizes[name] = sum(_size(part, grammar, sizes) for part in n.walk(grammar.rules[name]))
        if sizes[name] > MAX_WRITTEN_OUT:
            raise refuse(f'is too large: the rule "{name}" has more than {MAX_WRITTEN_OUT} parts when written out')


def _size(part: Node, grammar: Grammar, sizes: dict[str, int]) -> int:
    if isinstance(part, Ref):
        return sizes[part.name] if part.name in grammar.regular else 1
    return len(part.text) if isinstance(part, Text) else 1
