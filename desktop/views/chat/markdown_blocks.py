"""What Markdown becomes: flat, comparable records that say what to show, with nothing executable left in them.

The texts in them are safe for a QTextDocument: characters with a meaning to Qt's document (object replacement,
paragraph separators, internal markers), control characters and bidirectional overrides are shown as visible
placeholders instead.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Span:
    """A run of text in one style. `href` is a web or mail address, or "" where the text is no link."""

    text: str
    bold: bool = False
    italic: bool = False
    strike: bool = False
    code: bool = False
    href: str = ""

    def same_style(self, other: Span) -> bool:
        return (self.bold, self.italic, self.strike, self.code, self.href) == (
            other.bold,
            other.italic,
            other.strike,
            other.code,
            other.href,
        )


Spans = tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class TextBlock:
    """One paragraph, heading, list item or rule.

    Attributes:
        level: of a heading, 1 to 6.
        depth: how many lists it stands in.
        quote: how many quotations it stands in.
        marker: bullet or number, on the first block of a list item only.
        joined: True if it goes on with the paragraph before it, which was cut because it is very long.
    """

    spans: Spans
    kind: Literal["paragraph", "heading", "rule"] = "paragraph"
    level: int = 0
    depth: int = 0
    quote: int = 0
    marker: str = ""
    joined: bool = False

    @property
    def text(self) -> str:
        return "".join(span.text for span in self.spans)


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """A fenced or indented block of code, without its fences and last newline."""

    code: str
    language: str = ""
    depth: int = 0
    quote: int = 0


@dataclass(frozen=True, slots=True)
class TableBlock:
    """A table or a part of one.

    Attributes:
        aligns: "left", "center", "right" or "" for each column.
        continued: True if these rows go on with the table before it; the header is then not shown again.
    """

    header: tuple[Spans, ...]
    rows: tuple[tuple[Spans, ...], ...]
    aligns: tuple[str, ...]
    depth: int = 0
    quote: int = 0
    continued: bool = False


Block = TextBlock | CodeBlock | TableBlock

#: C0 (without tab and newline), DEL, C1; zero-width space, word joiner, BOM; bidirectional embeddings, overrides and
#: isolates; line and paragraph separator; interlinear and object marks; surrogates; non-characters.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b\u2028-\u202e\u2060\u2066-\u2069\ufeff\ufff9-\ufffc\ud800-\udfff"
    "\ufdd0-\ufdef\ufffe\uffff]"
)


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    if code in (0x2028, 0x2029):
        return "\n"
    if 0xD800 <= code <= 0xDFFF:
        return "\ufffd"
    return f"[U+{code:04X}]"


def safe_text(text: str) -> str:
    """The text with every character that could mislead a reader or break a document made visible.

    Each character is replaced on its own, so the result does not depend on where a stream was cut.
    """
    return _UNSAFE.sub(_visible, text)
