"""What a model thought before it answered: one folded line, opened by a click."""

from __future__ import annotations

from time import perf_counter

from PySide6.QtCore import QRect, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from desktop.views.chat.message_body import MessageBody
from desktop.views.chat.small_button import SmallButton
from desktop.views.chat.transcript_style import TranscriptStyle
from desktop.widgets.term import explain
from engine.message import ReasoningPart


class ThinkingBlock(QWidget):
    """The folded line and, when open, the thinking itself.

    Signals:
        resized(): opened, closed or grown.
        link_clicked(str): an allowed address.
    """

    resized = Signal()
    link_clicked = Signal(str)

    def __init__(self, parent: QWidget, style: TranscriptStyle) -> None:
        super().__init__(parent)
        self._look = style
        self._text = ""
        self._title = "Thinking…"
        self._live = False
        self._ended = False
        self._body: MessageBody | None = None
        self._open = False
        self._button = SmallButton("", self, "", "fold")
        self._button.clicked.connect(self.toggle)
        self._update_title()

    # ------------------------------------------------------------------ content

    def append(self, text: str) -> None:
        """More thinking of an answer that is being written."""
        if self._ended:
            self._ended = False
            if self._body is not None:
                self._drop_body()
                self._make_body()
        self._text += text
        if self._body is not None:
            self._body.append(text)

    def sync(self, text: str) -> None:
        """Make `text` all the thinking so far."""
        if text.startswith(self._text):
            self.append(text[len(self._text) :])
            return
        self._text = text
        if self._body is not None:
            self._drop_body()
            self._make_body()

    def set_live(self, n_tokens: int) -> None:
        """The thinking goes on; `n_tokens` of it came so far."""
        self._live = True
        count = f" · {n_tokens:,} tokens" if n_tokens else ""
        self._title = f"Thinking…{count}"
        self._update_title()

    def set_part(self, part: ReasoningPart) -> None:
        """The complete thinking."""
        self._live = False
        self._ended = True
        if part.text != self._text:
            self._text = part.text
            if self._body is not None:
                self._drop_body()
                self._make_body()
        elif self._body is not None:
            self._body.end()
        self._title = thinking_title(part)
        self._update_title()

    def settle(self, n_tokens: int, duration_s: float) -> None:
        """The thinking is over, the answer goes on."""
        if self._live:
            self.set_part(ReasoningPart(self._text, n_tokens=n_tokens, duration_s=duration_s))

    def work(self, deadline: float) -> bool:
        """Show what is waiting until `deadline`; True if all is shown."""
        return self._body.work(deadline) if self._body is not None and self._open else True

    # ------------------------------------------------------------------ folding

    @property
    def is_open(self) -> bool:
        return self._open

    @property
    def title(self) -> str:
        return self._title

    def toggle(self) -> None:
        """Open or close."""
        self._open = not self._open
        if self._open and self._body is None:
            self._make_body()
            assert self._body is not None
            self._body.work(perf_counter() + 0.02)
        if self._body is not None:
            self._body.setVisible(self._open)
        self._update_title()
        self.resized.emit()

    def _make_body(self) -> None:
        self._body = MessageBody(self, self._look, muted=True, name="What the model thought")
        self._body.resized.connect(self.resized)
        self._body.link_clicked.connect(self.link_clicked)
        self._body.append(self._text)
        if self._ended:
            self._body.end()
        self._body.setVisible(self._open)

    def _drop_body(self) -> None:
        if self._body is not None:
            self._body.hide()
            self._body.deleteLater()
            self._body = None

    def _update_title(self) -> None:
        text = f"{'▾' if self._open else '▸'} {self._title}"
        if self._button.text() == text:
            return
        self._button.setText(text)
        self._button.setAccessibleName(f"{self._title}, {'open' if self._open else 'folded'}")
        explain(self._button, "thinking", f"{'Hide' if self._open else 'Show'} what the model thought")
        self._place_button()

    def _place_button(self) -> None:
        size = self._button.sizeHint()
        self._button.setGeometry(0, 0, size.width(), self._line)

    @property
    def margin(self) -> int:
        """Pixels left of the text column, where the ring of the button has its place."""
        return self._look.px(3)

    @property
    def _line(self) -> int:
        return self._look.px(24)

    def height_for(self, width: int) -> int:
        """Lay out in `width` pixels; the height that takes."""
        self._place_button()
        if not self._open or self._body is None:
            return self._line
        indent = self.margin + self._look.px(14)
        width += self.margin
        height = self._body.height_for(width - indent)
        self._body.setGeometry(QRect(indent, self._line + self._look.px(4), width - indent, height))
        return self._line + self._look.px(4) + height

    def has_selection(self) -> bool:
        return self._body is not None and self._body.has_selection()

    def paintEvent(self, event: QPaintEvent) -> None:
        if self._open and self._body is not None:
            painter = QPainter(self)
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(self._look.color("hairline"))
            painter.drawRoundedRect(self.margin, self._body.y(), 3, self._body.height(), 1.5, 1.5)


def thinking_title(part: ReasoningPart) -> str:
    """ "Thought for 3.1 s · 142 tokens", with what is not known left out."""
    words = f"Thought for {part.duration_s:.1f} s" if part.duration_s > 0 else "Thought"
    if part.n_tokens:
        words += f" · {part.n_tokens:,} token{'' if part.n_tokens == 1 else 's'}"
    if not part.closed:
        words += " · did not finish"
    return words
