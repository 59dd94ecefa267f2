"""A row of the list of models."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton

from desktop import icons
from desktop.theme import Theme
from desktop.widgets.elided_label import ElidedLabel


class ModelRow(QPushButton):
    """A model of the list; the one that is loaded has a check."""

    def __init__(self, name: str, details: str, path: str) -> None:
        super().__init__()
        self.path = path
        self._name = f"{name}, {details}"
        self.setProperty("kind", "row")
        self.setAutoDefault(False)
        self.setAccessibleName(self._name)
        self.setToolTip(path)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(10, 0, 10, 0)
        layout.setSpacing(12)
        title = ElidedLabel(name)
        side = QLabel(details)
        side.setProperty("role", "small")
        for label in (title, side):
            label.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.check = QLabel()
        self.check.setObjectName("loaded_check")
        self.check.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.check.hide()
        layout.addWidget(self.check)
        layout.addWidget(title, 1)
        layout.addWidget(side)

    def set_loaded(self, loaded: bool, theme: Theme, scale: float) -> None:
        """Say whether this is the loaded model, to the eye and to a screen reader."""
        self.setAccessibleName(f"{self._name}, loaded" if loaded else self._name)
        self.setAccessibleDescription("This model is loaded" if loaded else "")
        self.setToolTip(f"Loaded now: {self.path}" if loaded else self.path)
        if loaded:
            self.check.setPixmap(icons.pixmap("check", theme, round(16 * scale), "accent"))
        self.check.setVisible(loaded)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Up and Down belong to the list; a button would take them as Tab, and so leave the list."""
        if event.key() in (Qt.Key.Key_Down, Qt.Key.Key_Up):
            self.window().keyPressEvent(event)
        else:
            super().keyPressEvent(event)
