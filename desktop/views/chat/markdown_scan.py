"""Cuts a growing Markdown text into segments that can be parsed each on its own, once.

The scanner only looks at whole lines, so where it cuts depends on the text alone and never on how the text was
dealt out. A cut is made where CommonMark begins a new block whatever stood before: at an unindented line after a
blank one, at the next item of a list, at a table, around a fence. Fences are read here altogether, so a long
code block is never parsed again. Text without such a place is cut by force, so no segment grows without bound.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

#: Characters; a line longer than this is cut, and so is a segment of many lines.
MAX_LINE = 4_000
MAX_SEGMENT = 8_000
#: A table is parsed again as it grows, so its parts are kept smaller.
MAX_TABLE = 1_500

_FENCE = re.compile(r"^( {0,3})(`{3,}|~{3,})(.*)$")
_ITEM = re.compile(r"^(?:[-+*]|\d{1,9}[.)])(?:[ \t]|$)")
_ANY_ITEM = re.compile(r"^[ \t]*(?:> ?)*[ \t]*(?:[-+*]|\d{1,9}[.)])(?:[ \t]|$)")
_RULE = re.compile(r"^([-*_])[ \t]*(?:\1[ \t]*){2,}$")
_DELIMITER = re.compile(r"^\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of Markdown that stands alone.

    Attributes:
        kind: "code" if `text` is the content of a fence, with `info` what stood behind the opening fence.
        forced: True if it was cut from the one before it in the middle of a block.
        table: header and delimiter row to put before it, if it goes on with a table.
    """

    kind: Literal["text", "code"]
    text: str
    info: str = ""
    forced: bool = False
    table: str = ""


@dataclass(slots=True)
class _Fence:
    mark: str
    length: int
    indent: int
    info: str

    def closes(self, line: str) -> bool:
        body = line.strip(" \t")
        indent = len(line) - len(line.lstrip(" "))
        return indent <= 3 and len(body) >= self.length and body == self.mark * len(body)

    def may_close(self, line: str) -> bool:
        """Whether an unfinished line could still become the closing fence."""
        return not line.strip(" \t" + self.mark)

    def content(self, line: str) -> str:
        if not self.indent:
            return line
        blank = min(self.indent, len(line) - len(line.lstrip(" ")))
        return line[blank:]


def _columns(line: str) -> int:
    inner = line.strip().replace("\\|", "").removeprefix("|").removesuffix("|")
    return inner.count("|") + 1


class MarkdownScanner:
    """Takes text in any portions with `feed`, gives finished segments in `segments` (take them from its left)."""

    def __init__(self, *, plain: bool = False) -> None:
        """plain: only fences count, everything else stays as typed."""
        self.segments: list[Segment] = []
        self._plain = plain
        self._partial = ""
        self._lines: list[str] = []
        self._length = 0
        self._forced = False
        self._prefix = ""
        self._fence: _Fence | None = None
        self._forget()

    def _forget(self) -> None:
        self._in_list = False
        self._list_seen = False
        self._after_blank = False
        self._table = ""

    def feed(self, text: str) -> None:
        """More text; line ends may be "\\n" only."""
        parts = (self._partial + text).split("\n")
        self._partial = parts.pop()
        for line in parts:
            self._line(self._cut_long(line))
        if len(self._partial) > MAX_LINE:
            self._partial = self._cut_long(self._partial)

    def finish(self) -> None:
        """The text has ended: what is pending becomes segments."""
        if self._partial:
            line, self._partial = self._partial, ""
            self._line(line)
        if self._fence is not None:
            self._end_fence()
        else:
            self._cut()

    def tail(self) -> Segment | None:
        """What is pending, as a segment as it would be if the text ended here; None if there is nothing."""
        partial = self._partial
        if self._fence is not None:
            lines = list(self._lines)
            if partial and not self._fence.may_close(partial):
                lines.append(self._fence.content(partial))
            return Segment("code", "\n".join(lines), self._fence.info)
        opening = self._opens(partial)
        if opening is not None and len(self._lines) == 0:
            return Segment("code", "", opening.info)
        if opening is not None or (partial and not partial.strip(" \t`~")):
            partial = ""  # most likely a fence to come; showing it as text would flicker
        text = "\n".join([*self._lines, partial]) if partial else "\n".join(self._lines)
        return Segment("text", text, forced=self._forced, table=self._prefix) if text.strip() else None

    @property
    def in_code(self) -> bool:
        return self._fence is not None

    # ------------------------------------------------------------------ lines

    def _cut_long(self, line: str) -> str:
        while self._fence is None and len(line) > MAX_LINE:
            at = line.rfind(" ", MAX_LINE - 200, MAX_LINE) + 1 or MAX_LINE
            self._line(line[:at])
            self._cut(forced=True)
            line = line[at:]
        return line

    def _opens(self, line: str) -> _Fence | None:
        match = _FENCE.match(line)
        if match is None or (match[2][0] == "`" and "`" in match[3]) or (match[1] and self._list_seen):
            return None
        return _Fence(match[2][0], len(match[2]), len(match[1]), match[3].strip())

    def _line(self, line: str) -> None:
        if self._fence is not None:
            if self._fence.closes(line):
                self._end_fence()
            else:
                self._lines.append(self._fence.content(line))
            return
        fence = self._opens(line)
        if fence is not None:
            self._cut()
            self._fence = fence
            return
        if not self._plain:
            self._look_for_cut(line)
        self._lines.append(line)
        self._length += len(line) + 1
        limit = MAX_TABLE if self._table else MAX_SEGMENT
        if self._length > limit:
            self._cut(forced=True)

    def _look_for_cut(self, line: str) -> None:
        stripped = line.strip(" \t")
        if not stripped:
            self._after_blank = True
            self._table = ""
            return
        unindented = line[0] not in " \t"
        item = unindented and _ITEM.match(line) is not None and _RULE.match(stripped) is None
        if unindented:
            if self._lines and (self._after_blank or (item and self._in_list)):
                self._cut()
            if not self._lines and not self._forced:
                self._in_list = item
            elif not item:
                self._in_list = False
        if self._table and "|" not in line:
            self._table = ""
        elif unindented and "|" in line and _DELIMITER.match(stripped):
            self._begin_table(line)
        self._list_seen = self._list_seen or _ANY_ITEM.match(line) is not None
        self._after_blank = False

    def _begin_table(self, line: str) -> None:
        if not self._lines or self._list_seen or self._table or self._prefix:
            return
        header = self._lines[-1]
        if header[:1] in ("", " ", "\t", ">", "#") or "|" not in header or _columns(header) != _columns(line):
            return
        if len(self._lines) > 1:
            self._lines.pop()
            self._cut()
            self._lines = [header]
            self._length = len(header) + 1
        self._table = f"{header}\n{line}\n"

    # ------------------------------------------------------------------ cuts

    def _cut(self, *, forced: bool = False) -> None:
        text = "\n".join(self._lines)
        table = self._table
        if text.strip() or (self._plain and text):
            self.segments.append(Segment("text", text, forced=self._forced, table=self._prefix))
        self._lines = []
        self._length = 0
        self._forget()
        self._forced = forced
        self._prefix = table if forced else ""
        self._table = self._prefix

    def _end_fence(self) -> None:
        assert self._fence is not None
        self.segments.append(Segment("code", "\n".join(self._lines), self._fence.info))
        self._fence = None
        self._lines = []
        self._length = 0
        self._forget()
        self._forced = False
        self._prefix = ""
