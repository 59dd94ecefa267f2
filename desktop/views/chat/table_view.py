"""A table of a message. Columns are as wide as their content needs; a table too wide scrolls sideways."""

from __future__ import annotations

import math

from PySide6.QtCore import Qt
from PySide6.QtGui import (
    QBrush,
    QFontMetricsF,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextFrameFormat,
    QTextLength,
    QTextTable,
    QTextTableCellFormat,
    QTextTableFormat,
)
from PySide6.QtWidgets import QWidget

from desktop.views.chat.markdown_blocks import Span, Spans, TableBlock
from desktop.views.chat.text_view import BaseText
from desktop.views.chat.transcript_style import ALIGNMENT, TranscriptStyle

_PAD = 7
_MIN_COLUMN = 70
_MAX_COLUMN = 320


class TableView(BaseText):
    """One table, or a part of a long one (then `before` is the part it goes on with, and its columns are taken)."""

    def __init__(self, parent: QWidget, style: TranscriptStyle, before: TableView | None = None) -> None:
        super().__init__(parent, style)
        self.setLineWrapMode(self.LineWrapMode.FixedPixelWidth)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAsNeeded)
        self.set_role("", style.text_font)
        self._metrics = QFontMetricsF(style.text_font)
        self._before = before
        self._block: TableBlock | None = None
        self._table: QTextTable | None = None
        self._natural: list[float] = []
        self._widths: list[int] = []
        self._width = 0
        self.setAccessibleName("Table")

    # ------------------------------------------------------------------ content

    def set_table(self, block: TableBlock) -> None:
        """Show this table; rows that are already there are not touched."""
        # Without an edit block every cell written lays the whole table out again.
        cursor = QTextCursor(self.document())
        cursor.beginEditBlock()
        try:
            self._write(block)
        finally:
            cursor.endEditBlock()
        self._caret_home()

    def _write(self, block: TableBlock) -> None:
        old, self._block = self._block, block
        start = 0
        if old is not None and self._table is not None and _same_head(old, block) and len(block.rows) >= len(old.rows):
            start = max(0, len(old.rows) - 1)
            if old.rows[:start] != block.rows[:start]:
                start = -1
        else:
            start = -1
        if start < 0:
            self._rebuild(block)
            return
        head = self._head_rows(block)
        assert self._table is not None
        missing = head + len(block.rows) - self._table.rows()
        if missing > 0:
            self._table.appendRows(missing)
        for number in range(start, len(block.rows)):
            self._fill(head + number, block.rows[number], header=False, clear=number < len(old.rows) if old else False)
            self._measure(block.rows[number])
        self._apply_widths()

    def _head_rows(self, block: TableBlock) -> int:
        return 0 if block.continued else 1

    def _rebuild(self, block: TableBlock) -> None:
        everything = QTextCursor(self.document())
        everything.select(QTextCursor.SelectionType.Document)
        everything.removeSelectedText()
        self._table = None
        self._widths = []
        columns = len(block.header)
        self._natural = list(self._before._natural) if self._before and block.continued else [0.0] * columns
        self._natural = (self._natural + [0.0] * columns)[:columns]
        form = QTextTableFormat()
        form.setBorder(0)
        form.setCellSpacing(0)
        form.setCellPadding(0)
        form.setBorderStyle(QTextFrameFormat.BorderStyle.BorderStyle_None)
        form.setBorderCollapse(True)
        head = self._head_rows(block)
        rows = head + len(block.rows)
        if not rows or not columns:
            return
        cursor = QTextCursor(self.document())
        self._table = cursor.insertTable(rows, columns, form)
        if head:
            self._fill(0, block.header, header=True)
            self._measure(block.header, bold=True)
        for number, row in enumerate(block.rows):
            self._fill(head + number, row, header=False)
            self._measure(row)
        self._apply_widths()

    def _measure(self, row: tuple[Spans, ...], *, bold: bool = False) -> None:
        if self._before is not None and self._before._natural and self._block is not None and self._block.continued:
            return
        for column, spans in enumerate(row[: len(self._natural)]):
            text = "".join(span.text for span in spans)
            longest = max(text.split("\n"), key=len)[:80]
            width = self._metrics.horizontalAdvance(longest) * (1.1 if bold else 1.02)
            self._natural[column] = max(self._natural[column], min(_MAX_COLUMN * self._look.scale, width))

    def _fill(self, row: int, cells: tuple[Spans, ...], *, header: bool, clear: bool = False) -> None:
        assert self._table is not None and self._block is not None
        look = self._look
        form = QTextTableCellFormat()
        form.setTopPadding(look.px(_PAD - 2))
        form.setBottomPadding(look.px(_PAD - 2))
        form.setRightPadding(look.px(2 * _PAD))
        form.setBottomBorder(1)
        form.setBottomBorderStyle(QTextFrameFormat.BorderStyle.BorderStyle_Solid)
        form.setBottomBorderBrush(QBrush(look.color("control" if header else "hairline")))
        for column in range(self._table.columns()):
            cell = self._table.cellAt(row, column)
            cell.setFormat(form)
            cursor = cell.firstCursorPosition()
            if clear:
                cursor.setPosition(cell.lastPosition(), QTextCursor.MoveMode.KeepAnchor)
                cursor.removeSelectedText()
            block_form = QTextBlockFormat()
            align = self._block.aligns[column] if column < len(self._block.aligns) else ""
            block_form.setAlignment(ALIGNMENT.get(align, Qt.AlignmentFlag.AlignLeft))
            cursor.setBlockFormat(block_form)
            for span in cells[column] if column < len(cells) else ():
                shown = Span(span.text, span.bold or header, span.italic, span.strike, span.code, span.href)
                cursor.insertText(span.text.replace("\n", "\u2028"), self._char(shown))

    def _char(self, span: Span) -> QTextCharFormat:
        return self._look.char_format(span)

    # ------------------------------------------------------------------ size

    def _wanted(self, width: int) -> list[int]:
        extra = 2 * self._look.px(_PAD) + 2
        wanted = [math.ceil(w) + extra for w in self._natural]
        over = sum(wanted) - width
        floor = self._look.px(_MIN_COLUMN)
        while over > 0:
            widest = max(wanted)
            if widest <= floor:
                break
            second = max([w for w in wanted if w < widest], default=floor)
            cut = [i for i, w in enumerate(wanted) if w == widest]
            share = max(1, min(widest - max(second, floor), -(-over // len(cut))))
            for i in cut:
                wanted[i] -= share
            over = sum(wanted) - width
        return wanted

    def _apply_widths(self) -> None:
        if self._table is None or not self._width:
            return
        wanted = self._before._widths if self._before and self._before._widths else self._wanted(self._width)
        if wanted == self._widths:
            return
        self._widths = list(wanted)
        form = self._table.format().toTableFormat()
        form.setColumnWidthConstraints([QTextLength(QTextLength.Type.FixedLength, w) for w in wanted])
        form.setWidth(QTextLength(QTextLength.Type.FixedLength, sum(wanted)))
        self._table.setFormat(form)

    def height_for(self, width: int) -> int:
        """Lay out in `width` pixels; the height that takes."""
        self.take_width(width)
        if width != self._width:
            self._width = width
            self._apply_widths()
        total = max(width, sum(self._widths))
        if self.lineWrapColumnOrWidth() != total:
            self.setLineWrapColumnOrWidth(total)
        document = self.document()
        if document.textWidth() != total:
            document.setTextWidth(total)
        height = math.ceil(document.size().height())
        if self._table is not None:
            # the empty paragraph that a document has behind a table is not part of what is seen
            height = math.ceil(document.documentLayout().frameBoundingRect(self._table).bottom())
        if total > width:
            height += self.horizontalScrollBar().sizeHint().height()
        return max(height, 0)


def _same_head(a: TableBlock, b: TableBlock) -> bool:
    return (a.header, a.aligns, a.continued) == (b.header, b.aligns, b.continued)
