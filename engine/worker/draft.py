"""A small model that guesses what a large one will say next.

It has a context of its own in which it follows the answers. What it guesses is checked by the large model in one step,
so it only has to be quick and often right. It must have the same vocabulary.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from engine.errors import EngineError, InvalidRequest
from engine.models.gguf import check_file
from engine.worker import hooks, native_log
from engine.worker.llama import DECODE_OK, Interrupt, LlamaModel
from engine.worker.protocol import Load
from engine.worker.reuse import common_prefix
from engine.worker.vocabulary import Vocabulary

#: a guess ends before a token that is less probable than this, by the small model's own word
_LEAST_LOG = math.log(0.4)
#: tokens of one answer that the small model reads at most in a step, so that a long prompt stalls nobody
_CHUNK = 128
#: models of one family may have a few unused tokens more or less
_MAY_DIFFER = 128
_COMPARED = 997


@dataclass(frozen=True)
class Wanted:
    """What is to be guessed for one answer: its slot, all its tokens, how many tokens at most."""

    slot: int
    tokens: list[int]
    count: int


class DraftModel:
    """Runs on the owner thread.

    Attributes:
        token_s: seconds that a guessed token takes, 0 while that is not known.
        took_s: seconds of the last `guess`.
    """

    def __init__(self, llama: LlamaModel, n_vocab: int) -> None:
        self._llama, self._n_vocab = llama, n_vocab
        self._held: list[list[int]] = [[] for _ in range(llama.n_slots)]
        self.token_s = self.took_s = 0.0

    def close(self) -> None:
        self._llama.close()

    def guess(self, wanted: list[Wanted]) -> dict[int, list[int]]:
        """Guesses by slot; none for an answer that it still has to read a part of."""
        began = time.perf_counter()
        guessed: dict[int, list[int]] = {}
        rows = self._follow(wanted)
        left = {one.slot: one.count for one in wanted if one.slot in rows}
        while rows:
            entries: list[tuple[int, int, int, bool]] = []
            for slot, row in rows.items():
                token, log = self._llama.most_probable(row)
                if (log < _LEAST_LOG and not hooks.ALWAYS_GUESS) or token >= self._n_vocab:
                    continue
                guessed.setdefault(slot, []).append(token)
                left[slot] -= 1
                if left[slot] > 0 and self._llama.cache.cells.free > len(entries):
                    entries.append((token, len(self._held[slot]), slot, True))
            if not self._decode(entries):
                break
            rows = {slot: i for i, (_, _, slot, _) in enumerate(entries)}
        self.took_s = time.perf_counter() - began
        n_guessed = sum(map(len, guessed.values()))
        if n_guessed:
            token_s = self.took_s / n_guessed
            self.token_s = token_s if not self.token_s else 0.8 * self.token_s + 0.2 * token_s
        return guessed

    def _follow(self, wanted: list[Wanted]) -> dict[int, int]:
        """Read what is new in the answers. Gives the row of logits behind each that is read to its end."""
        cells = self._llama.cache.cells
        entries: list[tuple[int, int, int, bool]] = []
        rows: dict[int, int] = {}
        slots = {one.slot for one in wanted}
        room = self._llama.n_ubatch
        for one in wanted:
            held = self._held[one.slot]
            # its last token is read again in any case: what followed it is needed
            self._cut(one.slot, min(common_prefix(held, one.tokens), len(one.tokens) - 1))
            first = len(held)
            count = min(len(one.tokens) - first, _CHUNK, room)
            if cells.free < len(entries) + count:
                for other in set(range(len(self._held))) - slots:
                    self._cut(other, 0)
            if count <= 0 or cells.free < len(entries) + count:
                continue
            room -= count
            end = first + count
            last = end == len(one.tokens)
            entries += [(one.tokens[i], i, one.slot, last and i == end - 1) for i in range(first, end)]
            if last:
                rows[one.slot] = len(entries) - 1
        return rows if self._decode(entries) else {}

    def _decode(self, entries: list[tuple[int, int, int, bool]]) -> bool:
        if not entries:
            return False
        if self._llama.decode(entries) != DECODE_OK:
            for slot in {entry[2] for entry in entries}:
                self._cut(slot, min(len(self._held[slot]), self._llama.cache.computed(slot)))
            return False
        for token, _, slot, _ in entries:
            self._held[slot].append(token)
            self._llama.cache.cells.grow(slot, 1)
        return True

    def _cut(self, slot: int, length: int) -> None:
        del self._held[slot][self._llama.cache.keep_prefix(slot, length) :]


def load(
    request: Load, model: LlamaModel, interrupt: Interrupt, log: native_log.NativeLog, stopped: Callable[[], bool]
) -> DraftModel:
    """The small model of a load, beside the large one.

    Raises:
        EngineError: it cannot be loaded, or does not belong to the large one; `Cancelled`: `stopped` said so.
    """
    check_file(request.draft_path)
    own = msgspec.structs.replace(
        request, path=request.draft_path, adapters=(), n_cpu_moe=0, tensor_split=(), n_ctx=model.n_ctx
    )
    layers = request.n_gpu_layers
    llama = LlamaModel.load(
        own,
        n_ctx=lambda _trained: model.n_ctx,
        n_gpu_layers=-1 if layers is None else layers,
        interrupt=interrupt,
        log=log,
        progress=lambda _fraction: not stopped(),
    )
    try:
        if not llama.cache.goes_back:
            raise InvalidRequest("a recurrent model cannot guess for another one", details={"field": "draft_path"})
        _refuse_stranger(model.vocab, llama.vocab)
    except EngineError:
        llama.close()
        raise
    return DraftModel(llama, model.vocab.n_tokens)


def warning(path: str, error: EngineError) -> str:
    """What the user should see when the small model is not used."""
    return f"The draft model {Path(path).name} is not used: {error.message}."


def _refuse_stranger(large: Vocabulary, small: Vocabulary) -> None:
    n_tokens = min(large.n_tokens, small.n_tokens)
    step = max(1, n_tokens // _COMPARED)
    same = (
        abs(large.n_tokens - small.n_tokens) <= _MAY_DIFFER
        and (large.bos_token, large.eos_token) == (small.bos_token, small.eos_token)
        and all(large.token_text(i) == small.token_text(i) for i in range(0, n_tokens, step))
    )
    if not same:
        raise InvalidRequest("it has another vocabulary than the model", details={"field": "draft_path"})
