"""The trace of an answer as llama.cpp's own functions give it: what the worker's is compared with.

    python bare_trace.py MODEL    reads {"prompt": [...], "answers": [{"tokens": [...], "chain": [...]}]} from standard
                                  input and prints a list of lists of steps

Each step is computed alone: the logits of the context, their softmax in 64 bits, and the samplers of the chain applied
one by one to all tokens. A sampler of the chain is [name, function of llama.h, arguments...].
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

Step = dict[str, Any]
RULED_OUT = -1e8  # JSON has no infinity: tokens are banned by a bias of -1e9


def run(model: str | Path, prompt: list[int], answers: list[dict[str, Any]]) -> list[list[Step]]:
    """Run it in a process of its own."""
    result = subprocess.run(
        [sys.executable, __file__, os.fspath(model)],
        input=json.dumps({"prompt": prompt, "answers": answers}).encode(),
        env={"GOMP_SPINCOUNT": "2000", **os.environ},
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr.decode()[-3000:]
    found: list[list[Step]] = json.loads(result.stdout)
    return found


def main() -> None:
    import numpy as np
    from bare_loop import Loop

    asked = json.load(sys.stdin)
    loop = Loop(sys.argv[1])
    lib = loop.lib
    n_vocab = lib.llama_vocab_n_tokens(loop.vocab)

    def decode(context: Any, tokens: list[int]) -> Any:
        array = (ctypes.c_int32 * len(tokens))(*tokens)
        assert lib.llama_decode(context, lib.llama_batch_get_one(array, len(tokens))) == 0
        return np.ctypeslib.as_array(lib.llama_get_logits_ith(context, -1), (n_vocab,)).copy()

    def made(name: str, function: str, *values: Any) -> tuple[str, Any]:
        if function == "llama_sampler_init_logit_bias":
            biases = (lib.llama_logit_bias * len(values))(*((int(t), float(b)) for t, b in values))
            return name, lib.llama_sampler_init_logit_bias(n_vocab, len(values), biases)
        if function == "llama_sampler_init_dry":
            texts = [text.encode() for text in values[-1]]
            breakers = (ctypes.c_char_p * len(texts))(*texts)
            return name, lib.llama_sampler_init_dry(loop.vocab, *values[:-1], breakers, len(texts))
        return name, getattr(lib, function)(*values)

    def step(logits: Any, chain: list[tuple[str, Any]], token: int) -> Step:
        exact = logits.astype(np.float64)
        p = np.exp(exact - exact.max())
        p /= p.sum()
        best = np.argsort(-p, kind="stable")[:10]
        rows = np.zeros((n_vocab, 3), np.float32)
        rows.view(np.int32)[:, 0], rows[:, 1] = np.arange(n_vocab), logits
        data = ctypes.cast(rows.ctypes.data, ctypes.POINTER(lib.llama_token_data))
        array = lib.llama_token_data_array(data=data, size=n_vocab, selected=-1, sorted=False)
        stages: list[list[Any]] = []
        before = logits
        for name, sampler in chain:
            lib.llama_sampler_apply(sampler, ctypes.byref(array))
            at = int(ctypes.cast(array.data, ctypes.c_void_p).value or 0)
            floats = np.ctypeslib.as_array((ctypes.c_float * (3 * array.size)).from_address(at))
            now = floats.reshape(-1, 3)[:, 1].copy()
            changed = int(((now != before) & (now > RULED_OUT)).sum()) if len(now) == len(before) else 0
            stages.append([name, int((now > RULED_OUT).sum()), changed])
            before = now
        selected = array.selected
        low = sum(array.data[i].p for i in range(selected)) if selected >= 0 else 0
        drawn = [int(array.data[selected].id), low, low + array.data[selected].p] if selected >= 0 else None
        for _, sampler in chain:
            lib.llama_sampler_accept(sampler, token)
        return {
            "p": float(p[token]),
            "entropy_bits": float(-(p[p > 0] * np.log2(p[p > 0])).sum()),
            "best": [[int(i), float(p[i])] for i in best],
            "stages": stages,
            "drawn": drawn,
        }

    found = []
    for answer in asked["answers"]:
        context = loop.context()
        chain = [made(*sampler) for sampler in answer["chain"]]
        for token in asked["prompt"]:
            for _, sampler in chain:
                lib.llama_sampler_accept(sampler, token)
        logits = decode(context, asked["prompt"])
        steps = []
        for token in answer["tokens"]:
            steps.append(step(logits, chain, token))
            logits = decode(context, [token])
        found.append(steps)
        lib.llama_free(context)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
