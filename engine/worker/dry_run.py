"""The dry-run process: `python -m engine.worker.dry_run`. Asks llama.cpp how it would lay a model out.

With `no_alloc` llama.cpp lays out weights, cache and the graph of the largest batch and allocates none of it. The
settings are those of the worker's own contexts. A failed assertion of llama.cpp ends this process and nothing else.
Devices that this computer lacks are stood in for (`engine.worker.pretend`). So are NVIDIA devices, because a context on
a real one would take hundreds of megabytes of the very memory that is being planned, and remote ones, whose buffers
do not say in llama.cpp's log which of them they belong to.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import sys
from typing import Any, cast

import llama_cpp.llama_cpp as _llama
import msgspec

from engine import events
from engine.errors import EngineError
from engine.fit.dry_run_records import DryDevice, DryHello, DryRun, Layout
from engine.worker import backends, devices, llama, native_log, pretend
from engine.worker.channel import take_standard_streams
from engine.worker.process import read_lines

_L: Any = _llama
_MAX_LINE_BYTES = 1 << 20
_MIB = 1024 * 1024
_CACHE = re.compile(r"^\S*(kv_cache|memory)\S*: size =\s+([\d.]+) MiB \(\s*\d+ cells")
_LAYER = re.compile(r"layer\s+(\d+) assigned to device ([^,]+)")
_EXPERTS = r"blk\.{}\.ffn_(up|down|gate|gate_up)_(ch|)exps"
_FLASH = {"auto": -1, "off": 0, "on": 1}
_STAND_IN_ALWAYS = frozenset(("CUDA", "RPC"))


class _Override(ctypes.Structure):
    """llama.h, llama_model_tensor_buft_override."""

    _fields_ = [("pattern", ctypes.c_char_p), ("buffer_type", ctypes.c_void_p)]


class DryRuns:
    """llama.cpp, made ready once for many questions."""

    def __init__(self) -> None:
        self._log = native_log.NativeLog(lambda _level, _line: None)
        backends.check_compiled_for()
        self._library = llama.Library(self._log)
        backends.load(add_ons=False)  # real GPUs are stood in for
        self._use_extra_buffers = not llama.amx_is_unsafe()
        api = devices._api()
        # asked before the first stand-in is registered
        self._real = {(d.name, d.backend): api.dev_get(index) for index, d in enumerate(devices.devices())}

    def answer(self, question: DryRun) -> Layout:
        """Never raises for what a file or a question holds; some files end the process."""
        self._log.start_load()
        model = context = None
        try:
            keep: list[Any] = []
            model = _L.llama_model_load_from_file(os.fsencode(question.path), self._model_options(question, keep))
            if not model:
                return self._refused(question, "llama.cpp does not take this model")
            context = _L.llama_init_from_model(model, _context_options(question))
            if not context:
                return self._refused(question, "llama.cpp does not take these settings")
            return self._layout(question, model, context)
        except pretend.NotPossible as error:
            return self._refused(question, str(error))
        except EngineError as error:
            return self._refused(question, error.message)
        finally:
            if context:
                _L.llama_free(context)
            if model:
                _L.llama_model_free(model)
            self._log.end_load()

    def _model_options(self, question: DryRun, keep: list[Any]) -> Any:
        options = _L.llama_model_default_params()
        options.no_alloc = True
        options.load_mode = _L.LLAMA_LOAD_MODE_NONE
        options.n_gpu_layers = question.n_gpu_layers
        options.use_extra_bufts = self._use_extra_buffers
        handles = self._handles(question)
        listed = (ctypes.c_void_p * (len(handles) + 1))(*handles, None)
        keep.append(listed)
        options.devices = ctypes.cast(listed, ctypes.c_void_p)
        if any(question.tensor_split):
            room = max(_L.llama_max_devices(), len(question.tensor_split))
            shares = (ctypes.c_float * room)(*question.tensor_split)
            keep.append(shares)
            options.tensor_split = shares
        if question.n_cpu_moe:
            options.tensor_buft_overrides = _expert_overrides(question.n_cpu_moe, keep)
        return options

    def _stands_in(self, device: DryDevice) -> bool:
        return device.backend.upper() in _STAND_IN_ALWAYS or (device.name, device.backend) not in self._real

    def _handles(self, question: DryRun) -> list[int]:
        missing = [device for device in question.devices if self._stands_in(device)]
        wanted = [(d.name, d.backend, d.free_bytes, d.total_bytes) for d in missing]
        made = iter(pretend.devices(wanted) if wanted else [])
        return [
            next(made).handle if self._stands_in(device) else self._real[device.name, device.backend]
            for device in question.devices
        ]

    def _refused(self, question: DryRun, words: str) -> Layout:
        lines = [line for line in self._log.end_load() if "assigned to device" not in line]
        return Layout(id=question.id, error=words, log=tuple(lines[-8:]))

    def _layout(self, question: DryRun, model: Any, context: Any) -> Layout:
        lines = self._log.end_load()
        names = [device.name for device in question.devices]
        compute = dict.fromkeys((*names, "Host"), 0)
        output = 0
        for key, size in native_log.buffer_sizes(lines).items():
            holder, _, kind = key.rpartition(" ")
            if kind == "compute":
                compute[_owner(holder, names)] += size
            elif kind == "output":
                output += size
        cache = {"kv_cache": 0, "memory": 0}
        layers: dict[int, str] = {}
        for line in lines:
            if match := _CACHE.match(line):
                cache[match[1]] += round(float(match[2]) * _MIB)
            elif match := _LAYER.search(line):
                layers[int(match[1])] = match[2].strip()
        return Layout(
            id=question.id,
            compute=compute,
            kv_bytes=cache["kv_cache"],
            state_bytes=cache["memory"],
            output_bytes=output,
            layers=tuple(layers[index] for index in sorted(layers)),
            weights_bytes=_L.llama_model_size(model),
            n_ctx=_L.llama_n_ctx(context),
            flash=question.flash_attention != "off" and not any("Flash Attention not supported" in x for x in lines),
            pretended=any(map(self._stands_in, question.devices)),
        )


def _owner(holder: str, names: list[str]) -> str:
    return next((name for name in names if holder == name or holder.startswith(f"{name}[")), "Host")


def _expert_overrides(n_layers: int, keep: list[Any]) -> Any:
    """Experts of the first layers to the host, as llama.cpp's own option does it."""
    count = min(n_layers, _L.llama_max_tensor_buft_overrides() - 1)
    host = devices.symbol("ggml_backend_cpu_buffer_type")
    host.restype, host.argtypes = ctypes.c_void_p, []
    table = (_Override * (count + 1))()
    for index in range(count):
        table[index] = _Override(_EXPERTS.format(index).encode(), host())
    keep.append(table)
    return ctypes.cast(table, ctypes.c_void_p)


