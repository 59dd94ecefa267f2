"""The tour: a real question to the starter model, step by step, and a follow-up that finds its beginning cached."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import Qt
from test_a11y import controls

from desktop.theme import DARK
from desktop.views.tour.steps import STEPS, Facts
from engine.message import PromptMessage, Usage
from engine.sampling import SamplingParams
from engine.trace import Step, Trace, TraceMessage


@pytest.fixture
def opened(shell: Any, starter_model: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("desktop.views.tour.tour_desk._MOST_TOKENS", 24)

    def make(*, load: bool = True) -> tuple[Any, Any]:
        one = shell(real=True)
        if load:
            one.window.control.load(starter_model, n_ctx=1024)
            one.wait(lambda: one.window.control.state.status == "ready", 60)
        one.window.inside.show("tour")
        return one, one.window.inside.view.page("tour")

    return make


def asked(one: Any, page: Any) -> Any:
    page.asking.button.click()
    one.wait(lambda: page.desk.facts() is not None and page.desk.facts().complete, 60)
    one.wait(lambda: page.desk.facts().text is not None)
    return page.desk.facts()


def test_a_real_question_step_by_step(opened: Any, qtbot: Any) -> None:
    one, page = opened()
    assert page.stack.currentIndex() == 0 and page.asking.button.isEnabled()
    facts = asked(one, page)
    trace, model = facts.trace, one.window.control.state.model
    assert page.stack.currentIndex() == 1 and page.title.text() == "You ask"
    assert "2 messages" in page.words.text() and "ice float" in page.exhibits.messages.toPlainText()
    seen = {}
    for place, step in enumerate(STEPS):
        assert page.step == place and page.title.text() == step.title and page.steps[place].isChecked()
        assert page.number.text() == f"Step {place + 1} of {len(STEPS)}"
        if step.id == "prefill":
            assert trace.chunks and page.exhibits.chunks.isVisible()
        seen[step.id] = page.words.text(), [row.value for row in page.exhibits.rows.rows]
        if place < len(STEPS) - 1:
            qtbot.mouseClick(page.next, Qt.MouseButton.LeftButton)
    assert not page.next.isEnabled()
    assert f"Of the {trace.n_prompt:,} tokens, the template wrote {facts.n_template:,}" in seen["template"][0]
    assert f"became {trace.n_prompt:,} tokens" in seen["tokens"][0] and f"{model.n_vocab:,} tokens" in seen["tokens"][1]
    assert f"{trace.n_prompt - trace.n_cached:,} of {trace.n_prompt:,}" in seen["prefill"][1]
    assert f"{facts.n_used:,} of {model.n_ctx:,}" in seen["cache"][1]
    assert f"{len(trace.steps):,}" in seen["decode"][1]
    assert f"seed, {trace.seed}" in seen["sampling"][0] and len(seen["sampling"][1]) > 2
    assert ("ended" in seen["stop"][0]) and seen["stop"][1] != ["—"]
    assert page.exhibits.rendered.toPlainText() == facts.text.text
    shown = {name for name, part in vars(page.exhibits).items() if name == "asking" and part.isVisible()}
    assert shown == {"asking"}


def test_a_token_is_looked_at(opened: Any) -> None:
    one, page = opened()
    facts = asked(one, page)
    page.go_to([step.id for step in STEPS].index("decode"))
    page.exhibits.written.chosen.emit(3)
    assert STEPS[page.step].id == "sampling" and page.chosen == 3 and "token 4, " in page.words.text()
    ids = [row.candidate.token_id for row in page.exhibits.alternatives.rows]
    assert ids == [candidate.token_id for candidate in facts.trace.steps[3].detail.candidates]
    assert not any(row.isEnabled() for row in page.exhibits.alternatives.rows)
    for control in controls(page):
        assert control.accessibleName() or control.property("text"), control.objectName()
    for size in ((720, 480), (1400, 900)):
        one.window.resize(*size)
        page.apply_theme(DARK, 1.5)
        for place in range(len(STEPS)):
            page.go_to(place)
            one.wait(lambda: page.scroll_area.horizontalScrollBar().maximum() == 0)


def test_a_follow_up_reads_only_what_is_new(opened: Any) -> None:
    one, page = opened()
    facts = asked(one, page)
    page.go_to(len(STEPS) - 1)
    one.wait(page.exhibits.asking.button.isEnabled)
    page.exhibits.asking.button.click()
    one.wait(lambda: page.desk.follow.trace is not None and page.desk.follow.trace.marks is not None, 60)
    one.wait(lambda: page.desk.facts().follow_text is not None)
    follow = page.desk.facts().follow
    assert follow.chat_id == facts.trace.chat_id and follow.message_id != facts.trace.message_id
    assert follow.n_cached >= facts.trace.n_prompt and follow.n_prompt - follow.n_cached < facts.trace.n_prompt
    rows = {row.label: row.value for row in page.exhibits.rows.rows}
    assert rows["From the cache"] == f"{follow.n_cached:,}" and rows["Without the cache"].startswith("about ")
    assert page.exhibits.chips.isVisible() and not page.exhibits.asking.isVisible()
    page.whole.click()
    assert one.window.inside.view.shown == "trace"
    one.window.inside.show("tour")
    page.again.click()
    assert page.stack.currentIndex() == 0 and page.desk.facts() is None


def test_the_last_answer_can_be_walked_through(opened: Any) -> None:
    one, page = opened()
    one.window.show_chat()
    one.app.engine.change_settings(sampling=SamplingParams(max_tokens=12))
    message = one.answer("Say hello.")
    one.window.inside.show("tour")
    assert page.use_last.isVisible()
    page.use_last.click()
    one.wait(lambda: page.desk.facts() is not None and page.desk.facts().text is not None)
    assert page.desk.facts().trace.message_id == message.id and "Say hello." in page.exhibits.messages.toPlainText()


def test_what_keeps_from_asking_is_said(opened: Any) -> None:
    one, page = opened(load=False)
    assert not page.asking.button.isEnabled() and "Load a model first" in page.asking.note.text()
    assert page.choose_model.isVisible() and not page.use_last.isVisible()
    one.app.engine.change_settings(trace=False)
    page.refresh()
    assert "switched off" in page.asking.note.text() and not page.choose_model.isVisible()


def plain(**values: Any) -> Facts:
    steps = tuple(Step(i, b" x", 0.1 * i) for i in range(3))
    messages = (TraceMessage(1, PromptMessage("user", "Hello")),)
    return Facts(Trace(**{"message_id": 1, "messages": messages, "steps": steps, "usage": Usage(), **values}))


def test_unknown_is_no_number() -> None:
    """A trace that has just begun, and one of another model: nothing is made up."""
    facts = plain()
    for step in STEPS:
        assert step.words(facts)
        for row in step.rows(facts):
            assert "nan" not in row.value.lower() and "-" not in row.value and "None" not in row.value, (step.id, row)
    rows = {row.label: row for step in STEPS for row in step.rows(facts)}
    assert rows["Speed of writing"].value == "—" and rows["Vocabulary"].value == "—"
    assert "still being written" in STEPS[7].words(facts)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"finish_reason": "length", "sampling": SamplingParams(max_tokens=3)}, "limit of 3 tokens"),
        ({"finish_reason": "length"}, "context was full"),
        ({"finish_reason": "cancelled"}, "you stopped it"),
        ({"finish_reason": "error"}, "an error"),
        ({"finish_reason": "stop"}, "one of the texts"),
        ({"finish_reason": "stop", "end": Step(2, b"<|im_end|>", 0.3, -0.1)}, "<|im_end|>”, a token"),
    ],
)
def test_why_it_ended(values: dict[str, Any], said: str) -> None:
    assert said in STEPS[7].words(plain(**values))
