"""Icons of one set (Phosphor) in the theme's colours.

The font comes from the files of qtawesome; its code is never imported. That takes a third of a second, and on another
thread, where it would not hold up the window, it makes all of Qt's Python types at once while the GUI thread uses
them: one start in a hundred ended in a segmentation fault. Names of meaning stand here and nowhere else; a view asks
for `icons.icon("stop", theme)`.
"""

from __future__ import annotations

import importlib.util
import json
import weakref
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from PySide6.QtCore import QPoint, QRect, QSize, Qt
from PySide6.QtGui import QColor, QFont, QFontDatabase, QIcon, QIconEngine, QPainter, QPixmap
from PySide6.QtWidgets import QAbstractButton
from shiboken6 import isValid

from desktop.theme import Theme

_NAMES = {
    "attach": "paperclip",
    "back": "caret-left",
    "bench": "timer",
    "chat": "chat-centered",
    "check": "check",
    "chip": "cpu",
    "close": "x",
    "continue": "fast-forward",
    "copy": "copy",
    "delete": "trash",
    "down": "caret-down",
    "download": "download-simple",
    "edit": "pencil-simple",
    "error": "warning-circle",
    "expand": "caret-right",
    "file": "file-text",
    "folder": "folder-open",
    "info": "info",
    "inside": "chart-line",
    "link": "link",
    "model": "cube",
    "monitor": "activity",
    "new": "plus",
    "next": "caret-right",
    "pause": "pause",
    "pin": "push-pin",
    "play": "play",
    "previous": "caret-left",
    "regenerate": "arrow-clockwise",
    "reload": "arrow-counter-clockwise",
    "search": "magnifying-glass",
    "send": "arrow-up",
    "settings": "gear-six",
    "sliders": "sliders-horizontal",
    "stop": "stop",
    "trace": "list-bullets",
    "unload": "eject",
    "up": "caret-up",
    "verify": "shield-check",
    "warning": "warning",
}


#: height of a glyph in its square; 16 pixels make a font of 14
_GLYPH = 0.875


@lru_cache(maxsize=1)
def _files() -> tuple[bytes, dict[str, str]]:
    """The font, and the character of each name in it. Touches no Qt object.

    Raises:
        FileNotFoundError: the installation lacks them.
    """
    spec = importlib.util.find_spec("qtawesome")  # finds the package without running it
    folders = [Path(place) / "fonts" for place in (spec.submodule_search_locations or ())] if spec is not None else []
    for folder in folders:
        for font in folder.glob("phosphor-*.ttf"):
            codes = json.loads(font.with_name(font.stem.replace("-", "-charmap-") + ".json").read_text("utf-8"))
            return font.read_bytes(), {name: chr(int(code, 16)) for name, code in codes.items()}
    raise FileNotFoundError("the icon font of qtawesome is missing")


@lru_cache(maxsize=1)
def _family() -> str:
    """Name of the icon font, which is known to Qt from then on. GUI thread."""
    number = QFontDatabase.addApplicationFontFromData(_files()[0])
    return QFontDatabase.applicationFontFamilies(number)[0]


class _Glyph(QIconEngine):
    """Draws one character in the colour of the icon's mode, sharp in every size."""

    def __init__(self, character: str, colour: str, active: str, disabled: str) -> None:
        super().__init__()
        self._made_of = (character, colour, active, disabled)

    def paint(self, painter: QPainter, rect: QRect, mode: QIcon.Mode, state: QIcon.State) -> None:
        character, colour, active, disabled = self._made_of
        if mode == QIcon.Mode.Disabled:
            colour = disabled
        elif mode != QIcon.Mode.Normal or state == QIcon.State.On:
            colour = active
        font = QFont(_family())
        font.setPixelSize(max(1, round(_GLYPH * rect.height())))
        painter.save()
        painter.setFont(font)
        painter.setPen(QColor(colour))
        painter.drawText(rect, int(Qt.AlignmentFlag.AlignCenter), character)
        painter.restore()

    def pixmap(self, size: QSize, mode: QIcon.Mode, state: QIcon.State) -> QPixmap:
        made = QPixmap(size)
        made.fill(Qt.GlobalColor.transparent)
        painter = QPainter(made)
        self.paint(painter, QRect(QPoint(0, 0), size), mode, state)
        painter.end()
        return made

    def clone(self) -> QIconEngine:
        return _Glyph(*self._made_of)


@lru_cache(maxsize=512)
def _icon(name: str, colour: str, active: str, disabled: str) -> QIcon:
    return QIcon(_Glyph(_files()[1][_NAMES[name]], colour, active, disabled))


def icon(name: str, theme: Theme, token: str = "ink2", *, active: str = "") -> QIcon:
    """The icon `name` in the colour of a theme token.

    Args:
        name: a name of meaning ("chat", "stop", ...); an unknown one raises KeyError.
        active: token for the state under the mouse or switched on; the same as `token` if empty.
    """
    return _icon(name, getattr(theme, token), getattr(theme, active or token), theme.ink3)


def pixmap(name: str, theme: Theme, size: int, token: str = "ink2") -> QPixmap:
    """The icon as a square picture of `size` logical pixels."""
    return icon(name, theme, token).pixmap(QSize(size, size))


_waiting: list[Callable[[], None]] = []
_ready = False


def set_icon(button: QAbstractButton, name: str, theme: Theme, token: str = "ink2", *, active: str = "") -> None:
    """Give a button its icon: now if the icon font is loaded, else when `load` is called after the first paint."""
    if _ready:
        button.setIcon(icon(name, theme, token, active=active))
        return
    reference = weakref.ref(button)

    def later() -> None:
        target = reference()
        if target is not None and isValid(target):
            target.setIcon(icon(name, theme, token, active=active))

    _waiting.append(later)


def prepare() -> None:
    """Read the files; for a background thread. Touches no Qt object."""
    _files()


def load() -> None:
    """Load the icon font and give every waiting button its icon. GUI thread, after `prepare`."""
    global _ready
    _family()
    _ready = True
    while _waiting:
        _waiting.pop(0)()
