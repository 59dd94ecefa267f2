"""The settings: of the application, and what the open chat sets for itself. Every change holds at once."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QFont, QFontMetrics
from PySide6.QtWidgets import (
    QCheckBox,
    QHBoxLayout,
    QLabel,
    QPlainTextEdit,
    QPushButton,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from desktop import fonts
from desktop.actions import SPECS, Actions
from desktop.bridge import EngineBridge
from desktop.model_control import ModelControl
from desktop.theme import Theme
from desktop.update_desk import UpdateDesk
from desktop.views.settings.about_section import AboutSection, DataSection
from desktop.views.settings.page import Section, hairline
from desktop.views.settings.sampling_form import ChoiceBox, SamplingForm
from desktop.views.settings.trace_section import TraceSection
from desktop.widgets.term import explain
from engine.errors import EngineError
from engine.sampling import SamplingParams

if TYPE_CHECKING:
    from desktop.views.settings.engine_page import EnginePage
    from engine.service import Engine

GENERAL, ENGINE = range(2)
_TABS = (
    ("settings_general", "General", "The window, chats and how answers are chosen"),
    ("settings_engine", "Engine", "How models are loaded and computed"),
)
_TEXT_DELAY_MS = 600
_WIDTH = 620
_SCALES = tuple(step / 10 for step in range(8, 21))  # the steps of the Larger and Smaller text commands
_THEMES = (("system", "As the system"), ("light", "Light"), ("dark", "Dark"))
_OVERFLOWS = (
    ("drop_oldest", "Leave out the oldest turns"),
    ("roll", "Leave them out in mid-answer too"),
    ("error", "Refuse, and say so"),
)


class SettingsView(QWidget):
    """The page for all chats.

    Signals:
        failed(object): a value could not be saved.
    """

    failed = Signal(object)

    def __init__(
        self,
        engine: Engine,
        bridge: EngineBridge,
        control: ModelControl,
        actions: Actions,
        updates: UpdateDesk,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._engine = engine
        self._bridge = bridge
        self._control = control
        self._theme: Theme | None = None
        self._scale = 1.0
        self._sections: list[Section] = []
        self._loading = True
        self.engine_page: EnginePage | None = None  # made when it is first shown
        self.setObjectName("settings_view")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        page = QWidget()
        self._content = page
        self._page = QVBoxLayout(page)
        self._page.setContentsMargins(4, 20, 4, 32)
        self._page.setSpacing(0)
        title = QLabel("Settings")
        title.setProperty("role", "title")
        self._page.addWidget(title)
        self._page.addLayout(self._tab_row())
        self._general = QWidget()
        self._list = QVBoxLayout(self._general)
        self._list.setContentsMargins(0, 0, 0, 0)
        self._list.setSpacing(0)
        self._page.addWidget(self._general)
        self._add_sections(actions, updates)
        self._page.addStretch(1)
        outer = QWidget()
        centre = QHBoxLayout(outer)
        centre.setContentsMargins(20, 0, 20, 0)
        centre.addStretch(1)
        centre.addWidget(page, 100)
        centre.addStretch(1)
        self._scroll = scroll = QScrollArea()
        scroll.setObjectName("settings_scroll")
        scroll.setWidgetResizable(True)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAsNeeded)
        scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        scroll.setWidget(outer)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(scroll)
        self._text_timer = QTimer(self)
        self._text_timer.setSingleShot(True)
        self._text_timer.setInterval(_TEXT_DELAY_MS)
        self._text_timer.timeout.connect(self.commit)
        self.load()

    def _add_sections(self, actions: Actions, updates: UpdateDesk) -> None:
        self.data = DataSection(self._engine)
        self.about = AboutSection(self._engine, self._bridge, updates)
        self.about.failed.connect(self.failed)
        for make in (self._instructions, self._chats, self._traces, self._appearance, self._sampling):
            self._add(make())
        for section in (self.data, self.about, self._keyboard(actions)):
            self._add(section)

    def _add(self, section: Section) -> None:
        self._sections.append(section)
        self._list.addWidget(section)
        self._list.addWidget(hairline())

    # ---- tabs

    def _tab_row(self) -> QHBoxLayout:
        row = QHBoxLayout()
        row.setContentsMargins(0, 10, 0, 0)
        row.setSpacing(12)
        self.tabs: list[QPushButton] = []
        for place, (name, words, tip) in enumerate(_TABS):
            tab = QPushButton(words)
            tab.setObjectName(name)
            tab.setProperty("kind", "tab")
            tab.setCheckable(True)
            tab.setChecked(place == GENERAL)
            tab.setAccessibleName(words)
            tab.setToolTip(tip)
            tab.clicked.connect(lambda _=False, place=place: self.show_tab(place))
            self.tabs.append(tab)
            row.addWidget(tab)
        row.addStretch(1)
        return row

    def show_tab(self, place: int) -> None:
        """One of GENERAL, ENGINE."""
        for number, tab in enumerate(self.tabs):
            tab.setChecked(number == place)
        if place == ENGINE and self.engine_page is None:
            from desktop.views.settings.engine_page import EnginePage

            self.engine_page = EnginePage(self._engine, self._bridge, self._control)
            self.engine_page.failed.connect(self.failed)
            self._page.insertWidget(self._page.indexOf(self._general) + 1, self.engine_page)
            if self._theme is not None:
                self.engine_page.apply_theme(self._theme, self._scale)
        self._general.setVisible(place == GENERAL)
        if self.engine_page is not None:
            self.engine_page.setVisible(place == ENGINE)
            self.engine_page.load()
        self._scroll.verticalScrollBar().setValue(0)

    # ---- sections

    def _instructions(self) -> Section:
        section = Section(
            "System prompt",
            "What the model is told before the first message of every chat. A chat can have its own instead.",
        )
        self.system_prompt = QPlainTextEdit()
        self.system_prompt.setObjectName("system_prompt")
        self.system_prompt.setAccessibleName("System prompt")
        explain(self.system_prompt, "system_prompt", "Sent as the system message, before your first message")
        self.system_prompt.setPlaceholderText("For example: Answer in short sentences.")
        self.system_prompt.setFixedHeight(88)
        self.system_prompt.setTabChangesFocus(True)
        self.system_prompt.textChanged.connect(self._on_text)
        section.add(self.system_prompt)
        return section

    def _chats(self) -> Section:
        section = Section("Chats")
        self.overflow = ChoiceBox()
        self.overflow.setObjectName("overflow")
        for value, words in _OVERFLOWS:
            self.overflow.addItem(words, value)
        self.overflow.currentIndexChanged.connect(lambda _: self._set("overflow", self.overflow.currentData()))
        tip = "What to do when the messages are longer than the context. What is left out is always said."
        for part in (section.row("When a chat no longer fits", self.overflow, tip, width=240), self.overflow):
            explain(part, "dropped_turns", tip)
        return section

    def _traces(self) -> Section:
        self.traces = TraceSection(self._engine, self._bridge)
        self.traces.failed.connect(self.failed)
        return self.traces

    def _appearance(self) -> Section:
        section = Section("Window")
        self.theme = ChoiceBox()
        self.theme.setObjectName("theme")
        for value, words in _THEMES:
            self.theme.addItem(words, value)
        self.theme.currentIndexChanged.connect(lambda _: self._set("theme", self.theme.currentData()))
        section.row("Theme", self.theme, "Light or dark colours")
        self.text_scale = ChoiceBox()
        self.text_scale.setObjectName("text_scale")
        for scale in _SCALES:
            self.text_scale.addItem(f"{scale:.0%}", scale)
        self.text_scale.currentIndexChanged.connect(lambda _: self._set("text_scale", self.text_scale.currentData()))
        section.row("Text size", self.text_scale, "Size of all text; 100% is the system's own")
        boxes = (
            ("enter_sends", "Enter sends the message", "Off: Shift+Enter sends, and Enter starts a new line"),
            ("show_status", "Show speeds and memory", "The line of measured figures under the chat"),
            ("reduced_motion", "Reduced motion", "The text cursor does not blink, and menus open without sliding"),
        )
        self._boxes: dict[str, QCheckBox] = {}
        for name, words, tip in boxes:
            box = QCheckBox(words)
            box.setObjectName(name)
            box.setAccessibleName(words)
            box.setToolTip(tip)
            box.toggled.connect(lambda on, name=name: self._set(name, on))
            self._boxes[name] = box
            section.add(box)
        return section

    def _sampling(self) -> Section:
        self._sampling_section = Section("Sampling", "How the next token is chosen. A chat can have its own values.")
        self.sampling: SamplingForm | None = None
        QTimer.singleShot(0, self, self._add_sampling)  # half of the page's cost, in a turn of its own
        return self._sampling_section

    def _add_sampling(self) -> None:
        form = SamplingForm()
        form.set_params(self._engine.settings.sampling, SamplingParams())
        form.changed.connect(lambda params: self._set("sampling", params))
        if self._theme is not None:
            form.apply_theme(self._theme, self._scale)
        self._sampling_section.add(form)
        self.sampling = form

    def _keyboard(self, actions: Actions) -> Section:
        section = Section("Keyboard")
        rows = "".join(
            f"<tr><td width='100%'>{escape(spec.text)}</td><td align='right'>{escape(actions.keys(spec.id))}</td></tr>"
            for spec in SPECS
            if spec.shortcuts
        )
        # one label for all: a widget for each of fifty words would make every change of the theme slower
        table = QLabel(f"<table width='100%' cellpadding='3'>{rows}</table>")
        table.setObjectName("keyboard_table")
        table.setProperty("role", "secondary")
        table.setAccessibleName("Keyboard shortcuts")
        section.add(table)
        return section

    # ---- values

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self._theme, self._scale = theme, scale
        self._content.setMaximumWidth(round(_WIDTH * max(1.0, scale)))
        bold = fonts.ui_font(scale)
        bold.setWeight(QFont.Weight.DemiBold)
        for tab in self.tabs:  # the chosen one is bold and must not grow
            tab.setMinimumWidth(QFontMetrics(bold).horizontalAdvance(tab.text()) + 10)
        self.system_prompt.setFixedHeight(round(88 * max(1.0, scale)))
        for section in self._sections:
            section.apply_scale(scale)
        if self.sampling is not None:
            self.sampling.apply_theme(theme, scale)
        self.data.apply_theme(theme)
        if self.engine_page is not None:
            self.engine_page.apply_theme(theme, scale)

    def load(self) -> None:
        """Show the settings as they are."""
        settings = self._engine.settings
        self._loading = True
        if self.system_prompt.toPlainText() != settings.system_prompt:
            self.system_prompt.setPlainText(settings.system_prompt)
        self.overflow.setCurrentIndex(max(0, self.overflow.findData(settings.overflow)))
        self.theme.setCurrentIndex(max(0, self.theme.findData(settings.theme)))
        nearest = min(range(len(_SCALES)), key=lambda i: abs(_SCALES[i] - settings.text_scale))
        self.text_scale.setCurrentIndex(nearest)
        for name, box in self._boxes.items():
            box.setChecked(bool(getattr(settings, name)))
        self.traces.load()
        self.about.load()
        if self.sampling is not None:
            self.sampling.set_params(settings.sampling, SamplingParams())
        if self.engine_page is not None:
            self.engine_page.load()
        self._loading = False

    def commit(self) -> None:
        """Take what was typed now."""
        if not self._text_timer.isActive() and self._loading:
            return
        self._text_timer.stop()
        self._save({"system_prompt": self.system_prompt.toPlainText()})

    def _on_text(self) -> None:
        if not self._loading:
            self._text_timer.start()

    def _set(self, name: str, value: Any) -> None:
        if not self._loading:
            self._save({name: value})

    def _save(self, values: dict[str, Any]) -> None:
        settings = self._engine.settings
        changed = {name: value for name, value in values.items() if getattr(settings, name) != value}
        if not changed:
            return
        try:
            future = self._engine.change_settings(**changed)
        except EngineError as error:
            self.failed.emit(error)
            return
        self._bridge.run(future, None, self.failed.emit, owner=self)
