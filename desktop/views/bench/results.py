"""A measurement: its figures as a table, as a chart and as text; and the list of those that are kept."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFont, QFontMetrics, QGuiApplication
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from desktop import fonts, icons
from desktop.figures import DASH
from desktop.tasks import Tasks
from desktop.theme import Theme
from desktop.views.bench.chart import BenchChart, by_parallel, over_time
from desktop.widgets.controls import Choice
from desktop.widgets.plain_table import Column, PlainTable
from desktop.widgets.term import explain
from engine.bench_history import BenchResult, BenchRow, Spread, spread_words, table_words, where_words

if TYPE_CHECKING:
    from engine.bench import BenchSample

_TPS = "tokens a second of all answers together"
_COLUMNS = (
    Column("At once", "How many prompts were read, and answers written, at the same time", least="88", term="batching"),
    Column("Prompts", f"Reading prompts in the model process: {_TPS}", right=True, grows=True, term="prefill"),
    Column("Answers", f"Writing answers in the model process: {_TPS}", right=True, grows=True, term="decode"),
    Column(
        "Answers in chats",
        f"Writing answers through protocol and stored chats: {_TPS}",
        right=True,
        grows=True,
        term="tokens_per_second",
    ),
)
_KEPT_COLUMNS = (
    Column("When", "When it was measured", least="28 Nov 2026, 23:59"),
    Column("Model", "Which model", grows=True, least="SmolLM2 135M"),
    Column("Settings", "Tokens of a prompt and of an answer, threads, layers on the GPU", first_to_go=1, grows=True),
    Column("Answers in chats", f"For each number of answers at once: {_TPS}", right=True),
)
_MOST_ROWS, _MOST_KEPT = 16, 8


def figure_words(found: Spread | None) -> str:
    """As "118.2 ± 1 %": half of what lies between the lowest and the highest run."""
    if found is None:
        return DASH
    return f"{found.median:,.1f}" if found.low == found.high else f"{found.median:,.1f} ± {found.width / 2:.0%}"


def settings_words(result: BenchResult) -> str:
    return " · ".join((f"{result.n_prompt} + {result.n_generate} tokens", *where_words(result)))


def when_words(result: BenchResult) -> str:
    return dt.datetime.fromtimestamp(result.time_s).strftime("%d %b %Y, %H:%M").lstrip("0")


def rows_so_far(samples: Sequence[BenchSample]) -> list[BenchRow]:
    """Rows of a measurement that is still going on."""
    from engine.bench import spread

    found = []
    for parallel in dict.fromkeys(sample.parallel for sample in samples):
        mine = [sample for sample in samples if sample.parallel == parallel]
        chats = [s.session_decode_tps for s in mine if s.session_decode_tps is not None]
        prefill, decode = spread([s.prefill_tps for s in mine]), spread([s.decode_tps for s in mine])
        found.append(BenchRow(parallel, prefill, decode, spread(chats) if chats else None))
    return found


class ResultPanel(QWidget):
    """Signals:
    remove_requested(object): forget this result.
    """

    remove_requested = Signal(object)

    def __init__(self, tasks: Tasks, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("bench_result")
        self.result: BenchResult | None = None
        self._same: list[BenchResult] = []
        self.title = QLabel()
        self.title.setObjectName("bench_title")
        self.title.setProperty("role", "section")
        self.facts = QLabel()
        self.facts.setObjectName("bench_facts")
        self.facts.setProperty("role", "label")
        for label in (self.title, self.facts):
            label.setWordWrap(True)
            label.setTextFormat(Qt.TextFormat.PlainText)
            label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.table = PlainTable("bench_table", "Tokens a second by answers at once", _COLUMNS, most_rows=_MOST_ROWS)
        self.views = Choice(
            "bench_view_by",
            "What the chart shows",
            "This measurement, or all that are kept of the same model with the same settings",
            (("parallel", "By answers at once"), ("time", "Over time")),
        )
        self.views.set_value("parallel")
        self.views.chosen.connect(lambda _: self._show_chart())
        self.chart = BenchChart(tasks)
        explain(self.table, "benchmark", "")
        explain(self.chart, "tokens_per_second", "")
        self.copy = self._button("bench_copy", "Copy as text", "Copy the table as plain text", self._copy)
        self.remove = self._button("bench_remove", "Remove", "Forget this measurement; it can be undone", self._remove)
        row = QHBoxLayout()
        row.setSpacing(8)
        row.addWidget(self.copy)
        row.addWidget(self.remove)
        row.addStretch(1)
        choice = QHBoxLayout()
        choice.addWidget(self.views)
        choice.addStretch(1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(8)
        layout.addWidget(self.title)
        layout.addWidget(self.facts)
        layout.addWidget(self.table)
        layout.addSpacing(6)
        layout.addLayout(choice)
        layout.addWidget(self.chart)
        layout.addLayout(row)
        self.hide()

    def _button(self, name: str, words: str, tip: str, slot: object) -> QPushButton:
        button = QPushButton(words)
        button.setObjectName(name)
        button.setAccessibleName(words)
        button.setToolTip(tip)
        button.clicked.connect(slot)
        return button

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self.table.apply_theme(theme, scale)
        self.chart.apply_theme(theme, scale)
        bold = fonts.ui_font(scale)
        bold.setWeight(QFont.Weight.DemiBold)
        for value in ("parallel", "time"):  # the chosen one is bold and must not be cut
            button = self.views.button(value)
            button.setMinimumWidth(QFontMetrics(bold).horizontalAdvance(button.text()) + round(28 * scale))
        icons.set_icon(self.copy, "copy", theme)
        icons.set_icon(self.remove, "delete", theme)

    def show_result(self, result: BenchResult, same: Sequence[BenchResult]) -> None:
        """same: all that are kept of this kind, oldest first, this one among them."""
        self.result, self._same = result, list(same)
        self.title.setText(f"{result.model} {result.quantization}".strip())
        runs = "one run" if result.n_runs == 1 else f"medians of {result.n_runs} runs"
        self.facts.setText(
            f"{when_words(result)} · {settings_words(result)} · {runs}, tokens a second of all together\n"
            f"llama.cpp {result.llama_cpp}"
        )
        self._show_rows(result.rows)
        for widget in (self.views, self.chart, self.copy, self.remove):
            widget.show()
        self.views.button("time").setEnabled(len(self._same) > 1)
        if len(self._same) < 2:
            self.views.set_value("parallel")
        self._show_chart()
        self.show()

    def show_samples(self, name: str, samples: Sequence[BenchSample]) -> None:
        """What a measurement that goes on has so far."""
        self.result = None
        self.title.setText(name)
        self.facts.setText("Being measured; tokens a second of all together.")
        self._show_rows(rows_so_far(samples))
        for widget in (self.views, self.chart, self.copy, self.remove):
            widget.hide()
        self.show()

    def _show_rows(self, rows: Sequence[BenchRow]) -> None:
        cells = [
            (str(row.parallel), figure_words(row.prefill), figure_words(row.decode), figure_words(row.session))
            for row in rows
        ]
        tips = [("", *(_limits(found) for found in (row.prefill, row.decode, row.session))) for row in rows]
        self.table.set_rows(cells, tips)

    def _show_chart(self) -> None:
        if self.result is None:
            return
        if self.views.value == "time" and len(self._same) > 1:
            self.chart.show_picture(over_time(self._same))
            return
        older = [one for one in self._same if one.time_s < self.result.time_s]
        self.chart.show_picture(by_parallel(self.result, older[-1] if older else None))

    def _copy(self) -> None:
        if self.result is not None:
            QGuiApplication.clipboard().setText(table_words(self.result))

    def _remove(self) -> None:
        if self.result is not None:
            self.remove_requested.emit(self.result)


def _limits(found: Spread | None) -> str:
    if found is None:
        return "They came too fast to tell"
    return "" if found.low == found.high else f"{spread_words(found)}: the median, the lowest and the highest run"


class KeptResults(QWidget):
    """The measurements of this profile, newest first.

    Signals:
        chosen(object): show this one.
    """

    chosen = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("bench_history")
        self.results: list[BenchResult] = []
        heading = QLabel("Earlier measurements")
        heading.setProperty("role", "section")
        self.table = PlainTable("bench_kept", "Measurements that are kept", _KEPT_COLUMNS, most_rows=_MOST_KEPT)
        self.table.row_chosen.connect(lambda place: self.chosen.emit(self.results[place]))
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(8)
        layout.addWidget(heading)
        layout.addWidget(self.table)
        self.hide()

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self.table.apply_theme(theme, scale)

    def show_results(self, results: Sequence[BenchResult]) -> None:
        """results: oldest first."""
        self.results = list(reversed(results))
        rows = [
            (when_words(one), f"{one.model} {one.quantization}".strip(), settings_words(one), _in_short(one))
            for one in self.results
        ]
        tips = [(f"llama.cpp {one.llama_cpp}", one.path, settings_words(one), _in_words(one)) for one in self.results]
        self.table.set_rows(rows, tips)
        self.setVisible(bool(rows))

    def choose(self, result: BenchResult) -> None:
        if result in self.results:
            self.table.choose(self.results.index(result))

    def same_as(self, result: BenchResult) -> list[BenchResult]:
        """All of its kind, oldest first."""
        return [one for one in reversed(self.results) if one.key == result.key]


def _in_short(result: BenchResult) -> str:
    return " · ".join(f"{(row.session or row.decode).median:.0f}" for row in result.rows)


def _in_words(result: BenchResult) -> str:
    return ", ".join(f"{row.parallel} at once: {(row.session or row.decode).median:.1f}" for row in result.rows)
