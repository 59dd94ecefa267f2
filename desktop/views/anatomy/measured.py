"""What the load was expected to take beside what llama.cpp took, a line for each kind of memory in each place."""

from __future__ import annotations

from PySide6.QtWidgets import QLabel, QVBoxLayout, QWidget

from desktop import figures
from desktop.theme import Theme
from desktop.views.anatomy import words
from desktop.views.library.load_panel import error_words
from desktop.widgets.memory_bar import KINDS
from desktop.widgets.plain_table import Column, PlainTable
from desktop.widgets.term import explain
from engine.figures import FitSummary

_KINDS = ("weights", "kv", "compute")
_MOST_ROWS = 12
_WIDTH = 640
_COLUMNS = (
    Column("Place", "A device, or main memory", grows=True),
    Column("Kind", "What the memory is for", least="weights"),
    Column("Predicted", "Worked out before the load", right=True, least="999 MiB"),
    Column("Measured", "llama.cpp's own buffers after it", right=True, least="999 MiB"),
    Column("Error", "Measured over predicted", right=True, least="+0.0 %", first_to_go=1),
)
_MAPPED = "The file is mapped and counts from its first to its last tensor in use, whatever lies between"


class MeasuredMemory(QWidget):
    """Hidden where nothing was predicted."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("measured_memory")
        heading = QLabel("Predicted and measured")
        heading.setProperty("role", "section")
        explain(heading, "measured_memory")
        self.table = PlainTable("measured_rows", "Predicted and measured memory", _COLUMNS, most_rows=_MOST_ROWS)
        self.words = QLabel()
        self.words.setObjectName("measured_words")
        self.words.setProperty("role", "small")
        self.words.setWordWrap(True)
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 8, 0, 0)
        box.setSpacing(6)
        for part in (heading, self.table, self.words):
            box.addWidget(part)
        self.hide()

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self.table.apply_theme(theme, scale)
        self.setMaximumWidth(round(_WIDTH * max(1.0, scale)))

    def show_fit(self, fit: FitSummary | None, labels: dict[str, str]) -> None:
        """The figures of the load; None: it was not planned. labels: names of devices for people."""
        rows, tips = [], []
        for device in fit.devices if fit is not None else ():
            for kind in _KINDS:
                predicted = getattr(device, f"{kind}_bytes")
                measured = getattr(device, f"measured_{kind}_bytes")
                if not predicted and not measured:
                    continue
                known = measured is not None
                mapped = kind == "weights" and device.name == "Host" and known and measured > predicted
                error = _error(measured / predicted - 1) if known and predicted and not mapped else figures.DASH
                rows.append(
                    (
                        words.place_name(device.name, labels),
                        KINDS[kind].words,
                        words.size(predicted),
                        words.size(measured) if known else figures.DASH,
                        error,
                    )
                )
                why = _MAPPED if mapped else ""
                tips.append(("", KINDS[kind].tip, f"{predicted:,} bytes", why or f"{measured or 0:,} bytes", why))
        self.table.set_rows(rows, tips)
        said = error_words(fit) if fit is not None else ""
        self.words.setText(said)
        self.words.setVisible(bool(said))
        self.setVisible(bool(rows))


def _error(off: float) -> str:
    return "0.0 %" if abs(off) < 0.0005 else f"{off * 100:+.1f} %"
