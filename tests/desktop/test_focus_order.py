"""Tab goes through the window as it is seen, and back."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QApplication, QHBoxLayout, QLineEdit, QPushButton, QVBoxLayout, QWidget

from desktop import focus_order
from desktop.views.chat.message_widget import MessageWidget


def press(qtbot, modifiers: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier) -> QWidget:
    focus = QApplication.focusWidget()
    assert focus is not None
    qtbot.keyClick(focus, Qt.Key.Key_Tab, modifiers)
    now = QApplication.focusWidget()
    assert now is not None
    return now


def round_trip(qtbot, start: QWidget, modifiers: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier) -> list[QWidget]:
    """Everything that Tab reaches from `start` until it is there again."""
    start.setFocus()
    seen = [start]
    for _ in range(150):
        now = press(qtbot, modifiers)
        if now is start:
            return seen
        assert now not in seen, f"a trap at {now.objectName() or now.accessibleName()}"
        seen.append(now)
    raise AssertionError("no way back")


@pytest.fixture
def stored(shell, model_file: Path):
    """A stored chat of several messages, opened as it is at a start."""
    one = shell({"answers": [{"text": f"Answer {n} with `code`."} for n in range(3)]})
    one.load(model_file)
    for n in range(3):
        one.answer(f"Question {n}?")
    chat_id = one.presenter.chat_id
    one.view.new_chat()
    one.view.open_chat(chat_id)
    one.wait(lambda: len(one.view.transcript.widgets) == 6)
    one.wait(lambda: not one.view.transcript._unfinished)
    one.window.activateWindow()
    return one


def test_tab_goes_from_the_composer_through_the_window_and_the_messages(stored, qtbot) -> None:
    window, view = stored.window, stored.view
    order = round_trip(qtbot, view.composer.edit)
    places = [
        window.rail_chat,
        window.rail_models,
        window.rail_settings,
        window.chat_list.search,
        window.chat_list.new_chat,
        window.chat_list.view,
        view.header.picker,
        view.header.settings_button,
        *(view.transcript.widgets[message.id] for message in stored.presenter.messages),
    ]
    found = [widget for widget in order if widget in places]
    assert found == places
    names = [widget.accessibleName() for widget in order]
    assert names.count("Edit this message and answer it anew") == 3
    assert names.count("Write another answer") == 3


def test_shift_tab_is_the_reverse(stored, qtbot) -> None:
    edit = stored.view.composer.edit

    def names(widgets: list[QWidget]) -> list[str]:
        return [widget.objectName() or widget.accessibleName() for widget in widgets]

    there = names(round_trip(qtbot, edit))
    back = names(round_trip(qtbot, edit, Qt.KeyboardModifier.ShiftModifier))
    assert back == [there[0], *reversed(there[1:])]


def test_tab_comes_to_messages_that_are_not_built_yet(stored, qtbot) -> None:
    view = stored.view.transcript
    stored.window.resize(760, 480)
    stored.wait(lambda: not view._unfinished)
    view.verticalScrollBar().setValue(0)
    view.setFocus(Qt.FocusReason.TabFocusReason)
    focused = []
    for _ in range(60):
        focus = QApplication.focusWidget()
        if isinstance(focus, MessageWidget):
            focused.append(focus.message.id)
            top = focus.mapTo(view.viewport(), QPoint(0, 0)).y()
            assert top < view.viewport().height() and top + focus.height() > 0
        elif not view.isAncestorOf(focus):
            break
        press(qtbot)
    assert focused == [message.id for message in stored.presenter.messages]


def test_tab_goes_round_in_the_models_view(shell, qtbot) -> None:
    one = shell()
    one.window.activateWindow()
    view = one.window.show_models()
    one.wait(lambda: view.isAncestorOf(QApplication.focusWidget()) if QApplication.focusWidget() else False)
    order = round_trip(qtbot, QApplication.focusWidget())
    assert one.window.rail_chat in order
    assert {w for w in order if view.isAncestorOf(w)}
    tops = [w.mapTo(one.window, QPoint(0, 0)).y() for w in order if w.parentWidget() is one.window.rail]
    assert tops == sorted(tops)


def test_the_order_is_that_of_the_layouts_not_of_the_making(qtbot) -> None:
    window = QWidget()
    last, first, second, over = QLineEdit(), QPushButton("a"), QPushButton("b"), QPushButton("c")
    box = QVBoxLayout(window)
    row = QHBoxLayout()
    box.addLayout(row)
    box.addWidget(last)
    row.addWidget(first)
    row.addWidget(second)
    over.setParent(window)
    qtbot.addWidget(window)
    window.show()
    assert focus_order.stops(window) == [first, second, last, over]
    second.setEnabled(False)
    assert focus_order.stops(window) == [first, last, over]
    last.setFocus()
    last.hide()
    assert focus_order.move(window, last, forward=True)
    assert window.focusWidget() is over, "what was hidden keeps its place"
