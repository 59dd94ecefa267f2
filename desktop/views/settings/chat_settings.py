"""What one chat sets for itself: system prompt, answer format and sampling."""

from __future__ import annotations

import msgspec
from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtWidgets import (
    QCheckBox,
    QDialog,
    QHBoxLayout,
    QLabel,
    QPlainTextEdit,
    QPushButton,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from desktop.theme import Theme
from desktop.views.settings.answer_format import AnswerFormatSection, Check
from desktop.views.settings.page import Section
from desktop.views.settings.sampling_form import SamplingForm
from desktop.widgets.term import explain
from engine.message import ChatSettings
from engine.sampling import SamplingParams

_TEXT_DELAY_MS = 600


class ChatSettingsDialog(QDialog):
    """Not modal: the chat can go on beside it.

    Signals:
        changed(ChatSettings): a moment after the last change, and when it closes.
    """

    changed = Signal(object)

    def __init__(
        self,
        settings: ChatSettings,
        app_prompt: str,
        app_sampling: SamplingParams,
        theme: Theme,
        scale: float,
        check: Check,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self.setObjectName("chat_settings")
        self.setWindowTitle("Settings of this chat")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.resize(round(520 * max(1.0, scale)), round(640 * max(1.0, min(scale, 1.3))))
        self._settings = settings
        self._app_sampling = app_sampling
        page = QWidget()
        inner = QVBoxLayout(page)
        inner.setContentsMargins(20, 8, 20, 12)
        inner.setSpacing(0)
        inner.addWidget(self._instructions(app_prompt))
        self.format = AnswerFormatSection(settings.answer_format, check)
        self.format.apply_scale(scale)
        inner.addWidget(self.format)
        inner.addWidget(self._sampling(theme, scale))
        inner.addStretch(1)
        scroll = QScrollArea()
        scroll.setWidgetResizable(True)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        scroll.setWidget(page)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(scroll, 1)
        layout.addLayout(self._bottom())
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(_TEXT_DELAY_MS)
        self._timer.timeout.connect(self.commit)
        self.system_prompt.textChanged.connect(self._timer.start)
        self.format.changed.connect(self._timer.start)
        self.form.changed.connect(lambda _: self.commit())
        self.own_sampling.toggled.connect(self._on_own)

    def _instructions(self, app_prompt: str) -> Section:
        instructions = Section("System prompt of this chat", "Empty: the one for all chats is used.")
        self.system_prompt = QPlainTextEdit(self._settings.system_prompt)
        self.system_prompt.setObjectName("chat_system_prompt")
        self.system_prompt.setAccessibleName("System prompt of this chat")
        tip = "What the model is told before the first message, in place of the prompt for all chats"
        explain(self.system_prompt, "system_prompt", tip)
        self.system_prompt.setPlaceholderText(app_prompt or "No system prompt")
        self.system_prompt.setFixedHeight(110)
        self.system_prompt.setTabChangesFocus(True)
        instructions.add(self.system_prompt)
        return instructions

    def _sampling(self, theme: Theme, scale: float) -> Section:
        sampling = Section("Sampling")
        self.own_sampling = QCheckBox("This chat has its own sampling")
        self.own_sampling.setObjectName("own_sampling")
        self.own_sampling.setAccessibleName("This chat has its own sampling")
        explain(self.own_sampling, "sampling", "Off: the sampling of the settings is used")
        self.own_sampling.setChecked(self._settings.sampling is not None)
        sampling.add(self.own_sampling)
        self.form = SamplingForm()
        self.form.set_params(self._settings.sampling or self._app_sampling, self._app_sampling)
        self.form.reset_all.setText("Reset to the settings for all chats")
        self.form.setEnabled(self._settings.sampling is not None)
        self.form.apply_theme(theme, scale)
        sampling.add(self.form)
        return sampling

    def _bottom(self) -> QHBoxLayout:
        close = QPushButton("Done")
        close.setObjectName("chat_settings_done")
        close.setProperty("kind", "primary")
        close.setToolTip("Keep these settings and close")
        close.setAutoDefault(False)
        close.clicked.connect(self.accept)
        note = QLabel("Changes apply from the next answer.")
        note.setProperty("role", "label")
        row = QHBoxLayout()
        row.setContentsMargins(20, 8, 20, 12)
        row.addWidget(note, 1)
        row.addWidget(close)
        return row

    def _on_own(self, own: bool) -> None:
        self.form.setEnabled(own)
        if not own:
            self.form.set_params(self._app_sampling)
        self.commit()

    def settings(self) -> ChatSettings:
        """The settings as they stand."""
        sampling = self.form.params if self.own_sampling.isChecked() else None
        return msgspec.structs.replace(
            self._settings,
            system_prompt=self.system_prompt.toPlainText(),
            sampling=sampling,
            answer_format=self.format.value(),
        )

    def commit(self) -> None:
        """Take what was typed now."""
        self._timer.stop()
        settings = self.settings()
        if settings != self._settings:
            self._settings = settings
            self.changed.emit(settings)

    def done(self, result: int) -> None:
        """Close; the button, Esc and the frame's cross all end here, and all keep what was typed."""
        self.form.commit()
        self.commit()
        super().done(result)
