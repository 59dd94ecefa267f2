"""GBNF, the grammars of llama.cpp: from text to rules.

The language is that of llama.cpp's `grammars/README.md`, with two differences: a rule may go on with `|` on its next
line, and parts that name single tokens (`<...>`) are refused, because they would let control tokens into an answer.
"""

from __future__ import annotations

import string

from engine.errors import InvalidRequest
from engine.formats import gbnf_nodes as n
from engine.formats.gbnf_nodes import EMPTY, LAST, Chars, Node, Ref, Repeat, Text

MAX_BYTES = 256 * 1024
MAX_DEPTH = 64
MAX_REPEAT = 2000
_NAME = frozenset(string.ascii_letters + string.digits + "-_")
_ESCAPES = {"t": "\t", "r": "\r", "n": "\n", "\\": "\\", '"': '"', "[": "[", "]": "]", "-": "-"}
_HEX = {"x": 2, "u": 4, "U": 8}
Rules = dict[str, Node]


def refuse(why: str, line: int = 0) -> InvalidRequest:
    """The error for a grammar; `line` (from 1) is also in its details."""
    details: dict[str, object] = {"field": "grammar", **({"line": line} if line else {})}
    return InvalidRequest(f"Line {line} of the grammar {why}" if line else f"The grammar {why}", details=details)


