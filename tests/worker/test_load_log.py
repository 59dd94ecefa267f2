"""Reading llama.cpp's log lines (as version 0.3.36 of llama-cpp-python writes them)."""

from __future__ import annotations

import pytest

from engine.worker import native_log
from engine.worker.native_log import NativeLog

LINES = """\
load_tensors: layer   0 assigned to device CPU, is_swa = 0
load_tensors: layer  29 assigned to device RPC0, is_swa = 0
load_tensors: layer  30 assigned to device RPC0, is_swa = 0
load_tensors: offloaded 31/31 layers to GPU
load_tensors:   CPU_Mapped model buffer size =    92.10 MiB
load_tensors: RPC0[127.0.0.1:50052] model buffer size =    47.71 MiB
llama_context:        CPU  output buffer size =     0.75 MiB
llama_kv_cache:        CPU KV buffer size =    10.00 MiB
llama_kv_cache:        CPU KV buffer size =     2.50 MiB
sched_reserve:        CPU compute buffer size =    15.51 MiB
sched_reserve:        CPU compute buffer size =    21.51 MiB
resolve_fused_ops: Flash Attention enabled
""".splitlines()
MIB = 1024 * 1024


def test_buffers_in_bytes() -> None:
    assert native_log.buffer_sizes(LINES) == {
        "CPU_Mapped model": round(92.10 * MIB),
        "RPC0[127.0.0.1:50052] model": round(47.71 * MIB),
        "CPU output": round(0.75 * MIB),
        "CPU KV": round(12.5 * MIB),  # a sliding-window model has two caches
        "CPU compute": round(21.51 * MIB),  # laid out twice, the last one is used
    }


def test_experts_that_stay_are_counted_by_layers() -> None:
    said = "tensor blk.{}.ffn_{}_exps.weight (12 MiB q4_K) buffer type overridden to {}"
    lines = [said.format(layer, part, "CPU") for layer in (0, 1, 11) for part in ("up", "down", "gate")]
    assert native_log.experts_kept(lines) == 3
    assert native_log.experts_kept([said.format(4, "up", "CUDA_Host"), said.format(5, "up", "CUDA0")]) == 1
    assert native_log.experts_kept(["tensor output.weight (1 MiB f16) buffer type overridden to CPU"]) == 0


def test_layers_are_counted_by_where_they_are() -> None:
    assert native_log.layers_on(LINES, frozenset({"RPC0"})) == 2
    assert native_log.layers_on(LINES, frozenset()) == 0
    assert native_log.flash_attention(LINES) == "on"
    assert native_log.flash_attention([]) == "auto"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("ggml_backend_cuda_buffer_type_alloc_buffer: allocating 1 MiB on device 0: cudaMalloc failed: out of memory",
         "not_enough_memory"),
        ("llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache",
         "not_enough_memory"),
        ("error loading model: unknown model architecture: 'foo'", "model_unsupported"),
        ("error loading model: unknown pre-tokenizer type: 'bar'", "model_unsupported"),
        ("tensor 'output.weight' data is not within the file bounds, model is corrupted or incomplete",
         "model_damaged"),
        ("error loading model: something else", "load_failed"),
    ],
)  # fmt: skip
def test_refused_loads_by_what_was_said(line: str, code: str) -> None:
    error = native_log.load_error("m.gguf", ["loading", line], ["loading", line])
    assert error.code == code and "m.gguf" in error.message and error.details["log"][-1] == line and error.hint


def test_pieces_become_lines_and_debug_stays_here() -> None:
    heard: list[tuple[str, str]] = []
    log = NativeLog(lambda level, line: heard.append((level, line)))
    log.start_load()
    for level, text in [(2, "loading "), (5, "model\n"), (5, "."), (5, "."), (5, "\n"), (1, "deep\n"), (3, "a\nb\n")]:
        log.add(level, text)
    log.expected_abort = True
    log.add(4, "failed to decode, ret = 2\n")
    assert heard == [
        ("info", "loading model"),
        ("warning", "a"),
        ("warning", "b"),
        ("info", "failed to decode, ret = 2"),
    ]
    assert log.end_load()[:2] == ["loading model", "deep"] and log.end_load() == []
    assert log.tail()[-1].startswith("failed")
