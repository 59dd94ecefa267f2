"""Read-only rich text of the transcript: selectable, as tall as its content, and unable to load anything.

`BaseText` is what all texts of the transcript have in common, `TextView` shows paragraphs.
"""

from __future__ import annotations

import math
from typing import Any

from PySide6.QtCore import QEvent, QPointF, QRectF, Qt, QUrl, Signal
from PySide6.QtGui import (
    QContextMenuEvent,
    QFont,
    QFontMetricsF,
    QGuiApplication,
    QHelpEvent,
    QKeyEvent,
    QKeySequence,
    QPainter,
    QPaintEvent,
    QTextBlock,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QTextLine,
    QWheelEvent,
)
from PySide6.QtWidgets import QFrame, QMenu, QTextBrowser, QToolTip, QWidget

from desktop.views.chat.markdown import is_allowed_link
from desktop.views.chat.markdown_blocks import Span, Spans, TextBlock
from desktop.views.chat.transcript_style import QUOTE_PROPERTY, RULE_PROPERTY, TranscriptStyle

_FLAGS = (
    Qt.TextInteractionFlag.TextSelectableByMouse
    | Qt.TextInteractionFlag.TextSelectableByKeyboard
    | Qt.TextInteractionFlag.LinksAccessibleByMouse
    | Qt.TextInteractionFlag.LinksAccessibleByKeyboard
)


