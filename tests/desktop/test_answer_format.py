"""The answer format of a chat: chosen, checked while it is typed, stored with the chat and with its answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from desktop.views.settings.answer_format import AnswerFormatSection
from desktop.views.settings.chat_settings import ChatSettingsDialog
from engine import format_check
from engine.errors import WorkerDied
from engine.message import AnswerFormat, ChatSettings

SCHEMA = json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})


@pytest.fixture
def opened(shell) -> Any:
    """The settings of a chat that is not stored yet."""
    one = shell()
    one.window.actions_["chat_settings"].trigger()
    one.dialog = one.window.findChild(ChatSettingsDialog)
    one.section = one.dialog.format
    return one


def choose(section: AnswerFormatSection, kind: str) -> None:
    section.kind.setCurrentIndex(section.kind.findData(kind))


def test_a_chat_begins_with_free_text(opened) -> None:
    section = opened.section
    assert section.kind.currentData() == "text" and section.value() == AnswerFormat()
    assert not section.text.isVisibleTo(opened.dialog) and not section.words.isVisibleTo(opened.dialog)
    assert section.kind.accessibleName() and section.kind.toolTip()


def test_a_schema_is_checked_while_it_is_typed(opened) -> None:
    section = opened.section
    choose(section, "schema")
    assert section.text.isVisibleTo(opened.dialog) and "Nothing is written" in section.words.text()
    assert section.value() == AnswerFormat(), "nothing is written, so nothing is held"
    section.text.setPlainText('{"type": "array", "uniqueItems": true}')
    opened.wait(lambda: "uniqueItems" in section.words.text())
    assert section.words.property("role") == "bad" and section.text.property("invalid") == "true"
    assert section.text.accessibleDescription() == section.words.text()
    section.text.setPlainText('{"type": "array", "items": {"type": "string", "pattern": "a(?=b)"}}')
    opened.wait(lambda: "look-around" in section.words.text())
    section.text.setPlainText(SCHEMA)
    opened.wait(lambda: "can be enforced" in section.words.text())
    assert section.text.property("invalid") == "false" and section.words.property("role") == "label"


def test_a_grammar_is_checked_with_its_line(opened) -> None:
    section = opened.section
    choose(section, "grammar")
    section.text.setPlainText('root ::= "a"\nx ::= y')
    opened.wait(lambda: section.words.text().startswith("Line 2"))
    section.text.setPlainText('root ::= "a" | "b"')
    opened.wait(lambda: "can be enforced" in section.words.text())


def test_what_was_typed_for_one_kind_waits_for_its_return(opened) -> None:
    section = opened.section
    choose(section, "schema")
    section.text.setPlainText(SCHEMA)
    choose(section, "grammar")
    assert section.text.toPlainText() == ""
    section.text.setPlainText('root ::= "a"')
    choose(section, "json")
    assert section.value() == AnswerFormat("json") and "JSON object or list" in section.words.text()
    choose(section, "schema")
    assert section.text.toPlainText() == SCHEMA and section.value() == AnswerFormat("schema", SCHEMA)
    choose(section, "grammar")
    assert section.value() == AnswerFormat("grammar", 'root ::= "a"')


def test_an_old_verdict_does_not_come_over_a_new_text(opened, monkeypatch: pytest.MonkeyPatch) -> None:
    section = opened.section
    asked: list[Any] = []
    monkeypatch.setattr(section, "_check", lambda *question: asked.append(question))
    choose(section, "schema")
    section.text.setPlainText("{")
    opened.wait(lambda: len(asked) == 1)
    section.text.setPlainText(SCHEMA)
    asked[0][2](WorkerDied("old"))
    assert section.words.text() == "Checking…"
    opened.wait(lambda: len(asked) == 2)
    asked[0][1]()
    assert section.words.text() == "Checking…"
    asked[1][1]()
    assert "can be enforced" in section.words.text()


def test_a_check_that_dies_says_so(opened, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(_: AnswerFormat) -> None:
        raise WorkerDied("The check ended by itself")

    monkeypatch.setattr(format_check, "check", dies)
    choose(opened.section, "schema")
    opened.section.text.setPlainText(SCHEMA)
    opened.wait(lambda: "could not be checked" in opened.section.words.text())
    assert opened.section.words.property("role") == "warn"


def test_it_is_stored_with_the_chat_and_its_answers(shell, model_file: Path) -> None:
    one = shell()
    one.load(model_file)
    one.answer("hello")
    one.window.actions_["chat_settings"].trigger()
    dialog = one.window.findChild(ChatSettingsDialog)
    choose(dialog.format, "schema")
    dialog.format.text.setPlainText(SCHEMA)
    dialog.close()
    wanted = ChatSettings(answer_format=AnswerFormat("schema", SCHEMA))
    one.wait(lambda: one.presenter.chat is not None and one.presenter.chat.settings == wanted)
    answer = one.answer("again")
    assert answer.generation.answer_format == wanted.answer_format
    one.window.actions_["chat_settings"].trigger()
    again = [d for d in one.window.findChildren(ChatSettingsDialog) if d.isVisible()][-1]
    assert again.format.kind.currentData() == "schema" and again.format.text.toPlainText() == SCHEMA


def test_the_window_does_not_wait_for_the_check(opened) -> None:
    """A slow checker holds up nothing: what is typed is there at once."""
    section = opened.section
    choose(section, "schema")
    for end in range(1, len(SCHEMA) + 1):
        section.text.setPlainText(SCHEMA[:end])
    assert section.value().text == SCHEMA
    opened.wait(lambda: "can be enforced" in section.words.text())


def test_what_was_typed_just_before_the_program_ends_is_kept(shell, home: Path) -> None:
    one = shell()
    one.presenter.set_settings(ChatSettings(system_prompt="Short."))
    one.wait(lambda: one.presenter.chat is not None and one.presenter.chat.settings.system_prompt == "Short.")
    chat_id = one.presenter.chat_id
    one.window.actions_["chat_settings"].trigger()
    dialog = one.window.findChild(ChatSettingsDialog)
    choose(dialog.format, "grammar")
    dialog.format.text.setPlainText('root ::= "a"')
    one.close()
    again = shell()
    stored = again.result(again.app.engine.chats.open(chat_id))[0].settings
    assert stored == ChatSettings("Short.", answer_format=AnswerFormat("grammar", 'root ::= "a"'))
