"""Measuring this machine for the speed estimates: a button, what is going on, and the result in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from desktop.bridge import EngineBridge
from desktop.widgets.term import explain
from engine.errors import EngineError

if TYPE_CHECKING:
    from engine.fit.calibrate import Calibration
    from engine.service import Engine

_FIRST, _AGAIN = "Measure this machine (20 s)", "Measure again (20 s)"
_UNMEASURED = "Speeds of models are estimates: this machine was not measured yet."
_MEASURED = "Speeds of models are corrected by what was measured on this machine."


def result_words(found: Calibration) -> str:
    """What a calibration found, in a few sentences."""
    words = []
    if "Host" in found.bandwidths:
        words.append(f"The memory is read at {found.bandwidths['Host'] / 1e9:.3g} GB a second.")
    for place, tps in found.speeds.items():
        where = "the processor" if place == "Host" else place.replace("+Host", " with the processor")
        words.append(f"The starter model writes {tps:.3g} tokens a second on {where}.")
    return " ".join((*words, *found.problems))


class SpeedCheck(QWidget):
    """Measures when its button is pressed, never by itself. All work is done on the engine's threads."""

    def __init__(self, engine: Engine, bridge: EngineBridge) -> None:
        super().__init__()
        self._engine = engine
        self._bridge = bridge
        self._busy = False
        self.setObjectName("speed_check")
        self.words = QLabel()
        self.words.setObjectName("speed_check_words")
        self.words.setProperty("role", "label")
        self.words.setWordWrap(True)
        self.words.setTextFormat(Qt.TextFormat.PlainText)
        self.button = QPushButton(_FIRST)
        self.button.setObjectName("measure_machine")
        tip = "Reads memory, tries every quantization and writes short answers with the starter model, on all cores"
        explain(self.button, "memory_bandwidth", tip)
        self.button.clicked.connect(self.measure)
        row = QHBoxLayout()
        row.addWidget(self.button)
        row.addStretch(1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 4, 0, 0)
        layout.setSpacing(6)
        layout.addWidget(self.words)
        layout.addLayout(row)

    def load(self) -> None:
        """Show whether this machine was measured; a result on screen stays until the page is opened anew."""
        if self._busy:
            return
        future = self._engine.is_calibrated()
        self._bridge.run(future, self._show_state, lambda error: None, owner=self)

    def _show_state(self, calibrated: bool) -> None:
        if not self._busy:
            self.words.setText(_MEASURED if calibrated else _UNMEASURED)
            self._name_button(_AGAIN if calibrated else _FIRST)

    def _name_button(self, words: str) -> None:
        self.button.setText(words)
        self.button.setAccessibleName(words)

    def measure(self) -> None:
        """Begin; a second call while it runs does nothing."""
        if self._busy:
            return
        try:
            future = self._engine.calibrate(lambda text: self._bridge.post(lambda: self._on_progress(text)))
        except EngineError as error:
            self.words.setText(f"{error.message}. {error.hint}".strip())
            return
        self._busy = True
        self.button.setEnabled(False)
        self._on_progress("Looking at the devices")
        self._bridge.run(future, self._on_done, self._on_error, owner=self)

    def _on_progress(self, text: str) -> None:
        if self._busy:
            self.words.setText(f"{text}…")

    def _on_done(self, found: Calibration) -> None:
        self._end()
        self.words.setText(result_words(found))
        self._name_button(_AGAIN)

    def _on_error(self, error: BaseException) -> None:
        self._end()
        why = error.message if isinstance(error, EngineError) else "the reason is in the log"
        self.words.setText(f"This machine could not be measured: {why}.")

    def _end(self) -> None:
        self._busy = False
        self.button.setEnabled(True)
