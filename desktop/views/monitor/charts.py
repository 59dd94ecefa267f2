"""Plots of the full page: speed over time and how long decode steps took, drawn with pyqtgraph once it is there."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QStackedLayout, QWidget

from desktop import figures, fonts, plots
from desktop.tasks import Tasks
from desktop.theme import LIGHT, Theme
from desktop.views.monitor.runs import StepTimes

_HEIGHT = 170
#: points farther apart are not joined; a plot shows so many seconds, at least and at most
_BREAK_S, _LEAST_S, _SPAN_S = 2.0, 60.0, 300.0


class Chart(QWidget):
    """A plot, with words until the library is there; it is loaded when the chart is first shown."""

    def __init__(self, name: str, title: str, left: str, bottom: str, tasks: Tasks) -> None:
        super().__init__()
        self.setObjectName(name)
        self.setAccessibleName(title)
        self._tasks, self._labels = tasks, (left, bottom)
        self._theme, self._scale = LIGHT, 1.0
        self._asked = False
        self.pg: Any = None
        self.plot: Any = None
        self.waiting = QLabel("Preparing the chart…")
        self.waiting.setProperty("role", "label")
        self.waiting.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._layout = QStackedLayout(self)
        self._layout.addWidget(self.waiting)
        self.setFixedHeight(_HEIGHT)

    def ask_library(self) -> None:
        if not self._asked:
            self._asked = True
            plots.load(self._tasks, self._on_library, self)

    def _on_library(self, library: ModuleType) -> None:
        self.pg = library
        self.pg.setConfigOptions(antialias=True)
        self.plot = self.pg.PlotWidget(self)
        self.plot.setObjectName(f"{self.objectName()}_plot")
        self.plot.setAccessibleName(self.accessibleName())
        self.plot.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.plot.setMouseEnabled(x=False, y=False)
        self.plot.setMenuEnabled(False)
        self.plot.hideButtons()
        self.plot.wheelEvent = lambda event: event.ignore()  # the page scrolls
        self._layout.addWidget(self.plot)
        self._layout.setCurrentWidget(self.plot)
        self.apply_theme(self._theme, self._scale)
        self._made()
        self.draw()

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self._theme, self._scale = theme, scale
        self.setFixedHeight(round(_HEIGHT * max(1.0, scale)))
        if self.plot is None:
            return
        item = self.plot.getPlotItem()
        self.plot.setBackground(theme.paper)
        font = fonts.label_font(scale)
        label = {"color": theme.ink3, "font-size": f"{font.pixelSize()}px"}
        for name, words in zip(("left", "bottom"), self._labels, strict=True):
            axis = item.getAxis(name)
            axis.setPen(self.pg.mkPen(theme.hairline))
            axis.setTextPen(self.pg.mkPen(theme.ink3))
            axis.setTickFont(font)
            axis.setStyle(tickLength=-4, tickTextOffset=6)
            axis.enableAutoSIPrefix(False)
            item.setLabel(name, words, **label)
        item.showGrid(x=False, y=True, alpha=0.12)
        self._colours()

    def _made(self) -> None:
        """The plot is there: add what it is to show."""

    def _colours(self) -> None:
        """The theme is another one."""

    def draw(self) -> None:
        """Show what is known, if the plot is there and can be seen."""


def plottable(value: float | None) -> float | None:
    """A rate that can be drawn; what is none leaves a gap."""
    return value if value is not None and math.isfinite(value) and value >= 0 else None


class SpeedChart(Chart):
    """Tokens a second of the last minutes.

    Args:
        marks: each point is drawn, not only the line through them.
    """

    def __init__(self, name: str, title: str, token: str, tasks: Tasks, *, marks: bool = False) -> None:
        super().__init__(name, title, "tokens a second", "seconds ago", tasks)
        self._token, self._marks = token, marks
        self._points: Sequence[tuple[float, float | None]] = ()
        self._now_s = 0.0
        self._curve: Any = None

    def show_points(self, points: Iterable[tuple[float, float | None]], now_s: float) -> None:
        self.ask_library()
        self._points = [(when, plottable(value)) for when, value in points if now_s - when <= _SPAN_S]
        self._now_s = now_s
        rates = [value for _, value in self._points if value is not None]
        words = "Nothing in the last five minutes while this could be seen"
        if rates:
            low, high, last = figures.rate(min(rates)), figures.rate(max(rates)), figures.rate(rates[-1])
            words = f"Between {low} and {high} tokens a second, at last {last}"
        self.setAccessibleDescription(words)
        self.setToolTip(words)
        self.draw()

    def _made(self) -> None:
        item = self.plot.getPlotItem()
        self._curve = self.pg.PlotDataItem(symbol="o" if self._marks else None, symbolSize=5)
        item.addItem(self._curve)
        self._colours()

    def _colours(self) -> None:
        if self._curve is None:
            return
        colour = self._theme.color(self._token)
        self._curve.setPen(self.pg.mkPen(colour, width=2))
        if self._marks:
            self._curve.setSymbolBrush(self.pg.mkBrush(colour))
            self._curve.setSymbolPen(self.pg.mkPen(colour))

    def draw(self) -> None:
        if self.plot is None or not self.isVisible():
            return
        xs, ys, joined = self._line()
        self._curve.setData(xs, ys, connect=joined)
        item = self.plot.getPlotItem()
        first = min(-_LEAST_S, float(xs.min())) if len(xs) else -_LEAST_S
        item.setXRange(first, 0, padding=0.01)
        item.setYRange(0, (float(ys.max()) if len(ys) else 1.0) * 1.15, padding=0)

    def _line(self) -> tuple[Any, Any, Any]:
        """(x, y, whether each is joined with the next): what was not measured is not drawn over."""
        import numpy as np

        xs: list[float] = []
        ys: list[float] = []
        joined: list[int] = []
        before: float | None = None
        for when, value in self._points:
            if value is None:
                before = None
                continue
            if xs:
                joined.append(int(before is not None and when - before <= _BREAK_S))
            xs.append(when - self._now_s)
            ys.append(value)
            before = when
        return np.array(xs, float), np.array(ys, float), np.array([*joined, 0][: len(xs)], np.int32)


class StepChart(Chart):
    """How many decode steps took how long."""

    def __init__(self, tasks: Tasks) -> None:
        super().__init__("step_chart", "How long decode steps took", "steps", "milliseconds", tasks)
        self._found: StepTimes | None = None
        self._bars: Any = None

    def show_steps(self, found: StepTimes | None) -> None:
        self.ask_library()
        if found == self._found:
            return
        self._found = found
        words = "No step has been timed yet"
        if found is not None:
            words = f"{found.n:,} steps: median {found.median * 1000:.1f} ms, 95 of 100 under {found.p95 * 1000:.1f} ms"
        self.setAccessibleDescription(words)
        self.setToolTip(words)
        self.draw()

    def _made(self) -> None:
        self._bars = self.pg.BarGraphItem(x=[], height=[], width=1)
        self.plot.getPlotItem().addItem(self._bars)

    def _colours(self) -> None:
        if self._bars is not None:
            colour = self._theme.color("accent")
            self._bars.setOpts(brush=self.pg.mkBrush(colour), pen=self.pg.mkPen(self._theme.color("paper")))

    def draw(self) -> None:
        if self.plot is None or not self.isVisible() or self._bars is None:
            return
        found, item = self._found, self.plot.getPlotItem()
        if found is None:
            self._bars.setOpts(x=[], height=[], width=1)
            return
        width = (found.edges[1] - found.edges[0]) * 1000
        self._bars.setOpts(
            x=[(edge * 1000) + width / 2 for edge in found.edges[:-1]], height=list(found.counts), width=width
        )
        self._colours()
        item.setXRange(found.edges[0] * 1000, found.edges[-1] * 1000, padding=0.03)
        item.setYRange(0, max(found.counts) * 1.1, padding=0)
