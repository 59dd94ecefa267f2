"""Labels with their figures at the right, as they stand in a panel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QGridLayout, QLabel, QWidget

from desktop import fonts
from desktop.widgets.term import explain


@dataclass(frozen=True)
class Row:
    """One line.

    Attributes:
        label, value: both plain text. tip: in the tooltip; for an unknown value the reason.
        term: an id of the glossary, or "". accent: the value is what it is about.
    """

    label: str
    value: str
    tip: str = ""
    term: str = ""
    accent: bool = False


class FigureRows(QWidget):
    """Rows that change as a whole."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.setObjectName(name)
        self.rows: tuple[Row, ...] = ()
        self._labels: list[tuple[QLabel, QLabel]] = []
        self._scale = 1.0
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setHorizontalSpacing(12)
        self._grid.setVerticalSpacing(4)
        self._grid.setColumnStretch(0, 1)

    def set_rows(self, rows: Sequence[Row]) -> None:
        """Show these; labels that are there already are used again."""
        self.rows = tuple(rows)
        while len(self._labels) < len(rows):
            self._add()
        for place, (label, value) in enumerate(self._labels):
            shown = place < len(rows)
            label.setVisible(shown)
            value.setVisible(shown)
            if shown:
                self._fill(label, value, rows[place])

    def _fill(self, label: QLabel, value: QLabel, row: Row) -> None:
        label.setText(row.label)
        value.setText(row.value)
        value.setProperty("tone", "accent" if row.accent else "")
        value.style().unpolish(value)
        value.style().polish(value)
        for part in (label, value):
            explain(part, row.term, row.tip or None) if row.term else part.setToolTip(row.tip)
        value.setAccessibleName(f"{row.label}: {row.value}")

    def _add(self) -> None:
        label, value = QLabel(), QLabel()
        label.setProperty("role", "secondary")
        label.setWordWrap(True)
        label.setAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignTop)
        value.setObjectName("figure_value")
        value.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignTop)
        value.setFont(fonts.tabular(fonts.ui_font(self._scale)))
        for part in (label, value):
            part.setTextFormat(Qt.TextFormat.PlainText)
        row = len(self._labels)
        self._grid.addWidget(label, row, 0)
        self._grid.addWidget(value, row, 1)
        self._labels.append((label, value))

    def apply_scale(self, scale: float) -> None:
        self._scale = scale
        for _, value in self._labels:
            value.setFont(fonts.tabular(fonts.ui_font(scale)))
