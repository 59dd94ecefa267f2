"""What the next token of one answer may be, under a JSON Schema or a grammar.

The constraint holds for the answer, not for what a thinking model writes before it. Until the thinking is closed
every text is free; only the end of generation has to wait.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from engine.chat.thinking import tag_pair
from engine.errors import GrammarFailed, InvalidRequest
from engine.message import FinishReason
from engine.worker.candidates import Mask
from engine.worker.grammar import Compiled

#: white space between the thinking and the answer, which is in neither of them
_MAX_GAP = 4


class Constraint:
    """State of one answer. Everything runs on the owner thread.

    Args:
        tag: the tag that the model thinks in, "" if it does not.
        opened: the prompt ended inside thinking.
    """

    def __init__(self, compiled: Compiled, tag: str = "", *, opened: bool = False) -> None:
        self._kind, self._source, self._matcher = compiled.kind, compiled.source, compiled.matcher()
        self._mask = np.zeros((len(self._source.pieces) + 31) // 32, np.uint32)
        self._open, self._close = (text.encode() for text in tag_pair(tag)) if tag else (b"", b"")
        self._state: Literal["start", "inside", "gap", "answer"] = "start" if tag else "answer"
        if opened:
            self._state = "inside"
        self._pending = b""
        self._gap = 0
        self._refused = False  # the grammar cannot go on from what is pending, which may be an opening tag

    def go_on_from(self, text: str) -> None:
        """The answer begins with this text already.

        Raises:
            InvalidRequest: it cannot begin so.
        """
        tokens = self._source.tokenizer.greedy_tokenize(text)
        if text and self._matcher.try_consume_tokens(tokens) < len(tokens):
            raise InvalidRequest(
                "The answer so far does not keep to the answer format, so it cannot be continued in it",
                hint="Set the answer format of this chat to free text, or let the answer be written anew.",
                details={"field": "json_schema" if self._kind == "schema" else "grammar"},
            )
        if text:
            self._state = "answer"
        elif self._state == "start":
            self._state = "gap"

    # ------------------------------------------------------------------ before a token

    def allowed(self) -> Mask:
        """Which tokens may come next. While the model thinks, all may but the end of generation, and a closing tag that
        runs on into the answer.

        Raises:
            GrammarFailed: there is none, or finding out would take too long.
        """
        match self._state:
            case "inside":
                return self._source.thinking(self._pending, self._close)
            case "answer":
                return self._by_grammar()
            case "start":
                more = self._source.like(self._open[len(self._pending) :])
            case "gap":
                more = self._source.blanks(_MAX_GAP - self._gap)
        return more if self._refused else self._by_grammar() | more

    def _by_grammar(self) -> Mask:
        self._matcher.unsafe_compute_mask_ptr(self._mask.ctypes.data, self._mask.nbytes)
        if self._matcher.is_error() or not self._mask.any():
            raise _failed(self._matcher.get_error() or "no token of this model fits")
        return self._mask

    # ------------------------------------------------------------------ after a token

    def accept(self, token: int) -> None:
        """The token has been chosen."""
        piece = self._source.pieces[token]
        if self._state == "inside":
            self._think(piece)
        elif self._state == "gap" and piece and not piece.strip() and self._gap + len(piece) <= _MAX_GAP:
            self._gap += len(piece)
        elif self._state == "start":
            self._start(token, piece)
        else:
            self._state = "answer"
            self._consume([token])

    def _start(self, token: int, piece: bytes) -> None:
        self._pending += piece
        if piece and self._pending.startswith(self._open):
            rest, self._pending = self._pending[len(self._open) :], b""
            self._matcher.reset()
            self._state, self._refused = "inside", False
            self._think(rest)
            return
        if not (piece and self._open.startswith(self._pending)):
            self._state = "answer"
            self._consume([token])
        elif not self._refused:
            self._refused = self._matcher.try_consume_tokens([token]) == 0

    def _think(self, piece: bytes) -> None:
        _, found, rest = (self._pending + piece).partition(self._close)
        if not found:
            self._pending = (self._pending + piece)[1 - len(self._close) :]
            return
        self._pending, self._state = b"", "gap"
        self._gap = min(len(rest), _MAX_GAP)

    def _consume(self, tokens: list[int]) -> None:
        for token in tokens:
            if not self._matcher.consume_token(token):
                raise _failed(self._matcher.get_error())

    # ------------------------------------------------------------------ the end

    @property
    def complete(self) -> bool:
        """Nothing can come any more but the end."""
        return self._state == "answer" and self._matcher.is_stopped()

    @property
    def satisfied(self) -> bool:
        """What has been written is a whole answer."""
        return self._state == "answer" and (self._matcher.is_stopped() or self._matcher.is_accepting())

    def note(self, reason: FinishReason) -> str:
        """A sentence for the user if the answer ended before it was whole, else ""."""
        if reason not in ("length", "stop") or self.satisfied:
            return ""
        what = "JSON" if self._kind == "schema" else "text in the grammar's form"
        return f"The {what} is not complete."


def _failed(problem: str) -> GrammarFailed:
    lines = problem.strip().splitlines()
    return GrammarFailed(
        "The answer could not go on in its format",
        hint="A simpler schema or grammar may help; the text so far is kept.",
        details={"error": lines[0][:300] if lines else ""},
    )
