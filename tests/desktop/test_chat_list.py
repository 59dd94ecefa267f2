"""The list of chats: rows and their changes, search, rename, delete with undo."""

from __future__ import annotations

import datetime as dt
import random

import pytest
from PySide6.QtCore import QItemSelectionModel, Qt
from PySide6.QtTest import QAbstractItemModelTester
from PySide6.QtWidgets import QLineEdit, QListView

from desktop.models.chat_list import ChatListModel, Role, Row, group_of, grouped
from engine.message import Chat

NOW = dt.datetime(2026, 11, 29, 14, 30)


def chat(number: int, days_ago: float = 0, title: str = "") -> Chat:
    return Chat(id=number, title=title or f"chat {number}", updated_s=(NOW - dt.timedelta(days=days_ago)).timestamp())


def test_groups_go_by_calendar_days() -> None:
    def group(*when: int) -> str:
        return group_of(dt.datetime(*when).timestamp(), NOW)

    assert group(2026, 11, 29, 0, 1) == "Today"
    assert group(2026, 11, 29, 23, 0) == "Today"  # a clock that was put back
    assert group(2026, 11, 28, 23, 59) == "Yesterday"
    assert group(2026, 11, 27, 12) == "Last week"
    assert group(2026, 11, 22, 0, 1) == "Last week"
    assert group(2026, 11, 21, 23) == "Older"


def test_headings_stand_over_their_chats() -> None:
    rows = grouped([chat(3), chat(2, 1), chat(1, 40)], frozenset({2}), NOW)
    assert [(row.title, row.writing) for row in rows] == [
        ("Today", False),
        ("chat 3", False),
        ("Yesterday", False),
        ("chat 2", True),
        ("Older", False),
        ("chat 1", False),
    ]


def test_the_model_keeps_qts_rules_through_any_change(qtbot) -> None:
    model = ChatListModel()
    QAbstractItemModelTester(model, QAbstractItemModelTester.FailureReportingMode.Fatal)
    dice = random.Random(4)
    chats = [chat(i, dice.choice([0, 1, 3, 30])) for i in range(40)]
    for _ in range(60):
        shown = sorted(dice.sample(chats, dice.randrange(len(chats))), key=lambda c: -c.updated_s)
        rows = grouped(shown, frozenset(dice.sample(range(40), 3)), NOW)
        model.set_rows(rows)
        assert [model.row_at(model.index(i)) for i in range(model.rowCount())] == rows
    model.set_rows([])
    assert model.rowCount() == 0


def test_a_very_different_long_list_is_shown_too(qtbot) -> None:
    model = ChatListModel()
    QAbstractItemModelTester(model, QAbstractItemModelTester.FailureReportingMode.Fatal)
    model.set_rows([Row(f"a{i}", i + 1) for i in range(1200)])
    model.set_rows([Row(f"b{i}", 5000 + i) for i in range(1300)])
    assert model.rowCount() == 1300
    assert model.index(7).data() == "b7"


def test_a_chat_that_moves_up_keeps_the_selection(qtbot) -> None:
    model = ChatListModel()
    view = QListView()
    qtbot.addWidget(view)
    view.setModel(model)
    model.set_rows([Row("Today"), Row("a", 1), Row("b", 2), Row("c", 3)])
    view.selectionModel().setCurrentIndex(model.index(3), QItemSelectionModel.SelectionFlag.ClearAndSelect)
    model.set_rows([Row("Today"), Row("b", 2, writing=True), Row("a", 1), Row("c", 3)])
    assert [i.data(Role.CHAT_ID) for i in view.selectedIndexes()] == [3]
    assert model.index(1).data(Role.IS_WRITING)


def test_headings_cannot_be_chosen_and_chats_can_be_renamed(qtbot) -> None:
    model = ChatListModel()
    model.set_rows([Row("Today"), Row("a", 1)])
    assert not model.flags(model.index(0)) & Qt.ItemFlag.ItemIsSelectable
    assert model.flags(model.index(1)) & Qt.ItemFlag.ItemIsEditable
    with qtbot.waitSignal(model.rename_requested) as blocker:
        assert model.setData(model.index(1), "  new \n title ")
    assert blocker.args == [1, "new title"]
    assert not model.setData(model.index(1), "   "), "an empty title is refused"
    assert not model.setData(model.index(0), "x")


def test_neighbours_skip_headings() -> None:
    model = ChatListModel()
    model.set_rows([Row("Today"), Row("a", 1), Row("Older"), Row("b", 2)])
    assert model.neighbour(1, 1) == 2
    assert model.neighbour(2, -1) == 1
    assert model.neighbour(2, 1) == 0
    assert model.neighbour(99, 1) == 1


# ------------------------------------------------------------------ the panel over the real engine


@pytest.fixture
def filled(shell):
    one = shell()
    engine = one.app.engine
    for title in ("Letter to the landlord", "Haiku about rain", "Compare quants"):
        made = one.result(engine.chats.create())
        one.result(engine.chats.rename(made.id, title))
    panel = one.window.chat_list
    one.wait(lambda: panel.model.rowCount() == 4 and panel.model.index(1).data() == "Compare quants")
    return one


