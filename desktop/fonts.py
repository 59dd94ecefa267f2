"""Fonts: the system's UI font, one step larger for the transcript, a bundled monospace for code.

Figures that stand under each other or change in place are tabular where the font can do it.
"""

from __future__ import annotations

import logging

from PySide6.QtGui import QFont, QFontDatabase, QFontInfo, QGuiApplication

import resources
from desktop import theme as theme_module

_FILES = ("fonts/JetBrainsMono-Regular.ttf", "fonts/JetBrainsMono-Bold.ttf")
_log = logging.getLogger("inglenook.desktop")
_mono_family = ""


def mono_family() -> str:
    """Family name of the bundled monospace, or the system's own where it fails. Needs a QGuiApplication."""
    global _mono_family
    if not _mono_family:
        for name in _FILES:
            number = QFontDatabase.addApplicationFont(str(resources.path(name)))
            families = QFontDatabase.applicationFontFamilies(number) if number >= 0 else []
            if families:
                _mono_family = families[0]
        if not _mono_family:
            _log.warning("the bundled monospace font cannot be used; taking the system's")
            _mono_family = QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont).family()
    return _mono_family


def base_px() -> int:
    """Pixel size of window text at scale 1: the system's, but not smaller than the design's 13."""
    system = QFontInfo(QFontDatabase.systemFont(QFontDatabase.SystemFont.GeneralFont)).pixelSize()
    return max(theme_module.BASE_TEXT_PX, system)


def tabular(font: QFont) -> QFont:
    """The font with figures of equal width, where it has them."""
    result = QFont(font)
    tag = QFont.Tag.fromString("tnum")
    if tag is not None:
        result.setFeature(tag, 1)
    return result


def ui_font(scale: float = 1.0, step: int = 0) -> QFont:
    """The system's UI font, `step` pixels larger, times the user's text size."""
    font = QFont(QFontDatabase.systemFont(QFontDatabase.SystemFont.GeneralFont))
    font.setPixelSize(max(6, round((base_px() + step) * scale)))
    return font


def transcript_font(scale: float = 1.0) -> QFont:
    """One step larger than the window's text."""
    return ui_font(scale, step=1)


def label_font(scale: float = 1.0) -> QFont:
    """Two steps smaller than the window's text, figures tabular."""
    return tabular(ui_font(scale, step=-2))


def mono_font(scale: float = 1.0, step: int = 0) -> QFont:
    """The bundled monospace, sized to sit beside window text."""
    font = QFont(mono_family())
    font.setPixelSize(max(6, round((base_px() + step) * scale)))
    font.setStyleHint(QFont.StyleHint.Monospace)
    font.setFixedPitch(True)
    return font


def device_pixel_ratio() -> float:
    """Physical pixels per logical pixel of the first screen."""
    screen = QGuiApplication.primaryScreen()
    return screen.devicePixelRatio() if screen else 1.0
