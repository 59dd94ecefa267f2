"""An answer while it is written: its text so far, so that a chat can be left and opened again in the middle."""

from __future__ import annotations

import msgspec

from desktop.speeds import Speeds
from engine.events import PromptProgress, Token
from engine.message import Message, Part, ReasoningPart, TextPart


class LiveAnswer:
    """Collects the steps of one running answer.

    Args:
        base: the message as it was when writing began (an answer that is continued has text already).
    """

    def __init__(self, chat_id: int, base: Message | None) -> None:
        self.chat_id = chat_id
        self.speeds = Speeds()
        self._base = base.parts if base is not None else ()
        self._texts: list[str] = []
        self._reasoning: list[str] = []

    def add(self, step: Token | PromptProgress) -> None:
        self.speeds.add(step)
        if isinstance(step, Token) and step.text:
            (self._reasoning if step.channel == "reasoning" else self._texts).append(step.text)

    def message(self, stored: Message) -> Message:
        """The stored message with everything that has been written up to now."""
        text = "".join(p.text for p in self._base if isinstance(p, TextPart)) + "".join(self._texts)
        old = next((p for p in self._base if isinstance(p, ReasoningPart)), None)
        reasoning = (old.text if old else "") + "".join(self._reasoning)
        parts: list[Part] = []
        if reasoning:
            tag = old.tag if old else "think"
            parts.append(ReasoningPart(reasoning, tag=tag, closed=bool(text)))
        if text:
            parts.append(TextPart(text))
        return msgspec.structs.replace(stored, parts=tuple(parts), status="streaming")
