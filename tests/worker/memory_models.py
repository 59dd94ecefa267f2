"""Tiny models with random weights and a real vocabulary, one of each kind of memory that llama.cpp has.

Their answers say nothing, but how probable each token is depends on everything before it: a cache that is not what it
should be shows at once. All is computed in 32 bits, so that what rounding alone does stays far below that.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scripted import ARR, BOOL, F32, I32, STR, U32, load_vocab, write_gguf

E, H, K, D, F = 64, 4, 2, 16, 128
WINDOW = 64
N_EXPERTS = 4
TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}[assistant]"
    "{% endif %}"
)
Tensors = dict[str, np.ndarray]
KINDS = ("llama", "window", "recurrent", "hybrid")


@cache
def _vocab() -> dict[str, Any]:
    found: dict[str, Any] = load_vocab("spm")
    return found


def build(path: Path, kind: str, *, n_layer: int = 2, n_ctx: int = 4096, seed: int = 0) -> Path:
    """kind: see `KINDS`, or "experts", a llama with four of them in each layer.

    The sliding window is of `WINDOW` tokens, in the first of each two layers.
    """
    arch = {"llama": "llama", "experts": "llama", "window": "gemma2", "recurrent": "mamba", "hybrid": "lfm2"}[kind]
    vocab, draw = _vocab(), np.random.default_rng(seed)

    def weight(*shape: int) -> np.ndarray:
        return (draw.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)

    n_vocab = len(vocab["tokens"])
    tensors: Tensors = {"token_embd.weight": weight(n_vocab, E) * 2, "output_norm.weight": np.ones(E, np.float32)}
    if kind == "hybrid":
        tensors["token_embd_norm.weight"] = tensors.pop("output_norm.weight")
    for i in range(n_layer):
        block = _BLOCKS[kind](weight, i)
        tensors.update({f"blk.{i}.{name}": data for name, data in block.items()})
    own = [(f"{arch}.{key}", kind_of, value) for key, kind_of, value in _keys(kind, n_layer, n_ctx)]
    general = [
        ("general.architecture", STR, arch),
        ("general.name", STR, f"tiny {kind}"),
        ("tokenizer.ggml.model", STR, vocab["model"]),
        ("tokenizer.ggml.pre", STR, vocab["pre"]),
        ("tokenizer.ggml.tokens", ARR, (STR, vocab["tokens"])),
        ("tokenizer.ggml.scores", ARR, (F32, [float(s) for s in vocab["scores"]])),
        ("tokenizer.ggml.token_type", ARR, (I32, vocab["types"])),
        ("tokenizer.ggml.bos_token_id", U32, 1),
        ("tokenizer.ggml.eos_token_id", U32, 2),
        ("tokenizer.ggml.unknown_token_id", U32, 0),
        ("tokenizer.ggml.add_bos_token", BOOL, True),
        ("tokenizer.chat_template", STR, TEMPLATE),
    ]
    listed = [(name, data.shape[::-1], 0, np.ascontiguousarray(data).tobytes()) for name, data in tensors.items()]
    return Path(write_gguf(path, [*general, *own], listed))


def _keys(kind: str, n_layer: int, n_ctx: int) -> list[tuple[str, int, Any]]:
    keys: list[tuple[str, int, Any]] = [
        ("context_length", U32, n_ctx),
        ("embedding_length", U32, E),
        ("block_count", U32, n_layer),
        ("feed_forward_length", U32, F if kind != "recurrent" else 0),
        ("attention.head_count", U32, H if kind != "recurrent" else 0),
        ("attention.layer_norm_rms_epsilon", F32, 1e-5),
    ]
    if kind == "recurrent":
        return [
            *keys,
            ("ssm.conv_kernel", U32, 4),
            ("ssm.inner_size", U32, 2 * E),
            ("ssm.state_size", U32, 8),
            ("ssm.time_step_rank", U32, 4),
        ]
    if kind == "hybrid":
        heads = [0 if i % 2 == 0 else K for i in range(n_layer)]
        return [*keys, ("attention.head_count_kv", ARR, (I32, heads)), ("shortconv.l_cache", U32, 3)]
    keys += [("attention.head_count_kv", U32, K), ("rope.dimension_count", U32, D)]
    if kind == "experts":
        keys += [("expert_count", U32, N_EXPERTS), ("expert_used_count", U32, 2)]
    if kind == "window":
        keys += [
            ("attention.key_length", U32, D),
            ("attention.value_length", U32, D),
            ("attention.sliding_window", U32, WINDOW),
        ]
    return keys


Weight = Callable[..., np.ndarray]


def _attention(weight: Weight) -> Tensors:
    return {
        "attn_norm.weight": np.ones(E, np.float32),
        "attn_q.weight": weight(H * D, E) * 2,
        "attn_k.weight": weight(K * D, E) * 2,
        "attn_v.weight": weight(K * D, E),
        "attn_output.weight": weight(E, H * D) * 4,
    }


def _feed_forward(weight: Weight) -> Tensors:
    return {
        "ffn_norm.weight": np.ones(E, np.float32),
        "ffn_gate.weight": weight(F, E),
        "ffn_up.weight": weight(F, E),
        "ffn_down.weight": weight(E, F) * 4,
    }


def _llama(weight: Weight, _index: int) -> Tensors:
    return _attention(weight) | _feed_forward(weight)


def _experts(weight: Weight, _index: int) -> Tensors:
    return _attention(weight) | {
        "ffn_norm.weight": np.ones(E, np.float32),
        "ffn_gate_inp.weight": weight(N_EXPERTS, E),
        "ffn_gate_exps.weight": weight(N_EXPERTS, F, E),
        "ffn_up_exps.weight": weight(N_EXPERTS, F, E),
        "ffn_down_exps.weight": weight(N_EXPERTS, E, F) * 4,
    }


def _window(weight: Weight, _index: int) -> Tensors:
    after = {f"post_{part}_norm.weight": np.full(E, 4, np.float32) for part in ("attention", "ffw")}
    return _attention(weight) | _feed_forward(weight) | after


def _recurrent(weight: Weight, _index: int) -> Tensors:
    inner, state, rank, kernel = 2 * E, 8, 4, 4
    return {
        "attn_norm.weight": np.ones(E, np.float32),
        "ssm_in.weight": weight(2 * inner, E),
        "ssm_conv1d.weight": weight(inner, kernel),
        "ssm_conv1d.bias": np.zeros(inner, np.float32),
        "ssm_x.weight": weight(rank + 2 * state, inner),
        "ssm_dt.weight": weight(inner, rank),
        "ssm_dt.bias": np.full(inner, -4, np.float32),  # a long memory
        "ssm_a": -np.tile(np.arange(1, state + 1, dtype=np.float32), (inner, 1)),
        "ssm_d": np.ones(inner, np.float32),
        "ssm_out.weight": weight(E, inner) * 4,
    }


def _hybrid(weight: Weight, index: int) -> Tensors:
    if index % 2:
        norms = {"attn_q_norm.weight": np.ones(D, np.float32), "attn_k_norm.weight": np.ones(D, np.float32)}
        return _attention(weight) | _feed_forward(weight) | norms
    convolution = {
        "attn_norm.weight": np.ones(E, np.float32),
        "shortconv.conv.weight": weight(E, 3),
        "shortconv.in_proj.weight": weight(3 * E, E),
        "shortconv.out_proj.weight": weight(E, E) * 4,
    }
    return convolution | _feed_forward(weight)


_BLOCKS: dict[str, Callable[[Weight, int], Tensors]] = {
    "llama": _llama,
    "experts": _experts,
    "window": _window,
    "recurrent": _recurrent,
    "hybrid": _hybrid,
}
