"""What is told of a request that asked for a trace: the distribution behind each token, and when what happened.

It is computed between two steps of llama.cpp, like the probability of a token, so it has to be quick: one pass for the
exponentials and one for the entropy, both by ggml's own functions where the library shows them, and no sorting of a
whole vocabulary.
"""

from __future__ import annotations

import ctypes
import math
import sys
import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import llama_cpp.llama_cpp as _llama
import msgspec
import numpy as np
import numpy.typing as npt

from engine import events
from engine.message import Reread
from engine.worker.probability import soft_max
from engine.worker.probes import Drawn

_L: Any = _llama
_Row = npt.NDArray[np.float32]
N_CANDIDATES = 10
#: logits are looked through as a table of so many rows: numpy finds the peaks of its columns in about half the time
#: that it takes for those of stretches of a row
_N_ROWS = 128
#: views of rows of logits that are kept
_MAX_VIEWS = 64
#: a probability of 0 has no logarithm, and JSON no infinity
_LEAST_LOGPROB = -1000.0
_LAST_OWNER = 2**15 - 1
_BITS = 1 / math.log(2)


@dataclass(frozen=True, slots=True)
class Raw:
    """The raw distribution of a step: token ids and logarithms of their probabilities, best first."""

    entropy_bits: float
    best: tuple[tuple[int, float], ...]
    logprob: float


