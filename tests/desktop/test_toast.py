"""Messages at the bottom of the window, and what can be taken back after they have gone."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QApplication, QWidget

from desktop.models.chat_list import Role
from desktop.undo import LIMIT, Undos
from desktop.widgets.toast import Toast

LONG = (
    "The model file cannot be moved to the trash because another program holds it open. "
    "/a/folder/of/models/some-organisation/" + "a_very_long_name_" * 6 + ".gguf"
)


@pytest.mark.parametrize("width", [400, 760, 1400])
@pytest.mark.parametrize("undo", [None, lambda: None])
def test_a_long_text_is_wrapped_within_the_window(qtbot, width: int, undo) -> None:
    window = QWidget()
    qtbot.addWidget(window)
    window.resize(width, 500)
    window.show()
    toast = Toast(window)
    toast.show_message(LONG, undo)
    for size in (width, width - 60):
        window.resize(size, 500)
        label = toast._label
        assert toast.x() >= 0 and toast.geometry().right() < window.width()
        assert toast.y() > 0 and toast.geometry().bottom() < window.height()
        room = label.fontMetrics().boundingRect(0, 0, label.width(), 10_000, Qt.TextFlag.TextWordWrap, label.text())
        assert room.width() <= label.width() and room.height() <= label.height()
        assert toast.rect().contains(label.geometry())
    assert toast.text == LONG
    window.resize(width, 130)
    assert toast.y() > 0 and toast.geometry().bottom() < window.height(), "as much as there is room for"
    assert toast.text == LONG or (toast.text.endswith("…") and toast._label.toolTip() == LONG)
    toast.show_message("Short")
    assert toast.width() < 200


def test_what_was_deleted_last_is_taken_back_first() -> None:
    undos, back = Undos(), []
    for number in range(LIMIT + 5):
        undos.add(lambda number=number: back.append(number))
    while undos:
        undos.take_back()
    undos.take_back()
    assert back == list(range(LIMIT + 4, 4, -1))


@pytest.fixture
def three(shell):
    one = shell()
    for title in ("Letter", "Haiku", "Quants"):
        made = one.result(one.app.engine.chats.create())
        one.result(one.app.engine.chats.rename(made.id, title))
    one.wait(lambda: len(titles(one)) == 3)
    one.window.activateWindow()
    return one


def titles(one) -> list[str]:
    model = one.window.chat_list.model
    return [model.index(i).data() for i in range(model.rowCount()) if model.index(i).data(Role.CHAT_ID)]


def delete(one, qtbot, title: str) -> None:
    panel = one.window.chat_list
    row = next(i for i in range(panel.model.rowCount()) if panel.model.index(i).data() == title)
    panel.view.setCurrentIndex(panel.model.index(row))
    panel.view.setFocus()
    qtbot.keyClick(panel.view, Qt.Key.Key_Delete)
    one.wait(lambda: title not in titles(one))


def test_deletions_can_be_undone_after_their_message_has_gone(three, qtbot) -> None:
    delete(three, qtbot, "Letter")
    delete(three, qtbot, "Haiku")
    three.window.toast.dismiss()
    assert three.window.actions_["undo"].isEnabled()
    edit = three.view.composer.edit
    edit.setFocus()
    for title in ("Haiku", "Letter"):
        qtbot.keyClick(edit, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
        three.wait(lambda title=title: title in titles(three))
    assert not three.window.actions_["undo"].isEnabled()


def test_ctrl_z_takes_typed_text_back_first(three, qtbot) -> None:
    delete(three, qtbot, "Letter")
    edit = three.view.composer.edit
    edit.setFocus()
    qtbot.keyClicks(edit, "abc")
    qtbot.keyClick(edit, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    assert edit.toPlainText() == ""
    assert three.window.toast.can_undo and "Letter" not in titles(three)


def test_undo_by_mouse_leaves_the_focus_where_it_was(three, qtbot) -> None:
    delete(three, qtbot, "Haiku")
    button = three.window.toast._button
    before = QApplication.focusWidget()
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton, pos=QPoint(5, 5))
    three.wait(lambda: "Haiku" in titles(three))
    assert QApplication.focusWidget() is before
    assert before in (three.window.chat_list.view, three.view.composer.edit)


def test_undo_by_key_goes_on_to_the_composer(three, qtbot, model_file: Path) -> None:
    delete(three, qtbot, "Haiku")
    button = three.window.toast._button
    button.setFocus(Qt.FocusReason.TabFocusReason)
    qtbot.keyClick(button, Qt.Key.Key_Space)
    three.wait(lambda: "Haiku" in titles(three))
    assert QApplication.focusWidget() is three.view.composer.edit
