"""What the model read: every token of the prompt as a chip, in the colour of the message it came from."""

from __future__ import annotations

from dataclasses import replace
from html import escape

from PySide6.QtCore import QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPen

from desktop import fonts
from desktop.theme import Theme
from desktop.views.trace import pieces
from desktop.views.trace.flow import Measure, TokenFlow, token_font
from desktop.views.trace.prompt_text import Fold, PromptText, State

#: colours of the messages of a role, in turn
_COLOURS = {
    "system": ("syn_variable",),
    "user": ("syn_name", "syn_type"),
    "assistant": ("syn_string", "syn_number"),
    "tool": ("syn_keyword",),
}
WHO = {"system": "the system prompt", "user": "your message", "assistant": "an answer", "tool": "a tool's result"}
STATES: dict[State, tuple[str, str]] = {
    "read": ("read now", "It was computed for this request"),
    "cached": ("from the cache", "Its keys and values were still there"),
    "shifted": ("moved in the cache", "Its keys and values were moved to where dropped turns had been"),
    "restored": ("from disk", "Its keys and values were read back from disk"),
    "unread": ("not read", "The model has not got to it"),
}


def colour_of(owner: int, roles: tuple[str, ...]) -> str:
    """The colour token of a message; those of one role take turns."""
    if not 0 <= owner < len(roles):
        return "ink3"
    role = roles[owner]
    tokens = _COLOURS.get(role, ("ink2",))
    return tokens[sum(1 for other in roles[:owner] if other == role) % len(tokens)]


