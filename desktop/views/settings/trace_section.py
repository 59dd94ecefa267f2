"""Traces in the settings: whether they are kept, what they may take and do take, and a way to be rid of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QCheckBox, QHBoxLayout, QLabel, QPushButton, QWidget

from desktop import figures
from desktop.bridge import EngineBridge
from desktop.views.settings.page import Section
from desktop.views.settings.sampling_form import FloatBox
from desktop.widgets.term import explain
from engine.errors import EngineError

if TYPE_CHECKING:
    from engine.service import Engine

#: milliseconds that the button waits for its second press
SURE_MS = 6000
_CLEAR = "Remove all traces"
_WHAT = (
    "What the model read, how each token was chosen and where the time went: the Trace link under an answer shows it. "
    "Traces stay on this computer, beside the chats; when there are too many, the oldest go."
)


class TraceSection(Section):
    """Signals:
    failed(object): a value could not be saved, or the traces could not be read.
    """

    failed = Signal(object)

    def __init__(self, engine: Engine, bridge: EngineBridge) -> None:
        super().__init__("Traces")
        self._engine, self._bridge = engine, bridge
        self._loading = True
        self._n = 0
        declared = type(engine.settings).declared()
        self.box = QCheckBox("Keep a trace of every answer")
        self.box.setObjectName("trace")
        self.box.setAccessibleName(self.box.text())
        explain(self.box, "trace", declared["trace"].doc)
        self.box.toggled.connect(lambda on: self._save(trace=on))
        self.add(self.box)
        self.add(self.note(_WHAT))
        self.cap = FloatBox()
        self.cap.setObjectName("trace_cap_mib")
        self.cap.lineEdit().setTextMargins(8, 0, 0, 0)
        self.cap.setRange(1, 100_000)
        self.cap.setDecimals(0)
        self.cap.setSuffix(" MiB")
        self.cap.setKeyboardTracking(False)
        self.cap.valueChanged.connect(lambda value: self._save(trace_cap_mib=value))
        self.row("Most of it on disk", self.cap, declared["trace_cap_mib"].doc)
        self.used = QLabel()
        self.used.setObjectName("trace_used")
        self.used.setProperty("role", "secondary")
        self.clear = QPushButton(_CLEAR)
        self.clear.setObjectName("trace_clear")
        self.clear.setAutoDefault(False)
        self.clear.clicked.connect(self._on_clear)
        holder = QWidget()
        line = QHBoxLayout(holder)
        line.setContentsMargins(0, 0, 0, 0)
        line.setSpacing(12)
        line.addWidget(self.used, 1)
        line.addWidget(self.clear, 0, Qt.AlignmentFlag.AlignRight)
        self.add(holder)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(SURE_MS)
        self._timer.timeout.connect(self._calm)
        self._show_used((0, 0))
        self.load()

    def load(self) -> None:
        """Show the settings as they are."""
        self._loading = True
        self.box.setChecked(self._engine.settings.trace)
        self.cap.setValue(self._engine.settings.trace_cap_mib)
        self._loading = False

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.measure()

    def measure(self) -> None:
        """Ask what the traces take."""
        self._bridge.run(self._engine.traces.usage(), self._show_used, self.failed.emit, owner=self)

    def _show_used(self, found: tuple[int, int]) -> None:
        self._n, n_bytes = found
        if self._n:
            size = figures.size(n_bytes) if n_bytes >= 1024**2 else f"{max(1, round(n_bytes / 1024)):,} KiB"
            self.used.setText(f"{self._n:,} {'trace takes' if self._n == 1 else 'traces take'} {size}")
        else:
            self.used.setText("No traces are kept")
        self._calm()

    # ---- removing

    @property
    def is_sure(self) -> bool:
        """Whether the next press removes them."""
        return self._timer.isActive()

    def _on_clear(self) -> None:
        if not self.is_sure:  # it cannot be undone
            self._timer.start()
            self.clear.setText("Press again to remove")
            self.clear.setToolTip("They cannot be brought back. The chats stay as they are")
            return
        self._calm()
        self.clear.setEnabled(False)
        self.used.setText("Removing the traces…")

        def failed(error: BaseException) -> None:
            self.measure()
            self.failed.emit(error)

        self._bridge.run(self._engine.traces.clear(), lambda _: self.measure(), failed, owner=self)

    def _calm(self) -> None:
        self._timer.stop()
        self.clear.setText(_CLEAR)
        self.clear.setToolTip("Remove the traces of all answers for good. The chats stay as they are")
        self.clear.setEnabled(self._n > 0)

    def _save(self, **values: Any) -> None:
        if self._loading:
            return
        try:
            future = self._engine.change_settings(**values)
        except EngineError as error:
            self.failed.emit(error)
            return
        self._bridge.run(future, None, self.failed.emit, owner=self)
