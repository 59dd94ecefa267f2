"""Answers that are made to begin with given tokens."""

from __future__ import annotations

from collections.abc import Callable

from engine import events
from engine.message import FinishReason
from engine.worker.slots import Answer
from engine.worker.vocabulary import Vocabulary


def force(answer: Answer, vocab: Vocabulary, send: Callable[[events.Event], None]) -> FinishReason | None:
    """Take the tokens with which an answer begins, as if they had been chosen. Gives why it is over, None if it goes
    on.

    Raises:
        GrammarFailed: the answer's format does not allow them.
    """
    for token in answer.request.forced:
        if token in vocab.eog_tokens:
            return "stop"
        answer.sampler.force(token)
        is_last = answer.n_generated + 1 == answer.params.max_tokens
        send(answer.add(token, vocab.piece(token), None, is_last=is_last))
        if answer.stopped_by_text or answer.sampler.complete:
            return "stop"
        if is_last:
            return "length"
    return None
