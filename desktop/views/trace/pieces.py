"""Tokens as text that can be shown: their bytes decoded, with marks for what cannot be seen.

A token may hold a part of a character only. The one that completes it shows the character, those before it a circle.
"""

from __future__ import annotations

import codecs
import unicodedata
from collections.abc import Iterable

SPACE, NEWLINE, TAB = "␣", "↵", "⇥"
#: stands for a part of a character that a later token completes
PART = "◌"
#: characters; a longer piece is shortened in its middle
LONGEST = 48
_MARKS = {"\n": NEWLINE, "\r": "␍", "\t": TAB}


def decode(pieces: Iterable[bytes]) -> list[str]:
    """The text that each piece adds. Bytes that are no UTF-8 come as `\\xe2`; parts of a character as `PART`."""
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    return [_next(decoder, piece) for piece in pieces]


class Decoder:
    """The same for pieces that come one after the other."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def add(self, piece: bytes) -> str:
        return _next(self._decoder, piece)


def _next(decoder: codecs.IncrementalDecoder, piece: bytes) -> str:
    text = decoder.decode(piece)
    return PART if not text and piece else text


def marked(text: str, space: str = SPACE) -> str:
    """The text on one line, with marks for spaces, line ends and everything else that has no glyph.

    Args:
        space: what stands for a space; " " leaves it.
    """
    if text.isprintable() and text.isascii():
        return text.replace(" ", space)
    return "".join(_mark(character, space) for character in text)


def _mark(character: str, space: str) -> str:
    if character == " ":
        return space
    if character in _MARKS:
        return _MARKS[character]
    if character == "\u00a0":
        return "⍽"
    category = unicodedata.category(character)
    if category in ("Cc", "Cf", "Zl", "Zp", "Zs", "Co", "Cn") and character != "\u200d":
        return f"\\u{ord(character):04x}"
    return character


def shortened(text: str, longest: int = LONGEST) -> str:
    """A long text without its middle."""
    if len(text) <= longest:
        return text
    half = (longest - 1) // 2
    return f"{text[:half]}…{text[-half:]}"


def label(piece: bytes) -> str:
    """One token by itself, for a chip or a row: `␣alone`; an empty one as `(nothing)`."""
    if not piece:
        return "(nothing)"
    text = piece.decode("utf-8", "backslashreplace")
    return shortened(marked(text))


def spoken(piece: bytes) -> str:
    """One token for a screen reader, which leaves marks out: "space, alone"."""
    text = piece.decode("utf-8", "backslashreplace")
    names = {" ": "space", "\n": "line end", "\t": "tab"}
    if not text:
        return "nothing"
    if not text.strip():
        kind = names.get(text[0], "blank")
        return kind if len(text) == 1 else f"{len(text)} times {kind}"
    lead = "space, " if text[0] == " " else ""
    tail = ", line end" if text.endswith("\n") else ""
    return f"{lead}{text.strip()}{tail}"
