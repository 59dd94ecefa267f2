"""The trace of one answer: where its time went, what the model read, what it wrote and what it could have written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QDir, Qt, Signal
from PySide6.QtGui import QHideEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import (
    QApplication,
    QBoxLayout,
    QFileDialog,
    QFrame,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from desktop import errors, figures
from desktop.bridge import EngineBridge
from desktop.tasks import Tasks
from desktop.theme import LIGHT, Theme
from desktop.views.trace import pieces, words
from desktop.views.trace.replay import ReplayDialog, why_not
from desktop.views.trace.sections import Sections
from desktop.views.trace.token_panel import WIDTH, TokenPanel
from desktop.views.trace.trace_desk import TraceDesk
from desktop.widgets.banner import Banner
from desktop.widgets.elided_label import ElidedLabel
from engine.message import Chat, Message
from engine.trace import Step, Trace

if TYPE_CHECKING:
    from engine.service import Engine

#: narrower than this, times the text size, the panel lies below the text
_BESIDE = 620
_NOTHING = "Ask something, or press Trace under an answer, and see how it came about."


class TracePage(QWidget):
    """Signals:
    message(str, object): say this, with a way back or None.
    """

    message = Signal(str, object)

    def __init__(self, engine: Engine, bridge: EngineBridge, tasks: Tasks, latest: Callable[[], int]) -> None:
        """latest: id of the answer to show when none was asked for; 0 for none."""
        super().__init__()
        self.setObjectName("trace_page")
        self.desk = TraceDesk(engine, bridge, tasks, self)
        self._latest = latest
        self._theme, self._scale = LIGHT, 1.0
        self._item: int | None = None  # the chosen step; one behind the last is the end
        self._newest = 0  # the newest answer at the last look
        self._same = False
        self.title, self.facts = ElidedLabel(), ElidedLabel()
        self.size_label = QLabel()
        self.replay_button, self.export_button = QPushButton("Replay this step…"), QPushButton("Export…")
        self.banner = Banner("trace_banner")
        self.empty = QLabel(_NOTHING)
        self.sections, self.panel = Sections(), TokenPanel()
        self.stack = QStackedWidget()
        self.replay: ReplayDialog | None = None
        self._build()
        self._wire()
        self._show_empty(_NOTHING)

    # ---- making

    def _build(self) -> None:
        self.title.setObjectName("trace_title")
        self.title.setProperty("role", "strong")
        self.facts.setObjectName("trace_facts")
        self.facts.setProperty("role", "secondary")
        self.size_label.setObjectName("trace_size")
        self.size_label.setProperty("role", "label")
        self.replay_button.setObjectName("trace_replay")
        self.export_button.setObjectName("trace_export")
        self.export_button.setToolTip("Save all of this trace as a JSON file")
        self.empty.setObjectName("trace_empty")
        self.empty.setProperty("role", "secondary")
        self.empty.setWordWrap(True)
        self.empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.empty.setContentsMargins(40, 40, 40, 40)
        self.head = QWidget()
        self.head.setObjectName("trace_head")
        row = QHBoxLayout(self.head)
        row.setContentsMargins(24, 8, 16, 8)
        row.setSpacing(10)
        row.addWidget(self.title)
        row.addWidget(self.facts, 1)
        for part in (self.size_label, self.export_button, self.replay_button):
            row.addWidget(part)
        self.divider = QFrame()
        self.divider.setObjectName("trace_divider")
        content = QWidget()
        self._beside = QBoxLayout(QBoxLayout.Direction.LeftToRight, content)
        self._beside.setContentsMargins(0, 0, 0, 0)
        self._beside.setSpacing(0)
        self._beside.addWidget(self.sections, 3)
        self._beside.addWidget(self.divider)
        self._beside.addWidget(self.panel, 2)
        self.stack.addWidget(self.empty)
        self.stack.addWidget(content)
        line = QFrame()
        line.setObjectName("hairline")
        self._head_line = line
        around = QHBoxLayout()
        around.setContentsMargins(24, 0, 24, 0)
        around.addWidget(self.banner)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self.head)
        layout.addWidget(line)
        layout.addLayout(around)
        layout.addWidget(self.stack, 1)

    def _wire(self) -> None:
        desk, sections = self.desk, self.sections
        desk.opened.connect(self._on_opened)
        desk.changed.connect(self._on_trace)
        desk.prompt_ready.connect(sections.show_prompt)
        desk.missing.connect(self._show_empty)
        desk.described.connect(self._describe)
        desk.branched.connect(self._on_branched)
        desk.exported.connect(lambda path: self.message.emit(f"Saved the trace as {Path(path).name}", None))
        desk.failed.connect(lambda error: self.banner.show_words(errors.describe(error)))
        desk.state_changed.connect(self._show_possible)
        sections.step_chosen.connect(self._choose)
        sections.prompt_token_chosen.connect(self._on_prompt_token)
        self.panel.branch_requested.connect(self._branch)
        self.panel.focus_dropped.connect(self.focus_first)
        self.replay_button.clicked.connect(self.open_replay)
        self.export_button.clicked.connect(self._ask_where)

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self._theme, self._scale = theme, scale
        self.sections.apply_theme(theme, scale)
        self.panel.apply_theme(theme, scale)
        self._place_panel()
        if self.replay is not None:
            self.replay.apply_theme(theme, scale)

    def stop(self) -> None:
        """Ask for nothing any more."""
        self.desk.stop()
        if self.replay is not None:
            self.replay.close()

    # ---- which trace

    def show_message(self, message_id: int) -> None:
        """Show the trace of an answer."""
        self._newest = self._latest()
        self.desk.open(message_id)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.desk.watch(True)
        newest = self._latest()
        if newest and newest != self._newest:  # something was asked meanwhile: that is what one wants to see
            self._newest = newest
            self.desk.open(newest)
        self._show_possible()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self.desk.watch(False)

    def focus_first(self) -> None:
        (self.sections.written if self.desk.trace is not None else self).setFocus(Qt.FocusReason.OtherFocusReason)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place_panel()

    def _place_panel(self) -> None:
        """Beside the text where there is room for both, else below it."""
        beside = self.width() >= _BESIDE * self._scale
        self._beside.setDirection(QBoxLayout.Direction.LeftToRight if beside else QBoxLayout.Direction.TopToBottom)
        width = round(WIDTH * max(1.0, self._scale)) if self.width() >= 760 * self._scale else round(296 * self._scale)
        if beside:
            self.panel.setMinimumWidth(width)
            self.panel.setMaximumWidth(width)
            self.divider.setFixedSize(1, 16_777_215)
        else:
            self.panel.setMinimumWidth(0)
            self.panel.setMaximumWidth(16_777_215)
            self.divider.setFixedSize(16_777_215, 1)

    # ---- showing

    def _on_opened(self, _: int) -> None:
        self._item, self._same = None, False
        if self.isAncestorOf(QApplication.focusWidget() or self):  # what has it is about to go; the answer gets it back
            self.setFocus(Qt.FocusReason.OtherFocusReason)
        self.banner.dismiss()
        self.title.setText("")
        self.facts.setText("")
        self.size_label.setText("")
        self._show_empty("")
        self.sections.clear()

    def _show_empty(self, text: str) -> None:
        """In place of the trace: why there is none, or what to do."""
        self.empty.setText(text)
        self.stack.setCurrentIndex(0)
        self.head.hide()
        self._head_line.hide()

    def _on_trace(self, trace: Trace) -> None:
        first, live = not self._same, self.desk.is_live
        self.sections.set_growing(live)
        self.sections.show_trace(trace, same_answer=self._same)
        self._same = True
        self.stack.setCurrentIndex(1)
        if self.hasFocus():
            self.focus_first()
        self.head.show()
        self._head_line.show()
        if not self.title.text():
            self._describe(None, None)
        self.size_label.setText(figures.size(trace.n_bytes) if trace.n_bytes >= 1024**2 else _kib(trace.n_bytes))
        self.size_label.setToolTip("What this trace takes on disk, compressed")
        self.panel.show_reading(trace)
        if self._item is None and not live and trace.steps:
            self._choose(_least_sure(trace))
        elif first or self._item is None:
            self.panel.show_nothing(being_written=live, written=bool(trace.steps))
        elif 0 <= self._item < len(trace.steps):
            self._choose(self._item)  # how long it took may be known now
        self._show_possible()

    def _describe(self, chat: Chat | None, message: Message | None) -> None:
        trace = self.desk.trace
        if trace is None:
            return
        said = []
        if message is not None and message.n_versions > 1:
            said.append(f"answer {message.version:,} of {message.n_versions:,}")
        if trace.model_name:
            said.append(trace.model_name)
        if trace.sampling.seed is not None:
            said.append(f"seed {trace.seed}")
        self.title.setText((chat.title if chat is not None else "") or "An answer")
        self.facts.setText(" · ".join(said))

    # ---- the chosen token

    def _step(self) -> Step | None:
        """The chosen step of the answer; it can be its end."""
        trace = self.desk.trace
        if trace is None or self._item is None or self._item < 0:
            return None
        return trace.steps[self._item] if self._item < len(trace.steps) else trace.end

    def _choose(self, item: int) -> None:
        trace = self.desk.trace
        written = self.sections.written
        if trace is None or item >= written.count():
            return
        self._item = item
        self.sections.choose_step(item)
        index = None if written.is_end(item) else item
        self.panel.show_step(trace, written.step(item), index, written.note_of(item), self.desk.n_vocab)
        self._show_possible()

    def _on_prompt_token(self, token: int) -> None:
        self._item = None if self.desk.trace is None else -1
        text = self.sections.chips.text
        lines = self.sections.chips.lines_of(token)[2:]
        piece = text.raw[token]
        self.panel.show_prompt_token(
            text.texts[token], text.ids[token], pieces.spoken(piece), f"position {token + 1:,}", lines
        )
        self._show_possible()

    def _show_possible(self) -> None:
        """What can be done with the chosen token now."""
        if self.desk.trace is None:
            return
        self.panel.set_blocked(self.desk.why_no_branch())
        cannot = why_not(self._step()) or self.desk.why_nothing("replay a step")
        self.replay_button.setEnabled(not cannot)
        self.replay_button.setToolTip(cannot or "Take this step again with other settings and see what comes")
        self.export_button.setEnabled(not self.desk.is_live)

    # ---- doing

    def _branch(self, token_id: int) -> None:
        if self._item is not None and self._item >= 0:
            self.desk.branch(self._item, token_id)

    def _on_branched(self, message: Message, go_back: Callable[[], None]) -> None:
        self._newest = message.id
        self.message.emit("The chat goes on with the other token, as a new version of the answer", go_back)

    def open_replay(self) -> None:
        """Ask for other settings for the chosen step."""
        trace, step = self.desk.trace, self._step()
        if trace is None or step is None or self._item is None:
            return
        if self.replay is not None:
            self.replay.close()
        dialog = ReplayDialog(trace, self._item, self._theme, self._scale, self.window())
        dialog.wanted.connect(lambda sampling: self.desk.replay(dialog.message_id, dialog.index, sampling))
        self.desk.replayed.connect(dialog.show_outcome)
        self.desk.replay_failed.connect(dialog.show_error)
        dialog.finished.connect(self._forget_replay)
        self.replay = dialog
        dialog.show()

    def _forget_replay(self) -> None:
        self.replay = None

    def _ask_where(self) -> None:
        trace = self.desk.trace
        if trace is None:
            return
        name = Path(QDir.homePath()) / f"trace-{trace.message_id}.json"
        dialog = QFileDialog(self.window(), "Save the trace", str(name), "JSON (*.json)")
        dialog.setObjectName("trace_export_dialog")
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setDefaultSuffix("json")
        dialog.fileSelected.connect(lambda path: self.desk.export(Path(path)))
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()


def _kib(n_bytes: int) -> str:
    return f"{max(1, round(n_bytes / 1024)):,} KiB" if n_bytes > 0 else ""


def _least_sure(trace: Trace) -> int:
    """The token that surprised most of those that were chosen: the one worth a look first."""
    known = [
        (s, i) for i, step in enumerate(trace.steps) if not step.forced and (s := words.surprise(step)) is not None
    ]
    return max(known, key=lambda pair: (pair[0], -pair[1]))[1] if known else 0
