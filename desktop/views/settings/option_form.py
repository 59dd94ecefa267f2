"""Controls for options of a load: each with what it costs, what it would be by itself, and a way back to that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtWidgets import QGridLayout, QLabel, QLineEdit, QSizePolicy, QToolButton, QVBoxLayout, QWidget

from desktop import icons, terms
from desktop.theme import Theme
from desktop.views.settings.sampling_form import ChoiceBox
from desktop.widgets.term import explain
from engine.engine_options import OPTIONS, EngineOptions, Option

_CONTROL_WIDTH, _LEAST_WIDTH = 180, 110
_TYPING_MS = 600
_AUTOMATIC = "Automatic"
_SWITCH = ((True, "On"), (False, "Off"))


@dataclass(frozen=True)
class Automatic:
    """What an option is where nobody has chosen it.

    Attributes:
        value: in words. why: the reason, a few words; may be empty.
        lead: whose choice it is.
    """

    value: str
    why: str = ""
    lead: str = _AUTOMATIC

    @property
    def words(self) -> str:
        """ "Automatic: 2 (physical cores)"."""
        return f"{self.lead}: {self.value}" + (f" ({self.why})" if self.why else "")


def value_words(name: str, value: Any) -> str:
    """A value of an option as people read it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int):
        return f"{value:,}"
    if name.startswith("kv_type"):
        return str(value).upper()
    return str(value)


