"""What a chat would occupy of its context, asked for and then sent: both with the real model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine import events
from engine.errors import Cancelled, InvalidRequest, ModelNotLoaded
from engine.sampling import SamplingParams

SHORT = SamplingParams(temperature=0.0, max_tokens=24)
LONG_QUESTION = "Tell me in one sentence why a container can be killed. " * 6


def ledger(w: Any, chat_id: int | None, draft: str = "", overflow: Any = None) -> events.ContextLedger:
    found: events.ContextLedger = w.engine.chats.ledger(chat_id, draft, overflow).result(60)
    return found


def test_what_is_shown_is_what_is_sent(watched: Callable[..., Any]) -> None:
    """Turn after turn, also when the first of them no longer fit."""
    w = watched()
    w.engine.change_settings(sampling=SHORT, system_prompt="Be brief.").result(5)
    info = w.load(n_ctx=512)
    chat_id, dropped = None, []
    for _ in range(6):
        before = ledger(w, chat_id, LONG_QUESTION)
        assert before.n_ctx == info.n_ctx and before.message_ids[-1] == 0
        question, answer = w.answer(LONG_QUESTION, chat_id)
        chat_id = question.chat_id
        assert answer.generation.usage.prompt_tokens == before.n_prompt
        assert answer.generation.n_dropped == before.n_dropped
        dropped.append(before.n_dropped)
    assert dropped[0] == 0 and dropped[-1] > 0
    _, branch = w.engine.chats.open(chat_id).result(5)
    after = ledger(w, chat_id)
    assert after.message_ids == (0, *(message.id for message in branch))
    assert ledger(w, chat_id, "x", "error").n_dropped == 0, "a rule can be tried without setting it"


def test_a_pinned_turn_is_sent_to_the_end(watched: Callable[..., Any]) -> None:
    w = watched()
    w.engine.change_settings(sampling=SHORT).result(5)
    w.load(n_ctx=512)
    question, answer = w.answer("Remember the word heron.")
    pinned = w.engine.chats.pin(answer.id, True).result(5)
    assert pinned.pinned
    assert w.wait(events.MessageChanged).message.id == answer.id
    for _ in range(5):
        w.answer(LONG_QUESTION, question.chat_id)
    found = ledger(w, question.chat_id, LONG_QUESTION)
    kept = {found.message_ids[s.message] for s in found.spans if s.message >= 0 and not s.dropped}
    assert found.n_dropped and {question.id, answer.id} <= kept
    edited = w.engine.chats.edit(answer.id, "I remember.").result(5)
    assert edited.pinned, "another version of a pinned message is pinned too"
    w.engine.chats.pin(edited.id, False).result(5)
    with pytest.raises(InvalidRequest):
        w.engine.chats.pin(10_000, True).result(5)


def test_a_newer_question_takes_the_place_of_an_older_one(watched: Callable[..., Any]) -> None:
    w = watched()
    with pytest.raises(ModelNotLoaded):
        ledger(w, None, "draft")
    w.load(n_ctx=512)
    asked = [w.engine.chats.ledger(None, "words " * 4000 + str(number)) for number in range(8)]
    assert asked[-1].result(60).n_prompt > 4000
    for future in asked[:-1]:
        error = future.exception(60)
        assert error is None or isinstance(error, Cancelled)
    empty = ledger(w, None)
    assert empty.message_ids == (0,) and 0 < empty.n_prompt < 60
    assert w.engine.chats.ledger(99, "no such chat").exception(10) is not None
