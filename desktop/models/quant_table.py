"""The files of a repository as a table: one row for each quantization."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QObject, QPersistentModelIndex, Qt

from desktop import figures
from desktop.widgets.fit_chip import ASKING, Chip, chip_for

if TYPE_CHECKING:
    from engine.fit.plan_records import FitPlan

Index = QModelIndex | QPersistentModelIndex
QUANTIZATION, SIZE, BITS, QUALITY, MEMORY, SPEED, ACTION = range(7)
_HEADINGS = ("Quantization", "Size", "Bits", "Quality lost", "Memory", "Expected", "")
_TIPS = (
    "How the weights are packed; fewer bits take less memory and lose more quality",
    "Size of all files of this quantization",
    "Bits for each weight, on average",
    "What is lost against the model as it was trained, measured on another model of the same kind",
    "Whether it fits into the memory that is free now",
    "Tokens a second while an answer is written: an estimate until answers on this computer correct it",
    "",
)
#: terms of the glossary
TERMS = ("quant_names", "quantization", "bits_per_weight", "quality_loss", "fit_plan", "speed_estimate", "")
PLAN_ROLE = Qt.ItemDataRole.UserRole + 1
ROW_ROLE = Qt.ItemDataRole.UserRole + 2


@dataclass(frozen=True)
class QuantRow:
    """One quantization.

    Attributes:
        key: names it in the repository. note: what belongs to it ("3 files", "with image part").
        plan: None: not judged. asked: the verdict is still to come.
        here: it is in the library already; percent: of a download in progress, None where there is none.
    """

    key: str
    label: str
    size_bytes: int
    bits: float | None = None
    quality: str = ""
    tone: str = ""
    note: str = ""
    plan: FitPlan | None = None
    asked: bool = True
    best: bool = False
    here: bool = False
    percent: int | None = None

    @property
    def chip(self) -> Chip:
        if self.plan is None and self.asked:
            return ASKING
        return chip_for(self.plan, long=True)


def speed_text(plan: FitPlan | None) -> str:
    from desktop.views.hub.where_it_goes import speed_words

    return speed_words(plan) if plan is not None and plan.verdict != "too_large" else figures.DASH


class QuantTable(QAbstractTableModel):
    """Largest first, as given."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._rows: list[QuantRow] = []
        self.memory_heading = "Memory"

    @property
    def rows(self) -> list[QuantRow]:
        return list(self._rows)

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        return 0 if parent.isValid() else len(self._rows)

    def columnCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        return 0 if parent.isValid() else len(_HEADINGS)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if orientation != Qt.Orientation.Horizontal:
            return None
        if role == Qt.ItemDataRole.DisplayRole:
            return self.memory_heading if section == MEMORY else _HEADINGS[section]
        if role == Qt.ItemDataRole.ToolTipRole:
            return _TIPS[section]
        if role == Qt.ItemDataRole.TextAlignmentRole:
            right = section in (SIZE, BITS, SPEED)
            side = Qt.AlignmentFlag.AlignRight if right else Qt.AlignmentFlag.AlignLeft
            return side | Qt.AlignmentFlag.AlignVCenter
        return None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid():
            return None
        row, column = self._rows[index.row()], index.column()
        if role == PLAN_ROLE:
            return row.plan
        if role == ROW_ROLE:
            return row
        if role == Qt.ItemDataRole.DisplayRole:
            return self._text(row, column)
        if role == Qt.ItemDataRole.AccessibleTextRole:
            heading = self.memory_heading if column == MEMORY else _HEADINGS[column]
            best = ", best for this machine" if row.best and column == QUANTIZATION else ""
            return f"{heading}: {self._text(row, column)}{best}" if heading else self._text(row, column)
        if role == Qt.ItemDataRole.ToolTipRole:
            if column == MEMORY:
                return row.chip.tip
            return row.note or None if column == QUANTIZATION else None
        return None

    @staticmethod
    def _text(row: QuantRow, column: int) -> str:
        match column:
            case 0:
                return row.label
            case 1:
                return figures.size(row.size_bytes or None)
            case 2:
                return figures.DASH if row.bits is None else f"{row.bits:.1f}"
            case 3:
                return row.quality
            case 4:
                return row.chip.words
            case 5:
                return speed_text(row.plan)
        if row.here:
            return "on this computer"
        return "" if row.percent is None else f"{row.percent} %"

    def set_rows(self, rows: Sequence[QuantRow], memory_heading: str = "") -> None:
        self.beginResetModel()
        self._rows = list(rows)
        if memory_heading:
            self.memory_heading = memory_heading
        self.endResetModel()

    def set_heading(self, words: str) -> None:
        if words != self.memory_heading:
            self.memory_heading = words
            self.headerDataChanged.emit(Qt.Orientation.Horizontal, MEMORY, MEMORY)

    def update_row(self, place: int, **values: Any) -> None:
        """Change attributes of one row; it stays where it is."""
        if 0 <= place < len(self._rows):
            new = replace(self._rows[place], **values)
            if new != self._rows[place]:
                self._rows[place] = new
                self.dataChanged.emit(self.index(place, 0), self.index(place, len(_HEADINGS) - 1))

    def place_of(self, key: str) -> int:
        """Row number; -1 if there is none."""
        return next((place for place, row in enumerate(self._rows) if row.key == key), -1)

    def row_at(self, place: int) -> QuantRow | None:
        return self._rows[place] if 0 <= place < len(self._rows) else None
