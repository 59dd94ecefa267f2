"""What stands between the search box and the list: asking, no answer, access needed, nothing found."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QLineEdit, QProgressBar, QPushButton, QVBoxLayout, QWidget

from desktop.errors import describe, sentences
from desktop.widgets.term import explain
from engine.errors import EngineError, HubAccessDenied


class HubState(QFrame):
    """Hidden while there is nothing to say.

    Signals:
        retry_requested: ask again. token_entered(str): an access token was typed.
    """

    retry_requested = Signal()
    token_entered = Signal(str)

    def __init__(self, name: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName(name)
        self.title = QLabel()
        self.title.setObjectName("banner_title")
        self.title.setWordWrap(True)
        self.text = QLabel()
        self.text.setProperty("role", "small")
        for label in (self.title, self.text):
            label.setWordWrap(True)
            label.setTextFormat(Qt.TextFormat.PlainText)
        self.busy = QProgressBar()
        self.busy.setRange(0, 0)
        self.busy.setTextVisible(False)
        self.busy.setAccessibleName("Asking the Hub")
        self.busy.setToolTip("The Hub is being asked")
        self.token = QLineEdit()
        self.token.setObjectName("hub_token")
        self.token.setEchoMode(QLineEdit.EchoMode.Password)
        self.token.setPlaceholderText("Access token (hf_…)")
        self.token.setAccessibleName("Access token for the Hub")
        tip = "Kept in the key store of this system, sent to the Hub only, never written to a log"
        explain(self.token, "gated_model", tip)
        self.token.returnPressed.connect(self._send_token)
        self.save = self._button("hub_token_save", "Save", "Keep the token in the key store and ask again")
        self.save.clicked.connect(self._send_token)
        self.retry = self._button("hub_retry", "Try again", "Ask the Hub again")
        self.retry.clicked.connect(self.retry_requested)
        self._token_row = QWidget()
        row = QHBoxLayout(self._token_row)
        row.setContentsMargins(0, 4, 0, 0)
        row.setSpacing(8)
        row.addWidget(self.token, 1)
        row.addWidget(self.save)
        box = QVBoxLayout(self)
        box.setContentsMargins(12, 10, 12, 10)
        box.setSpacing(4)
        for widget in (self.title, self.busy, self.text, self._token_row):
            box.addWidget(widget)
        box.addWidget(self.retry, 0, Qt.AlignmentFlag.AlignLeft)
        self.hide()

    @staticmethod
    def _button(name: str, words: str, tip: str) -> QPushButton:
        button = QPushButton(words)
        button.setObjectName(name)
        button.setToolTip(tip)
        button.setAccessibleName(words)
        button.setAutoDefault(False)
        return button

    def show_busy(self, words: str) -> None:
        self._show("", words, "", busy=True)

    def show_note(self, title: str, text: str = "") -> None:
        """Nothing went wrong, but there is something to say."""
        self._show("", title, text)

    def show_error(self, error: BaseException, *, what_stays: str = "") -> None:
        """What happened and what to do. `what_stays`: a sentence about what can be done without the Hub."""
        words = describe(error)
        text = sentences(words.text, words.hint, what_stays)
        denied = isinstance(error, HubAccessDenied)
        known = isinstance(error, EngineError)
        self._show("warn" if known else "bad", words.title, text, token=denied, retry=not denied)

    def _show(
        self, tone: str, title: str, text: str, *, busy: bool = False, token: bool = False, retry: bool = False
    ) -> None:
        self.title.setText(title)
        self.text.setText(text)
        self.text.setVisible(bool(text))
        self.busy.setVisible(busy)
        self._token_row.setVisible(token)
        self.retry.setVisible(retry)
        self.setAccessibleName(title)
        self.setAccessibleDescription(text)
        if self.property("banner") != tone:
            self.setProperty("banner", tone)
            for widget in (self, self.title):
                widget.style().unpolish(widget)
                widget.style().polish(widget)
        self.show()

    def clear(self) -> None:
        self.token.clear()
        self.hide()

    def _send_token(self) -> None:
        token = self.token.text().strip()
        if token:
            self.token.clear()
            self.token_entered.emit(token)
