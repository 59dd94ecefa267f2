"""Controls for every sampling parameter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
from PySide6.QtCore import QSize, Qt, QTimer, Signal
from PySide6.QtGui import QWheelEvent
from PySide6.QtWidgets import (
    QComboBox,
    QDoubleSpinBox,
    QGridLayout,
    QLabel,
    QLineEdit,
    QPlainTextEdit,
    QPushButton,
    QSpinBox,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from desktop import icons, terms
from desktop.theme import Theme
from desktop.views.settings.sampling_fields import GROUPS, Field, Group
from desktop.widgets.term import explain
from engine.errors import InvalidRequest
from engine.sampling import SamplingParams, validate

_CHANGE_DELAY_MS = 350
_CONTROL_WIDTH = 180


class FloatBox(QDoubleSpinBox):
    """A number; the mouse wheel changes it only when it has the focus, so that scrolling the page is safe."""

    def wheelEvent(self, event: QWheelEvent) -> None:
        super().wheelEvent(event) if self.hasFocus() else event.ignore()

    def textFromValue(self, value: float) -> str:
        text = super().textFromValue(value)
        point = self.locale().decimalPoint()
        return text.rstrip("0").rstrip(point) if point in text else text


class WholeBox(QSpinBox):
    """A whole number; see `FloatBox` for the wheel."""

    def wheelEvent(self, event: QWheelEvent) -> None:
        super().wheelEvent(event) if self.hasFocus() else event.ignore()


class ChoiceBox(QComboBox):
    """A choice; see `FloatBox` for the wheel. Where there is little room its words are cut short, not the page."""

    def minimumSizeHint(self) -> QSize:
        hint = super().minimumSizeHint()
        return QSize(min(hint.width(), self.fontMetrics().horizontalAdvance("0" * 14)), hint.height())

    def wheelEvent(self, event: QWheelEvent) -> None:
        super().wheelEvent(event) if self.hasFocus() else event.ignore()


def escape(text: str) -> str:
    """One line for a text that may hold line ends."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")


def unescape(line: str) -> str:
    """The text that `escape` wrote."""
    result, i = [], 0
    while i < len(line):
        pair = line[i : i + 2]
        if pair in ("\\n", "\\t", "\\\\"):
            result.append({"\\n": "\n", "\\t": "\t", "\\\\": "\\"}[pair])
            i += 2
        else:
            result.append(line[i])
            i += 1
    return "".join(result)


def parse_bias(text: str) -> dict[int, float]:
    """Token biases from lines like "123: -2.5".

    Raises:
        InvalidRequest: a line is not of that form.
    """
    result = {}
    for line in text.splitlines():
        if line.strip():
            token, colon, number = line.partition(":")
            try:
                value = float(number)
                if not colon or not token.strip().isdigit() or math.isnan(value) or value == math.inf:
                    raise ValueError
                result[int(token)] = value
            except ValueError:
                raise InvalidRequest(
                    f'"{line.strip()}" is not of the form token id: number', details={"field": "logit_bias"}
                ) from None
    return result


