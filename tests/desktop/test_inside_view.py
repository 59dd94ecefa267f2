"""The view that looks inside: pages are made when they are first shown, and reached by button, key and rail."""

from __future__ import annotations

import sys
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication


def press(shell: Any, button: Any) -> None:
    shell.qtbot.mouseClick(button, Qt.MouseButton.LeftButton)


def test_nothing_is_made_before_it_is_shown(shell) -> None:
    one = shell()
    assert one.window.inside.view is None
    one.window.actions_["view_inside"].trigger()
    view = one.window.inside.view
    assert view is not None and view.isVisible() and one.window.rail_inside.isChecked()
    assert view.shown == "monitor" and list(view._pages) == ["monitor"]


def test_the_button_of_the_rail_leads_there_and_back(shell) -> None:
    one = shell()
    press(one, one.window.rail_inside)
    assert one.window.views.currentWidget() is one.window.inside.view
    press(one, one.window.rail_chat)
    assert one.window.views.currentWidget() is one.window.chat_page
    assert not one.window.rail_inside.isChecked()


def test_every_page_can_be_shown_and_has_a_tab_with_words(shell) -> None:
    from desktop.views.inside.inside_view import PAGES

    one = shell()
    for spec in PAGES:
        view = one.window.inside.show(spec.id)
        assert view.shown == spec.id and view.tabs[spec.id].isChecked()
        assert view.stack.currentWidget() is view.page(spec.id)
        assert view.tabs[spec.id].accessibleName() and view.tabs[spec.id].toolTip()
        assert QApplication.focusWidget() is not None
    assert [one_id for one_id, tab in view.tabs.items() if tab.isChecked()] == [PAGES[-1].id]
    one.window.inside.show()
    assert view.shown == PAGES[-1].id


def test_the_start_of_the_window_imports_none_of_it(shell) -> None:
    for name in [name for name in sys.modules if name.startswith(("desktop.views.inside", "desktop.views.monitor"))]:
        del sys.modules[name]
    shell()
    assert not [name for name in sys.modules if name.startswith(("desktop.views.inside", "desktop.views.monitor."))]
