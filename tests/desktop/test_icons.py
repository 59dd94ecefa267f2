"""Icons: from the font's files alone, in the theme's colours."""

from __future__ import annotations

import subprocess
import sys

import pytest
from PySide6.QtCore import QSize
from PySide6.QtGui import QIcon, QImage
from pytestqt.qtbot import QtBot

from desktop import icons
from desktop.theme import DARK, LIGHT

IMPORTS = """
import sys
from PySide6.QtWidgets import QApplication
from desktop import icons, theme
import threading
before = {name for name in sys.modules if name.startswith(("PySide6", "shiboken6"))}
thread = threading.Thread(target=icons.prepare)
thread.start()
thread.join()
after = {name for name in sys.modules if name.startswith(("PySide6", "shiboken6"))}
assert after == before, after - before
app = QApplication(["x", "-platform", "offscreen"])
icons.load()
assert not icons.icon("stop", theme.LIGHT).pixmap(16, 16).isNull()
assert not {"qtawesome", "qtpy"} & set(sys.modules), "its import on a thread races with the GUI thread"
"""


def test_no_code_of_the_icon_package_runs() -> None:
    """What `prepare` does on another thread imports nothing of Qt: making Qt's types on two threads at once crashes."""
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def ink(image: QImage) -> set[str]:
    """Colours of the pixels that are fully covered."""
    points = [(x, y) for x in range(image.width()) for y in range(image.height())]
    return {image.pixelColor(*p).name() for p in points if image.pixelColor(*p).alpha() == 255}


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_every_name_is_drawn_in_its_colours(qtbot: QtBot, theme) -> None:
    wanted = [
        (QIcon.Mode.Normal, QIcon.State.Off, theme.ink2),
        (QIcon.Mode.Active, QIcon.State.Off, theme.accent),
        (QIcon.Mode.Normal, QIcon.State.On, theme.accent),
        (QIcon.Mode.Disabled, QIcon.State.Off, theme.ink3),
        (QIcon.Mode.Disabled, QIcon.State.On, theme.ink3),
    ]
    for name in icons._NAMES:
        icon = icons.icon(name, theme, "ink2", active="accent")
        for mode, state, colour in wanted:
            image = icon.pixmap(QSize(64, 64), mode, state).toImage()
            assert ink(image) == {colour.lower()}, (name, mode, state)
    assert icons.icon("stop", theme).pixmap(QSize(16, 16), 2.0).size() == QSize(32, 32)
