"""The table of quantizations with the one button of the chosen row."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QModelIndex, QObject, QPoint, Qt, Signal
from PySide6.QtGui import QFontMetrics, QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QPushButton, QTableView, QWidget

from desktop.delegates.quant_table import ROW_HEIGHT, QuantTableDelegate
from desktop.models.quant_table import (
    ACTION,
    BITS,
    MEMORY,
    QUALITY,
    QUANTIZATION,
    SIZE,
    SPEED,
    TERMS,
    QuantRow,
    QuantTable,
)
from desktop.theme import LIGHT, Theme
from desktop.widgets.term import explain

_MOST_ROWS = 9


class QuantView(QTableView):
    """Signals:
    row_chosen(int): another row. action_requested(int): the button of a row, or Enter on it.
    """

    row_chosen = Signal(int)
    action_requested = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._scale = 1.0
        self._theme = LIGHT
        self.setObjectName("quant_table")
        self.setAccessibleName("Files of this model by quantization")
        explain(self, "quantization", "One row for each quantization. Enter downloads the chosen one")
        self.table = QuantTable(self)
        self._delegate = QuantTableDelegate(self)
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
        for part, name in ((self.horizontalHeader(), "quant_columns"), (self.verticalHeader(), "quant_rows")):
            part.setObjectName(name)
            part.setAccessibleName("Headings of the table")
            part.setToolTip("What the columns mean is said where the mouse rests on a heading")
        header = self.horizontalHeader()
        header.setHighlightSections(False)
        header.setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        header.setSectionsClickable(False)
        header.setTextElideMode(Qt.TextElideMode.ElideRight)
        self.button = QPushButton("Download", self.viewport())
        self.button.setObjectName("download")
        self.button.setProperty("kind", "primary")
        self.button.setAutoDefault(False)
        self.button.hide()
        self.button.clicked.connect(lambda: self.action_requested.emit(self.currentIndex().row()))
        self.selectionModel().currentRowChanged.connect(self._on_current)
        self.table.modelReset.connect(self._fit_height)
        self.table.dataChanged.connect(lambda *_: self._place_button())
        self.verticalScrollBar().valueChanged.connect(lambda _: self._place_button())
        self.viewport().installEventFilter(self)

    def term_at(self, place: QPoint) -> str:
        """The term of the column at a place, of its heading as of its cells."""
        column = self.columnAt(place.x())
        return TERMS[column] if column >= 0 else ""

    # ---- content

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self._theme, self._scale = theme, scale
        self._delegate.apply_theme(theme, scale)
        self.verticalHeader().setDefaultSectionSize(round(ROW_HEIGHT * scale))
        self._fit_columns()
        self._fit_height()
        self.viewport().update()

    def choose(self, place: int) -> None:
        """Mark a row; `row_chosen` follows where it is another one."""
        if 0 <= place < self.table.rowCount():
            self.setCurrentIndex(self.table.index(place, QUANTIZATION))

    @property
    def current_row(self) -> QuantRow | None:
        return self.table.row_at(self.currentIndex().row())

    def _on_current(self, current: QModelIndex, previous: QModelIndex) -> None:
        self._place_button()
        if current.isValid():
            self.row_chosen.emit(current.row())

    # ---- the button

    def _place_button(self) -> None:
        row = self.current_row
        words, tip = button_words(row)
        if row is None or not words:
            self.button.hide()
            return
        if self.button.text() != words:
            self.button.setText(words)
            self.button.setProperty("kind", "primary" if words in ("Download", "Load") else "")
            self.button.style().unpolish(self.button)
            self.button.style().polish(self.button)
        self.button.setToolTip(tip)
        self.button.setAccessibleName(f"{words} {row.label}")
        cell = self.visualRect(self.table.index(self.currentIndex().row(), ACTION))
        size = self.button.sizeHint()
        height = min(size.height(), cell.height() - 4)
        width = min(max(size.width(), round(92 * self._scale)), cell.width() - 8)
        self.button.setGeometry(cell.right() - width - 4, cell.top() + (cell.height() - height) // 2, width, height)
        self.button.show()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self.viewport() and event.type() == QEvent.Type.Resize:
            self._fit_columns()
            self._place_button()
        return bool(super().eventFilter(watched, event))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            if self.currentIndex().isValid() and self.button.isVisible():
                self.action_requested.emit(self.currentIndex().row())
            return
        super().keyPressEvent(event)

    # ---- sizes

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_columns()

    def _fit_columns(self) -> None:
        """The memory column takes what the others leave; on a narrow page the least important ones go."""
        metrics = QFontMetrics(self._delegate.fonts[0])
        pad = round(22 * self._scale)

        def wide(sample: str) -> int:
            return metrics.horizontalAdvance(sample) + pad

        widths = {
            QUANTIZATION: max(wide("UD-Q4_K_XL"), round(104 * self._scale)),
            SIZE: wide("123.4 GiB"),
            BITS: wide("16.00"),
            QUALITY: wide("none to be noticed"),
            SPEED: wide("399–9999 t/s"),
            ACTION: max(self.button.sizeHint().width() + 12, round(108 * self._scale)),
        }
        room = self.viewport().width()
        small = QFontMetrics(self._delegate.fonts[2])
        least = small.horizontalAdvance("GPU memory at 16,384 tokens") + pad
        for column in (BITS, SPEED, QUALITY, SIZE):
            if column == SIZE and room - sum(widths.values()) < least:  # headings are shortened before the size goes
                least = small.horizontalAdvance("experts on CPU") + pad + pad // 2
                widths[QUANTIZATION] = wide("IQ3_XXS") + pad // 2
            hidden = room - sum(widths.values()) < least
            self.setColumnHidden(column, hidden)
            if hidden:
                del widths[column]
        for column, width in widths.items():
            self.setColumnWidth(column, width)
        self.setColumnWidth(MEMORY, max(least, room - sum(widths.values())))

    def _fit_height(self) -> None:
        rows = min(max(1, self.table.rowCount()), _MOST_ROWS)
        header = self.horizontalHeader().sizeHint().height()
        self.setFixedHeight(header + rows * round(ROW_HEIGHT * self._scale) + 2)
        self._place_button()


def button_words(row: QuantRow | None) -> tuple[str, str]:
    """Words and tooltip of a row's button; empty: none."""
    if row is None:
        return "", ""
    if row.here:
        return "Load", "It is on this computer: show how it would be loaded"
    if row.percent is not None:
        return f"{row.percent} %", "It is being downloaded: show the downloads"
    return "Download", f"Download {row.label}, {row.note or 'one file'}, and check its SHA-256"