def parse(text: str) -> Rules:
    """The rules by name, in the order of the text; "root" is where an answer begins.

    Raises:
        InvalidRequest: names the line.
    """
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise refuse("holds half a character (a lone surrogate)") from None
    if size > MAX_BYTES:
        raise refuse(f"has {size / 1024:.0f} KiB; at most {MAX_BYTES // 1024} KiB can be used")
    rules = _Parser(text).rules()
    if not rules:
        raise refuse("is empty")
    if "root" not in rules:
        raise refuse('has no rule "root", with which an answer would begin')
    return rules


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text + "\0"  # an end that no rule accepts
        self._end = len(text)
        self._at = 0
        self._depth = 0
        self._lines: dict[str, int] = {}
        self._used: dict[str, int] = {}

    def rules(self) -> Rules:
        rules: Rules = {}
        self._space(lines=True)
        while self._at < self._end:
            line = self._line()
            name = self._name("the name of a rule")
            if name in rules:
                raise refuse(f'defines "{name}" again; line {self._lines[name]} did already', line)
            self._lines[name] = line
            self._space()
            if not self._text.startswith("::=", self._at):
                raise self._unexpected('"::="')
            self._at += 3
            self._space(lines=True)
            rules[name] = self._choice(nested=False)
            if self._at < self._end and self._text[self._at] not in "\r\n":
                raise self._unexpected("the end of the rule")
            self._space(lines=True)
        for name, line in self._used.items():
            if name not in rules:
                raise refuse(f'uses the rule "{name}", which is not there', line)
        return rules

    # ------------------------------------------------------------------ places

    def _line(self, at: int | None = None) -> int:
        return self._text.count("\n", 0, self._at if at is None else at) + 1

    def _unexpected(self, wanted: str) -> InvalidRequest:
        found = self._text[self._at : min(self._end, self._at + 12)].split("\n")[0]
        what = f"has {found!r}" if found else "ends"
        return refuse(f"{what} where {wanted} is expected", self._line())

    def _space(self, *, lines: bool = False) -> None:
        """Past blanks and comments, and past line ends with `lines`."""
        blank = " \t\r\n" if lines else " \t"
        while self._at < self._end:
            character = self._text[self._at]
            if character == "#":
                end = self._text.find("\n", self._at)
                self._at = self._end if end < 0 else end
            elif character in blank:
                self._at += 1
            else:
                return

    # ------------------------------------------------------------------ parts

    def _choice(self, *, nested: bool) -> Node:
        options = [self._sequence(nested=nested)]
        while self._bar(nested=nested):
            options.append(self._sequence(nested=nested))
        return n.choice(options) if len(options) > 1 else options[0]

    def _bar(self, *, nested: bool) -> bool:
        """Past a `|`, also at the beginning of the next line."""
        before = self._at
        if not nested:
            self._space(lines=True)
        if self._text[self._at] != "|":
            self._at = before
            return False
        self._at += 1
        self._space(lines=True)
        return True

    def _sequence(self, *, nested: bool) -> Node:
        nodes: list[Node] = []
        while (node := self._item(nested=nested)) is not None:
            self._space(lines=nested)
            while (bounds := self._times(nested=nested)) is not None:
                node = self._repeated(node, *bounds)
                self._space(lines=nested)
            nodes.append(node)
        return n.seq(nodes)

    def _item(self, *, nested: bool) -> Node | None:
        character = self._text[self._at]
        if character == '"':
            return self._literal()
        if character == "[":
            return self._characters()
        if character in _NAME:
            name = self._name("a name")
            if name not in self._used:
                self._used[name] = self._line()
            return Ref(name)
        if character == "(":
            return self._group()
        if character == "." and self._at < self._end:
            self._at += 1
            return Chars(n.merged([(0, LAST)]))
        if character in "<!":
            raise refuse("names a single token; only texts can be used", self._line())
        if character in "*+?{":
            raise self._unexpected("something to repeat")
        return None

    def _group(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise refuse(f"has brackets more than {MAX_DEPTH} levels deep", self._line())
        self._at += 1
        self._space(lines=True)
        node = self._choice(nested=True)
        if self._text[self._at] != ")" or self._at >= self._end:
            raise self._unexpected('")"')
        self._at += 1
        self._depth -= 1
        return node

    def _times(self, *, nested: bool) -> tuple[int, int | None] | None:
        """Least and most of a repetition that stands here; None if none does."""
        mark = self._text[self._at]
        if mark in "*+?":
            self._at += 1
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[mark]
        if mark != "{":
            return None
        self._at += 1
        self._space(lines=nested)
        least = self._number()
        most: int | None = least
        self._space(lines=nested)
        if self._text[self._at] == ",":
            self._at += 1
            self._space(lines=nested)
            most = self._number() if self._text[self._at] in string.digits else None
            self._space(lines=nested)
        if self._text[self._at] != "}":
            raise self._unexpected('"}"')
        self._at += 1
        if most is not None and most < least:
            raise refuse(f"repeats something {least} to {most} times", self._line())
        return least, most

    def _repeated(self, node: Node, least: int, most: int | None) -> Node:
        if max(least, most or 0) > MAX_REPEAT:
            raise refuse(f"repeats something more than {MAX_REPEAT} times", self._line())
        if most == 0 or node == EMPTY:
            return EMPTY
        return node if (least, most) == (1, 1) else Repeat(node, least, most)

    def _number(self) -> int:
        start = self._at
        while self._text[self._at] in string.digits and self._at < self._end:
            self._at += 1
        if start == self._at:
            raise self._unexpected("a number")
        return int(self._text[start : min(self._at, start + 9)])

    def _name(self, wanted: str) -> str:
        start = self._at
        while self._text[self._at] in _NAME:
            self._at += 1
        if start == self._at:
            raise self._unexpected(wanted)
        return self._text[start : self._at]

    def _literal(self) -> Node:
        start, characters = self._at, []
        self._at += 1
        while self._text[self._at] != '"' or self._at >= self._end:
            if self._at >= self._end:
                raise refuse("begins a text that never ends", self._line(start))
            characters.append(self._character())
        self._at += 1
        return Text("".join(characters))

    def _characters(self) -> Node:
        start, ranges = self._at, []
        self._at += 1
        inverted = self._text[self._at] == "^"
        self._at += inverted
        while self._text[self._at] != "]":
            if self._at >= self._end:
                raise refuse("begins a set of characters that never ends", self._line(start))
            low = high = ord(self._character())
            if self._text[self._at] == "-" and self._text[self._at + 1] != "]" and self._at + 1 < self._end:
                self._at += 1
                high = ord(self._character())
            if high < low:
                raise refuse(f"has the range {chr(low)!r} to {chr(high)!r}, which runs backwards", self._line(start))
            ranges.append((low, high))
        self._at += 1
        found = n.merged(ranges, inverted=inverted)
        if not found:
            raise refuse("has a set without any character", self._line(start))
        return Chars(found)

    def _character(self) -> str:
        character = self._text[self._at]
        self._at += 1
        if character != "\\":
            return character
        mark = self._text[self._at]
        self._at += 1
        if mark in _ESCAPES:
            return _ESCAPES[mark]
        digits = self._text[self._at : self._at + _HEX.get(mark, 0)]
        if mark not in _HEX or len(digits) != _HEX[mark] or not set(digits) <= set(string.hexdigits):
            raise refuse(f'has the unknown escape "\\{mark}{digits}"', self._line())
        self._at += len(digits)
        code = int(digits, 16)
        if code > LAST or 0xD800 <= code <= 0xDFFF:
            raise refuse(f'has the escape "\\{mark}{digits}", which is no character', self._line())
        return chr(code)
