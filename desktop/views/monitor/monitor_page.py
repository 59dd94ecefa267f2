"""The monitor as a full page: all figures, plots, the same as text, copies."""

from __future__ import annotations

import time
from collections.abc import Callable

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QFontMetrics, QGuiApplication, QHideEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import (
    QBoxLayout,
    QHBoxLayout,
    QLabel,
    QPlainTextEdit,
    QPushButton,
    QScrollArea,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from desktop import fonts, icons
from desktop.tasks import Tasks
from desktop.theme import Theme
from desktop.views.monitor import report
from desktop.views.monitor.charts import SpeedChart, StepChart
from desktop.views.monitor.feed import MonitorFeed
from desktop.views.monitor.panels import CachePanel, MachinePanel, MemoryPanel, SpeedPanel
from desktop.views.monitor.runs import step_times
from desktop.widgets.elided_label import ElidedLabel
from desktop.widgets.term import explain

#: two columns from this width on, in characters
_TWO_COLUMNS, _MOST_WIDE = 116, 1120
_TEXT_MS, _CHART_S = 2000, 0.5


class MonitorPage(QWidget):
    """Signals:
    message(str, object): say this.
    """

    message = Signal(str, object)

    def __init__(
        self, feed: MonitorFeed, tasks: Tasks, titles: Callable[[], dict[int, str]], parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self.setObjectName("monitor_page")
        self._feed, self._titles = feed, titles
        self._theme: Theme | None = None
        self._drawn_s = 0.0
        self.speed = SpeedPanel(full=True)
        self.cache = CachePanel(titles, full=True)
        self.memory = MemoryPanel()
        self.machine = MachinePanel(full=True)
        self.decode_chart = SpeedChart("decode_chart", "Decode speed of the last minutes", "accent", tasks)
        self.prefill_chart = SpeedChart(
            "prefill_chart", "Prefill speed of the last minutes, each step", "mem_weights", tasks, marks=True
        )
        self.step_chart = StepChart(tasks)
        self._charts = (self.decode_chart, self.prefill_chart, self.step_chart)
        for chart, term in zip(self._charts, ("decode", "prefill", "step_time"), strict=True):
            explain(chart, term, "")
        self._panels = (self.speed, self.cache, self.memory, self.machine)
        self.pause = self._button("monitor_pause", "Pause", "Hold what is shown; measuring goes on", checkable=True)
        self.as_text = self._button("monitor_text", "As text", "Show all of this as plain text", checkable=True)
        self.copy_csv = self._button(
            "monitor_csv", "Copy as CSV", "Copy the looks at this computer, one line a second, for a spreadsheet"
        )
        self.text = QPlainTextEdit()
        self.text.setObjectName("monitor_words")
        self.text.setReadOnly(True)
        self.text.setAccessibleName("The monitor as text")
        self._text_timer = QTimer(self)
        self._text_timer.setInterval(_TEXT_MS)
        self._text_timer.timeout.connect(self._show_words)
        self._build()
        self.pause.toggled.connect(self._on_pause)
        self.as_text.toggled.connect(self._on_text)
        self.copy_csv.clicked.connect(self._copy)

    @staticmethod
    def _button(name: str, words: str, tip: str, *, checkable: bool = False) -> QPushButton:
        button = QPushButton(words)
        button.setObjectName(name)
        button.setProperty("kind", "text")
        button.setCheckable(checkable)
        button.setAccessibleName(words)
        button.setToolTip(tip)
        return button

    def _build(self) -> None:
        top = QHBoxLayout()
        top.setContentsMargins(0, 0, 0, 0)
        self.title = ElidedLabel("")
        self.title.setObjectName("monitor_title")
        self.title.setProperty("role", "strong")
        top.addWidget(self.title, 1)
        for button in (self.pause, self.as_text, self.copy_csv):
            top.addWidget(button)
        left, right = QVBoxLayout(), QVBoxLayout()
        for column in (left, right):
            column.setSpacing(22)
        decode, prefill = self._titled("Decode", self.decode_chart), self._titled("Prefill", self.prefill_chart)
        for part in (self.speed, decode, prefill, self._titled("Decode steps by length", self.step_chart)):
            left.addWidget(part)
        for part in (self.cache, self.memory, self.machine):
            right.addWidget(part)
        left.addStretch(1)
        right.addStretch(1)
        self._columns = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._columns.setSpacing(48)
        self._columns.addLayout(left, 1)
        self._columns.addLayout(right, 1)
        inner = QWidget()
        box = QVBoxLayout(inner)
        box.setContentsMargins(0, 14, 0, 28)
        box.setSpacing(12)
        box.addLayout(self._columns)
        box.addStretch(1)
        self._inner = inner
        outer = QWidget()
        centre = QHBoxLayout(outer)
        centre.setContentsMargins(24, 0, 24, 0)
        centre.addWidget(inner, 1000)
        centre.addStretch(1)
        self.scroll_area = QScrollArea()
        self.scroll_area.setObjectName("monitor_page_scroll")
        self.scroll_area.setAccessibleName("Monitor")
        self.scroll_area.setWidgetResizable(True)
        self.scroll_area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.scroll_area.setWidget(outer)
        self.stack = QStackedWidget()
        self.stack.addWidget(self.scroll_area)
        self.stack.addWidget(self.text)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 10, 0, 0)
        layout.setSpacing(4)
        row = QHBoxLayout()
        row.setContentsMargins(24, 0, 20, 0)
        row.addLayout(top)
        layout.addLayout(row)
        layout.addWidget(self.stack, 1)

    @staticmethod
    def _titled(words: str, chart: QWidget) -> QWidget:
        whole = QWidget()
        label = QLabel(words)
        label.setProperty("role", "section")
        box = QVBoxLayout(whole)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(6)
        box.addWidget(label)
        box.addWidget(chart)
        return whole

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self._theme = theme
        self._inner.setMaximumWidth(round(_MOST_WIDE * max(1.0, scale)))
        self.text.setFont(fonts.mono_font(scale, step=-1))
        icons.set_icon(self.pause, "pause", theme)
        icons.set_icon(self.as_text, "file", theme)
        icons.set_icon(self.copy_csv, "copy", theme)
        for part in (*self._panels, *self._charts):
            part.apply_theme(theme, scale)
        self._arrange()

    def focus_first(self) -> None:
        self.pause.setFocus(Qt.FocusReason.OtherFocusReason)

    def stop(self) -> None:
        """Ask for nothing any more."""
        self._text_timer.stop()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._arrange()

    def _arrange(self) -> None:
        """Two columns where there is room for them."""
        wide = self.width() >= QFontMetrics(fonts.ui_font()).averageCharWidth() * _TWO_COLUMNS
        across = QBoxLayout.Direction.LeftToRight if wide else QBoxLayout.Direction.TopToBottom
        if self._columns.direction() != across:
            self._columns.setDirection(across)
            self._columns.setSpacing(48 if wide else 22)

    # ---- what it shows

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._feed.changed.connect(self.refresh)
        self._feed.watch(self)
        self._feed.wants_parts = True
        self._feed.ask_parts()
        self._drawn_s = 0.0
        self.refresh()
        if self.as_text.isChecked():
            self._text_timer.start()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._feed.changed.disconnect(self.refresh)
        self._feed.unwatch(self)
        self._feed.wants_parts = False
        self._text_timer.stop()
        self.pause.setChecked(False)  # beside the chat nothing would say why it stands still

    def refresh(self) -> None:
        model = self._feed.model
        facts = (self._feed.name, model.quantization, f"{model.n_ctx:,} tokens") if model is not None else ()
        self.title.setText(" · ".join(fact for fact in facts if fact) or "No model is loaded")
        if self.as_text.isChecked():
            return
        for panel in self._panels:
            panel.show_feed(self._feed)
        now = time.monotonic()
        if now - self._drawn_s >= _CHART_S:
            self._drawn_s = now
            self.decode_chart.show_points(self._feed.speeds, now)
            self.prefill_chart.show_points(self._feed.reads, now)
            self.step_chart.show_steps(step_times(list(self._feed.steps)))

    def _on_pause(self, paused: bool) -> None:
        self._feed.set_paused(paused)
        if self._theme is not None:
            icons.set_icon(self.pause, "play" if paused else "pause", self._theme)
        self.pause.setText("Go on" if paused else "Pause")
        self.pause.setAccessibleName(self.pause.text())

    def _on_text(self, as_text: bool) -> None:
        self.stack.setCurrentWidget(self.text if as_text else self.scroll_area)
        if as_text:
            self._show_words()
            self._text_timer.start()
            self.text.setFocus(Qt.FocusReason.OtherFocusReason)
        else:
            self._text_timer.stop()
            self.refresh()

    def _show_words(self) -> None:
        if self._feed.paused and self.text.toPlainText():
            return
        words = report.words(self._feed, self._titles())
        if words != self.text.toPlainText() and not self.text.textCursor().hasSelection():
            bar = self.text.verticalScrollBar()
            place, cursor = bar.value(), self.text.textCursor().position()
            self.text.setPlainText(words)
            moved = self.text.textCursor()
            moved.setPosition(min(cursor, len(words)))
            self.text.setTextCursor(moved)  # who reads it line by line stays where they were
            bar.setValue(place)

    def _copy(self) -> None:
        looks = list(self._feed.looks)
        QGuiApplication.clipboard().setText(report.csv_text(looks))
        n = len(looks)
        self.message.emit(f"Copied {n:,} {'line' if n == 1 else 'lines'}, with a line of names.", None)
