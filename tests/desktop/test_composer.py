"""Writing a message: keys, input methods, large pastes, Send and Stop."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QMimeData, Qt, QUrl
from PySide6.QtGui import QInputMethodEvent
from PySide6.QtWidgets import QApplication

from desktop.actions import Actions, UiState
from desktop.drafts import Draft
from desktop.theme import LIGHT
from desktop.views.chat.composer import BLOCK_CHARS, MAX_LINES, Composer
from desktop.watchdog import Heartbeat


@pytest.fixture
def composer(qtbot) -> Composer:
    made = Composer(Actions())
    made.apply_theme(LIGHT, 1.0)
    made.resize(600, 120)
    qtbot.addWidget(made)
    made.show()
    made.sent = []
    made.send_requested.connect(made.sent.append)
    return made


def paste(composer: Composer, text: str) -> None:
    data = QMimeData()
    data.setText(text)
    composer.edit.insertFromMimeData(data)


def test_enter_sends_and_shift_enter_starts_a_line(qtbot, composer) -> None:
    qtbot.keyClicks(composer.edit, "one")
    qtbot.keyClick(composer.edit, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    qtbot.keyClicks(composer.edit, "two")
    assert composer.sent == []
    qtbot.keyClick(composer.edit, Qt.Key.Key_Return)
    assert composer.sent == ["one\ntwo"]


def test_enter_of_the_number_pad_sends_too(qtbot, composer) -> None:
    qtbot.keyClicks(composer.edit, "x")
    qtbot.keyClick(composer.edit, Qt.Key.Key_Enter, Qt.KeyboardModifier.KeypadModifier)
    assert composer.sent == ["x"]


def test_the_setting_swaps_the_keys(qtbot, composer) -> None:
    composer.set_enter_sends(False)
    qtbot.keyClicks(composer.edit, "one")
    qtbot.keyClick(composer.edit, Qt.Key.Key_Return)
    qtbot.keyClicks(composer.edit, "two")
    assert composer.sent == []
    qtbot.keyClick(composer.edit, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    assert composer.sent == ["one\ntwo"]
    qtbot.keyClick(composer.edit, Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)
    assert len(composer.sent) == 2
    assert "Shift+Enter sends" in composer.edit.toolTip()


def test_enter_belongs_to_the_input_method_while_it_composes(qtbot, composer) -> None:
    composer.edit.setFocus()
    QApplication.sendEvent(composer.edit, QInputMethodEvent("にほん", []))
    assert composer.edit.composing
    qtbot.keyClick(composer.edit, Qt.Key.Key_Return)
    composer.submit()
    assert composer.sent == []
    commit = QInputMethodEvent("", [])
    commit.setCommitString("日本")
    QApplication.sendEvent(composer.edit, commit)
    assert not composer.edit.composing
    composer.edit.moveCursor(composer.edit.textCursor().MoveOperation.End)
    qtbot.keyClick(composer.edit, Qt.Key.Key_Return)
    assert [text.strip() for text in composer.sent] == ["日本"]


def test_nothing_is_sent_when_there_is_nothing(qtbot, composer) -> None:
    assert not composer.send.isEnabled()
    qtbot.keyClicks(composer.edit, "   ")
    qtbot.keyClick(composer.edit, Qt.Key.Key_Return)
    assert composer.sent == []


def test_it_grows_to_eight_lines_and_then_scrolls(qtbot, composer) -> None:
    heights = []
    for n in range(1, 13):
        composer.edit.setPlainText("\n".join(["line"] * n))
        heights.append(composer.edit.height())
    assert heights[:MAX_LINES] == sorted(set(heights[:MAX_LINES])), "each line adds height"
    assert len(set(heights[MAX_LINES - 1 :])) == 1, "after the eighth line it scrolls"
    composer.edit.setPlainText("word " * 60)
    assert composer.edit.height() > heights[0], "wrapped lines count"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x" * 1_000_000, "1 line, 1,000,000 characters"),
        ("log line\n" * 20_000, "20,000 lines, 180,000 characters"),
    ],
    ids=["one line of a megabyte", "twenty thousand lines"],
)
def test_a_large_paste_becomes_a_block_and_the_window_goes_on(qtbot, composer, text: str, words: str) -> None:
    qtbot.keyClicks(composer.edit, "What is this?")
    heartbeat = Heartbeat()
    qtbot.wait(50)
    heartbeat.reset()
    paste(composer, text)
    composer.blocks[0].toggle()
    qtbot.wait(50)
    heartbeat.stop()
    assert heartbeat.longest_gap_s < 0.3
    assert composer.edit.toPlainText() == "What is this?"
    assert words in composer.blocks[0].accessibleName()
    assert composer.text() == f"What is this?\n\n{text}"
    composer.submit()
    assert composer.sent == [f"What is this?\n\n{text}"]


def test_many_middling_pastes_do_not_add_up_to_a_frozen_editor(composer) -> None:
    for _ in range(4):
        paste(composer, "a" * (BLOCK_CHARS // 3))
    assert composer.edit.document().characterCount() <= BLOCK_CHARS
    assert composer.blocks


def test_a_small_paste_stays_text_with_plain_line_ends(composer) -> None:
    paste(composer, "one\r\ntwo\rthree")
    assert composer.text() == "one\ntwo\nthree"
    assert composer.blocks == ()


def test_a_block_can_be_removed(qtbot, composer) -> None:
    paste(composer, "y" * (BLOCK_CHARS + 1))
    assert composer.send.isEnabled()
    qtbot.mouseClick(composer.blocks[0].remove, Qt.MouseButton.LeftButton)
    assert composer.blocks == ()
    assert composer.text() == ""
    assert not composer.send.isEnabled()


def test_files_are_left_to_the_window(composer) -> None:
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile("/models/a.gguf")])
    assert not composer.edit.canInsertFromMimeData(data)


def test_send_becomes_stop_while_an_answer_is_written(qtbot, composer) -> None:
    qtbot.keyClicks(composer.edit, "next question")
    composer.set_generating(True)
    assert composer.stop.isVisible() and not composer.send.isVisible()
    qtbot.keyClick(composer.edit, Qt.Key.Key_Return)
    assert composer.sent == []
    assert composer.text() == "next question", "what was typed meanwhile waits"
    stopped: list[bool] = []
    composer._actions.update(UiState(generating=True))
    composer._actions["stop"].triggered.connect(lambda: stopped.append(True))
    qtbot.mouseClick(composer.stop, Qt.MouseButton.LeftButton)
    assert len(stopped) == 1
    composer.set_generating(False)
    assert composer.send.isVisible() and not composer.stop.isVisible()


def test_a_draft_is_put_back_whole(composer) -> None:
    draft = Draft("half a thought", ("p" * 100_000,))
    composer.set_draft(draft)
    assert composer.draft == draft
    composer.set_draft(Draft("t" * (BLOCK_CHARS + 5)))
    assert composer.edit.toPlainText() == ""
    assert len(composer.blocks) == 1