def _context_options(question: DryRun) -> Any:
    options = _L.llama_context_default_params()
    options.n_ctx = question.n_ctx
    options.n_batch, options.n_ubatch = question.n_batch, question.n_ubatch
    options.n_seq_max = question.n_slots
    options.flash_attn_type = _FLASH[question.flash_attention]
    options.type_k = llama.kv_type(question.kv_type_k, "kv_type_k")
    options.type_v = llama.kv_type(question.kv_type_v, "kv_type_v")
    options.swa_full = question.swa_full
    options.kv_unified = question.kv_unified
    options.offload_kqv = question.offload_kqv
    options.op_offload = question.op_offload
    options.no_perf = True
    if hasattr(options, "n_outputs_max"):
        options.n_outputs_max = question.n_outputs
    return options


def main() -> int:
    """Answer questions until the input ends. Returns the exit code."""
    requests, channel = take_standard_streams()
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def send(record: DryHello | Layout) -> None:
        channel.send(cast(events.Event, record))  # a channel writes any record

    runs = DryRuns()
    send(DryHello(llama_cpp=llama.version()))
    decoder = msgspec.json.Decoder(DryRun)
    for line in read_lines(requests, _MAX_LINE_BYTES):
        if not line or not line.strip():
            continue
        try:
            question = decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            send(Layout(id=-1, error=f"not a question: {error}"))
            continue
        send(runs.answer(question))
    return 0


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # no destructors of native libraries: some hang or crash at exit
