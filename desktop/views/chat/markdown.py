"""Markdown of a model to blocks: CommonMark with tables, strikethrough and bare web addresses; no HTML.

Differences from CommonMark, on purpose: no HTML of any kind, no link reference definitions (they would let the end
of a text change its beginning), pictures become text with their address, only web and mail addresses are links, line
breaks inside a paragraph are kept, and tight and loose lists look the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from markdown_it import MarkdownIt
from markdown_it.token import Token

from desktop.views.chat.markdown_blocks import Block, CodeBlock, Span, Spans, TableBlock, TextBlock, safe_text
from desktop.views.chat.markdown_scan import MarkdownScanner, Segment

_ALLOWED_LINK = re.compile(r"(?:https?://[^/\s]|mailto:[^\s])", re.IGNORECASE)
#: More opening brackets than this in one segment are an attack or noise: matching them takes quadratic time.
_MAX_BRACKETS = 300
#: Nesting deeper than the parser follows would otherwise drop text.
_DEEP = re.compile(r"^(?:[ \t]*(?:>|[-+*](?=[ \t])|\d{1,9}[.)](?=[ \t]))){16,}", re.MULTILINE)
BULLETS = ("•", "◦", "▪")


def is_allowed_link(url: str) -> bool:
    """Whether a link may be clicked at all: http, https and mailto only."""
    return _ALLOWED_LINK.match(url) is not None


def _parser(*, indented_code: bool) -> MarkdownIt:
    md = MarkdownIt("commonmark", {"linkify": True, "html": False})
    md.enable(["table", "strikethrough", "linkify"])
    md.disable(["reference", "html_block", "html_inline"])
    if not indented_code:
        md.disable("code")
    assert md.linkify is not None
    md.linkify.set({"fuzzy_link": False, "fuzzy_email": False, "fuzzy_ip": False})
    md.validateLink = is_allowed_link  # type: ignore[method-assign]
    return md


@lru_cache(maxsize=2)
def _shared_parser(indented_code: bool) -> MarkdownIt:
    return _parser(indented_code=indented_code)


def prepare() -> None:
    """Have the expressions compiled that parsers search with: the first answer would wait for it. Any thread.

    The parser is one of its own, because parsers keep what they are at; compiled expressions are everybody's.
    """
    _parser(indented_code=True).parse(
        "# One\n\n- **two** `three` https://example.org\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    )


# ------------------------------------------------------------------ tokens to blocks


def _spans(children: Sequence[Token] | None) -> Spans:
    out: list[Span] = []
    bold = italic = strike = 0
    href = ""

    def add(text: str, *, code: bool = False, link: str = "") -> None:
        span = Span(text, bold > 0, italic > 0, strike > 0, code, link or href)
        if out and out[-1].same_style(span):
            out[-1] = Span(out[-1].text + text, bold > 0, italic > 0, strike > 0, code, link or href)
        elif text:
            out.append(span)

    for token in children or ():
        kind = token.type
        if kind == "text":
            add(token.content)
        elif kind in ("softbreak", "hardbreak"):
            add("\n")
        elif kind == "code_inline":
            add(token.content, code=True)
        elif kind in ("strong_open", "strong_close"):
            bold += token.nesting
        elif kind in ("em_open", "em_close"):
            italic += token.nesting
        elif kind in ("s_open", "s_close"):
            strike += token.nesting
        elif kind == "link_open":
            href = safe_text(str(token.attrGet("href") or ""))
        elif kind == "link_close":
            href = ""
        elif kind == "image":
            source = safe_text(str(token.attrGet("src") or ""))
            add(f"[image: {token.content or 'no description'}] ")
            add(source, link=source)
        else:
            add(token.content)
    return tuple(out)


class _Walker:
    """Goes over the tokens of one segment; remembers in which lists and quotations it is."""

    def __init__(self, numbering: tuple[str, int] | None) -> None:
        self.blocks: list[Block] = []
        #: (mark, next number) of the numbered list that just ended at the top level
        self.numbering = numbering
        self._lists: list[list[str | int]] = []
        self._quote = 0
        self._marker = ""

    def walk(self, tokens: Sequence[Token]) -> None:
        position = 0
        while position < len(tokens):
            token = tokens[position]
            if token.type == "table_open":
                position = self._table(tokens, position)
            elif token.type in ("bullet_list_open", "ordered_list_open"):
                self._open_list(token)
            elif token.type in ("bullet_list_close", "ordered_list_close"):
                mark, number = self._lists.pop()
                if not self._lists and not self._quote:
                    self.numbering = (str(mark), int(number))
            elif token.type == "list_item_open":
                self._open_item()
            elif token.type == "list_item_close":
                if self._marker:
                    self._text((), "paragraph")
            elif token.type in ("blockquote_open", "blockquote_close"):
                self._quote += token.nesting
            elif token.type == "inline":
                opener = tokens[position - 1]
                level = int(opener.tag[1]) if opener.type == "heading_open" else 0
                self._text(_spans(token.children), "heading" if level else "paragraph", level)
            elif token.type == "hr":
                self._text((), "rule")
            elif token.type in ("fence", "code_block"):
                self._code(token)
            if token.level == 0 and token.type.endswith("_open") and "list" not in token.type:
                self.numbering = None
            position += 1

    def _open_list(self, token: Token) -> None:
        number = 0
        if token.type == "ordered_list_open":
            number = int(token.attrGet("start") or 1) if token.attrGet("start") != 0 else 0
            carried = self.numbering
            if token.level == 0 and not self.blocks and carried is not None and carried[0] == token.markup:
                number = carried[1]
        self._lists.append([token.markup, number])

    def _open_item(self) -> None:
        mark, number = self._lists[-1]
        if mark in (".", ")"):
            self._marker = f"{number}{mark}"
        else:
            self._marker = BULLETS[(len(self._lists) - 1) % len(BULLETS)]
        self._lists[-1][1] = int(number) + 1

    def _take_marker(self) -> str:
        marker, self._marker = self._marker, ""
        return marker

    def _text(self, spans: Spans, kind: str, level: int = 0) -> None:
        if kind == "rule":
            self.numbering = None if not self._lists else self.numbering
            self.blocks.append(TextBlock((), "rule", depth=len(self._lists), quote=self._quote))
            return
        self.blocks.append(
            TextBlock(
                spans,
                "heading" if kind == "heading" else "paragraph",
                level,
                len(self._lists),
                self._quote,
                self._take_marker(),
            )
        )

    def _code(self, token: Token) -> None:
        if self._marker:
            self._text((), "paragraph")
        if token.level == 0:
            self.numbering = None
        language = token.info.strip().split(maxsplit=1)
        self.blocks.append(
            CodeBlock(
                token.content.removesuffix("\n"),
                language[0] if language else "",
                len(self._lists),
                self._quote,
            )
        )

    def _table(self, tokens: Sequence[Token], position: int) -> int:
        if self._marker:
            self._text((), "paragraph")
        rows: list[list[Spans]] = []
        aligns: list[str] = []
        while tokens[position].type != "table_close":
            token = tokens[position]
            if token.type == "tr_open":
                rows.append([])
            elif token.type == "th_open":
                style = str(token.attrGet("style") or "")
                aligns.append(style.rpartition(":")[2])
            elif token.type == "inline":
                rows[-1].append(_spans(token.children))
            position += 1
        body = tuple(tuple(row) for row in rows[1:])
        self.blocks.append(TableBlock(tuple(rows[0]), body, tuple(aligns), len(self._lists), self._quote))
        return position


def _plain_blocks(text: str, *, joined: bool = False) -> list[Block]:
    text = text.strip("\n")
    return [TextBlock((Span(text),), joined=joined)] if text else []


def _dedent(text: str) -> str:
    """Take the indentation of the first line from all lines."""
    first = text.split("\n", 1)[0]
    indent = len(first) - len(first.lstrip(" "))
    if not indent:
        return text
    return "\n".join(line[min(indent, len(line) - len(line.lstrip(" "))) :] for line in text.split("\n"))


class SegmentParser:
    """Parses segments in order, and carries the numbering of a list over the cuts between its items."""

    def __init__(self, *, plain: bool = False) -> None:
        self._plain = plain
        self._numbering: tuple[str, int] | None = None

    def parse(self, segment: Segment, *, keep: bool = True) -> list[Block]:
        """The blocks of a segment. keep=False: only a look, the numbering is not carried on."""
        if segment.kind == "code":
            language = segment.info.split(maxsplit=1)
            if keep:
                self._numbering = None
            return [CodeBlock(segment.text, language[0] if language else "")]
        if self._plain:
            return _plain_blocks(segment.text, joined=segment.forced)
        text = segment.text
        if text.count("[") > _MAX_BRACKETS or _DEEP.search(text):
            return _plain_blocks(text, joined=segment.forced)
        walker = _Walker(None if segment.forced else self._numbering)
        source = segment.table + (_dedent(text) if segment.forced else text)
        parser = _shared_parser(not segment.forced)
        # a bare address has a colon behind its scheme; the search for one takes a third of the time
        parser.options["linkify"] = ":" in source
        walker.walk(parser.parse(source))
        if keep:
            self._numbering = walker.numbering
        blocks = walker.blocks
        if segment.forced and blocks:
            blocks[0] = _as_continuation(blocks[0], bool(segment.table))
        return blocks


def _as_continuation(block: Block, in_table: bool) -> Block:
    if isinstance(block, TextBlock) and block.kind == "paragraph" and not block.marker:
        return TextBlock(block.spans, block.kind, block.level, block.depth, block.quote, "", joined=True)
    if isinstance(block, TableBlock) and in_table:
        return TableBlock(block.header, block.rows, block.aligns, block.depth, block.quote, continued=True)
    return block


class MarkdownStream:
    """Markdown that is still being written. What it gives in the end does not depend on the portions it came in."""

    def __init__(self, *, plain: bool = False) -> None:
        """plain: text as typed, only fenced code is recognized (for what the user wrote)."""
        self._scanner = MarkdownScanner(plain=plain)
        self._parser = SegmentParser(plain=plain)
        self._held = ""

    def feed(self, text: str) -> None:
        """More text. Cheap: nothing is parsed yet."""
        text = self._held + text
        self._held = "\r" if text.endswith("\r") else ""
        if self._held:
            text = text[:-1]
        self._scanner.feed(safe_text(text.replace("\r\n", "\n").replace("\r", "\n")))

    def finish(self) -> None:
        """The text is complete; `next_blocks` gives the rest, `tail` gives nothing any more."""
        if self._held:
            self._held = ""
            self._scanner.feed("\n")
        self._scanner.finish()

    def next_blocks(self) -> list[Block] | None:
        """Blocks of the next finished segment, which will not change any more; None if there is none."""
        if not self._scanner.segments:
            return None
        return self._parser.parse(self._scanner.segments.pop(0))

    @property
    def has_blocks(self) -> bool:
        """Whether `next_blocks` has something to give."""
        return bool(self._scanner.segments)

    def tail(self) -> list[Block]:
        """Blocks of the pending end, as they would be if the text ended here. Finished segments must be taken first."""
        segment = self._scanner.tail()
        return self._parser.parse(segment, keep=False) if segment is not None else []

    @property
    def in_code(self) -> bool:
        """Whether the pending end is inside a fence at the top level."""
        return self._scanner.in_code


def parse(text: str, *, plain: bool = False) -> list[Block]:
    """All blocks of a complete text."""
    return list(iterate(text, plain=plain))


def iterate(text: str, *, plain: bool = False) -> Iterator[Block]:
    """Blocks of a complete text one after another, so that a long one can be shown in slices."""
    stream = MarkdownStream(plain=plain)
    stream.feed(text)
    stream.finish()
    while (blocks := stream.next_blocks()) is not None:
        yield from blocks


def parse_whole(text: str) -> list[Block]:
    """All blocks by one run of the parser over the whole text, without cuts; the reference for tests."""
    walker = _Walker(None)
    walker.walk(_shared_parser(True).parse(safe_text(text.replace("\r\n", "\n").replace("\r", "\n"))))
    return walker.blocks
