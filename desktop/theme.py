"""Colours and spacing as tokens, and the two themes made of them.

A widget never names a colour: it asks the theme. `stylesheet` fills the one QSS template, `palette` gives
Qt's own drawing the same colours. Texts reach a contrast of 4.5:1 on every ground they are used on; a test
holds that.
"""

from __future__ import annotations

import string
from dataclasses import asdict, dataclass
from functools import lru_cache

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QColor, QGuiApplication, QPalette

import resources


@dataclass(frozen=True)
class Theme:
    """Colours as "#RRGGBB".

    Attributes:
        paper, surface, rail: grounds: window, inputs and cards, left rail.
        hairline: the only borders. control: borders of controls that must be seen without their fill (3:1).
        ink, ink2, ink3: text, secondary text, labels.
        accent, accent_soft, on_accent: the one action and the selection; text on accent.
        accent_text: accent as text on accent_soft.
        good, warn, bad and their soft grounds: verdicts and states only.
        mem_*: kinds of memory, the same in every bar and legend.
        code_bg, code_head: grounds of code blocks and their title line.
        syn_*: syntax colours on code_bg.
        scroll: handle of a scroll bar.
        focus: ring around the control with the keyboard focus. selection, on_selection: selected text.
    """

    name: str
    paper: str
    surface: str
    rail: str
    hairline: str
    control: str
    ink: str
    ink2: str
    ink3: str
    accent: str
    accent_soft: str
    accent_hover: str
    accent_text: str
    on_accent: str
    hover: str
    good: str
    good_soft: str
    warn: str
    warn_soft: str
    bad: str
    bad_soft: str
    mem_weights: str
    mem_kv: str
    mem_compute: str
    mem_other: str
    mem_free: str
    code_bg: str
    code_head: str
    inline_code_bg: str
    syn_keyword: str
    syn_string: str
    syn_comment: str
    syn_number: str
    syn_name: str
    syn_variable: str
    syn_type: str
    syn_operator: str
    syn_error: str
    scroll: str
    focus: str
    selection: str
    on_selection: str

    @property
    def is_dark(self) -> bool:
        return self.name == "dark"

    def color(self, token: str) -> QColor:
        """The QColor of a token, for instance `theme.color("accent")`."""
        return QColor(getattr(self, token))


LIGHT = Theme(
    name="light",
    paper="#FBF9F6",
    surface="#FFFFFF",
    rail="#F4F0EA",
    hairline="#E7E0D7",
    control="#978C80",
    ink="#221D18",
    ink2="#5F574E",
    ink3="#6F655B",
    accent="#B9481A",
    accent_soft="#FAEBE1",
    accent_hover="#A23D13",
    accent_text="#AE4116",
    on_accent="#FFFFFF",
    hover="#F1EBE3",
    good="#29734A",
    good_soft="#E6F2EA",
    warn="#855900",
    warn_soft="#FBF0D8",
    bad="#B3261E",
    bad_soft="#FBE7E5",
    mem_weights="#3B6FB6",
    mem_kv="#D08A1E",
    mem_compute="#7B5EA7",
    mem_other="#9AA0A8",
    mem_free="#EFEAE3",
    code_bg="#F7F4EF",
    code_head="#F2EEE7",
    inline_code_bg="#F2EDE5",
    syn_keyword="#A63F14",
    syn_string="#29734A",
    syn_comment="#6F655B",
    syn_number="#8A5D00",
    syn_name="#2F62A8",
    syn_variable="#7253A0",
    syn_type="#0F6A74",
    syn_operator="#5F574E",
    syn_error="#B3261E",
    scroll="#D3C9BD",
    focus="#B9481A",
    selection="#F3CDB6",
    on_selection="#221D18",
)

DARK = Theme(
    name="dark",
    paper="#171513",
    surface="#1F1C19",
    rail="#121110",
    hairline="#332E29",
    control="#7A7067",
    ink="#ECE6DF",
    ink2="#B4ABA1",
    ink3="#9C9287",
    accent="#F08A4B",
    accent_soft="#38261A",
    accent_hover="#F59C65",
    accent_text="#F08A4B",
    on_accent="#1B120C",
    hover="#26221E",
    good="#74C795",
    good_soft="#1C3226",
    warn="#E3B556",
    warn_soft="#382D14",
    bad="#F2857B",
    bad_soft="#3B1F1C",
    mem_weights="#6EA0E6",
    mem_kv="#E9AE4C",
    mem_compute="#AC90DA",
    mem_other="#7D838B",
    mem_free="#28241F",
    code_bg="#1C1916",
    code_head="#221E1B",
    inline_code_bg="#29241F",
    syn_keyword="#F08A4B",
    syn_string="#74C795",
    syn_comment="#9C9287",
    syn_number="#E3B556",
    syn_name="#8AB4EE",
    syn_variable="#B9A1E2",
    syn_type="#6CC5CF",
    syn_operator="#B4ABA1",
    syn_error="#F2857B",
    scroll="#453E37",
    focus="#F08A4B",
    selection="#6B3A1C",
    on_selection="#FFFFFF",
)

