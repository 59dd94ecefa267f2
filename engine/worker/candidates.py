"""Shows a sampler chain only the tokens that are allowed.

Where few are allowed, they are laid out as llama.cpp has its candidates (llama.h, `llama_token_data`), and the rest of
the vocabulary costs nothing. Where nearly all are, the logits of the others are hidden for the moment of the choice.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

#: a bit for each token of the vocabulary, 32 in a word, the lowest first
Mask = npt.NDArray[np.uint32]
Tokens = npt.NDArray[np.intp]
Row = npt.NDArray[np.float32]


def pack(allowed: Iterable[bool], n_vocab: int) -> Mask:
    """A mask out of a truth for each token."""
    bits = np.zeros((n_vocab + 31) // 32 * 32, np.bool_)
    bits[:n_vocab] = np.fromiter(allowed, np.bool_, n_vocab)
    return np.packbits(bits, bitorder="little").view(np.uint32)


def has(mask: Mask, token: int) -> bool:
    return bool(int(mask[token >> 5]) >> (token & 31) & 1)


def tokens_of(mask: Mask) -> Tokens:
    """Ids of the tokens, in order. What it takes depends on how many words are not empty."""
    words = np.flatnonzero(mask)
    bits = np.flatnonzero(np.unpackbits(mask[words].view(np.uint8), bitorder="little").view(np.bool_))
    tokens: Tokens = (words[bits >> 5] << 5) + (bits & 31)
    return tokens


class Choice:
    """What one choice is made from.

    Attributes:
        few: `tokens` are the allowed ones; else all others are.
    """

    def __init__(self, allowed: Mask, n_vocab: int, *, always_few: bool = False) -> None:
        self.few = always_few or 2 * int(np.bitwise_count(allowed).sum()) <= n_vocab
        tokens = tokens_of(allowed if self.few else ~allowed)
        self.tokens = tokens if self.few else tokens[: np.searchsorted(tokens, n_vocab)]

    def allows(self, token: int) -> bool:
        """Whether it can be chosen."""
        at = int(np.searchsorted(self.tokens, token))
        return self.few == (at < len(self.tokens) and int(self.tokens[at]) == token)


class Candidates:
    """Room for a whole vocabulary, used again for every token of an answer.

    Attributes:
        address: where the candidates are that were gathered.
    """

    def __init__(self, n_vocab: int) -> None:
        self._rows = np.zeros((n_vocab, 3), np.float32)  # id (as a whole number), logit, probability
        self._ids, self._logits = self._rows.view(np.int32)[:, 0], self._rows[:, 1]
        self._type = ctypes.c_float * n_vocab
        self.address: int = self._rows.ctypes.data

    def row(self, logits: int) -> Row:
        """The logits of the whole vocabulary that lie at that address."""
        return np.frombuffer(memoryview(self._type.from_address(logits)), np.float32)

    def gather(self, logits: int, tokens: Tokens) -> None:
        """Lay these tokens out with their logits."""
        self._ids[: len(tokens)] = tokens
        self._logits[: len(tokens)] = self.row(logits)[tokens]
