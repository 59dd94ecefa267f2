"""A table of a few words and figures: no editing, one row chosen, read out as heading and cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import (
    QAbstractTableModel,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    QPoint,
    QRect,
    QSize,
    Qt,
    Signal,
)
from PySide6.QtGui import QFontMetrics, QPainter, QResizeEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHeaderView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QTableView,
    QWidget,
)

from desktop import fonts
from desktop.theme import LIGHT, Theme

Index = QModelIndex | QPersistentModelIndex
_ROW_HEIGHT = 34


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        tip: what the heading means. right: figures stand at the right edge.
        least: a text that must fit; the column takes at least its width.
        first_to_go: hidden where the table is too narrow, the highest number first; 0: never.
        grows: it takes a share of the room that is left.
        term: of the glossary, where one explains it.
    """

    heading: str
    tip: str
    right: bool = False
    least: str = ""
    first_to_go: int = 0
    grows: bool = False
    term: str = ""


class _Model(QAbstractTableModel):
    def __init__(self, columns: Sequence[Column], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.columns = list(columns)
        self.rows: list[tuple[str, ...]] = []
        self.tips: list[tuple[str, ...]] = []

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        return 0 if parent.isValid() else len(self.rows)

    def columnCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        return 0 if parent.isValid() else len(self.columns)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if orientation != Qt.Orientation.Horizontal:
            return None
        column = self.columns[section]
        if role == Qt.ItemDataRole.DisplayRole:
            return column.heading
        if role == Qt.ItemDataRole.ToolTipRole:
            return column.tip
        if role == Qt.ItemDataRole.TextAlignmentRole:
            side = Qt.AlignmentFlag.AlignRight if column.right else Qt.AlignmentFlag.AlignLeft
            return side | Qt.AlignmentFlag.AlignVCenter
        return None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid():
            return None
        words = self.rows[index.row()][index.column()]
        if role == Qt.ItemDataRole.DisplayRole:
            return words
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return f"{self.columns[index.column()].heading}: {words}"
        if role == Qt.ItemDataRole.ToolTipRole:
            return self.tips[index.row()][index.column()] or None
        return None


class _Delegate(QStyledItemDelegate):
    def __init__(self, model: _Model, parent: QWidget) -> None:
        super().__init__(parent)
        self._model = model
        self.apply_theme(LIGHT, 1.0)

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self._theme, self._scale = theme, scale
        self.font = fonts.tabular(fonts.ui_font(scale))
        self.pad = round(10 * scale)

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(40, round(_ROW_HEIGHT * self._scale))

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        rect: QRect = option.rect
        state: QStyle.StateFlag = option.state
        painter.save()
        if state & QStyle.StateFlag.State_Selected:
            painter.fillRect(rect, self._theme.color("accent_soft"))
        elif state & QStyle.StateFlag.State_MouseOver:
            painter.fillRect(rect, self._theme.color("hover"))
        painter.fillRect(QRect(rect.left(), rect.bottom(), rect.width(), 1), self._theme.color("hairline"))
        painter.setFont(self.font)
        painter.setPen(self._theme.color("ink"))
        room = rect.adjusted(self.pad, 0, -self.pad, 0)
        right = self._model.columns[index.column()].right
        side = Qt.AlignmentFlag.AlignRight if right else Qt.AlignmentFlag.AlignLeft
        words = QFontMetrics(self.font).elidedText(
            str(index.data() or ""), Qt.TextElideMode.ElideRight, max(0, room.width())
        )
        painter.drawText(room, side | Qt.AlignmentFlag.AlignVCenter, words)
        painter.restore()


class PlainTable(QTableView):
    """Signals:
    row_chosen(int): another row is the current one, by the user or by `choose`.
    """

    row_chosen = Signal(int)

    def __init__(self, name: str, label: str, columns: Sequence[Column], *, most_rows: int) -> None:
        super().__init__()
        self._most_rows = most_rows
        self._scale = 1.0
        self.setObjectName(name)
        self.setAccessibleName(label)
        self.setToolTip(label)
        self.table = _Model(columns, self)
        self._delegate = _Delegate(self.table, self)
        self.setModel(self.table)
        self.setItemDelegate(self._delegate)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setMouseTracking(True)
        self.setShowGrid(False)
        self.setTabKeyNavigation(False)
        self.setWordWrap(False)
        self.verticalHeader().hide()
        for part, kind in ((self.horizontalHeader(), "columns"), (self.verticalHeader(), "rows")):
            part.setObjectName(f"{name}_{kind}")
            part.setAccessibleName(f"Headings of the table: {label}")
            part.setToolTip("What the columns mean is said where the mouse rests on a heading")
        header = self.horizontalHeader()
        header.setHighlightSections(False)
        header.setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        header.setSectionsClickable(False)
        header.setTextElideMode(Qt.TextElideMode.ElideRight)
        self.selectionModel().currentRowChanged.connect(self._on_current)
        self.table.modelReset.connect(self._fit)

    def term_at(self, place: QPoint) -> str:
        """The term of the column at a place, of its heading as of its cells."""
        column = self.columnAt(place.x())
        return self.table.columns[column].term if column >= 0 else ""

    def set_rows(self, rows: Sequence[tuple[str, ...]], tips: Sequence[tuple[str, ...]] = ()) -> None:
        """New content; no row is the current one then. tips: a tooltip for each cell."""
        self.table.beginResetModel()
        self.table.rows = list(rows)
        self.table.tips = list(tips) or [("",) * len(self.table.columns)] * len(rows)
        self.table.endResetModel()

    def choose(self, place: int) -> None:
        if 0 <= place < self.table.rowCount():
            self.setCurrentIndex(self.table.index(place, 0))

    def _on_current(self, current: QModelIndex, previous: QModelIndex) -> None:
        if current.isValid():
            self.row_chosen.emit(current.row())

    # ---- look

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self._scale = scale
        self._delegate.apply_theme(theme, scale)
        self.verticalHeader().setDefaultSectionSize(round(_ROW_HEIGHT * scale))
        self._fit()
        self.viewport().update()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_columns()

    def _fit(self) -> None:
        self._fit_columns()
        rows = min(max(1, self.table.rowCount()), self._most_rows)
        header = self.horizontalHeader().sizeHint().height()
        self.setFixedHeight(header + rows * round(_ROW_HEIGHT * self._scale) + 2)

    def _fit_columns(self) -> None:
        """Each column as wide as its words. What is left goes to those that grow; where room is missing the least
        important ones go, then headings are shortened."""
        metrics, columns = QFontMetrics(self._delegate.font), self.table.columns
        small = QFontMetrics(fonts.label_font(self._scale))
        pad = 2 * self._delegate.pad + 4
        cells, whole = [], []
        for place, column in enumerate(columns):
            words = [column.least, *(row[place] for row in self.table.rows)]
            cells.append(max(metrics.horizontalAdvance(text) for text in words) + pad)
            whole.append(max(cells[-1], small.horizontalAdvance(column.heading) + pad + pad // 3))
        room = self.viewport().width()
        shown = list(range(len(columns)))
        for place in sorted(shown, key=lambda p: -columns[p].first_to_go):
            if columns[place].first_to_go and sum(whole[p] for p in shown) > room:
                shown.remove(place)
        narrow = sum(whole[place] for place in shown) > room
        widths = cells if narrow else whole
        left = room - sum(widths[place] for place in shown)
        if narrow:  # to the headings that are cut
            shares = {place: whole[place] - cells[place] for place in shown}
        else:
            growing = [place for place in shown if columns[place].grows] or shown
            shares = dict.fromkeys(growing, 1)
        for place in range(len(columns)):
            self.setColumnHidden(place, place not in shown)
        for place in shown:
            extra = left * shares.get(place, 0) // max(1, sum(shares.values()))
            self.setColumnWidth(place, max(24, widths[place] + extra))