#: words of the setting "theme"
SETTINGS = ("system", "light", "dark")

#: pixels at scale 1; the 4 px grid
SPACE = 4
CONTROL_HEIGHT = 32
RADIUS = 8
RAIL_WIDTH = 56
LIST_WIDTH = 264
TEXT_COLUMN_WIDTH = 600
BASE_TEXT_PX = 13


def current() -> Theme:
    """The theme the system asks for; light where it does not say."""
    return for_setting("system")


def for_setting(setting: str) -> Theme:
    """The theme for a value of the setting "theme": "system", "light" or "dark"."""
    if setting == "light":
        return LIGHT
    if setting == "dark":
        return DARK
    app = QGuiApplication.instance()
    if isinstance(app, QGuiApplication) and app.styleHints().colorScheme() == Qt.ColorScheme.Dark:
        return DARK
    return LIGHT


def palette(theme: Theme) -> QPalette:
    """The theme as Qt's palette, for everything that is not drawn by the stylesheet."""
    result = QPalette()
    roles = {
        QPalette.ColorRole.Window: theme.paper,
        QPalette.ColorRole.WindowText: theme.ink,
        QPalette.ColorRole.Base: theme.surface,
        QPalette.ColorRole.AlternateBase: theme.paper,
        QPalette.ColorRole.Text: theme.ink,
        QPalette.ColorRole.PlaceholderText: theme.ink3,
        QPalette.ColorRole.Button: theme.surface,
        QPalette.ColorRole.ButtonText: theme.ink,
        QPalette.ColorRole.BrightText: theme.bad,
        QPalette.ColorRole.Highlight: theme.selection,
        QPalette.ColorRole.HighlightedText: theme.on_selection,
        QPalette.ColorRole.ToolTipBase: theme.surface,
        QPalette.ColorRole.ToolTipText: theme.ink,
        QPalette.ColorRole.Link: theme.accent,
        QPalette.ColorRole.LinkVisited: theme.accent,
        QPalette.ColorRole.Light: theme.surface,
        QPalette.ColorRole.Midlight: theme.hairline,
        QPalette.ColorRole.Mid: theme.hairline,
        QPalette.ColorRole.Dark: theme.ink3,
        QPalette.ColorRole.Shadow: theme.hairline,
        QPalette.ColorRole.Accent: theme.accent,
    }
    for role, colour in roles.items():
        result.setColor(role, QColor(colour))
    disabled = QPalette.ColorGroup.Disabled
    for role in (QPalette.ColorRole.WindowText, QPalette.ColorRole.Text, QPalette.ColorRole.ButtonText):
        result.setColor(disabled, role, QColor(theme.ink3))
    return result


def stylesheet(theme: Theme, scale: float = 1.0, base_px: int = BASE_TEXT_PX) -> str:
    """The application's QSS in this theme.

    Args:
        scale: the user's text size; 1.0 is the system's. Heights and spacings of controls follow it.
        base_px: pixel size of window text at scale 1.
    """
    return _stylesheet(theme, round(scale, 3), base_px)


@lru_cache(maxsize=8)
def _stylesheet(theme: Theme, scale: float, base_px: int) -> str:
    def px(value: float) -> str:
        return f"{max(1, round(value * scale))}px"

    sizes = {
        "text": px(base_px),
        "transcript_text": px(base_px + 1),
        "label_text": px(base_px - 2),
        "small_text": px(base_px - 1),
        "title_text": px(base_px + 5),
        "figure_text": px(base_px * 2),
        "control_height": px(CONTROL_HEIGHT),
        "inner_height": px(CONTROL_HEIGHT - 2),
        "rail_button": "40px",
        "slider_height": px(22),
        "half_grid": px(2),
        "grid": px(SPACE),
        "grid2": px(2 * SPACE),
        "grid3": px(3 * SPACE),
        "grid4": px(4 * SPACE),
        "radius": f"{RADIUS}px",
        "radius_small": "4px",
        "radius_big": "12px",
        "radius_pill": px(8),
    }

    def image(name: str) -> str:
        return f'"{resources.path(f"icons/{name}-{theme.name}.svg").as_posix()}"'

    images = {f"{name}_image": image(name) for name in ("check", "down", "up")}
    template = string.Template(resources.text("themes/app.qss.in"))
    return template.substitute(asdict(theme) | sizes | images)


class ThemeWatcher(QObject):
    """Follows the setting and the system, and says when another theme is due.

    Signals:
        changed(Theme): the theme is another now.
    """

    changed = Signal(object)

    def __init__(self, setting: str = "system", parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._setting = setting
        self._theme = for_setting(setting)
        app = QGuiApplication.instance()
        if isinstance(app, QGuiApplication):
            app.styleHints().colorSchemeChanged.connect(self._update)

    @property
    def theme(self) -> Theme:
        return self._theme

    def set_setting(self, setting: str) -> None:
        """Take a new value of the setting "theme"."""
        self._setting = setting
        self._update()

    def _update(self) -> None:
        theme = for_setting(self._setting)
        if theme is not self._theme:
            self._theme = theme
            self.changed.emit(theme)
