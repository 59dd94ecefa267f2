"""The line below a message: what was measured, the versions, and what can be done with it.

The figures are painted, the controls are real buttons. Those that are only shown when wanted are made then, so a
message that nobody touches stays cheap.
"""

from __future__ import annotations

from PySide6.QtCore import QEvent, QPoint, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QFontMetricsF, QHelpEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QToolTip, QWidget

from desktop import icons
from desktop.views.chat.small_button import SmallButton
from desktop.views.chat.transcript_style import TranscriptStyle
from desktop.widgets.term import tip_of
from engine.message import GenerationRecord, Message

#: (action, word, what a screen reader says)
USER_ACTIONS = (
    ("copy", "Copy", "Copy this message"),
    ("edit", "Edit", "Edit this message and answer it anew"),
    ("pin", "Pin", "Pin to context: this turn stays when older ones are left out"),
    ("delete", "Delete", "Delete this message and all below it"),
)
#: the last message of a chat, when it is the user's, waits for an answer
ANSWER = ("regenerate", "Answer", "Write an answer to this message")
ASSISTANT_ACTIONS = (
    ("copy", "Copy", "Copy this answer as Markdown"),
    ("edit", "Edit", "Edit this answer"),
    ("regenerate", "Regenerate", "Write another answer"),
    ("continue", "Continue", "Let the model write on from here"),
    ("pin", "Pin", "Pin to context: this turn stays when older ones are left out"),
    ("delete", "Delete", "Delete this answer and all below it"),
)
UNPIN = ("unpin", "Unpin", "Unpin from context: this turn may be left out again")
#: longer words where there is room for them
MENU_WORDS = {"pin": "Pin to context", "unpin": "Unpin from context"}
_FORMATS = {"json": "JSON", "schema": "JSON by schema", "grammar": "by grammar"}
_WORDS = {"length": "length limit reached", "cancelled": "stopped by you", "error": "failed"}


def finish_words(record: GenerationRecord) -> str:
    """Why an answer ended, in a word or a few; "" if that is not known."""
    if record.finish_reason is None:
        return ""
    if record.finish_reason == "stop":
        return f"stop “{record.stop_string[:24]}”" if record.stop_string else "stop"
    return _WORDS[record.finish_reason]


def figures(message: Message) -> list[str]:
    """The measured figures of an answer, only those that were measured."""
    record = message.generation
    if record is None or message.status == "streaming":
        return []
    out = []
    if record.timings.ttft_s is not None:
        out.append(f"{record.timings.ttft_s:.2f} s to first token")
    if record.timings.decode_tps is not None:
        rate = record.timings.decode_tps
        out.append(f"{rate:.1f} tok/s" if rate < 100 else f"{rate:,.0f} tok/s")
    count = record.usage.completion_tokens
    if count:
        out.append(f"{count:,} token{'' if count == 1 else 's'}")
    if record.answer_format.kind in _FORMATS:
        out.append(_FORMATS[record.answer_format.kind])
    words = finish_words(record)
    if words:
        out.append(words)
    return out


#: ends of figures and words -> term of the glossary
_TERMS = (("to first token", "ttft"), ("tok/s", "tokens_per_second"), ("token", "token"), ("tokens", "token"))


def term_of_figure(text: str) -> str:
    """The term that explains a figure of the footer, or why the answer ended."""
    if text in _FORMATS.values():
        return "answer_format"
    return next((term for end, term in _TERMS if text.endswith(end)), "finish_reason")