def titles(one) -> list[str]:
    model = one.window.chat_list.model
    return [model.index(i).data() for i in range(model.rowCount()) if model.index(i).data(Role.CHAT_ID)]


def test_f2_renames_in_place(filled, qtbot) -> None:
    panel = filled.window.chat_list
    chat_id = panel.model.index(2).data(Role.CHAT_ID)
    filled.view.open_chat(chat_id)
    filled.wait(lambda: filled.presenter.chat is not None)
    filled.window.actions_["rename_chat"].trigger()
    editor = panel.view.findChild(QLineEdit, "rename")
    assert editor is not None
    editor.setText("Rain, again")
    qtbot.keyClick(editor, Qt.Key.Key_Return)
    filled.wait(lambda: "Rain, again" in titles(filled))
    assert filled.result(filled.app.engine.chats.open(chat_id))[0].title == "Rain, again"


def test_del_deletes_only_from_the_list_and_undo_brings_it_back(filled, qtbot) -> None:
    panel = filled.window.chat_list
    filled.view.composer.edit.setPlainText("abc")
    filled.view.composer.edit.setFocus()
    filled.view.composer.edit.moveCursor(filled.view.composer.edit.textCursor().MoveOperation.Start)
    qtbot.keyClick(filled.view.composer.edit, Qt.Key.Key_Delete)
    assert filled.view.composer.text() == "bc"
    assert len(titles(filled)) == 3
    filled.view.open_chat(panel.model.index(2).data(Role.CHAT_ID))
    filled.wait(lambda: filled.presenter.chat is not None)
    panel.focus_list()
    qtbot.keyClick(panel.view, Qt.Key.Key_Delete)
    filled.wait(lambda: "Haiku about rain" not in titles(filled))
    toast = filled.window.toast
    assert toast.isVisible()
    assert filled.presenter.chat_id is None, "a deleted chat is not shown any more"
    assert filled.window.actions_["undo"].isEnabled()
    filled.window.actions_["undo"].trigger()
    filled.wait(lambda: "Haiku about rain" in titles(filled))
    assert not toast.isVisible()
    filled.wait(lambda: filled.presenter.chat is not None and filled.presenter.chat.title == "Haiku about rain")


def test_search_shows_hits_and_esc_shows_the_list_again(filled, qtbot) -> None:
    panel = filled.window.chat_list
    filled.window.actions_["search"].trigger()
    qtbot.keyClicks(panel.search, "landlord")
    filled.wait(lambda: titles(filled) == ["Letter to the landlord"])
    qtbot.keyClick(panel.search, Qt.Key.Key_Escape)
    filled.wait(lambda: len(titles(filled)) == 3)
    qtbot.keyClicks(panel.search, "no such word")
    filled.wait(lambda: titles(filled) == [])
    assert panel.empty.isVisible()
    assert "No chat holds" in panel.empty.text()


def test_esc_in_the_hits_ends_the_search_too(filled, qtbot) -> None:
    panel = filled.window.chat_list
    filled.window.activateWindow()
    filled.window.actions_["search"].trigger()
    qtbot.keyClicks(panel.search, "landlord")
    filled.wait(lambda: titles(filled) == ["Letter to the landlord"])
    qtbot.keyClick(panel.search, Qt.Key.Key_Down)
    assert panel.view.hasFocus()
    stop = filled.window.actions_["stop"]
    stop.setEnabled(True)  # as while an answer is written
    stopped: list[str] = []
    stop.triggered.connect(lambda: stopped.append("stop"))
    qtbot.keyClick(panel.view, Qt.Key.Key_Escape)
    filled.wait(lambda: len(titles(filled)) == 3)
    assert panel.search.text() == "" and panel.view.hasFocus() and not stopped
    stop.setEnabled(True)
    qtbot.keyClick(panel.view, Qt.Key.Key_Escape)
    assert stopped == ["stop"], "without hits it is the window's key again"


def test_keys_walk_through_the_list(filled, qtbot) -> None:
    panel = filled.window.chat_list
    panel.search.setFocus()
    qtbot.keyClick(panel.search, Qt.Key.Key_Down)
    assert panel.view.currentIndex().data() == "Compare quants"
    qtbot.keyClick(panel.view, Qt.Key.Key_Down)
    assert panel.view.currentIndex().data() == "Haiku about rain"
    qtbot.keyClick(panel.view, Qt.Key.Key_Return)
    filled.wait(lambda: filled.presenter.chat is not None and filled.presenter.chat.title == "Haiku about rain")
    filled.window.actions_["next_chat"].trigger()
    filled.wait(lambda: filled.presenter.chat is not None and filled.presenter.chat.title == "Letter to the landlord")


def test_the_panel_paints_every_kind_of_row(filled) -> None:
    panel = filled.window.chat_list
    panel.model.set_rows(
        [Row("Today"), Row("a" * 200, 1, writing=True), Row("b", 2, snippet="found here " * 30, message_id=5)]
    )
    image = panel.view.grab().toImage()
    colours = {image.pixelColor(x, y).name() for x in range(0, image.width(), 2) for y in range(0, 160, 2)}
    assert len(colours) > 5
