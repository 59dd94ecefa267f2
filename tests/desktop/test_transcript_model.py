"""The transcript's model: what it tells, and how it changes."""

from __future__ import annotations

from PySide6.QtCore import QAbstractItemModel
from PySide6.QtTest import QAbstractItemModelTester

from desktop.models.transcript import Roles, TranscriptModel, text_and_reasoning
from engine.events import PromptProgress, Token
from engine.message import Message, ReasoningPart, TextPart


def message(number: int, text: str = "", **fields: object) -> Message:
    role = "user" if number % 2 else "assistant"
    return Message(id=number, chat_id=1, parent_id=None, role=role, parts=(TextPart(text),), **fields)  # type: ignore[arg-type]


def token(index: int, text: str, **fields: object) -> Token:
    return Token(index=index, token_id=1, piece=text.encode(), text=text, **fields)  # type: ignore[arg-type]


def checked() -> TranscriptModel:
    model = TranscriptModel()
    tester = QAbstractItemModelTester(model, QAbstractItemModelTester.FailureReportingMode.Fatal)
    tester.setParent(model)
    assert isinstance(model, QAbstractItemModel)
    return model


def test_all_changes_under_the_model_tester(qapp) -> None:
    model = checked()
    model.set_messages([message(1, "a"), message(2, "b")])
    model.add(message(3, "c"))
    model.add(message(4, status="streaming"))
    model.begin_stream(4)
    model.append_step(4, token(0, "x"))
    model.update(message(4, "stored", status="streaming"))
    model.end_stream(message(4, "xy"))
    model.remove_after(2)
    assert model.rowCount() == 2
    model.remove_after(2)
    model.set_messages([])
    assert model.rowCount() == 0


def test_roles(qapp) -> None:
    model = checked()
    model.set_messages([message(1, "hello")])
    index = model.index(0)
    assert index.data() == "hello"
    assert index.data(Roles.ID) == 1
    assert index.data(Roles.MESSAGE) == message(1, "hello")
    assert index.data(Roles.STATUS) == "complete"
    assert model.index(5).data() is None


def test_a_stream_adds_to_what_is_there(qapp) -> None:
    model = checked()
    model.set_messages([message(2, "Once ")])
    model.begin_stream(2)
    model.append_step(2, PromptProgress(n_prompt=10, n_cached=0, n_done=5))
    state = model.stream(2)
    assert state is not None and state.progress is not None and state.progress.n_done == 5
    model.append_step(2, token(0, "hmm", channel="reasoning", time_s=1.0))
    model.append_step(2, token(1, "upon ", time_s=1.5))
    model.append_step(2, token(2, "a time", time_s=2.0))
    assert state.progress is None
    assert state.take() == ("upon a time", "hmm")
    assert state.take() == ("", "")
    assert model.index(0).data() == "Once upon a time"
    assert model.index(0).data(Roles.REASONING) == "hmm"
    assert (state.n_tokens, state.n_reasoning, state.ttft_s, state.rate) == (3, 1, 1.0, 2.0)


def test_what_is_stored_meanwhile_does_not_take_the_stream_back(qapp) -> None:
    model = checked()
    model.set_messages([message(2, status="streaming")])
    model.begin_stream(2)
    for index in range(5):
        model.append_step(2, token(index, "a"))
    model.update(message(2, "aa", status="streaming"))
    assert model.index(0).data() == "aaaaa"
    model.update(message(2, "aaaa", status="failed"))
    assert model.index(0).data() == "aaaa"
    assert model.streaming_ids == []


def test_steps_of_unknown_messages_are_left(qapp) -> None:
    model = checked()
    assert not model.append_step(9, token(0, "x"))
    model.set_messages([message(2)])
    assert model.append_step(2, token(0, "x"))


def test_a_branch_without_the_stream_ends_it_here(qapp) -> None:
    model = checked()
    model.set_messages([message(1), message(2, status="streaming")])
    model.begin_stream(2)
    model.append_step(2, token(0, "x"))
    model.set_messages([message(1), message(2, status="streaming")])
    assert model.index(1).data() == "x"
    model.set_messages([message(1)])
    assert model.streaming_ids == []


def test_several_thoughts_are_joined() -> None:
    parts = (
        ReasoningPart("a", n_tokens=2, duration_s=1.0),
        TextPart("x"),
        ReasoningPart("b", n_tokens=3, closed=False),
    )
    text, thought = text_and_reasoning(Message(id=1, chat_id=1, parent_id=None, role="assistant", parts=parts))
    assert text == "x"
    assert thought is not None
    assert (thought.text, thought.n_tokens, thought.duration_s, thought.closed) == ("a\n\nb", 5, 1.0, False)
