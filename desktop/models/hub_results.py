"""Rows of two lines with a chip: the catalogue, the hits of a search, the models on this computer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QAbstractListModel, QModelIndex, QObject, QPersistentModelIndex, Qt

from desktop.widgets.fit_chip import Chip

Index = QModelIndex | QPersistentModelIndex
GOOD, LARGER, UNJUDGED = "Good on this machine", "Larger than this machine", "Not judged"


class Role:
    """Item data roles of `ModelRows`."""

    KEY = Qt.ItemDataRole.UserRole + 1
    IS_HEADING = Qt.ItemDataRole.UserRole + 2
    LINE = Qt.ItemDataRole.UserRole + 3
    CHIP = Qt.ItemDataRole.UserRole + 4


@dataclass(frozen=True)
class ModelRow:
    """One row. key: names the model; empty: a heading. line: under the title. chip: at the right; None: none."""

    title: str
    key: str = ""
    line: str = ""
    chip: Chip | None = None
    tip: str = ""

    @property
    def spoken(self) -> str:
        """The row as a screen reader says it."""
        if not self.key:
            return f"{self.title}, heading"
        parts = [self.title, self.line, self.chip.words if self.chip else ""]
        return ", ".join(part for part in parts if part)


class ModelRows(QAbstractListModel):
    """The rows of a panel. A row that only changes its chip or line stays where it is."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._rows: list[ModelRow] = []

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        return 0 if parent.isValid() else len(self._rows)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid() or not 0 <= index.row() < len(self._rows):
            return None
        row = self._rows[index.row()]
        match role:
            case Qt.ItemDataRole.DisplayRole:
                return row.title
            case Qt.ItemDataRole.ToolTipRole:
                words = [row.tip or row.title, row.chip.tip if row.chip else ""]
                return "\n".join(part for part in words if part) if row.key else None
            case Qt.ItemDataRole.AccessibleTextRole:
                return row.spoken
            case Role.KEY:
                return row.key
            case Role.IS_HEADING:
                return not row.key
            case Role.LINE:
                return row.line
            case Role.CHIP:
                return row.chip
        return None

    def flags(self, index: Index) -> Qt.ItemFlag:
        if not index.isValid():
            return Qt.ItemFlag.NoItemFlags
        if not self._rows[index.row()].key:
            return Qt.ItemFlag.ItemIsEnabled
        return Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable | Qt.ItemFlag.ItemNeverHasChildren

    @property
    def rows(self) -> list[ModelRow]:
        return list(self._rows)

    def set_rows(self, rows: Sequence[ModelRow]) -> None:
        """Show these; where the keys are the same, only what changed is drawn anew."""
        new = list(rows)
        if [self._identity(row) for row in new] == [self._identity(row) for row in self._rows]:
            for place, (old, row) in enumerate(zip(self._rows, new, strict=True)):
                if old != row:
                    self._rows[place] = row
                    self.dataChanged.emit(self.index(place), self.index(place))
            return
        start = len(self._rows)
        if len(new) > start and [self._identity(r) for r in new[:start]] == [self._identity(r) for r in self._rows]:
            self.beginInsertRows(QModelIndex(), start, len(new) - 1)  # another page: what is shown stays
            self._rows = new
            self.endInsertRows()
            if start:
                self.dataChanged.emit(self.index(0), self.index(start - 1))
            return
        self.beginResetModel()
        self._rows = new
        self.endResetModel()

    @staticmethod
    def _identity(row: ModelRow) -> tuple[str, str]:
        return row.key, "" if row.key else row.title

    def index_of(self, key: str) -> QModelIndex:
        """The row of a model; an invalid index if it is not shown."""
        for place, row in enumerate(self._rows):
            if row.key and row.key == key:
                return self.index(place)
        return QModelIndex()


def grouped(rows: Sequence[tuple[str, ModelRow]]) -> list[ModelRow]:
    """Rows under their headings, the headings in the order good, larger, not judged; empty ones are left out."""
    result = []
    for heading in (GOOD, LARGER, UNJUDGED):
        members = [row for group, row in rows if group == heading]
        if members:
            result += [ModelRow(heading), *members]
    return result
