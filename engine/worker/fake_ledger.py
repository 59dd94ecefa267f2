"""Ledgers of the scripted worker: a real chat template over a vocabulary of word-like pieces."""

from __future__ import annotations

import re

from engine import events
from engine.chat import template
from engine.chat.context import run
from engine.worker import protocol
from engine.worker.fake_script import cut
from engine.worker.prompt import PromptBuilder

_CONTROL = ("<|im_start|>", "<|im_end|>")


class Words:
    """Tokens are pieces as a script's text is cut into; they get their numbers when they first occur."""

    control_texts = _CONTROL
    adds_bos = False
    bos_text = ""

    def __init__(self) -> None:
        self._pieces = list(_CONTROL)
        self._numbers = {piece: number for number, piece in enumerate(_CONTROL)}

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        parts = re.split(f"({'|'.join(map(re.escape, _CONTROL))})", text) if parse_special else [text]
        pieces = [piece for part in parts for piece in ([part] if part in _CONTROL else cut(part))]
        for piece in pieces:
            if piece not in self._numbers:
                self._numbers[piece] = len(self._pieces)
                self._pieces.append(piece)
        return [self._numbers[piece] for piece in pieces]

    def piece(self, token: int) -> bytes:
        return b"" if token < len(_CONTROL) else self._pieces[token].encode()


def ledger(request: protocol.Ledger, n_ctx: int) -> events.ContextLedger:
    """Raises: EngineError as `PromptBuilder.ledger` does."""
    prompts = PromptBuilder(template.choose(None, special_tokens=_CONTROL), Words(), n_ctx)
    return run(prompts.ledger(request.id, request.messages, overflow=request.overflow, max_tokens=request.max_tokens))
