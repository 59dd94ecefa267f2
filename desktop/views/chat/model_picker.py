"""The button that names the loaded model, and the list of models behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from PySide6.QtCore import QPoint, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QFont, QFontMetrics, QKeyEvent, QPainter, QPainterPath, QPaintEvent
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QLabel,
    QProgressBar,
    QPushButton,
    QScrollArea,
    QStyle,
    QStyleOptionButton,
    QStylePainter,
    QVBoxLayout,
    QWidget,
)

from desktop import figures, fonts, icons
from desktop.actions import Actions
from desktop.theme import LIGHT, Theme
from desktop.views.chat.model_about import about
from desktop.views.chat.model_row import ModelRow
from desktop.widgets.elided_label import ElidedLabel
from engine import backend_words
from engine.events import ModelInfo, ModelState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from desktop.model_control import ModelControl
    from engine.models.library import LibraryModel, ModelFile

_POPUP_WIDTH = 380
_ARROW = 12


def chip_words(model: ModelInfo | None) -> tuple[str, str, str]:
    """Text, tone and tooltip of the chip that says where the model is computed. Empty without a model.

    The counts are llama.cpp's own placement. Its layers are the model's blocks and one for the output.
    """
    if model is None:
        return "", "neutral", ""
    total = max(model.n_layer + 1, model.n_gpu_layers)
    backends = ", ".join(b for b in model.backends if b != "CPU")
    if model.n_gpu_layers <= 0:
        words = f"All {total} layers are computed on the CPU with {model.n_threads} threads"
        # a CPU that computes in place of an add-on's GPU is never left without the reason
        found = backend_words.summary(model.cpu_module, model.add_ons) if model.cpu_module or model.add_ons else ""
        tone = "warn" if backend_words.broken(model.add_ons) else "neutral"
        return "CPU", tone, f"{words}\n{found}" if found else words
    on_gpu = f" ({backends})" if backends else ""
    if model.n_gpu_layers >= model.n_layer:
        n_layers = model.n_gpu_layers
        return f"all {n_layers} layers on GPU", "good", f"All layers are computed on the GPU{on_gpu}"
    words = f"{model.n_gpu_layers} of {total} layers on GPU"
    return words, "warn", f"The other layers are computed on the CPU, which is slower{on_gpu}"


def button_words(state: ModelState) -> tuple[str, str]:
    """Name and details on the button."""
    match state.status:
        case "ready" if state.model is not None:
            model = state.model
            return state.name or model.name, f"{model.quantization} · {model.n_ctx:,} ctx"
        case "loading":
            percent = "" if state.fraction is None else f" {state.fraction:.0%}"
            return state.name, f"loading{percent}"
        case "failed":
            return state.name or "No model", "not loaded"
    return "Choose a model", ""


class ModelPicker(QPushButton):
    """Opens the list. A thin line at its bottom shows the progress of a load.

    Signals:
        popup_requested: the list is wanted.
    """

    def __init__(self, actions: Actions, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = LIGHT
        self._scale = 1.0
        self._state = ModelState(status="none")
        self.setObjectName("model_picker")
        self.setToolTip(actions.tooltip("pick_model"))
        self.setAutoDefault(False)
        self.set_state(self._state)

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self._theme, self._scale = theme, scale
        self.updateGeometry()
        self.update()

    def set_state(self, state: ModelState) -> None:
        self._state = state
        name, details = button_words(state)
        self.setAccessibleName(f"Model: {name}" if state.status != "none" else "Choose a model")
        self.setAccessibleDescription(details)
        self.updateGeometry()
        self.update()

    def words(self) -> tuple[str, str]:
        """Name and details as shown."""
        return button_words(self._state)

    def _fonts(self) -> tuple[QFont, QFont]:
        name = fonts.ui_font(self._scale)
        name.setWeight(QFont.Weight.Medium)
        return name, fonts.tabular(fonts.ui_font(self._scale))

    def sizeHint(self) -> QSize:
        name_font, details_font = self._fonts()
        name, details = self.words()
        width = QFontMetrics(name_font).horizontalAdvance(name) + 2 * 16 + _ARROW + 8
        if details:
            width += QFontMetrics(details_font).horizontalAdvance(details) + 10
        return QSize(min(width, round(460 * self._scale)), round(34 * self._scale))

    def minimumSizeHint(self) -> QSize:
        return QSize(round(120 * self._scale), round(34 * self._scale))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QStylePainter(self)
        option = QStyleOptionButton()
        self.initStyleOption(option)
        painter.drawControl(QStyle.ControlElement.CE_PushButton, option)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        name_font, details_font = self._fonts()
        name, details = self.words()
        room = self.rect().adjusted(16, 0, -16 - _ARROW, 0)
        middle = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
        elide = Qt.TextElideMode.ElideRight
        metrics = QFontMetrics(name_font)
        name_width = min(metrics.horizontalAdvance(name), room.width())
        painter.setFont(name_font)
        painter.setPen(self._theme.color("ink"))
        painter.drawText(room, middle, metrics.elidedText(name, elide, name_width + 1))
        if details:
            painter.setFont(details_font)
            painter.setPen(self._theme.color("bad" if self._state.status == "failed" else "ink2"))
            rest = room.adjusted(name_width + 10, 0, 0, 0)
            painter.drawText(rest, middle, QFontMetrics(details_font).elidedText(details, elide, rest.width()))
        self._paint_arrow(painter)
        if self._state.status == "loading":
            self._paint_progress(painter)

    def _paint_arrow(self, painter: QPainter) -> None:
        x, y = self.width() - 16 - 4, self.height() / 2
        path = QPainterPath()
        path.moveTo(x - 4, y - 2)
        path.lineTo(x + 4, y - 2)
        path.lineTo(x, y + 3)
        path.closeSubpath()
        painter.fillPath(path, self._theme.color("ink2"))

    def _paint_progress(self, painter: QPainter) -> None:
        line = QRectF(10, self.height() - 4, self.width() - 20, 2)
        painter.fillRect(line, self._theme.color("mem_free"))
        line.setWidth(line.width() * max(0.0, min(1.0, self._state.fraction or 0.0)))
        painter.fillRect(line, self._theme.color("accent"))


class ModelPopup(QFrame):
    """State of the loaded model, the models on this computer, and a way to open another file.

    Signals:
        options_requested(str): show how this file would be loaded; empty: the user chooses there.
    """

    options_requested = Signal(str)

    def __init__(self, control: ModelControl, actions: Actions, parent: QWidget | None = None) -> None:
        super().__init__(parent, Qt.WindowType.Popup)
        self._control = control
        self._actions = actions
        self._shown: list[tuple[str, str]] = []
        self._theme, self._scale = LIGHT, 1.0
        self._loaded = ""  # path of the loaded model
        self.setObjectName("model_popup")
        self.setAccessibleName("Models")
        self._build()
        control.found.connect(self._show_models)

    def _build(self) -> None:
        self.title = ElidedLabel()
        self.title.setProperty("role", "section")
        self.about = QLabel()
        self.about.setObjectName("model_about")
        self.about.setProperty("role", "small")
        self.about.setWordWrap(True)
        self.about.setTextFormat(Qt.TextFormat.PlainText)
        self.progress = QProgressBar()
        self.progress.setObjectName("load_progress")
        self.progress.setRange(0, 1000)
        self.progress.setTextVisible(False)
        self.progress.setAccessibleName("Loading")
        self.progress.setToolTip("How much of the weights has been read")
        self.cancel = self._button("cancel_load", "Cancel", "Stop loading this model", self._control.cancel)
        self.unload = self._button("unload", "Unload", self._actions.tooltip("unload_model"), self._unload)
        self.reload = self._button("reload", "Reload", "Load this model again", self._reload)
        row = QHBoxLayout()
        row.setSpacing(8)
        for button in (self.cancel, self.unload, self.reload):
            row.addWidget(button)
        row.addStretch(1)
        self._state_box = QWidget()
        box = QVBoxLayout(self._state_box)
        box.setContentsMargins(10, 8, 10, 8)
        box.setSpacing(6)
        box.addWidget(self.title)
        box.addWidget(self.about)
        box.addWidget(self.progress)
        box.addLayout(row)
        line = QFrame()
        line.setObjectName("hairline")
        heading = QLabel("Models on this computer")
        heading.setProperty("role", "label")
        heading.setContentsMargins(10, 6, 10, 2)
        self._list = QWidget()
        self._list_box = QVBoxLayout(self._list)
        self._list_box.setContentsMargins(0, 0, 0, 0)
        self._list_box.setSpacing(0)
        self._list_box.addStretch(1)
        scroll = QScrollArea()
        scroll.setWidgetResizable(True)
        scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        scroll.setWidget(self._list)
        for filled in (scroll.viewport(), self._list):
            filled.setAutoFillBackground(False)  # the list lies on the popup's own ground
        self._scroll = scroll
        bottom = QFrame()
        bottom.setObjectName("hairline")
        keys = self._actions.keys("open_model")
        self.open_file = ModelRow("Open a GGUF file…", keys, "Load a model from a GGUF file")
        self.open_file.setObjectName("open_file")
        self.open_file.clicked.connect(self._open_file)
        self.options = self._options_row()
        layout = QVBoxLayout(self)
        layout.setContentsMargins(6, 6, 6, 6)
        layout.setSpacing(4)
        for widget in (self._state_box, line, heading, scroll, bottom, self.options, self.open_file):
            layout.addWidget(widget)

    def _button(self, name: str, words: str, tip: str, slot: object) -> QPushButton:
        button = QPushButton(words)
        button.setObjectName(name)
        button.setToolTip(tip)
        button.setAccessibleName(words)
        button.clicked.connect(slot)
        return button

    # ---- content

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self.setFixedWidth(round(_POPUP_WIDTH * max(1.0, scale)))
        icons.set_icon(self.reload, "reload", theme)
        self._theme, self._scale = theme, scale
        self._mark_loaded()

    def open_below(self, button: QWidget) -> None:
        """Show it under the button, and look for models anew."""
        state = self._control.state
        self.set_state(msgspec.structs.replace(state, name=self._control.name_of(state)))
        self._show_models(self._control.models)
        self._control.look()
        self._place(button)
        self.show()
        rows = self._rows()
        (rows[0] if rows else self.open_file).setFocus(Qt.FocusReason.PopupFocusReason)

    def _place(self, button: QWidget) -> None:
        self.adjustSize()
        point = button.mapToGlobal(QPoint(0, button.height() + 4))
        screen = button.screen().availableGeometry() if button.screen() else None
        if screen is not None:
            point.setX(max(screen.left(), min(point.x(), screen.right() - self.width())))
        self.move(point)

    def set_state(self, state: ModelState) -> None:
        loading, ready, failed = (state.status == s for s in ("loading", "ready", "failed"))
        self.progress.setVisible(loading)
        self.cancel.setVisible(loading)
        self.unload.setVisible(ready)
        self.reload.setVisible(failed and bool(state.path))
        name, _ = button_words(state)
        self.title.setText("No model is loaded" if state.status == "none" else name)
        if loading:
            self.progress.setRange(0, 1000 if state.fraction is not None else 0)
            self.progress.setValue(round((state.fraction or 0.0) * 1000))
        self.about.setText(about(state))
        self.about.setVisible(bool(self.about.text()))
        self._loaded = state.path if ready else ""
        self._mark_loaded()
        if self.isVisible():
            self.adjustSize()

    def _mark_loaded(self) -> None:
        for row in self._rows():
            row.set_loaded(row.path == self._loaded, self._theme, self._scale)

    def _show_models(self, models: Sequence[LibraryModel | ModelFile]) -> None:
        shown = [(model.path, model.name) for model in models]
        if shown == self._shown:
            return
        self._shown = shown
        had_row_focus = isinstance(self.focusWidget(), ModelRow) and self.focusWidget() is not self.open_file
        for row in self._rows():
            self._list_box.removeWidget(row)
            row.hide()
            row.deleteLater()
        for place, model in enumerate(models):
            row = ModelRow(model.name, f"{model.quantization} · {figures.size(model.size_bytes)}", model.path)
            row.setObjectName("model_row")
            row.clicked.connect(lambda _=False, path=model.path: self._choose(path))
            self._list_box.insertWidget(place, row)
        self._mark_loaded()
        height = self._rows()[0].sizeHint().height() if models else 0
        self._scroll.setFixedHeight(min(len(models), 6) * height)
        if self.isVisible():
            self.adjustSize()
            if had_row_focus and self._rows():
                self._rows()[0].show()
                self._rows()[0].setFocus(Qt.FocusReason.PopupFocusReason)

    def _rows(self) -> list[ModelRow]:
        items = [self._list_box.itemAt(i) for i in range(self._list_box.count())]
        widgets = [item.widget() for item in items if item is not None]
        return [widget for widget in widgets if isinstance(widget, ModelRow)]

    # ---- commands

    def _choose(self, path: str) -> None:
        self.hide()
        self._control.load(path)

    def _options_row(self) -> ModelRow:
        row = ModelRow("Load with options…", "", "Choose context, layers on the GPU and more before loading")
        row.setObjectName("load_options")
        row.clicked.connect(self._open_options)
        return row

    def _open_options(self) -> None:
        self.hide()
        self.options_requested.emit(self._control.state.path)

    def _open_file(self) -> None:
        self.hide()
        self._actions["open_model"].trigger()

    def _unload(self) -> None:
        self.hide()
        self._control.unload()

    def _reload(self) -> None:
        self.hide()
        self._control.reload()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Down, Qt.Key.Key_Up):
            rows = [*self._rows(), self.options, self.open_file]
            focused = self.focusWidget()
            place = rows.index(focused) if isinstance(focused, ModelRow) and focused in rows else -1
            step = 1 if event.key() == Qt.Key.Key_Down else -1
            row = rows[(place + step) % len(rows)]
            row.setFocus(Qt.FocusReason.TabFocusReason)
            self._scroll.ensureWidgetVisible(row, 0, 0)
        elif event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and isinstance(self.focusWidget(), QPushButton):
            focused = self.focusWidget()
            if isinstance(focused, QPushButton):
                focused.click()
        else:
            super().keyPressEvent(event)
