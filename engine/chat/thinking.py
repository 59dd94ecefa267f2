"""Splitting an answer into thinking and text while it streams.

Some models think before they answer, between tags. The opening tag may be written by the model, or by the template
at the end of the prompt; the closing tag may never come. A tag counts only where a model really puts it: the
opening one at the start of the answer, the closing one after an opening. Anywhere else it is text.
"""

from __future__ import annotations

import re
from typing import Literal

Channel = Literal["text", "reasoning"]
Piece = tuple[Channel, str]

#: tags that models think in; the first is by far the most common
KNOWN_TAGS = ("think", "thinking", "thought", "reasoning", "seed:think", "mm:think", "[THINK]", "◁think▷")
UNCLOSED_NOTE = "The answer ended while the model was still thinking."


def tag_pair(tag: str) -> tuple[str, str]:
    """Opening and closing text of a tag's name. Names with brackets of their own ("[THINK]") keep them."""
    if tag[:1] in ("[", "◁"):
        return tag, f"{tag[0]}/{tag[1:]}"
    return f"<{tag}>", f"</{tag}>"


class ThinkSplitter:
    """Takes an answer in pieces of any size and says which channel each part belongs to.

    White space around thinking is not part of either side. Text is released as soon as it cannot be part of a tag.
    An answer without thinking comes out exactly as it went in.

    Attributes:
        text, reasoning: all of either side so far; final and authoritative after `finish`. A late closing tag
            (see `allow_late_close`) moves text that `feed` has already given out to the reasoning.
        tag: name of the tag that thinking stood in, "" if there was none.
        closed: False while inside thinking.
        late: True if the closing tag came without an opening one.
    """

    def __init__(self, tag: str = "", opened: bool = False, allow_late_close: bool = False) -> None:
        """Arguments:
        tag: the tag the model's template knows; "" if it knows none. The other known tags are accepted too.
        opened: the prompt ended with the opening tag, so that the answer starts inside thinking.
        allow_late_close: take a closing tag without an opening one as the end of thinking.
        """
        names = list(dict.fromkeys([tag, *KNOWN_TAGS] if tag else KNOWN_TAGS))
        self._openings = {tag_pair(name)[0]: name for name in names}
        self._late_name = tag or KNOWN_TAGS[0]
        self._allow_late = allow_late_close and not opened
        self._state: Literal["start", "inside", "text"] = "inside" if opened else "start"
        self._pending = ""
        self._blank = True  # nothing but white space was released on the present side
        self.tag = self._late_name if opened else ""
        self.text = ""
        self.reasoning = ""
        self.late = False

    @property
    def closed(self) -> bool:
        return self._state != "inside"

    @property
    def note(self) -> str:
        """A sentence for the user if the thinking never ended, else ""."""
        return "" if self.closed else UNCLOSED_NOTE

    def feed(self, text: str) -> list[Piece]:
        """What can be shown now."""
        if self._state == "text" and not self._pending and (not self._allow_late or self.tag):
            self.text += text  # the most frequent case by far, in the shortest way
            self._blank = self._blank and not text
            return [("text", text)] if text else []
        self._pending += text
        return self._advance(final=False)

    def finish(self) -> list[Piece]:
        """The rest, after the last piece of the answer."""
        return self._advance(final=True)

    def _advance(self, final: bool) -> list[Piece]:
        out: list[Piece] = []
        step = {"start": self._at_start, "inside": self._inside, "text": self._in_text}
        while step[self._state](out, final):
            pass
        return out

    def _at_start(self, out: list[Piece], final: bool) -> bool:
        """Before the first visible character. True if there is more to do."""
        body = self._pending.lstrip()
        for opening, name in self._openings.items():
            if body.startswith(opening):
                self.tag = name
                self._pending = body[len(opening) :]
                self._state, self._blank = "inside", True
                return True
        if not final and (not body or any(opening.startswith(body) for opening in self._openings)):
            return False
        if self.tag:
            self._pending = body  # after thinking, white space before the text is only a separator
        self._state = "text"
        return True

    def _inside(self, out: list[Piece], final: bool) -> bool:
        closing = tag_pair(self.tag)[1]
        before, found, after = self._pending.partition(closing)
        if found:
            self._release("reasoning", before.rstrip(), out)
            self._pending = after
            self._state, self._blank = "start", True
            return True
        keep = 0 if final else _possible_tag(before, closing)
        ready = before[: len(before) - keep]
        ready = ready.rstrip()  # white space before the closing tag is not part of the thinking
        if ready:
            self._pending = self._pending[len(ready) :]
            self._release("reasoning", ready, out)
        if final:
            self._pending = ""
        return False

    def _in_text(self, out: list[Piece], final: bool) -> bool:
        if not self._allow_late or self.tag:
            self._release("text", self._pending, out)
            self._pending = ""
            return False
        closing = tag_pair(self._late_name)[1]
        before, found, after = self._pending.partition(closing)
        if found and not _in_code(self.text + before):
            self._release("text", before, out)
            self.reasoning, self.text = self.text.strip(), ""
            self.tag, self.late = self._late_name, True
            self._pending = after
            self._state, self._blank = "start", True
            return True
        if found:
            self._release("text", before + found, out)
            self._pending = after
            return True
        keep = 0 if final else _possible_tag(before, closing)
        self._release("text", before[: len(before) - keep], out)
        self._pending = before[len(before) - keep :]
        return False

    def _release(self, channel: Channel, text: str, out: list[Piece]) -> None:
        if channel == "reasoning":
            if self._blank:
                text = text.lstrip()
                if text and self.reasoning:
                    text = "\n\n" + text  # a second thinking directly after the first
            self.reasoning += text
        else:
            self.text += text
        if text:
            self._blank = False
            out.append((channel, text))


def _possible_tag(text: str, tag: str) -> int:
    """Length of the longest end of the text that could be the start of the tag."""
    return next((n for n in range(min(len(text), len(tag) - 1), 0, -1) if tag.startswith(text[-n:])), 0)


_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})", re.MULTILINE)


def _in_code(text: str) -> bool:
    """Whether what follows this text stands in a Markdown code fence or in an unfinished `code span`."""
    fence = ""
    for match in _FENCE.finditer(text):
        mark = match.group(1)
        if not fence:
            fence = mark
        elif mark[0] == fence[0] and len(mark) >= len(fence):
            fence = ""
    return bool(fence) or text.rpartition("\n")[2].count("`") % 2 == 1
