"""Looking at the candidates between the samplers of a chain.

A probe is a sampler that changes nothing: it stands behind a sampler and counts what that one has left. So llama.cpp
runs the chain exactly as it does without probes, with the same random numbers, and what is told is what happened.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import llama_cpp.llama_cpp as _llama
import numpy as np
import numpy.typing as npt

from engine.events import Stage
from engine.worker.candidates import Choice

_L: Any = _llama
_Rows = npt.NDArray[np.float32]
# llama.h, llama_token_data_array on 64-bit machines: data, size, selected, sorted
_SIZE_AT, _SELECTED_AT = 8, 16
_ROW_BYTES = 12  # llama_token_data: id, logit, p
_APPLY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
_READ_ONLY = 0x100  # PyBUF_READ
_view = ctypes.pythonapi.PyMemoryView_FromMemory
_view.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int]
_view.restype = ctypes.py_object
#: a logit below this is as good as minus infinity: JSON has none, so tokens are banned by a bias of -1e9
RULED_OUT = -1e8
_NAME = b"probe"
_name = _L.llama_sampler_i_name(lambda _: _NAME)


@dataclass(frozen=True, slots=True)
class Drawn:
    """How a chain came to a token; the fields are those of `events.TokenDetail`.

    Attributes:
        choice: what an answer format allowed; None without one.
    """

    stages: tuple[Stage, ...]
    chosen_p: float = 1.0
    draw_from: float = 0.0
    draw_to: float = 0.0
    choice: Choice | None = None


class Probes:
    """The probes of one chain. They have to live as long as the chain.

    Args:
        add: takes a sampler at the end of the chain.
        hides: candidates may be ruled out by a logit of minus infinity from the beginning on (an answer format).
    """

    def __init__(self, add: Callable[[Any], None], *, hides: bool = False) -> None:
        self._add, self._hides = add, hides
        self._kept: list[Any] = []
        self._before: _Rows | None = None
        self._stages: list[Stage] = []
        self._drawn: tuple[float, float, float] | None = None

    # ------------------------------------------------------------------ while the chain is built

    def watch_changes(self) -> None:
        """A probe before the samplers that change logits: what they change is seen by comparing."""
        self._put(self._remember)

    def after(self, name: str) -> None:
        """A probe behind a sampler that rules tokens out, or none."""
        self._hides = self._hides or name == "top_n_sigma"
        self._put(lambda array: self._stages.append(Stage(name, _n_left(array) if self._hides else _size(array))))

    def after_change(self, name: str) -> None:
        """A probe behind a sampler that changes logits, somewhere after `watch_changes`."""
        self._put(lambda array: self._compare(array, name))

    def after_known_change(self, name: str, n_banned: int, n_changed: int) -> None:
        """The same where it is known beforehand what is changed: `n_banned` tokens are ruled out."""
        self._hides = self._hides or n_banned > 0
        self._put(lambda array: self._stages.append(Stage(name, _size(array) - n_banned, n_changed)))

    def after_draw(self) -> None:
        """A probe behind the sampler that draws."""
        self._put(self._note_draw)

    def _put(self, look: Callable[[int], None]) -> None:
        callback = _APPLY(lambda _, array: look(array))
        interface = _L.llama_sampler_i()
        interface.name = _name
        interface.apply = ctypes.cast(callback, _L.llama_sampler_i_apply)
        sampler = _L.llama_sampler_init(ctypes.byref(interface), None)
        self._kept += [callback, interface]
        self._add(sampler)

    # ------------------------------------------------------------------ while it runs

    def begin(self, n_allowed: int | None = None) -> None:
        """The chain is about to run. n_allowed: what an answer format leaves."""
        self._stages = [] if n_allowed is None else [Stage("format", n_allowed)]
        self._drawn = None

    def drawn(self, choice: Choice | None) -> Drawn:
        """What was seen since `begin`."""
        return Drawn(tuple(self._stages), *(self._drawn or (1.0, 0.0, 0.0)), choice)

    def _remember(self, array: int) -> None:
        self._before = _rows(array)[:, 1].copy()

    def _compare(self, array: int, name: str) -> None:
        now = _rows(array)[:, 1].copy()
        before = self._before
        n_banned = len(now) - int(np.count_nonzero(now > RULED_OUT))
        n_changed = 0
        if before is not None and len(before) == len(now):
            changed = np.flatnonzero(now != before)
            n_changed = int(np.count_nonzero(now[changed] > RULED_OUT))
        self._hides = self._hides or n_banned > 0
        self._stages.append(Stage(name, len(now) - n_banned, n_changed))
        self._before = now

    def _note_draw(self, array: int) -> None:
        selected = ctypes.c_int64.from_address(array + _SELECTED_AT).value
        if selected < 0:
            return
        shares = _rows(array, selected + 1)[:, 2]
        own = float(shares[-1])
        low = float(shares[:-1].sum(dtype=np.float64))
        self._drawn = own, low, min(1.0, low + own)


def _size(array: int) -> int:
    return ctypes.c_size_t.from_address(array + _SIZE_AT).value


def _rows(array: int, count: int | None = None) -> _Rows:
    """The candidates (id, logit, p) as they are now, the first `count` of them; valid only while the chain runs."""
    data = ctypes.c_void_p.from_address(array).value
    size = _size(array) if count is None else count
    flat: _Rows = np.frombuffer(_view(data, size * _ROW_BYTES, _READ_ONLY), np.float32)
    return flat.reshape(-1, 3)


def _n_left(array: int) -> int:
    return int(np.count_nonzero(_rows(array)[:, 1] > RULED_OUT))
