"""One message of the transcript: bubble or answer, thinking, notes, figures and actions."""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import Any

from PySide6.QtCore import QPointF, QRectF, Qt, Signal
from PySide6.QtGui import (
    QGuiApplication,
    QPainter,
    QPaintEvent,
)
from PySide6.QtWidgets import QApplication, QMenu, QWidget

from desktop.models.transcript import StreamState, text_and_reasoning
from desktop.views.chat.message_body import MessageBody
from desktop.views.chat.message_edit import MessageEdit
from desktop.views.chat.message_footer import MENU_WORDS
from desktop.views.chat.message_frame import MessageFrame
from desktop.views.chat.message_notes import NotesBox, notes_of
from desktop.views.chat.small_button import SmallButton
from desktop.views.chat.thinking_block import ThinkingBlock
from desktop.views.chat.transcript_style import TranscriptStyle
from engine.events import PromptProgress
from engine.message import GenerationRecord, Message

#: Characters; of a longer message the beginning is shown until all of it is asked for.
FOLD_ABOVE = 64_000
FOLDED_LENGTH = 8_000
#: Seconds between two looks at the figures of an answer that is being written.
FIGURES_S = 0.5


class MessageWidget(MessageFrame):
    """Shows one message.

    Signals:
        resized(): the user opened or closed something, the height is another now.
        grew(): the height is another now because more of the text is written.
        action(str): "edit_submitted" comes with `edited`; else "regenerate", "continue", "delete", "pin", "unpin",
            "trace", "link".
        edited(str), link_clicked(str), version_step(int): see their names.
    """

    resized = Signal()
    grew = Signal()
    action = Signal(str)
    edited = Signal(str)
    link_clicked = Signal(str)
    version_step = Signal(int)

    def __init__(self, parent: QWidget, style: TranscriptStyle, message: Message, *, trace: bool = False) -> None:
        self._user = message.role == "user"
        super().__init__(parent, style, user=self._user)
        self.setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)  # nothing behind it is painted for every word
        self.message = message
        self._trace = trace
        self._text = ""
        self.streaming = False
        self._progress: PromptProgress | None = None
        self._bubble = QRectF()
        self.thinking: ThinkingBlock | None = None
        self.notes: NotesBox | None = None
        self.editor: MessageEdit | None = None
        self._more: SmallButton | None = None
        self._all_shown = False
        self._figures_s = 0.0
        self._had_progress = False
        self.body = self._make_body()
        self.footer.action.connect(self._act)
        self.footer.version_step.connect(self.version_step)
        self.setAccessibleName(_accessible_name(message))

    # ------------------------------------------------------------------ content

    def _make_body(self) -> MessageBody:
        name = "Your message" if self._user else "Answer"
        record = self.message.generation
        held = record is not None and record.answer_format.kind != "text"  # JSON is no Markdown
        body = MessageBody(self, self._look, plain=self._user or held, name=name)
        body.resized.connect(self.grew)
        body.link_clicked.connect(self.link_clicked)
        return body

    def set_message(self, message: Message) -> None:
        """Show a complete message. Text that is on screen already stays as it is."""
        self.message = message
        text, thought = text_and_reasoning(message)
        self.streaming = False
        self._progress = None
        self.body.set_caret(False)
        shown = text if len(text) <= FOLD_ABOVE or self._text == text else text[: _fold_at(text)]
        source = self.body.source
        if source and (not shown.startswith(source) or (self.body.ended and shown != source)):
            self._replace_body()
        self.body.append(shown[len(self.body.source) :])
        self._text = text
        if len(shown) < len(text):
            self._offer_more(len(text))
        else:
            self.body.end()
        if thought is not None and thought.text:
            block = self._need_thinking()
            block.set_part(thought)
            if not text.strip() and not thought.closed and not block.is_open:
                block.toggle()  # there is nothing else to read
        elif self.thinking is not None:
            self.thinking.hide()
            self.thinking.deleteLater()
            self.thinking = None
        self._set_notes(message)
        self.footer.set_message(message, trace=self._trace)
        self.setAccessibleName(_accessible_name(message))
        self.update()

    def set_stream(self, message: Message, state: StreamState) -> None:
        """Show an answer that is being written, with all that came so far."""
        self.message = message
        self.streaming = True
        text = state.text
        if self.body.ended or not text.startswith(self.body.source):
            self._replace_body()
        self.body.append(text[len(self.body.source) :])
        self._text = text
        self._set_notes(message)
        self.footer.set_message(message, trace=self._trace)
        if state.reasoning:
            self._need_thinking().sync(state.reasoning)
        self.stream("", "", state)

    def stream(self, text: str, reasoning: str, state: StreamState) -> None:
        """More of an answer that is being written. The pending end is shown by the next `work`."""
        self.body.append(text)
        if reasoning:
            self._need_thinking().append(reasoning)
        if self.thinking is not None:
            if state.text:
                self.thinking.settle(state.n_reasoning, state.reasoning_s)
            else:
                self.thinking.set_live(state.n_reasoning)
        self.body.set_caret(self.thinking is None or bool(state.text))
        if state.progress is not self._progress:
            self._progress = state.progress
            self.update()
        now = perf_counter()
        fresh = self.footer.has_figures and bool(self._progress) == self._had_progress
        if fresh and now - self._figures_s < FIGURES_S:
            return
        self._figures_s, self._had_progress = now, bool(self._progress)
        record = self.message.generation or GenerationRecord()  # of what was there before, where an answer is continued
        ttft_s = state.ttft_s if record.timings.ttft_s is None else record.timings.ttft_s
        live = [f"{ttft_s:.2f} s to first token"] if ttft_s is not None else []
        if state.rate is not None:
            live.append(f"{state.rate:.1f} tok/s" if state.rate < 100 else f"{state.rate:,.0f} tok/s")
        count = record.usage.completion_tokens + state.n_tokens
        if state.n_tokens:
            live.append(f"{count:,} token{'' if count == 1 else 's'}")
        if self._progress is not None:
            live = [f"reading the prompt, {self._progress.n_done:,} of {self._progress.n_prompt:,} tokens"]
        self.footer.set_figures(live)

    def _replace_body(self) -> None:
        self.body.hide()
        self.body.deleteLater()
        self.body = self._make_body()
        self.body.show()

    def _need_thinking(self) -> ThinkingBlock:
        if self.thinking is None:
            self.thinking = ThinkingBlock(self, self._look)
            self.thinking.resized.connect(self.resized)
            self.thinking.link_clicked.connect(self.link_clicked)
            self.thinking.show()
        return self.thinking

    def _set_notes(self, message: Message) -> None:
        notes = notes_of(message)
        error = message.generation.error if message.generation is not None and message.status == "failed" else None
        if self.notes is not None:
            self.notes.hide()
            self.notes.deleteLater()
            self.notes = None
        if notes or error is not None:
            self.notes = NotesBox(self, self._look, notes, error)
            self.notes.resized.connect(self.resized)
            self.notes.retry.connect(lambda: self.action.emit("regenerate"))
            self.notes.show()

    def _offer_more(self, length: int) -> None:
        if self._more is None:
            size = f"{length / 1_000_000:.1f} million" if length >= 1_000_000 else f"{length:,}"
            self._more = SmallButton(f"Show all {size} characters", self, "", "accent")
            self._more.clicked.connect(self.show_all)
            self._more.show()

    def show_all(self) -> None:
        """Show the rest of a very long message."""
        self._all_shown = True
        if self._more is not None:
            self._more.hide()
            self._more.deleteLater()
            self._more = None
        self.body.append(self._text[len(self.body.source) :])
        self.body.end()
        self.resized.emit()

    def work(self, deadline: float) -> bool:
        """Show what is waiting until `deadline`; True if all is shown."""
        done = self.body.work(deadline)
        if self.thinking is not None:
            done = self.thinking.work(deadline) and done
        return done

    # ------------------------------------------------------------------ actions

    def copy_source(self) -> None:
        """The message's Markdown to the clipboard, exactly as it was written."""
        QGuiApplication.clipboard().setText(self.message.text or self.body.source)
        self.footer.confirm_copy()

    def make_menu(self) -> QMenu:
        """The context menu: what can be done with this message."""
        menu = QMenu(self)
        for name, word, _tip in self.footer.offers():
            menu.addAction(MENU_WORDS.get(name, word), partial(self._act, name))
        return menu

    def _act(self, name: str) -> None:
        if name == "copy":
            self.copy_source()
        elif name == "edit":
            self.begin_edit()
        else:
            self.action.emit(name)

    def begin_edit(self) -> None:
        """Put a text box in the place of the text."""
        if self.editor is not None or self.streaming:
            return
        self._open_editor(self.message.text).focus()
        self.resized.emit()

    def _open_editor(self, text: str) -> MessageEdit:
        self.editor = MessageEdit(self, self._look, text, user=self._user)
        self.editor.submitted.connect(self._submit_edit)
        self.editor.cancelled.connect(self.end_edit)
        self.editor.resized.connect(self.resized)
        self.body.hide()
        self.footer.hide()
        self.editor.show()
        return self.editor

    def _submit_edit(self, text: str) -> None:
        self.end_edit()
        if text != self.message.text or self._user:
            self.edited.emit(text)

    def end_edit(self) -> None:
        """Take the text box away again."""
        if self.editor is None:
            return
        edit, self.editor = self.editor, None
        edit.hide()
        edit.deleteLater()
        self.body.show()
        self.footer.show()
        self.resized.emit()
        self.setFocus(Qt.FocusReason.OtherFocusReason)

    def memory(self) -> dict[str, Any]:
        """What the user did to this widget and would miss if another took its place."""
        out: dict[str, Any] = {}
        if self.thinking is not None and self.thinking.is_open:
            out["thinking"] = True
        if self._all_shown:
            out["all"] = True
        if self.editor is not None:
            out["edit"] = self.editor.text
        return out

    def restore(self, memory: dict[str, Any]) -> None:
        """Take up what `memory` of an earlier widget of the same message told."""
        if memory.get("all") and self._more is not None:
            self.show_all()
        if memory.get("thinking") and self.thinking is not None:
            self.thinking.toggle()
        if "edit" in memory:
            self._open_editor(memory["edit"])

    @property
    def held(self) -> bool:
        """Whether this widget must be kept even when it is far from what is seen."""
        focus = QApplication.focusWidget()
        return (
            self.streaming
            or self.editor is not None
            or (focus is not None and (focus is self or self.isAncestorOf(focus)))
            or self.body.has_selection()
        )

    # ------------------------------------------------------------------ layout, painting

    def height_for(self, width: int) -> int:
        """Lay out in `width` pixels; the height that takes."""
        px = self._look.px
        column = min(self._look.column, width - 2 * px(24))
        left = (width - column) // 2
        y = px(6)
        if self.thinking is not None:
            height = self.thinking.height_for(column)
            room = self.thinking.margin
            self.thinking.setGeometry(left - room, y, column + room, height)
            y += height + px(4)
        if self.editor is not None:
            height = self.editor.height_for(column)
            self.editor.setGeometry(left, y, column, height)
            return y + height + px(16)
        y = self._place_text(left, y, column)
        if self._more is not None:
            size = self._more.sizeHint()
            x = left + column - size.width() if self._user else left - px(5)
            self._more.setGeometry(x, y + px(4), size.width(), px(24))
            y += px(28)
        if self.notes is not None:
            height = self.notes.height_for(column)
            self.notes.setGeometry(left, y + px(8), column, height)
            y += height + px(8)
        height = self.footer.height_for(column)
        self.footer.setGeometry(left, y + px(4), column, height)
        return y + px(4) + height + px(6)

    def _place_text(self, left: int, y: int, column: int) -> int:
        if not self._user:
            height = self.body.height_for(column)
            self.body.setGeometry(left, y, column, height)
            return y + height
        pad_x, pad_y = self._look.px(14), self._look.px(10)
        most = round(column * 0.8) - 2 * pad_x
        inner = max(self._look.px(16), self.body.natural_width(most))
        height = self.body.height_for(inner)
        x = left + column - inner - pad_x
        self.body.setGeometry(x, y + pad_y + self._look.leading // 2, inner, height)
        self._bubble = QRectF(x - pad_x, y, inner + 2 * pad_x, height + 2 * pad_y)
        return y + height + 2 * pad_y

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(event.rect(), self._look.color("paper"))
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if self._user and self.editor is None:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(self._look.color("accent_soft"))
            painter.drawRoundedRect(self._bubble, 12, 12)
        if self._progress is not None and self._progress.n_prompt > 0:
            self._paint_progress(painter, self._progress)
        self.paint_ring(painter)
        painter.end()

    def _paint_progress(self, painter: QPainter, progress: PromptProgress) -> None:
        area = self.footer.geometry()
        start = QPointF(area.x(), area.y() - 1)
        width = self._look.px(160)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self._look.color("mem_free"))
        painter.drawRoundedRect(QRectF(start.x(), start.y(), width, 3), 1.5, 1.5)
        painter.setBrush(self._look.color("accent"))
        part = width * min(1.0, max(0.0, progress.n_done / progress.n_prompt))
        painter.drawRoundedRect(QRectF(start.x(), start.y(), part, 3), 1.5, 1.5)


def _fold_at(text: str) -> int:
    end = text.rfind("\n", FOLDED_LENGTH // 2, FOLDED_LENGTH)
    return end if end > 0 else FOLDED_LENGTH


def _accessible_name(message: Message) -> str:
    who = {"user": "You", "assistant": "Answer", "system": "System prompt", "tool": "Tool result"}[message.role]
    if message.status == "streaming":
        return f"{who}, being written"
    text = message.text.strip()
    return f"{who}{', pinned' if message.pinned else ''}: {text[:200]}"
