r"""Regular expressions of JSON Schema (ECMA-262) as the grammar engine has to get them.

Sets of characters are written out in ranges: inside brackets the two dialects differ (`[`, `&&`, `--`). And no set
keeps U+0000: the engine's way into a JSON string lets `\"` and `\\` through for a set that has all control characters
but not the quote or the backslash, as `[^"]` has (seen in llguidance 1.9.1). No text that anybody wants has U+0000.
"""

from __future__ import annotations

import re

from engine.formats.gbnf_nodes import LAST, Range, merged

_DIGITS: list[Range] = [(0x30, 0x39)]
_WORDS: list[Range] = [*_DIGITS, (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)]
#: white space that all dialects agree on, and all that any of them has
_SPACE: list[Range] = [(9, 13), (32, 32)]
_ANY_SPACE: list[Range] = [
    *((9, 13), (28, 32), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A)),
    *((0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF)),
]
_SINGLE = {"n": 10, "r": 13, "t": 9, "f": 12, "v": 11, "b": 8, "0": 0}
_HEX = re.compile(r"x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|u\{([0-9A-Fa-f]{1,6})\}")


class BadPattern(ValueError):
    """The text says what is wrong."""


def portable(pattern: str) -> str:
    """The same expression with its sets written out.

    Raises:
        BadPattern: a set never ends, holds nothing, or runs backwards; an escape that is no character.
    """
    out: list[str] = []
    at = 0
    while at < len(pattern):
        character = pattern[at]
        if character == "[":
            text, at = _set(pattern, at)
            out.append(text)
        elif character == "\\" and pattern[at + 1 : at + 2] in ("u", "c"):
            code, at = _code(pattern, at + 1)
            out.append(f"\\x{{{code:x}}}")
        else:
            step = 2 if character == "\\" else 1
            out.append(pattern[at : at + step])
            at += step
    return "".join(out)


def _set(pattern: str, start: int) -> tuple[str, int]:
    """What is written for the set that begins there, and the place behind it."""
    at = start + 1
    inverted = pattern.startswith("^", at)
    at += inverted
    ranges: list[Range] = []
    while not pattern.startswith("]", at):
        item, at = _item(pattern, at, inverted)
        if len(item) == 1 and item[0][0] == item[0][1] and pattern.startswith("-", at) and pattern[at + 1 :][:1] != "]":
            end, after = _item(pattern, at + 1, inverted)
            if len(end) == 1 and end[0][0] == end[0][1]:
                if end[0][0] < item[0][0]:
                    raise BadPattern("a range of characters runs backwards")
                item, at = [(item[0][0], end[0][1])], after
        ranges += item
    found = [(max(1, low), high) for low, high in merged(ranges, inverted=inverted) if high]
    if not found:
        raise BadPattern("a set of characters is empty")
    return "[" + "".join(f"\\x{{{low:x}}}-\\x{{{high:x}}}" for low, high in found) + "]", at + 1


def _item(pattern: str, at: int, inverted: bool) -> tuple[list[Range], int]:
    """One member of a set."""
    if at >= len(pattern):
        raise BadPattern("a set of characters never ends")
    if pattern[at] != "\\":
        return [(ord(pattern[at]), ord(pattern[at]))], at + 1
    mark = pattern[at + 1 : at + 2]
    space = _ANY_SPACE if inverted else _SPACE
    known = {"d": _DIGITS, "w": _WORDS, "s": space}.get(mark.lower())
    if known is None:
        code, after = _code(pattern, at + 1)
        return [(code, code)], after
    if mark.islower():
        return known, at + 2
    if mark == "S":
        known = _SPACE if inverted else _ANY_SPACE
    return list(merged(known, inverted=True)), at + 2


def _code(pattern: str, at: int) -> tuple[int, int]:
    """The character of an escape, behind its backslash."""
    mark = pattern[at : at + 1]
    if mark in _SINGLE and mark:
        return _SINGLE[mark], at + 1
    if mark == "c" and pattern[at + 1 : at + 2].isascii() and pattern[at + 1 : at + 2].isalpha():
        return ord(pattern[at + 1]) % 32, at + 2
    found = _HEX.match(pattern, at)
    if found is None:
        if mark.isalnum() or not mark:
            raise BadPattern(f"the escape \\{mark} is not known")
        return ord(mark), at + 1
    code, after = int(found[1] or found[2] or found[3], 16), found.end()
    low = re.match(r"\\u([dD][c-fC-F][0-9A-Fa-f]{2})", pattern[after:])
    if 0xD800 <= code < 0xDC00 and low:  # two escapes for one character
        code, after = 0x10000 + (code - 0xD800) * 0x400 + int(low[1], 16) - 0xDC00, after + low.end()
    if code > LAST or 0xD800 <= code <= 0xDFFF:
        raise BadPattern(f"the escape \\{found[0]} is no character")
    return code, after
