"""The trace in the window: of real answers by the real worker, and of long ones made by hand."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot
from test_a11y import controls
from trace_help import trace_of, words_of

from desktop.theme import DARK, LIGHT
from desktop.views.trace.prompt_text import prepare
from desktop.views.trace.sections import Sections
from desktop.views.trace.trace_page import TracePage
from engine.message import Message
from engine.sampling import SamplingParams
from engine.trace import Trace

ASKED = "Name three colours of the rainbow."


def page_of(one: Any) -> TracePage:
    page = one.window.inside.view.page("trace")
    assert isinstance(page, TracePage)
    return page


def opened(one: Any, message: Message) -> tuple[TracePage, Trace]:
    """The trace of an answer, complete and laid out."""
    one.window.inside.show_trace(message.id)
    page = page_of(one)
    one.wait(lambda: page.desk.trace is not None and page.desk.trace.marks is not None)
    one.wait(lambda: len(page.sections.chips.rows) == page.sections.chips.count() > 0)
    trace = page.desk.trace
    assert trace is not None
    return page, trace


@pytest.fixture
def answered(shell: Any, starter_model: Path) -> tuple[Any, Message]:
    """A window with one real answer."""
    one = shell(real=True)
    one.app.engine.change_settings(sampling=SamplingParams(temperature=0.8, max_tokens=24, seed=7))
    one.load(starter_model)
    return one, one.answer(ASKED)


def test_a_real_answer_from_its_link_to_a_branch_and_back(answered: tuple[Any, Message]) -> None:
    one, message = answered
    widget = one.view.transcript.widgets[message.id]
    link = widget.footer._trace
    assert link is not None and link.isVisible()
    link.click()
    page, trace = opened(one, message)
    assert one.window.rail_inside.isChecked() and page.isVisible()
    written = page.sections.written
    assert b"".join(step.piece for step in written.steps).decode() in message.text + "\n\n "
    assert trace.n_prompt == message.generation.usage.prompt_tokens  # type: ignore[union-attr]
    assert f"{trace.n_prompt:,} tokens, exactly" == page.sections.read_head.note.text()
    assert page.sections.time_line.parts and page.sections.legend.entries
    assert ASKED in page.sections.chips.text.text
    assert page._item is not None and "Token" in page.panel.number.text(), "one token is explained from the start"
    # another token than the one that was taken
    drawn = [i for i, s in enumerate(trace.steps) if s.detail is not None and 0 < i < len(trace.steps) - 1]
    page.sections.written._choose(drawn[2])
    rows = page.panel.alternatives.rows
    other = next(row for row in rows if not row.chosen)
    assert other.isEnabled() and not next(row for row in rows if row.chosen).isEnabled()
    other.click()
    one.wait(lambda: page.desk.message_id != message.id)
    assert one.window.toast.isVisible() and one.window.toast.can_undo
    one.wait(lambda: page.desk.trace is not None and page.desk.trace.marks is not None, 60)
    branch = page.desk.trace
    assert branch is not None
    ids, new_ids = [s.token_id for s in trace.steps], [s.token_id for s in branch.steps]
    assert new_ids[: drawn[2]] == ids[: drawn[2]] and new_ids[drawn[2]] == other.candidate.token_id
    one.wait(lambda: one.presenter.messages[-1].id == branch.message_id)
    one.wait(lambda: "answer 2 of 2" in page.facts.text())
    one.window.toast.undo()
    one.wait(lambda: page.desk.message_id == message.id and page.desk.trace is not None)
    one.wait(lambda: one.presenter.messages[-1].id == message.id)


def test_undo_while_the_branch_is_written_stops_it(answered: tuple[Any, Message]) -> None:
    one, message = answered
    page, _ = opened(one, message)
    one.app.engine.change_settings(sampling=SamplingParams(temperature=0.8, max_tokens=400, seed=7))
    page.sections.written._choose(2)
    next(row for row in page.panel.alternatives.rows if not row.chosen).click()
    one.wait(lambda: page.desk.message_id != message.id)
    one.window.toast.undo()
    one.wait(lambda: not one.app.engine.chats.generating(), 60)
    one.wait(lambda: one.presenter.messages[-1].id == message.id and page.desk.message_id == message.id)


def test_of_a_deleted_chat_the_trace_is_for_reading(answered: tuple[Any, Message]) -> None:
    one, message = answered
    page, _ = opened(one, message)
    page.sections.written._choose(2)
    other = next(row for row in page.panel.alternatives.rows if not row.chosen)
    assert other.isEnabled() and page.replay_button.isEnabled()
    chats = one.app.engine.chats
    for delete, restore, what in (
        (lambda: chats.delete(message.chat_id), lambda: chats.restore(message.chat_id), "The chat of this answer"),
        (lambda: chats.delete_message(message.id), lambda: chats.restore_message(message.id), "This answer"),
    ):
        one.result(delete())
        one.wait(lambda: not page.replay_button.isEnabled())
        said = f"{what} was deleted, so its trace can only be read"
        assert page.panel.hint.text() == page.replay_button.toolTip() == said
        assert not any(row.isEnabled() for row in page.panel.alternatives.rows)
        assert page.export_button.isEnabled() and page.sections.written.count() > 2
        # it was deleted while the page was not seen
        one.window.show_chat()
        one.result(restore())
        one.result(delete())
        one.window.inside.show("trace")
        one.wait(lambda said=said: page.replay_button.toolTip() == said)
        one.result(restore())
        one.wait(lambda: page.replay_button.isEnabled())
    assert any(row.isEnabled() for row in page.panel.alternatives.rows)
    # too late to say it beforehand: the words are those of the thing, not of a value
    one.result(chats.delete(message.chat_id))
    page.desk.branch(2, other.candidate.token_id)
    one.wait(lambda: not page.banner.isHidden())
    assert page.banner.words.title == "It is not there any more"
    assert page.banner.words.text == "The chat of this answer was deleted"


def test_the_keyboard_stays_at_the_answer_when_its_row_goes(answered: tuple[Any, Message]) -> None:
    """Whatever takes the pressed row away, one goes on at the tokens, not at the rail."""
    one, message = answered
    page, _ = opened(one, message)
    one.window.activateWindow()
    written = page.sections.written
    written._choose(2)
    row = next(row for row in page.panel.alternatives.rows if not row.chosen)
    one.wait(row.isVisible)
    row.setFocus(Qt.FocusReason.MouseFocusReason)
    assert one.window.focusWidget() is row
    row.click()
    seen: list[str] = []
    one.wait(lambda: seen.append(where(one, page)) or page.desk.message_id != message.id)
    one.wait(lambda: seen.append(where(one, page)) or bool(page.desk.trace and page.desk.trace.marks), 60)
    assert set(seen) == {"page"}, "never anywhere else"
    assert one.window.focusWidget() is written
    # another step is shown: the row at the same place has it
    written._choose(1)
    row = next(row for row in page.panel.alternatives.rows if not row.chosen)
    place = page.panel.alternatives.rows.index(row)
    one.wait(row.isVisible)
    row.setFocus()
    page._choose(1)
    assert one.window.focusWidget() is page.panel.alternatives.rows[place]
    page.panel.set_blocked("not now")
    assert one.window.focusWidget() is written


def where(one: Any, page: TracePage) -> str:
    focus = one.window.focusWidget()
    return "page" if focus is page or page.isAncestorOf(focus) else focus.objectName()


def test_a_step_is_replayed_and_all_is_saved_as_json(answered: tuple[Any, Message], tmp_path: Path) -> None:
    one, message = answered
    page, trace = opened(one, message)
    index = next(i for i, step in enumerate(trace.steps) if step.detail is not None and i > 3)
    page.sections.written._choose(index)
    assert page.replay_button.isEnabled()
    page.replay_button.click()
    dialog = page.replay
    assert dialog is not None and dialog.then.piece.text() == page.panel.piece.text()
    greedy = msgspec.structs.replace(trace.sampling, temperature=0.0)
    dialog.form.set_params(greedy)
    dialog.run.click()
    one.wait(lambda: dialog.run.isEnabled(), 60)
    best = trace.steps[index].detail.candidates[0]  # type: ignore[union-attr]
    assert dialog.now.alternatives.rows[0].candidate.token_id == best.token_id
    assert next(row for row in dialog.now.alternatives.rows if row.chosen).candidate.token_id == best.token_id
    assert len(one.presenter.messages) == 2, "nothing is stored"
    nameless = [w.objectName() for w in controls(dialog) if not (w.accessibleName() or getattr(w, "text", str)())]
    assert nameless == []
    dialog.close()
    one.wait(lambda: page.replay is None)
    path = tmp_path / "trace.json"
    page.desk.export(path)
    one.wait(path.exists)
    data = json.loads(path.read_text())
    assert [step["token_id"] for step in data["steps"]] == [step.token_id for step in trace.steps]
    one.wait(lambda: one.window.toast.text == "Saved the trace as trace.json")


def test_an_answer_is_followed_while_it_is_written(shell: Any, starter_model: Path) -> None:
    one = shell(real=True)
    one.app.engine.change_settings(sampling=SamplingParams(temperature=0.8, max_tokens=300, seed=7))
    one.load(starter_model)
    one.send("Tell a long story about a lighthouse.")
    one.wait(lambda: bool(one.app.engine.chats.generating()))
    message_id = next(iter(one.app.engine.chats.generating().values()))
    one.window.inside.show_trace(message_id)
    page = page_of(one)
    one.wait(lambda: len(page.sections.written.steps) > 3, 60)
    assert page.desk.is_live and page.desk.trace is not None and page.desk.trace.marks is None
    assert page.panel.hint.isHidden() and not page.export_button.isEnabled()
    seen = len(page.sections.written.steps)
    one.wait(lambda: len(page.sections.written.steps) > seen)
    one.window.show_chat()
    assert not page.desk._timer.isActive(), "nothing is asked for while it is hidden"
    one.app.engine.chats.stop()
    one.wait(lambda: not one.app.engine.chats.generating())
    one.window.inside.show("trace")
    one.wait(lambda: page.desk.trace is not None and page.desk.trace.marks is not None)


def test_without_traces_it_says_so_and_the_settings_can_change_that(shell: Any, starter_model: Path) -> None:
    one = shell(real=True)
    one.app.engine.change_settings(trace=False, sampling=SamplingParams(max_tokens=4))
    one.load(starter_model)
    message = one.answer("Hi")
    one.window.inside.show_trace(message.id)
    page = page_of(one)
    one.wait(lambda: "switched off" in page.empty.text())
    assert page.head.isHidden() and page.stack.currentIndex() == 0
    one.window.show_settings()
    section = one.window.settings_view.traces
    one.wait(lambda: section.used.text() == "No traces are kept")
    assert not section.clear.isEnabled() and not section.box.isChecked()
    section.box.click()
    assert one.app.engine.settings.trace
    one.window.show_chat()
    one.answer("Once more")
    one.window.show_settings()
    one.wait(lambda: section.used.text().startswith("1 trace takes "))
    section.clear.click()
    assert section.is_sure and section.clear.text() == "Press again to remove"
    section.clear.click()
    one.wait(lambda: section.used.text() == "No traces are kept")


def shown(qtbot: QtBot, trace: Trace, *, width: int = 900) -> Sections:
    """The left side with a trace made by hand."""
    sections = Sections()
    qtbot.addWidget(sections)
    sections.resize(width, 700)
    sections.apply_theme(LIGHT, 1.0)
    sections.show()
    sections.show_trace(trace, same_answer=False)
    sections.show_prompt(prepare(trace))
    qtbot.waitUntil(lambda: len(sections.chips.rows) == sections.chips.count())
    return sections


def test_thirty_thousand_tokens_never_hold_the_window_up(qapp: QApplication, qtbot: QtBot) -> None:
    trace = trace_of(messages=[("user", "one two three " * 5_000), ("user", "über ✓ " * 7_500), ("user", "Why?")])
    assert trace.n_prompt > 30_000
    sections = shown(qtbot, trace)
    chips = sections.chips
    assert chips.count() < 400 and chips.folds
    sections.fold.click()
    longest = 0.0
    while len(chips.rows) < chips.count():
        begin = time.perf_counter()
        qapp.processEvents()
        longest = max(longest, time.perf_counter() - begin)
    assert chips.count() == trace.n_prompt and sections.fold.text() == "Fold"
    assert longest < 0.5, f"one turn of the event loop took {longest:.3f} s"  # a loaded machine; alone it is 0.02 s
    begin = time.perf_counter()
    bar = sections.verticalScrollBar()
    for place in range(0, bar.maximum(), max(1, bar.maximum() // 20)):
        bar.setValue(place)
        qapp.processEvents()
    assert time.perf_counter() - begin < 5
    sections.fold.click()
    assert chips.count() < 400


def test_folds_open_and_tokens_are_told(qapp: QApplication, qtbot: QtBot) -> None:
    trace = trace_of(messages=[("user", "word " * 600), ("assistant", "yes " * 300), ("user", "Why?")], n_cached=500)
    sections = shown(qtbot, trace)
    chips = sections.chips
    told: list[int] = []
    sections.prompt_token_chosen.connect(told.append)
    fold = chips.folds[0]
    item = chips._items.index(-1)
    area = chips.rows.area(item, chips.width())
    qtbot.mouseClick(chips, Qt.MouseButton.LeftButton, pos=area.center().toPoint())
    assert told == [fold.first] and len(chips.folds) < len(chips.text.folds())
    qtbot.waitUntil(lambda: len(chips.rows) == chips.count())
    chips.choose_token(0)
    assert "template" in chips.lines_of(0)[2] and "From the cache" in chips.lines_of(0)[3]
    assert "your message, message 1 of 3" in chips.lines_of(5)[2]
    assert "read now" in chips.lines_of(len(chips.text) - 1)[3].lower()
    assert sections.state_legend.entries == [
        ("cached", "from the cache 500"),
        ("read", f"read now {trace.n_prompt - 500:,}"),
    ]
    assert chips.accessibleDescription() and chips.tip_of(0)
    assert chips.rows.at(QPointF(-5, -5), 500) == -1


def test_the_keyboard_walks_over_the_tokens(qapp: QApplication, qtbot: QtBot) -> None:
    sections = shown(qtbot, trace_of())
    written = sections.written
    told: list[int] = []
    sections.step_chosen.connect(told.append)
    written.setFocus()
    for key in (Qt.Key.Key_Home, Qt.Key.Key_Right, Qt.Key.Key_Right, Qt.Key.Key_Left, Qt.Key.Key_End):
        qtbot.keyClick(written, key)
    assert told == [0, 1, 2, 1, written.count() - 1]
    assert written.is_end(written.current)
    qtbot.keyClick(written, Qt.Key.Key_Home)
    assert written.accessibleDescription().startswith("The, ")


def test_what_is_added_keeps_what_is_there(qapp: QApplication, qtbot: QtBot) -> None:
    whole = trace_of("one two three four five six seven eight")
    part = msgspec.structs.replace(whole, steps=whole.steps[:3], end=None, marks=None, wall_s=None)
    sections = shown(qtbot, part)
    before = list(sections.written.rows.lefts)
    sections.show_trace(whole, same_answer=True)
    assert sections.written.rows.lefts[:3] == before and sections.written.count() == len(whole.steps) + 1
    assert [sections.written._label(i) for i in range(2)] == ["one", " two"]
    again = trace_of("other words")
    sections.show_trace(again, same_answer=False)
    assert len(sections.written.steps) == len(words_of("other words"))


@pytest.mark.parametrize("scale", [1.0, 1.5, 2.0])
def test_it_fits_where_there_is_little_room(shell: Any, starter_model: Path, scale: float) -> None:
    one = shell()
    one.app.engine.change_settings(text_scale=scale)
    one.window.resize(720, 480)
    one.window.inside.show("trace")
    page = page_of(one)
    trace = trace_of()
    page.desk.message_id, page.desk.trace = trace.message_id, trace
    page.desk.changed.emit(trace)
    page.desk.prompt_ready.emit(prepare(trace))
    one.wait(lambda: len(page.sections.chips.rows) > 0)
    one.window.apply_theme(DARK)
    QApplication.processEvents()
    assert one.window.width() == 720, "nothing pushes the window"
    edge = page.mapTo(one.window, QPoint(page.width(), 0)).x()
    assert edge <= one.window.width()
    for part in (page.sections, page.panel):
        assert part.horizontalScrollBar().maximum() == 0, f"{part.objectName()} is cut off"
    found = list(controls(page))
    assert [w.objectName() for w in found if not w.toolTip() and w.isVisible() and w.objectName()] == []


def test_what_was_not_told_is_not_made_up(shell: Any, model_file: Path) -> None:
    one = shell({"answers": [{"text": "one two three", "reasoning": "hm"}, {"text": "word " * 50}]})
    one.load(model_file)
    message = one.answer("Hi")
    one.window.inside.show_trace(message.id)
    page = page_of(one)
    one.wait(lambda: page.desk.trace is not None and page.stack.currentIndex() == 1)
    values = {row.label: row.value for row in page.panel.chance.rows}
    assert set(values.values()) <= {"—"}
    assert page.panel.alternatives.isHidden() and not page.panel.alternatives.rows
    assert page.panel.reading.isHidden() or "token" in page.panel.reading.text()
    said = page.sections.time_head.note.text() + page.sections.written_head.note.text() + page.facts.text()
    assert "nan" not in said.lower() and "tint" not in said


def test_of_an_answer_that_died_the_tokens_that_came_are_kept(shell: Any, model_file: Path) -> None:
    one = shell({"answers": [{"text": "word " * 60, "delay_s": 0.01, "fault": {"kind": "sigkill", "at": 20}}]})
    one.load(model_file)
    one.send("Hi")
    one.wait(lambda: bool(one.app.engine.chats.generating()))
    message_id = next(iter(one.app.engine.chats.generating().values()))
    one.window.inside.show_trace(message_id)
    page = page_of(one)
    one.wait(lambda: not one.app.engine.chats.generating())
    one.wait(lambda: page.desk.trace is not None and page.desk.trace.finish_reason == "error")
    assert 0 < len(page.sections.written.steps) <= 20 and page.sections.time_line.isHidden()
    assert page.panel._blocked.startswith("Load ") and not page.replay_button.isEnabled()
    assert page.export_button.isEnabled()
