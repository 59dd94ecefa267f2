"""Fonts, sizes and text formats of the transcript, made once from a theme and a text size.

Widgets get one `TranscriptStyle` and never name a colour or a size of their own.
"""

from __future__ import annotations

from functools import cached_property

from PySide6.QtCore import Qt
from PySide6.QtGui import (
    QColor,
    QFont,
    QFontInfo,
    QFontMetricsF,
    QTextBlockFormat,
    QTextCharFormat,
    QTextFormat,
    QTextOption,
)

from desktop import fonts
from desktop.highlight import SyntaxColours
from desktop.theme import Theme
from desktop.views.chat.markdown_blocks import Span, TextBlock

#: Line pitch in parts of the font's pixel size.
LINE_PITCH = 1.6
CODE_PITCH = 1.5
_HEADING_SCALE = {1: 1.35, 2: 1.2, 3: 1.08}


class TranscriptStyle:
    """What the transcript looks like.

    Attributes:
        theme: colours.
        scale: the user's text size, 1.0 is the system's.
        column: width of the text column in pixels.
    """

    def __init__(self, theme: Theme, scale: float = 1.0) -> None:
        self.theme = theme
        self.scale = scale
        self.text_font = fonts.transcript_font(scale)
        self.label_font = fonts.label_font(scale)
        self.small_font = fonts.ui_font(scale, step=-1)
        self.mono_font = fonts.mono_font(scale)
        self.column = min(self.px(600), round(QFontMetricsF(self.text_font).averageCharWidth() * 88))
        self._formats: dict[tuple[bool, bool, bool, bool, bool, bool], QTextCharFormat] = {}

    def px(self, value: float) -> int:
        """A length of the design in pixels at this text size, at least 1."""
        return max(1, round(value * self.scale))

    def color(self, token: str) -> QColor:
        return QColor(getattr(self.theme, token))

    @cached_property
    def syntax(self) -> SyntaxColours:
        return SyntaxColours(self.theme)

    @cached_property
    def text_size(self) -> int:
        return QFontInfo(self.text_font).pixelSize()

    @cached_property
    def line_height(self) -> float:
        return self.text_size * LINE_PITCH

    @cached_property
    def leading(self) -> int:
        """Empty pixels below the last line of a text."""
        return max(0, round(self.line_height - QFontMetricsF(self.text_font).height()))

    @cached_property
    def code_line_height(self) -> int:
        return round(QFontInfo(self.mono_font).pixelSize() * CODE_PITCH)

    @cached_property
    def label_line(self) -> int:
        return round(QFontMetricsF(self.label_font).height())

    def qss(self) -> str:
        """Rules for the transcript's own widgets; they stand over the application's general ones."""
        theme = self.theme
        mono = self.mono_font.family()
        return f"""
            TranscriptView {{ background: {theme.paper}; border: none; }}
            BaseText {{
                background: transparent; border: none; border-radius: 0; padding: 0; font-size: {self.text_size}px;
                selection-background-color: {theme.selection}; selection-color: {theme.on_selection};
            }}
            BaseText[role="muted"] {{ color: {theme.ink2}; font-size: {QFontInfo(self.small_font).pixelSize()}px; }}
            TranscriptView QScrollBar::handle:vertical:disabled {{ background: transparent; }}
            BaseText:focus {{ border: none; }}
            CodeText {{
                background: transparent; border: none; border-radius: 0; padding: 0; font-family: "{mono}";
                font-size: {QFontInfo(self.mono_font).pixelSize()}px;
                selection-background-color: {theme.selection}; selection-color: {theme.on_selection};
            }}
            EditText {{ font-size: {self.text_size}px; padding: {self.px(8)}px; border-radius: 12px; }}
            SmallButton {{
                background: transparent; border: 1px solid transparent; border-radius: 4px; color: {theme.ink3};
                font-size: {QFontInfo(self.label_font).pixelSize()}px; padding: 0 {self.px(5)}px; min-height: 0;
            }}
            SmallButton:hover {{ color: {theme.accent}; background: transparent; }}
            SmallButton:focus {{ border: 1px solid {theme.focus}; color: {theme.ink}; }}
            SmallButton[tone="accent"] {{ color: {theme.accent}; }}
            SmallButton[tone="fold"] {{
                font-size: {QFontInfo(self.small_font).pixelSize()}px; text-align: left; padding: 0 {self.px(2)}px;
            }}
            QPushButton#jump_to_latest {{
                background: {theme.surface}; border: 1px solid {theme.control}; border-radius: {self.px(16)}px;
                color: {theme.ink}; padding: 0 {self.px(14)}px; min-height: {self.px(30)}px;
                max-height: {self.px(30)}px;
            }}
            QPushButton#jump_to_latest:hover {{ background: {theme.hover}; }}
            QPushButton#jump_to_latest:focus {{ border: 1px solid {theme.focus}; }}
        """

    # ------------------------------------------------------------------ formats of text

    def char_format(self, span: Span, *, heading: int = 0, muted: bool = False) -> QTextCharFormat:
        """The format of a span. A link carries its address; a click is reported and opens nothing by itself."""
        key = (span.bold or heading > 0, span.italic, span.strike, span.code, bool(span.href), muted)
        base = self._formats.get(key)
        if base is None:
            base = self._formats[key] = self._make_format(*key)
        if not heading and not span.href:
            return base
        result = QTextCharFormat(base)
        if heading:
            size = self.text_size * _HEADING_SCALE.get(heading, 1.0)
            result.setProperty(QTextFormat.Property.FontPixelSize, round(size * (0.9 if span.code else 1.0)))
        if span.href:
            result.setAnchor(True)
            result.setAnchorHref(span.href)
        return result

    def _make_format(
        self, bold: bool, italic: bool, strike: bool, code: bool, link: bool, muted: bool
    ) -> QTextCharFormat:
        result = QTextCharFormat()
        if bold:
            result.setFontWeight(QFont.Weight.DemiBold)
        result.setFontItalic(italic)
        result.setFontStrikeOut(strike)
        result.setForeground(self.color("ink2" if muted else "ink"))
        if code:
            result.setFontFamilies([self.mono_font.family()])
            result.setProperty(QTextFormat.Property.FontPixelSize, round(self.text_size * 0.88))
        if link:
            result.setForeground(self.color("accent"))
            result.setFontUnderline(True)
        return result

    def proportional_height(self, font: QFont, pitch: float) -> float:
        """Line height in per cent that gives a pitch in parts of the font's size."""
        return 100 * QFontInfo(font).pixelSize() * pitch / max(1.0, QFontMetricsF(font).height())

    @cached_property
    def _text_percent(self) -> float:
        return self.proportional_height(self.text_font, LINE_PITCH)

    def block_format(self, block: TextBlock, previous: TextBlock | None, *, first: bool) -> QTextBlockFormat:
        """Margins and line height of a paragraph after another one (None: after code or a table)."""
        result = QTextBlockFormat()
        percent = 100 * 1.3 if block.kind == "heading" and block.level < 3 else self._text_percent
        result.setLineHeight(percent, QTextBlockFormat.LineHeightTypes.ProportionalHeight.value)
        result.setTopMargin(0 if first else self._gap(block, previous))
        left = block.quote * self.px(16) + block.depth * self.px(22)
        result.setLeftMargin(left)
        if block.marker:
            hang = self.px(22)
            result.setTextIndent(-hang)
            result.setTabPositions([QTextOption.Tab(hang, QTextOption.TabType.LeftTab)])
        if block.quote:
            result.setProperty(QUOTE_PROPERTY, block.quote)
        if block.kind == "rule":
            result.setProperty(RULE_PROPERTY, True)
        return result

    def _gap(self, block: TextBlock, previous: TextBlock | None) -> int:
        if block.joined:
            return 0
        if block.kind == "heading":
            return self.px(18 if block.level < 3 else 14)
        if block.depth and previous is not None and previous.depth:
            return self.px(3 if _same_list(block, previous) else 10)
        if previous is not None and previous.kind == "heading":
            return self.px(6)
        return self.px(10)


def _same_list(block: TextBlock, previous: TextBlock) -> bool:
    both = block.depth == previous.depth == 1 and block.marker and previous.marker
    return not both or block.marker[0].isdigit() == previous.marker[0].isdigit()


QUOTE_PROPERTY = QTextFormat.Property.UserProperty.value + 1
RULE_PROPERTY = QTextFormat.Property.UserProperty.value + 2
ALIGNMENT = {
    "left": Qt.AlignmentFlag.AlignLeft,
    "center": Qt.AlignmentFlag.AlignHCenter,
    "right": Qt.AlignmentFlag.AlignRight,
}
