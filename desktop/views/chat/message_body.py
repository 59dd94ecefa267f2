"""The text of one message as widgets: paragraphs in `TextView`s, code in `CodeView`s, tables in `TableView`s.

Text may come at once or bit by bit. Finished blocks are written once; only the pending end is looked at again, and
what it has in common with what is on screen stays untouched.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from time import perf_counter

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from desktop.views.chat.code_block import CodeView
from desktop.views.chat.markdown import MarkdownStream
from desktop.views.chat.markdown_blocks import Block, CodeBlock, TableBlock, TextBlock
from desktop.views.chat.table_view import TableView
from desktop.views.chat.text_view import BaseText, TextView
from desktop.views.chat.transcript_style import TranscriptStyle

#: Characters of one document; a longer text goes on in another one.
MAX_DOCUMENT = 12_000
#: Characters fed to the scanner in one go.
FEED_STEP = 16_000

View = TextView | CodeView | TableView


@dataclass(slots=True)
class _Live:
    """A block on screen that may still change."""

    block: Block
    view: View
    mark: int


class MessageBody(QWidget):
    """Shows Markdown. `height_for(width)` lays it out.

    Signals:
        resized(): the height is another now, though no new text came.
        link_clicked(str): an allowed address.
    """

    resized = Signal()
    link_clicked = Signal(str)

    def __init__(
        self, parent: QWidget, style: TranscriptStyle, *, plain: bool = False, muted: bool = False, name: str = ""
    ) -> None:
        """plain: show text as typed, only fenced code apart. muted: smaller, in the second colour."""
        super().__init__(parent)
        self._look = style
        self._muted = muted
        self._name = name
        self._plain = plain
        self._stream = MarkdownStream(plain=plain)
        self._input: deque[str] = deque()
        self._source: list[str] = []
        self._views: list[View] = []
        self._live: list[_Live] = []
        self._previous: Block | None = None
        self._ended = False
        self._flushed = False
        self._finished = False
        self._caret = False
        #: seconds the last look at the pending end took; a stream slows its looks down by it
        self.tail_cost_s = 0.0

    # ------------------------------------------------------------------ text

    @property
    def source(self) -> str:
        """The Markdown given so far."""
        return "".join(self._source)

    @property
    def busy(self) -> bool:
        """Whether `work` has more to do."""
        return bool(self._input) or self._stream.has_blocks or (self._ended and not self._finished)

    @property
    def ended(self) -> bool:
        return self._ended

    @property
    def views(self) -> list[View]:
        return self._views

    def append(self, text: str) -> None:
        """More text at the end; shown by the next `work`."""
        if not text:
            return
        self._source.append(text)
        for start in range(0, len(text), FEED_STEP):
            self._input.append(text[start : start + FEED_STEP])

    def end(self) -> None:
        """No more text will come."""
        self._ended = True

    def work(self, deadline: float, *, tail: bool = True) -> bool:
        """Show what is waiting until `deadline` (of time.perf_counter); True if it is all shown.

        tail: also show the pending end of a text that has not ended.
        """
        while self.busy:
            self._step()
            if perf_counter() >= deadline and self.busy:
                return False
        if tail and not self._ended:
            begin = perf_counter()
            self._show(self._stream.tail())
            self.tail_cost_s = perf_counter() - begin
        self._place_caret()
        return True

    def _step(self) -> None:
        blocks = self._stream.next_blocks()
        if blocks is not None:
            self._show(blocks)
            self._freeze(len(blocks))
        elif self._input:
            self._stream.feed(self._input.popleft())
        elif not self._flushed:
            self._flushed = True
            self._stream.finish()
        else:
            self._finished = True
            self._show([])

    # ------------------------------------------------------------------ blocks to widgets

    def _show(self, blocks: list[Block]) -> None:
        """Make the blocks that may still change equal to `blocks`."""
        same = 0
        live = self._live
        while same < len(live) and same < len(blocks) and live[same].block == blocks[same]:
            same += 1
        if same == len(live) - 1 and same < len(blocks) and self._grow(live[same], blocks[same]):
            live[same].block = blocks[same]
            same += 1
        while len(live) > same:
            self._remove(live.pop())
        for block in blocks[same:]:
            live.append(self._add(block))

    def _freeze(self, count: int) -> None:
        for entry in self._live[:count]:
            if isinstance(entry.view, CodeView):
                entry.view.finish()
            self._previous = entry.block
        del self._live[:count]

    def _grow(self, entry: _Live, block: Block) -> bool:
        old = entry.block
        if isinstance(old, TextBlock) and isinstance(block, TextBlock) and isinstance(entry.view, TextView):
            return entry.view.extend(old, block)
        if isinstance(old, CodeBlock) and isinstance(block, CodeBlock) and isinstance(entry.view, CodeView):
            if (old.language, old.depth, old.quote) != (block.language, block.depth, block.quote):
                return False
            entry.view.set_code(block.code)
            return True
        if isinstance(old, TableBlock) and isinstance(block, TableBlock) and isinstance(entry.view, TableView):
            entry.view.set_table(block)
            return True
        return False

    def _remove(self, entry: _Live) -> None:
        if isinstance(entry.view, TextView) and entry.mark >= 0:
            entry.view.cut_from(entry.mark)
            return
        self._views.remove(entry.view)
        entry.view.hide()
        entry.view.deleteLater()

    def _add(self, block: Block) -> _Live:
        previous = self._live[-1].block if self._live else self._previous
        last = self._views[-1] if self._views else None
        if isinstance(block, TextBlock):
            if not isinstance(last, TextView) or last.length() > MAX_DOCUMENT:
                last = self._new_text()
            mark = last.mark()
            last.add_block(block, previous if isinstance(previous, TextBlock) else None)
            return _Live(block, last, mark)
        if isinstance(block, CodeBlock):
            code = CodeView(self, self._look, block.language)
            code.resized.connect(self.resized)
            code.text.link_clicked.connect(self.link_clicked)
            code.setProperty("depth", block.depth)
            code.set_code(block.code)
            self._take_in(code)
            return _Live(block, code, -1)
        table = TableView(self, self._look, last if isinstance(last, TableView) and block.continued else None)
        table.link_clicked.connect(self.link_clicked)
        table.set_table(block)
        self._take_in(table)
        return _Live(block, table, -1)

    def _new_text(self) -> TextView:
        view = TextView(self, self._look, muted=self._muted)
        view.setAccessibleName(self._name)
        view.link_clicked.connect(self.link_clicked)
        self._take_in(view)
        return view

    def _take_in(self, view: View) -> None:
        self._views.append(view)
        view.show()

    # ------------------------------------------------------------------ caret, size

    def set_caret(self, on: bool) -> None:
        """Mark the end of the text while it is being written."""
        self._caret = on
        self._place_caret()

    def _place_caret(self) -> None:
        if self._caret and not self._views:
            self._new_text()
        last = len(self._views) - 1
        for number, view in enumerate(self._views):
            if isinstance(view, TextView):
                view.set_caret(self._caret and number == last)

    def _gap(self, before: View, after: View) -> int:
        if isinstance(before, TextView) and isinstance(after, TextView):
            return self._look.px(10)
        if isinstance(before, TableView) and isinstance(after, TableView) and after._before is before:
            return 0
        return self._look.px(12)

    def natural_width(self, limit: int) -> int:
        """The width this text needs, at most `limit` pixels."""
        width = 0
        for view in self._views:
            if not isinstance(view, TextView):
                return limit
            width = max(width, view.natural_width(limit))
        return width

    def height_for(self, width: int) -> int:
        """Lay out in `width` pixels; the height that takes."""
        y = 0
        before: View | None = None
        for view in self._views:
            if before is not None:
                y += self._gap(before, view)
            height = view.height_for(width)
            geometry = view.geometry()
            if (geometry.y(), geometry.width(), geometry.height()) != (y, width, height):
                view.setGeometry(0, y, width, height)
            y += height
            before = view
        return y

    def has_selection(self) -> bool:
        return any(
            (view.text if isinstance(view, CodeView) else view).has_selection()
            for view in self._views
            if isinstance(view, BaseText | CodeView)
        )
