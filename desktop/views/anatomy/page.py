"""The loaded model as a picture: its layers and where each lies, what they weigh, and what would be otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QGuiApplication, QResizeEvent, QShowEvent
from PySide6.QtWidgets import (
    QBoxLayout,
    QHBoxLayout,
    QLabel,
    QPlainTextEdit,
    QPushButton,
    QScrollArea,
    QStackedLayout,
    QVBoxLayout,
    QWidget,
)

from desktop import fonts
from desktop.bridge import EngineBridge
from desktop.fit_desk import FitDesk
from desktop.load_desk import LoadDesk
from desktop.model_control import ModelControl
from desktop.models.library import parameters
from desktop.tasks import Tasks
from desktop.theme import Theme
from desktop.views.anatomy import words
from desktop.views.anatomy.legend import PartsLegend
from desktop.views.anatomy.loaded_model import LoadedModel, device_label, look
from desktop.views.anatomy.loaded_wishes import asked_for, wishes_of
from desktop.views.anatomy.measured import MeasuredMemory
from desktop.views.anatomy.picture import LayerPicture
from desktop.views.anatomy.weights import WeightsPanel
from desktop.views.hub.fit_panel import FitPanel
from desktop.views.library.load_wishes import taken, wishes_from
from desktop.views.settings.page import hairline
from desktop.widgets.elided_label import ElidedLabel
from desktop.widgets.term import explain
from engine.anatomy import Anatomy, anatomy, planned_layout
from engine.engine_options import chosen, merged
from engine.errors import EngineError

if TYPE_CHECKING:
    from engine.events import ModelInfo, ModelState
    from engine.fit.plan_records import FitPlan, Wishes

_WIDTH = 1080
_TWO_COLUMNS = 860
_TWO_LINES = 700
_LOADED = "as llama.cpp placed it"
_PLANNED = "as it would be with what is moved below"
_HINT = "Rest the mouse on a part, or go through them with the arrow keys."
_NONE = "No model is loaded. Load one to see its layers and where each of them lies."
_UNKNOWN = "llama.cpp did not say where it placed the layers of this model."


class AnatomyPage(QWidget):
    """Signals:
    message(str, object): say this, with a way back or None.
    models_wanted: the user wants to choose a model.
    """

    message = Signal(str, object)
    models_wanted = Signal()

    def __init__(
        self,
        control: ModelControl,
        bridge: EngineBridge,
        tasks: Tasks,
        fit: FitDesk,
        loads: LoadDesk,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self.setObjectName("anatomy_page")
        self._control, self._tasks, self._fit, self._loads = control, tasks, fit, loads
        self._shown: LoadedModel | None = None
        self._wanted: ModelInfo | None = None
        self._scale = 1.0
        self._make_parts()
        self._build()
        self._wire(bridge)

    # ---- making

    def _make_parts(self) -> None:
        self.title = _label("model_anatomy_title", "title")
        self.facts = _label("model_anatomy_facts", "secondary")
        self.source = ElidedLabel()
        self.source.setObjectName("picture_source")
        self.source.setProperty("role", "label")
        self.source.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self.detail = _label("picture_detail", "small")
        self.summary = _label("picture_summary", "")
        self.detail.setAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignTop)
        self.picture = LayerPicture()
        self.legend = PartsLegend()
        self.weights = WeightsPanel()
        self.measured = MeasuredMemory()
        self.panel = FitPanel(self._fit, "anatomy_fit", with_split=True)
        self.panel.what_if.reset.setText("As it is loaded")
        self.panel.what_if.reset.setToolTip("Drop what was moved here and show what is loaded")
        self.load = QPushButton("Load like this")
        self.load.setObjectName("load_like_this")
        self.load.setProperty("kind", "primary")
        self.load.setToolTip("Load the model again as shown, and keep for it what was moved")
        self.load.hide()
        self.copy = QPushButton("Copy as text")
        self.copy.setObjectName("copy_anatomy")
        self.copy.setToolTip("Copy all that this page shows as plain text")
        self.as_text = QPushButton("Show as text")
        self.as_text.setObjectName("show_anatomy_text")
        self.as_text.setCheckable(True)
        self.as_text.setToolTip("The picture in words, layer by layer")
        self.text = QPlainTextEdit()
        self.text.setObjectName("anatomy_text")
        self.text.setReadOnly(True)
        self.text.setTabChangesFocus(True)
        self.text.setAccessibleName("The picture as text")
        self.text.setToolTip("The picture in words, layer by layer")
        self.text.hide()
        self.empty = _label("anatomy_empty", "secondary")
        self.empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.choose = QPushButton("Choose a model")
        self.choose.setObjectName("anatomy_choose")
        self.choose.setToolTip("Show the models on this computer")
        explain(self.picture, "offload", "")
        explain(self.legend, "weights", "")

    def _build(self) -> None:
        heading = QLabel("Where each part lives")
        heading.setProperty("role", "section")
        explain(heading, "offload")
        top = QHBoxLayout()
        top.setSpacing(12)
        top.addWidget(heading)
        top.addWidget(self.source, 1)
        left = QVBoxLayout()
        left.setSpacing(8)
        left.addLayout(top)
        for part in (self.summary, self.legend, self.detail, self.picture):
            left.addWidget(part)
        left.addStretch(1)
        self._pair = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._pair.setSpacing(36)
        self._pair.addLayout(left, 3)
        self._pair.addWidget(self.weights, 2)
        buttons = QHBoxLayout()
        buttons.setSpacing(8)
        buttons.addWidget(self.copy)
        buttons.addWidget(self.as_text)
        buttons.addStretch(1)
        row = QHBoxLayout()
        row.addWidget(self.load)
        row.addStretch(1)
        self._column = QWidget()
        box = QVBoxLayout(self._column)
        box.setContentsMargins(0, 20, 0, 32)
        box.setSpacing(12)
        box.addWidget(self.title)
        box.addWidget(self.facts)
        box.addLayout(self._pair)
        box.addLayout(buttons)
        box.addWidget(self.text)
        box.addWidget(hairline())
        box.addWidget(self.measured)
        box.addWidget(self.panel)
        box.addLayout(row)
        box.addStretch(1)
        self._stack(self._column)

    def _stack(self, column: QWidget) -> None:
        """The page, scrolled, and what stands there while there is no model."""
        outer = self._outer = QWidget()
        centre = QHBoxLayout(outer)
        centre.setContentsMargins(28, 0, 28, 0)
        centre.addStretch(1)
        centre.addWidget(column, 100)
        centre.addStretch(1)
        self.scroll_area = QScrollArea()
        self.scroll_area.setObjectName("anatomy_scroll")
        self.scroll_area.setWidgetResizable(True)
        self.scroll_area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.scroll_area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.scroll_area.setWidget(outer)
        nothing = QWidget()
        box = QVBoxLayout(nothing)
        box.setContentsMargins(28, 28, 28, 28)
        box.setSpacing(12)
        box.addStretch(1)
        box.addWidget(self.empty)
        box.addWidget(self.choose, 0, Qt.AlignmentFlag.AlignHCenter)
        box.addStretch(2)
        self.stack = QStackedLayout(self)
        self.stack.addWidget(nothing)
        self.stack.addWidget(self.scroll_area)

    def _wire(self, bridge: EngineBridge) -> None:
        bridge.model_state_changed.connect(self._on_state)
        self.choose.clicked.connect(self.models_wanted)
        self.picture.current_changed.connect(lambda said: self.detail.setText(said or _HINT))
        self.picture.row_wanted.connect(self._show_row)
        self.panel.planned.connect(self._on_plan)
        self.panel.wished.connect(lambda _: self._on_wishes())
        self.load.clicked.connect(self.load_like_this)
        self.copy.clicked.connect(self._copy)
        self.as_text.toggled.connect(self.text.setVisible)

    # ---- look

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self._scale = scale
        for part in (self.picture, self.legend, self.weights, self.measured, self.panel):
            part.apply_theme(theme, scale)
        self.text.setFont(fonts.mono_font(scale, -1))
        self.text.setFixedHeight(round(260 * scale))
        self._column.setMaximumWidth(round(_WIDTH * max(1.0, scale)))
        self._arrange()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._arrange()

    def _arrange(self) -> None:
        wide = self.width() >= _TWO_COLUMNS * self._scale
        direction = QBoxLayout.Direction.LeftToRight if wide else QBoxLayout.Direction.TopToBottom
        if self._pair.direction() != direction:
            self._pair.setDirection(direction)
        # of one height, whatever it says: the picture below it may not move under the mouse
        lines = 2 if self.width() >= _TWO_LINES * self._scale else 4
        self.detail.setFixedHeight(lines * self.detail.fontMetrics().lineSpacing() + 4)

    def focus_first(self) -> None:
        (self.picture if self._shown is not None else self.choose).setFocus(Qt.FocusReason.OtherFocusReason)

    # ---- the model

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._on_state(self._control.state)

    def stop(self) -> None:
        """Take nothing up any more."""
        self._wanted = None

    def _on_state(self, state: ModelState) -> None:
        if not self.isVisible():
            return
        if state.status != "ready" or state.model is None:
            self._wanted = self._shown = None
            self._say_nothing("Loading the model…" if state.status == "loading" else _NONE)
            self.choose.setVisible(state.status != "loading")
        elif state.model is not self._wanted:
            self._wanted = state.model
            self._read(state.path, state.model)

    def _say_nothing(self, said: str) -> None:
        self.empty.setText(said)
        self.stack.setCurrentIndex(0)

    def _read(self, path: str, info: ModelInfo) -> None:
        def done(found: LoadedModel | None) -> None:
            if info is self._wanted:
                self._shown = found
                if found is None:
                    self._say_nothing(_UNKNOWN)
                else:
                    self._show(found)

        def failed(error: BaseException) -> None:
            if info is self._wanted:
                self._say_nothing(error.message if isinstance(error, EngineError) else str(error))

        self._tasks.run(lambda: look(path, info), done, failed, owner=self)

    def _show(self, shown: LoadedModel) -> None:
        info = shown.info
        self.title.setText(self._control.name_of(self._control.state))
        facts = (info.quantization, f"{parameters(info.n_params)} parameters", f"{info.n_layer} layers")
        self.facts.setText(" · ".join((*facts, f"architecture {info.architecture}")))
        self.weights.show_anatomy(shown.found)
        self.text.setPlainText(self.plain_text)
        self.measured.show_fit(info.fit, shown.labels)
        self._show_loaded()
        wishes = wishes_of(info)
        self._fit.look()
        self.panel.set_subject(shown.subject, given=(wishes, wishes))
        self.stack.setCurrentIndex(1)

    def _show_loaded(self) -> None:
        shown = self._shown
        if shown is not None:
            self._paint(shown.found, shown.labels, shown.measured, _LOADED)

    def _paint(self, found: Anatomy, labels: dict[str, str], measured: dict[str, int], source: str) -> None:
        self.source.setText(source)
        self.summary.setText(words.summary_words(found, labels))
        self.legend.show_anatomy(found)
        self.picture.show_anatomy(found, labels, measured)

    @property
    def plain_text(self) -> str:
        """What is loaded, in words."""
        shown = self._shown
        if shown is None:
            return ""
        name = f"{self.title.text()} {shown.info.quantization}"
        return words.as_text(name, shown.found, shown.labels, shown.measured)

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(self.plain_text)
        self.message.emit("Copied", None)

    def _show_row(self, top: int, bottom: int) -> None:
        place = self.picture.mapTo(self._outer, self.picture.rect().topLeft())
        self.scroll_area.ensureVisible(place.x(), place.y() + (top + bottom) // 2, 0, 60)

    # ---- what would be otherwise

    def _on_wishes(self) -> None:
        moved = self.panel.what_if.has_wishes
        self.load.setVisible(moved)
        if not moved:
            self._show_loaded()

    def _on_plan(self, plan: FitPlan) -> None:
        shown, machine = self._shown, self._fit.machine
        if shown is None or machine is None or not self.panel.what_if.has_wishes:
            return
        subject = shown.subject
        labels = {d.name: device_label(d.name, d.description, d.backend) for d in machine.devices}

        def work() -> Anatomy:
            from engine.fit.placement import prepare

            n_layers = len(prepare(subject.header, subject.more).shape.layers)
            layout = planned_layout(plan, machine.devices, n_layers)
            return anatomy(subject.header, layout, subject.more, subject.quantization)

        def done(found: Anatomy) -> None:
            if shown is self._shown and plan is self.panel.plan and self.panel.what_if.has_wishes:
                self._paint(found, labels, {}, _PLANNED)

        self._fit.run(work, done, owner=self)

    def load_like_this(self) -> None:
        """Load the model with all that is shown, and keep for it what was moved."""
        shown = self._shown
        if shown is None:
            return
        wishes: Wishes = self.panel.what_if.wishes
        path = shown.subject.path
        own = taken(self._loads.own(path), wishes_of(shown.info), wishes, wishes_from(merged(self._loads.common)))
        self._loads.keep(path, own)
        self._control.load(path, **{**chosen(own), **asked_for(wishes)})


def _label(name: str, role: str) -> QLabel:
    label = QLabel()
    label.setObjectName(name)
    label.setProperty("role", role)
    label.setWordWrap(True)
    label.setTextFormat(Qt.TextFormat.PlainText)
    return label