class BaseText(QTextBrowser):
    """A text that grows with its content and never scrolls up or down by itself.

    Signals:
        link_clicked(str): a link with an allowed address was clicked or chosen with the keyboard.
    """

    link_clicked = Signal(str)

    def __init__(self, parent: QWidget, style: TranscriptStyle) -> None:
        super().__init__(parent)
        self._look = style
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setOpenLinks(False)
        self.setUndoRedoEnabled(False)
        self.setTextInteractionFlags(_FLAGS)
        self.setAcceptDrops(False)
        self.viewport().setAutoFillBackground(False)
        self.document().setDocumentMargin(0)
        self.anchorClicked.connect(self._clicked)

    def set_role(self, role: str, font: QFont) -> None:
        """Take the role's rules of the stylesheet and a font, before any text is measured.

        A stylesheet is applied when a widget is first shown otherwise, and may then change the font of a text whose
        height is already taken.
        """
        if role:
            self.setProperty("role", role)
        self.ensurePolished()
        self.document().setDefaultFont(font)

    # ---- nothing from outside

    def loadResource(self, kind: int, name: QUrl | str) -> Any:
        """Pictures, style sheets and pages are never loaded, from wherever they are asked for."""
        return None

    def doSetSource(
        self, name: QUrl | str, kind: QTextDocument.ResourceType = QTextDocument.ResourceType.UnknownResource
    ) -> None:
        """A text of the transcript never becomes another page."""

    def _clicked(self, url: QUrl) -> None:
        address = url.toString()
        if is_allowed_link(address):
            self.link_clicked.emit(address)

    def _caret_home(self) -> None:
        """Text written into an empty document pushes the caret to its end, and a wide text would scroll there."""
        cursor = self.textCursor()
        if cursor.position() and not cursor.hasSelection():
            cursor.setPosition(0)
            self.setTextCursor(cursor)

    # ---- size

    def take_width(self, width: int) -> None:
        """Take this width now, with the viewport.

        Qt sizes the viewport of a hidden text only when it is shown, and until then lays the document out in the old
        width whenever its content changes; a height taken then would be that of the old width.
        """
        if self.width() != width:
            self.resize(width, self.height())
        viewport = self.viewport()
        if viewport.width() != width and not self.isVisible():
            viewport.resize(width, viewport.height())

    def height_for(self, width: int) -> int:
        """Lay out in `width` pixels; the height that takes."""
        document = self.document()
        self.take_width(width)
        if document.textWidth() != width:
            document.setTextWidth(width)
        return math.ceil(document.size().height())

    # ---- input

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Up and down belongs to the transcript; sideways to a wide code or table."""
        delta = event.angleDelta()
        bar = self.horizontalScrollBar()
        if bar.maximum() > 0 and (abs(delta.x()) > abs(delta.y())):
            super().wheelEvent(event)
            return
        event.ignore()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Escape, Qt.Key.Key_PageUp, Qt.Key.Key_PageDown):
            event.ignore()
            return
        if event.matches(QKeySequence.StandardKey.Copy) and not self.textCursor().hasSelection():
            event.ignore()  # the message copies itself
            return
        super().keyPressEvent(event)

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            address = self.anchorAt(self.viewport().mapFromGlobal(event.globalPos()))
            if address:
                QToolTip.showText(event.globalPos(), address, self)
            else:
                QToolTip.hideText()
            return True
        return super().event(event)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        menu = self.make_menu(self.anchorAt(event.pos()))
        menu.exec(event.globalPos())
        menu.deleteLater()

    def make_menu(self, address: str = "") -> QMenu:
        """The context menu; `address` is that of a link under the mouse."""
        menu = QMenu(self)
        copy = menu.addAction("Copy", self.copy)
        copy.setEnabled(self.textCursor().hasSelection())
        menu.addAction("Select all", self.selectAll)
        if address:
            menu.addAction("Copy link address", lambda: QGuiApplication.clipboard().setText(address))
        owner = self.parent()
        while owner is not None and not hasattr(owner, "copy_source"):
            owner = owner.parent()
        if owner is not None:
            menu.addSeparator()
            menu.addAction("Copy message", owner.copy_source)
        return menu

    def has_selection(self) -> bool:
        return self.textCursor().hasSelection()


class TextView(BaseText):
    """Paragraphs, headings, list items and rules of one message, in one document.

    Blocks are written at the end and can be taken away from the end; `mark` tells where the next one would begin.
    """

    def __init__(self, parent: QWidget, style: TranscriptStyle, *, muted: bool = False) -> None:
        super().__init__(parent, style)
        self._muted = muted
        self.set_role("muted" if muted else "", style.small_font if muted else style.text_font)
        self.setWordWrapMode(self.wordWrapMode().WrapAtWordBoundaryOrAnywhere)
        self._code: list[tuple[int, int]] = []
        self._special: list[int] = []
        self._caret = False
        self._empty = True

    # ---- writing

    def mark(self) -> int:
        """The place at which the next block would begin, for `cut_from`."""
        return -1 if self._empty else self.document().characterCount() - 1

    def length(self) -> int:
        """Characters in the document."""
        return self.document().characterCount()

    def add_block(self, block: TextBlock, previous: TextBlock | None) -> None:
        """Write one block behind all others. previous: the block before it, if it is text."""
        cursor = self._end()
        cursor.beginEditBlock()
        first = self._empty
        form = self._look.block_format(block, previous, first=first)
        if self._empty:
            cursor.setBlockFormat(form)
            self._empty = False
        else:
            cursor.insertBlock(form, QTextCharFormat())
        if block.quote or block.kind == "rule":
            self._special.append(cursor.position())
        if block.marker:
            cursor.insertText(block.marker + "\t", self._look.char_format(Span("", bold=False), muted=True))
        for span in block.spans:
            self._insert(cursor, span, block.level)
        cursor.endEditBlock()
        if first:
            self._caret_home()

    def extend(self, old: TextBlock, new: TextBlock) -> bool:
        """Turn the last block from `old` into `new` by adding to its end; False if that is not possible."""
        if _frame(old) != _frame(new) or not _goes_on(old.spans, new.spans):
            return False
        count = len(old.spans)
        cursor = self._end()
        cursor.beginEditBlock()  # one layout of the paragraph, however many spans come
        if count:
            last, grown = old.spans[-1], new.spans[count - 1]
            rest = grown.text[len(last.text) :]
            if rest:
                if last.code and self._code:
                    self._code.pop()
                    self._code.append((cursor.position() - len(last.text), len(grown.text)))
                cursor.insertText(_lines(rest), self._look.char_format(last, heading=new.level, muted=self._muted))
        for span in new.spans[count:]:
            self._insert(cursor, span, new.level)
        cursor.endEditBlock()
        return True

    def cut_from(self, mark: int) -> None:
        """Take away everything from a place that `mark` gave."""
        cursor = self._end()
        cursor.setPosition(max(mark, 0))
        cursor.movePosition(QTextCursor.MoveOperation.End, QTextCursor.MoveMode.KeepAnchor)
        cursor.removeSelectedText()
        if mark < 0:
            self._empty = True
            cursor.setBlockFormat(QTextBlockFormat())
        while self._code and self._code[-1][0] >= mark:
            self._code.pop()
        while self._special and self._special[-1] > mark:
            self._special.pop()

    def set_caret(self, on: bool) -> None:
        """Show or hide the small block behind the last character while an answer is being written."""
        if on != self._caret:
            self._caret = on
            self.viewport().update()

    def _end(self) -> QTextCursor:
        cursor = QTextCursor(self.document())
        cursor.movePosition(QTextCursor.MoveOperation.End)
        return cursor

    def _insert(self, cursor: QTextCursor, span: Span, heading: int) -> None:
        if span.code:
            self._code.append((cursor.position(), len(span.text)))
        cursor.insertText(_lines(span.text), self._look.char_format(span, heading=heading, muted=self._muted))

    def natural_width(self, limit: int) -> int:
        """The width this text needs, at most `limit` pixels."""
        if self.document().characterCount() > 2_000:
            return limit
        metrics = QFontMetricsF(self._look.text_font)
        lines = self.toPlainText().split("\n")
        widest = max(metrics.horizontalAdvance(line.replace("\t", "        ")) for line in lines)
        return min(limit, math.ceil(widest) + 2)

    # ---- painting

    def paintEvent(self, event: QPaintEvent) -> None:
        if self._code or self._special or self._caret:
            painter = QPainter(self.viewport())
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(Qt.PenStyle.NoPen)
            clip = QRectF(event.rect()).adjusted(-8, -32, 8, 32)
            self._paint_code(painter, clip)
            self._paint_special(painter, clip)
            if self._caret:
                self._paint_caret(painter)
            painter.end()
        super().paintEvent(event)

    def _block_rect(self, block: QTextBlock) -> QRectF:
        return self.document().documentLayout().blockBoundingRect(block)

    def _paint_code(self, painter: QPainter, clip: QRectF) -> None:
        painter.setBrush(self._look.color("inline_code_bg"))
        size = self._look.text_size
        height = round(size * 1.35)
        for start, length in self._code:
            block = self.document().findBlock(start)
            rect = self._block_rect(block)
            if rect.top() > clip.bottom():
                break
            if rect.bottom() < clip.top():
                continue
            layout = block.layout()
            origin = rect.topLeft() if layout is None else layout.position()
            first, last = start - block.position(), start + length - block.position()
            while first < last:
                line = layout.lineForTextPosition(first)
                if not line.isValid():
                    break
                end = min(last, line.textStart() + line.textLength())
                if not clip.top() <= origin.y() + line.y() <= clip.bottom():
                    first = max(end, first + 1)
                    continue
                left = _x(line, first)
                right = _x(line, end)
                base = line.y() + line.ascent()
                box = QRectF(origin.x() + left - 2.5, origin.y() + base - size * 1.02, right - left + 5, height)
                painter.drawRoundedRect(box, 4, 4)
                if end <= first:
                    break
                first = end

    def _paint_special(self, painter: QPainter, clip: QRectF) -> None:
        bar = self._look.color("hairline")
        painter.setBrush(bar)
        step = self._look.px(16)
        before: tuple[int, float, int] = (0, -1.0, -1)
        for position in self._special:
            block = self.document().findBlock(position)
            form = block.blockFormat()
            rect = self._block_rect(block)
            quote = int(form.property(QUOTE_PROPERTY) or 0)
            top = rect.top()
            if quote and before[0] and block.blockNumber() == before[2] + 1:
                top = before[1] - 3  # one bar for the paragraphs of one quotation
            before = (quote, rect.bottom(), block.blockNumber())
            if rect.bottom() < clip.top() or top > clip.bottom():
                continue
            for level in range(min(quote, 6)):
                painter.drawRoundedRect(QRectF(level * step, top, 3, rect.bottom() - top), 1.5, 1.5)
            if form.property(RULE_PROPERTY):
                y = round(rect.center().y())
                painter.fillRect(QRectF(form.leftMargin(), y, self.viewport().width(), 1), bar)

    def caret_rect(self) -> QRectF:
        """Where the small block at the end stands, in this widget's pixels."""
        block = self.document().lastBlock()
        layout = block.layout()
        size = self._look.text_size
        width, height = round(size * 0.5), round(size * 1.2)
        origin: QPointF = layout.position()
        line = layout.lineForTextPosition(max(0, block.length() - 1))
        if not line.isValid():
            return QRectF(origin.x(), origin.y(), width, height)
        x = origin.x() + _x(line, line.textStart() + line.textLength()) + 3
        x = min(x, self.viewport().width() - width)
        return QRectF(x, origin.y() + line.y() + line.ascent() - size * 0.98, width, height)

    def _paint_caret(self, painter: QPainter) -> None:
        painter.setBrush(self._look.color("accent"))
        painter.drawRoundedRect(self.caret_rect(), 1, 1)


def _x(line: QTextLine, position: int) -> float:
    """Where a position of a line stands, in pixels."""
    x: Any = line.cursorToX(position)  # a pair (x, position) here, whatever the annotation says
    return float(x[0])


def _frame(block: TextBlock) -> tuple[object, ...]:
    """All of a block but its text."""
    return (block.kind, block.level, block.depth, block.quote, block.marker, block.joined)


def _goes_on(old: Spans, new: Spans) -> bool:
    """Whether `new` is `old` with something added at its end."""
    count = len(old)
    if len(new) < count or old[: max(0, count - 1)] != new[: max(0, count - 1)]:
        return False
    return not count or (old[-1].same_style(new[count - 1]) and new[count - 1].text.startswith(old[-1].text))


def _lines(text: str) -> str:
    """Line breaks inside a paragraph, the way a document keeps them."""
    return text.replace("\n", "\u2028")