class MessageFooter(QWidget):
    """The line below a message.

    Signals:
        action(str): "copy", "edit", "regenerate", "continue", "pin", "unpin", "delete" or "trace".
        version_step(int): -1 or 1.
    """

    action = Signal(str)
    version_step = Signal(int)

    def __init__(self, parent: QWidget, style: TranscriptStyle, *, user: bool) -> None:
        super().__init__(parent)
        self._look = style
        self._user = user
        self._figures: list[str] = []
        self._reason = ""
        self._unanswered = False
        self._is_pinned = False
        self._pin: SmallButton | None = None  # says that the message is pinned, and takes that back
        self._offered: tuple[str, ...] = ()
        self._buttons: dict[str, SmallButton] = {}
        self._versions: list[SmallButton] = []
        self._trace: SmallButton | None = None
        self._version_text = ""
        self._shown = False
        self._areas: list[tuple[QRectF, str]] = []
        self._rows_of: tuple[object, ...] = ()
        self._rows_then: list[list[str]] = []

    # ------------------------------------------------------------------ content

    def set_message(self, message: Message, *, trace: bool) -> None:
        """Show this message's figures. trace: whether a trace of it can be opened."""
        self._figures = figures(message)
        ended = message.generation is not None and message.status != "streaming"
        self._reason = finish_words(message.generation) if ended and message.generation is not None else ""
        self.set_versions(message)
        self._set_pinned(message.pinned)
        offered = [name for name, _word, _tip in self._actions()]
        if message.status == "streaming":
            offered = ["copy"]
        elif message.status == "complete" and message.generation is None and "continue" in offered and not message.text:
            offered.remove("continue")
        if tuple(offered) != self._offered:
            self._offered = tuple(offered)
            self._drop_buttons()
        wants_trace = trace and not self._user and message.generation is not None
        if wants_trace and self._trace is None:
            self._trace = SmallButton("Trace", self, "See every step of this answer", "accent")
            self._trace.clicked.connect(lambda: self.action.emit("trace"))
            self._trace.show()
        elif self._trace is not None:
            self._trace.setVisible(wants_trace)
        self._place()

    @property
    def has_figures(self) -> bool:
        return bool(self._figures)

    def set_figures(self, figures: list[str]) -> None:
        """Show these figures; for an answer that is being written."""
        if figures != self._figures or self._reason:
            self._figures, self._reason = figures, ""
            self._place()

    def set_versions(self, message: Message) -> None:
        """Show which version of how many this is."""
        self._version_text = f"{message.version} / {message.n_versions}" if message.n_versions > 1 else ""
        if self._version_text and not self._versions:
            for text, name, step in (("‹", "Previous version", -1), ("›", "Next version", 1)):
                button = SmallButton(text, self, name)
                button.clicked.connect(lambda _checked=False, step=step: self.version_step.emit(step))
                self._versions.append(button)
        for button, enabled in zip(
            self._versions, (message.version > 1, message.version < message.n_versions), strict=False
        ):
            button.setVisible(bool(self._version_text))
            button.setEnabled(enabled and message.status != "streaming")

    # ------------------------------------------------------------------ actions

    def set_unanswered(self, on: bool) -> None:
        """Whether this is a user's message without an answer: then one can be asked for."""
        if on != self._unanswered:
            self._unanswered = on
            self._offered = tuple(name for name, _word, _tip in self._actions())
            self._drop_buttons()

    def _actions(self) -> tuple[tuple[str, str, str], ...]:
        entries = USER_ACTIONS if self._user else ASSISTANT_ACTIONS
        if self._unanswered:
            entries = (*entries[:2], ANSWER, *entries[2:])
        return tuple(UNPIN if entry[0] == "pin" and self._is_pinned else entry for entry in entries)

    def _set_pinned(self, on: bool) -> None:
        self._is_pinned = on
        if on and self._pin is None:
            self._pin = SmallButton("", self, "Pinned to context. Press to unpin")
            self._pin.setObjectName("pinned")
            icons.set_icon(self._pin, "pin", self._look.theme, "accent")
            self._pin.clicked.connect(lambda: self.action.emit("unpin"))
        if self._pin is not None:
            self._pin.setVisible(on)

    def offers(self) -> list[tuple[str, str, str]]:
        """(action, word, what a screen reader says) of all that can be done with this message."""
        return [entry for entry in self._actions() if entry[0] in self._offered]

    def show_actions(self, on: bool) -> None:
        """Show or hide the buttons for what can be done with the message."""
        if on == self._shown:
            return
        self._shown = on
        if on and not self._buttons:
            for name, word, tip in self.offers():
                button = SmallButton(word, self, tip)
                button.clicked.connect(lambda _checked=False, name=name: self.action.emit(name))
                self._buttons[name] = button
        for button in self._buttons.values():
            button.setVisible(on)
        self._place()

    def confirm_copy(self) -> None:
        """Say that the message was copied, until the buttons are shown anew."""
        button = self._buttons.get("copy")
        if button is not None:
            button.setText("Copied")
            self._place()

    def _drop_buttons(self) -> None:
        for button in self._buttons.values():
            button.hide()
            button.deleteLater()
        self._buttons = {}
        if self._shown:
            self._shown = False
            self.show_actions(True)

    def buttons(self) -> list[SmallButton]:
        """All controls of the line in their order."""
        extra = [button for button in (self._pin, self._trace) if button is not None]
        return [*self._versions, *extra, *self._buttons.values()]

    # ------------------------------------------------------------------ layout, painting

    def height_for(self, width: int) -> int:
        """Lay out in `width` pixels; the height that takes, with room for the actions also while they are hidden."""
        return self._look.px(26) * (1 + len(self._rows(width)))

    def resizeEvent(self, event: object) -> None:
        self._place()

    def _rows(self, width: int) -> list[list[str]]:
        """Names of the actions in lines of their own; none where they fit beside why the answer ended."""
        trace = self._trace is not None and self._trace.isVisibleTo(self)
        shape = (width, self._offered, self._unanswered, self._reason, self._version_text, trace)
        if shape != self._rows_of:  # asked for with every new word of an answer
            self._rows_of, self._rows_then = shape, self._split_rows(width)
        return self._rows_then

    def _split_rows(self, width: int) -> list[list[str]]:
        metrics = QFontMetricsF(self._look.label_font)
        widths = self._widths(metrics)
        lead = self._reserved(metrics)
        if self._reason:
            lead += metrics.horizontalAdvance(self._reason) + self._look.px(14)
        if lead + sum(widths.values()) <= width:
            return []
        rows: list[list[str]] = [[]]
        for name, needed in widths.items():
            if rows[-1] and sum(widths[other] for other in rows[-1]) + needed > width:
                rows.append([])
            rows[-1].append(name)
        return rows

    def _widths(self, metrics: QFontMetricsF) -> dict[str, float]:
        """What each action takes when it is shown."""
        return {
            name: metrics.horizontalAdvance("Copied" if name == "copy" else word) + 2 * self._look.px(5) + 4
            for name, word, _tip in self.offers()
        }

    def _place(self) -> None:
        """Figures from the left; at the right end the versions and the trace, and the actions before those.

        Where not all fit, figures give way, but never why the answer ended. What can always be pressed stays where it
        is when the actions appear: it would move away from the mouse that comes to press it.
        """
        metrics = QFontMetricsF(self._look.label_font)
        line, height = self._look.px(26), self._look.px(22)
        top = (line - height) // 2
        actions = list(self._buttons.values()) if self._shown else []
        rows = self._rows(self.width())
        beside = [] if rows else actions
        beside_width = sum(button.sizeHint().width() for button in beside)
        reserved = self._reserved(metrics)
        pin = self._look.px(20) if self._is_pinned else 0
        end = max(0, int(self.width() - reserved + (0 if self._user else pin)))
        self._areas = []
        x = float(end) if self._user else 0.0
        room = self.width() - reserved - beside_width
        if self._pin is not None and self._is_pinned:
            self._pin.setGeometry(round(x) - self._look.px(5), top, self._look.px(22), height)
            self._pin.setIconSize(QSize(self._look.px(12), self._look.px(12)))
            x, room = x + self._look.px(20), room + self._look.px(20)
        figures_end = self._place_figures(x, room, metrics)
        x = figures_end + self._look.px(6) if self._user else max(figures_end, float(end + self._look.px(6)))
        if self._version_text:
            x = self._place_versions(x, top, height, metrics)
        if self._trace is not None and self._trace.isVisibleTo(self):
            width = self._trace.sizeHint().width()
            self._trace.setGeometry(round(x) - self._look.px(5), top, width, height)
        _place_row(beside, top, height, end=end)
        for number, names in enumerate(rows if actions else [], 1):
            row = [self._buttons[name] for name in names]
            place = {"end": self.width()} if self._user else {"start": -self._look.px(5)}
            _place_row(row, top + number * line, height, **place)
        self.update()

    def _place_figures(self, x: float, room: float, metrics: QFontMetricsF) -> float:
        """Put figures from `x` up to `room`, and why the answer ended after them; where they end."""
        gap = self._look.px(14)
        figures = list(self._figures)
        widths = [metrics.horizontalAdvance(text) + gap for text in figures]
        at = len(figures) - (2 if self._reason else 1)
        while figures and x + sum(widths) - gap > room and at >= 0:
            del figures[at], widths[at]
            at -= 1
        for text, width in zip(figures, widths, strict=True):
            area = QRectF(x, 0, min(width - gap, max(0.0, room - x)) + 2, self._look.px(26))
            self._areas.append((area, metrics.elidedText(text, Qt.TextElideMode.ElideRight, area.width())))
            x += width
        return x

    def _reserved(self, metrics: QFontMetricsF) -> float:
        """What versions, the pin and the trace take."""
        width = self._look.px(20) if self._is_pinned else 0.0
        if self._version_text:
            width += metrics.horizontalAdvance(self._version_text) + 2 * self._look.px(18) + self._look.px(8)
        if self._trace is not None and self._trace.isVisibleTo(self):
            width += self._trace.sizeHint().width()
        return width + self._look.px(6)  # they begin a little before their words

    def _place_versions(self, x: float, top: int, height: int, metrics: QFontMetricsF) -> float:
        x -= self._look.px(6)
        for number, button in enumerate(self._versions):
            width = self._look.px(18)
            button.setGeometry(round(x), top, width, height)
            x += width
            if number == 0:
                text_width = metrics.horizontalAdvance(self._version_text)
                self._areas.append((QRectF(x + 2, 0, text_width + 2, self._look.px(26)), self._version_text))
                x += text_width + 4
        return x + self._look.px(8)

    def term_at(self, place: QPoint) -> str:
        """The term of the figure at a place."""
        found = next((text for area, text in self._areas if area.contains(QPointF(place))), "")
        return term_of_figure(found) if found and found != self._version_text else ""

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            QToolTip.showText(event.globalPos(), tip_of(self.term_at(event.pos())), self)
            return True
        return super().event(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setFont(self._look.label_font)
        painter.setPen(self._look.color("ink3"))
        for area, text in self._areas:
            painter.drawText(area, int(Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft), text)
        painter.end()


def _place_row(buttons: list[SmallButton], top: int, height: int, *, start: int = 0, end: int | None = None) -> None:
    """Side by side, from `start` on or up to `end`."""
    widths = [button.sizeHint().width() for button in buttons]
    left = start if end is None else end - sum(widths)
    for button, width in zip(buttons, widths, strict=True):
        button.setGeometry(left, top, width, height)
        left += width
