"""Controls and bars together: every move is answered by formula at once, and by llama.cpp when the hand rests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from PySide6.QtCore import QTimer, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QWidget

from desktop.fit_desk import FitDesk, Subject
from desktop.theme import Theme
from desktop.views.hub.what_if import WhatIf
from desktop.views.hub.where_it_goes import WhereItGoes
from engine.errors import EngineError

if TYPE_CHECKING:
    from engine.fit.plan_records import FitPlan, Wishes
    from engine.models.gguf_header import GgufHeader

_REST_MS = 450
_TWO_COLUMNS = 620
ESTIMATE = "estimate by formula"
COUNTED = "memory is llama.cpp's own count"
ASKING = "estimate by formula, llama.cpp is counting"


class FitPanel(QWidget):
    """One model on this machine.

    Signals:
        planned(FitPlan): the plan on screen is another now. wished(Wishes): the user has moved a control.
    """

    planned = Signal(object)
    wished = Signal(object)

    def __init__(
        self,
        desk: FitDesk,
        name: str,
        *,
        with_split: bool = False,
        usual_context: int = 0,
        parent: QWidget | None = None,
    ) -> None:
        """`usual_context`: tokens that are asked for while the user has not chosen; 0: the plan decides."""
        super().__init__(parent)
        self._usual_context = usual_context
        self.setObjectName(name)
        self._desk = desk
        self._name = name
        self._scale = 1.0
        self._subject: Subject | None = None
        self._shape: tuple[int, int, int] = (0, 1, 0)
        self._given: tuple[Wishes, Wishes] | None = None
        self._plan: FitPlan | None = None
        self.what_if = WhatIf(with_split=with_split)
        self.where = WhereItGoes()
        self._box = QBoxLayout(QBoxLayout.Direction.LeftToRight, self)
        self._box.setContentsMargins(0, 0, 0, 0)
        self._box.setSpacing(36)
        self._box.addWidget(self.what_if, 3)
        self._box.addWidget(self.where, 2)
        self._rest = QTimer(self)
        self._rest.setSingleShot(True)
        self._rest.setInterval(_REST_MS)
        self._rest.timeout.connect(self._ask_llama)
        self.what_if.changed.connect(self._on_wishes)
        desk.machine_changed.connect(self._on_machine)

    @property
    def plan(self) -> FitPlan | None:
        return self._plan

    @property
    def wishes(self) -> Wishes:
        """What the user has chosen, and the usual context where none was."""
        wishes, trained = self.what_if.wishes, self._shape[0]
        if wishes.n_ctx is None and self._usual_context:
            return replace(wishes, n_ctx=min(self._usual_context, trained or self._usual_context))
        return wishes

    @property
    def subject(self) -> Subject | None:
        return self._subject

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self._scale = scale
        self.what_if.apply_scale(scale)
        self.where.apply_theme(theme, scale)
        self._arrange()

    def set_subject(
        self,
        subject: Subject | None,
        *,
        keep_wishes: bool = False,
        given: tuple[Wishes, Wishes] | None = None,
    ) -> None:
        """Another model, or another quantization of the same one (`keep_wishes`).

        Args:
            given: wishes that are there from the start, and those that hold where nothing is chosen.
        """
        self._given = given
        self._rest.stop()
        self._desk.forget(self._name)
        self._subject = subject
        self._plan = None
        self.setEnabled(subject is not None)
        if subject is None:
            return
        if not keep_wishes:
            self._shape = (0, 1, 0)
            self._desk.run(lambda: shape_of(subject), lambda shape: self._on_shape(subject, shape), owner=self)
        else:
            self._ask()

    def _on_shape(self, subject: Subject, shape: tuple[int, int, int]) -> None:
        if subject is self._subject:
            self._shape = shape
            self._set_controls()
            self._ask()

    def _set_controls(self) -> None:
        machine = self._desk.machine
        names = [device.name for device in machine.devices if device.kind != "cpu"] if machine else []
        wishes, default = self._given or (None, None)
        self.what_if.set_model(*self._shape, names, default)
        if wishes is not None:
            self.what_if.set_wishes(wishes)

    def _on_machine(self) -> None:
        if self._subject is not None:
            wishes, moved = self.what_if.wishes, self.what_if.has_wishes
            self._set_controls()  # the devices may be others now
            if moved:
                self.what_if.set_wishes(wishes)
            self._ask()

    def _on_wishes(self, wishes: Wishes) -> None:
        self.wished.emit(wishes)
        self._ask()

    def set_wishes(self, wishes: Wishes) -> None:
        """Wishes that were made elsewhere."""
        if self._given is not None:
            self._given = (wishes, self._given[1])
        self.what_if.set_wishes(wishes)
        self._ask()

    def set_adapters(self, adapters: Sequence[GgufHeader]) -> None:
        """Count these with the model."""
        if self._subject is not None:
            self._subject = replace(self._subject, adapters=tuple(adapters))
            self._ask()

    def _ask(self) -> None:
        if self._subject is not None:
            self._rest.stop()
            self._desk.plan(self._name, self._subject, self.wishes, self._on_plan, self._on_failed)

    def _on_plan(self, plan: FitPlan) -> None:
        self._show(plan)
        self._rest.start()
        self.what_if.source.setText(ESTIMATE)

    def _ask_llama(self) -> None:
        if self._subject is None or not self.isVisible():
            return
        self.what_if.source.setText(ASKING)
        self._desk.probe(self._name, self._subject, self.wishes, self._on_counted, self._on_not_counted)

    def _on_counted(self, plan: FitPlan) -> None:
        if self._rest.isActive():
            return  # the hand moved on while llama.cpp counted
        self._show(plan)
        self.what_if.source.setText(COUNTED if plan.source == "probe" else ESTIMATE)

    def _on_not_counted(self, error: BaseException) -> None:
        self.what_if.source.setText(ESTIMATE)
        self.what_if.source.setToolTip(error.message if isinstance(error, EngineError) else str(error))

    def _show(self, plan: FitPlan) -> None:
        self._plan = plan
        self.what_if.show_plan(plan)
        self.where.show_plan(plan)
        self.planned.emit(plan)

    def _on_failed(self, error: BaseException) -> None:
        words = error.message if isinstance(error, EngineError) else str(error)
        self.where.words.setText(words)
        self.where.words.setVisible(True)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._arrange()

    def _arrange(self) -> None:
        wide = self.width() >= _TWO_COLUMNS * self._scale
        direction = QBoxLayout.Direction.LeftToRight if wide else QBoxLayout.Direction.TopToBottom
        if self._box.direction() != direction:
            self._box.setDirection(direction)
            self._box.setSpacing(36 if wide else 20)


def shape_of(subject: Subject) -> tuple[int, int, int]:
    """(trained context, layers with the output layer, layers with experts)."""
    from engine.fit.placement import prepare

    shape = prepare(subject.header, subject.more).shape
    n_layers = len(shape.layers)
    return shape.n_ctx_train, n_layers + 1, n_layers if shape.n_expert else 0
