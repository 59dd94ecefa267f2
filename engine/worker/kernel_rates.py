"""How fast this processor multiplies with weights of each tensor type, by llama.cpp's own kernels.

    python -m engine.worker.kernel_rates THREADS

prints bytes of weights a second by tensor type as JSON. Which kernel a type gets depends on the processor (Q4_0 is
repacked where there is one for it, and is then read half as fast again), so a table made elsewhere cannot know it.
The products are those of decoding: a matrix with one vector, with more weights than any cache holds.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from typing import Any

import llama_cpp.llama_cpp as _llama

from engine.worker import backends, devices
from engine.worker.process import tie_to_parent

#: tensor types that files are made of (ggml.h, enum ggml_type); of the others the estimate knows no more than its table
TYPES = {
    "F32": 0, "F16": 1, "BF16": 30, "Q8_0": 8, "Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q2_K": 10, "Q3_K": 11,
    "Q4_K": 12, "Q5_K": 13, "Q6_K": 14, "IQ4_NL": 20, "IQ4_XS": 23, "MXFP4": 39, "IQ3_S": 21, "IQ3_XXS": 18,
    "IQ2_S": 22, "IQ2_XS": 17, "IQ2_XXS": 16,
}  # fmt: skip
#: columns and rows of one matrix, and bytes of all matrices of a type together
_COLUMNS, _ROWS, _TOTAL_BYTES = 4096, 2048, 64 * 2**20
#: all types in turn, this often: what slows the computer for a second must not look like a slow type
_SWEEPS, _PASSES = 2, 4
_F32 = 0
_USAGE_WEIGHTS = 1  # ggml-backend.h, enum ggml_backend_buffer_usage
#: every byte of the weights: a small ordinary number where it is read as a scale in half precision
_FILL = 0x11


_L: Any = _llama


@_L.llama_log_callback  # type: ignore[untyped-decorator]
def _silent(_level: int, _text: bytes | None, _data: Any) -> None:
    """It would tell every tensor that it repacks."""


class _Params(ctypes.Structure):
    _fields_ = [("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]


_P, _I, _N = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
_SIGNATURES: dict[str, tuple[list[Any], Any]] = {
    "ggml_init": ([_Params], _P),
    "ggml_free": ([_P], None),
    "ggml_new_tensor_2d": ([_P, _I, _N, _N], _P),
    "ggml_mul_mat": ([_P, _P, _P], _P),
    "ggml_new_graph_custom": ([_P, ctypes.c_size_t, ctypes.c_bool], _P),
    "ggml_build_forward_expand": ([_P, _P], None),
    "ggml_nbytes": ([_P], ctypes.c_size_t),
    "ggml_row_size": ([_I, _N], ctypes.c_size_t),
    "ggml_backend_dev_by_type": ([_I], _P),
    "ggml_backend_dev_init": ([_P, ctypes.c_char_p], _P),
    "ggml_backend_dev_buffer_type": ([_P], _P),
    "ggml_backend_dev_backend_reg": ([_P], _P),
    "ggml_backend_dev_supports_op": ([_P, _P], ctypes.c_bool),
    "ggml_backend_reg_get_proc_address": ([_P, ctypes.c_char_p], _P),
    "ggml_backend_alloc_ctx_tensors_from_buft": ([_P, _P], _P),
    "ggml_backend_buffer_set_usage": ([_P, _I], None),
    "ggml_backend_buffer_free": ([_P], None),
    "ggml_backend_tensor_set": ([_P, _P, ctypes.c_size_t, ctypes.c_size_t], None),
    "ggml_backend_graph_compute": ([_P, _P], _I),
    "ggml_backend_free": ([_P], None),
}
_CPU = 0  # ggml-backend.h, enum ggml_backend_dev_type


class Kernels:
    """The processor as ggml's registry gives it, with so many threads."""

    def __init__(self, threads: int) -> None:
        for name, (arguments, result) in _SIGNATURES.items():
            function = devices.symbol(name)
            function.argtypes, function.restype = arguments, result
            setattr(self, name.removeprefix("ggml_"), function)
        self._device = self.backend_dev_by_type(_CPU)
        self._backend = self.backend_dev_init(self._device, None)
        registry = self.backend_dev_backend_reg(self._device)
        set_threads = self.backend_reg_get_proc_address(registry, b"ggml_backend_set_n_threads")
        if set_threads:
            ctypes.CFUNCTYPE(None, _P, _I)(set_threads)(self._backend, threads)
        self._bufts = [*self._extra_bufts(registry), self.backend_dev_buffer_type(self._device)]

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def _extra_bufts(self, registry: int) -> list[int]:
        """Kinds of memory that hold weights in an order of their own, which llama.cpp prefers where they can serve."""
        get = self.backend_reg_get_proc_address(registry, b"ggml_backend_dev_get_extra_bufts")
        if not get:
            return []
        found = ctypes.CFUNCTYPE(ctypes.POINTER(_P), _P)(get)(self._device)
        bufts: list[int] = []
        while found and found[len(bufts)]:
            bufts.append(found[len(bufts)])
        return bufts

    def rate(self, kind: int) -> float:
        """Bytes a second of weights of this type; 0: this processor cannot compute with it."""
        return next((found for buft in self._bufts if (found := self._rate(kind, buft))), 0.0)

    def _rate(self, kind: int, buft: int) -> float:
        one = self.row_size(kind, _COLUMNS) * _ROWS
        count = max(2, _TOTAL_BYTES // one)
        room = _Params(2**20 + count * 2**11, None, True)
        weights, graph_room = self.init(room), self.init(room)
        freed: list[int] = []
        try:
            tensors = [self.new_tensor_2d(weights, kind, _COLUMNS, _ROWS) for _ in range(count)]
            buffer = self.backend_alloc_ctx_tensors_from_buft(weights, buft)
            if not buffer:
                return 0.0
            freed.append(buffer)
            self.backend_buffer_set_usage(buffer, _USAGE_WEIGHTS)
            vector = self.new_tensor_2d(graph_room, _F32, _COLUMNS, 1)
            products = [self.mul_mat(graph_room, tensor, vector) for tensor in tensors]
            if not self.backend_dev_supports_op(self._device, products[0]):
                return 0.0
            graph = self.new_graph_custom(graph_room, 2 * count + 16, False)
            for product in products:
                self.build_forward_expand(graph, product)
            plain = self.backend_alloc_ctx_tensors_from_buft(graph_room, self._bufts[-1])
            if not plain:
                return 0.0
            freed.append(plain)
            self._fill([*tensors, vector])
            return self._time(graph, sum(self.nbytes(tensor) for tensor in tensors))
        finally:
            for buffer in freed:
                self.backend_buffer_free(buffer)
            self.free(graph_room)
            self.free(weights)

    def _fill(self, tensors: list[int]) -> None:
        sizes = [self.nbytes(tensor) for tensor in tensors]
        data = (ctypes.c_char * max(sizes))()
        ctypes.memset(data, _FILL, len(data))
        for tensor, size in zip(tensors, sizes, strict=True):
            self.backend_tensor_set(tensor, data, 0, size)

    def _time(self, graph: int, n_bytes: int) -> float:
        took = []
        for _ in range(_PASSES + 1):
            began = time.perf_counter()
            if self.backend_graph_compute(self._backend, graph) != 0:
                return 0.0
            took.append(time.perf_counter() - began)
        return n_bytes / min(took[1:])

    def close(self) -> None:
        self.backend_free(self._backend)


def measure(threads: int) -> dict[str, float]:
    """Bytes a second by tensor type, the best of a few moments; takes about eight seconds and that many cores."""
    _L.llama_log_set(_silent, None)
    backends.check_compiled_for()
    _L.llama_backend_init()
    backends.load(add_ons=False)
    kernels = Kernels(threads)
    try:
        best: dict[str, float] = {}
        for _ in range(_SWEEPS):
            for name, kind in TYPES.items():
                best[name] = max(best.get(name, 0.0), kernels.rate(kind))
        return {name: rate for name, rate in best.items() if rate > 0}
    finally:
        kernels.close()


def main(arguments: list[str]) -> int:
    tie_to_parent()
    sys.stdout.write(json.dumps(measure(int(arguments[0]))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
