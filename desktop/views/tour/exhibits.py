"""What stands under the words of a step of the tour: the request itself, as the other pages show it."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QLineEdit, QPlainTextEdit, QPushButton, QVBoxLayout, QWidget

from desktop import fonts
from desktop.theme import Theme
from desktop.views.tour.steps import Facts
from desktop.views.trace.alternatives import Alternatives
from desktop.views.trace.chips import PromptChips
from desktop.views.trace.chunk_list import ChunkList
from desktop.views.trace.figure_rows import FigureRows
from desktop.views.trace.sections import StateLegend
from desktop.views.trace.timeline import TimeLegend, TimeLine
from desktop.views.trace.written import WrittenText
from desktop.widgets.memory_bar import MemoryBar, Part

FOLLOW_UP = "Say it again for a child of six."
#: characters of a long text that are shown of its beginning and of its end
_SHOWN = 6000
#: characters that surely fit into a line, and lines of the highest box
_LINE, _MOST_LINES = 60, 16


class Asking(QWidget):
    """A line to ask in, and its button.

    Signals:
        asked(str): ask this.
    """

    asked = Signal(str)

    def __init__(self, name: str, text: str, label: str) -> None:
        super().__init__()
        self.edit = QLineEdit(text)
        self.edit.setObjectName(f"{name}_text")
        self.edit.setAccessibleName(label)
        self.button = QPushButton("Ask")
        self.button.setObjectName(name)
        self.button.setProperty("kind", "primary")
        self.button.setAccessibleName(f"Ask: {label}")
        self.note = QLabel()
        self.note.setObjectName(f"{name}_note")
        self.note.setProperty("role", "label")
        self.note.setWordWrap(True)
        row = QHBoxLayout()
        row.setSpacing(8)
        row.addWidget(self.edit, 1)
        row.addWidget(self.button)
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(6)
        box.addLayout(row)
        box.addWidget(self.note)
        self.button.clicked.connect(self._ask)
        self.edit.returnPressed.connect(self._ask)
        self.set_blocked("")

    def set_blocked(self, why: str) -> None:
        """Whether it can be asked: "" if it can, else the reason why not."""
        self.button.setEnabled(not why)
        self.note.setText(why)
        self.note.setVisible(bool(why))
        for part in (self.button, self.edit):
            part.setToolTip(why or "Ask this in a chat that stays in your list of chats")

    def _ask(self) -> None:
        if self.button.isEnabled() and self.edit.text().strip():
            self.asked.emit(self.edit.text().strip())


class Exhibits(QWidget):
    """All of them under each other; only those of the step are shown and filled.

    Signals:
        token_chosen(int): another token of the answer is looked at, by the user.
    """

    token_chosen = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("tour_exhibits")
        self.messages = _text("tour_messages", "The messages that were sent")
        self.rendered = _text("tour_rendered", "The text that the model got")
        self.states, self.chips = StateLegend(), PromptChips()
        self.chips.setObjectName("tour_prompt_tokens")
        self.chunks = ChunkList()
        self.bar = MemoryBar("KV cache")
        self.written = WrittenText()
        self.written.setObjectName("tour_written_tokens")
        self.alternatives_head = QLabel("It could have said")
        self.alternatives_head.setProperty("role", "section")
        self.alternatives = Alternatives("tour_alternatives")
        self.time_line, self.legend = TimeLine(), TimeLegend()
        self.asking = Asking("tour_ask_follow_up", FOLLOW_UP, "a follow-up")
        self.rows = FigureRows("tour_rows")
        self._groups: dict[str, tuple[QWidget, ...]] = {
            "messages": (self.messages,),
            "rendered": (self.rendered,),
            "chips": (self.states, self.chips),
            "chunks": (self.chunks,),
            "bar": (self.bar,),
            "written": (self.written,),
            "alternatives": (self.alternatives_head, self.alternatives),
            "time": (self.time_line, self.legend),
            "follow": (self.asking, self.states, self.chips),
        }
        self._kept: dict[str, object] = {}  # what an exhibit shows: nothing is laid out twice
        box = self._box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(10)
        order: tuple[QWidget, ...] = (
            *(self.messages, self.rendered, self.asking, self.states, self.chips, self.chunks, self.bar),
            *(self.written, self.alternatives_head, self.alternatives, self.time_line, self.legend, self.rows),
        )
        for part in order:
            box.addWidget(part)
        self.written.chosen.connect(self._on_token)

    def apply_theme(self, theme: Theme, scale: float) -> None:
        for part in (
            self.states,
            self.chips,
            self.chunks,
            self.written,
            self.alternatives,
            self.time_line,
            self.legend,
        ):
            part.apply_theme(theme, scale)
        self.bar.apply_theme(theme)
        self.rows.apply_scale(scale)
        for text in (self.messages, self.rendered):
            text.setFont(fonts.mono_font(scale, -1))
            _fit(text)

    def show_step(self, shows: tuple[str, ...], facts: Facts) -> None:
        """Fill and show these, hide the others."""
        wanted = {part for name in shows for part in self._groups[name]}
        for group in self._groups.values():
            for part in group:
                if part not in wanted:
                    part.hide()
        self._box.removeWidget(self.rows)  # below a long prompt nobody would find them
        self._box.insertWidget(self._box.indexOf(self.states) if "follow" in shows else -1, self.rows)
        for name in shows:
            getattr(self, f"_show_{name}")(facts)

    # ---- one by one

    def _new(self, name: str, content: object) -> bool:
        """Whether an exhibit has to be filled: it shows something else until now."""
        if self._kept.get(name) is content:
            return False
        self._kept[name] = content
        return True

    def _show_messages(self, facts: Facts) -> None:
        if self._new("messages", facts.trace.messages):
            said = [f"{message.role}:\n{message.text}" for message in facts.trace.messages]
            self.messages.setPlainText(_shown("\n\n".join(said)))
            _fit(self.messages)
        self.messages.show()

    def _show_rendered(self, facts: Facts) -> None:
        if self._new("rendered", facts.text):
            self.rendered.setPlainText(_shown(facts.text.text) if facts.text is not None else "")
            _fit(self.rendered)
        self.rendered.setVisible(facts.text is not None)

    def _show_chips(self, facts: Facts) -> None:
        text = facts.text
        if text is not None and self._new("chips", text):
            self.chips.set_text(text)
            self.states.set_text(text)
        self.chips.setVisible(text is not None)
        self.states.setVisible(text is not None)

    def _show_chunks(self, facts: Facts) -> None:
        self.chunks.set_chunks(facts.trace.chunks)
        self.chunks.setVisible(bool(facts.trace.chunks))

    def _show_bar(self, facts: Facts) -> None:
        model = facts.model
        known = model is not None and model.kv_bytes > 0 and model.n_ctx > 0
        self.bar.setVisible(known)
        if known and model is not None:
            used = round(model.kv_bytes / model.n_ctx * min(facts.n_used, model.n_ctx))
            self.bar.set_parts([Part("kv", used)], model.kv_bytes)

    def _show_written(self, facts: Facts) -> None:
        same = self._kept.get("written") == facts.trace.message_id
        self._kept["written"] = facts.trace.message_id
        self.written.set_steps(facts.trace.steps, facts.trace.end, same_answer=same)
        if facts.chosen < len(facts.trace.steps):
            self.written.set_current(facts.chosen)
        self.written.show()

    def _show_alternatives(self, facts: Facts) -> None:
        steps = facts.trace.steps
        step = steps[facts.chosen] if 0 <= facts.chosen < len(steps) else None
        detail = step.detail if step is not None else None
        if step is not None and detail is not None and self._new("alternatives", detail):
            self.alternatives.show_candidates(detail.candidates, step.token_id, branching=False)
        for part in (self.alternatives_head, self.alternatives):
            part.setVisible(detail is not None)

    def _show_time(self, facts: Facts) -> None:
        if self._new("time", facts.trace):
            self.time_line.set_trace(facts.trace)
            self.legend.set_trace(facts.trace)
        for part in (self.time_line, self.legend):
            part.setVisible(facts.complete)

    def _show_follow(self, facts: Facts) -> None:
        self.asking.setVisible(facts.follow is None)
        text = facts.follow_text
        if text is not None and self._new("chips", text):
            self.chips.set_text(text)
            self.states.set_text(text)
        self.chips.setVisible(text is not None)
        self.states.setVisible(text is not None)

    def _on_token(self, item: int) -> None:
        if not self.written.is_end(item):
            self.token_chosen.emit(item)


def _text(name: str, label: str) -> QPlainTextEdit:
    text = QPlainTextEdit()
    text.setObjectName(name)
    text.setAccessibleName(label)
    text.setToolTip(label)
    text.setReadOnly(True)
    text.setTabChangesFocus(True)
    text.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAsNeeded)
    return text


def _fit(text: QPlainTextEdit) -> None:
    """As high as its lines, within limits; longer ones scroll."""
    said = text.toPlainText().split("\n")
    lines = sum(1 + len(line) // _LINE for line in said)
    height = text.fontMetrics().lineSpacing()
    text.setFixedHeight(min(max(lines + 1, 4), _MOST_LINES) * height + 16)


def _shown(text: str) -> str:
    """A long text without its middle, and how much that is."""
    if len(text) <= 2 * _SHOWN:
        return text
    left_out = len(text) - 2 * _SHOWN
    return f"{text[:_SHOWN]}\n\n… {left_out:,} characters are not shown …\n\n{text[-_SHOWN:]}"
