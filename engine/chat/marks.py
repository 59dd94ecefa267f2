"""Where in a rendered prompt the text of each message stands, whatever template made it.

The conversation is rendered a second time, with the first and the last character of every text replaced by marks:
characters that occur nowhere else, each of them once. Templates trim, join, fold and reorder texts, but they carry the
marks along, and with the marks taken back the second rendering is the first one, so places agree. The marks stand in
the place of characters and not beside them, since white space beside a mark would not be trimmed.

A template that looks at those very characters can render something else. Then the places are found by what stands
between the marks, and where that fails too they are estimated and the result says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from engine.chat.template import unused_characters
from engine.message import PromptMessage

#: what `unused_characters` gives; not all of them are marks
_CANDIDATE = re.compile("([\ufdd0-\ufdef\U00100000-\U0010fffd])")
_ESCAPE = re.compile(r"\\u(fd[de][0-9a-f]|dbc[0-9a-f]\\u[0-9a-f]{4}|dbf[0-9a-f]\\u[0-9a-f]{4})", re.IGNORECASE)
#: characters that may stand in the place of one: an escape of a quote or of a character beyond 16 bits
_LONGEST_STAND_IN = 12


@dataclass(frozen=True)
class TextRange:
    """Characters of the prompt that are text of a message; `end` is excluded."""

    start: int
    end: int
    message: int


@dataclass(frozen=True)
class _Text:
    """A text of a message: the marks of its first and last character, and the white space around them."""

    message: int
    first: str
    last: str
    lead: str
    trail: str


@dataclass
class _Place:
    """Where the character of a mark stands, with white space of its text beside it that the template has kept."""

    mark: str
    start: int
    end: int


class Marks:
    """Marks for the texts of a conversation.

    Attributes:
        messages: the conversation with marks, without white space around the texts: whether a template keeps that is
            seen from what is there in the real rendering.
    """

    def __init__(self, messages: Sequence[PromptMessage], source: str) -> None:
        """source: the template's text, which the marks must not occur in.

        Raises:
            InvalidRequest: there are not enough unused characters.
        """
        texts = [text for m in messages for text in (m.reasoning, m.content)]
        self._unused = iter(unused_characters(2 * sum(1 for t in texts if t.strip()), source, *texts))
        self._texts: list[_Text] = []
        self._originals: dict[str, str] = {}
        self.messages = tuple(
            msgspec.structs.replace(m, reasoning=self._marked(i, m.reasoning), content=self._marked(i, m.content))
            for i, m in enumerate(messages)
        )
        self._leads = {text.first: text.lead for text in self._texts if text.lead}
        self._trails = {text.last: text.trail for text in self._texts if text.trail}

    def _marked(self, message: int, text: str) -> str:
        middle = text.strip()
        if not middle:
            return text
        at = text.index(middle[0])
        lead, trail = text[:at], text[at + len(middle) :]
        first = next(self._unused)
        last = next(self._unused) if len(middle) > 1 else first
        self._originals[first], self._originals[last] = middle[0], middle[-1]
        self._texts.append(_Text(message, first, last, lead, trail))
        return first + middle[1:-1] + last if last != first else first

    def find(self, marked: str, text: str) -> tuple[list[TextRange], bool]:
        """Ranges of the messages in `text`, in order, and whether they are exact.

        marked: the rendering of `messages`; text: that of the conversation itself.
        """
        if "\\u" in marked:
            marked = _ESCAPE.sub(self._unescaped, marked)
        parts = list(self._joined(_CANDIDATE.split(marked)))
        places = self._places(parts, text)
        exact = places is not None
        if places is None:
            places = self._estimated(parts, text)
        return self._ranges(places), exact

    def _unescaped(self, match: re.Match[str]) -> str:
        r"""The mark that a template has written as \uXXXX."""
        units = [int(unit, 16) for unit in re.split(r"\\u", match.group(1), flags=re.IGNORECASE)]
        code = units[0] if len(units) == 1 else 0x10000 + ((units[0] - 0xD800) << 10) + (units[1] - 0xDC00)
        return chr(code) if code < 0x110000 and chr(code) in self._originals else match.group(0)

    def _joined(self, parts: list[str]) -> Iterator[str]:
        """Text and marks by turns; candidates that are no marks are text."""
        text = [parts[0]]
        for candidate, after in zip(parts[1::2], parts[2::2], strict=True):
            if candidate in self._originals:
                yield "".join(text)
                yield candidate
                text = [after]
            else:
                text += [candidate, after]
        yield "".join(text)

    def _places(self, parts: list[str], text: str) -> list[_Place] | None:
        """Where each mark belongs in the text; None if what is between the marks is not there."""
        for kept in (False, True):  # a template mostly trims all texts or none
            stand_ins = [self._with_space(part) if kept else self._originals[part] for part in parts[1::2]]
            if _woven(parts[::2], stand_ins) == text:
                return _side_by_side(parts, stand_ins)
        places: list[_Place] = []
        at = 0
        for number in range(0, len(parts), 2):
            mark = parts[number + 1] if number + 1 < len(parts) else ""
            after = parts[number + 2] if mark else ""
            trail = self._trails.get(places[-1].mark, "") if places else ""
            found = self._next(text, at, trail, parts[number], mark, after)
            if found is None:
                return None
            kept_trail, start, end = found
            if places:
                places[-1].end += kept_trail
            if mark:
                places.append(_Place(mark, start, end))
                at = end
        return places

    def _with_space(self, mark: str) -> str:
        return self._leads.get(mark, "") + self._originals[mark] + self._trails.get(mark, "")

    def _next(self, text: str, at: int, trail: str, between: str, mark: str, after: str) -> tuple[int, int, int] | None:
        """How much of `trail` stands at `at`, and where the character of `mark` with its own white space begins and
        ends: behind `between`, before `after`."""
        lead, own_trail = self._leads.get(mark, ""), self._trails.get(mark, "")
        choices = dict.fromkeys((kept, begin) for begin in ("", lead) for kept in ("", trail))
        for longest in (1, _LONGEST_STAND_IN):
            for kept, begin in choices:
                start = at + len(kept) + len(between)
                place = start + len(begin)
                if not text.startswith(kept + between + begin, at):
                    continue
                if not mark:
                    if place == len(text):
                        return len(kept), place, place
                    continue
                if longest == 1 and text[place : place + 1] != self._originals[mark]:
                    continue
                for end in range(place + (longest == 1), place + longest + 1):
                    if text.startswith((after, own_trail + after), end):
                        return len(kept), start, end
        return None

    def _estimated(self, parts: list[str], text: str) -> list[_Place]:
        """Places by what both renderings have in common at their beginning and end; in between by proportion."""
        marked = "".join(self._originals.get(part, part) for part in parts)
        head = common_prefix(marked, text)
        tail = min(common_prefix(marked[::-1], text[::-1]), min(len(marked), len(text)) - head)
        middle, real = len(marked) - head - tail, len(text) - head - tail
        places: list[_Place] = []
        at = 0
        for number, part in enumerate(parts):
            if number % 2:
                place = at
                if at >= len(marked) - tail:
                    place = at + len(text) - len(marked)
                elif at >= head:
                    place = head + round((at - head) * real / max(1, middle))
                places.append(_Place(part, place, min(len(text), place + 1)))
            at += 1 if number % 2 else len(part)
        return places

    def _ranges(self, places: list[_Place]) -> list[TextRange]:
        """From marks to texts. A text that the template shows twice has two ranges, one that it omits none."""
        by_mark: dict[str, list[_Place]] = {}
        for place in places:
            by_mark.setdefault(place.mark, []).append(place)
        found: list[TextRange] = []
        for text in self._texts:
            lasts = by_mark.get(text.last, [])
            for first in by_mark.get(text.first, []):
                end = next((last.end for last in lasts if last.start >= first.start), first.end)
                found.append(TextRange(first.start, end, text.message))
        found.sort(key=lambda r: (r.start, r.end))
        ranges: list[TextRange] = []
        for each in found:
            start = max(each.start, ranges[-1].end if ranges else 0)
            if start < each.end:
                ranges.append(TextRange(start, each.end, each.message))
        return ranges


def _woven(texts: Sequence[str], between: Sequence[str]) -> str:
    return "".join([piece for pair in zip(texts, between, strict=False) for piece in pair] + [texts[-1]])


def _side_by_side(parts: Sequence[str], stand_ins: Sequence[str]) -> list[_Place]:
    """Places of the marks in the text that is made of exactly these parts."""
    places: list[_Place] = []
    at = 0
    for text, mark, stand_in in zip(parts[::2], parts[1::2], stand_ins, strict=False):
        at += len(text)
        places.append(_Place(mark, at, at + len(stand_in)))
        at += len(stand_in)
    return places


def searched(messages: Sequence[PromptMessage], text: str) -> list[TextRange]:
    """Ranges of the messages by looking for their texts one after the other: a guess, since a text can also stand
    where the template wrote it."""
    ranges: list[TextRange] = []
    at = 0
    for index, message in enumerate(messages):
        wanted = message.content.strip()
        start = text.find(wanted, at) if wanted else -1
        if start >= 0:
            at = start + len(wanted)
            ranges.append(TextRange(start, at, index))
    return ranges


def common_prefix(one: str, other: str) -> int:
    """Characters that both texts begin with."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
