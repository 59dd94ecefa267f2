"""The context meter and the list behind it: what would be sent, what would be left out, and by which rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QImage, QPainter
from PySide6.QtWidgets import QApplication

from desktop import focus_order
from desktop.models import context
from desktop.theme import DARK, LIGHT, Theme
from desktop.widgets import context_bar
from desktop.widgets.context_bar import KINDS, Segment
from engine.events import ContextLedger, LedgerSpan

ANSWERS = {"answers": [{"text": "word " * 60, "delay_s": 0.0}], "load": {"n_ctx": 400}}


def ledger(*spans: LedgerSpan, **fields: Any) -> ContextLedger:
    values: dict[str, Any] = {"n_prompt": 60, "n_whole": 100, "n_ctx": 100, "message_ids": (0, 11, 12, 13, 14, 0)}
    return ContextLedger(spans=spans, **{**values, **fields})


SPANS = (
    LedgerSpan("template", 0, 2),
    LedgerSpan("system", 2, 10, message=0),
    LedgerSpan("template", 10, 15, turn=0, dropped=True),
    LedgerSpan("user", 15, 30, message=1, turn=0, dropped=True),
    LedgerSpan("assistant", 30, 50, message=2, turn=0, dropped=True),
    LedgerSpan("template", 10, 15, turn=1),
    LedgerSpan("pinned", 15, 25, message=3, turn=1),
    LedgerSpan("assistant", 25, 40, message=4, turn=1),
    LedgerSpan("template", 40, 45, turn=2),
    LedgerSpan("user", 45, 55, message=5, turn=2),
    LedgerSpan("template", 55, 60, turn=2),
    LedgerSpan("answer", 60, 85),
    LedgerSpan("free", 85, 100),
)


# ------------------------------------------------------------------ what is made of a ledger


def test_every_token_is_in_one_stretch() -> None:
    found = context.segments(ledger(*SPANS, n_dropped=2))
    assert found == (
        Segment("system", 10),
        Segment("dropped", 40),
        Segment("pinned", 30),
        Segment("draft", 20),
        Segment("answer", 25),
        Segment("free", 15),
    )
    assert context.sent(ledger(*SPANS, n_dropped=2)) == (
        Segment("system", 10),
        Segment("pinned", 30),
        Segment("history", 20),
    )


def test_rows_name_each_turn() -> None:
    texts = {11: "First\n question", 12: "Answer", 13: "Second question"}
    found = context.rows(ledger(*SPANS, n_dropped=2), texts, "And  this?")
    assert [row.words for row in found] == [
        "System prompt, 10 tokens",
        "First question, 40 tokens, left out",
        "Second question, 30 tokens, pinned",
        "And this?, 20 tokens, not sent yet",
        "Kept for the answer, 25 tokens",
        "Free, 15 tokens",
    ]
    assert [row.message_id for row in found] == [0, 11, 13, 0, 0, 0]


def test_words_say_what_would_happen() -> None:
    assert "60 of 100 tokens would be sent" in context.summary(ledger(*SPANS))
    assert "2 messages no longer fit and would be left out (40 tokens)" in context.summary(ledger(*SPANS, n_dropped=2))
    assert "does not fit: 120 tokens" in context.summary(ledger(*SPANS, n_prompt=120))
    assert "estimates" in context.summary(ledger(*SPANS, approximate=True))


def test_a_chat_of_nothing_has_a_row_for_the_message() -> None:
    spans = (LedgerSpan("template", 0, 7, turn=0), LedgerSpan("answer", 7, 30), LedgerSpan("free", 30, 100))
    found = context.rows(ledger(*spans, message_ids=(0,)), {}, "")
    assert [row.title for row in found] == ["Your message", "Kept for the answer", "Free"]


@pytest.mark.parametrize("theme", [LIGHT, DARK])
@pytest.mark.parametrize("kind", KINDS)
def test_kinds_differ_in_more_than_colour(theme: Theme, kind: str) -> None:
    image = QImage(40, 20, QImage.Format.Format_RGB32)
    painter = QPainter(image)
    context_bar.paint_swatch(painter, QRectF(0, 0, 40, 20), kind, theme)
    painter.end()
    colours = {image.pixel(x, y) for x in range(4, 36) for y in range(4, 16)}
    assert (len(colours) > 1) == (KINDS[kind].pattern != "solid")


@pytest.mark.parametrize("total", [0, 1, 100, 10**9])
def test_stretches_stay_in_the_bar(total: int) -> None:
    placed = context_bar.place([Segment("system", 1), Segment("history", 5000), Segment("draft", 1)], total, 300)
    assert all(width > 0 for _, _, width in placed)
    assert placed[-1][1] + placed[-1][2] <= 300.001


# ------------------------------------------------------------------ in the window


@pytest.fixture
def one(shell, model_file: Path):
    made = shell(ANSWERS)
    made.load(model_file)
    return made


def kinds(one) -> set[str]:
    return {segment.kind for segment in one.view.strip.meter.segments}


def type_in(one, text: str) -> None:
    one.view.composer.edit.setPlainText(text)


def test_typing_shows_what_the_message_would_take(one) -> None:
    type_in(one, "Why is the sky blue?")
    one.wait(lambda: "draft" in kinds(one))
    strip = one.view.strip
    found = one.view.context.ledger
    assert strip.context.text() == f"{found.n_prompt:,} of 400 tokens · room for {400 - found.n_prompt:,}"
    assert "your message" in strip.meter.accessibleDescription()
    words = [strip.meter.words_at(x) for x in (0, strip.meter.width() - 1)]
    assert "tokens" in words[0] and words[1].startswith("free")


def test_keys_in_a_row_ask_once(one, qtbot, monkeypatch: pytest.MonkeyPatch) -> None:
    type_in(one, "W")
    one.wait(lambda: one.view.context.ledger is not None)
    asked: list[str] = []
    real = one.app.engine.chats.ledger
    monkeypatch.setattr(one.app.engine.chats, "ledger", lambda chat, draft: asked.append(draft) or real(chat, draft))
    qtbot.keyClicks(one.view.composer.edit, "hy is the sky blue?", delay=10)
    one.wait(lambda: bool(asked) and asked[-1] == one.view.composer.text())
    assert len(asked) <= 2


def test_what_no_longer_fits_is_shown_before_it_is_left_out(one) -> None:
    for number in range(4):
        one.answer(f"question {number} " * 6)
    type_in(one, "one more " * 10)
    one.wait(lambda: "dropped" in kinds(one))
    assert "left out" in one.view.strip.context.text()
    found = one.view.context.ledger
    one.view.strip.meter.click()
    popup = one.view.context.popup
    assert popup.isVisible()
    notes = [row.note for row in popup.model.rows]
    assert "left out" in notes and notes[-3] == "not sent yet"
    assert f"{found.n_dropped} messages no longer fit" in popup.words.text()
    assert popup.model.rows[popup.list.currentIndex().row()].note == "left out"
    popup.hide()


def test_the_rule_can_be_chosen_in_the_list(one) -> None:
    for number in range(6):
        one.answer(f"question {number} " * 6)
    one.wait(lambda: "dropped" in kinds(one))
    one.view.strip.meter.click()
    popup = one.view.context.popup
    assert popup.policy.value == "drop_oldest"
    popup.policy.button("error").click()
    one.wait(lambda: one.app.engine.settings.overflow == "error")
    one.wait(lambda: "dropped" not in kinds(one))
    assert "do not fit into 400" in one.view.strip.context.text()
    assert "does not fit" in popup.words.text() and popup.policy_words.text().startswith("Nothing is left out")
    popup.policy.button("roll").click()
    one.wait(lambda: "dropped" in kinds(one))
    popup.hide()
    one.window.show_settings()
    assert one.window.settings_view.overflow.currentData() == "roll"


def test_a_pinned_turn_stays_in_the_context(one) -> None:
    for number in range(4):
        one.answer(f"question {number} " * 6)
    one.wait(lambda: "dropped" in kinds(one))
    first = one.presenter.messages[0]
    one.view.transcript.pin_requested.emit(first.id, True)
    one.wait(lambda: "pinned" in kinds(one))
    assert one.presenter.messages[0].pinned
    _, stored = one.result(one.app.engine.chats.open(one.presenter.chat_id))
    assert [m.pinned for m in stored] == [True] + [False] * 7
    one.view.transcript.pin_requested.emit(first.id, False)
    one.wait(lambda: "pinned" not in kinds(one))


def test_it_is_reached_and_used_by_keyboard(one, qtbot) -> None:
    one.answer("a question")
    one.wait(lambda: one.view.context.ledger is not None)
    meter = one.view.strip.meter
    assert meter in focus_order.stops(one.window)
    meter.setFocus(Qt.FocusReason.TabFocusReason)
    qtbot.keyClick(meter, Qt.Key.Key_Space)
    popup = one.view.context.popup
    assert popup.isVisible()
    assert popup.accessibleName() and popup.list.accessibleName() and popup.bar.accessibleName()
    qtbot.waitUntil(lambda: QApplication.focusWidget() is popup.list)
    row = next(n for n, r in enumerate(popup.model.rows) if r.message_id)
    qtbot.keyClick(popup.list, Qt.Key.Key_Home)
    for _ in range(row):
        qtbot.keyClick(popup.list, Qt.Key.Key_Down)
    assert popup.model.index(row).data(Qt.ItemDataRole.AccessibleTextRole).startswith("a question, ")
    qtbot.keyClick(popup.list, Qt.Key.Key_Return)
    assert not popup.isVisible()
    widget = one.view.transcript.widgets[popup.model.rows[row].message_id]
    assert QApplication.focusWidget() is widget
    meter.click()
    qtbot.keyClick(popup, Qt.Key.Key_Escape)
    assert not popup.isVisible()


def test_another_chat_and_no_model_leave_nothing_wrong_behind(one) -> None:
    one.answer("a question")
    one.wait(lambda: one.view.context.ledger is not None)
    one.view.new_chat()
    one.wait(lambda: one.view.context.ledger is not None and one.view.context.ledger.message_ids == (0,))
    one.window.control.unload()
    one.wait(lambda: one.view.strip.context.text() == "no model")
    assert one.view.context.ledger is None and one.view.strip.meter.segments == ()
    one.view.strip.meter.click()
    assert "No model is loaded" in one.view.context.popup.words.text()
    one.view.context.popup.hide()


def test_while_an_answer_is_written_its_own_figures_count(shell, model_file: Path) -> None:
    one = shell({"answers": [{"text": "word " * 80, "delay_s": 0.02}], "load": {"n_ctx": 400}})
    one.load(model_file)
    type_in(one, "go")
    one.wait(lambda: one.view.context.ledger is not None)
    one.send("go")
    one.wait(lambda: "written" in kinds(one))
    assert not {"draft", "answer", "dropped"} & kinds(one)
    one.view.presenter.stop()
    one.wait(lambda: not one.presenter.generating)
    one.wait(lambda: "written" not in kinds(one))
    assert "history" in kinds(one)


def test_a_tip_says_what_is_under_the_mouse(one, qtbot) -> None:
    type_in(one, "Why?")
    one.wait(lambda: "draft" in kinds(one))
    meter = one.view.strip.meter
    placed = context_bar.place(meter.segments, meter.total, meter.width())
    for segment, left, width in placed:
        assert meter.words_at(left + width / 2).startswith(segment.words)
