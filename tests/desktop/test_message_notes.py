"""Notes under an answer: every cause that the engine knows has its words."""

from __future__ import annotations

from typing import get_args, get_type_hints

import pytest

from desktop.views.chat.message_notes import notes_of
from engine.message import GenerationRecord, Message, Reread, TextPart

CAUSES = get_args(get_type_hints(Reread)["cause"])


def notes(reread: Reread | None) -> list[str]:
    record = GenerationRecord(finish_reason="stop", reread=reread)
    parts = (TextPart("An answer"),)
    return notes_of(Message(id=1, chat_id=1, parent_id=None, role="assistant", parts=parts, generation=record))


@pytest.mark.parametrize("cause", CAUSES)
def test_much_that_was_read_again_is_said(cause: str) -> None:
    assert len(CAUSES) >= 8
    (note,) = notes(Reread(index=3, cause=cause, n_tokens=2_400))  # type: ignore[arg-type]
    assert note.startswith("2,400 tokens were read again: ") and note.endswith(".")


def test_little_is_not_worth_a_word() -> None:
    assert notes(None) == [] == notes(Reread(index=3, cause="tokens", n_tokens=12))