class OptionRow(QWidget):
    """One option.

    Signals:
        chosen(object): another value, by the user; None: automatic.
    """

    chosen = Signal(object)

    def __init__(self, name: str, automatic: str = _AUTOMATIC) -> None:
        """`automatic`: the word for "not chosen here"."""
        super().__init__()
        self.name = name
        self.option: Option = OPTIONS[name]
        self._value: Any = None
        self._words = ""
        self._quiet = self._typed = False
        self.label = QLabel(self.option.label)
        self.label.setWordWrap(True)
        self.doc = QLabel(self.option.doc)
        self.doc.setProperty("role", "label")
        self.automatic = QLabel()
        self.automatic.setProperty("role", "label")
        for words in (self.doc, self.automatic):
            words.setWordWrap(True)
            words.setTextFormat(Qt.TextFormat.PlainText)
        self.reset = QToolButton()
        self.reset.setObjectName(f"reset_{name}")
        self.reset.setProperty("kind", "text")
        self.reset.setAccessibleName(f"{automatic}: {self.option.label}")
        self.reset.setToolTip(f"Back to “{automatic.lower()}”")
        policy = self.reset.sizePolicy()
        policy.setRetainSizeWhenHidden(True)
        self.reset.setSizePolicy(policy)
        self.reset.clicked.connect(lambda: self._choose(None))
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(_TYPING_MS)
        self._timer.timeout.connect(self.commit)
        self.control = self._make(automatic)
        self.control.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.control.setObjectName(name)
        self.control.setAccessibleName(self.option.label)
        for part in (self.control, self.label):
            explain(part, terms.OPTIONS[name], self.option.doc)
        explain(self.doc, terms.OPTIONS[name], "")
        self.label.setBuddy(self.control)
        grid = QGridLayout(self)
        grid.setContentsMargins(0, 4, 0, 4)
        grid.setHorizontalSpacing(8)
        grid.setVerticalSpacing(2)
        grid.setColumnStretch(0, 3)
        grid.setColumnStretch(2, 2)
        grid.addWidget(self.label, 0, 0)
        grid.addWidget(self.reset, 0, 1)
        grid.addWidget(self.control, 0, 2)
        grid.addWidget(self.doc, 1, 0, Qt.AlignmentFlag.AlignTop)
        grid.addWidget(self.automatic, 1, 2, Qt.AlignmentFlag.AlignTop)
        self._show()

    def _make(self, automatic: str) -> QWidget:
        if self.option.high:
            line = QLineEdit()
            line.setPlaceholderText(automatic.lower())
            line.textChanged.connect(self._on_typing)
            line.editingFinished.connect(self.commit)
            return line
        box = ChoiceBox()
        box.addItem(automatic, None)
        for value, words in [(c, value_words(self.name, c)) for c in self.option.choices] or _SWITCH:
            box.addItem(words[:1].upper() + words[1:], value)
        box.currentIndexChanged.connect(lambda _: self._on_choice(box.currentData()))
        return box

    def apply_theme(self, theme: Theme, scale: float) -> None:
        for widget in (self.control, self.automatic):
            widget.setMinimumWidth(round(_LEAST_WIDTH * max(1.0, scale)))
            widget.setMaximumWidth(round(_CONTROL_WIDTH * max(1.0, scale)))
        icons.set_icon(self.reset, "reload", theme)

    # ---- values

    @property
    def value(self) -> Any:
        """What is chosen; None: automatic."""
        return self._value

    def set_value(self, value: Any) -> None:
        """Show a value; tells nobody."""
        self._typed = False
        self._timer.stop()
        self._value = value
        self._show()
        self.fail("")

    def set_automatic(self, automatic: Automatic) -> None:
        self._words = automatic.words
        if self.control.property("invalid") != "true":
            self.automatic.setText(self._words)
        self.control.setAccessibleDescription(f"{self.option.doc} {self._words}")

    def fail(self, words: str) -> None:
        """Say why the value cannot be; empty: it can."""
        invalid = "true" if words else "false"
        self.automatic.setText(words or self._words)
        self._mark(self.control, "invalid", invalid)
        self._mark(self.automatic, "role", "bad" if words else "label")

    @staticmethod
    def _mark(widget: QWidget, name: str, value: str) -> None:
        if widget.property(name) != value:
            widget.setProperty(name, value)
            widget.style().unpolish(widget)
            widget.style().polish(widget)

    def _show(self) -> None:
        self._quiet = True
        if isinstance(self.control, QLineEdit):
            self.control.setText("" if self._value is None else f"{self._value:,}")
        elif isinstance(self.control, ChoiceBox):
            self.control.setCurrentIndex(max(0, self.control.findData(self._value)))
        self._quiet = False
        self.reset.setVisible(self._value is not None)

    def _on_typing(self) -> None:
        if not self._quiet:
            self._typed = True
            self._timer.start()

    def _on_choice(self, value: Any) -> None:
        if not self._quiet:
            self._choose(value)

    def commit(self) -> None:
        """Take what was typed now."""
        if not self._typed or not isinstance(self.control, QLineEdit):
            return
        self._typed = False
        self._timer.stop()
        text = self.control.text().strip().replace(",", "")
        if text and not (text.isascii() and text.isdigit()):
            self.fail("This must be a whole number, or empty.")
            return
        self._choose(int(text[:12]) if text else None)

    def _choose(self, value: Any) -> None:
        self._timer.stop()
        changed = value != self._value
        self._value = value
        self.reset.setVisible(value is not None)
        self.fail("")
        if changed:
            if value is None:
                self._show()
            self.chosen.emit(value)


class OptionForm(QWidget):
    """Several options below each other.

    Signals:
        chosen(str, object): an option has another value, by the user.
    """

    chosen = Signal(str, object)

    def __init__(self, names: Sequence[str], automatic: str = _AUTOMATIC) -> None:
        super().__init__()
        self.rows = {name: OptionRow(name, automatic) for name in names}
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(4)
        for name, row in self.rows.items():
            row.chosen.connect(lambda value, name=name: self.chosen.emit(name, value))
            box.addWidget(row)

    def apply_theme(self, theme: Theme, scale: float) -> None:
        for row in self.rows.values():
            row.apply_theme(theme, scale)

    def set_options(self, options: EngineOptions) -> None:
        """Show these; tells nobody."""
        for name, row in self.rows.items():
            if row.value != getattr(options, name) or row.control.property("invalid") == "true":
                row.set_value(getattr(options, name))

    def set_automatic(self, automatic: Mapping[str, Automatic]) -> None:
        for name, row in self.rows.items():
            if name in automatic:
                row.set_automatic(automatic[name])

    def commit(self) -> None:
        """Take what was typed now."""
        for row in self.rows.values():
            row.commit()
