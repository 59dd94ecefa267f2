"""What could have been said: the most probable tokens of a step, each a button."""

from __future__ import annotations

import math
from collections.abc import Sequence

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QFontMetricsF, QPainter, QPaintEvent
from PySide6.QtWidgets import QAbstractButton, QSizePolicy, QVBoxLayout, QWidget

from desktop import fonts
from desktop.theme import LIGHT, Theme
from desktop.views.trace import pieces, words
from desktop.views.trace.flow import token_font
from engine.events import Candidate


class AlternativeRow(QAbstractButton):
    """One token with its probability as a bar. The one that was chosen cannot be pressed."""

    def __init__(self, candidate: Candidate, *, chosen: bool, full: float) -> None:
        """full: the probability that fills the bar."""
        super().__init__()
        self.candidate, self.chosen = candidate, chosen
        self.probability = math.exp(min(0.0, candidate.logprob))
        self._full = full
        self._theme, self._scale = LIGHT, 1.0
        self.setObjectName(f"alternative_{candidate.token_id}")
        self.setText(pieces.label(candidate.piece))
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        said = f"{pieces.spoken(candidate.piece)}, {words.percent(self.probability)}"
        self.setAccessibleName(f"{said}, chosen" if chosen else said if candidate.allowed else f"{said}, not allowed")

    def set_branching(self, on: bool) -> None:
        """Whether a press branches the chat here."""
        token = f"id {self.candidate.token_id:,}, {words.percent(self.probability)}"
        able = on and not self.chosen and self.candidate.allowed
        what = "Click to let the answer go on with this token instead"
        if self.chosen:
            what = "This one was chosen"
        elif not self.candidate.allowed:
            what = "The answer's format does not allow it here"
        self.setToolTip(f"{token}\n{what}" if on or self.chosen or not self.candidate.allowed else token)
        self.setEnabled(able)
        self.setCursor(Qt.CursorShape.PointingHandCursor if able else Qt.CursorShape.ArrowCursor)

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self._theme, self._scale = theme, scale
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(240, round(22 * self._scale))

    def minimumSizeHint(self) -> QSize:
        return QSize(160, round(22 * self._scale))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        theme, scale = self._theme, self._scale
        area = QRectF(self.rect())
        if self.underMouse() and self.isEnabled():
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(theme.color("hover"))
            painter.drawRoundedRect(area, 4, 4)
        if self.hasFocus():
            painter.setPen(theme.color("focus"))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(area.adjusted(0.5, 0.5, -0.5, -0.5), 4, 4)
        mono, figures = token_font(scale, step=-1), fonts.tabular(fonts.ui_font(scale, step=-1))
        figure_width = QFontMetricsF(figures).horizontalAdvance("< 0.01 %") + 4
        word_width = min(area.width() * 0.34, 130 * scale)
        painter.setPen(theme.color("accent" if self.chosen else "ink" if self.candidate.allowed else "ink3"))
        mono.setStrikeOut(not self.candidate.allowed)
        painter.setFont(mono)
        word = QFontMetricsF(mono).elidedText(self.text(), Qt.TextElideMode.ElideMiddle, word_width - 4)
        middle = Qt.AlignmentFlag.AlignVCenter
        inner = area.adjusted(3, 0, -3, 0)
        painter.drawText(QRectF(inner.left(), 0, word_width, area.height()), int(middle), word)
        height = 6 * scale
        bar = QRectF(
            inner.left() + word_width + 4,
            (area.height() - height) / 2,
            max(0.0, inner.width() - word_width - figure_width - 8),
            height,
        )
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(theme.color("mem_free"))
        painter.drawRoundedRect(bar, 3, 3)
        bar.setWidth(max(2.0, bar.width() * min(1.0, self.probability / self._full)))
        painter.setBrush(theme.color("accent" if self.chosen else "mem_other"))
        painter.drawRoundedRect(bar, min(3.0, bar.width() / 2), 3)
        painter.setFont(figures)
        painter.setPen(theme.color("ink"))
        end = Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignRight
        painter.drawText(inner, int(end), words.percent(self.probability))
        painter.end()


class Alternatives(QWidget):
    """Signals:
    branch_requested(int): let the answer go on with this token.
    focus_dropped: the row that had the keyboard is gone or cannot be pressed now; someone else has to take it.
    """

    branch_requested = Signal(int)
    focus_dropped = Signal()

    def __init__(self, name: str = "alternatives") -> None:
        super().__init__()
        self.setObjectName(name)
        self.rows: list[AlternativeRow] = []
        self._theme, self._scale = LIGHT, 1.0
        self._box = QVBoxLayout(self)
        self._box.setContentsMargins(0, 0, 0, 0)
        self._box.setSpacing(1)

    def show_candidates(self, candidates: Sequence[Candidate], chosen: int, *, branching: bool) -> None:
        """Show these, best first; `chosen` is the id of the one that was taken."""
        focused = self._focused()
        for row in self.rows:
            self._box.removeWidget(row)
            row.hide()
            row.deleteLater()
        best = max((math.exp(min(0.0, c.logprob)) for c in candidates), default=0.0)
        full = max(0.5, best)
        self.rows = [AlternativeRow(c, chosen=c.token_id == chosen, full=full) for c in candidates]
        for row in self.rows:
            row.set_branching(branching)
            row.apply_theme(self._theme, self._scale)
            row.clicked.connect(lambda _=False, token=row.candidate.token_id: self.branch_requested.emit(token))
            self._box.addWidget(row)
            row.show()  # now, not with the next layout: only what is seen can have the keyboard
        self._keep_focus(focused)

    def set_branching(self, on: bool) -> None:
        focused = self._focused()
        for row in self.rows:
            row.set_branching(on)
        self._keep_focus(focused)

    def _focused(self) -> int | None:
        return next((i for i, row in enumerate(self.rows) if row.hasFocus()), None)

    def _keep_focus(self, place: int | None) -> None:
        """The row at this place had the keyboard: it has it again, or says that it cannot."""
        if place is None:
            return
        if place < len(self.rows) and self.rows[place].isEnabled():
            self.rows[place].setFocus(Qt.FocusReason.OtherFocusReason)
        else:
            self.focus_dropped.emit()

    def apply_theme(self, theme: Theme, scale: float) -> None:
        self._theme, self._scale = theme, scale
        for row in self.rows:
            row.apply_theme(theme, scale)
