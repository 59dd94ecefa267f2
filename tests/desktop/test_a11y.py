"""Every control has a name, a tooltip and a way to it by keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QAbstractSpinBox,
    QApplication,
    QComboBox,
    QLineEdit,
    QPlainTextEdit,
    QTextEdit,
    QWidget,
)

from desktop.actions import SPECS
from desktop.views.settings.chat_settings import ChatSettingsDialog
from desktop.views.settings.settings_view import ENGINE
from engine.errors import LoadFailed

CONTROLS = (
    QAbstractButton,
    QLineEdit,
    QPlainTextEdit,
    QTextEdit,
    QComboBox,
    QAbstractSpinBox,
    QAbstractItemView,
)
NAMES = {
    *("composer", "send", "stop", "transcript", "model_picker", "chat_list", "search", "new_chat", "settings"),
    *("rail_chat", "chat_settings_button", "status_strip", "context_meter", "error_banner", "empty_state"),
    *("toast", "undo", "model_popup", "open_file", "unload", "cancel_load"),
}


def controls(root: QWidget) -> Iterator[QWidget]:
    """All controls under a widget, without the inner parts of Qt's own."""
    for widget in [root, *root.findChildren(QWidget)]:
        if not isinstance(widget, CONTROLS) or widget.objectName().startswith("qt_"):
            continue
        parent = widget.parentWidget()
        inner = False
        while parent is not None:
            inner = inner or isinstance(parent, QComboBox | QAbstractSpinBox | QLineEdit)
            parent = parent.parentWidget()
        if not inner:
            yield widget


def everything(one, model_file: Path) -> list[QWidget]:
    one.load(model_file)
    one.answer("hello")
    one.view.composer.add_block("x\n" * 50_000)
    one.view.composer.blocks[0].toggle()
    one.view.show_error(LoadFailed("It failed.", hint="Try again.", details={"log": ["a", "b"]}))
    one.window.toast.show_message("Deleted", lambda: None)
    one.window.actions_["view_settings"].trigger()
    one.wait(lambda: one.window.settings_view.sampling is not None)
    one.window.settings_view.show_tab(ENGINE)
    one.window.actions_["view_chat"].trigger()
    one.window.commands.open_chat_settings()
    one.app.excepthook(ValueError, ValueError("x"), None)
    one.view.popup.open_below(one.view.header.picker)
    one.view.popup.hide()
    assert one.window.findChild(ChatSettingsDialog) is not None
    roots = [w for w in QApplication.topLevelWidgets() if w is one.window or w.parentWidget() is not None]
    return [control for root in roots for control in controls(root)]


def test_every_control_has_a_name_and_a_tooltip(shell, model_file: Path) -> None:
    one = shell()
    found = everything(one, model_file)
    assert len(found) > 80
    nameless = [w for w in found if not (w.accessibleName() or (isinstance(w, QAbstractButton) and w.text()))]
    tipless = [w for w in found if not w.toolTip() and not one.view.transcript.isAncestorOf(w)]
    assert [f"{type(w).__name__} {w.objectName()}" for w in nameless] == []
    assert [f"{type(w).__name__} {w.objectName()}" for w in tipless] == []


def test_every_control_can_have_the_focus(shell, model_file: Path) -> None:
    one = shell()
    found = everything(one, model_file)
    unreachable = [
        f"{type(w).__name__} {w.objectName()}"
        for w in found
        if not w.focusPolicy() & Qt.FocusPolicy.TabFocus and not one.view.transcript.isAncestorOf(w)
    ]
    assert unreachable == []


def test_the_names_that_others_rely_on_are_there(shell) -> None:
    one = shell()
    missing = [name for name in NAMES if one.window.findChild(QWidget, name) is None]
    assert missing == []


def test_tab_reaches_the_whole_window(shell, qtbot) -> None:
    one = shell()
    one.window.activateWindow()
    one.view.composer.edit.setPlainText("something to send")
    one.view.composer.edit.setFocus()
    seen = []
    for _ in range(30):
        widget = QApplication.focusWidget()
        if widget is None or (seen and widget.objectName() == seen[0]):
            break
        seen.append(widget.objectName())
        qtbot.keyClick(widget, Qt.Key.Key_Tab)
    wanted = {"composer", "send", "rail_chat", "settings", "search", "new_chat", "chat_list", "model_picker"}
    assert wanted | {"chat_settings_button"} <= set(seen), seen


def test_shortcuts_are_unique_and_every_action_has_words(shell) -> None:
    keys = [key for spec in SPECS for key in spec.shortcuts]
    assert len(keys) == len(set(keys))
    one = shell()
    for action in one.window.actions_:
        assert action.text() and action.toolTip()
        for sequence in action.shortcuts():
            assert not sequence.isEmpty(), action.objectName()


def test_commands_are_possible_only_when_they_make_sense(shell, model_file: Path) -> None:
    one = shell()
    actions = one.window.actions_

    def possible() -> set[str]:
        return {a.objectName().removeprefix("action_") for a in actions if a.isEnabled()}

    never = {"stop", "rename_chat", "delete_chat", "regenerate", "copy_answer", "edit_last", "undo", "unload_model"}
    assert possible() & never == set()
    one.load(model_file)
    one.answer("hello")
    one.wait(lambda: never - possible() == {"stop", "undo"})
