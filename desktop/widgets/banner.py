"""A message that belongs to a place in the window: what happened, what to do, the details folded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPlainTextEdit, QPushButton, QVBoxLayout, QWidget

from desktop.errors import Words, report
from desktop.widgets.fitting_scroll import FittingScroll
from desktop.widgets.wrap_row import WrapRow


def _label(name: str) -> QLabel:
    label = QLabel()
    label.setObjectName(name)
    label.setWordWrap(True)
    label.setTextFormat(Qt.TextFormat.PlainText)
    label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    return label


@dataclass(frozen=True)
class Offer:
    """One more button of a banner.

    Attributes:
        name: of the object. stays: the banner stays when it was pressed.
    """

    name: str
    text: str
    tip: str
    act: Callable[[], None]
    stays: bool = False


class Banner(QFrame):
    """Hidden until `show_words` or `show_text`.

    Signals:
        closed: the user closed it.
    """

    closed = Signal()

    def __init__(self, name: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName(name)
        self.setProperty("banner", "bad")
        self._words: Words | None = None
        self._act: Callable[[], None] | None = None
        self._copier: Callable[[], None] | None = None
        self._offers: list[QPushButton] = []
        inner = QWidget()
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.addWidget(FittingScroll(inner))
        layout = QVBoxLayout(inner)
        layout.setContentsMargins(16, 12, 12, 12)
        layout.setSpacing(4)
        self._title = _label("banner_title")
        self._text = _label("banner_text")
        self._hint = _label("banner_hint")
        layout.addWidget(self._title)
        layout.addWidget(self._text)
        layout.addWidget(self._hint)
        self._details = QPlainTextEdit()
        self._details.setObjectName("banner_details")
        self._details.setReadOnly(True)
        self._details.setAccessibleName("Details")
        self._details.setToolTip("Facts about what happened")
        self._details.setFixedHeight(150)
        self._details.hide()
        layout.addWidget(self._details)
        row = QHBoxLayout()
        row.setSpacing(8)
        row.setContentsMargins(0, 6, 0, 0)
        layout.addLayout(row)
        self._action = self._button("banner_action", "Try again", "Do what helps here", "primary")
        self._fold = self._button("banner_fold", "Details", "Show or hide the facts behind this message")
        self._copy = self._button("banner_copy", "Copy report", "Copy this message with its details")
        self._close = self._button("banner_close", "Close", "Close this message")
        self._row = WrapRow()
        for button in (self._action, self._fold, self._copy):
            self._row.addWidget(button)
        row.addLayout(self._row, 1)
        row.addWidget(self._close, 0, Qt.AlignmentFlag.AlignTop)
        self._action.clicked.connect(self._run_action)
        self._fold.clicked.connect(self._toggle)
        self._copy.clicked.connect(self._copy_report)
        self._close.clicked.connect(self._on_close)
        self.hide()

    def _button(self, name: str, text: str, tip: str, kind: str = "text") -> QPushButton:
        button = QPushButton(text)
        button.setObjectName(name)
        button.setProperty("kind", kind)
        button.setToolTip(tip)
        return button

    @property
    def words(self) -> Words | None:
        """What it shows now, None while hidden."""
        return self._words

    def show_words(
        self,
        words: Words,
        *,
        tone: str = "bad",
        action: str = "",
        tip: str = "",
        act: Callable[[], None] | None = None,
        copy: Callable[[], None] | None = None,
    ) -> None:
        """Show an error.

        Args:
            tone: "bad", "warn" or "info".
            action: words of the one button that helps, with its tooltip and what it does.
            copy: what "Copy report" does; None: it copies these words with their details.
        """
        self._drop_offers()
        self._words = words
        self._act, self._copier = act, copy
        self._title.setText(words.title)
        self._text.setText(words.text)
        self._text.setVisible(bool(words.text))
        self._hint.setText(words.hint)
        self._hint.setVisible(bool(words.hint))
        self._details.setPlainText(words.details)
        self._details.hide()
        self._fold.setVisible(bool(words.details))
        self._copy.setVisible(bool(words.details))
        if action:
            self._action.setText(action)
            self._action.setToolTip(tip or action)
        self._action.setVisible(bool(action))
        self.setAccessibleName(words.title)
        self.setAccessibleDescription(f"{words.text} {words.hint}".strip())
        if self.property("banner") != tone:
            self.setProperty("banner", tone)
            self.style().unpolish(self)
            self.style().polish(self)
            for child in self.findChildren(QLabel):
                child.style().unpolish(child)
                child.style().polish(child)
        self.show()

    def add_offer(self, offer: Offer, *, first: bool = False) -> None:
        """Show one more button until other words are shown; `first`: before those that were added already."""
        button = self._button(offer.name, offer.text, offer.tip)

        def run() -> None:
            if not offer.stays:
                self.dismiss()
            offer.act()

        button.clicked.connect(run)
        place = 1 if first else 1 + len(self._offers)
        self._offers.append(button)
        self._row.insert(place, button)
        before = self._action if place == 1 else self._offers[-2]
        QWidget.setTabOrder(before, button)
        button.show()

    def _drop_offers(self) -> None:
        for button in self._offers:
            self._row.removeWidget(button)
            button.hide()
            button.deleteLater()
        self._offers.clear()

    def dismiss(self) -> None:
        self._drop_offers()
        self._words = None
        self._act = self._copier = None
        self.hide()

    def _run_action(self) -> None:
        act = self._act
        self.dismiss()
        if act is not None:
            act()

    def _toggle(self) -> None:
        self._details.setVisible(not self._details.isVisible())

    def _copy_report(self) -> None:
        if self._copier is not None:
            self._copier()
        elif self._words is not None:
            QGuiApplication.clipboard().setText(report(self._words))

    def _on_close(self) -> None:
        self.dismiss()
        self.closed.emit()
