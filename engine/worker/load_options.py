"""llama.cpp's option records for a load, filled from a request."""

from __future__ import annotations

import ctypes
import os
from typing import Any

import llama_cpp.llama_cpp as _llama

from engine.engine_options import GUESSED_TOKENS, KV_TYPES
from engine.errors import InvalidRequest
from engine.worker import crumbs, devices
from engine.worker.protocol import NO_DEVICE, Load

_L: Any = _llama
_GGML_TYPE_BF16 = 30
#: llama.h, enum llama_flash_attn_type
_FLASH = {"auto": -1, "off": 0, "on": 1}
_EXPERTS = r"blk\.{}\.ffn_(up|down|gate|gate_up)_(ch|)exps"


class _Override(ctypes.Structure):
    """llama.h, struct llama_model_tensor_buft_override."""

    _fields_ = [("pattern", ctypes.c_char_p), ("buffer_type", ctypes.c_void_p)]


def kv_type(name: str, field: str) -> int:
    """ggml's number of a cache type.

    Raises:
        InvalidRequest: not a type that llama.cpp takes for a KV cache.
    """
    if name not in KV_TYPES:
        raise InvalidRequest(f"{field} must be one of {', '.join(KV_TYPES)}, not {name}", details={"field": field})
    return int(getattr(_L, f"GGML_TYPE_{name.upper()}", _GGML_TYPE_BF16))


def load_weights(request: Load, n_gpu_layers: int, report: Any, *, extra_buffers: bool) -> Any:
    """Load the weights where the request wants them. Gives llama.cpp's model, or a null pointer.

    Raises:
        InvalidRequest: a device of that name is not there.
    """
    options = _L.llama_model_default_params()
    options.n_gpu_layers = n_gpu_layers
    options.use_extra_bufts = extra_buffers
    options.progress_callback = report
    options.load_mode = load_mode(request)
    keep = [_choose_devices(options, request.devices), _share(options, request.tensor_split)]
    keep.append(_keep_experts(options, request.n_cpu_moe))
    model = _L.llama_model_load_from_file(os.fsencode(request.path), options)
    del keep  # llama.cpp reads these arrays only while it loads
    return model


def load_mode(request: Load) -> int:
    """llama.cpp's number of how the file comes into memory."""
    if request.use_mlock:
        mode = _L.LLAMA_LOAD_MODE_MLOCK if request.use_mmap is False else _L.LLAMA_LOAD_MODE_MMAP_MLOCK
    elif request.use_mmap is None:
        mode = _L.LLAMA_LOAD_MODE_AUTO
    else:
        mode = _L.LLAMA_LOAD_MODE_MMAP if request.use_mmap else _L.LLAMA_LOAD_MODE_NONE
    return int(mode)


def _choose_devices(options: Any, names: tuple[str, ...]) -> Any:
    if not names:
        return None
    names = () if names == (NO_DEVICE,) else names
    handles = devices.handles()
    missing = [name for name in names if name not in handles]
    if missing:
        raise InvalidRequest(f"There is no device {', '.join(missing)}", details={"field": "devices"})
    listed = (ctypes.c_void_p * (len(names) + 1))(*(handles[name] for name in names), None)
    options.devices = ctypes.cast(listed, ctypes.c_void_p)
    return listed


def _share(options: Any, tensor_split: tuple[float, ...]) -> Any:
    if not any(tensor_split):
        return None
    shares = (ctypes.c_float * max(_L.llama_max_devices(), len(tensor_split)))(*tensor_split)
    options.tensor_split = shares
    return shares


def _keep_experts(options: Any, n_layers: int) -> Any:
    """Experts of the first layers into main memory, as llama.cpp's own option `--n-cpu-moe` does it."""
    count = min(n_layers, _L.llama_max_tensor_buft_overrides() - 1)
    if count < 1:
        return None
    host = devices.host_buffer_type()
    table = (_Override * (count + 1))()
    for index in range(count):
        table[index] = _Override(_EXPERTS.format(index).encode(), host)
    options.tensor_buft_overrides = ctypes.cast(table, ctypes.c_void_p)
    return table


def make_context(model: Any, request: Load, n_ctx: int, interrupt: Any) -> Any:
    """The context of a loaded model, or a null pointer. The request names the threads."""
    crumbs.note("context")
    options = _L.llama_context_default_params()
    options.n_ctx = max(n_ctx, request.n_slots)  # llama.cpp makes no batch longer than it
    options.n_batch, options.n_ubatch = request.n_batch, request.n_ubatch
    options.n_seq_max = request.n_slots
    options.n_threads = request.n_threads or 1
    options.n_threads_batch = request.n_threads_batch or options.n_threads
    options.flash_attn_type = _FLASH[request.flash_attention]
    options.type_k = kv_type(request.kv_type_k, "kv_type_k")
    options.type_v = kv_type(request.kv_type_v, "kv_type_v")
    options.swa_full = request.swa_full
    options.offload_kqv = request.offload_kqv
    options.op_offload = request.op_offload
    options.kv_unified = True
    options.no_perf = True
    if request.embeddings:  # every token's vector comes out; see engine.worker.embedding
        options.embeddings, options.pooling_type = True, _L.LLAMA_POOLING_TYPE_NONE
    elif hasattr(options, "n_outputs_max"):
        options.n_outputs_max = request.n_slots + GUESSED_TOKENS
    options.abort_callback = interrupt.callback
    options.abort_callback_data = interrupt.data
    return _L.llama_init_from_model(model, options)
