"""The chats as rows of a list: headings by day, chats, or the hits of a search."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Any

from PySide6.QtCore import QAbstractListModel, QModelIndex, QObject, QPersistentModelIndex, Qt, Signal

from engine.message import Chat

Index = QModelIndex | QPersistentModelIndex
UNTITLED = "New chat"


class Role:
    """Item data roles of `ChatListModel`."""

    CHAT_ID = Qt.ItemDataRole.UserRole + 1
    IS_HEADING = Qt.ItemDataRole.UserRole + 2
    IS_WRITING = Qt.ItemDataRole.UserRole + 3
    SNIPPET = Qt.ItemDataRole.UserRole + 4
    MESSAGE_ID = Qt.ItemDataRole.UserRole + 5


@dataclass(frozen=True)
class Row:
    """One row. A heading has chat_id 0; snippet and message_id belong to a search hit."""

    title: str
    chat_id: int = 0
    writing: bool = False
    snippet: str = ""
    message_id: int = 0

    @property
    def key(self) -> tuple[str, int, int]:
        """What makes two rows the same one in an update."""
        return ("" if self.chat_id else self.title, self.chat_id, self.message_id)


def group_of(updated_s: float, now: dt.datetime) -> str:
    """The heading a chat of that time stands under, in local time."""
    day = dt.datetime.fromtimestamp(updated_s).date()
    age = (now.date() - day).days
    if age <= 0:
        return "Today"
    if age == 1:
        return "Yesterday"
    return "Last week" if age <= 7 else "Older"


def grouped(chats: Sequence[Chat], writing: frozenset[int], now: dt.datetime) -> list[Row]:
    """Rows with headings for chats that are sorted newest first."""
    rows: list[Row] = []
    heading = ""
    for chat in chats:
        group = group_of(chat.updated_s, now)
        if group != heading:
            heading = group
            rows.append(Row(group))
        rows.append(Row(chat.title or UNTITLED, chat.id, chat.id in writing))
    return rows


class ChatListModel(QAbstractListModel):
    """Rows change by removal, insertion and dataChanged, so that selection, scroll and an open editor survive.

    Signals:
        rename_requested(int, str): a title was edited in place; the model changes when the engine says so.
    """

    rename_requested = Signal(int, str)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._rows: list[Row] = []

    # ---- Qt's interface

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        return 0 if parent.isValid() else len(self._rows)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid() or not 0 <= index.row() < len(self._rows):
            return None
        row = self._rows[index.row()]
        match role:
            case Qt.ItemDataRole.DisplayRole | Qt.ItemDataRole.EditRole:
                return row.title
            case Qt.ItemDataRole.ToolTipRole:
                return row.title if row.chat_id else None
            case Qt.ItemDataRole.AccessibleTextRole:
                if not row.chat_id:
                    return f"{row.title}, heading"
                return f"{row.title}, an answer is being written" if row.writing else row.title
            case Role.CHAT_ID:
                return row.chat_id
            case Role.IS_HEADING:
                return not row.chat_id
            case Role.IS_WRITING:
                return row.writing
            case Role.SNIPPET:
                return row.snippet
            case Role.MESSAGE_ID:
                return row.message_id
        return None

    def setData(self, index: Index, value: Any, role: int = Qt.ItemDataRole.EditRole) -> bool:
        if role != Qt.ItemDataRole.EditRole or not index.isValid():
            return False
        row = self._rows[index.row()]
        title = " ".join(str(value).split())
        if not row.chat_id or not title:
            return False
        if title != row.title:
            self._rows[index.row()] = replace(row, title=title)
            self.dataChanged.emit(index, index)
            self.rename_requested.emit(row.chat_id, title)
        return True

    def flags(self, index: Index) -> Qt.ItemFlag:
        if not index.isValid():
            return Qt.ItemFlag.NoItemFlags
        if not self._rows[index.row()].chat_id:
            return Qt.ItemFlag.ItemIsEnabled  # a heading is read out, never chosen
        return (
            Qt.ItemFlag.ItemIsEnabled
            | Qt.ItemFlag.ItemIsSelectable
            | Qt.ItemFlag.ItemIsEditable
            | Qt.ItemFlag.ItemNeverHasChildren
        )

    # ---- content

    def set_rows(self, rows: Sequence[Row]) -> None:
        """Show these rows, with the least change."""
        new = list(rows)
        self._move_to(new)
        for place, (old_row, new_row) in enumerate(zip(self._rows, new, strict=True)):
            if old_row != new_row:
                self._rows[place] = new_row
                self.dataChanged.emit(self.index(place), self.index(place))

    def _move_to(self, new: list[Row]) -> None:
        """Remove and insert until the keys are those of `new`; contents may still be old."""
        old = self._rows
        start = 0
        while start < min(len(old), len(new)) and old[start].key == new[start].key:
            start += 1
        end = 0
        while end < min(len(old), len(new)) - start and old[-1 - end].key == new[-1 - end].key:
            end += 1
        old_keys = [row.key for row in old[start : len(old) - end]]
        new_keys = [row.key for row in new[start : len(new) - end]]
        if len(old_keys) * len(new_keys) > 250_000:  # another list altogether: a diff would cost more than it saves
            self.beginResetModel()
            self._rows = list(new)
            self.endResetModel()
            return
        steps = SequenceMatcher(None, old_keys, new_keys, autojunk=False).get_opcodes()
        for tag, i1, i2, j1, j2 in reversed(steps):
            if tag in ("delete", "replace"):
                self.beginRemoveRows(QModelIndex(), start + i1, start + i2 - 1)
                del self._rows[start + i1 : start + i2]
                self.endRemoveRows()
            if tag in ("insert", "replace"):
                added = new[start + j1 : start + j2]
                self.beginInsertRows(QModelIndex(), start + i1, start + i1 + len(added) - 1)
                self._rows[start + i1 : start + i1] = added
                self.endInsertRows()

    def set_writing(self, chat_ids: frozenset[int]) -> None:
        """Which chats have an answer being written."""
        for place, row in enumerate(self._rows):
            writing = row.chat_id in chat_ids
            if row.chat_id and writing != row.writing:
                self._rows[place] = replace(row, writing=writing)
                self.dataChanged.emit(self.index(place), self.index(place))

    def row_at(self, index: Index) -> Row | None:
        return self._rows[index.row()] if index.isValid() and index.row() < len(self._rows) else None

    def index_of(self, chat_id: int) -> QModelIndex:
        """The first row of a chat; an invalid index if it is not shown."""
        for place, row in enumerate(self._rows):
            if row.chat_id == chat_id:
                return self.index(place)
        return QModelIndex()

    def neighbour(self, chat_id: int, step: int) -> int:
        """Id of the chat `step` places below (or above) another one; 0 if there is none."""
        ids = [row.chat_id for row in self._rows if row.chat_id]
        if chat_id not in ids:
            return ids[0] if ids and step > 0 else 0
        place = ids.index(chat_id) + step
        return ids[place] if 0 <= place < len(ids) else 0
