"""A measurement as a chart: by answers at once, or the same settings over time. What it shows is also said in words."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtGui import QFontMetrics, QResizeEvent
from PySide6.QtWidgets import QLabel, QStackedLayout, QWidget

from desktop import fonts, plots
from desktop.tasks import Tasks
from desktop.theme import LIGHT, Theme
from engine.bench_history import BenchResult, BenchRow, Spread

_HEIGHT = 230
#: colour token, line, symbol: told apart without colours too
_LOOKS = (
    ("accent", Qt.PenStyle.SolidLine, "o"),
    ("mem_weights", Qt.PenStyle.DashLine, "s"),
    ("mem_compute", Qt.PenStyle.DotLine, "t"),
    ("mem_kv", Qt.PenStyle.DashDotLine, "d"),
    ("good", Qt.PenStyle.SolidLine, "x"),
    ("ink2", Qt.PenStyle.DashLine, "+"),
)


@dataclass(frozen=True)
class Line:
    """One line. points: (place on the x axis, figures)."""

    name: str
    points: tuple[tuple[int, Spread], ...]


@dataclass(frozen=True)
class Picture:
    """What is drawn. ticks: words of the places on the x axis."""

    title: str
    x_label: str
    ticks: tuple[str, ...]
    lines: tuple[Line, ...]

    @property
    def words(self) -> str:
        """The same as text."""
        said = []
        for line in self.lines:
            figures = ", ".join(f"{self.ticks[place]}: {figure.median:.1f}" for place, figure in line.points)
            said.append(f"{line.name}: {figures}")
        return f"{self.title}. " + ". ".join(said)


def by_parallel(result: BenchResult, before: BenchResult | None) -> Picture:
    """Tokens a second over answers at once: in the model process, through chats, and the time before."""
    rows = result.rows
    places = {row.parallel: place for place, row in enumerate(rows)}
    lines = [Line("in its process", tuple((place, row.decode) for place, row in enumerate(rows)))]
    chats = tuple((place, row.session) for place, row in enumerate(rows) if row.session is not None)
    if chats:
        lines.append(Line("through chats", chats))
    if before is not None:
        old = [(places[row.parallel], row.session or row.decode) for row in before.rows if row.parallel in places]
        if old:
            lines.append(Line("the time before", tuple(old)))
    ticks = tuple(str(row.parallel) for row in rows)
    return Picture("Answers, tokens a second of all together", "answers at once", ticks, tuple(lines))


def over_time(results: Sequence[BenchResult]) -> Picture:
    """Tokens a second through chats over the measurements of one kind, a line for each number of answers at once."""
    found: dict[int, list[tuple[int, Spread]]] = {}
    for place, result in enumerate(results):
        for row in result.rows:
            found.setdefault(row.parallel, []).append((place, _figure(row)))
    lines = tuple(Line(f"{n} at once", tuple(points)) for n, points in sorted(found.items()))
    days = [dt.datetime.fromtimestamp(result.time_s) for result in results]
    same_day = len({day.date() for day in days}) == 1
    ticks = tuple(day.strftime("%H:%M" if same_day else "%d %b") for day in days)
    return Picture("Answers over time, tokens a second of all together", "", ticks, lines)


def _figure(row: BenchRow) -> Spread:
    return row.session or row.decode


class BenchChart(QWidget):
    """The chart; a line of text stands in until the library for it is there."""

    def __init__(self, tasks: Tasks, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("bench_chart")
        self._tasks = tasks
        self._theme, self._scale = LIGHT, 1.0
        self._picture: Picture | None = None
        self._pg: Any = None
        self._asked = False
        self.plot: Any = None
        self.waiting = QLabel("Preparing the chart…")
        self.waiting.setProperty("role", "label")
        self.waiting.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._layout = QStackedLayout(self)
        self._layout.addWidget(self.waiting)
        self.setFixedHeight(_HEIGHT)

    def show_picture(self, picture: Picture | None) -> None:
        self._picture = picture
        words = picture.words if picture is not None else ""
        self.setAccessibleName("Chart")
        self.setAccessibleDescription(words)
        self.setToolTip(words)
        if picture is not None and not self._asked:
            self._asked = True
            plots.load(self._tasks, self._on_library, self)
        self._draw()

    def _on_library(self, library: ModuleType) -> None:
        self._pg = library
        self._pg.setConfigOptions(antialias=True)
        self.plot = self._pg.PlotWidget(self)
        self.plot.setObjectName("bench_plot")
        self.plot.setAccessibleName("Chart")
        self.plot.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.plot.setMouseEnabled(x=False, y=False)
        self.plot.setMenuEnabled(False)
        self.plot.hideButtons()
        self.plot.wheelEvent = lambda event: event.ignore()  # the page scrolls
        self._layout.addWidget(self.plot)
        self._layout.setCurrentWidget(self.plot)
        self._draw()

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self._theme, self._scale = theme, scale
        self.setFixedHeight(round(_HEIGHT * max(1.0, scale)))
        self._draw()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if event.size().width() != event.oldSize().width():
            self._draw()

    # ---- drawing

    def _draw(self) -> None:
        if self.plot is None or self._picture is None:
            return
        item, picture = self.plot.getPlotItem(), self._picture
        item.clear()
        if item.legend is not None:
            item.legend.scene().removeItem(item.legend)
            item.legend = None
        self.plot.setBackground(self._theme.paper)
        self._axes(item, picture)
        font = fonts.label_font(self._scale)
        widest = max((QFontMetrics(font).horizontalAdvance(line.name) for line in picture.lines), default=1)
        columns = max(1, min(len(picture.lines), self.width() * 4 // 5 // (widest + round(44 * self._scale))))
        legend = item.addLegend(offset=(12, 4), colCount=columns, labelTextColor=self._theme.ink2)
        legend.setLabelTextSize(f"{font.pixelSize()}px")
        for number, line in enumerate(picture.lines):
            self._line(item, line, number)
        highest = max((figure.high for line in picture.lines for _, figure in line.points), default=1.0)
        legend_rows = -(-len(picture.lines) // columns)
        item.setYRange(0, highest * (1.15 + 0.15 * legend_rows), padding=0)
        item.setXRange(-0.4, max(1, len(picture.ticks) - 1) + 0.4 * (len(picture.ticks) > 1), padding=0)

    def _axes(self, item: Any, picture: Picture) -> None:
        font = fonts.label_font(self._scale)
        for name in ("left", "bottom"):
            axis = item.getAxis(name)
            axis.setPen(self._pg.mkPen(self._theme.hairline))
            axis.setTextPen(self._pg.mkPen(self._theme.ink3))
            axis.setTickFont(font)
            axis.setStyle(tickLength=-4, tickTextOffset=6)
        step = max(1, -(-len(picture.ticks) // 8))
        item.getAxis("bottom").setTicks([[(i, words) for i, words in enumerate(picture.ticks) if i % step == 0]])
        label = {"color": self._theme.ink3, "font-size": f"{font.pixelSize()}px"}
        item.setLabel("bottom", picture.x_label, **label)
        item.showLabel("bottom", bool(picture.x_label))
        item.setLabel("left", "tokens a second", **label)
        item.getAxis("left").enableAutoSIPrefix(False)
        item.showGrid(x=False, y=True, alpha=0.12)

    def _line(self, item: Any, line: Line, number: int) -> None:
        token, style, symbol = _LOOKS[number % len(_LOOKS)]
        colour = self._theme.color(token)
        pen = self._pg.mkPen(colour, width=2, style=style)
        places = [place for place, _ in line.points]
        medians = [figure.median for _, figure in line.points]
        spread = self._pg.ErrorBarItem(
            x=_array(places),
            y=_array(medians),
            top=_array([figure.high - figure.median for _, figure in line.points]),
            bottom=_array([figure.median - figure.low for _, figure in line.points]),
            beam=0.06,
            pen=self._pg.mkPen(colour, width=1),
        )
        spread.setZValue(-number)
        item.addItem(spread)
        size = round(7 * max(1.0, self._scale))
        drawn = item.plot(
            places,
            medians,
            pen=pen,
            symbol=symbol,
            symbolSize=size,
            symbolPen=self._pg.mkPen(colour),
            symbolBrush=self._pg.mkBrush(colour),
            name=line.name,
        )
        drawn.setZValue(-number)  # the first one lies on top


def _array(values: Sequence[float]) -> Any:
    import numpy as np

    return np.array(values, float)
