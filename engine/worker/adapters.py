"""LoRA adapters of a loaded model: read before its context is made, changed in scale at any time after.

llama.cpp frees them with the model.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Callable, Sequence
from typing import Any

import llama_cpp.llama_cpp as _llama

from engine.engine_options import Adapter
from engine.errors import InvalidRequest, LoadFailed

_L: Any = _llama


def read_adapters(model: Any, wanted: Sequence[Adapter], tail: Callable[[], list[str]]) -> dict[str, Any]:
    """llama.cpp's handle of each adapter, by its file. Whether they belong to the model has been checked before.

    Args:
        tail: gives llama.cpp's last words.

    Raises:
        LoadFailed: llama.cpp does not take one.
    """
    handles = {}
    for adapter in wanted:
        handle = _L.llama_adapter_lora_init(model, os.fsencode(adapter.path))
        if not handle:
            name = os.path.basename(adapter.path)  # noqa: PTH119 (any characters, also those no Path shows)
            raise LoadFailed(f"llama.cpp does not take the adapter {name}", details={"log": tail()[-15:]})
        handles[adapter.path] = handle
    return handles


class Adapters:
    """The adapters in a context.

    Attributes:
        current: all of them with the scales they have now, in the order of the load.
    """

    def __init__(self, context: Any, handles: dict[str, Any], wanted: Sequence[Adapter]) -> None:
        self._context, self._handles = context, handles
        self.current: tuple[Adapter, ...] = tuple(wanted)
        self._stamps = {path: _stamp(path) for path in handles}
        self._apply()

    @property
    def key(self) -> str:
        """The same for the same adapters with the same scales; "" where none does anything. What was computed under
        another key does not fit."""
        used = [(a.path, self._stamps[a.path], a.scale) for a in self.current if a.scale]
        return hashlib.sha256(repr(sorted(used)).encode("utf-8", "surrogateescape")).hexdigest()[:16] if used else ""

    def set(self, wanted: Sequence[Adapter]) -> bool:
        """Give them these scales, 0 to those that are not named. True if that changes anything.

        Raises:
            InvalidRequest: one of them was not loaded with the model.
        """
        scales = {adapter.path: adapter.scale for adapter in wanted}
        strange = [os.path.basename(path) for path in scales if path not in self._handles]  # noqa: PTH119
        if strange:
            raise InvalidRequest(
                f"The adapter {strange[0]} was not loaded with the model",
                hint="Load the model again with it.",
                details={"field": "adapters"},
            )
        changed = tuple(Adapter(one.path, scales.get(one.path, 0.0)) for one in self.current)
        if changed == self.current:
            return False
        before = self.key
        self.current = changed
        self._apply()
        return self.key != before

    def _apply(self) -> None:
        count = len(self.current)
        if not count:
            return
        handles = (_L.llama_adapter_lora_p_ctypes * count)(*(self._handles[one.path] for one in self.current))
        scales = (ctypes.c_float * count)(*(one.scale for one in self.current))
        _L.llama_set_adapters_lora(self._context, handles, count, scales)


def warm_up(context: Any, token: int) -> None:
    """One token through the graph with the adapters in it: llama.cpp lays its buffers out anew then, and should do so
    while the model is being loaded, not in the first answer."""
    one = (ctypes.c_int32 * 1)(max(0, token))
    _L.llama_decode(context, _L.llama_batch_get_one(one, 1))
    memory = _L.llama_get_memory(context)
    if memory:
        _L.llama_memory_clear(memory, True)


def _stamp(path: str) -> tuple[int, int]:
    """Size and time of a file, by which another one under the same name is told apart."""
    try:
        status = os.stat(path)  # noqa: PTH116
    except OSError:
        return 0, 0
    return status.st_size, status.st_mtime_ns
