"""How control tokens are written, where they stand in a text, and how messages are kept from forging them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from engine.chat.template import unused_characters
from engine.message import PromptMessage

Span = tuple[int, int]
#: how role and turn markers look
_MARKER = re.compile(r"<\|.*>|<.*\|>|\[\|.*\|\]", re.DOTALL)


def markers_in(user_defined: Sequence[str], source: str) -> list[str]:
    """Tokens of type USER_DEFINED that mark roles or turns. Some vocabularies have them so, not as CONTROL."""
    return [
        text
        for text in user_defined
        if len(text) > 2 and not text.isspace() and (text in source or _MARKER.fullmatch(text))
    ]


class ControlTexts:
    """The texts of all control tokens of a vocabulary."""

    def __init__(self, texts: Sequence[str]) -> None:
        # llama.cpp looks for the longest first, over the whole text
        self.texts = sorted({text for text in texts if text}, key=lambda text: (-len(text), text))
        # white space stays: templates trim it, and no control token is made of it alone
        self._edges = {c for text in self.texts for c in (text[0], text[-1]) if not c.isspace()}

    def find(self, text: str) -> list[Span]:
        """Where control tokens stand in a text that is tokenized with `parse_special`."""
        spans: list[Span] = []
        gaps: list[Span] = [(0, len(text))]
        for control in self.texts:
            if control not in text:
                continue
            rest: list[Span] = []
            for start, end in gaps:
                while (at := text.find(control, start, end)) >= 0:
                    spans.append((at, at + len(control)))
                    rest.append((start, at))
                    start = at + len(control)
                rest.append((start, end))
            gaps = [(start, end) for start, end in rest if start < end]
        return sorted(spans)

    def disguise(self, source: str, messages: Sequence[PromptMessage]) -> tuple[dict[int, str], dict[int, str]]:
        """Tables for `str.translate`: to characters that stand for those at the edges of control tokens, and back.

        Both are empty if no message holds any of them.
        """
        texts = [text for m in messages for text in (m.content, m.reasoning)]
        needed = sorted(c for c in self._edges if any(c in text for text in texts))
        if not needed:
            return {}, {}
        stand_ins = unused_characters(len(needed), source, *texts)
        away = {ord(c): stand_in for c, stand_in in zip(needed, stand_ins, strict=True)}
        back = {ord(stand_in): c for c, stand_in in zip(needed, stand_ins, strict=True)}
        return away, back
