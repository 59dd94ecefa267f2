"""Errors in words: the only place that turns an `EngineError` or `ErrorInfo` into what a person reads."""

from __future__ import annotations

import json
import platform
import traceback
from dataclasses import dataclass

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QDialog, QHBoxLayout, QLabel, QPlainTextEdit, QPushButton, QVBoxLayout, QWidget

from engine.errors import EngineError
from engine.message import ErrorInfo

_TITLES = {
    "adapter_mismatch": "The adapter does not belong to this model",
    "already_running": "Inglenook is open already",
    "backend_missing": "llama.cpp cannot run here",
    "busy": "Busy",
    "cancelled": "Cancelled",
    "checksum_mismatch": "The file is not what it should be",
    "context_full": "This chat no longer fits the context",
    "database_damaged": "The chat database is damaged",
    "database_too_new": "These chats were written by a newer Inglenook",
    "disk_full": "The disk is full",
    "download_failed": "The download stopped",
    "gone": "It is not there any more",
    "grammar_failed": "The answer could not keep to its format",
    "hub_access_denied": "Access has to be asked for",
    "hub_not_found": "The Hub does not have this",
    "hub_unreachable": "The Hub cannot be reached",
    "invalid_request": "This value cannot be used",
    "load_failed": "The model could not be loaded",
    "model_damaged": "The model file is damaged",
    "model_not_found": "The model file is not there",
    "model_not_loaded": "No model is loaded",
    "model_unsupported": "This model is not supported",
    "not_a_model": "This is not a GGUF model",
    "not_enough_memory": "Not enough memory for this model",
    "storage_failed": "Saving failed",
    "template_failed": "The model's chat template failed",
    "update_check_failed": "Not known whether there is a new version",
    "worker_died": "The model process ended",
    "worker_mismatch": "The model process is of another version",
}
#: details that are said in words by `black_box_lines`
BLACK_BOX_KEYS = frozenset({"last", "why"})
#: codes after which loading the model again is the thing to do
RELOAD_CODES = frozenset({"worker_died", "worker_mismatch"})


@dataclass(frozen=True)
class Words:
    """An error for a banner or a dialog.

    Attributes:
        title: what kind of thing happened, a few words. text: one sentence, what happened. hint: what to do.
        details: facts for the folded part, one a line.
        is_bug: True for anything that is not an `EngineError`: a mistake of ours.
    """

    code: str
    title: str
    text: str
    hint: str = ""
    details: str = ""
    is_bug: bool = False


def as_info(error: BaseException | ErrorInfo) -> ErrorInfo:
    """The error as a record; a bug becomes code "bug" with its traceback in the details."""
    if isinstance(error, ErrorInfo):
        return error
    if isinstance(error, EngineError):
        return ErrorInfo(error.code, error.message, error.hint, dict(error.details))
    trace = "".join(traceback.format_exception(error))
    return ErrorInfo("bug", f"{type(error).__name__}: {error}", "", {"traceback": trace})


def describe(error: BaseException | ErrorInfo) -> Words:
    """Title, words, what to do and details of an error."""
    info = as_info(error)
    if info.code == "bug":
        return Words(
            "bug",
            "Something in Inglenook went wrong",
            info.message,
            "Inglenook goes on. The report below helps to find the mistake; it holds no text of your chats.",
            _details(info),
            is_bug=True,
        )
    title = _TITLES.get(info.code, "Something did not work")
    text = info.message
    if info.code == "worker_died":
        from engine import black_box

        text = sentences(text, black_box.sentence(info))
    return Words(info.code, title, text, info.hint, _details(info))


def sentences(*parts: str) -> str:
    """Texts after each other as sentences; empty ones are left out."""
    said = [part.strip() for part in parts if part.strip()]
    return " ".join(part if part[-1] in ".:!?…" else f"{part}." for part in said)


def _details(info: ErrorInfo) -> str:
    lines = black_box_lines(info)
    for key, value in info.details.items():
        if key in BLACK_BOX_KEYS:
            continue
        if isinstance(value, list | tuple):
            lines.append(f"{key}:")
            lines.extend(f"  {item}" for item in value)
        elif isinstance(value, dict):
            lines.append(f"{key}: {json.dumps(value, ensure_ascii=False, default=str)}")
        elif value not in (None, ""):
            lines.append(f"{key}: {value}")
    return "\n".join(lines)


def black_box_lines(info: ErrorInfo) -> list[str]:
    """What the model's process was at when it ended by itself, one fact a line."""
    if info.code != "worker_died":
        return []
    from engine import black_box

    return black_box.details(info)


def report(words: Words) -> str:
    """The text that "Copy report" puts on the clipboard."""
    import PySide6

    head = f"Inglenook on {platform.platform()}, Python {platform.python_version()}, Qt {PySide6.__version__}"
    return "\n".join(part for part in (head, words.title, words.text, words.hint, words.details) if part)


class ErrorDialog(QDialog):
    """What happened, what to do, the details folded, a button that copies it all. Not modal: the window goes on."""

    def __init__(self, words: Words, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._words = words
        self.setObjectName("error_dialog")
        self.setWindowTitle(words.title)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setMinimumWidth(460)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(20, 20, 20, 16)
        layout.setSpacing(8)
        for role, text in (("title", words.title), ("", words.text), ("secondary", words.hint)):
            if text:
                label = QLabel(text)
                label.setProperty("role", role)
                label.setWordWrap(True)
                label.setTextFormat(Qt.TextFormat.PlainText)
                label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
                layout.addWidget(label)
        self._details = QPlainTextEdit(words.details)
        self._details.setObjectName("error_details")
        self._details.setReadOnly(True)
        self._details.setAccessibleName("Details of the error")
        self._details.setToolTip("Facts about the error, for a report")
        self._details.setVisible(False)
        self._details.setMinimumHeight(180)
        layout.addWidget(self._details)
        row = QHBoxLayout()
        layout.addLayout(row)
        self._fold = QPushButton("Show details")
        self._fold.setProperty("kind", "text")
        self._fold.setToolTip("Show or hide the facts behind this message")
        self._fold.setVisible(bool(words.details))
        self._fold.clicked.connect(self._toggle)
        copy = QPushButton("Copy report")
        copy.setObjectName("copy_report")
        copy.setToolTip("Copy this message with its details and versions")
        copy.clicked.connect(lambda: QGuiApplication.clipboard().setText(report(self._words)))
        close = QPushButton("Close")
        close.setProperty("kind", "primary")
        close.setToolTip("Close this message")
        close.setDefault(True)
        close.clicked.connect(self.close)
        row.addWidget(self._fold)
        row.addStretch(1)
        row.addWidget(copy)
        row.addWidget(close)

    def _toggle(self) -> None:
        shown = not self._details.isVisible()
        self._details.setVisible(shown)
        self._fold.setText("Hide details" if shown else "Show details")
        self.adjustSize()


def show_dialog(error: BaseException | ErrorInfo, parent: QWidget | None = None) -> ErrorDialog:
    """Open a dialog for an error that belongs to no place in the window; returns at once."""
    dialog = ErrorDialog(describe(error), parent)
    dialog.open() if parent is None else dialog.show()
    return dialog
