"""Colours are legible, the stylesheet is sound, the window follows the setting and the system."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QFontInfo, QFontMetricsF, QPalette
from PySide6.QtWidgets import QApplication, QLabel, QPushButton, QVBoxLayout, QWidget

import resources
from desktop import fonts, icons, theme
from desktop.theme import DARK, LIGHT, Theme, ThemeWatcher


def luminance(colour: str) -> float:
    """WCAG 2.1, relative luminance."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


GROUNDS = ("paper", "surface", "rail", "hover")
PAIRS = (
    [(ink, ground) for ink in ("ink", "ink2", "ink3") for ground in (*GROUNDS, "accent_soft", "code_head")]
    + [("accent", ground) for ground in ("paper", "surface", "rail")]
    + [(tone, ground) for tone in ("good", "warn", "bad") for ground in ("paper", "surface", f"{tone}_soft")]
    + [(tone, f"{soft}_soft") for tone in ("ink", "ink2") for soft in ("good", "warn", "bad")]
    + [
        ("accent_text", "accent_soft"),
        ("accent_text", "surface"),
        ("on_accent", "accent"),
        ("on_accent", "accent_hover"),
    ]
    + [("on_selection", "selection"), ("ink", "inline_code_bg"), ("ink", "code_bg")]
    + [(field.name, "code_bg") for field in fields(Theme) if field.name.startswith("syn_")]
)


@pytest.mark.parametrize("which", [LIGHT, DARK], ids=lambda t: t.name)
def test_every_text_has_contrast(which: Theme) -> None:
    poor = {
        f"{text} on {ground}": round(contrast(getattr(which, text), getattr(which, ground)), 2)
        for text, ground in PAIRS
        if contrast(getattr(which, text), getattr(which, ground)) < 4.5
    }
    assert poor == {}


@pytest.mark.parametrize("which", [LIGHT, DARK], ids=lambda t: t.name)
def test_controls_and_focus_can_be_seen(which: Theme) -> None:
    for token in ("control", "focus"):
        for ground in ("paper", "surface"):
            assert contrast(getattr(which, token), getattr(which, ground)) >= 3.0, (token, ground)


def test_the_memory_kinds_differ_from_each_other_and_from_the_ground() -> None:
    for which in (LIGHT, DARK):
        kinds = [which.mem_weights, which.mem_kv, which.mem_compute, which.mem_other, which.mem_free]
        assert len(set(kinds)) == 5
        for kind in kinds[:3]:
            assert contrast(kind, which.mem_free) >= 2.2


@pytest.mark.parametrize("scale", [0.8, 1.0, 2.0])
@pytest.mark.parametrize("which", [LIGHT, DARK], ids=lambda t: t.name)
def test_the_stylesheet_is_complete_and_qt_reads_it(qtbot, which: Theme, scale: float) -> None:
    sheet = theme.stylesheet(which, scale)
    assert "$" not in sheet
    for path in re.findall(r'url\("([^"]+)"\)', sheet):
        assert path.endswith(f"-{which.name}.svg")
    widget = QWidget()
    qtbot.addWidget(widget)
    box = QVBoxLayout(widget)
    box.addWidget(QPushButton("x"))
    box.addWidget(QLabel("y"))
    widget.setStyleSheet(sheet)  # a sheet Qt cannot parse is a Qt warning, which fails the test
    widget.show()
    widget.grab()


def test_the_template_names_no_colour_of_its_own() -> None:
    assert re.findall(r"#[0-9A-Fa-f]{6}\b", resources.text("themes/app.qss.in")) == []


def test_the_palette_is_the_theme() -> None:
    for which in (LIGHT, DARK):
        palette = theme.palette(which)
        assert palette.color(QPalette.ColorRole.Window).name().upper() == which.paper.upper()
        assert palette.color(QPalette.ColorRole.Text).name().upper() == which.ink.upper()


def test_the_watcher_says_so_only_when_the_theme_is_another(qapp, qtbot) -> None:
    watcher = ThemeWatcher("light")
    seen: list[Theme] = []
    watcher.changed.connect(seen.append)
    watcher.set_setting("light")
    assert seen == []
    watcher.set_setting("dark")
    watcher.set_setting("dark")
    assert seen == [DARK]
    assert watcher.theme is DARK


def test_system_follows_the_system(qapp: QApplication, monkeypatch: pytest.MonkeyPatch) -> None:
    scheme = Qt.ColorScheme.Light

    class Hints:
        def colorScheme(self) -> Qt.ColorScheme:
            return scheme

    monkeypatch.setattr(type(qapp), "styleHints", lambda self: Hints())
    assert theme.for_setting("system") is LIGHT
    assert theme.for_setting("dark") is DARK
    scheme = Qt.ColorScheme.Dark
    assert theme.for_setting("system") is DARK
    assert theme.for_setting("light") is LIGHT


def test_a_change_of_the_system_reaches_the_watcher(qapp: QApplication, monkeypatch: pytest.MonkeyPatch) -> None:
    watcher = ThemeWatcher("system")
    seen: list[Theme] = []
    watcher.changed.connect(seen.append)
    other = DARK if watcher.theme is LIGHT else LIGHT
    monkeypatch.setattr(theme, "for_setting", lambda setting: other)
    qapp.styleHints().colorSchemeChanged.emit(Qt.ColorScheme.Dark)
    assert seen == [other]


def test_the_monospace_is_the_bundled_one(qapp) -> None:
    assert fonts.mono_family() == "JetBrains Mono"
    font = fonts.mono_font()
    assert QFontInfo(font).family() == "JetBrains Mono"
    metrics = QFontMetricsF(font)
    assert len({metrics.horizontalAdvance(c) for c in "0123456789abcWi.,"}) == 1
    assert resources.text("licenses/JetBrainsMono-OFL.txt").startswith("Copyright")


def test_figures_are_of_one_width(qapp) -> None:
    metrics = QFontMetricsF(fonts.label_font())
    assert len({round(metrics.horizontalAdvance(c), 3) for c in "0123456789"}) == 1


def test_the_transcript_is_one_step_larger(qapp) -> None:
    assert fonts.transcript_font().pixelSize() == fonts.ui_font().pixelSize() + 1
    assert fonts.ui_font(2.0).pixelSize() == 2 * fonts.ui_font().pixelSize()


def test_every_icon_exists(qapp) -> None:
    for name in icons._NAMES:
        assert not icons.pixmap(name, LIGHT, 20).isNull(), name


def test_a_missing_resource_is_named() -> None:
    with pytest.raises(FileNotFoundError, match=r"no/such\.file"):
        resources.path("no/such.file")
