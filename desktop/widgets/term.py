"""What a word on screen means: its tooltip, F1 and "What is this?" in the context menu open the glossary at it.

`explain(widget, "kv_cache")` is all that a view has to say. The window has one `TermHelp`, which knows how the glossary
is opened; a widget finds that of its window when it is asked, so nothing has to be handed down.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QAction, QCursor
from PySide6.QtWidgets import (
    QAbstractSpinBox,
    QApplication,
    QLabel,
    QLineEdit,
    QMenu,
    QPlainTextEdit,
    QTextEdit,
    QToolTip,
    QWidget,
)

from engine import glossary

#: dynamic property of a widget that has a term
PROPERTY = "term"
WHAT_IS_THIS = "What is this?"
_KEYS = "F1 tells more"


@runtime_checkable
class HasTermAt(Protocol):
    """A painted widget whose places have terms of their own."""

    def term_at(self, place: QPoint) -> str:
        """The id of the term at a place of the widget, empty where there is none."""
        ...


def explain(widget: QWidget, term_id: str, tip: str | None = None) -> None:
    """Link a widget to a term of the glossary.

    Its tooltip becomes `tip`, or without one the term in one sentence. F1 on it and "What is this?" in its context
    menu open the glossary at the term. It may be called again to change the term or the words.

    Args:
        term_id: an id in resources/glossary, for instance "kv_cache". An unknown one changes nothing but the tooltip.
        tip: words that fit this place better than the general sentence; "" leaves the tooltip as it is.
    """
    widget.setProperty(PROPERTY, term_id)
    words = glossary.short(term_id) if tip is None else tip
    if words:
        widget.setToolTip(f"{words}\n{_KEYS}")
    if widget.contextMenuPolicy() == Qt.ContextMenuPolicy.DefaultContextMenu and not _is_selectable(widget):
        widget.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        widget.customContextMenuRequested.connect(lambda place: _open_menu(widget, place))


def tip_of(term_id: str) -> str:
    """The tooltip of a term for what is painted; empty where there is none."""
    words = glossary.short(term_id) if term_id else ""
    return f"{words}\n{_KEYS}" if words else ""


def term_of(widget: QWidget | None, place: QPoint | None = None) -> str:
    """The id of the term of a widget, or of the nearest around it; empty if there is none.

    Args:
        place: a global position, for widgets whose places have terms of their own.
    """
    while widget is not None:
        if place is not None and isinstance(widget, HasTermAt):
            found = widget.term_at(widget.mapFromGlobal(place))
            if found:
                return found
        term_id = widget.property(PROPERTY)
        if term_id:
            return str(term_id)
        if widget.isWindow():
            return ""
        widget = widget.parentWidget()
    return ""


class TermHelp(QWidget):
    """Opens the glossary for a window; never shown itself.

    Args:
        show: brings the glossary to the front at a term; with "" where it was last.
    """

    def __init__(self, window: QWidget, show: Callable[[str], object]) -> None:
        super().__init__(window)
        self.hide()
        self._show = show

    def open(self, term_id: str) -> None:
        """Open the glossary at a term; a popup that is open would lie over it and is closed."""
        popup = QApplication.activePopupWidget()
        if popup is not None and not isinstance(popup, QMenu):
            popup.close()
        self._show(term_id)

    def open_at_hand(self) -> None:
        """Open the glossary at what the user means: what the tooltip is about, has the focus, or is under the mouse."""
        place = QCursor.pos()
        focused = term_of(QApplication.focusWidget())
        hovered = term_of(QApplication.widgetAt(place), place)
        self.open(hovered or focused if QToolTip.isVisible() or not focused else focused)


def help_of(widget: QWidget | None) -> TermHelp | None:
    """The help of the window that a widget, a dialog or a popup belongs to."""
    while widget is not None:
        found = widget.findChild(TermHelp, options=Qt.FindChildOption.FindDirectChildrenOnly)
        if found is not None:
            return found
        widget = widget.parentWidget()
    return None


def add_to_menu(menu: QMenu, widget: QWidget, term_id: str) -> QAction | None:
    """Add "What is this?" to a menu that is shown for a widget; None where there is no glossary to open."""
    help_ = help_of(widget)
    if help_ is None or not term_id:
        return None
    if not menu.isEmpty():
        menu.addSeparator()
    action = menu.addAction(WHAT_IS_THIS)
    action.triggered.connect(lambda: help_.open(term_id))
    return action


def _is_selectable(widget: QWidget) -> bool:
    """A label whose text can be copied keeps its own menu, which cannot be had from outside."""
    return isinstance(widget, QLabel) and bool(
        widget.textInteractionFlags() & Qt.TextInteractionFlag.TextSelectableByMouse
    )


def _own_menu(widget: QWidget) -> QMenu:
    """The menu that a field has by itself (cut, copy, paste, ...); an empty one for all else."""
    if isinstance(widget, QAbstractSpinBox):
        menu = widget.lineEdit().createStandardContextMenu()
        menu.addSeparator()
        menu.addAction("Step up", widget.stepUp)
        menu.addAction("Step down", widget.stepDown)
        return menu
    if isinstance(widget, QLineEdit | QPlainTextEdit | QTextEdit):
        return widget.createStandardContextMenu()
    return QMenu(widget)


def _open_menu(widget: QWidget, place: QPoint) -> None:
    menu = _own_menu(widget)
    menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    where = widget.mapToGlobal(place)
    add_to_menu(menu, widget, term_of(widget, where))
    if menu.isEmpty():
        menu.deleteLater()
    else:
        menu.popup(where)
