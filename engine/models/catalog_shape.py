"""From the published hyper-parameters of a model to a header as its GGUF file would have it, before any file is here.

The tensor types restate what llama.cpp's quantizer chooses without an importance matrix (MIT; llama-quant.cpp, revision
0c1e570) for the usual families. Publishers deviate from it (dynamic quantizations), so sizes are approximate by a few
per cent.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from engine.models import quant
from engine.models.gguf_header import GgufArray, GgufHeader, TensorInfo

#: bytes per token of a vocabulary with its merges, as real files have them
_VOCABULARY_BYTES = 30
_TYPE_IDS = {layout.name: type_id for type_id, layout in quant.TENSOR_TYPES.items()}
_FILE_TYPES = {name: number for number, name in quant.FILE_TYPES.items()}
_DEFAULTS = {
    "Q2_K": "Q2_K",
    "Q3_K_S": "Q3_K",
    "Q3_K_M": "Q3_K",
    "Q3_K_L": "Q3_K",
    "Q4_K_S": "Q4_K",
    "Q4_K_M": "Q4_K",
    "Q5_K_S": "Q5_K",
    "Q5_K_M": "Q5_K",
    "MXFP4": "MXFP4",
    "MXFP4_MOE": "MXFP4",
}
#: where rows are no whole blocks of 256
_FALLBACK = {"Q2_K": "Q4_0", "Q3_K": "Q4_0", "IQ4_XS": "IQ4_NL", "Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}


class Experts(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A mixture of experts: `used` of `count`, each `ff` wide, beside `shared_ff` that every token uses."""

    count: int
    used: int
    ff: int
    shared_ff: int = 0


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Hyper-parameters of a transformer, from its public configuration.

    Attributes:
        head: numbers per head; 0: width / heads.
        tied: the output matrix is the embedding.
        qk_norm, qkv_bias, post_norms: small tensors that some families have. fused: attention and feed-forward matrices
            in one (phi3). sinks: one number per head and biases everywhere (gpt-oss).
        window: tokens of the layers with a sliding window.
        keys: further metadata without the architecture's prefix.
    """

    architecture: str
    layers: int
    width: int
    ff: int
    heads: int
    kv_heads: int
    vocab: int
    head: int = 0
    tied: bool = False
    qk_norm: bool = False
    qkv_bias: bool = False
    post_norms: bool = False
    fused: bool = False
    sinks: bool = False
    experts: Experts | None = None
    window: int = 0
    keys: dict[str, int | float | str] = {}


def known_quant(label: str) -> bool:
    """True if the types of this quantization can be told here."""
    return label in _DEFAULTS or label in _TYPE_IDS


def header_of(shape: Shape, label: str, name: str, n_ctx_train: int) -> GgufHeader:
    """The header of a file of this shape and quantization; `file_size` is what the whole file would have.

    Raises:
        KeyError: the quantization is none that is known here (`known_quant`).
    """
    tensors: list[TensorInfo] = []
    offset = 0
    for tensor_name, dims in _tensors(shape):
        type_id = _TYPE_IDS[_type_of(tensor_name, dims, label, shape)]
        size = _bytes(type_id, dims)
        tensors.append(TensorInfo(tensor_name, dims, type_id, offset, size))
        offset += -(-size // 32) * 32
    begin = 4096 + shape.vocab * _VOCABULARY_BYTES // 32 * 32
    metadata = _metadata(shape, label, name, n_ctx_train)
    return GgufHeader(
        path=Path(f"{name}-{label}.gguf"),
        version=3,
        metadata=metadata,
        value_types={},
        tensors=tensors,
        data_offset=begin,
        alignment=32,
        file_size=begin + offset,
    )


def count_params(shape: Shape) -> int:
    """Weights of the whole model."""
    return sum(_product(dims) for _, dims in _tensors(shape))


@functools.lru_cache(maxsize=256)
def stand_in(n_params: int, n_active: int, kv_bytes_per_token: int, label: str, size_bytes: int) -> Shape:
    """A usual transformer that takes about as much memory as a model whose hyper-parameters are not known.

    It has the given KV cache (16 bit), as many weights per token, and a file of the given size.
    """
    sizes = ((1.5e9, 24, 1536), (5e9, 32, 2560), (10e9, 36, 4096), (20e9, 40, 5120), (1e15, 60, 5120))
    layers, width = next((n_layers, n_width) for below, n_layers, n_width in sizes if n_params < below)
    if n_active:
        layers, width = (48, 2048) if n_params < 60e9 else (48, 4096)
    kv_heads = max(1, round((kv_bytes_per_token or 1024 * layers) / (layers * 4 * 128)))

    def shape(ff: int, experts: Experts | None = None) -> Shape:
        heads = max(kv_heads, width // 128) // kv_heads * kv_heads
        return Shape("llama", layers, width, ff, heads, kv_heads, 151936, head=128, tied=True, experts=experts)

    if not n_active:
        return _fitted(lambda ff: shape(256 * ff), label, size_bytes)
    rest = count_params(shape(0))
    ff = max(256, round((n_active - rest) / (3 * 8 * width * layers) / 256) * 256)
    return _fitted(lambda count: shape(ff, Experts(max(8, count), 8, ff)), label, size_bytes)


def _fitted(make: Callable[[int], Shape], label: str, size_bytes: int) -> Shape:
    """The shape whose file is nearest to a size, by halving: sizes grow with the number."""
    low, high = 1, 4096
    while low < high:
        middle = (low + high) // 2
        if header_of(make(middle), label, "", 0).file_size < size_bytes:
            low = middle + 1
        else:
            high = middle
    return make(low)


def _product(dims: tuple[int, ...]) -> int:
    result = 1
    for size in dims:
        result *= size
    return result


def _bytes(type_id: int, dims: tuple[int, ...]) -> int:
    return quant.tensor_bytes(type_id, _product(dims))


def _metadata(shape: Shape, label: str, name: str, n_ctx_train: int) -> dict[str, Any]:
    head = shape.head or shape.width // shape.heads
    values: dict[str, Any] = {
        "context_length": n_ctx_train,
        "embedding_length": shape.width,
        "block_count": shape.layers,
        "feed_forward_length": shape.ff,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.kv_heads,
        "attention.key_length": head,
        "attention.value_length": head,
        "vocab_size": shape.vocab,
    }
    if shape.experts:
        values["expert_count"] = shape.experts.count
        values["expert_used_count"] = shape.experts.used
        values["expert_feed_forward_length"] = shape.experts.ff
    if shape.window:
        values["attention.sliding_window"] = shape.window
    values |= shape.keys
    metadata: dict[str, Any] = {f"{shape.architecture}.{key}": value for key, value in values.items()}
    metadata["general.architecture"] = shape.architecture
    metadata["general.name"] = name
    if label in _FILE_TYPES:
        metadata["general.file_type"] = _FILE_TYPES[label]
    # only its length is known
    metadata["tokenizer.ggml.tokens"] = GgufArray(8, shape.vocab, None)
    return metadata


# ------------------------------------------------------------------ tensors


def _tensors(shape: Shape) -> list[tuple[str, tuple[int, ...]]]:
    found: list[tuple[str, tuple[int, ...]]] = [("token_embd.weight", (shape.width, shape.vocab))]
    for i in range(shape.layers):
        found += [(f"blk.{i}.{name}", dims) for name, dims in (*_attention(shape), *_feed_forward(shape))]
    found.append(("output_norm.weight", (shape.width,)))
    if not shape.tied:
        found.append(("output.weight", (shape.width, shape.vocab)))
    return found


def _attention(shape: Shape) -> list[tuple[str, tuple[int, ...]]]:
    head = shape.head or shape.width // shape.heads
    q, kv = shape.heads * head, shape.kv_heads * head
    found: list[tuple[str, tuple[int, ...]]] = [("attn_norm.weight", (shape.width,))]
    if shape.fused:
        found.append(("attn_qkv.weight", (shape.width, q + 2 * kv)))
    else:
        found += [(f"attn_{n}.weight", (shape.width, size)) for n, size in (("q", q), ("k", kv), ("v", kv))]
    if shape.qkv_bias or shape.sinks:
        found += [(f"attn_{n}.bias", (size,)) for n, size in (("q", q), ("k", kv), ("v", kv))]
    if shape.qk_norm:
        found += [("attn_q_norm.weight", (head,)), ("attn_k_norm.weight", (head,))]
    found.append(("attn_output.weight", (q, shape.width)))
    if shape.sinks:
        found += [("attn_output.bias", (shape.width,)), ("attn_sinks.weight", (shape.heads,))]
    if shape.post_norms or shape.sinks:
        found.append(("post_attention_norm.weight", (shape.width,)))
    return found


def _feed_forward(shape: Shape) -> list[tuple[str, tuple[int, ...]]]:
    width = shape.width
    found: list[tuple[str, tuple[int, ...]]] = [] if shape.sinks else [("ffn_norm.weight", (width,))]
    if shape.post_norms:
        found.append(("post_ffw_norm.weight", (width,)))
    experts = shape.experts
    if experts is None:
        if shape.fused:
            return [*found, ("ffn_up.weight", (width, 2 * shape.ff)), ("ffn_down.weight", (shape.ff, width))]
        return [*found, *_matrices("", width, shape.ff)]
    found.append(("ffn_gate_inp.weight", (width, experts.count)))
    found += [(name, (*dims, experts.count)) for name, dims in _matrices("_exps", width, experts.ff)]
    if shape.sinks:
        found.append(("ffn_gate_inp.bias", (experts.count,)))
        sizes = (("gate", experts.ff), ("up", experts.ff), ("down", width))
        found += [(f"ffn_{name}_exps.bias", (size, experts.count)) for name, size in sizes]
    if experts.shared_ff:
        found += _matrices("_shexp", width, experts.shared_ff)
    return found


def _matrices(suffix: str, width: int, ff: int) -> list[tuple[str, tuple[int, ...]]]:
    return [
        (f"ffn_gate{suffix}.weight", (width, ff)),
        (f"ffn_up{suffix}.weight", (width, ff)),
        (f"ffn_down{suffix}.weight", (ff, width)),
    ]


# ------------------------------------------------------------------ types


def _type_of(name: str, dims: tuple[int, ...], label: str, shape: Shape) -> str:
    if len(dims) < 2 or not name.endswith(".weight") or "ffn_gate_inp" in name:
        return "F32"
    wanted = _wanted(name, label, shape)
    if dims[0] % quant.TENSOR_TYPES[_TYPE_IDS[wanted]].block_size:
        wanted = _FALLBACK.get(wanted, "F16")
    return wanted


def _wanted(name: str, label: str, shape: Shape) -> str:
    default = _DEFAULTS.get(label, label)
    if default == "MXFP4":
        return "MXFP4" if "_exps" in name else "Q8_0"
    if default in ("F32", "F16", "BF16", "Q8_0"):
        return default
    if name == "output.weight" or (shape.tied and name == "token_embd.weight"):
        return "Q6_K"
    layer = int(name.split(".")[1]) if name.startswith("blk.") else 0
    first = layer < shape.layers // 8
    more = first or layer >= 7 * shape.layers // 8 or (layer - shape.layers // 8) % 3 == 2
    many = shape.heads // max(1, shape.kv_heads) >= 4
    if ".attn_v." in name or ".attn_qkv." in name:
        return _value_type(label, default, more, many, layer, fused="qkv" in name)
    if ".ffn_down" in name:
        return _down_type(label, default, more, first, layer, shape.layers)
    if ".attn_output." in name and shape.experts is None:
        return {"Q2_K": "Q3_K", "Q3_K_M": "Q4_K", "Q3_K_L": "Q5_K"}.get(label, default)
    return default


def _value_type(label: str, default: str, more: bool, many: bool, layer: int, *, fused: bool) -> str:
    if label == "Q2_K":
        return "Q4_K" if many else "Q3_K"
    if label == "Q3_K_M":
        return "Q4_K" if fused else "Q5_K" if layer < 2 else "Q4_K"
    if label == "Q3_K_L":
        return "Q5_K"
    if label in ("Q4_K_M", "Q5_K_M"):
        if fused:
            return {"Q4_K_M": "Q5_K", "Q5_K_M": "Q6_K"}[label]
        return "Q6_K" if more else default
    if label == "Q4_K_S":
        return "Q5_K" if layer < 4 else default
    return "Q5_K" if label == "IQ4_XS" and many else default


def _down_type(label: str, default: str, more: bool, first: bool, layer: int, layers: int) -> str:
    if label == "Q2_K":
        return "Q3_K"
    if label == "Q3_K_M":
        return "Q5_K" if layer < layers // 16 else "Q4_K"
    if label == "Q3_K_L":
        return "Q5_K"
    if label in ("Q4_K_M", "Q5_K_M"):
        return "Q6_K" if more else default
    if label in ("Q4_K_S", "IQ4_XS"):
        return "Q5_K" if first else default
    return default
