"""What happens when you ask: one question from its text to its answer and to the next one, with its own figures."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QHideEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QScrollArea, QStackedWidget, QVBoxLayout, QWidget

from desktop.bridge import EngineBridge
from desktop.errors import describe
from desktop.tasks import Tasks
from desktop.theme import Theme
from desktop.views.tour.exhibits import Asking, Exhibits
from desktop.views.tour.steps import STEPS, Facts
from desktop.views.tour.tour_desk import TourDesk
from desktop.widgets.banner import Banner
from desktop.widgets.term import explain

if TYPE_CHECKING:
    from engine.service import Engine

QUESTION = "Why does ice float on water?"
_WIDTH = 640
_LIST_WIDTH = 168
#: narrower than this, times the text size, the list of the steps is left out
_BESIDE = 620
_INTRO = (
    "Follow one question through the model: from your text to tokens, through the cache, to each word of the answer. "
    "It is asked for real, of the loaded model, and every figure is that of this request."
)
_WAITING = "The question is on its way to the model."


class TourPage(QWidget):
    """Signals:
    trace_wanted(int): show the whole trace of this answer. models_wanted: the user wants to choose a model.
    """

    trace_wanted = Signal(int)
    models_wanted = Signal()

    def __init__(self, engine: Engine, bridge: EngineBridge, tasks: Tasks, latest: Callable[[], int]) -> None:
        """latest: id of the last answer on screen; 0 for none."""
        super().__init__()
        self.setObjectName("tour_page")
        self.desk = TourDesk(engine, bridge, tasks, self)
        self._latest = latest
        self._scale = 1.0
        self.step = 0
        self.chosen = 0
        self.banner = Banner("tour_banner")
        self.asking = Asking("tour_ask", QUESTION, "a question")
        self.use_last = _button("tour_use_last", "Walk through the last answer instead", "link")
        self.use_last.setToolTip("Take the answer that is on screen in the chat")
        self.choose_model = _button("tour_choose_model", "Choose a model", "")
        self.choose_model.setToolTip("Show the models on this computer")
        self.steps: list[QPushButton] = []
        self.number, self.title, self.words = QLabel(), QLabel(), QLabel()
        self.exhibits = Exhibits()
        self.back, self.next = _button("tour_back", "Back", ""), _button("tour_next", "Next", "primary")
        self.whole = _button("tour_trace", "The whole trace", "link")
        self.whole.setToolTip("Everything that was recorded of this answer")
        self.again = _button("tour_again", "Start again", "link")
        self.again.setToolTip("Ask another question")
        self.stack = QStackedWidget()
        self._build()
        self._wire()
        self.refresh()

    # ---- making

    def _build(self) -> None:
        self.stack.addWidget(_scrolled("tour_start_scroll", self._start_page()))
        self.scroll_area = _scrolled("tour_scroll", self._step_page())
        self.stack.addWidget(self._beside())
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self.banner)
        layout.addWidget(self.stack, 1)

    def _start_page(self) -> QWidget:
        title = QLabel("What happens when you ask")
        title.setProperty("role", "title")
        title.setWordWrap(True)
        intro = QLabel(_INTRO)
        intro.setProperty("role", "secondary")
        intro.setWordWrap(True)
        self._start = QWidget()
        box = QVBoxLayout(self._start)
        box.setContentsMargins(0, 28, 0, 28)
        box.setSpacing(14)
        for part in (title, intro, self.asking):
            box.addWidget(part)
        left = Qt.AlignmentFlag.AlignLeft
        box.addWidget(self.use_last, 0, left)
        box.addWidget(self.choose_model, 0, left)
        box.addStretch(1)
        return self._start

    def _beside(self) -> QWidget:
        """The list of the steps, and the step at its right."""
        self._list = QWidget()
        self._list.setObjectName("tour_steps")
        column = QVBoxLayout(self._list)
        column.setContentsMargins(16, 16, 4, 16)
        column.setSpacing(2)
        for place, step in enumerate(STEPS):
            button = _button(f"tour_step_{step.id}", f"{place + 1}  {step.title}", "step")
            button.setCheckable(True)
            button.setToolTip(f"Step {place + 1} of {len(STEPS)}: {step.title}")
            button.clicked.connect(lambda _=False, place=place: self.go_to(place))
            self.steps.append(button)
            column.addWidget(button)
        column.addStretch(1)
        holder = QWidget()
        row = QHBoxLayout(holder)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(0)
        row.addWidget(self._list)
        row.addWidget(self.scroll_area, 1)
        return holder

    def _step_page(self) -> QWidget:
        self.number.setProperty("role", "label")
        self.number.setObjectName("tour_number")
        self.title.setProperty("role", "title")
        self.title.setObjectName("tour_title")
        self.words.setObjectName("tour_words")
        self.words.setWordWrap(True)
        self.words.setTextFormat(Qt.TextFormat.PlainText)
        self.words.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        buttons = QHBoxLayout()
        buttons.setSpacing(8)
        buttons.addWidget(self.back)
        buttons.addWidget(self.next)
        buttons.addStretch(1)
        buttons.addWidget(self.again)
        buttons.addWidget(self.whole)
        self._column = QWidget()
        box = QVBoxLayout(self._column)
        box.setContentsMargins(0, 18, 0, 28)
        box.setSpacing(12)
        for part in (self.number, self.title, self.words, self.exhibits):
            box.addWidget(part)
        box.addSpacing(4)
        box.addLayout(buttons)
        box.addStretch(1)
        return self._column

    def _wire(self) -> None:
        self.asking.asked.connect(self._ask)
        self.exhibits.asking.asked.connect(self.desk.ask_follow_up)
        self.use_last.clicked.connect(self._use_last)
        self.choose_model.clicked.connect(self.models_wanted)
        self.back.clicked.connect(lambda: self.go_to(self.step - 1))
        self.next.clicked.connect(lambda: self.go_to(self.step + 1))
        self.again.clicked.connect(self.start_again)
        self.whole.clicked.connect(lambda: self.trace_wanted.emit(self._shown_message()))
        self.exhibits.token_chosen.connect(self._on_token)
        self.desk.changed.connect(self._on_changed)
        self.desk.missing.connect(self._on_missing)
        self.desk.failed.connect(lambda error: self.banner.show_words(describe(error)))

    # ---- look

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self._scale = scale
        self.exhibits.apply_theme(theme, scale)
        for part in (self._column, self._start):
            part.setMaximumWidth(round(_WIDTH * max(1.0, scale)))
        self._list.setFixedWidth(round(_LIST_WIDTH * max(1.0, scale)))
        self._arrange()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._arrange()

    def _arrange(self) -> None:
        self._list.setVisible(self.width() >= _BESIDE * self._scale)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.desk.watch(True)
        self.refresh()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self.desk.watch(False)

    def stop(self) -> None:
        """Ask for nothing any more."""
        self.desk.stop()

    def focus_first(self) -> None:
        wanted = self.next if self.desk.asked else self.asking.button
        (wanted if wanted.isEnabled() else self.asking.edit).setFocus(Qt.FocusReason.OtherFocusReason)

    # ---- commands

    def _ask(self, text: str) -> None:
        self.banner.dismiss()
        self.step = self.chosen = 0
        self.desk.ask(text)
        self.next.setFocus(Qt.FocusReason.OtherFocusReason)

    def _use_last(self) -> None:
        self.banner.dismiss()
        self.step = self.chosen = 0
        self.desk.use(self._latest())

    def start_again(self) -> None:
        """Back to the question."""
        self.banner.dismiss()
        self.step = self.chosen = 0
        self.desk.forget()
        self.focus_first()

    def go_to(self, step: int) -> None:
        """Show a step, by its place."""
        self.step = min(max(0, step), len(STEPS) - 1)
        self.refresh()
        self.scroll_area.verticalScrollBar().setValue(0)

    def _on_token(self, item: int) -> None:
        self.chosen = item
        self.go_to(next(place for place, step in enumerate(STEPS) if step.id == "sampling"))

    def _shown_message(self) -> int:
        last = STEPS[self.step].id == "follow" and self.desk.follow.message_id
        return int(last or self.desk.question.message_id)

    # ---- what is shown

    def _on_changed(self) -> None:
        if self.isVisible():
            self.refresh()

    def _on_missing(self, why: str) -> None:
        self.desk.forget()
        self.asking.note.setText(why)
        self.asking.note.setVisible(bool(why))

    def refresh(self) -> None:
        """Show what is known now."""
        why_not = self.desk.why_not_ask()
        self.asking.set_blocked(why_not)
        self.use_last.setVisible(bool(self._latest()))
        self.choose_model.setVisible("Load a model" in why_not)
        self.stack.setCurrentIndex(1 if self.desk.asked else 0)
        if not self.desk.asked:
            return
        facts = self.desk.facts(self.chosen)
        step = STEPS[self.step]
        for place, button in enumerate(self.steps):
            button.setChecked(place == self.step)
        self.number.setText(f"Step {self.step + 1} of {len(STEPS)}")
        self.title.setText(step.title)
        explain(self.title, step.term)
        self.back.setEnabled(self.step > 0)
        self.next.setEnabled(self.step < len(STEPS) - 1)
        self.whole.setVisible(facts is not None)
        self.exhibits.setVisible(facts is not None)
        if facts is None:
            self.words.setText(_WAITING)
        else:
            self._show(facts)

    def _show(self, facts: Facts) -> None:
        step = STEPS[self.step]
        self.words.setText(step.words(facts))
        self.exhibits.show_step(step.shows, facts)
        rows = step.rows(facts)
        self.exhibits.rows.set_rows(rows)
        self.exhibits.rows.setVisible(bool(rows))
        if step.id == "follow":
            asked = self.desk.follow_asked
            self.exhibits.asking.set_blocked("The follow-up is on its way." if asked else self.desk.why_no_follow_up())


def _button(name: str, text: str, kind: str) -> QPushButton:
    button = QPushButton(text)
    button.setObjectName(name)
    button.setAutoDefault(False)
    button.setAccessibleName(text)
    button.setToolTip(text)
    if kind:
        button.setProperty("kind", kind)
    return button


def _scrolled(name: str, column: QWidget) -> QScrollArea:
    outer = QWidget()
    row = QHBoxLayout(outer)
    row.setContentsMargins(24, 0, 24, 0)
    row.addWidget(column, 100)
    row.addStretch(1)
    area = QScrollArea()
    area.setObjectName(name)
    area.setWidgetResizable(True)
    area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
    area.setWidget(outer)
    return area
