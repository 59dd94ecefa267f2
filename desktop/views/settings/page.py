"""Small parts that settings pages are made of."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QVBoxLayout, QWidget

CONTROL_WIDTH = 180


class Section(QWidget):
    """A heading and rows below it."""

    def __init__(self, title: str, note: str = "") -> None:
        super().__init__()
        self._widths: list[tuple[QWidget, int]] = []
        self._layout = QVBoxLayout(self)
        self._layout.setContentsMargins(0, 18, 0, 18)
        self._layout.setSpacing(8)
        heading = QLabel(title)
        heading.setProperty("role", "section")
        self._layout.addWidget(heading)
        if note:
            self.add(self.note(note))

    def apply_scale(self, scale: float) -> None:
        """Controls are as wide as their words need at this text size."""
        for control, width in self._widths:
            control.setFixedWidth(round(width * max(1.0, scale)))

    @staticmethod
    def note(text: str) -> QLabel:
        label = QLabel(text)
        label.setProperty("role", "label")
        label.setWordWrap(True)
        return label

    def add(self, widget: QWidget) -> None:
        self._layout.addWidget(widget)

    def row(self, label: str, control: QWidget, tip: str, *, width: int = CONTROL_WIDTH) -> QLabel:
        """Label at the left, control at the right."""
        words = QLabel(label)
        words.setToolTip(tip)
        words.setBuddy(control)
        words.setWordWrap(True)  # large text in a narrow window
        control.setAccessibleName(label)
        control.setAccessibleDescription(tip)
        control.setToolTip(tip)
        if width:
            control.setFixedWidth(width)
            self._widths.append((control, width))
        line = QHBoxLayout()
        line.setSpacing(12)
        line.addWidget(words, 1)
        line.addWidget(control, 0, Qt.AlignmentFlag.AlignRight)
        self._layout.addLayout(line)
        return words


def hairline() -> QFrame:
    line = QFrame()
    line.setObjectName("hairline")
    return line
