"""The order of Tab as it is seen: through the layouts from top to bottom and from left to right.

Qt goes by the order in which widgets were made. What is made later, as the messages of a chat are, would stand at the
end, and whatever stands before it on screen would never be reached from there.
"""

from __future__ import annotations

from collections.abc import Iterator

from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import (
    QGridLayout,
    QLayout,
    QScrollArea,
    QWidget,
)


def move(window: QWidget, start: QWidget | None, *, forward: bool) -> bool:
    """Give the focus to the stop after (or before) `start`; around at the ends. False if there is none.

    Args:
        window: what the order is made of; stops outside are never reached.
        start: where the focus is or was, also something that was hidden just now; None: begin at the end of the order
            that the direction comes from.
    """
    before, after = _around(window, start)
    order = [*after, *before] if forward else [*reversed(before), *reversed(after)]
    if not order:
        return False
    reason = Qt.FocusReason.TabFocusReason if forward else Qt.FocusReason.BacktabFocusReason
    order[0].setFocus(reason)
    _bring_into_view(order[0])
    return True


def stops(window: QWidget) -> list[QWidget]:
    """All that Tab stops at, in order."""
    return [widget for widget in _walk(window, None) if _is_stop(widget, window)]


def _around(window: QWidget, start: QWidget | None) -> tuple[list[QWidget], list[QWidget]]:
    before: list[QWidget] = []
    after: list[QWidget] = []
    passed = False
    for widget in _walk(window, start):
        if widget is start:
            passed = True
        elif _is_stop(widget, window):
            (after if passed else before).append(widget)
    return before, after


def _is_stop(widget: QWidget, window: QWidget) -> bool:
    return bool(
        widget.focusPolicy() & Qt.FocusPolicy.TabFocus
        and widget.isEnabled()
        and widget.isVisibleTo(window)
        and widget.focusProxy() is None
        and not widget.isWindow()
    )


def _walk(widget: QWidget, start: QWidget | None) -> Iterator[QWidget]:
    """The widget and all below it that is shown or leads to `start`."""
    yield widget
    for child in _children(widget):
        if not child.isWindow() and (not child.isHidden() or child is start or _holds(child, start)):
            yield from _walk(child, start)


def _holds(widget: QWidget, start: QWidget | None) -> bool:
    return start is not None and widget.isAncestorOf(start)


def _children(widget: QWidget) -> list[QWidget]:
    """In the order of the layout, then what lies over it, as it lies there.

    A widget that leads Tab through its inner parts by itself names in `extra_stops` the only ones that are left.
    """
    extra = getattr(widget, "extra_stops", None)
    if extra is not None:
        return list(extra)
    layout = widget.layout()
    ordered = list(_laid_out(layout)) if layout is not None else []
    known = set(ordered)
    rest = [
        child
        for child in widget.findChildren(QWidget, options=Qt.FindChildOption.FindDirectChildrenOnly)
        if child not in known
    ]
    rest.sort(key=lambda child: (child.y(), child.x()))
    return [*ordered, *rest]


def _laid_out(layout: QLayout) -> Iterator[QWidget]:
    places = list(range(layout.count()))
    if isinstance(layout, QGridLayout):
        places.sort(key=lambda place: layout.getItemPosition(place)[:2])  # type: ignore[index]
    for place in places:
        item = layout.itemAt(place)
        if item is None:
            continue
        widget, inner = item.widget(), item.layout()
        if widget is not None:
            yield widget
        elif inner is not None:
            yield from _laid_out(inner)


def _bring_into_view(widget: QWidget) -> None:
    parent = widget.parentWidget()
    while parent is not None:
        page = parent.widget() if isinstance(parent, QScrollArea) else None
        if isinstance(parent, QScrollArea) and page is not None and page.isAncestorOf(widget):
            point = widget.mapTo(page, QPoint(0, 0))
            height = min(widget.height(), parent.viewport().height())
            parent.ensureVisible(point.x(), point.y() + height, 0, 8)
            parent.ensureVisible(point.x(), point.y(), 0, 8)
        parent = parent.parentWidget()
