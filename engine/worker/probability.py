"""How probable a token was, by the raw logits of the whole vocabulary.

It is computed for every token that is written, between two steps of llama.cpp, so it has to be quick: ggml's own
function for a row of a softmax is used where the library shows it, and numpy, which takes twice as long, where it does
not.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any

import llama_cpp.llama_cpp as _llama
import numpy as np
import numpy.typing as npt

_L: Any = _llama
#: ggml-cpu/vec.h: (n, y, x, max) -> sum of exp(x - max), which it also writes to y
_SOFT_MAX = "ggml_vec_soft_max_f32"


class Probability:
    """For one vocabulary. Not thread-safe."""

    def __init__(self, n_vocab: int) -> None:
        self._n_vocab = n_vocab
        self._exp = np.empty(n_vocab, np.float32)
        self._out = self._exp.ctypes.data
        self._sum: Any = soft_max()

    def log(self, address: int, token: int) -> float:
        """Natural logarithm of the token's probability, from the logits at this address."""
        own: float = ctypes.c_float.from_address(address + 4 * token).value
        if self._sum is not None:
            total: float = self._sum(self._n_vocab, self._out, address, own)
            if 0 < total < math.inf:
                return -math.log(total)
        return self._by_numpy(address, own)

    def _by_numpy(self, address: int, own: float) -> float:
        row: npt.NDArray[np.float32] = np.ctypeslib.as_array((ctypes.c_float * self._n_vocab).from_address(address))
        peak = float(row.max())
        np.subtract(row, peak, out=self._exp)
        np.exp(self._exp, out=self._exp)
        return own - peak - math.log(float(self._exp.sum(dtype=np.float64)))


def soft_max() -> Any:
    """ggml's function, if it is there and does what it did when this was written."""
    try:
        function = getattr(_L._lib, _SOFT_MAX)
    except AttributeError:
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_float]
    function.restype = ctypes.c_double
    values = np.linspace(-20, 3, 1001, dtype=np.float32)
    out = np.empty_like(values)
    total = function(len(values), out.ctypes.data, values.ctypes.data, 2.0)
    expected = np.exp(values.astype(np.float64) - 2.0)
    right = math.isclose(total, expected.sum(), rel_tol=1e-4) and np.allclose(out, expected, rtol=1e-3, atol=1e-9)
    return function if right else None