class PromptChips(TokenFlow):
    """Signals:
    token_chosen(int): a token of the prompt; folds open by themselves.
    """

    token_chosen = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("prompt_tokens")
        self.setAccessibleName("Tokens of the prompt")
        self._text = PromptText([], [], [], bytearray())
        self._items: list[int] = []  # a token, or -1 minus the number of a fold
        self._folds: list[Fold] = []
        self._colours: dict[int, QColor] = {}
        self._set_fonts()
        self.chosen.connect(self._on_chosen)

    # ---- content

    @property
    def text(self) -> PromptText:
        return self._text

    @property
    def folds(self) -> list[Fold]:
        """What is not shown."""
        return self._folds

    def set_text(self, text: PromptText) -> None:
        """Show another prompt, folded."""
        self._text = text
        self._folds = text.folds()
        self.set_current(-1)
        self._rebuild()

    def set_known(self, n_known: int) -> None:
        """So many tokens are known to the model by now. Nothing moves."""
        if n_known != self._text.n_known:
            self._text = replace(self._text, n_known=n_known)
            self.update()

    def show_all(self, on: bool) -> None:
        """Open all folds, or fold as at first."""
        self._folds = [] if on else self._text.folds()
        self._rebuild()

    def choose_token(self, token: int) -> None:
        """Make a token the current one, opening the fold that it is in."""
        fold = next((f for f in self._folds if f.first <= token < f.end), None)
        if fold is not None:
            self._open(fold)
        self.set_current(self._items.index(token))

    def _rebuild(self) -> None:
        items: list[int] = []
        at = 0
        for number, fold in enumerate(self._folds):
            items += range(at, fold.first)
            items.append(-1 - number)
            at = fold.end
        items += range(at, len(self._text))
        self._items = items
        self._colours.clear()
        self.restart()

    def _open(self, fold: Fold) -> None:
        self._folds = [one for one in self._folds if one is not fold]
        self._rebuild()

    def _on_chosen(self, item: int) -> None:
        entry = self._items[item]
        if entry >= 0:
            self.token_chosen.emit(entry)
            return
        fold = self._folds[-1 - entry]
        self._open(fold)
        self.set_current(item, reveal=False)  # the first token of what was folded
        self.token_chosen.emit(fold.first)

    # ---- look

    def apply_theme(self, theme: Theme, scale: float) -> None:
        if scale != self.scale:
            self.scale = scale
            self._set_fonts()
            self.rows.widths.clear()
        self._colours.clear()
        super().apply_theme(theme, scale)

    def _set_fonts(self) -> None:
        self._font = token_font(self.scale, step=-1)
        self._small = fonts.mono_font(self.scale, step=-3)
        self._measure, self._small_measure = Measure(self._font), Measure(self._small)
        self._pad = 6 * self.scale
        self.rows.gap = 4 * self.scale
        self.rows.height = max(QFontMetricsF(self._font).height() + 12 * self.scale, 26 * self.scale)

    # ---- items

    def count(self) -> int:
        return len(self._items)

    def width_of(self, item: int) -> float:
        entry = self._items[item]
        if entry < 0:
            return self._measure.width(self._folds[-1 - entry].words) + 2 * self._pad
        small = self._text.owners[entry] < 0
        measure = self._small_measure if small else self._measure
        return measure.width(self._text.texts[entry]) + 2 * self._pad

    def breaks_after(self, item: int) -> bool:
        entry = self._items[item]
        return entry >= 0 and bool(self._text.breaks[entry])

    def paint_item(self, painter: QPainter, item: int, area: QRectF) -> None:
        entry = self._items[item]
        theme, inset = self.theme, 2.5 * self.scale
        chip = area.adjusted(0.5, inset, -0.5, -inset)
        if entry < 0:
            words, colour, font = self._folds[-1 - entry].words, theme.color("ink2"), self._font
            state: State = "cached"
        else:
            words, state = self._text.texts[entry], self._text.state(entry)
            owner = self._text.owners[entry]
            colour = self._colour(owner) if state != "unread" else theme.color("ink3")
            font = self._font if owner >= 0 else self._small
        picked = item == self.current
        ground = "accent_soft" if picked else "hover" if item == self.hovered or entry < 0 else ""
        edge = theme.color("accent" if picked else "control" if state == "unread" else "hairline")
        painter.setPen(QPen(edge, 1.5 if picked and self.hasFocus() else 1.0, edge_style(state)))
        painter.setBrush(theme.color(ground) if ground else Qt.BrushStyle.NoBrush)
        painter.drawRoundedRect(chip, 4, 4)
        if entry >= 0 and state != "cached":
            self._paint_state(painter, chip, state)
        painter.setFont(font)
        painter.setPen(colour)
        inner = chip.adjusted(self._pad - 0.5, 0, 2 - self._pad, 0)
        painter.drawText(inner, int(Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft), words)

    def _paint_state(self, painter: QPainter, chip: QRectF, state: State) -> None:
        paint_state(painter, QPointF(chip.left() + 3, chip.bottom()), chip.width() - 6, state, self.theme)

    def _colour(self, owner: int) -> QColor:
        known = self._colours.get(owner)
        if known is None:
            known = self._colours[owner] = self.theme.color(colour_of(owner, self._text.roles))
        return known

    # ---- words

    def tip_of(self, item: int) -> str:
        entry = self._items[item]
        if entry < 0:
            fold = self._folds[-1 - entry]
            return f"Tokens {fold.first + 1:,} to {fold.end:,}<br>Click to show them"
        return "<br>".join(escape(line) for line in self.lines_of(entry))

    def spoken_of(self, item: int) -> str:
        entry = self._items[item]
        if entry < 0:
            return f"{self._folds[-1 - entry].words}, folded"
        return ", ".join([pieces.spoken(self._text.raw[entry]), *self.lines_of(entry)[1:]])

    def lines_of(self, token: int) -> list[str]:
        """What is known of a token of the prompt, a line each."""
        text = self._text
        owner = text.owners[token]
        if token >= 0 and owner >= 0:
            whose = WHO.get(text.roles[owner], "a message") if owner < len(text.roles) else "a message"
            came = f"Text of {whose}, message {owner + 1:,} of {len(text.roles):,}"
        else:
            came = "Written by the chat template"
        words, why = STATES[text.state(token)]
        return [
            f"{text.texts[token]}  id {text.ids[token]:,}",
            f"Token {token + 1:,} of {len(text):,}",
            came,
            f"{words[:1].upper()}{words[1:]}: {why[:1].lower()}{why[1:]}",
        ]


def edge_style(state: State) -> Qt.PenStyle:
    """The line around a chip."""
    return Qt.PenStyle.DotLine if state == "unread" else Qt.PenStyle.SolidLine


def paint_state(painter: QPainter, left: QPointF, width: float, state: State, theme: Theme) -> None:
    """The mark under a chip: a line for what was read now, dashes for what was moved, dots for what came from disk."""
    styles = {
        "read": ("accent", Qt.PenStyle.SolidLine),
        "shifted": ("mem_kv", Qt.PenStyle.DashLine),
        "restored": ("mem_compute", Qt.PenStyle.DotLine),
    }
    if state not in styles or width <= 0:
        return
    token, style = styles[state]
    painter.save()
    painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
    painter.setPen(QPen(theme.color(token), 2, style, Qt.PenCapStyle.FlatCap))
    painter.drawLine(left, QPointF(left.x() + width, left.y()))
    painter.restore()
