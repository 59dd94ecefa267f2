"""The vocabulary of a loaded model: texts to tokens and back."""

from __future__ import annotations

import ctypes
from itertools import compress, repeat
from typing import Any

import llama_cpp.llama_cpp as _llama

from engine.errors import InvalidRequest
from engine.worker.text import to_utf8

_L: Any = _llama
_ATTR_SPECIAL = 1 << 3 | 1 << 0  # llama.h, LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN
_ATTR_UNUSED = 1 << 1
_ATTR_USER_DEFINED = 1 << 4


class Vocabulary:
    """Lives as long as its model.

    Attributes:
        handle: llama.cpp's own pointer to it.
        eog_tokens: every end-of-generation token. control_texts: how control and unknown tokens are written;
            user_defined_texts: the same of those that llama.cpp recognises in any text.
        adds_bos: whether the model wants BOS before every text.
    """

    def __init__(self, model: Any) -> None:
        self.handle = vocab = _L.llama_model_get_vocab(model)
        self.n_tokens: int = _L.llama_vocab_n_tokens(vocab)
        self._piece_buffer = ctypes.create_string_buffer(256)
        self._pieces: dict[int, bytes] = {}
        tokens = range(self.n_tokens) if _L.llama_vocab_type(vocab) else range(0)
        ends = map(_L.llama_vocab_is_eog, repeat(vocab), tokens)
        self.eog_tokens = tuple(compress(tokens, ends))
        attributes = list(map(_L.llama_vocab_get_attr, repeat(vocab), tokens))
        self.control_texts = self._texts_with(attributes, _ATTR_SPECIAL)
        self.user_defined_texts = self._texts_with(attributes, _ATTR_USER_DEFINED)
        self.bos_token: int = _L.llama_vocab_bos(vocab)
        self.eos_token: int = _L.llama_vocab_eos(vocab)
        self.adds_bos = bool(_L.llama_vocab_get_add_bos(vocab))
        self.bos_text = self.token_text(self.bos_token)
        self.eos_text = self.token_text(self.eos_token)

    def _texts_with(self, attributes: list[int], wanted: int) -> tuple[str, ...]:
        found = (self.token_text(token) for token, bits in enumerate(attributes) if bits & wanted)
        return tuple(text for text in found if text)

    def token_text(self, token: int) -> str:
        """The token as the vocabulary writes it, also if it is a control token; "" for none."""
        if not 0 <= token < self.n_tokens:
            return ""
        text: bytes | None = _L.llama_vocab_get_text(self.handle, token)
        return (text or b"").decode("utf-8", "replace")

    def is_text(self, token: int) -> bool:
        """Whether the token says a text: no control, unknown or unused one."""
        return not _L.llama_vocab_get_attr(self.handle, token) & (_ATTR_SPECIAL | _ATTR_UNUSED)

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Token ids. Lone surrogates become U+FFFD: they are no text."""
        raw = to_utf8(text)
        if len(raw) >= 2**31 - 1:
            raise InvalidRequest("a text of 2 GiB cannot be tokenized")
        room = len(raw) // 2 + 16
        while True:
            buffer = (ctypes.c_int32 * room)()
            count: int = _L.llama_tokenize(self.handle, raw, len(raw), buffer, room, add_special, parse_special)
            if count >= 0:
                return buffer[:count]
            if count == -(2**31):
                raise InvalidRequest("the text has too many tokens")
            room = -count

    def piece(self, token: int) -> bytes:
        """The bytes that a token says; control and unknown tokens say nothing, user-defined ones their text."""
        known = self._pieces.get(token)
        if known is None:
            known = self._pieces[token] = self._ask_piece(token)
        return known

    def name(self, token: int) -> bytes:
        """What it says, or how it is written where it says nothing."""
        return self.piece(token) or self.token_text(token).encode()

    def _ask_piece(self, token: int) -> bytes:
        size: int = _L.llama_token_to_piece(self.handle, token, self._piece_buffer, len(self._piece_buffer), 0, False)
        if size < 0:
            self._piece_buffer = ctypes.create_string_buffer(-size)
            return self._ask_piece(token)
        return self._piece_buffer.raw[:size]
