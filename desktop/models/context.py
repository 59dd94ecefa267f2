"""What a ledger of the context says, as stretches of a bar and as rows of a list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from PySide6.QtCore import QAbstractListModel, QModelIndex, QObject, QPersistentModelIndex, Qt

from desktop.widgets.context_bar import KINDS, Segment
from engine.events import ContextLedger

_Index = QModelIndex | QPersistentModelIndex
_TITLE_CHARS = 160
#: what a bar shows from left to right
_ORDER = ("system", "dropped", "pinned", "history", "draft", "answer", "free")


@dataclass(frozen=True)
class Row:
    """One line of the list.

    Attributes:
        kind: a key of `KINDS`. note: what is special about it, in a word or two.
        message_id: the stored message that it begins with, 0 for none.
    """

    kind: str
    title: str
    n_tokens: int
    note: str = ""
    message_id: int = 0

    @property
    def words(self) -> str:
        """The line as a screen reader says it."""
        return ", ".join(filter(None, (self.title, f"{self.n_tokens:,} tokens", self.note)))


def draft_turn(ledger: ContextLedger) -> int:
    """Number of the turn that is not sent yet; -2 if there is none."""
    turns = [span.turn for span in ledger.spans]
    return max(turns) if turns and ledger.message_ids and ledger.message_ids[-1] == 0 else -2


def kinds_of_turns(ledger: ContextLedger) -> dict[int, str]:
    """Kind of each turn in the order of the conversation; -1 is what stands before all of them."""
    draft = draft_turn(ledger)
    kinds: dict[int, str] = {}
    for span in ledger.spans:
        if span.kind in ("answer", "free"):
            continue
        if span.turn == -1:
            kinds.setdefault(-1, "system")
        elif span.dropped:
            kinds[span.turn] = "dropped"
        elif span.kind == "pinned":
            kinds[span.turn] = "pinned"
        else:
            kinds.setdefault(span.turn, "draft" if span.turn == draft else "history")
    return kinds


def segments(ledger: ContextLedger) -> tuple[Segment, ...]:
    """The whole context as stretches, those of one kind together; what would be left out is among them."""
    kinds = kinds_of_turns(ledger)
    counts = dict.fromkeys(_ORDER, 0)
    for span in ledger.spans:
        counts[span.kind if span.kind in ("answer", "free") else kinds[span.turn]] += span.n_tokens
    return tuple(Segment(kind, count) for kind, count in counts.items() if count)


def sent(ledger: ContextLedger) -> tuple[Segment, ...]:
    """What stands in the context once this has been sent: what was a draft is a turn like the others."""
    counts: dict[str, int] = {}
    for segment in segments(ledger):
        if segment.kind not in ("dropped", "answer", "free"):
            kind = "history" if segment.kind == "draft" else segment.kind
            counts[kind] = counts.get(kind, 0) + segment.n_tokens
    return tuple(Segment(kind, count) for kind, count in counts.items())


def rows(ledger: ContextLedger, texts: Mapping[int, str], draft: str) -> list[Row]:
    """The system prompt, each turn, and the room, with their tokens.

    texts: of the stored messages by id. draft: what is being typed.
    """
    kinds = kinds_of_turns(ledger)
    counts: dict[int, int] = {}
    first: dict[int, int] = {}
    room: list[Row] = []
    for span in ledger.spans:
        if span.kind in ("answer", "free"):
            room.append(Row(span.kind, KINDS[span.kind].words.capitalize(), span.n_tokens))
            continue
        counts[span.turn] = counts.get(span.turn, 0) + span.n_tokens
        if span.message >= 0:
            first.setdefault(span.turn, span.message)
    found = []
    for turn in sorted(counts):
        message_id = _id(ledger, first.get(turn, -1))
        note = {"dropped": "left out", "pinned": "pinned", "draft": "not sent yet"}.get(kinds[turn], "")
        if turn == -1:
            title = "System prompt" if any(span.kind == "system" for span in ledger.spans) else "Chat template"
        elif kinds[turn] == "draft":
            title = _one_line(draft) or "Your message"
        else:
            title = _one_line(texts.get(message_id, "")) or f"Turn {turn + 1}"
        found.append(Row(kinds[turn], title, counts[turn], note, message_id))
    return [*found, *room]


def summary(ledger: ContextLedger) -> str:
    """What would be sent and what not, in a sentence or two."""
    parts = {segment.kind: segment.n_tokens for segment in segments(ledger)}
    if not ledger.fits:
        return (
            f"This does not fit: {ledger.n_prompt:,} tokens would have to go into a context of {ledger.n_ctx:,}, with "
            "room for an answer."
        )
    said = [f"{ledger.n_prompt:,} of {ledger.n_ctx:,} tokens would be sent."]
    if ledger.n_dropped:
        messages = "1 message" if ledger.n_dropped == 1 else f"{ledger.n_dropped:,} messages"
        said.append(f"{messages} no longer fit and would be left out ({parts.get('dropped', 0):,} tokens).")
    if ledger.approximate:
        said.append("This model's template changes the texts, so the borders between turns are estimates.")
    return " ".join([*said, *ledger.notes])


def _id(ledger: ContextLedger, index: int) -> int:
    return ledger.message_ids[index] if 0 <= index < len(ledger.message_ids) else 0


def _one_line(text: str) -> str:
    return " ".join(text[: 4 * _TITLE_CHARS].split())[:_TITLE_CHARS]


class Roles(IntEnum):
    ROW = Qt.ItemDataRole.UserRole + 1


class ContextRows(QAbstractListModel):
    """Rows of `rows`."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.rows: tuple[Row, ...] = ()

    def set_rows(self, rows: Sequence[Row]) -> None:
        """Show these. As many as before take their places, so that the choice in the list stays."""
        new = tuple(rows)
        if new == self.rows:
            return
        if len(new) == len(self.rows):
            self.rows = new
            self.dataChanged.emit(self.index(0), self.index(len(new) - 1), [])
            return
        self.beginResetModel()
        self.rows = new
        self.endResetModel()

    def rowCount(self, parent: _Index = QModelIndex()) -> int:  # noqa: B008 (Qt's own signature)
        return 0 if parent.isValid() else len(self.rows)

    def data(self, index: _Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid() or not 0 <= index.row() < len(self.rows):
            return None
        row = self.rows[index.row()]
        if role == Qt.ItemDataRole.DisplayRole:
            return row.title
        if role in (Qt.ItemDataRole.AccessibleTextRole, Qt.ItemDataRole.ToolTipRole):
            return row.words
        return row if role == Roles.ROW else None
