"""llama.cpp's own way to a vector, as its examples have it: one context, pooled inside the graph, one text at a time.

python bare_embedding.py MODEL POOLING    reads a JSON list of lists of tokens from standard input and prints a list of
                                          vectors (not normalized); POOLING as llama.h numbers it
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def run(model: str | Path, pooling: int, texts: list[list[int]]) -> list[list[float]]:
    """Run it in a process of its own."""
    result = subprocess.run(
        [sys.executable, __file__, os.fspath(model), str(pooling)],
        input=json.dumps(texts).encode(),
        env={"GOMP_SPINCOUNT": "2000", **os.environ},
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr.decode()[-3000:]
    answer: list[list[float]] = json.loads(result.stdout)
    return answer


def main() -> None:
    import llama_cpp.llama_cpp as lib

    quiet = lib.llama_log_callback(lambda level, text, data: None)
    lib.llama_log_set(quiet, ctypes.c_void_p(0))
    lib.llama_backend_init()
    options = lib.llama_model_default_params()
    options.n_gpu_layers = 0
    options.use_extra_bufts = b"AMX_INT8 = 1" not in lib.llama_print_system_info()
    model: Any = lib.llama_model_load_from_file(os.fsencode(sys.argv[1]), options)
    assert model
    settings = lib.llama_context_default_params()
    settings.embeddings = True
    settings.pooling_type = int(sys.argv[2])
    settings.n_ctx = settings.n_batch = settings.n_ubatch = 512
    settings.n_threads = settings.n_threads_batch = 1  # tests run beside others
    context: Any = lib.llama_init_from_model(model, settings)
    assert context
    width = lib.llama_model_n_embd_out(model)
    found = []
    for tokens in json.load(sys.stdin):
        array = (ctypes.c_int32 * len(tokens))(*tokens)
        assert lib.llama_decode(context, lib.llama_batch_get_one(array, len(tokens))) == 0
        vector = lib.llama_get_embeddings_seq(context, 0)
        assert vector
        found.append(vector[:width])
        memory = lib.llama_get_memory(context)
        if memory:
            lib.llama_memory_clear(memory, True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
