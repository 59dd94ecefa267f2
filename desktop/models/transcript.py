"""The messages on screen and the answers being written: the truth that the transcript view shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import msgspec
from PySide6.QtCore import QAbstractListModel, QModelIndex, QPersistentModelIndex, Qt

from engine.events import PromptProgress, Token
from engine.message import Message, ReasoningPart, TextPart

_Index = QModelIndex | QPersistentModelIndex


class Roles(IntEnum):
    """What `data` can be asked for."""

    MESSAGE = Qt.ItemDataRole.UserRole + 1
    ID = Qt.ItemDataRole.UserRole + 2
    TEXT = Qt.ItemDataRole.UserRole + 3
    REASONING = Qt.ItemDataRole.UserRole + 4
    STATUS = Qt.ItemDataRole.UserRole + 5


@dataclass(slots=True)
class StreamState:
    """An answer that is being written.

    Attributes:
        base_text, base_reasoning: what the message held when writing began (not empty when it is continued).
        n_tokens: tokens so far, thinking included; n_reasoning: those of the thinking.
        ttft_s: seconds from the request to the first token; None before it.
        last_s: seconds from the request to the last token.
        progress: state of reading the prompt; None before and after it.
    """

    base_text: str = ""
    base_reasoning: str = ""
    n_tokens: int = 0
    n_reasoning: int = 0
    ttft_s: float | None = None
    last_s: float = 0.0
    reasoning_first_s: float = 0.0
    reasoning_last_s: float = 0.0
    progress: PromptProgress | None = None
    _text: list[str] = field(default_factory=list)
    _reasoning: list[str] = field(default_factory=list)
    _new_text: list[str] = field(default_factory=list)
    _new_reasoning: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return self.base_text + "".join(self._text)

    @property
    def reasoning(self) -> str:
        return self.base_reasoning + "".join(self._reasoning)

    @property
    def rate(self) -> float | None:
        """Tokens per second of decoding so far; None with fewer than two tokens."""
        if self.ttft_s is None or self.n_tokens < 2 or self.last_s <= self.ttft_s:
            return None
        return (self.n_tokens - 1) / (self.last_s - self.ttft_s)

    @property
    def reasoning_s(self) -> float:
        return max(0.0, self.reasoning_last_s - self.reasoning_first_s)

    def step(self, step: Token | PromptProgress) -> None:
        """Take in one step of the worker."""
        if isinstance(step, PromptProgress):
            self.progress = step
            return
        self.progress = None
        self.n_tokens += 1
        if self.ttft_s is None:
            self.ttft_s = step.time_s
        self.last_s = step.time_s
        if step.channel == "reasoning":
            if not self.n_reasoning:
                self.reasoning_first_s = step.time_s
            self.n_reasoning += 1
            self.reasoning_last_s = step.time_s
            self._reasoning.append(step.text)
            self._new_reasoning.append(step.text)
        elif step.text:
            self._text.append(step.text)
            self._new_text.append(step.text)

    def take(self) -> tuple[str, str]:
        """(text, reasoning) that came since the last call."""
        new = "".join(self._new_text), "".join(self._new_reasoning)
        self._new_text.clear()
        self._new_reasoning.clear()
        return new


class TranscriptModel(QAbstractListModel):
    """The messages of the branch on screen, from the first to the last."""

    def __init__(self, parent: Any = None) -> None:
        super().__init__(parent)
        self._messages: list[Message] = []
        self._rows: dict[int, int] = {}
        self._streams: dict[int, StreamState] = {}

    # ------------------------------------------------------------------ reading

    def rowCount(self, parent: _Index = QModelIndex()) -> int:  # noqa: B008 (Qt's own signature)
        return 0 if parent.isValid() else len(self._messages)

    def data(self, index: _Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """A role of a message; None for everything else. Never raises."""
        row = index.row()
        if not index.isValid() or not 0 <= row < len(self._messages):
            return None
        message = self._messages[row]
        stream = self._streams.get(message.id)
        if role in (Qt.ItemDataRole.DisplayRole, Roles.TEXT):
            return stream.text if stream is not None else message.text
        if role == Roles.MESSAGE:
            return message
        if role == Roles.ID:
            return message.id
        if role == Roles.REASONING:
            return stream.reasoning if stream is not None else message.reasoning
        if role == Roles.STATUS:
            return message.status
        return None

    @property
    def messages(self) -> list[Message]:
        """The messages; not to be changed."""
        return self._messages

    def row_of(self, message_id: int) -> int | None:
        """Row of a message; None if it is not on this branch."""
        return self._rows.get(message_id)

    def stream(self, message_id: int) -> StreamState | None:
        """State of an answer that is being written; None for any other message."""
        return self._streams.get(message_id)

    @property
    def streaming_ids(self) -> list[int]:
        return list(self._streams)

    # ------------------------------------------------------------------ changing

    def set_messages(self, messages: list[Message]) -> None:
        """Show another branch. Streams of messages that are still there go on."""
        self.beginResetModel()
        self._messages = list(messages)
        self._rows = {message.id: row for row, message in enumerate(self._messages)}
        self._streams = {key: value for key, value in self._streams.items() if key in self._rows}
        for message in self._messages:
            if message.status != "streaming":
                self._streams.pop(message.id, None)
        self.endResetModel()

    def add(self, message: Message) -> None:
        """Add a message at the end; one that is there already is updated."""
        if message.id in self._rows:
            self.update(message)
            return
        row = len(self._messages)
        self.beginInsertRows(QModelIndex(), row, row)
        self._messages.append(message)
        self._rows[message.id] = row
        self.endInsertRows()

    def update(self, message: Message) -> None:
        """Another content or status of a message. While it is being written the text of its stream counts."""
        row = self._rows.get(message.id)
        if row is None:
            return
        if message.id in self._streams and message.status != "streaming":
            del self._streams[message.id]
        self._messages[row] = message
        self._changed(row)

    def remove_after(self, message_id: int) -> None:
        """Take away all messages behind this one."""
        row = self._rows.get(message_id)
        if row is None or row + 1 >= len(self._messages):
            return
        self.beginRemoveRows(QModelIndex(), row + 1, len(self._messages) - 1)
        for message in self._messages[row + 1 :]:
            del self._rows[message.id]
            self._streams.pop(message.id, None)
        del self._messages[row + 1 :]
        self.endRemoveRows()

    def begin_stream(self, message_id: int) -> StreamState | None:
        """A message is being written from now on; what it holds already stays its beginning."""
        row = self._rows.get(message_id)
        if row is None:
            return None
        message = self._messages[row]
        state = StreamState(base_text=message.text, base_reasoning=message.reasoning)
        self._streams[message_id] = state
        if message.status != "streaming":
            self._messages[row] = msgspec.structs.replace(message, status="streaming")
        self._changed(row)
        return state

    def append_step(self, message_id: int, step: Token | PromptProgress) -> bool:
        """Take in a token or the progress of the prompt; False if the message is not on this branch."""
        state = self._streams.get(message_id)
        if state is None:
            state = self.begin_stream(message_id)
            if state is None:
                return False
        state.step(step)
        return True

    def end_stream(self, message: Message) -> None:
        """The answer is complete; the message's own parts count from now on."""
        self._streams.pop(message.id, None)
        self.update(message)

    def _changed(self, row: int) -> None:
        index = self.index(row)
        self.dataChanged.emit(index, index, [])


def text_and_reasoning(message: Message) -> tuple[str, ReasoningPart | None]:
    """The visible text and the thinking of a message, several parts of thinking joined."""
    thoughts = [part for part in message.parts if isinstance(part, ReasoningPart)]
    text = "".join(part.text for part in message.parts if isinstance(part, TextPart))
    if not thoughts:
        return text, None
    if len(thoughts) == 1:
        return text, thoughts[0]
    return text, ReasoningPart(
        "\n\n".join(part.text for part in thoughts),
        tag=thoughts[0].tag,
        closed=all(part.closed for part in thoughts),
        n_tokens=sum(part.n_tokens for part in thoughts),
        duration_s=sum(part.duration_s for part in thoughts),
    )
