"""What is to be measured: the model, how much it reads and writes, how many answers at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import (
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QProgressBar,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from desktop import icons
from desktop.theme import Theme
from desktop.views.settings.sampling_form import ChoiceBox
from desktop.widgets.term import explain
from engine.errors import InvalidRequest

if TYPE_CHECKING:
    from engine.bench import BenchSpec, Progress

_LEAST_WIDTH = 150


@dataclass(frozen=True)
class _Field:
    """name: of the spec, or of the load. first: what it begins with; empty: "chosen for you". term: of the glossary."""

    name: str
    label: str
    tip: str
    first: str = ""
    term: str = ""


_FIELDS = (
    _Field("n_prompt", "Tokens of a prompt", "How long each prompt is that is read (pp)", "512", "prefill"),
    _Field("n_generate", "Tokens of an answer", "How many tokens are written after each prompt (tg)", "128", "decode"),
    _Field(
        "parallel",
        "Answers at once",
        "How many answers are written at the same time, one row each",
        "1, 2, 4, 8",
        "batching",
    ),
    _Field(
        "n_runs", "Runs", "How often each row is measured; the middle one of them counts (the median)", "3", "benchmark"
    ),
    _Field("n_threads", "Threads", "CPU threads; empty: as many as a chat would have", term="threads"),
    _Field(
        "n_gpu_layers",
        "Layers on the GPU",
        "How many layers are computed on the GPU; empty: as the fit chooses",
        term="offload",
    ),
)
#: of the load rather than of the measurement
_OF_LOAD = {"n_threads": ("n_threads", "n_threads_batch"), "n_gpu_layers": ("n_gpu_layers",)}
_STAGES = {"model": "in its process alone", "chat": "through chats"}


class BenchForm(QWidget):
    """Signals:
    run_requested: the button. stop_requested: the other one.
    """

    run_requested = Signal()
    stop_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("bench_form")
        self._scale, self._columns = 1.0, 0
        self._wanted = ""
        self.model = ChoiceBox()
        self.model.setObjectName("bench_model")
        self.model.setMinimumContentsLength(12)
        self.model.setSizeAdjustPolicy(ChoiceBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.fields: dict[str, QLineEdit] = {}
        self._grid = QGridLayout()
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setHorizontalSpacing(16)
        self._grid.setVerticalSpacing(10)
        self._boxes: list[QWidget] = []
        for field in _FIELDS:
            edit = QLineEdit(field.first)
            edit.setObjectName(f"bench_{field.name}")
            edit.setPlaceholderText("chosen for you")
            self.fields[field.name] = edit
            self._boxes.append(_labelled(field.label, edit, field.tip, field.term))
        self.run = QPushButton("Run the benchmark")
        self.run.setObjectName("bench_run")
        self.run.setProperty("kind", "primary")
        explain(self.run, "benchmark", "Measure this model now; it takes some minutes and all cores")
        self.stop = QPushButton("Stop")
        self.stop.setObjectName("bench_stop")
        self.stop.setToolTip("End the measurement; nothing of it is kept")
        self.bar = QProgressBar()
        self.bar.setObjectName("bench_progress")
        self.bar.setRange(0, 1000)
        self.bar.setTextVisible(False)
        self.bar.setAccessibleName("Progress of the measurement")
        self.bar.setToolTip("How much of the measurement is done")
        self.words = QLabel()
        self.words.setObjectName("bench_words")
        self.words.setProperty("role", "label")
        self.words.setWordWrap(True)
        buttons = QHBoxLayout()
        buttons.setSpacing(8)
        buttons.addWidget(self.run)
        buttons.addWidget(self.stop)
        buttons.addStretch(1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(10)
        layout.addWidget(_labelled("Model", self.model, "The model that is measured, loaded a second time for it"))
        layout.addLayout(self._grid)
        layout.addSpacing(2)
        layout.addLayout(buttons)
        layout.addWidget(self.bar)
        layout.addWidget(self.words)
        self.run.clicked.connect(lambda: self.run_requested.emit())
        self.stop.clicked.connect(lambda: self.stop_requested.emit())
        self.set_running(False)

    # ---- look

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self._scale = scale
        icons.set_icon(self.stop, "stop", theme)
        self._reflow()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._reflow()

    def _reflow(self) -> None:
        """Three fields side by side, fewer where it is narrow or the text is large."""
        columns = max(1, min(3, self.width() // round(_LEAST_WIDTH * max(1.0, self._scale))))
        if columns == self._columns:
            return
        self._columns = columns
        for place, box in enumerate(self._boxes):
            self._grid.addWidget(box, place // columns, place % columns)
        for column in range(3):
            self._grid.setColumnStretch(column, 1 if column < columns else 0)

    # ---- content

    def set_models(self, models: Sequence[tuple[str, str]]) -> None:
        """(name, path) of each, the most likely first; the choice stays where it can."""
        chosen = self._wanted or self.path
        self.model.clear()
        for name, path in models:
            self.model.addItem(name, path)
        self._choose(chosen)
        self.run.setEnabled(self.model.count() > 0)

    def choose_model(self, path: str) -> None:
        """Choose this one, also if it is listed only later."""
        self._wanted = path
        self._choose(path)

    def _choose(self, path: str) -> None:
        place = self.model.findData(path)
        if place >= 0:
            self.model.setCurrentIndex(place)
            self._wanted = ""

    @property
    def path(self) -> str:
        return str(self.model.currentData() or "")

    def spec(self) -> BenchSpec:
        """What was typed.

        Raises:
            InvalidRequest: a field holds something else; it is marked.
        """
        from engine.bench import BenchSpec

        values: dict[str, Any] = {}
        load: dict[str, Any] = {}
        wrong = []
        for field in _FIELDS:
            text = self.fields[field.name].text()
            try:
                value = _numbers(text) if field.name == "parallel" else _number(text, may_be_empty=not field.first)
                bad = False
            except ValueError:
                value, bad = None, True
            self._mark(field.name, bad)
            if bad:
                wrong.append(field.label)
            elif field.name in _OF_LOAD:
                load |= {} if value is None else dict.fromkeys(_OF_LOAD[field.name], value)
            else:
                values[field.name] = value
        if wrong:
            raise InvalidRequest(f"{' and '.join(wrong)}: whole numbers are needed", details={"field": wrong[0]})
        try:
            return BenchSpec(path=self.path, load=load, **values).checked()
        except InvalidRequest as error:
            name = str(error.details.get("field", ""))
            self._mark(name, True)
            label = next((field.label for field in _FIELDS if field.name == name), name)
            raise InvalidRequest(error.message.replace(name, label, 1), details=error.details) from None

    def _mark(self, name: str, wrong: bool) -> None:
        edit = self.fields.get(name)
        if edit is not None and bool(edit.property("invalid") == "true") != wrong:
            edit.setProperty("invalid", "true" if wrong else "false")
            edit.style().unpolish(edit)
            edit.style().polish(edit)

    # ---- at work

    def set_running(self, running: bool) -> None:
        self.run.setVisible(not running)
        self.stop.setVisible(running)
        self.stop.setEnabled(running)
        self.bar.setVisible(running)
        self.words.setVisible(running)
        for widget in (self.model, *self.fields.values()):
            widget.setEnabled(not running)
        if running:
            self.bar.setValue(0)
            self.words.setText("Starting a model process…")

    def set_stopping(self) -> None:
        self.stop.setEnabled(False)
        self.words.setText("Stopping…")

    def show_progress(self, now: Progress) -> None:
        if not self.stop.isEnabled():
            return
        if now.stage == "load":
            self.bar.setValue(0)
            self.words.setText(f"Loading the model, {now.fraction:.0%}")
            return
        self.bar.setValue(round(1000 * now.fraction))
        self.words.setText(
            f"{now.fraction:.0%}: {now.parallel} at once, run {now.run}, {_STAGES.get(now.stage, now.stage)}"
        )


def _labelled(label: str, control: QWidget, tip: str, term: str = "") -> QWidget:
    box = QWidget()
    layout = QVBoxLayout(box)
    layout.setContentsMargins(0, 0, 0, 0)
    layout.setSpacing(4)
    words = QLabel(label)
    words.setProperty("role", "secondary")
    words.setBuddy(control)
    control.setAccessibleName(label)
    control.setAccessibleDescription(tip)
    for part in (words, control):
        part.setToolTip(tip)
        if term:
            explain(part, term, tip)
    layout.addWidget(words)
    layout.addWidget(control)
    return box


def _number(text: str, *, may_be_empty: bool) -> int | None:
    """Raises: ValueError."""
    words = text.strip().replace("\u202f", "")
    return None if may_be_empty and not words else int(words)


def _numbers(text: str) -> tuple[int, ...]:
    """Raises: ValueError."""
    return tuple(int(part) for part in text.replace(",", " ").replace(";", " ").split())
