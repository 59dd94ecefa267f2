"""What happens inside: a row of tabs over pages, each made when it is first shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFont, QFontMetrics
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QStackedWidget, QVBoxLayout, QWidget

from desktop import fonts
from desktop.theme import Theme
from desktop.views.settings.page import hairline
from desktop.widgets.wrap_row import WrapRow

if TYPE_CHECKING:
    from desktop.inside_corner import InsideCorner


@dataclass(frozen=True)
class PageSpec:
    """Declaration of one page.

    Attributes:
        id: its name in code; the tab's objectName is "tab_" and this. words: on the tab. tip: one sentence.
        make: the page, a QWidget with `apply_theme(theme, scale)` and `stop()`. Where it has a signal
            `message(str, object)` it is passed on; where it has `focus_first()`, that is called when it is shown.
            It may work only while it is visible.
    """

    id: str
    words: str
    tip: str
    make: Callable[[InsideCorner], QWidget]


def _monitor(corner: InsideCorner) -> QWidget:
    return corner.monitor.make_page()


def _trace(corner: InsideCorner) -> QWidget:
    from desktop.views.trace.trace_page import TracePage

    return TracePage(corner.engine, corner.bridge, corner.tasks, corner.latest_answer)


def _model(corner: InsideCorner) -> QWidget:
    from desktop.views.anatomy.page import AnatomyPage

    models = corner.window.models
    page = AnatomyPage(corner.control, corner.bridge, corner.tasks, models.fit, models.desk.loads)
    page.models_wanted.connect(corner.window.show_models)
    return page


def _glossary(corner: InsideCorner) -> QWidget:
    from desktop.views.glossary.gather import Gatherer
    from desktop.views.glossary.glossary_page import GlossaryPage

    return GlossaryPage(Gatherer(corner.engine, corner.bridge, corner.tasks, corner.control, corner.last_known))


def _tour(corner: InsideCorner) -> QWidget:
    from desktop.views.tour.tour_page import TourPage

    page = TourPage(corner.engine, corner.bridge, corner.tasks, corner.latest_answer)
    page.trace_wanted.connect(corner.show_trace)
    page.models_wanted.connect(corner.window.show_models)
    return page


#: in the order of the tabs; a page stands here when it is there
PAGES: tuple[PageSpec, ...] = (
    PageSpec("monitor", "Monitor", "Speed, KV cache and memory as they are now", _monitor),
    PageSpec("trace", "Trace", "How one answer came about, token by token", _trace),
    PageSpec("model", "Model", "The layers of the loaded model, where each lies, and what they weigh", _model),
    PageSpec("glossary", "Glossary", "The words of this field, with what they mean on this computer", _glossary),
    PageSpec("tour", "What happens when you ask", "One real question, step by step, with its own figures", _tour),
)


class InsideView(QWidget):
    """Signals:
    message(str, object): say this, with a way back or None. page_made(object): a page is there for the first time.
    """

    message = Signal(str, object)
    page_made = Signal(object)

    def __init__(self, corner: InsideCorner, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("inside_view")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._corner = corner
        self._specs = {spec.id: spec for spec in PAGES}
        self._pages: dict[str, QWidget] = {}
        self._theme: tuple[Theme, float] | None = None
        self.shown = ""
        self.tabs: dict[str, QPushButton] = {}
        self.stack = QStackedWidget()
        self._build()

    def _build(self) -> None:
        row = QHBoxLayout()
        row.setContentsMargins(20, 12, 16, 10)
        tabs = WrapRow(spacing=14)  # all of them can be seen in a narrow window with large text
        row.addLayout(tabs, 1)
        for spec in PAGES:
            tab = QPushButton(spec.words)
            tab.setObjectName(f"tab_{spec.id}")
            tab.setProperty("kind", "tab")
            tab.setCheckable(True)
            tab.setAccessibleName(spec.words)
            tab.setToolTip(spec.tip)
            tab.clicked.connect(lambda _=False, page=spec.id: self.show_page(page))
            self.tabs[spec.id] = tab
            tabs.addWidget(tab)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addLayout(row)
        layout.addWidget(hairline())
        layout.addWidget(self.stack, 1)

    def show_page(self, page: str = "") -> None:
        """Bring a page to the front; empty: the one that was last, or the first.

        Raises:
            KeyError: there is no page of this name.
        """
        wanted = page or self.shown or PAGES[0].id
        self.stack.setCurrentWidget(self.page(wanted))
        self.shown = wanted
        for one, tab in self.tabs.items():
            tab.setChecked(one == wanted)

    def page(self, page: str) -> QWidget:
        """The page; made at the first call.

        Raises:
            KeyError: there is no page of this name.
        """
        there = self._pages.get(page)
        if there is None:
            made: Any = self._specs[page].make(self._corner)
            there = self._pages[page] = made
            if hasattr(made, "message"):
                made.message.connect(self.message)
            self.stack.addWidget(made)
            self.page_made.emit(made)
        return there

    def focus_first(self) -> None:
        """Give the focus to what the page wants, or to its tab."""
        page: Any = self._pages[self.shown]
        if hasattr(page, "focus_first"):
            page.focus_first()
        else:
            self.tabs[self.shown].setFocus(Qt.FocusReason.OtherFocusReason)

    def apply_theme(self, theme: Theme, scale: float) -> None:
        bold = fonts.ui_font(scale)
        bold.setWeight(QFont.Weight.DemiBold)
        for tab in self.tabs.values():  # the chosen one is bold and must not be cut
            tab.setMinimumWidth(QFontMetrics(bold).horizontalAdvance(tab.text()) + round(8 * scale))
        for made in self._pages.values():
            page: Any = made
            page.apply_theme(theme, scale)

    def stop(self) -> None:
        """Ask for nothing any more."""
        for made in self._pages.values():
            page: Any = made
            page.stop()
