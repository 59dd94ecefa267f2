"""Over the transcript: the model, where it is computed, how fast it writes, and the settings of the chat."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QSizePolicy, QToolButton, QWidget

from desktop import figures, fonts, icons
from desktop.actions import Actions
from desktop.speeds import Speeds
from desktop.theme import Theme
from desktop.views.chat.model_picker import ModelPicker, chip_words
from desktop.widgets.figure_label import FigureLabel
from desktop.widgets.term import explain
from engine.events import ModelState

_SPACING, _MARGINS = 12, 36
#: of the model's name that are seen before the speed is
_NAME_CHARS = 18


class ChatHeader(QWidget):
    """One line; every figure in it is measured."""

    def __init__(self, actions: Actions, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("chat_header")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.picker = ModelPicker(actions)
        self.chip = QLabel()
        self.chip.setObjectName("device_chip")
        self.chip.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        explain(self.chip, "offload", "")
        self.rate = FigureLabel()
        self.rate.setObjectName("header_rate")
        self.rate.setProperty("role", "secondary")
        explain(self.rate, "tokens_per_second", "Decode speed of the last answer, in tokens per second, measured")
        self.settings_button = QToolButton()
        self.settings_button.setObjectName("chat_settings_button")
        self.settings_button.setProperty("kind", "icon")
        self.settings_button.setAccessibleName("Settings of this chat")
        self.settings_button.setToolTip(actions.tooltip("chat_settings"))
        self.settings_button.clicked.connect(actions["chat_settings"].trigger)
        self.monitor_button = QToolButton()
        self.monitor_button.setObjectName("monitor_button")
        self.monitor_button.setProperty("kind", "icon")
        self.monitor_button.setCheckable(True)
        self.monitor_button.setAccessibleName("Monitor beside the chat")
        self.monitor_button.setToolTip(actions.tooltip("toggle_monitor"))
        self.monitor_button.clicked.connect(actions["toggle_monitor"].trigger)
        row = QHBoxLayout(self)
        row.setContentsMargins(20, 10, 16, 10)
        row.setSpacing(_SPACING)
        row.addWidget(self.picker)
        row.addWidget(self.chip)
        row.addStretch(1)
        row.addWidget(self.rate)
        row.addWidget(self.settings_button)
        row.addWidget(self.monitor_button)

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self.picker.apply_theme(theme, scale)
        self.rate.setFont(fonts.mono_font(scale, step=-1))
        icons.set_icon(self.settings_button, "sliders", theme)
        icons.set_icon(self.monitor_button, "monitor", theme, active="accent")

    def set_state(self, state: ModelState) -> None:
        """Show the model; the chip says where llama.cpp put its layers."""
        self.picker.set_state(state)
        words, tone, tip = chip_words(state.model if state.status == "ready" else None)
        self.chip.setVisible(bool(words))
        self.chip.setText(words)
        self.chip.setToolTip(tip)
        self.chip.setAccessibleName(f"{words}. {tip}")
        if self.chip.property("chip") != tone:
            self.chip.setProperty("chip", tone)
            self.chip.style().unpolish(self.chip)
            self.chip.style().polish(self.chip)

    def show_rate(self, speeds: Speeds) -> None:
        self.rate.setText(f"{figures.rate(speeds.decode_tps)} tok/s" if speeds.decode_tps else "")
        self._make_room()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._make_room()

    def _make_room(self) -> None:
        """The name of the model comes before the speed, which stands under the chat, too."""
        others = (self.settings_button, self.monitor_button, *([self.chip] if not self.chip.isHidden() else []))
        used = sum(one.sizeHint().width() + _SPACING for one in others) + _MARGINS
        name = self.fontMetrics().averageCharWidth() * _NAME_CHARS
        self.rate.setVisible(self.width() - used - self.rate.width() - _SPACING >= name)
