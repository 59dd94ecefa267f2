"""Behind the context meter: every turn with its tokens, what would be left out, and the rule by which that goes."""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtCore import QModelIndex, QPoint, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QFrame, QLabel, QListView, QSizePolicy, QVBoxLayout, QWidget

from desktop.delegates.context_rows import ContextRowDelegate
from desktop.models import context
from desktop.models.context import ContextRows, Row
from desktop.theme import LIGHT, Theme
from desktop.widgets import context_bar
from desktop.widgets.context_bar import Segment
from desktop.widgets.controls import Choice
from desktop.widgets.term import explain, help_of
from engine.events import ContextLedger

_WIDTH = 460
_MAX_ROWS = 10
#: (setting, words, what it means)
POLICIES = (
    (
        "drop_oldest",
        "Leave out",
        "When you send, the oldest whole turns are left out. System prompt and pinned turns stay.",
    ),
    (
        "roll",
        "Roll on",
        "As before, and an answer that reaches the end of the context goes on: more of the oldest turns give way.",
    ),
    ("error", "Stop", "Nothing is left out. A message that does not fit is not answered, and an answer ends there."),
)


class BigBar(QWidget):
    """The bar of the meter, large enough to see its hatching."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = LIGHT
        self._segments: tuple[Segment, ...] = ()
        self._total = 0
        self.setObjectName("context_bar")
        self.setAccessibleName("Context by kind")
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def apply_theme(self, theme: Theme) -> None:
        self._theme = theme
        self.update()

    def set_segments(self, segments: tuple[Segment, ...], total: int) -> None:
        self._segments, self._total = segments, total
        words = ", ".join(segment.words for segment in segments)
        self.setAccessibleDescription(words)
        self.setToolTip(words[:1].upper() + words[1:])
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(280, 18)

    def paintEvent(self, event: QPaintEvent) -> None:
        context_bar.paint(QPainter(self), QRectF(self.rect()), self._segments, self._total, self._theme)


class ContextPopup(QFrame):
    """Signals:
    message_chosen(int): the user wants to see this message. policy_chosen(str): a value of the setting "overflow".
    """

    message_chosen = Signal(int)
    policy_chosen = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent, Qt.WindowType.Popup)
        self._scale = 1.0
        self._anchor: QWidget | None = None
        self.setObjectName("context_popup")
        self.setAccessibleName("Context")
        self.title = QLabel("Context")
        self.title.setProperty("role", "section")
        self.words = QLabel()
        self.words.setObjectName("context_words")
        self.words.setProperty("role", "small")
        self.words.setTextFormat(Qt.TextFormat.PlainText)
        self.words.setWordWrap(True)
        self.bar = BigBar()
        self.model = ContextRows(self)
        self.delegate = ContextRowDelegate(self)
        self.list = self._make_list()
        heading = QLabel("When a chat no longer fits")
        heading.setProperty("role", "label")
        self.policy = Choice(
            "context_policy",
            "When a chat no longer fits",
            "What happens to a chat that is longer than the context",
            [(value, words) for value, words, _ in POLICIES],
            term="dropped_turns",
        )
        self.policy.chosen.connect(self._choose)
        explain(heading, "dropped_turns", "What happens to a chat that is longer than the context")
        explain(self.title, "context_window", "How many tokens of the context window are used, and by what")
        self.policy_words = QLabel()
        self.policy_words.setObjectName("context_policy_words")
        self.policy_words.setProperty("role", "small")
        self.policy_words.setTextFormat(Qt.TextFormat.PlainText)
        self.policy_words.setWordWrap(True)
        line = QFrame()
        line.setObjectName("hairline")
        box = QVBoxLayout(self)
        box.setContentsMargins(14, 12, 14, 14)
        box.setSpacing(8)
        for widget in (self.title, self.words, self.bar, self.list, line, heading, self.policy, self.policy_words):
            box.addWidget(widget)

    def _make_list(self) -> QListView:
        view = QListView()
        view.setObjectName("context_list")
        view.setAccessibleName("Turns in the context")
        explain(view, "context_window", "What stands in the context; a click goes to the message")
        view.setModel(self.model)
        view.setItemDelegate(self.delegate)
        view.setMouseTracking(True)
        view.setUniformItemSizes(True)
        view.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        view.setVerticalScrollMode(QListView.ScrollMode.ScrollPerPixel)
        view.clicked.connect(self._activated)
        return view

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self._scale = scale
        self.setFixedWidth(round(_WIDTH * max(1.0, scale)))
        self.bar.apply_theme(theme)
        self.delegate.apply_theme(theme, scale)
        self.list.viewport().update()
        self._fit()

    # ---- content

    def show_nothing(self, words: str) -> None:
        """There is no ledger; `words` say why."""
        self.words.setText(words)
        self.bar.set_segments((), 0)
        self.model.set_rows(())
        self._fit()

    def show_ledger(self, ledger: ContextLedger, texts: Mapping[int, str], draft: str) -> None:
        """texts: of the stored messages by id. draft: what is being typed."""
        self.words.setText(context.summary(ledger))
        segments = context.segments(ledger)
        self.bar.set_segments(segments, sum(segment.n_tokens for segment in segments))
        self.model.set_rows(context.rows(ledger, texts, draft))
        self._fit()

    def set_policy(self, policy: str) -> None:
        """Mark a value of the setting "overflow"."""
        self.policy.set_value(policy)
        self.policy_words.setText(next((tip for value, _, tip in POLICIES if value == policy), ""))
        self._fit()

    def _choose(self, policy: str) -> None:
        self.set_policy(policy)
        self.policy_chosen.emit(policy)

    def _fit(self) -> None:
        height = round(28 * self._scale)
        self.list.setFixedHeight(max(1, min(len(self.model.rows), _MAX_ROWS)) * height + 2)
        self.list.setVisible(bool(self.model.rows))
        if self.isVisible() and self._anchor is not None:
            self._place(self._anchor)

    # ---- showing

    def open_above(self, widget: QWidget) -> None:
        """Show it over the meter, its end first, or its beginning where something would be left out."""
        self._anchor = widget
        self._place(widget)
        self.show()
        kinds = [row.kind for row in self.model.rows]
        turns = [place for place, kind in enumerate(kinds) if kind not in ("answer", "free")]
        if "dropped" in kinds:
            self.list.setCurrentIndex(self.model.index(kinds.index("dropped")))
        elif turns:
            self.list.scrollToBottom()
            self.list.setCurrentIndex(self.model.index(turns[-1]))
        (self.list if self.model.rows else self.policy.button(self.policy.value or "drop_oldest")).setFocus(
            Qt.FocusReason.PopupFocusReason
        )

    def _place(self, widget: QWidget) -> None:
        # wrapped labels have their height only once they have a width
        layout = self.layout()
        if layout is not None:
            layout.activate()
            self.resize(self.width(), layout.totalHeightForWidth(self.width()))
        point = widget.mapToGlobal(QPoint(0, -self.height() - 6))
        screen = widget.screen().availableGeometry() if widget.screen() else None
        if screen is not None:
            point.setX(max(screen.left(), min(point.x(), screen.right() - self.width())))
            point.setY(max(screen.top(), point.y()))
        self.move(point)

    def _activated(self, index: QModelIndex) -> None:
        row = index.data(context.Roles.ROW)
        if isinstance(row, Row) and row.message_id:
            self.hide()
            self.message_chosen.emit(row.message_id)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self.list.hasFocus():
            self._activated(self.list.currentIndex())
        elif event.key() == Qt.Key.Key_F1 and (help_ := help_of(self)) is not None:
            help_.open_at_hand()  # shortcuts of the window do not reach a popup
        else:
            super().keyPressEvent(event)
