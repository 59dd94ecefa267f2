"""The form that answers have to keep to: free text, JSON, a JSON Schema, a grammar."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtWidgets import QComboBox, QLabel, QPlainTextEdit, QWidget

from desktop import fonts
from desktop.views.settings.page import Section
from desktop.widgets.term import explain
from engine.errors import EngineError, InvalidRequest
from engine.message import AnswerFormat

#: checks a format somewhere else, then calls one of the two on the GUI thread, unless the widget is gone
Check = Callable[[AnswerFormat, Callable[[], None], Callable[[BaseException], None], QWidget], None]

_KINDS = (
    ("text", "Free text", "The model answers as it likes"),
    ("json", "JSON", "Any JSON object or list"),
    ("schema", "JSON by schema", "JSON that follows a JSON Schema"),
    ("grammar", "Grammar", "Text that a grammar in llama.cpp's GBNF allows"),
)
_NAMES = {"schema": "JSON Schema", "grammar": "Grammar"}
_TERMS = {"schema": "json_schema", "grammar": "grammar"}
_EXAMPLES = {
    "schema": '{\n  "type": "object",\n  "properties": {\n    "name": {"type": "string"},\n'
    '    "age": {"type": "integer", "minimum": 0}\n  },\n  "required": ["name", "age"],\n'
    '  "additionalProperties": false\n}',
    "grammar": 'root ::= ("yes" | "no") "\\n"',
}
_HELD = {
    "text": "",
    "json": "Every answer is a JSON object or list.",
    "schema": "This schema can be enforced: every complete answer follows it.",
    "grammar": "This grammar can be enforced: every complete answer follows it.",
}
_NOTHING = "Nothing is written here yet, so answers stay free text."
_CHECK_DELAY_MS = 400


class AnswerFormatSection(Section):
    """Signals:
    changed(): the format is another now, also while it is typed.
    """

    changed = Signal()

    def __init__(self, answer_format: AnswerFormat, check: Check) -> None:
        super().__init__(
            "Answer format",
            "Only what fits the format can be written. Thinking comes before it and stays free.",
        )
        self.setObjectName("answer_format_section")
        self._check = check
        self._texts = {"schema": "", "grammar": ""}
        if answer_format.kind in self._texts:
            self._texts[answer_format.kind] = answer_format.text
        self._number = 0
        self.kind = QComboBox()
        self.kind.setObjectName("answer_format")
        for value, label, tip in _KINDS:
            self.kind.addItem(label, value)
            self.kind.setItemData(self.kind.count() - 1, tip, Qt.ItemDataRole.ToolTipRole)
        self.kind.setCurrentIndex(self.kind.findData(answer_format.kind))
        tip = "The form that every answer of this chat has to keep to"
        for part in (self.row("Answers are", self.kind, tip), self.kind):
            explain(part, "answer_format", tip)
        self.text = QPlainTextEdit()
        self.text.setObjectName("answer_format_text")
        self.text.setAccessibleName("The schema or grammar")
        self.text.setToolTip("What answers of this chat have to follow")
        self.text.setTabChangesFocus(True)
        self.text.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.words = QLabel()
        self.words.setObjectName("answer_format_words")
        self.words.setWordWrap(True)
        self.words.setTextFormat(Qt.TextFormat.PlainText)
        self.words.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.add(self.text)
        self.add(self.words)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(_CHECK_DELAY_MS)
        self._timer.timeout.connect(self._ask)
        self._show_kind()
        self._ask()
        self.kind.currentIndexChanged.connect(self._on_kind)
        self.text.textChanged.connect(self._on_text)

    def apply_scale(self, scale: float) -> None:
        super().apply_scale(scale)
        self.text.setFont(fonts.mono_font(scale))
        self.text.setFixedHeight(self.text.fontMetrics().lineSpacing() * 10 + 16)

    def value(self) -> AnswerFormat:
        """The format as it stands; free text while nothing is written."""
        kind = self.kind.currentData()
        text = self._texts.get(kind, "")
        if kind in self._texts and not text.strip():
            return AnswerFormat()
        return AnswerFormat(kind, text)

    # ------------------------------------------------------------------ what the user does

    def _on_kind(self) -> None:
        self._show_kind()
        self._ask()
        self.changed.emit()

    def _on_text(self) -> None:
        kind = self.kind.currentData()
        if kind not in self._texts or self._texts[kind] == self.text.toPlainText():
            return
        self._texts[kind] = self.text.toPlainText()
        self._number += 1  # what is being checked now is old
        self._timer.start()
        self.changed.emit()

    def _show_kind(self) -> None:
        kind = self.kind.currentData()
        written = kind in self._texts
        self.text.setVisible(written)
        if not written:
            return
        name = _NAMES[kind]
        self.text.setAccessibleName(name)
        explain(self.text, _TERMS[kind], f"{name} that answers of this chat have to follow")
        self.text.setPlaceholderText(_EXAMPLES[kind])
        self.text.setPlainText(self._texts[kind])

    # ------------------------------------------------------------------ the check

    def _ask(self) -> None:
        self._timer.stop()
        self._number += 1
        number, value = self._number, self.value()
        kind = self.kind.currentData()
        if value.kind not in self._texts:
            self._say(_NOTHING if kind in self._texts else _HELD[kind])
            return
        self._say("Checking…")

        def held() -> None:
            if number == self._number:
                self._say(_HELD[kind])

        def failed(error: BaseException) -> None:
            if number == self._number:
                self._fail(error)

        self._check(value, held, failed, self)

    def _fail(self, error: BaseException) -> None:
        if isinstance(error, InvalidRequest):
            self._say(f"{error.message}. {error.hint}".strip(), role="bad")
            return
        why = error.message if isinstance(error, EngineError) else str(error)
        self._say(f"This could not be checked: {why}.", role="warn")

    def _say(self, words: str, *, role: str = "label") -> None:
        self.words.setText(words)
        self.words.setVisible(bool(words))
        self.text.setAccessibleDescription(words)
        for widget, name, value in (
            (self.words, "role", role),
            (self.text, "invalid", "true" if role == "bad" else "false"),
        ):
            if widget.property(name) != value:
                widget.setProperty(name, value)
                widget.style().unpolish(widget)
                widget.style().polish(widget)
