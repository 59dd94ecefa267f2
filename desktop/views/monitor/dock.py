"""The monitor at the right of the chat."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QScrollArea, QToolButton, QVBoxLayout, QWidget

from desktop import icons
from desktop.theme import Theme
from desktop.views.monitor.feed import MonitorFeed
from desktop.views.monitor.panels import CachePanel, MachinePanel, MemoryPanel, SpeedPanel

WIDTH, _WIDEST = 320, 420


class MonitorDock(QWidget):
    """Signals:
    page_wanted: show the full page. close_wanted.
    """

    page_wanted = Signal()
    close_wanted = Signal()

    def __init__(self, feed: MonitorFeed, titles: Callable[[], dict[int, str]], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("monitor_dock")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setAccessibleName("Monitor")
        self._feed = feed
        self.speed = SpeedPanel(full=False)
        self.cache = CachePanel(titles, full=False)
        self.memory = MemoryPanel()
        self.machine = MachinePanel(full=False)
        self._panels = (self.speed, self.cache, self.memory, self.machine)
        self.more = QPushButton("All figures")
        self.more.setObjectName("monitor_more")
        self.more.setProperty("kind", "link")
        self.more.setToolTip("Show the monitor as a page, with plots")
        self.more.clicked.connect(self.page_wanted)
        self.close_button = QToolButton()
        self.close_button.setObjectName("monitor_close")
        self.close_button.setProperty("kind", "icon")
        self.close_button.setAccessibleName("Close the monitor")
        self.close_button.setToolTip("Close the monitor")
        self.close_button.clicked.connect(self.close_wanted)
        self._build()

    def _build(self) -> None:
        page = QWidget()
        column = QVBoxLayout(page)
        column.setContentsMargins(18, 14, 18, 12)
        column.setSpacing(18)
        for panel in self._panels:
            column.addWidget(panel)
        column.addStretch(1)
        self.scroll_area = QScrollArea()
        self.scroll_area.setObjectName("monitor_scroll")
        self.scroll_area.setWidgetResizable(True)
        self.scroll_area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.scroll_area.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.scroll_area.setAccessibleName("Monitor")
        self.scroll_area.setWidget(page)
        bottom = QHBoxLayout()
        bottom.setContentsMargins(14, 4, 12, 8)
        bottom.addWidget(self.more)
        bottom.addStretch(1)
        bottom.addWidget(self.close_button)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(1, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self.scroll_area, 1)
        layout.addLayout(bottom)

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self.setFixedWidth(width_at(scale))
        icons.set_icon(self.close_button, "close", theme)
        for panel in self._panels:
            panel.apply_theme(theme, scale)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._feed.changed.connect(self.refresh)
        self._feed.watch(self)
        self.refresh()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._feed.changed.disconnect(self.refresh)
        self._feed.unwatch(self)

    def refresh(self) -> None:
        for panel in self._panels:
            panel.show_feed(self._feed)


def width_at(scale: float) -> int:
    """Pixels that the dock is wide at a text size."""
    return min(_WIDEST, round(WIDTH * max(1.0, scale)))
