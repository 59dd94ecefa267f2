"""A small button of words, quiet until it is needed."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QPushButton, QWidget


class SmallButton(QPushButton):
    """A button that looks like a word.

    Args:
        name: what a screen reader says and the tooltip shows; the text if empty.
        tone: "" or "accent" (colour of the one action) or "fold" (opens and closes something below it).
    """

    def __init__(self, text: str, parent: QWidget, name: str = "", tone: str = "") -> None:
        super().__init__(text, parent)
        self.setAccessibleName(name or text)
        if name:
            self.setToolTip(name)
        if tone:
            self.setProperty("tone", tone)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setAutoDefault(False)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
