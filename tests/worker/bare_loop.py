"""A plain llama.cpp loop, as the C examples have it: what the worker is compared with.

    python bare_loop.py MODEL    reads a JSON list of {"tokens": [...], "n": N} from standard input and prints a list of
                                 {"tokens": [...], "decode_s": seconds from the first to the last token}

One sequence, one context of its own for each request, the whole prompt in batches of n_batch, greedy.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def run(model: str | Path, requests: list[dict[str, Any]], **options: Any) -> list[dict[str, Any]]:
    """Run it in a process of its own."""
    result = subprocess.run(
        [sys.executable, __file__, os.fspath(model), json.dumps(options)],
        input=json.dumps(requests).encode(),
        env={"GOMP_SPINCOUNT": "2000", **os.environ},  # as the worker sets it: tests run beside others
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr.decode()[-3000:]
    answer: list[dict[str, Any]] = json.loads(result.stdout)
    return answer


class Loop:
    """A model with contexts made as needed.

    use_extra_bufts must be as in the worker: repacked weights are computed by other kernels, with other rounding.
    """

    def __init__(self, model: str, *, n_ctx: int = 2048, n_threads: int = 2) -> None:
        import llama_cpp.llama_cpp as lib

        self.lib: Any = lib
        self._quiet = lib.llama_log_callback(lambda level, text, data: None)
        lib.llama_log_set(self._quiet, ctypes.c_void_p(0))
        lib.llama_backend_init()
        options = lib.llama_model_default_params()
        options.n_gpu_layers = 0
        options.use_extra_bufts = b"AMX_INT8 = 1" not in lib.llama_print_system_info()
        self.model = lib.llama_model_load_from_file(os.fsencode(model), options)
        assert self.model, "llama.cpp cannot load the model"
        self.vocab = lib.llama_model_get_vocab(self.model)
        self._options = lib.llama_context_default_params()
        self._options.n_ctx = n_ctx
        self._options.n_threads = self._options.n_threads_batch = n_threads
        self._options.no_perf = True

    def context(self) -> Any:
        context = self.lib.llama_init_from_model(self.model, self._options)
        assert context
        return context

    def greedy(self, tokens: list[int], n: int) -> dict[str, Any]:
        """Up to n tokens after the prompt, without the end token."""
        lib, context = self.lib, self.context()
        sampler = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
        lib.llama_sampler_chain_add(sampler, lib.llama_sampler_init_greedy())
        n_batch = lib.llama_n_batch(context)
        for start in range(0, len(tokens), n_batch):
            part = tokens[start : start + n_batch]
            array = (ctypes.c_int32 * len(part))(*part)
            assert lib.llama_decode(context, lib.llama_batch_get_one(array, len(part))) == 0
        out: list[int] = []
        one = (ctypes.c_int32 * 1)()
        began = last = 0.0
        while len(out) < n:
            token = lib.llama_sampler_sample(sampler, context, -1)
            if lib.llama_vocab_is_eog(self.vocab, token):
                break
            last = time.perf_counter()
            began = began or last
            out.append(token)
            if len(out) == n:
                break
            one[0] = token
            assert lib.llama_decode(context, lib.llama_batch_get_one(one, 1)) == 0
        lib.llama_sampler_free(sampler)
        lib.llama_free(context)
        return {"tokens": out, "decode_s": last - began}


def main() -> None:
    loop = Loop(sys.argv[1], **json.loads(sys.argv[2]) if len(sys.argv) > 2 else {})
    print(json.dumps([loop.greedy(r["tokens"], r["n"]) for r in json.load(sys.stdin)]))


if __name__ == "__main__":
    main()
