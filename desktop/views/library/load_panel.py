"""How a model on this computer is loaded: the same controls as before a download, then predicted beside measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtWidgets import QGridLayout, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from desktop import figures
from desktop.fit_desk import FitDesk, Subject, read_subject
from desktop.load_desk import LoadDesk
from desktop.theme import Theme
from desktop.views.hub.fit_panel import FitPanel
from desktop.views.library.adapters_list import AdaptersList
from desktop.views.library.advanced import Advanced
from desktop.views.library.load_wishes import taken, wishes_from
from desktop.widgets.memory_bar import gib
from desktop.widgets.term import explain
from engine.engine_options import Adapter, EngineOptions, chosen, merged
from engine.errors import EngineError

if TYPE_CHECKING:
    from engine.events import ModelState
    from engine.figures import DeviceFigures, FitSummary
    from engine.fit.plan_records import Wishes
    from engine.models.adapter import AdapterFile
    from engine.models.gguf_header import GgufHeader

#: a moving slider is followed by the loaded model this much later
_RESCALE_MS = 150


class LoadPanel(QWidget):
    """What is chosen here is kept for the model when it is loaded.

    Signals:
        load_requested(str, dict): load this file with these options. unload_requested.
    """

    load_requested = Signal(str, object)
    unload_requested = Signal()

    def __init__(self, fit: FitDesk, loads: LoadDesk, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("load_panel")
        self._fit, self._loads = fit, loads
        self._path = ""
        self._number = 0
        self._state: ModelState | None = None
        self._subject: Subject | None = None
        self._found: Sequence[AdapterFile] = ()
        self._own = EngineOptions()
        self._wishes = wishes_from({})
        self.panel = FitPanel(fit, "load_fit", with_split=True)
        self.adapters = AdaptersList()
        self.advanced = Advanced()
        self._make_buttons()
        self.measured = MeasuredTable()
        self._rescale = QTimer(self)
        self._rescale.setSingleShot(True)
        self._rescale.setInterval(_RESCALE_MS)
        row = QHBoxLayout()
        row.setSpacing(8)
        row.addWidget(self.load)
        row.addWidget(self.unload)
        row.addWidget(self.status, 1)
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(14)
        for part in (self.panel, self.adapters, self.advanced):
            box.addWidget(part)
        box.addLayout(row)
        box.addWidget(self.measured)
        self._wire()

    def _make_buttons(self) -> None:
        self.load = QPushButton("Load")
        self.load.setObjectName("load_model")
        self.load.setProperty("kind", "primary")
        self.load.setToolTip("Load this model as shown, and keep that for it; a loaded one is unloaded first")
        self.unload = QPushButton("Unload")
        self.unload.setObjectName("unload_here")
        self.unload.setToolTip("End the model process and free its memory")
        self.status = QLabel()
        self.status.setObjectName("load_status")
        self.status.setProperty("role", "small")
        self.status.setWordWrap(True)
        self.status.setTextFormat(Qt.TextFormat.PlainText)

    def _wire(self) -> None:
        self.load.clicked.connect(self.request_load)
        self.unload.clicked.connect(self.unload_requested)
        self.panel.wished.connect(self._on_wishes)
        self.panel.planned.connect(lambda plan: self.advanced.show_plan(plan, self._loads.cores))
        self.advanced.chosen.connect(self._on_options)
        self.adapters.chosen.connect(self._on_adapters)
        self.adapters.rescaled.connect(self._on_rescaled)
        self.adapters.file_chosen.connect(self.use_adapter)
        self._rescale.timeout.connect(self._send_scales)
        self._loads.cores_changed.connect(lambda: self.advanced.show_plan(self.panel.plan, self._loads.cores))

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self.panel.apply_theme(theme, scale)
        self.adapters.apply_scale(scale)
        self.advanced.apply_theme(theme, scale)

    def set_path(self, path: str, adapters: Sequence[AdapterFile] = ()) -> None:
        """Another model, with the adapters that are there for it; empty: none can be loaded."""
        if path == self._path:
            if list(adapters) != list(self._found):
                self._found = adapters
                self.adapters.show_adapters(adapters, self._own.adapters or ())
            return
        self._path, self._found = path, adapters
        self._number += 1
        number = self._number
        self._own = self._loads.own(path)
        self._subject = None
        self.panel.set_subject(None)
        self.load.setEnabled(False)
        self.show_state(self._state)
        self.adapters.show_adapters(adapters, self._own.adapters or ())
        self.advanced.set_options(self._own, self._loads.common)
        if not path:
            return
        self._loads.look()

        def read(subject: Subject) -> None:
            if number == self._number:
                self._subject = subject
                self._wishes = self._wishes_now()
                self.panel.set_subject(subject, given=(self._wishes, wishes_from(merged(self._loads.common))))
                self.load.setEnabled(True)
                self._count_adapters()

        def failed(error: BaseException) -> None:
            if number == self._number:
                self.status.setText(error.message if isinstance(error, EngineError) else str(error))

        self._fit.run(lambda: read_subject(path), read, failed, owner=self)

    # ---- options

    @property
    def options(self) -> EngineOptions:
        """What is chosen for this model."""
        return self._own

    def _wishes_now(self) -> Wishes:
        return wishes_from(merged(self._own, self._loads.common))

    def _on_wishes(self, wishes: Wishes) -> None:
        self._own = taken(self._own, self._wishes, wishes, wishes_from(merged(self._loads.common)))
        self._wishes = wishes
        self.advanced.set_options(self._own, self._loads.common)

    def _on_options(self, options: EngineOptions) -> None:
        self._own = options
        self._wishes = self._wishes_now()
        self.panel.set_wishes(self._wishes)

    def request_load(self) -> None:
        """Load with what is chosen, and keep that for the model."""
        self.advanced.commit()
        if self._path:
            self._loads.keep(self._path, self._own)
            self.load_requested.emit(self._path, chosen(self._own))

    # ---- adapters

    def use_adapter(self, path: str) -> None:
        """Take this file, if it is an adapter that belongs to the model."""
        subject, number = self._subject, self._number
        if subject is None:
            return

        def look() -> None:
            from engine.models.adapter import check_fits, read_adapter

            check_fits(read_adapter(path), subject.header, subject.more)

        def fits(_: None) -> None:
            used = self._own.adapters or ()
            if number == self._number and path not in {adapter.path for adapter in used}:
                self._set_adapters((*used, Adapter(path)))
                self.adapters.show_adapters(self._found, self._own.adapters or ())
                self._count_adapters()

        def failed(error: BaseException) -> None:
            if number == self._number:
                words = f"{error.message}. {error.hint}" if isinstance(error, EngineError) else str(error)
                self.adapters.say(words.strip(), bad=True)

        self._fit.run(look, fits, failed, owner=self)

    def _set_adapters(self, adapters: tuple[Adapter, ...]) -> None:
        self._own = msgspec.structs.replace(self._own, adapters=adapters or None)

    def _on_adapters(self) -> None:
        self._set_adapters(self.adapters.adapters)
        self._count_adapters()

    def _count_adapters(self) -> None:
        """Have the plan count them; one that cannot be read is said."""
        number, paths = self._number, [adapter.path for adapter in self._own.adapters or ()]

        def look() -> list[GgufHeader]:
            from engine.models.adapter import read_adapter

            return [read_adapter(path) for path in paths]

        def found(headers: list[GgufHeader]) -> None:
            if number == self._number:
                self.panel.set_adapters(headers)

        def failed(error: BaseException) -> None:
            if number == self._number:
                self.adapters.say(error.message if isinstance(error, EngineError) else str(error), bad=True)

        if paths or (self._subject is not None and self.panel.subject is not self._subject):
            self._fit.run(look, found, failed, owner=self)

    def _on_rescaled(self) -> None:
        self._set_adapters(self.adapters.adapters)
        self._rescale.start()

    def _send_scales(self) -> None:
        """A loaded model with the same adapters takes the scales at once."""
        state = self._state
        model = state.model if state is not None and state.path == self._path and state.status == "ready" else None
        used = self._own.adapters or ()
        if model is None or {a.path for a in model.adapters} != {a.path for a in used}:
            return
        self._loads.keep(self._path, self._own)
        self._loads.set_adapters(used, lambda: self.adapters.say("The loaded model has these scales now."))

    def show_state(self, state: ModelState | None) -> None:
        """Take what happens to the loaded model."""
        self._state = state
        mine = state is not None and state.path == self._path and bool(self._path)
        ready = mine and state is not None and state.status == "ready"
        self.unload.setVisible(ready)
        self.load.setText("Load again" if ready else "Load")
        self.measured.setVisible(False)
        words = ""
        if mine and state is not None:
            if state.status == "loading":
                words = "Loading…" if state.fraction is None else f"Loading, {state.fraction:.0%}"
            elif state.status == "failed" and state.error is not None:
                words = f"{state.error.message} {state.error.hint}".strip()
            elif ready and state.model is not None:
                words = f"Loaded in {figures.seconds(state.model.load_s)}, context {state.model.n_ctx:,} tokens."
                if state.model.fit is not None:
                    self.measured.show_fit(state.model.fit)
        self.status.setText(words)


_KINDS = (("weights", "weights"), ("kv", "KV"), ("compute", "compute"))


class MeasuredTable(QWidget):
    """Predicted and measured of each device, side by side, in GiB."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("measured_table")
        self.heading = QLabel("Predicted and measured")
        self.heading.setProperty("role", "section")
        explain(self.heading, "measured_memory")
        self.words = QLabel()
        self.words.setProperty("role", "small")
        self.words.setWordWrap(True)
        self._grid = QGridLayout()
        self._grid.setHorizontalSpacing(24)
        self._grid.setVerticalSpacing(4)
        self._labels: list[QLabel] = []
        holder = QHBoxLayout()
        holder.addLayout(self._grid)
        holder.addStretch(1)
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 8, 0, 0)
        box.setSpacing(6)
        box.addWidget(self.heading)
        box.addLayout(holder)
        box.addWidget(self.words)
        self.hide()

    def show_fit(self, fit: FitSummary) -> None:
        """The figures of a load that has ended."""
        rows = [("GiB", *(f"{words} {what}" for _, words in _KINDS for what in ("predicted", "measured")))]
        devices = [d for d in fit.devices if d.measured_weights_bytes is not None and _any(d)]
        rows += [_row(device) for device in devices]
        self._fill(rows)
        self.words.setText(error_words(fit))
        spoken = [
            f"{row[0]}: " + ", ".join(f"{h} {v}" for h, v in zip(rows[0][1:], row[1:], strict=True)) for row in rows[1:]
        ]
        self.setAccessibleName("Predicted and measured memory in GiB")
        self.setAccessibleDescription("; ".join(spoken))
        self.setVisible(bool(devices))

    def _fill(self, rows: list[tuple[str, ...]]) -> None:
        cells = [(r, c, words) for r, row in enumerate(rows) for c, words in enumerate(row)]
        while len(self._labels) < len(cells):
            self._labels.append(QLabel())
        for label in self._labels:
            self._grid.removeWidget(label)
            label.hide()
        for label, (r, c, words) in zip(self._labels, cells, strict=False):
            label.setText(words)
            role = "label" if r == 0 or c == 0 else ""
            if label.property("role") != role:
                label.setProperty("role", role)
                label.style().unpolish(label)
                label.style().polish(label)
            side = Qt.AlignmentFlag.AlignLeft if c == 0 else Qt.AlignmentFlag.AlignRight
            self._grid.addWidget(label, r, c, side)
            label.show()

    def values(self) -> list[str]:
        """All cells, row by row."""
        return [label.text() for label in self._labels if not label.isHidden()]


def _any(device: DeviceFigures) -> bool:
    return any((device.weights_bytes, device.kv_bytes, device.compute_bytes, device.measured_weights_bytes or 0))


def _row(device: DeviceFigures) -> tuple[str, ...]:
    values = []
    for kind, _ in _KINDS:
        measured = getattr(device, f"measured_{kind}_bytes")
        values += [gib(getattr(device, f"{kind}_bytes")), figures.DASH if measured is None else gib(measured)]
    return ("RAM" if device.name == "Host" else device.name, *values)


def error_words(fit: FitSummary) -> str:
    """How far the prediction was off, in words."""
    parts = []
    if fit.error is not None:
        off = abs(fit.error)
        side = "more" if fit.error > 0 else "less"
        exact = off < 0.0005
        parts.append("As predicted." if exact else f"{off:.1%} {side} than predicted.".replace("%", " %"))
    if fit.stepped_down:
        parts.append("The first try did not fit; this is the second, with less.")
    return " ".join(parts)