class SamplingForm(QWidget):
    """Signals:
    changed(SamplingParams): legal values, a moment after the last change.
    """

    changed = Signal(object)

    def __init__(self, parent: QWidget | None = None, *, groups: Sequence[Group] = GROUPS) -> None:
        """groups: those that are shown; the values of the others stay what they are."""
        super().__init__(parent)
        self._groups = tuple(groups)
        self.setObjectName("sampling_form")
        self._default = SamplingParams()
        self._params = SamplingParams()
        self._controls: dict[str, QWidget] = {}
        self._resets: dict[str, QToolButton] = {}
        self._loading = False
        self.error = QLabel()
        self.error.setObjectName("sampling_error")
        self.error.setProperty("role", "bad")
        self.error.setWordWrap(True)
        self.error.hide()
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(8)
        for group in self._groups:
            title = QLabel(group.title)
            title.setProperty("role", "label")
            title.setContentsMargins(0, 8, 0, 0)
            layout.addWidget(title)
            grid = QGridLayout()
            grid.setHorizontalSpacing(12)
            grid.setVerticalSpacing(6)
            grid.setColumnStretch(0, 1)
            for row, field in enumerate(group.fields):
                self._add(grid, row, field)
            layout.addLayout(grid)
        layout.addWidget(self.error)
        self.reset_all = QPushButton("Reset all sampling")
        self.reset_all.setObjectName("reset_sampling")
        self.reset_all.setToolTip("Set every sampling parameter to its default")
        self.reset_all.clicked.connect(lambda: self._apply(self._default))
        layout.addWidget(self.reset_all, 0, Qt.AlignmentFlag.AlignLeft)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(_CHANGE_DELAY_MS)
        self._timer.timeout.connect(self.commit)
        self.set_params(self._params)

    def _add(self, grid: QGridLayout, row: int, field: Field) -> None:
        label = QLabel(field.label)
        explain(label, terms.SAMPLING[field.name], field.tip)
        control = self._make(field)
        control.setObjectName(f"sampling_{field.name}")
        control.setAccessibleName(field.label)
        control.setAccessibleDescription(field.tip)
        explain(control, terms.SAMPLING[field.name], field.tip)
        control.setFixedWidth(_CONTROL_WIDTH)
        label.setBuddy(control)
        reset = QToolButton()
        reset.setObjectName(f"reset_{field.name}")
        reset.setProperty("kind", "text")
        reset.setAccessibleName(f"Reset {field.label}")
        reset.setToolTip(f"Set {field.label} to its default")
        reset.clicked.connect(lambda _=False, name=field.name: self._reset(name))
        policy = reset.sizePolicy()
        policy.setRetainSizeWhenHidden(True)
        reset.setSizePolicy(policy)
        top = Qt.AlignmentFlag.AlignTop
        grid.addWidget(label, row, 0, Qt.AlignmentFlag.AlignVCenter)
        grid.addWidget(reset, row, 1, top)
        grid.addWidget(control, row, 2, top)
        self._controls[field.name] = control
        self._resets[field.name] = reset

    def _make(self, field: Field) -> QWidget:
        if field.kind == "float":
            number = FloatBox()
            number.lineEdit().setTextMargins(8, 0, 0, 0)
            number.setDecimals(field.decimals)
            number.setRange(field.low, field.high)
            number.setSingleStep(field.step)
            number.valueChanged.connect(self._on_edit)
            return number
        if field.kind == "int":
            whole = WholeBox()
            whole.lineEdit().setTextMargins(8, 0, 0, 0)
            whole.setRange(int(field.low), int(field.high))
            whole.valueChanged.connect(self._on_edit)
            return whole
        if field.kind == "choice":
            choice = ChoiceBox()
            for value, words in field.choices:
                choice.addItem(words, value)
            choice.currentIndexChanged.connect(self._on_edit)
            return choice
        if field.kind == "optional_int":
            line = QLineEdit()
            line.setPlaceholderText(field.empty)
            line.textChanged.connect(self._on_edit)
            return line
        text = QPlainTextEdit()
        text.setFixedHeight(64)
        text.setTabChangesFocus(True)
        text.textChanged.connect(self._on_edit)
        return text

    def apply_theme(self, theme: Theme, scale: float) -> None:
        for control in self._controls.values():
            control.setFixedWidth(round(_CONTROL_WIDTH * max(1.0, scale)))
            if isinstance(control, QPlainTextEdit):
                control.setFixedHeight(round(64 * max(1.0, scale)))
        for reset in self._resets.values():
            icons.set_icon(reset, "reload", theme)

    # ---- values

    @property
    def params(self) -> SamplingParams:
        """The last legal values."""
        return self._params

    def set_params(self, params: SamplingParams, default: SamplingParams | None = None) -> None:
        """Show these values; `changed` is not sent. `default` is what the reset buttons go back to."""
        if default is not None:
            self._default = default
        self._params = params
        self._loading = True
        for group in self._groups:
            for field in group.fields:
                self._show(field, getattr(params, field.name))
        self._loading = False
        self._mark("", "")
        self._show_resets()

    def _show(self, field: Field, value: Any) -> None:
        control = self._controls[field.name]
        if isinstance(control, FloatBox | WholeBox):
            control.setValue(value)
        elif isinstance(control, ChoiceBox):
            control.setCurrentIndex(max(0, control.findData(value)))
        elif isinstance(control, QLineEdit):
            control.setText("" if value is None else str(value))
        elif isinstance(control, QPlainTextEdit):
            if field.kind == "bias":
                control.setPlainText("\n".join(f"{token}: {bias:g}" for token, bias in value.items()))
            else:
                control.setPlainText("\n".join(escape(text) for text in value))

    def _read(self, field: Field) -> Any:
        control = self._controls[field.name]
        old = getattr(self._params, field.name)
        if isinstance(control, FloatBox):
            # a value with more digits than the control shows stays what it is until it is changed
            return old if math.isclose(control.value(), old, abs_tol=0.5 * 10**-field.decimals) else control.value()
        if isinstance(control, WholeBox):
            return control.value()
        if isinstance(control, ChoiceBox):
            return control.currentData()
        if isinstance(control, QLineEdit):
            text = control.text().strip().replace(",", "")
            if not text:
                return None
            if not text.isdigit():
                raise InvalidRequest(f"{field.label} must be a whole number or empty", details={"field": field.name})
            return int(text)
        assert isinstance(control, QPlainTextEdit)
        if field.kind == "bias":
            return parse_bias(control.toPlainText())
        return tuple(unescape(line) for line in control.toPlainText().split("\n") if line)

    def commit(self) -> None:
        """Take the values now, if they are legal."""
        self._timer.stop()
        try:
            values = {field.name: self._read(field) for group in self._groups for field in group.fields}
            params = validate(msgspec.structs.replace(self._params, **values))
        except InvalidRequest as error:
            self._mark(str(error.details.get("field", "")), error.message)
            return
        self._mark("", "")
        if params != self._params:
            self._params = params
            self._show_resets()
            self.changed.emit(params)

    def _mark(self, field: str, words: str) -> None:
        self.error.setText(f"{words}. The value before is kept." if words else "")
        self.error.setVisible(bool(words))
        for name, control in self._controls.items():
            invalid = "true" if name == field else "false"
            if control.property("invalid") not in (invalid, None if invalid == "false" else ""):
                control.setProperty("invalid", invalid)
                control.style().unpolish(control)
                control.style().polish(control)

    def _on_edit(self, *_: object) -> None:
        if not self._loading:
            self._timer.start()

    def _reset(self, name: str) -> None:
        self._apply(msgspec.structs.replace(self._params, **{name: getattr(self._default, name)}))

    def _apply(self, params: SamplingParams) -> None:
        self._timer.stop()
        changed = params != self._params
        self.set_params(params)
        if changed:
            self.changed.emit(params)

    def _show_resets(self) -> None:
        for name, reset in self._resets.items():
            reset.setVisible(getattr(self._params, name) != getattr(self._default, name))
