"""Vectors of texts, with a model that was loaded for them.

The context gives a vector for every token and knows nothing of pooling: that is done here, so that one context serves
every kind of it and a text may be longer than one batch where the model reads from left to right. Models that look
both ways need a text whole.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import llama_cpp.llama_cpp as _llama
import numpy as np
import numpy.typing as npt

from engine import events
from engine.errors import Cancelled, ContextFull, InvalidRequest, LoadFailed, UnsupportedModel
from engine.worker.llama import DECODE_ABORTED, DECODE_OK, LlamaModel
from engine.worker.protocol import MAX_LINE_BYTES, Embed

_L: Any = _llama
Kind = Literal["mean", "cls", "last", "none"]
Floats = npt.NDArray[np.float32]
#: llama.h, enum llama_pooling_type; what a file names for itself
_KINDS: dict[int, Kind] = {1: "mean", 2: "cls", 3: "last"}
_RANK = 4
#: bytes of an answer: base64 makes four of three, and a line holds more than the vectors
_MOST_BYTES = MAX_LINE_BYTES // 2
#: characters of a text that an error shows
_BEGIN = 40


def own_pooling(llama: LlamaModel) -> Kind | None:
    """How the model's file says that a text's vectors become one; None where it says nothing.

    Raises:
        UnsupportedModel: the model judges pairs of texts instead (a reranker).
    """
    value = llama.metadata(f"{llama.metadata('general.architecture')}.pooling_type")
    number = int(value) if value.isdigit() else 0
    if number == _RANK:
        raise UnsupportedModel(
            "This model says how well two texts belong together; it makes no vectors of them",
            hint="Choose an embedding model, or any chat model.",
        )
    return _KINDS.get(number)


@dataclass
class _Text:
    """A text at work. total: sum of its vectors so far (mean); rows: those to keep (all of them, or one)."""

    tokens: list[int]
    n_done: int = 0
    total: npt.NDArray[np.float64] | None = None
    rows: list[Floats] | None = None

    def take(self, rows: Floats, kind: Kind) -> None:
        """The vectors of its next tokens."""
        first, self.n_done = self.n_done, self.n_done + len(rows)
        if kind == "mean":
            part = rows.sum(axis=0, dtype=np.float64)
            self.total = part if self.total is None else self.total + part
        elif kind == "none":
            self.rows = [*(self.rows or []), rows.copy()]
        elif kind == "last" or first == 0:
            row = rows[-1:] if kind == "last" else rows[:1]
            self.rows = [row.copy()]

    def pooled(self) -> Floats:
        """Its vector, or its vectors, one in a row."""
        if self.total is not None:
            return (self.total / self.n_done)[np.newaxis].astype(np.float32)
        assert self.rows
        return np.concatenate(self.rows)


class Embedder:
    """Everything runs on the owner thread.

    Attributes:
        most_tokens: of one text.
        own: the pooling that the model's file names, None where it names none.
    """

    def __init__(self, llama: LlamaModel) -> None:
        self._llama = llama
        self.own = own_pooling(llama)
        self._memory = _L.llama_get_memory(llama.context)
        # nothing is carried from batch to batch: there is no memory, or a batch holds all that the context does
        self._whole = not self._memory or llama.n_batch >= llama.n_ctx
        n_ctx_train: int = _L.llama_model_n_ctx_train(_L.llama_get_model(llama.context))
        self.most_tokens = min(llama.n_ctx, n_ctx_train or llama.n_ctx, llama.n_batch if self._whole else llama.n_ctx)
        model = _L.llama_get_model(llama.context)
        self._n_embd: int = _L.llama_model_n_embd_out(model)
        only_encodes = _L.llama_model_has_encoder(model) and not _L.llama_model_has_decoder(model)
        self._run = _L.llama_encode if only_encodes else _L.llama_decode
        self._batch = _L.llama_batch_init(llama.n_batch, 0, 1)

    def close(self) -> None:
        _L.llama_batch_free(self._batch)

    def embed(self, request: Embed, stopped: Callable[[], bool]) -> events.Embedded:
        """All texts of a request.

        Raises:
            InvalidRequest: nothing to embed, an empty text, or more than one answer can hold.
            ContextFull: a text is longer than the model can read.
            Cancelled: `stopped` said so. LoadFailed: llama.cpp could not compute it.
        """
        kind: Kind = (self.own or "mean") if request.pooling == "own" else request.pooling
        texts = [_Text(self._tokens(text)) for text in request.texts]
        if not texts:
            raise InvalidRequest("There is no text to embed", details={"field": "texts"})
        n_rows = sum(len(text.tokens) for text in texts) if kind == "none" else len(texts)
        if n_rows * self._n_embd * 4 > _MOST_BYTES:
            raise InvalidRequest(
                f"{n_rows:,} vectors are too many for one answer",
                hint="Embed fewer texts at a time.",
                details={"field": "texts"},
            )
        for wave in self._waves(texts):
            self._read(wave, kind, stopped)
        vectors = np.concatenate([text.pooled() for text in texts])
        if request.normalize:
            vectors = _normalized(vectors)
        return events.Embedded(
            request_id=request.id,
            vectors=np.ascontiguousarray(vectors, dtype="<f4").tobytes(),
            n_embd=self._n_embd,
            n_tokens=tuple(len(text.tokens) for text in texts),
            pooling=kind,
            normalized=request.normalize,
        )

    def _tokens(self, text: str) -> list[int]:
        tokens = self._llama.vocab.tokenize(text, add_special=True, parse_special=False)
        if not tokens:
            raise InvalidRequest("An empty text has no vector", details={"field": "texts"})
        if len(tokens) > self.most_tokens:
            begin = text if len(text) <= _BEGIN else text[:_BEGIN] + "..."
            raise ContextFull(
                f"The text {begin!r} has {len(tokens):,} tokens; the model reads at most {self.most_tokens:,} at once",
                hint="Divide the text into smaller parts.",
                details={"n_prompt": len(tokens), "n_ctx": self.most_tokens},
            )
        return tokens

    def _waves(self, texts: Sequence[_Text]) -> Iterator[list[_Text]]:
        """Texts that are worked on together: one sequence each, all of them in the cache (or the batch) at once."""
        room = self._llama.n_batch if self._whole else self._llama.n_ctx
        wave: list[_Text] = []
        used = 0
        for text in texts:
            if wave and (used + len(text.tokens) > room or len(wave) == self._llama.n_slots):
                yield wave
                wave, used = [], 0
            wave.append(text)
            used += len(text.tokens)
        yield wave

    def _read(self, wave: list[_Text], kind: Kind, stopped: Callable[[], bool]) -> None:
        """Work through a wave in batches, and forget it."""
        entries = [(seq, at) for seq, text in enumerate(wave) for at in range(len(text.tokens))]
        step = len(entries) if self._whole else self._llama.n_batch
        try:
            for start in range(0, len(entries), step):
                part = entries[start : start + step]
                if stopped():
                    raise Cancelled("Stopped")
                self._compute(wave, part, stopped)
                rows = self._rows(len(part))
                for seq in dict.fromkeys(seq for seq, _ in part):
                    mine = [place for place, (other, _) in enumerate(part) if other == seq]
                    wave[seq].take(rows[mine[0] : mine[-1] + 1], kind)
        finally:
            if self._memory:
                _L.llama_memory_clear(self._memory, False)

    def _compute(self, wave: list[_Text], part: Sequence[tuple[int, int]], stopped: Callable[[], bool]) -> None:
        batch = self._batch
        for place, (seq, at) in enumerate(part):
            batch.token[place], batch.pos[place], batch.n_seq_id[place] = wave[seq].tokens[at], at, 1
            batch.seq_id[place][0], batch.logits[place] = seq, True
        batch.n_tokens = len(part)
        code: int = self._run(self._llama.context, batch)
        if code == DECODE_ABORTED and stopped():
            raise Cancelled("Stopped")
        if code != DECODE_OK:
            raise LoadFailed(f"llama.cpp failed to compute the vectors (code {code})")

    def _rows(self, count: int) -> Floats:
        """The vectors of the last batch, one in a row, where llama.cpp keeps them."""
        pointer = _L.llama_get_embeddings(self._llama.context)
        address = ctypes.cast(pointer, ctypes.c_void_p).value
        if not address:
            raise LoadFailed("llama.cpp gives no vectors for this model")
        found: Floats = np.ctypeslib.as_array((ctypes.c_float * (count * self._n_embd)).from_address(address))
        return found.reshape(count, self._n_embd)


def _normalized(vectors: Floats) -> Floats:
    """Each row with the length 1; a row of zeros stays."""
    lengths = np.sqrt(np.square(vectors, dtype=np.float64).sum(axis=1, keepdims=True))
    return (vectors / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)
