"""The memory of a context: what of each sequence is in it, and what can be kept of it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import llama_cpp.llama_cpp as _llama
import numpy as np

from engine.worker import crumbs
from engine.worker.cells import Cells
from engine.worker.checkpoints import Checkpoints, State

_L: Any = _llama
_WHOLE, _PARTIAL = 0, 1  # llama.h, LLAMA_STATE_SEQ_FLAGS_NONE, _PARTIAL_ONLY
_NO_ROPE = -1
#: their memory has parts that llama.cpp copies only as a whole, and ends the process otherwise
_COPIES_WHOLE_ONLY = ("deepseek4",)


class KvCache:
    """KV cache of a context, or the state of a recurrent model; sequences are numbered from 0.

    Attributes:
        cells: how many each sequence has.
        checkpoints: states to go back to, of a memory that cannot go back by itself.
        is_recurrent: parts of it cannot be removed (recurrent and hybrid models).
        keeps_states: it cannot go back freely (recurrent, hybrid and sliding-window models).
        goes_back: the last few tokens can be taken away at any time.
        can_shift: the rest of a sequence can move to where a part was taken out.
        n_swa: size of the sliding window in tokens, 0 if there is none.
        shift_pending: the next decode moves keys first, and must not be interrupted: llama.cpp would move some twice.
    """

    def __init__(self, model: Any, context: Any, *, architecture: str = "", states_bytes: int = 1 << 30) -> None:
        self._context = context
        self._memory = _L.llama_get_memory(context)
        self.n_swa: int = _L.llama_model_n_swa(model)
        self.is_recurrent = bool(_L.llama_model_is_recurrent(model) or _L.llama_model_is_hybrid(model))
        self.keeps_states = self.is_recurrent or self.n_swa > 0
        self.can_shift = (
            not self.is_recurrent
            and bool(_L.llama_memory_can_shift(self._memory))
            and _L.llama_model_rope_type(model) != _NO_ROPE
        )
        self._copies_parts = not architecture.startswith(_COPIES_WHOLE_ONLY)
        self.goes_back = self._copies_parts and not self.is_recurrent
        n_sequences = _L.llama_n_seq_max(context)
        self.cells = Cells(_L.llama_n_ctx(context), n_sequences)
        self.checkpoints = Checkpoints(n_sequences, states_bytes)
        self.shift_pending = False

    # ------------------------------------------------------------------ what is there

    def computed(self, sequence: int) -> int:
        """Positions 0 to this number (excluded) have been computed, as llama.cpp says (a sliding window may have
        dropped some)."""
        last: int = _L.llama_memory_seq_pos_max(self._memory, sequence)
        return last + 1

    def usable(self, sequence: int, length: int) -> int:
        """How much of its first `length` tokens `keep_prefix` would keep."""
        length = min(length, self.cells.length(sequence))
        return length if self._intact(sequence, length) else self.checkpoints.best(sequence, length)

    def _intact(self, sequence: int, length: int) -> bool:
        """Whether the memory can go on after so many tokens as it is.

        A sliding-window cache says yes to any removal although cells that the window needs may be gone; so it is
        checked here. Recurrent and hybrid models cannot go back at all.
        """
        have = self.computed(sequence)
        if length <= 0 or length >= have:
            return length == have
        if self.is_recurrent:
            return False
        first: int = _L.llama_memory_seq_pos_min(self._memory, sequence)
        return 0 <= first <= (max(0, length - self.n_swa + 1) if self.n_swa else 0)

    # ------------------------------------------------------------------ taking away

    def keep_prefix(self, sequence: int, length: int) -> int:
        """Remove all from position `length` on, or from where a kept state stands, if that is needed to go on.

        Returns:
            The positions kept: `length`, or less, or 0.
        """
        length = min(length, self.cells.length(sequence))
        if self._intact(sequence, length) and (
            length == self.computed(sequence) or _L.llama_memory_seq_rm(self._memory, sequence, length, -1)
        ):
            return self._kept(sequence, length)
        length = self.checkpoints.best(sequence, length)
        if (
            length
            and self._load(sequence, self.checkpoints.get(sequence, length), _PARTIAL)
            and _L.llama_memory_seq_rm(self._memory, sequence, length, -1)
        ):
            return self._kept(sequence, length)
        _L.llama_memory_seq_rm(self._memory, sequence, -1, -1)
        return self._kept(sequence, 0)

    def _kept(self, sequence: int, length: int) -> int:
        self.cells.cut(sequence, length)
        self.checkpoints.cut(sequence, length)
        return length

    def close_gaps(self, sequence: int, gaps: Sequence[tuple[int, int]]) -> None:
        """Take out these stretches (start, end excluded; in order), and move what follows each of them down.

        A cell has one position for all who share it: what follows the first gap must be the sequence's own.
        """
        for start, stop in reversed(gaps):
            _L.llama_memory_seq_rm(self._memory, sequence, start, stop)
            _L.llama_memory_seq_add(self._memory, sequence, stop, -1, start - stop)
            self.cells.close_gap(sequence, start, stop)
            self.shift_pending = True
        if not gaps:
            return
        self.checkpoints.cut(sequence, gaps[0][0])
        first: int = _L.llama_memory_seq_pos_min(self._memory, sequence)
        if self.n_swa and first > max(0, self.computed(sequence) - self.n_swa + 1):
            self.keep_prefix(sequence, 0)  # a gap in the window

    # ------------------------------------------------------------------ copies and states

    def copy_prefix(self, source: int, target: int, length: int) -> int:
        """`target` begins as `source` does, with the same cells; what it held before is gone.

        Returns:
            The positions copied: `length`, or less, or 0 (see `keep_prefix`).
        """
        self.keep_prefix(target, 0)
        have = self.computed(source)
        intact, length = self._intact(source, length), self.usable(source, length)
        if not length or not (self._copies_parts or length == have):
            return 0
        _L.llama_memory_seq_cp(self._memory, source, target, 0, length if length < have else -1)
        self.cells.copy(source, target, length)
        self.checkpoints.copy(source, target, length)
        if self.keeps_states and not (self.is_recurrent and intact):
            # cells of a window that two sequences hold are never used again, and it would run out of them
            state = self._save(target, _PARTIAL) if intact else self.checkpoints.get(source, length)
            if state is None or not self._load(target, state, _PARTIAL):
                return self.keep_prefix(target, 0)
        return length

    def take_checkpoint(self, sequence: int) -> None:
        """Keep the state of the window or of the recurrent layers as it is now."""
        length = self.cells.length(sequence)
        if length and self.keeps_states and not self.checkpoints.has(sequence, length):
            state = self._save(sequence, _PARTIAL)
            if state is not None:
                self.checkpoints.add(sequence, length, state)

    def state(self, sequence: int) -> State | None:
        """Everything that is in the memory of a sequence, to be put back by `set_state`."""
        return self._save(sequence, _WHOLE)

    def set_state(self, sequence: int, state: State, length: int) -> bool:
        """Put a state of `length` tokens back. False if llama.cpp does not take it; the sequence is empty then."""
        self.keep_prefix(sequence, 0)
        if self._load(sequence, state, _WHOLE) and self.computed(sequence) == length:
            self.cells.grow(sequence, length)
            return True
        _L.llama_memory_seq_rm(self._memory, sequence, -1, -1)
        return False

    def _save(self, sequence: int, flags: int) -> State | None:
        if self.shift_pending:
            return None  # places and keys do not fit together yet
        size: int = _L.llama_state_seq_get_size_ext(self._context, sequence, flags)
        state = np.empty(size, np.uint8)
        pointer = state.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
        with crumbs.during("save"):
            written: int = _L.llama_state_seq_get_data_ext(self._context, pointer, size, sequence, flags)
        return state if 0 < written == size else None

    def _load(self, sequence: int, state: State, flags: int) -> bool:
        pointer = state.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
        with crumbs.during("restore"):
            read: int = _L.llama_state_seq_set_data_ext(self._context, pointer, state.nbytes, sequence, flags)
        return read == state.nbytes