class Distribution:
    """Looks at rows of logits of one vocabulary. Not thread-safe."""

    def __init__(self, n_vocab: int) -> None:
        self._n_vocab = n_vocab
        self._exp = np.empty(n_vocab, np.float32)
        self._out = self._exp.ctypes.data
        self._row_type = ctypes.c_float * n_vocab
        self._n_columns = n_vocab // _N_ROWS
        self._tail = self._n_columns * _N_ROWS
        self._peaks = np.empty(self._n_columns, np.float32)
        self._views: dict[int, _Row] = {}
        self._sum: Any = soft_max()
        self._dot: Any = _dot()
        self._product = ctypes.c_float()

    def look(self, address: int, token: int) -> Raw:
        """The distribution of the logits at this address, of which `token` was chosen."""
        row = self._row(address)
        ids, logits = self._best(row)
        peak = logits[0]
        total = self._exponentials(row, address, peak)
        log_total = math.log(total)
        # sum of p * log p, with p = exp(x - peak) / total; the logits are taken as they are, not less the peak
        mean = self._mean(row, address, total)
        entropy = max(0.0, (log_total + peak - mean) * _BITS)
        base = peak + log_total
        best = tuple((i, max(_LEAST_LOGPROB, logit - base)) for i, logit in zip(ids, logits, strict=True))
        return Raw(entropy, best, max(_LEAST_LOGPROB, float(row[token]) - base))

    def _row(self, address: int) -> _Row:
        """What is at this address, whenever it is looked at: llama.cpp has few places for rows, and uses them again."""
        row = self._views.get(address)
        if row is None:
            if len(self._views) >= _MAX_VIEWS:
                self._views.clear()
            row = np.frombuffer(memoryview(self._row_type.from_address(address)), np.float32)
            self._views[address] = row
        return row

    def _best(self, row: _Row) -> tuple[list[int], list[float]]:
        """The tokens with the highest logits, best first, and these.

        They are in the ten columns with the highest peaks: each of those holds one that no other column exceeds. What
        is behind the last whole row is looked at too. Which of equal logits come tenth is not said; of those that are
        given, the lowest token comes first. A step has cleared the processor's caches, so that a call of numpy takes
        up to 50 µs whatever it does: there are as few of them as can be.
        """
        n_columns, tail = self._n_columns, self._tail
        if n_columns < N_CANDIDATES:
            found, logits = list(range(self._n_vocab)), row.tolist()
        else:
            table = row[:tail].reshape(_N_ROWS, n_columns)
            peaks = np.maximum.reduce(table, axis=0, out=self._peaks)
            highest = peaks.argpartition(n_columns - N_CANDIDATES)[n_columns - N_CANDIDATES :]
            near = table.take(highest, axis=1).ravel()
            places = near.argpartition(len(near) - N_CANDIDATES)[len(near) - N_CANDIDATES :]
            columns, logits = highest.tolist(), near[places].tolist()
            found = [at // N_CANDIDATES * n_columns + columns[at % N_CANDIDATES] for at in places.tolist()]
            if tail < self._n_vocab:
                found += range(tail, self._n_vocab)
                logits += row[tail:].tolist()
        order = sorted(zip([-logit for logit in logits], found, strict=True))[:N_CANDIDATES]
        return [token for _, token in order], [-logit for logit, _ in order]

    def _exponentials(self, row: _Row, address: int, peak: float) -> float:
        """Fills `_exp` with exp(x - peak), and gives their sum."""
        if self._sum is not None:
            total: float = self._sum(self._n_vocab, self._out, address, peak)
            if 0 < total < math.inf:
                return total
        np.subtract(row, peak, out=self._exp)
        np.exp(self._exp, out=self._exp)
        return float(self._exp.sum(dtype=np.float64))

    def _mean(self, row: _Row, address: int, total: float) -> float:
        """Mean of the logits, by their probabilities."""
        if self._dot is not None:
            self._dot(self._n_vocab, ctypes.byref(self._product), 0, self._out, 0, address, 0, 1)
            if math.isfinite(self._product.value):
                return self._product.value / total
        # a logit of minus infinity has the probability 0, and takes no part
        there = self._exp > 0
        return float(np.multiply(self._exp[there], row[there], dtype=np.float64).sum()) / total


class Chosen(msgspec.Struct, frozen=True, gc=False):
    """A token that the samplers have chosen from a row of logits.

    Attributes:
        drawn: how, if it was asked for.
        drafted, n_rejected: as in `events.Token`.
    """

    token: int
    row: int
    drawn: Drawn | None = None
    drafted: bool = False
    n_rejected: int = 0


def detail(raw: Raw, chosen: Chosen, name: Callable[[int], bytes]) -> events.TokenDetail:
    """The record of a step."""
    best, token, drawn = raw.best, chosen.token, chosen.drawn or Drawn(())
    if all(candidate != token for candidate, _ in best):
        best = (*best, (token, raw.logprob))
    choice = drawn.choice
    return events.TokenDetail(
        token,
        raw.entropy_bits,
        tuple(
            events.Candidate(each, name(each), logprob, choice is None or choice.allows(each)) for each, logprob in best
        ),
        drawn.stages,
        drawn.chosen_p,
        drawn.draw_from,
        drawn.draw_to,
    )


class Moments:
    """When what happened to a request, by `time.perf_counter`; None for what has not happened.

    Attributes:
        end: the token that ended the answer.
    """

    def __init__(
        self,
        template_from: float = 0.0,
        template_to: float = 0.0,
        owners: Iterable[int] = (),
        exact: bool = True,
    ) -> None:
        """owners, exact: see `BuiltPrompt`."""
        self._template_from, self._template_to = template_from, template_to
        self._owners, self._exact = little_endian("h", (min(owner, _LAST_OWNER) for owner in owners)), exact
        self._counts = (0, 0, 0)
        self._reread: Reread | None = None
        self.started: float | None = None
        self.cached: float | None = None
        self.prefilled: float | None = None
        self.end: events.Token | None = None

    def found(self, counts: tuple[int, ...], reread: Reread | None) -> None:
        """counts: how many tokens of the prompt were cached, shifted, restored."""
        self._counts, self._reread = (counts[0], counts[1], counts[2]), reread

    def prompt(
        self, request_id: str, tokens: Sequence[int], pieces: Iterable[bytes], *, n_forced: int
    ) -> events.PromptTrace:
        n_cached, n_shifted, n_restored = self._counts
        return events.PromptTrace(
            request_id=request_id,
            tokens=little_endian("i", tokens),
            pieces=tuple(pieces),
            owners=self._owners,
            n_cached=n_cached,
            n_shifted=n_shifted,
            n_restored=n_restored,
            reread=self._reread,
            n_forced=n_forced,
            exact=self._exact,
        )

    def ended_by(
        self, request_id: str, arrived: float, name: bytes, detail: events.TokenDetail, logprob: float
    ) -> None:
        """An end token was chosen."""
        self.end = events.Token(
            request_id=request_id,
            index=-1,
            token_id=detail.token_id,
            piece=name,
            logprob=logprob,
            time_s=time.perf_counter() - arrived,
            detail=detail,
        )

    def marks(self, arrived: float, first: float | None, last: float) -> events.Marks:
        """All of it in seconds since the request arrived.

        Args:
            first, last: when the first and the last token were chosen; an end token counts too.
        """

        def since(moment: float | None) -> float | None:
            return None if moment is None else max(0.0, moment - arrived)

        first_s, last_s = since(first), None if first is None else since(last)
        if self.end is not None:
            last_s = self.end.time_s
            first_s = last_s if first_s is None else first_s
        return events.Marks(
            template_from_s=max(0.0, self._template_from - arrived),
            template_to_s=max(0.0, self._template_to - arrived),
            started_s=since(self.started),
            cached_s=since(self.cached),
            prefilled_s=since(self.prefilled),
            first_s=first_s,
            last_s=last_s,
            end_s=time.perf_counter() - arrived,
        )


def little_endian(code: Literal["i", "h"], numbers: Iterable[int]) -> bytes:
    """Whole numbers of 32 bits ("i") or 16 ("h")."""
    packed = array(code, numbers)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def _dot() -> Any:
    """ggml's product of two rows, if it is there and does what it did when this was written.

    ggml-cpu/vec.h: (n, s, bs, x, bx, y, by, nrc). numpy's own may start threads, which would be in llama.cpp's way.
    """
    try:
        function = _L._lib.ggml_vec_dot_f32
    except AttributeError:
        return None
    size, pointer, number = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int
    function.argtypes = [number, pointer, size, pointer, size, pointer, size, number]
    function.restype = None
    one = np.linspace(0, 1, 1001, dtype=np.float32)
    other = np.linspace(-20, 3, 1001, dtype=np.float32)
    product = ctypes.c_float()
    function(len(one), ctypes.byref(product), 0, one.ctypes.data, 0, other.ctypes.data, 0, 1)
    expected = float(one.astype(np.float64) @ other.astype(np.float64))
    return function if math.isclose(product.value, expected, rel_tol=1e-4) else None
