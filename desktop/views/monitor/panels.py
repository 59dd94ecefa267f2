"""Sections of the monitor: speed, KV cache, memory, machine. The dock and the full page are made of the same ones."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QLabel, QVBoxLayout, QWidget

from desktop import figures
from desktop.theme import LIGHT, Theme
from desktop.views.monitor import lines, machine_lines
from desktop.views.monitor.cache_map import CacheLegend, CacheMap, runs_of
from desktop.views.monitor.feed import MonitorFeed
from desktop.views.monitor.places import Place, places_of
from desktop.views.monitor.rows import Rows
from desktop.views.monitor.sparkline import Sparkline
from desktop.widgets.figure_label import FigureLabel
from desktop.widgets.memory_bar import MemoryBar, MemoryLegend, Part, gib
from desktop.widgets.term import explain

_KINDS = ("weights", "kv", "compute", "other")


def _column(widget: QWidget) -> QVBoxLayout:
    box = QVBoxLayout(widget)
    box.setContentsMargins(0, 0, 0, 0)
    box.setSpacing(6)
    return box


class SpeedPanel(QWidget):
    """How fast it writes now, or the last answer was written; the way to the first token."""

    def __init__(self, *, full: bool) -> None:
        super().__init__()
        self.setObjectName("speed_panel")
        self._full = full
        self.head = Rows("speed_head", "Speed")
        self.figure = FigureLabel()
        self.figure.setObjectName("monitor_rate")
        self.figure.setProperty("role", "figure")
        self.unit = QLabel("tok/s decode")
        self.unit.setProperty("role", "label")
        self.unit.setContentsMargins(0, 0, 0, 4)  # on the line of the figure
        for part in (self.figure, self.unit):
            explain(part, "tokens_per_second")
        self.spark = Sparkline("speed_line", "Decode speed of the last minutes", "tok/s")
        explain(self.spark, "tokens_per_second", "")
        self.rows = Rows("speed_rows", "Figures of the answer")
        big = QHBoxLayout()
        big.setSpacing(8)
        big.addWidget(self.figure, 0, Qt.AlignmentFlag.AlignBottom)
        big.addWidget(self.unit, 0, Qt.AlignmentFlag.AlignBottom)
        big.addStretch(1)
        box = _column(self)
        box.addWidget(self.head)
        box.addLayout(big)
        if not full:
            box.addWidget(self.spark)
        box.addWidget(self.rows)

    def apply_theme(self, theme: Theme, scale: float) -> None:
        for part in (self.head, self.spark, self.rows):
            part.apply_theme(theme, scale)

    def show_feed(self, feed: MonitorFeed) -> None:
        rate, state = lines.main_rate(feed)
        self.head.set_rows([lines.speed_head(feed, state)])
        self.figure.setText(figures.rate(rate))
        self.figure.setAccessibleName(f"{figures.rate(rate)} tokens per second, {state}")
        if not self._full:
            self.spark.set_points(list(feed.speeds)[-600:])
        self.rows.set_rows(lines.speed_rows(feed, full=self._full))


class CachePanel(QWidget):
    """Who holds what of the KV cache.

    Args:
        titles: gives the names of chats by their ids.
    """

    def __init__(self, titles: Callable[[], dict[int, str]], *, full: bool) -> None:
        super().__init__()
        self.setObjectName("cache_panel")
        self._titles, self._full = titles, full
        self.head = Rows("cache_head", "KV cache")
        self.map = CacheMap(10 if full else 6)
        explain(self.map, "kv_cell", "")
        self.legend = CacheLegend()
        self.rows = Rows("cache_rows", "Figures of the KV cache")
        box = _column(self)
        for part in (self.head, self.map, self.legend, self.rows):
            box.addWidget(part)

    def apply_theme(self, theme: Theme, scale: float) -> None:
        for part in (self.head, self.map, self.legend, self.rows):
            part.apply_theme(theme, scale)

    def show_feed(self, feed: MonitorFeed) -> None:
        self.head.set_rows([lines.cache_head(feed)])
        kv = feed.kv if feed.model is not None else None
        runs = runs_of(kv, feed.on_screen(), self._titles()) if kv is not None else []
        for part in (self.map, self.legend):
            part.setVisible(bool(runs))
        self.map.set_runs(runs)
        self.legend.set_runs(runs)
        self.rows.set_rows(lines.cache_rows(feed, full=self._full))


class _PlaceBars(QWidget):
    """One memory: its name, the predicted bar, the measured bar."""

    def __init__(self) -> None:
        super().__init__()
        self.head = Rows("place_head", "Memory")
        self.predicted = Rows("predicted_caption", "Predicted")
        self.predicted_bar = MemoryBar(height=14)
        self.measured = Rows("measured_caption", "Measured")
        self.measured_bar = MemoryBar(height=14)
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 4)
        box.setSpacing(3)
        for part in (self.head, self.predicted, self.predicted_bar, self.measured, self.measured_bar):
            box.addWidget(part)

    def apply_theme(self, theme: Theme, scale: float) -> None:
        for rows in (self.head, self.predicted, self.measured):
            rows.apply_theme(theme, scale)
        for bar in (self.predicted_bar, self.measured_bar):
            bar.apply_theme(theme)

    def show_place(self, place: Place) -> None:
        self.head.set_rows([lines.place_head(place)])
        self.predicted.set_rows([lines.predicted_caption(place)])
        self.measured.set_rows([lines.measured_caption(place)])
        for rows, bar, parts, words in (
            (self.predicted, self.predicted_bar, place.predicted, "Predicted"),
            (self.measured, self.measured_bar, place.measured, "Measured"),
        ):
            rows.setVisible(bool(parts))
            bar.setVisible(bool(parts))
            bar.setAccessibleName(f"{words} memory of {place.name}")
            bar.set_parts([Part(kind, n) for kind, n in parts], place.total_bytes)
        self.predicted.setVisible(bool(place.predicted))
        self.measured.setVisible(True)


class MemoryPanel(QWidget):
    """Devices and main memory, predicted beside measured."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("memory_panel")
        self._theme, self._scale = LIGHT, 1.0
        self.bars: list[_PlaceBars] = []
        self.places: list[Place] = []
        self.head = Rows("memory_head", "Memory")
        self.legend = MemoryLegend()
        explain(self.legend, "measured_memory", "")
        self._box = QVBoxLayout()
        self._box.setSpacing(4)
        box = _column(self)
        box.addWidget(self.head)
        box.addLayout(self._box)
        box.addWidget(self.legend)

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self._theme, self._scale = theme, scale
        self.head.apply_theme(theme, scale)
        self.legend.apply_theme(theme, scale)
        for bars in self.bars:
            bars.apply_theme(theme, scale)

    def show_feed(self, feed: MonitorFeed) -> None:
        self.places = places_of(feed.model, feed.sample, feed.sample_age_s)
        self.head.set_rows([lines.memory_head(feed, self.places)])
        while len(self.bars) < len(self.places):
            bar = _PlaceBars()
            bar.apply_theme(self._theme, self._scale)
            self.bars.append(bar)
            self._box.addWidget(bar)
        for number, bar in enumerate(self.bars):
            bar.setVisible(number < len(self.places))
            if number < len(self.places):
                bar.show_place(self.places[number])
        sums = {kind: [dict(place.measured).get(kind, 0) for place in self.places] for kind in _KINDS}
        entries = [(kind, " + ".join(gib(n) for n in each)) for kind, each in sums.items() if any(each)]
        self.legend.setVisible(any(place.predicted for place in self.places))
        self.legend.set_entries([(kind, f"{words} GiB") for kind, words in entries])


class MachinePanel(QWidget):
    """Processes, processor and devices."""

    def __init__(self, *, full: bool) -> None:
        super().__init__()
        self.setObjectName("machine_panel")
        self._full = full
        self.rows = Rows("machine_rows", "This computer")
        box = _column(self)
        box.addWidget(self.rows)

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self.rows.apply_theme(theme, scale)

    def show_feed(self, feed: MonitorFeed) -> None:
        self.rows.set_rows(machine_lines.machine_rows(feed, full=self._full))
