"""An answer in a format (JSON by a schema): its trace, a step replayed, its terms, and what a branch may begin with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from test_trace_view import opened

from desktop.widgets.term import term_of
from engine.message import AnswerFormat, ChatSettings
from engine.sampling import SamplingParams

SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
)


def test_a_json_answer_is_traced_replayed_and_branched(shell: Any, starter_model: Path) -> None:
    one = shell(real=True)
    one.app.engine.change_settings(sampling=SamplingParams(temperature=0.8, max_tokens=60, seed=7))
    one.load(starter_model)
    one.presenter.set_settings(ChatSettings(answer_format=AnswerFormat("schema", SCHEMA)))
    one.wait(lambda: one.presenter.chat is not None and one.presenter.chat.settings.answer_format.kind == "schema")
    message = one.answer("Give me a person as JSON.")
    assert set(json.loads(message.text)) == {"name", "age"}
    page, trace = opened(one, message)
    assert all(step.detail.stages[0].name == "format" for step in trace.steps)
    # what the format rules out is shown as such, and cannot be pressed
    found = [(i, c) for i, s in enumerate(trace.steps) for c in s.detail.candidates if not c.allowed]
    assert found and all(c.token_id != trace.steps[i].token_id for i, c in found)
    index, ruled_out = found[0]
    page.sections.written._choose(index)
    row = next(row for row in page.panel.alternatives.rows if row.candidate == ruled_out)
    assert not row.isEnabled() and "format does not allow" in row.toolTip() and "not allowed" in row.accessibleName()
    page.panel.alternatives.grab()
    format_row = next(row for row in page.panel.chosen.rows if row.label == "answer format")
    assert format_row.value.endswith("allowed") and format_row.term == "answer_format"
    assert term_of(page.panel.chosen_head) == "sampler_chain"
    page.replay_button.click()
    dialog = page.replay
    dialog.ask()
    one.wait(lambda: dialog.run.isEnabled())
    assert dialog.now.note.text() == "The same token"
    dialog.close()
    # and from what it allows the answer goes on in its format
    able = ((i, c) for i, s in enumerate(trace.steps) for c in s.detail.candidates if c.allowed)
    index, other = next((i, c) for i, c in able if c.token_id != trace.steps[i].token_id)
    page.sections.written._choose(index)
    next(row for row in page.panel.alternatives.rows if row.candidate == other).click()
    one.wait(lambda: page.desk.message_id != message.id)
    one.wait(lambda: not one.app.engine.chats.generating(), 60)
    one.wait(lambda: one.presenter.messages[-1].id == page.desk.message_id)
    branch = one.presenter.messages[-1]
    assert branch.status == "complete" and branch.text != message.text
    if branch.generation.finish_reason == "stop":
        assert set(json.loads(branch.text)) == {"name", "age"}
