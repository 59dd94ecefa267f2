"""The transcript as a user meets it: reading, streaming, scrolling, acting on messages."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import msgspec
import pytest
from heartbeat import Heartbeat, run_for, run_until
from PySide6.QtCore import QEvent, QPoint, QPointF, QRectF, Qt, QUrl
from PySide6.QtGui import QEnterEvent, QFontMetricsF, QGuiApplication, QKeyEvent, QTextDocument, QWheelEvent
from PySide6.QtWidgets import QApplication, QLineEdit, QVBoxLayout, QWidget

from desktop import theme
from desktop.views.chat.code_block import CodeView
from desktop.views.chat.message_widget import MessageWidget
from desktop.views.chat.table_view import TableView
from desktop.views.chat.text_view import TextView
from desktop.views.chat.transcript_view import TranscriptView
from engine.events import PromptProgress, Token
from engine.message import ErrorInfo, GenerationRecord, Message, ReasoningPart, TextPart, Timings, Usage

RECORD = GenerationRecord(finish_reason="stop", usage=Usage(9, 64, 0), timings=Timings(ttft_s=0.21, decode_tps=118.0))
RICH = (
    "# Title\n\nSome **bold** text with `code` and [a link](https://example.org/a).\n\n- one\n- two\n\n"
    "```python\ndef f(x):\n    return x + 1\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> quoted\n\nThe end.\n"
)


def user(number: int, text: str = "A question", **fields: object) -> Message:
    return Message(id=number, chat_id=1, parent_id=None, role="user", parts=(TextPart(text),), **fields)  # type: ignore[arg-type]


def answer(number: int, text: str = RICH, thought: ReasoningPart | None = None, **fields: object) -> Message:
    parts = (*((thought,) if thought else ()), TextPart(text))
    fields.setdefault("generation", RECORD)
    return Message(id=number, chat_id=1, parent_id=None, role="assistant", parts=parts, **fields)  # type: ignore[arg-type]


def chat(count: int) -> list[Message]:
    return [user(n, f"Question {n}") if n % 2 else answer(n, (RICH * 3)[: 100 + n * 37 % 500]) for n in range(1, count)]


def shown(widget: MessageWidget) -> list[str]:
    """What stands on screen, view by view."""
    out = []
    for view in widget.body.views:
        text = view.code if isinstance(view, CodeView) else view.toPlainText()
        out.append(f"{type(view).__name__}: {text}")
    return out


@pytest.fixture
def view(qtbot) -> TranscriptView:
    made = TranscriptView(theme=theme.LIGHT)
    qtbot.addWidget(made)
    made.resize(760, 700)
    made.show()
    qtbot.waitExposed(made)
    return made


@pytest.fixture
def settle(qtbot) -> Callable[[], None]:
    """Waits until no transcript has anything to build any more."""

    def idle() -> bool:
        found = [w for w in QApplication.allWidgets() if isinstance(w, TranscriptView) and w.isVisible()]
        return not any(w._timer.isActive() or w._unfinished for w in found)

    def wait() -> None:
        run_for(0.03)
        assert run_until(idle, 20)

    return wait


def feed(view: TranscriptView, number: int, text: str, chance: random.Random, *, channel: str = "text") -> None:
    at = index = 0
    while at < len(text):
        size = chance.choice((1, 2, 3, 5, 17))
        step = Token(index=index, token_id=1, piece=b"", text=text[at : at + size], channel=channel, time_s=0.1 * index)  # type: ignore[arg-type]
        view.append_step(number, step)
        at += size
        index += 1
        if chance.random() < 0.15:
            view.flush()


class TestReading:
    def test_an_answer_is_text_code_and_table(self, view, settle) -> None:
        view.set_messages([user(1), answer(2)])
        settle()
        kinds = [type(part) for part in view.widgets[2].body.views]
        assert kinds == [TextView, CodeView, TableView, TextView]
        assert view.widgets[2].body.views[1].code == "def f(x):\n    return x + 1"

    def test_what_the_user_typed_is_shown_as_typed(self, view, settle) -> None:
        view.set_messages([user(1, "# not a *heading*\n  <b>x</b>")])
        settle()
        assert shown(view.widgets[1]) == ["TextView: # not a *heading*\n  <b>x</b>"]

    def test_code_is_coloured(self, view, qtbot) -> None:
        view.set_messages([answer(2, "```python\ndef f(): return 'x'\n```")])
        block = view.widgets[2].body.views[0].text.document().firstBlock()
        qtbot.waitUntil(lambda: len(block.layout().formats()) > 2)
        colours = {item.format.foreground().color().name() for item in block.layout().formats()}
        assert theme.LIGHT.syn_keyword.lower() in colours

    def test_unknown_languages_stay_plain(self, view, settle) -> None:
        view.set_messages([answer(2, "```no-such-language\nx = 1\n```")])
        settle()
        assert view.widgets[2].body.views[0].code == "x = 1"

    def test_heights_fit_the_content(self, view, settle) -> None:
        view.set_messages([user(1, "short"), answer(2)])
        settle()
        for widget in view.widgets.values():
            assert widget.height() == widget.height_for(view.viewport().width())
            for part in widget.body.views:
                if isinstance(part, TextView):
                    assert part.verticalScrollBar().maximum() == 0

    def test_heights_taken_before_a_row_is_seen_hold_after(self, view, settle) -> None:
        long = "A paragraph of **many** words that needs more than one line in a narrow column. " * 3
        rows = [user(n, f"Question {n}: why did it restart?") if n % 2 else answer(n, long) for n in range(1, 200)]
        view.set_messages(rows)
        settle()
        for _ in range(30):
            view.verticalScrollBar().setValue(view.verticalScrollBar().value() - 150)
            settle()
            for key, widget in view.widgets.items():
                taken = view._known[key]
                if widget.isVisible():
                    assert widget.height_for(view.viewport().width()) == taken

    def test_figures_and_reason_of_the_end(self, view, settle) -> None:
        view.set_messages([answer(2)])
        settle()
        assert view.widgets[2].footer._figures == ["0.21 s to first token", "118 tok/s", "64 tokens", "stop"]

    def test_thinking_is_folded_and_opens(self, view, settle, qtbot) -> None:
        thought = ReasoningPart("First **this**.\n\nThen that.", n_tokens=142, duration_s=3.1)
        view.set_messages([answer(2, "Done.", thought)])
        settle()
        block = view.widgets[2].thinking
        assert block.title == "Thought for 3.1 s · 142 tokens"
        before = view.widgets[2].height()
        block._button.click()
        settle()
        assert view.widgets[2].height() > before + 30
        assert "Then that." in block._body.views[0].toPlainText()
        block._button.click()
        settle()
        assert view.widgets[2].height() == before

    def test_thinking_that_did_not_end_says_so(self, view, settle) -> None:
        view.set_messages([answer(2, "", ReasoningPart("abc", closed=False))])
        settle()
        assert view.widgets[2].thinking.title == "Thought · did not finish"

    def test_an_answer_of_unfinished_thinking_only_shows_it(self, view, settle) -> None:
        view.set_messages([answer(2, "", ReasoningPart("all there is", closed=False))])
        settle()
        assert view.widgets[2].thinking.is_open
        assert view.widgets[2].thinking._body.views[0].toPlainText() == "all there is"

    def test_an_empty_answer_says_so(self, view, settle) -> None:
        view.set_messages([answer(2, "")])
        settle()
        assert "without writing anything" in view.widgets[2].notes._notes.toPlainText()

    def test_errors_say_what_happened_and_offer_another_try(self, view, settle, qtbot) -> None:
        error = ErrorInfo(
            "worker_died", "llama.cpp stopped", "Load the model again.", {"exit_code": -6, "log": ["boom"]}
        )
        record = GenerationRecord(finish_reason="error", error=error, n_dropped=2, notes=("A note.",))
        view.set_messages([answer(2, "Half", status="failed", generation=record)])
        settle()
        notes = view.widgets[2].notes
        assert "llama.cpp stopped\nLoad the model again." in notes._words.toPlainText()
        assert notes._notes.toPlainText().startswith("2 earlier messages were left out")
        assert "A note." in notes._notes.toPlainText()
        assert notes._details is None
        notes.toggle_details()
        assert "exit_code: -6\nlog:\n  boom" in notes._details.toPlainText()
        with qtbot.waitSignal(view.regenerate_requested) as signal:
            notes._retry.click()
        assert signal.args == [2]

    def test_an_interrupted_answer_says_so(self, view, settle) -> None:
        view.set_messages([answer(2, "Half", status="interrupted", generation=None)])
        settle()
        assert "ended while this was being written" in view.widgets[2].notes._notes.toPlainText()


class TestStreaming:
    @pytest.mark.parametrize("seed", range(4))
    def test_a_streamed_answer_ends_like_a_stored_one(self, view, settle, seed: int) -> None:
        text = RICH + "\n1. x\n2. y\n\n" + RICH
        view.set_messages([user(1), answer(2, "", status="streaming", generation=None), answer(3, text)])
        view.begin_stream(2)
        feed(view, 2, text, random.Random(seed))
        view.end_stream(answer(2, text))
        settle()
        view.scroll_to_row(1)
        settle()
        assert shown(view.widgets[2]) == shown(view.widgets[3])
        assert view.widgets[2].height() == view.widgets[3].height()

    def test_finished_blocks_keep_their_widgets(self, view, settle) -> None:
        view.set_messages([answer(2, "", status="streaming", generation=None)])
        view.begin_stream(2)
        feed(view, 2, "text\n\n```py\nx = 1\n```\nmore\n\n", random.Random(1))
        view.flush()
        before = list(view.widgets[2].body.views)
        feed(view, 2, "and more\n\n", random.Random(1))
        view.end_stream(answer(2, "text\n\n```py\nx = 1\n```\nmore\n\nand more\n\n"))
        settle()
        assert view.widgets[2].body.views == before

    def test_a_stream_survives_many_stored_copies(self, view, settle) -> None:
        view.set_messages([answer(2, "", status="streaming", generation=None)])
        view.begin_stream(2)
        feed(view, 2, "one two three", random.Random(1))
        view.update_message(answer(2, "one", status="streaming", generation=None))
        view.flush()
        assert shown(view.widgets[2]) == ["TextView: one two three"]

    def test_the_final_text_counts(self, view, settle) -> None:
        view.set_messages([answer(2, "", status="streaming", generation=None)])
        view.begin_stream(2)
        feed(view, 2, "<think>abc", random.Random(1))
        view.end_stream(answer(2, "real answer", ReasoningPart("abc", n_tokens=3)))
        settle()
        assert shown(view.widgets[2]) == ["TextView: real answer"]
        assert view.widgets[2].thinking.title == "Thought · 3 tokens"

    def test_thinking_live_then_settled(self, view, settle) -> None:
        view.set_messages([answer(2, "", status="streaming", generation=None)])
        view.begin_stream(2)
        feed(view, 2, "let me see", random.Random(1), channel="reasoning")
        view.flush()
        block = view.widgets[2].thinking
        assert block.title.startswith("Thinking…")
        block.toggle()
        feed(view, 2, " more", random.Random(1), channel="reasoning")
        view.flush()
        assert block._body.views[0].toPlainText() == "let me see more"
        feed(view, 2, "The answer", random.Random(1))
        view.flush()
        assert block.title.startswith("Thought for")
        assert shown(view.widgets[2]) == ["TextView: The answer"]

    def test_the_caret_is_there_while_writing_only(self, view, settle) -> None:
        view.set_messages([answer(2, "", status="streaming", generation=None)])
        view.begin_stream(2)
        feed(view, 2, "text", random.Random(1))
        view.flush()
        part = view.widgets[2].body.views[-1]
        assert part._caret and part.caret_rect().left() > 10
        view.end_stream(answer(2, "text"))
        assert not part._caret

    def test_reading_the_prompt_is_shown(self, view, settle) -> None:
        view.set_messages([answer(2, "", status="streaming", generation=None)])
        view.begin_stream(2)
        view.append_step(2, PromptProgress(n_prompt=1721, n_cached=0, n_done=512))
        view.flush()
        assert view.widgets[2].footer._figures == ["reading the prompt, 512 of 1,721 tokens"]

    def test_tokens_are_shown_without_being_asked(self, view, qtbot) -> None:
        view.set_messages([answer(2, "", status="streaming", generation=None)])
        view.begin_stream(2)
        view.append_step(2, Token(index=0, token_id=1, piece=b"", text="hello"))
        qtbot.waitUntil(lambda: shown(view.widgets[2]) == ["TextView: hello"], timeout=2000)

    @pytest.mark.parametrize("how", ["hidden", "minimized"])
    def test_nothing_is_drawn_for_nobody_and_all_is_there_when_it_is_seen(self, view, qtbot, settle, how: str) -> None:
        view.set_messages([answer(2, "", status="streaming", generation=None)])
        view.begin_stream(2)
        feed(view, 2, "before", random.Random(1))
        view.flush()
        (view.hide if how == "hidden" else view.showMinimized)()
        for index in range(8):
            view.append_step(2, Token(index=index, token_id=1, piece=b"", text=f" {index}"))
            qtbot.wait(5)
        assert shown(view.widgets[2]) == ["TextView: before"]
        view.showNormal()
        everything = "before" + "".join(f" {index}" for index in range(8))
        if how == "hidden":
            assert shown(view.widgets[2]) == [f"TextView: {everything}"]
        qtbot.waitUntil(lambda: shown(view.widgets[2]) == [f"TextView: {everything}"], timeout=3000)

    def test_continuing_adds_to_the_text(self, view, settle) -> None:
        view.set_messages([answer(2, "Once ")])
        settle()
        view.begin_stream(2)
        feed(view, 2, "upon", random.Random(1))
        view.flush()
        assert shown(view.widgets[2]) == ["TextView: Once upon"]
        view.end_stream(answer(2, "Once upon"))
        assert shown(view.widgets[2]) == ["TextView: Once upon"]

    def test_an_answer_out_of_sight_is_complete_when_it_is_seen(self, view, settle) -> None:
        messages = chat(80)
        view.set_messages([*messages, answer(100, "", status="streaming", generation=None)])
        view.verticalScrollBar().setValue(0)
        settle()
        view.begin_stream(100)
        feed(view, 100, "words " * 50, random.Random(1))
        view.flush()
        view.scroll_to_end()
        settle()
        assert shown(view.widgets[100]) == ["TextView: " + ("words " * 50).strip()] or shown(view.widgets[100]) == [
            "TextView: " + "words " * 50
        ]


class TestScrolling:
    def test_a_chat_opens_at_its_end_with_few_widgets(self, view, settle) -> None:
        view.set_messages(chat(2_000))
        settle()
        bar = view.verticalScrollBar()
        assert bar.value() == bar.maximum() > 10_000
        assert 1999 in view.widgets
        assert len(view.widgets) < 40

    def test_far_widgets_are_let_go(self, view, settle) -> None:
        view.set_messages(chat(2_000))
        for part in range(40):
            view.verticalScrollBar().setValue(part * 2_000)
            run_for(0.03)
        settle()
        assert len(view.widgets) < 60

    @pytest.mark.serial  # what is in sight must be measured within 20 ms; on a busy machine it comes later
    def test_what_is_looked_at_stays_when_heights_above_change(self, view, settle) -> None:
        view.set_messages(chat(400))
        settle()
        bar = view.verticalScrollBar()
        for _ in range(40):
            bar.setValue(bar.value() - 130)
            seen = [(key, w.y()) for key, w in view.widgets.items() if 0 <= w.y() < 600]
            run_for(0.02)
            for key, y in seen:
                if key in view.widgets:
                    assert view.widgets[key].y() == y

    def test_rows_never_overlap_or_leave_gaps(self, view, settle) -> None:
        view.set_messages(chat(300))
        settle()
        for value in (0, 500, 3_000, 9_000):
            view.verticalScrollBar().setValue(value)
            settle()
            rows = sorted((view.row_number(key), w) for key, w in view.widgets.items())
            for (number, first), (following, second) in pairwise(rows):
                if following == number + 1:
                    assert second.y() == first.y() + first.height()

    def test_the_end_is_followed_only_from_the_end(self, view, settle) -> None:
        messages = chat(60)
        view.set_messages([*messages, answer(100, "", status="streaming", generation=None)])
        settle()
        view.begin_stream(100)
        bar = view.verticalScrollBar()
        feed(view, 100, "line\n\n" * 40, random.Random(1))
        view.flush()
        assert bar.value() == bar.maximum()
        assert view._jump.isHidden()
        bar.setValue(bar.maximum() - 400)
        at = bar.value()
        assert not view._jump.isHidden()
        feed(view, 100, "line\n\n" * 40, random.Random(1))
        view.flush()
        settle()
        assert bar.value() == at
        assert bar.maximum() > at + 800
        view._jump.click()
        settle()
        assert bar.value() == bar.maximum()
        assert view._jump.isHidden()

    def test_a_message_of_the_user_is_brought_into_view(self, view, settle) -> None:
        view.set_messages(chat(60))
        settle()
        view.verticalScrollBar().setValue(0)
        view.add_message(user(101, "new"))
        settle()
        assert view.verticalScrollBar().value() == view.verticalScrollBar().maximum()

    def test_another_branch_of_the_chat_keeps_the_place(self, view, settle) -> None:
        messages = chat(100)
        view.set_messages(messages)
        settle()
        view.verticalScrollBar().setValue(2_000)
        settle()
        key = next(k for k, w in view.widgets.items() if w.y() < 500 and w.y() + w.height() > 0)
        y = view.widgets[key].y()
        view.set_messages([*messages[:-1], answer(500, "another version")])
        settle()
        assert view.widgets[key].y() == y

    def test_the_wheel_over_text_scrolls_the_transcript(self, view, settle) -> None:
        view.set_messages(chat(100))
        settle()
        part = next(w for w in view.widgets.values() if 0 < w.y() < 600).body.views[0]
        before = view.verticalScrollBar().value()
        spot = QPointF(5, 5)
        wheel = QWheelEvent(
            spot,
            QPointF(part.viewport().mapToGlobal(QPoint(5, 5))),
            QPoint(),
            QPoint(0, 120),
            Qt.MouseButton.NoButton,
            Qt.KeyboardModifier.NoModifier,
            Qt.ScrollPhase.NoScrollPhase,
            False,
        )
        QApplication.sendEvent(part.viewport(), wheel)
        assert not wheel.isAccepted()  # so that Qt passes it on to the transcript
        QApplication.sendEvent(view.viewport(), wheel)
        assert view.verticalScrollBar().value() < before

    def test_resizing_keeps_the_place(self, view, settle) -> None:
        view.set_messages(chat(200))
        settle()
        view.verticalScrollBar().setValue(5_000)
        settle()
        view._take_anchor()
        key = view._anchor[0]
        view.resize(500, 700)
        settle()
        assert abs(view.widgets[key].y() - view._anchor[1]) <= 1


class TestHostileText:
    def test_nothing_is_loaded(self, view, settle) -> None:
        view.set_messages([answer(2, "![x](https://evil.example/x.png) ![y](file:///etc/passwd) <img src=x>")])
        settle()
        part = view.widgets[2].body.views[0]
        for kind in (QTextDocument.ResourceType.ImageResource, QTextDocument.ResourceType.HtmlResource):
            assert part.loadResource(kind, QUrl("https://evil.example/x.png")) is None
            assert part.loadResource(kind, QUrl("file:///etc/passwd")) is None
        assert "https://evil.example/x.png" in part.toPlainText()
        assert "\ufffc" not in part.toPlainText()
        block = part.document().firstBlock()
        iterator = block.begin()
        while not iterator.atEnd():
            assert not iterator.fragment().charFormat().isImageFormat()
            iterator += 1
        part.setSource(QUrl("file:///etc/passwd"))
        assert "https://evil.example/x.png" in part.toPlainText()

    def test_only_allowed_links_are_reported(self, view, settle) -> None:
        got: list[str] = []
        view.link_activated.connect(got.append)
        view.set_messages([answer(2, "[a](https://example.org/a)")])
        settle()
        part = view.widgets[2].body.views[0]
        for url in ("https://example.org/a", "javascript:alert(1)", "file:///x", "mailto:a@b.org", "HTTP://x.org/"):
            part.anchorClicked.emit(QUrl(url))
        assert got == ["https://example.org/a", "mailto:a@b.org", "http://x.org/"]

    def test_a_click_on_a_link_opens_it_and_nothing_else_does(self, view, settle, qtbot) -> None:
        view.set_messages([answer(2, "[a long link text](https://example.org/a)")])
        settle()
        part = view.widgets[2].body.views[0]
        with qtbot.waitSignal(view.link_activated) as signal:
            qtbot.mouseClick(part.viewport(), Qt.MouseButton.LeftButton, pos=QPoint(20, 10))
        assert signal.args == ["https://example.org/a"]

    def test_characters_with_a_meaning_to_documents(self, view, settle) -> None:
        text = "a\ufdd0b\ufdd1c\u2029d\ufffce\x00f\u202eg"
        view.set_messages(
            [user(1, text), answer(2, f"{text}\n\n```\n{text}\n```\n\n| {text} | b |\n|--|--|\n| c | d |")]
        )
        settle()
        assert "[U+FDD0]" in shown(view.widgets[1])[0]
        assert len(view.widgets[2].body.views) >= 2

    @pytest.mark.parametrize(
        "text",
        [
            ">" * 10_000,
            "[" * 10_000,
            "\n".join(" " * i + "- x" for i in range(300)),
            "|a" * 3_000 + "\n" + "|-" * 3_000,
        ],
        ids=["quotes", "brackets", "lists", "columns"],
    )
    def test_nesting_does_not_hang(self, view, text: str) -> None:
        with Heartbeat() as beat:
            view.set_messages([answer(2, text)])
            assert run_until(lambda: not view.widgets[2].body.busy, 20)
        assert beat.longest_turn_s < 2

    def test_a_name_of_a_language_is_only_a_name(self, view, settle) -> None:
        view.set_messages([answer(2, "```<b>\u202e../../x" + "y" * 500 + "\ncode\n```")])
        settle()
        assert view.widgets[2].body.views[0].code == "code"


class TestActing:
    def test_copy_gives_the_source(self, view, settle) -> None:
        view.set_messages([answer(2)])
        settle()
        widget = view.widgets[2]
        widget.footer.show_actions(True)
        widget.footer._buttons["copy"].click()
        assert QGuiApplication.clipboard().text() == RICH

    def test_copy_of_code_gives_the_code(self, view, settle) -> None:
        view.set_messages([answer(2)])
        settle()
        view.widgets[2].body.views[1]._copy.click()
        assert QGuiApplication.clipboard().text() == "def f(x):\n    return x + 1"

    def test_ctrl_c_copies_the_selection_or_the_message(self, view, settle, qtbot) -> None:
        view.set_messages([answer(2, "Some **bold** text")])
        settle()
        part = view.widgets[2].body.views[0]
        qtbot.keyClick(part, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
        assert QGuiApplication.clipboard().text() == "Some **bold** text"
        part.selectAll()
        qtbot.keyClick(part, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
        assert QGuiApplication.clipboard().text() == "Some bold text"

    def test_the_menu_of_a_message_offers_its_actions(self, view, settle, qtbot) -> None:
        view.set_messages([user(1), answer(2)])
        settle()
        menu = view.widgets[2].make_menu()
        words = [action.text() for action in menu.actions()]
        assert words == ["Copy", "Edit", "Regenerate", "Continue", "Pin to context", "Delete"]
        with qtbot.waitSignal(view.regenerate_requested):
            menu.actions()[2].trigger()
        assert [a.text() for a in view.widgets[1].make_menu().actions()] == ["Copy", "Edit", "Pin to context", "Delete"]

    def test_a_pinned_message_says_so_and_can_be_unpinned(self, view, settle, qtbot) -> None:
        view.set_messages([user(1), answer(2)])
        settle()
        widget = view.widgets[1]
        assert widget.footer._pin is None and "pinned" not in widget.accessibleName()
        widget.footer.show_actions(True)
        with qtbot.waitSignal(view.pin_requested) as signal:
            widget.footer._buttons["pin"].click()
        assert signal.args == [1, True]
        view.update_message(msgspec.structs.replace(user(1), pinned=True))
        settle()
        pin = widget.footer._pin
        assert pin.isVisibleTo(widget.footer) and "unpin" in pin.accessibleName()
        assert "pinned" in widget.accessibleName()
        assert "Unpin from context" in [a.text() for a in widget.make_menu().actions()]
        with qtbot.waitSignal(view.pin_requested) as signal:
            pin.click()
        assert signal.args == [1, False]
        view.update_message(user(1))
        settle()
        assert not pin.isVisibleTo(widget.footer)

    @pytest.mark.parametrize("name", ["regenerate", "continue", "delete"])
    def test_actions_name_their_message(self, view, settle, qtbot, name: str) -> None:
        view.set_messages([user(1), answer(2)])
        settle()
        widget = view.widgets[2]
        widget.footer.show_actions(True)
        with qtbot.waitSignal(getattr(view, f"{name}_requested")) as signal:
            widget.footer._buttons[name].click()
        assert signal.args == [2]

    def test_versions(self, view, settle, qtbot) -> None:
        view.set_messages([answer(2, version=2, n_versions=3)])
        settle()
        footer = view.widgets[2].footer
        assert footer._version_text == "2 / 3"
        for button, step in zip(footer._versions, (-1, 1), strict=True):
            with qtbot.waitSignal(view.version_requested) as signal:
                button.click()
            assert signal.args == [2, step]
        view.set_messages([answer(3, version=3, n_versions=3)])
        settle()
        assert [b.isEnabled() for b in view.widgets[3].footer._versions] == [True, False]

    def test_edit_and_send(self, view, settle, qtbot) -> None:
        view.set_messages([user(1, "old"), answer(2)])
        settle()
        widget = view.widgets[1]
        widget.begin_edit()
        assert widget.editor._send.text() == "Send"
        widget.editor._edit.setPlainText("new\ntext")
        with qtbot.waitSignal(view.edit_submitted) as signal:
            qtbot.keyClick(widget.editor._edit, Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)
        assert signal.args == [1, "new\ntext"]
        assert widget.editor is None

    def test_escape_leaves_the_edit(self, view, settle, qtbot) -> None:
        view.set_messages([answer(2, "old")])
        settle()
        widget = view.widgets[2]
        widget.begin_edit()
        assert widget.editor._send.text() == "Save"
        qtbot.keyClick(widget.editor._edit, Qt.Key.Key_Escape)
        assert widget.editor is None
        assert widget.body.isVisibleTo(widget)

    def test_a_started_edit_survives_theme_and_scrolling(self, view, settle) -> None:
        view.set_messages(chat(100))
        settle()
        view.verticalScrollBar().setValue(0)
        settle()
        view.widgets[1].begin_edit()
        view.widgets[1].editor._edit.setPlainText("half written")
        view.apply_theme(theme.DARK)
        settle()
        assert view.widgets[1].editor.text == "half written"
        view.scroll_to_end()
        settle()
        assert view.widgets[1].editor.text == "half written"

    def test_theme_and_size_change_at_once(self, view, settle) -> None:
        view.set_messages([user(1), answer(2)])
        settle()
        height = view.widgets[2].height()
        view.apply_theme(theme.DARK, 1.5)
        settle()
        part = view.widgets[2].body.views[0]
        assert part.document().firstBlock().begin().fragment().charFormat().foreground().color().name() == (
            theme.DARK.ink.lower()
        )
        assert view.widgets[2].height() > height * 1.2


@pytest.fixture
def footer(view, settle):
    """The footer of one message in a window of a given width."""

    def make(message: Message, width: int):
        view.resize(width, 700)
        view.set_messages([message] if message.role == "user" else [user(1), message])
        settle()
        return view.widgets[message.id].footer

    return make


class TestFooter:
    RECORD = GenerationRecord(
        finish_reason="cancelled", usage=Usage(9, 12_640, 0), timings=Timings(ttft_s=13.21, decode_tps=118.4)
    )

    @pytest.mark.parametrize("width", [*range(260, 800, 20), 1200])
    @pytest.mark.parametrize("n_versions", [1, 12])
    def test_actions_and_the_reason_of_the_end_are_whole(self, footer, width: int, n_versions: int) -> None:
        made = footer(answer(2, generation=self.RECORD, status="stopped", n_versions=n_versions, version=2), width)
        height = made.height()
        for shown in (True, False):
            made.show_actions(shown)
            assert made.height() == height, "nothing moves when the mouse comes"
            metrics = QFontMetricsF(made._look.label_font)
            texts = [text for _area, text in made._areas]
            assert "stopped by you" in texts
            boxes = [area for area, _text in made._areas if _text != made._version_text]
            boxes += [QRectF(b.geometry()) for b in made.buttons() if b.isVisibleTo(made)]
            for number, box in enumerate(boxes):
                assert made.rect().adjusted(-6, 0, 3, 0).contains(box.toAlignedRect().adjusted(0, 0, -1, 0))
                assert not any(box.adjusted(1, 0, -2, 0).intersects(other) for other in boxes[number + 1 :])
            for area, text in made._areas:
                assert metrics.horizontalAdvance(text) <= area.width() + 1
            for button in made._buttons.values():
                assert button.width() >= button.sizeHint().width()

    @pytest.mark.parametrize("role", ["user", "assistant"])
    def test_what_can_always_be_pressed_stays_where_it_is(self, footer, role: str) -> None:
        message = answer(2, generation=self.RECORD) if role == "assistant" else user(2)
        message = msgspec.structs.replace(message, n_versions=3, version=2)
        for width in range(260, 1210, 50):
            made = footer(message, width)
            made.set_message(message, trace=True)
            places = []
            for shown in (False, True, False):
                made.show_actions(shown)
                always = [*made._versions, *([made._trace] if made._trace is not None else [])]
                places.append([button.geometry() for button in always])
            assert places[0] == places[1] == places[2], width
            assert len(places[0]) == (3 if role == "assistant" else 2)

    def test_with_room_all_figures_are_there(self, footer) -> None:
        made = footer(answer(2, generation=self.RECORD), 1200)
        for shown in (False, True):
            made.show_actions(shown)
            assert next(text for _area, text in made._areas) == "13.21 s to first token"
        made.show_actions(False)
        assert len(made._areas) == 4

    def test_a_click_on_an_action_leaves_nothing_shown(self, view, footer, qtbot) -> None:
        made = footer(answer(2), 760)
        widget = view.widgets[2]
        view.activateWindow()
        qtbot.waitUntil(view.isActiveWindow)
        QApplication.sendEvent(widget, QEnterEvent(QPointF(5, 5), QPointF(5, 5), QPointF(5, 5)))
        qtbot.mouseClick(made._buttons["copy"], Qt.MouseButton.LeftButton)
        widget.setAttribute(Qt.WidgetAttribute.WA_UnderMouse, False)
        QApplication.sendEvent(widget, QEvent(QEvent.Type.Leave))
        assert not made._shown
        view.setFocus(Qt.FocusReason.OtherFocusReason)
        widget.setFocus(Qt.FocusReason.TabFocusReason)
        assert made._shown, "by key they are shown"
        view.setFocus(Qt.FocusReason.OtherFocusReason)
        assert not made._shown

    def test_a_question_without_an_answer_can_be_answered(self, view, settle, qtbot) -> None:
        view.set_messages([user(1), answer(2), user(3)])
        settle()
        words = lambda key: [word for _name, word, _tip in view.widgets[key].footer.offers()]  # noqa: E731
        assert words(3) == ["Copy", "Edit", "Answer", "Pin", "Delete"] and "Answer" not in words(1)
        view.widgets[3].footer.show_actions(True)
        with qtbot.waitSignal(view.regenerate_requested) as signal:
            view.widgets[3].footer._buttons["regenerate"].click()
        assert signal.args == [3]
        view.add_message(answer(4))
        settle()
        assert words(3) == ["Copy", "Edit", "Pin", "Delete"]
        view.remove_after(3)
        assert "Answer" in words(3)

    def test_a_continued_answer_keeps_its_first_token_and_counts_on(self, view, settle) -> None:
        view.set_messages([user(1), answer(2, generation=RECORD)])
        settle()
        view.begin_stream(2)
        for index in range(3):
            view.append_step(2, Token(index=index, token_id=1, piece=b"", text="x", channel="text", time_s=0.9 + index))
        view.widgets[2]._figures_s = 0.0  # they are looked at anew only now and then
        view.flush()
        figures = view.widgets[2].footer._figures
        assert figures[0] == "0.21 s to first token" and figures[-1].endswith("tokens")
        assert 64 < int(figures[-1].split()[0]) <= 67


class TestKeyboard:
    @pytest.fixture
    def window(self, qtbot) -> QWidget:
        made = QWidget()
        box = QVBoxLayout(made)
        made.before, made.view, made.after = QLineEdit(), TranscriptView(theme=theme.LIGHT), QLineEdit()
        for part in (made.before, made.view, made.after):
            box.addWidget(part)
        qtbot.addWidget(made)
        made.resize(760, 800)
        made.show()
        qtbot.waitExposed(made)
        made.activateWindow()
        return made

    def test_tab_goes_through_all_controls_and_out(self, window, qtbot, settle) -> None:
        window.view.set_messages([user(1), answer(2, RICH, ReasoningPart("x"), version=1, n_versions=2)])
        settle()
        window.before.setFocus()
        names = []
        for _ in range(40):
            qtbot.keyClick(QApplication.focusWidget(), Qt.Key.Key_Tab)
            focus = QApplication.focusWidget()
            if focus is window.after:
                break
            assert focus.accessibleName(), focus
            names.append(focus.accessibleName())
        assert QApplication.focusWidget() is window.after
        for wanted in ("Copy this code", "Next version", "Copy this answer as Markdown", "Edit this answer"):
            assert wanted in names
        for wanted in ("Write another answer", "Let the model write on from here", "Table", "Code"):
            assert wanted in names
        assert any(name.startswith("Thought") for name in names)
        qtbot.keyClick(window.after, Qt.Key.Key_Tab, Qt.KeyboardModifier.ShiftModifier)
        assert window.view.isAncestorOf(QApplication.focusWidget())

    def test_up_and_down_go_through_the_messages(self, window, qtbot, settle) -> None:
        window.view.set_messages(chat(60))
        settle()
        window.view.focus_row(58)
        for row in range(57, 20, -1):
            qtbot.keyClick(QApplication.focusWidget(), Qt.Key.Key_Up)
            focus = QApplication.focusWidget()
            assert isinstance(focus, MessageWidget) and focus.message.id == row + 1
            assert focus._ring
            assert focus.y() + focus.height() > 0 and focus.y() < window.view.viewport().height()

    def test_escape_goes_from_a_text_to_its_message(self, window, qtbot, settle) -> None:
        window.view.set_messages([answer(2)])
        settle()
        part = window.view.widgets[2].body.views[0]
        part.setFocus()
        QApplication.sendEvent(part, QKeyEvent(QEvent.Type.KeyPress, Qt.Key.Key_Escape, Qt.KeyboardModifier.NoModifier))
        assert QApplication.focusWidget() is window.view.widgets[2]

    def test_messages_have_names(self, window, settle) -> None:
        window.view.set_messages([user(1, "Hello"), answer(2, "World")])
        settle()
        assert window.view.widgets[1].accessibleName() == "You: Hello"
        assert window.view.widgets[2].accessibleName() == "Answer: World"


@pytest.mark.serial
class TestSmoothness:
    """Gaps are CPU time of one turn of the event loop, so that a busy machine does not fail them."""

    def test_a_huge_chat_opens_and_scrolls(self, view) -> None:
        messages = chat(2_000)
        messages[-1] = user(2_001, "x" * 1_000_000)
        messages[-2] = answer(2_000, "```python\n" + "value = compute(1)  # note\n" * 7_500 + "```")
        with Heartbeat() as beat:
            view.set_messages(messages)
            run_for(0.5)
            for _ in range(30):
                view.verticalScrollBar().setValue(view.verticalScrollBar().value() - 200)
                run_for(0.01)
        assert beat.longest_turn_s < 1.0  # a slow machine; the aim is in tests/bench

    @pytest.mark.parametrize(
        "text",
        [RICH * 40, "word **bold** " * 900, "```python\n" + "total = sum(values)  # all\n" * 500, "| a | b |\n" * 1],
        ids=["mixed", "paragraph", "code", "table"],
    )
    def test_streaming_is_smooth(self, view, text: str) -> None:
        if text.startswith("|"):
            text += "|--|--|\n" + "| one cell | **another** |\n" * 450
        view.set_messages([user(1), answer(2, "", status="streaming", generation=None)])
        view.begin_stream(2)
        with Heartbeat() as beat:
            for index in range(0, 12_000, 40):
                for part in range(index, index + 40, 4):
                    view.append_step(2, Token(index=part, token_id=1, piece=b"", text=text[part : part + 4]))
                run_for(0.01)
            view.end_stream(answer(2, text[:12_000]))
            run_for(0.3)
        assert beat.longest_turn_s < 1.0  # a slow machine; the aim is in tests/bench

    def test_a_fold_of_a_huge_message_opens_in_slices(self, view) -> None:
        view.set_messages([answer(2, "word " * 40_000)])
        run_for(0.2)
        assert len(view.widgets[2].body.source) < 10_000
        with Heartbeat() as beat:
            view.widgets[2].show_all()
            assert run_until(lambda: not view.widgets[2].body.busy, 60)
        assert beat.longest_turn_s < 1.0  # a slow machine; the aim is in tests/bench
        assert len(view.widgets[2].body.source) == 200_000
