"""A label for a figure that changes many times a second."""

from __future__ import annotations

import re
from collections.abc import Sequence

from PySide6.QtGui import QFont
from PySide6.QtWidgets import QLabel, QWidget

_DIGIT = re.compile(r"\d")


class FigureLabel(QLabel):
    """A label that keeps its size while its figures change.

    Every new text of a plain label makes Qt lay the whole window out again, ten times a second while an answer is
    written. This one has a fixed size, of the widest text of that shape; it changes only with the shape.
    """

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._shape: str | None = None

    def setText(self, text: str) -> None:
        shape = _DIGIT.sub("8", text)
        if shape != self._shape and (self._shape is None or len(shape) != len(self._shape) or not _DIGIT.search(shape)):
            self._shape = shape
            self._fit()
        super().setText(text)

    def setFont(self, font: QFont | str | Sequence[str]) -> None:
        super().setFont(font)
        self._fit()

    def width_of(self, text: str) -> int:
        """How wide it is with a text of this shape."""
        self.ensurePolished()
        return self.fontMetrics().horizontalAdvance(_DIGIT.sub("8", text)) + 2

    def _fit(self) -> None:
        """Take the size of the present shape."""
        self.setFixedSize(self.width_of(self._shape or ""), self.fontMetrics().height())
