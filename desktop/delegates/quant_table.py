"""Draws the table of quantizations: figures, verdicts as chips, the memory of the chosen row as a bar."""

from __future__ import annotations

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QFont, QFontMetrics, QPainter
from PySide6.QtWidgets import QStyle, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from desktop import fonts
from desktop.models.quant_table import ACTION, BITS, MEMORY, QUALITY, QUANTIZATION, ROW_ROLE, SIZE, SPEED, QuantRow
from desktop.theme import LIGHT, Theme
from desktop.widgets.fit_chip import paint_chip
from desktop.widgets.memory_bar import paint_bar

Index = QModelIndex | QPersistentModelIndex
ROW_HEIGHT = 40


class QuantTableDelegate(QStyledItemDelegate):
    """Colours from the theme, sizes from the user's text size."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.apply_theme(LIGHT, 1.0)

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self._theme, self._scale = theme, scale
        self._text = fonts.tabular(fonts.ui_font(scale))
        self._bold = QFont(self._text)
        self._bold.setWeight(QFont.Weight.DemiBold)
        self._label = fonts.label_font(scale)

    @property
    def fonts(self) -> tuple[QFont, QFont, QFont]:
        """Text, its bold, the one of chips."""
        return self._text, self._bold, self._label

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(60, round(ROW_HEIGHT * self._scale))

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        row = index.data(ROW_ROLE)
        if not isinstance(row, QuantRow):
            return
        rect: QRect = option.rect
        state: QStyle.StateFlag = option.state
        selected = bool(state & QStyle.StateFlag.State_Selected)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if selected:
            painter.fillRect(rect, self._theme.color("accent_soft"))
        elif state & QStyle.StateFlag.State_MouseOver:
            painter.fillRect(rect, self._theme.color("hover"))
        painter.fillRect(QRect(rect.left(), rect.bottom(), rect.width(), 1), self._theme.color("hairline"))
        pad = round(10 * self._scale)
        room = rect.adjusted(pad, 0, -pad, 0)
        if index.column() == MEMORY:
            self._paint_memory(painter, room, row, selected)
        else:
            self._paint_words(painter, room, row, index.column(), str(index.data() or ""), selected)
        if state & QStyle.StateFlag.State_HasFocus and state & QStyle.StateFlag.State_KeyboardFocusChange:
            painter.setPen(self._theme.color("focus"))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRect(QRectF(rect).adjusted(0.5, 0.5, -0.5, -1.5))
        painter.restore()

    def _paint_words(
        self, painter: QPainter, room: QRect, row: QuantRow, column: int, words: str, selected: bool
    ) -> None:
        font = self._bold if column == QUANTIZATION and (selected or row.best) else self._text
        side = Qt.AlignmentFlag.AlignRight if column in (SIZE, BITS, SPEED) else Qt.AlignmentFlag.AlignLeft
        painter.setFont(font)
        painter.setPen(self._theme.color(self._token(row, column)))
        metrics = QFontMetrics(font)
        shown = metrics.elidedText(words, Qt.TextElideMode.ElideRight, room.width())
        painter.drawText(room, side | Qt.AlignmentFlag.AlignVCenter, shown)
        if column == QUANTIZATION and row.note:
            used = metrics.horizontalAdvance(shown) + round(8 * self._scale)
            painter.setFont(self._label)
            painter.setPen(self._theme.color("ink3"))
            rest = room.adjusted(used, 0, 0, 0)
            note = QFontMetrics(self._label).elidedText(row.note, Qt.TextElideMode.ElideRight, rest.width())
            painter.drawText(rest, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, note)

    @staticmethod
    def _token(row: QuantRow, column: int) -> str:
        if column == QUALITY:
            return row.tone or "ink2"
        if column == ACTION:
            return "ink3"
        return "ink3" if row.tone == "bad" and column in (QUANTIZATION, SIZE, BITS) else "ink"

    def _paint_memory(self, painter: QPainter, room: QRect, row: QuantRow, selected: bool) -> None:
        from desktop.views.hub.where_it_goes import parts_of

        if selected and row.plan is not None and row.plan.verdict != "unknown":
            fit = row.plan.devices[0] if row.plan.devices else row.plan.host
            height = round(14 * self._scale)
            bar = QRectF(room.left(), room.center().y() - height / 2, room.width(), height)
            paint_bar(painter, bar, parts_of(fit), fit.total_bytes, self._theme)
            return
        paint_chip(painter, QRectF(room), row.chip, self._label, self._theme, self._scale, right=False)
