"""A block of code: its language, a Copy button, and the code itself, which scrolls sideways and is coloured."""

from __future__ import annotations

import math
from collections.abc import Iterator
from time import perf_counter
from typing import Any

from PySide6.QtCore import QRectF, Qt, QTimer, Signal
from PySide6.QtGui import (
    QGuiApplication,
    QPainter,
    QPaintEvent,
    QPen,
    QResizeEvent,
    QTextBlock,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextLayout,
    QWheelEvent,
)
from PySide6.QtWidgets import QWidget

from desktop.highlight import MAX_HIGHLIGHT, is_open_ended, lex, lexers
from desktop.views.chat.small_button import SmallButton
from desktop.views.chat.text_view import BaseText
from desktop.views.chat.transcript_style import TranscriptStyle

#: Lines shown at once; longer code scrolls inside, so that its cost does not grow with its length.
MAX_VISIBLE_LINES = 400
FOLDED_LINES = 30
#: Characters of one line on screen; longer ones are broken, the copy is not.
MAX_COLUMNS = 2_000
#: Characters written to the document in one go.
WRITE_STEP = 20_000
#: Seconds of one slice of colouring, and between two looks at code that is being written.
SLICE_S = 0.006
LIVE_INTERVAL_S = 0.3


class CodeText(BaseText):
    """The code. Lines do not wrap."""

    def __init__(self, parent: QWidget, style: TranscriptStyle) -> None:
        super().__init__(parent, style)
        self.setLineWrapMode(self.LineWrapMode.NoWrap)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAsNeeded)
        self.set_role("", style.mono_font)
        self._form = QTextBlockFormat()
        kind = QTextBlockFormat.LineHeightTypes.ProportionalHeight.value
        self._form.setLineHeight(style.proportional_height(style.mono_font, 1.5), kind)
        self._char = QTextCharFormat()
        self._char.setForeground(style.color("ink"))
        self._empty = True
        self.setAccessibleName("Code")

    def write(self, text: str) -> None:
        cursor = QTextCursor(self.document())
        cursor.movePosition(QTextCursor.MoveOperation.End)
        first = self._empty
        if first:
            cursor.setBlockFormat(self._form)
            self._empty = False
        cursor.insertText(text, self._char)
        if first:
            self._caret_home()

    def cut_from(self, position: int) -> None:
        cursor = QTextCursor(self.document())
        cursor.setPosition(position)
        cursor.movePosition(QTextCursor.MoveOperation.End, QTextCursor.MoveMode.KeepAnchor)
        cursor.removeSelectedText()

    def set_scrolls(self, on: bool) -> None:
        policy = Qt.ScrollBarPolicy.ScrollBarAsNeeded if on else Qt.ScrollBarPolicy.ScrollBarAlwaysOff
        if self.verticalScrollBarPolicy() != policy:
            self.setVerticalScrollBarPolicy(policy)

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Long code scrolls inside once it was clicked, so that the transcript is not caught on it."""
        delta = event.angleDelta()
        if self.hasFocus() and self.verticalScrollBar().maximum() > 0 and abs(delta.y()) >= abs(delta.x()):
            super(BaseText, self).wheelEvent(event)
            return
        super().wheelEvent(event)


class _Colouring:
    """Colours for the lines of one code, found in slices."""

    def __init__(self, text: CodeText, style: TranscriptStyle) -> None:
        self._text = text
        self._style = style

    def apply(self, block: QTextBlock, ranges: list[QTextLayout.FormatRange]) -> None:
        layout = block.layout()
        if layout.formats() == ranges:
            return
        layout.setFormats(ranges)
        self._text.document().markContentsDirty(block.position(), block.length())

    def run(self, lexer: Any, code: str, first: QTextBlock) -> Iterator[tuple[QTextBlock, int, bool]]:
        """Colour `code`, which begins at the block `first`.

        After every line gives (the block that begins now, the code's position there, whether that place is a
        safe one to begin again).
        """
        block = first
        ranges: list[QTextLayout.FormatRange] = []
        column = 0
        for position, token_type, value in lex(lexer, code):
            form = self._style.syntax.format(token_type)
            parts = value.split("\n")
            for number, part in enumerate(parts):
                if number:
                    self.apply(block, ranges)
                    block = block.next()
                    ranges, column = [], 0
                    at = position + sum(len(p) + 1 for p in parts[:number])
                    inside = number < len(parts) - 1 or (parts[-1] != "" and is_open_ended(token_type))
                    yield block, at, not inside
                    if not block.isValid():
                        return
                if form is not None and part:
                    span = QTextLayout.FormatRange()
                    span.start, span.length, span.format = column, len(part), form
                    ranges.append(span)
                column += len(part)
        if block.isValid():
            self.apply(block, ranges)


class CodeView(QWidget):
    """A code block.

    Signals:
        resized(): its height is another now.
    """

    resized = Signal()

    def __init__(self, parent: QWidget, style: TranscriptStyle, language: str) -> None:
        super().__init__(parent)
        self._look = style
        self._language = language
        self._code = ""
        self._shown = 0  # characters of the code that are in the document
        self._plain_lines = True
        self._finished = False
        self._text = CodeText(self, style)
        self._copy = SmallButton("Copy", self, "Copy this code")
        self._copy.clicked.connect(self.copy_code)
        self._copy_timer: QTimer | None = None
        self._colours = _Colouring(self._text, style)
        self._run: Iterator[tuple[QTextBlock, int, bool]] | None = None
        self._safe = 0  # position from which colouring begins again while code is being written
        self._last_look_s = 0.0
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self._work)
        lexers().loaded.connect(self._lexer_loaded)
        self.setAccessibleName(f"Code, {language}" if language else "Code")

    @property
    def code(self) -> str:
        """The whole code, also where it is not all on screen yet."""
        return self._code

    @property
    def text(self) -> CodeText:
        return self._text

    # ------------------------------------------------------------------ content

    def set_code(self, code: str) -> None:
        """Show this code; what it has in common with the code so far is not touched."""
        if not code.startswith(self._code):
            keep = code.rfind("\n", 0, _common(self._code, code)) + 1
            if self._plain_lines and keep <= self._shown:
                self._text.cut_from(keep)
                self._shown = keep
            else:
                self._text.clear()
                self._shown = 0
            self._safe = min(self._safe, keep)
        self._code = code
        self._write()

    def finish(self) -> None:
        """The code is complete: colour it as a whole."""
        self._finished = True
        self._start_colouring(0)

    def _write(self) -> None:
        rest = self._code[self._shown : self._shown + WRITE_STEP]
        if rest:
            self._text.write(self._broken(rest))
            self._shown += len(rest)
        if self._shown < len(self._code):
            self._timer.start(0)
        elif not self._finished:
            now = perf_counter()
            if now - self._last_look_s > LIVE_INTERVAL_S and "\n" in rest:
                self._last_look_s = now
                self._start_colouring(self._safe)

    def _broken(self, text: str) -> str:
        """Text with lines that a layout can hold."""
        if len(text) < MAX_COLUMNS and len(self._text.document().lastBlock().text()) + len(text) < MAX_COLUMNS:
            return text
        lines = text.split("\n")
        room = MAX_COLUMNS - len(self._text.document().lastBlock().text())
        out: list[str] = []
        for number, line in enumerate(lines):
            left = max(1, room) if number == 0 else MAX_COLUMNS
            while len(line) > left:
                out.append(line[:left])
                line = line[left:]
                left = MAX_COLUMNS
                self._plain_lines = False
            out.append(line)
        return "\n".join(out)

    # ------------------------------------------------------------------ colours

    def _start_colouring(self, start: int) -> None:
        self._run = None
        lexer = lexers().get(self._language)
        if lexer is None or len(self._code) > MAX_HIGHLIGHT or not self._plain_lines or self._shown < len(self._code):
            return
        first = self._text.document().findBlock(start)
        code = self._code[first.position() :]
        if not self._finished:
            code = code[: code.rfind("\n") + 1]
        if not code:
            return
        base = first.position()
        self._run = self._colours.run(lexer, code, first)
        self._base = base
        self._work_colours()

    def _work_colours(self) -> None:
        if self._run is None:
            return
        deadline = perf_counter() + SLICE_S
        for _block, position, safe in self._run:
            if safe and not self._finished:
                self._safe = self._base + position
            if perf_counter() > deadline:
                self._timer.start(0)
                return
        self._run = None

    def _work(self) -> None:
        if self._shown < len(self._code):
            lines = self.line_count()
            self._write()
            if self.line_count() != lines:
                self.resized.emit()
            if self._shown >= len(self._code) and self._finished:
                self._start_colouring(0)
            return
        self._work_colours()

    def _lexer_loaded(self, name: str) -> None:
        if name == self._language.lower().strip("{}."):
            self._start_colouring(0)

    # ------------------------------------------------------------------ actions, size, painting

    def copy_code(self) -> None:
        """The code to the clipboard, exactly as it was written."""
        QGuiApplication.clipboard().setText(self._code)
        self._copy.setText("Copied")
        if self._copy_timer is None:
            self._copy_timer = QTimer(self)
            self._copy_timer.setSingleShot(True)
            self._copy_timer.timeout.connect(lambda: self._copy.setText("Copy"))
        self._copy_timer.start(1500)

    def line_count(self) -> int:
        return self._text.document().blockCount()

    @property
    def _head(self) -> int:
        return self._look.px(30)

    def height_for(self, width: int) -> int:
        """Lay out in `width` pixels; the height that takes."""
        pad = self._look.px(10)
        lines = self.line_count()
        inner = width - 2 * self._look.px(12)
        self._text.take_width(inner)
        document = self._text.document()
        long = lines > MAX_VISIBLE_LINES
        self._text.set_scrolls(long)
        body = FOLDED_LINES * self._look.code_line_height if long else math.ceil(document.size().height())
        if document.idealWidth() > inner:
            body += self._text.horizontalScrollBar().sizeHint().height() + 2
        height = self._head + 2 * pad + body
        self._text.setGeometry(self._look.px(12), self._head + pad, inner, body)
        return height

    def resizeEvent(self, event: QResizeEvent) -> None:
        size = self._copy.sizeHint()
        self._copy.setGeometry(
            self.width() - size.width() - self._look.px(8),
            (self._head - size.height()) // 2,
            size.width(),
            size.height(),
        )

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        style = self._look
        box = QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5)
        painter.setPen(QPen(style.color("hairline"), 1))
        painter.setBrush(style.color("code_bg"))
        painter.drawRoundedRect(box, 8, 8)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
        painter.fillRect(1, self._head, self.width() - 2, 1, style.color("hairline"))
        painter.setFont(style.label_font)
        painter.setPen(style.color("ink2"))
        lines = self.line_count()
        label = self._language or "text"
        if lines > MAX_VISIBLE_LINES:
            label += f" · {lines:,} lines, click to scroll inside"
        area = QRectF(style.px(13), 0, self.width() - style.px(90), self._head)
        painter.drawText(area, int(Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft), label)
        painter.end()


def _common(a: str, b: str) -> int:
    """Length of the common beginning."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[:middle] == b[:middle]:
            low = middle
        else:
            high = middle - 1
    return low
