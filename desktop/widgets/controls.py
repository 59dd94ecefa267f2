"""Small controls of the panels that ask "what if": a slider with its value, a choice of few words."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QSlider, QVBoxLayout, QWidget

from desktop import fonts
from desktop.widgets.term import explain


class ValueSlider(QWidget):
    """A label, its value at the right, a slider below them.

    The slider moves over positions; `to_value` and `to_words` say what a position is and how it is written.

    Signals:
        moved(int): the position is another now, by the user.
    """

    moved = Signal(int)

    def __init__(self, name: str, label: str, tip: str, to_words: Callable[[int], str], *, term: str = "") -> None:
        """`term`: the term of the glossary that explains it."""
        super().__init__()
        self._to_words = to_words
        self._label_text = label
        self.label = QLabel(label)
        self.label.setProperty("role", "secondary")
        self.label.setToolTip(tip)
        self.value_label = QLabel()
        self.value_label.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self.slider = QSlider(Qt.Orientation.Horizontal)
        self.slider.setObjectName(name)
        self.slider.setAccessibleName(label)
        self.slider.setToolTip(tip)
        self.slider.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.label.setBuddy(self.slider)
        if term:
            for part in (self.label, self.value_label, self.slider):
                explain(part, term, tip)
        self._quiet = False
        row = QHBoxLayout()
        row.setSpacing(8)
        row.addWidget(self.label)
        row.addWidget(self.value_label, 1)
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(2)
        box.addLayout(row)
        box.addWidget(self.slider)
        self.slider.valueChanged.connect(self._on_value)

    def apply_scale(self, scale: float) -> None:
        self.value_label.setFont(fonts.tabular(fonts.ui_font(scale)))

    def set_range(self, low: int, high: int, position: int) -> None:
        """New limits and position; tells nobody."""
        self._quiet = True
        self.slider.setRange(low, max(low, high))
        self.slider.setPageStep(max(1, (high - low) // 8))
        self.slider.setValue(position)
        self.slider.setEnabled(high > low)
        self._quiet = False
        self._show()

    def set_position(self, position: int) -> None:
        """Go there; tells nobody."""
        self._quiet = True
        self.slider.setValue(position)
        self._quiet = False
        self._show()

    @property
    def position(self) -> int:
        return self.slider.value()

    def _show(self) -> None:
        words = self._to_words(self.slider.value())
        self.value_label.setText(words)
        self.slider.setAccessibleDescription(words)

    def _on_value(self, position: int) -> None:
        self._show()
        if not self._quiet:
            self.moved.emit(position)


class Choice(QWidget):
    """A few words side by side, one of them chosen.

    Signals:
        chosen(str): another one, by the user.
    """

    chosen = Signal(str)

    def __init__(self, name: str, label: str, tip: str, options: Sequence[tuple[str, str]], *, term: str = "") -> None:
        """`term`: the term of the glossary that explains it."""
        super().__init__()
        self.setObjectName(name)
        self.setAccessibleName(label)
        self._buttons: dict[str, QPushButton] = {}
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(0)
        last = len(options) - 1
        for place, (value, words) in enumerate(options):
            button = QPushButton(words)
            button.setObjectName(f"{name}_{value}")
            button.setCheckable(True)
            button.setAutoDefault(False)
            button.setProperty("segment", "first" if place == 0 else "last" if place == last else "middle")
            button.setAccessibleName(f"{label}: {words}")
            button.setToolTip(tip)
            button.clicked.connect(lambda _=False, value=value: self._choose(value))
            if term:
                explain(button, term, tip)
            self._buttons[value] = button
            row.addWidget(button, 1)

    def set_value(self, value: str) -> None:
        """Mark one; tells nobody. An unknown one leaves the mark where it is."""
        if value in self._buttons:
            # not a button group: that would take all but one of them out of the Tab order
            for key, button in self._buttons.items():
                button.setChecked(key == value)

    def clear(self) -> None:
        """Mark none; tells nobody."""
        for button in self._buttons.values():
            button.setChecked(False)

    def _choose(self, value: str) -> None:
        self.set_value(value)
        self.chosen.emit(value)

    @property
    def value(self) -> str:
        return next((value for value, button in self._buttons.items() if button.isChecked()), "")

    def button(self, value: str) -> QPushButton:
        return self._buttons[value]
