"""Which tensor gets which type when llama.cpp quantizes a model, and so the size of a file that nobody has made yet.

Rules restated from llama.cpp (MIT; llama-quant.cpp, without an importance matrix and without overrides of single
tensors), revision 0c1e570. Files of makers who choose types themselves ("UD-Q4_K_XL") differ.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from engine.errors import InvalidRequest
from engine.fit.placement import prepare
from engine.models import quant
from engine.models.gguf_header import GgufHeader, TensorInfo

_IDS = {layout.name: number for number, layout in quant.TENSOR_TYPES.items()}
#: quantization of a file -> the type of most of its tensors
BASE_TYPES: Mapping[str, str] = {
    "F32": "F32",
    "F16": "F16",
    "BF16": "BF16",
    "Q4_0": "Q4_0",
    "Q4_1": "Q4_1",
    "Q5_0": "Q5_0",
    "Q5_1": "Q5_1",
    "Q8_0": "Q8_0",
    "Q2_K": "Q2_K",
    "Q2_K_S": "Q2_K",
    "Q3_K_S": "Q3_K",
    "Q3_K_M": "Q3_K",
    "Q3_K_L": "Q3_K",
    "Q4_K_S": "Q4_K",
    "Q4_K_M": "Q4_K",
    "Q5_K_S": "Q5_K",
    "Q5_K_M": "Q5_K",
    "Q6_K": "Q6_K",
    "IQ1_S": "IQ1_S",
    "IQ1_M": "IQ1_M",
    "IQ2_XXS": "IQ2_XXS",
    "IQ2_XS": "IQ2_XS",
    "IQ2_S": "IQ2_XS",
    "IQ2_M": "IQ2_S",
    "IQ3_XXS": "IQ3_XXS",
    "IQ3_XS": "IQ3_S",
    "IQ3_S": "IQ3_S",
    "IQ3_M": "IQ3_S",
    "IQ4_NL": "IQ4_NL",
    "IQ4_XS": "IQ4_XS",
    "MXFP4_MOE": "MXFP4",
}
_PLAIN = frozenset(("F32", "F16", "BF16"))
_TINY = frozenset(("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M"))
_NEVER = re.compile(
    r"_norm\.weight|ffn_gate_inp\.weight|altup|laurel|per_layer_model_proj|ssm_conv1d|shortconv\.conv\.weight"
    r"|time_mix_(first|w0|w1|w2|v0|v1|v2|a0|a1|a2|g1|g2|lerp_fused|decay_w1|decay_w2)|attn_rel_b\.weight"
    r"|ffn_gate_tid2eid\.weight|indexer\.[kq]_proj\.weight"
)
_NEVER_NAMED = frozenset(("position_embd.weight", "token_types.weight"))
#: kept as they are by a conversion to 16 bits
_ALWAYS_F32 = re.compile(
    r"ffn_gate_inp(_shexp)?\.weight|position_embd|token_types|ssm_conv1d|shortconv\.conv\.|altup_(correct|predict)_coef"
)
_KINDS = (
    ("attn_qkv.weight", "V"),
    ("attn_kv_b.weight", "V"),
    ("attn_v.weight", "V"),
    ("attn_k.weight", "K"),
    ("attn_q.weight", "Q"),
    ("attn_output.weight", "O"),
    ("ffn_up", "UP"),
    ("ffn_gate", "GATE"),
    ("ffn_down", "DOWN"),
)
#: rows that are no whole blocks of the type get this one
_FALLBACK = {
    **dict.fromkeys(("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_XS"), "IQ4_NL"),
    **dict.fromkeys(("Q2_K", "Q3_K"), "Q4_0"),
    "Q4_K": "Q5_0",
    "Q5_K": "Q5_1",
    "Q6_K": "Q8_0",
}
_WIDER_WITH_8_EXPERTS = frozenset(
    ("Q2_K", "IQ3_XS", "IQ3_XXS", "Q3_K_S", "Q3_K_M", "IQ4_NL", "Q4_K_S", "Q4_K_M", "IQ3_S", "IQ3_M", "IQ4_XS")
)
_LAYER = re.compile(r"blk\.(\d+)\.")


@dataclass
class _Model:
    """What the rules ask of a model, and how far they have counted."""

    n_layer: int
    n_expert: int
    gqa: int
    is_70b: bool
    tied: bool
    n_values: int
    counts: dict[str, int] = field(default_factory=lambda: {"V": 0, "DOWN": 0, "GATE": 0, "UP": 0})


def tensor_types(header: GgufHeader, label: str, more: Sequence[GgufHeader] = ()) -> list[tuple[TensorInfo, str]]:
    """Each tensor with the type it gets in a file of quantization `label`.

    Raises:
        InvalidRequest: a quantization that is not known here.
    """
    label = label.upper()
    if label not in BASE_TYPES:
        raise InvalidRequest(f"{label} is no quantization that llama.cpp makes", details={"field": "quant"})
    prepared = prepare(header, more)
    if label in _PLAIN:
        return [(tensor, _plain(tensor, label)) for tensor in prepared.tensors]
    model = _facts(header, prepared.tensors)
    found: dict[str, str] = {}
    for tensor in sorted(prepared.tensors, key=_order):
        found[tensor.name] = _chosen(tensor, label, model) if _allowed(tensor) else _kept(tensor)
    return [(tensor, found[tensor.name]) for tensor in prepared.tensors]


def predict_quant(header: GgufHeader, label: str, more: Sequence[GgufHeader] = ()) -> int:
    """Bytes of the file of another quantization of the same model, its header counted.

    Raises:
        InvalidRequest: a quantization that is not known here.
    """
    total = header.data_offset
    for tensor, kind in tensor_types(header, label, more):
        size = quant.tensor_bytes(_IDS[kind], tensor.n_elements)
        total += -(-size // header.alignment) * header.alignment
    return total


def _order(tensor: TensorInfo) -> tuple[int, str]:
    match = _LAYER.match(tensor.name)
    return (int(match[1]) if match else -1, tensor.name)


def _facts(header: GgufHeader, tensors: Sequence[TensorInfo]) -> _Model:
    prefix = header.architecture
    heads = header.integers(f"{prefix}.attention.head_count") or [0]
    kv_heads = header.integers(f"{prefix}.attention.head_count_kv") or heads
    n_layer = header.of_architecture("block_count") or 0
    gqa = heads[0] // kv_heads[0] if kv_heads[0] else 0
    names = {tensor.name for tensor in tensors}
    return _Model(
        n_layer=n_layer,
        n_expert=header.of_architecture("expert_count") or 0,
        gqa=gqa,
        is_70b=prefix == "llama" and n_layer == 80 and heads[0] != kv_heads[0],
        tied="output.weight" not in names,
        n_values=sum(1 for tensor in tensors if _kind(tensor.name) == "V"),
    )


def _kind(name: str) -> str:
    if name == "output.weight":
        return "OUTPUT"
    if name in ("token_embd.weight", "per_layer_token_embd.weight"):
        return "EMBEDDING"
    return next((kind for part, kind in _KINDS if part in name), "OTHER")


def _allowed(tensor: TensorInfo) -> bool:
    dims = len(tensor.dims)
    while dims > 1 and tensor.dims[dims - 1] == 1:
        dims -= 1
    name = tensor.name
    return dims >= 2 and name.endswith("weight") and name not in _NEVER_NAMED and not _NEVER.search(name)


def _kept(tensor: TensorInfo) -> str:
    """A tensor that is not quantized stays as it is; one that is 16 bits wide stays so whatever the file was."""
    return quant.TENSOR_TYPES[tensor.type].name


def _plain(tensor: TensorInfo, label: str) -> str:
    name = tensor.name
    single = len(tensor.dims) <= 1 or name.endswith("_norm.weight") or not name.endswith(".weight")
    return "F32" if single or _ALWAYS_F32.search(name) else label


def _more_bits(index: int, count: int) -> bool:
    return index < count // 8 or index >= 7 * count // 8 or (index - count // 8) % 3 == 2


def _chosen(tensor: TensorInfo, label: str, model: _Model) -> str:
    kind, base = _kind(tensor.name), BASE_TYPES[label]
    if kind == "OUTPUT" or (model.tied and kind == "EMBEDDING"):
        chosen = _output(tensor, label, base)
    elif label == "MXFP4_MOE":
        chosen = "MXFP4" if len(tensor.dims) > 2 and tensor.dims[2] > 1 else "Q8_0"
    elif kind == "EMBEDDING":
        chosen = _embedding(label, base)
    else:
        layer = _order(tensor)[0]
        rules = _tiny if label in _TINY else _usual
        chosen = rules(kind, layer, label, base, model)
        if kind in model.counts:
            model.counts[kind] += 1
    row = tensor.dims[0]
    if row % quant.TENSOR_TYPES[_IDS[chosen]].block_size:
        chosen = _FALLBACK.get(chosen, chosen)
        if row % quant.TENSOR_TYPES[_IDS[chosen]].block_size:
            chosen = "F16"
    return chosen


def _output(tensor: TensorInfo, label: str, base: str) -> str:
    if label == "MXFP4_MOE" or tensor.dims[0] % quant.TENSOR_TYPES[_IDS[base]].block_size:
        return "Q8_0"
    if label in _TINY or label == "IQ3_XXS":
        return "Q5_K"
    return base if base == "Q8_0" else "Q6_K"


def _embedding(label: str, base: str) -> str:
    if label in ("IQ2_XXS", "IQ2_XS", "IQ1_S", "IQ1_M"):
        return "Q2_K"
    return "IQ3_S" if label in ("IQ2_S", "IQ2_M", "IQ3_XXS") else base


def _tiny(kind: str, _layer: int, label: str, base: str, model: _Model) -> str:
    middle = label in ("IQ2_S", "IQ2_M")
    if kind == "V":
        return "Q4_K" if model.gqa >= 4 or model.n_expert >= 4 else "IQ3_S" if middle else "Q2_K"
    if kind == "K" and model.n_expert == 8:
        return "Q4_K"
    if kind == "DOWN" and model.counts["DOWN"] < model.n_layer // 8:
        return "IQ3_S" if middle else "Q2_K"
    if kind == "O":
        if model.n_expert == 8:
            return "Q5_K"
        return "IQ2_XXS" if label in ("IQ1_S", "IQ1_M") else "IQ3_S" if middle else base
    return base


def _usual(kind: str, layer: int, label: str, base: str, model: _Model) -> str:
    if kind == "V":
        return _values(label, base, model)
    if kind in ("K", "Q"):
        if kind == "K" and model.n_expert == 8:
            return "Q8_0"
        return {"IQ3_XS": "IQ3_XXS", "IQ3_XXS": "IQ2_S"}.get(label, base)
    if kind == "DOWN":
        index = layer if model.n_expert > 1 else model.counts["DOWN"]
        return _down(index, label, base, model)
    if kind == "O":
        return _attention_output(label, base, model)
    if kind in ("GATE", "UP") and label == "IQ3_XS":
        index = layer if model.n_expert > 1 else model.counts[kind]
        if model.n_layer // 8 <= index < 7 * model.n_layer // 8:
            return "IQ3_XXS"
    return base


def _values(label: str, base: str, model: _Model) -> str:
    many, index = model.gqa >= 4, model.counts["V"]
    chosen = base
    if label == "Q2_K":
        chosen = "Q4_K" if many else "Q3_K"
    elif label == "IQ3_XXS":
        chosen = "Q4_K" if many else "IQ3_S"
    elif label == "IQ3_M" or (label in ("Q2_K_S", "IQ3_XS", "IQ3_S") and many):
        chosen = "Q4_K"
    elif label == "Q3_K_M":
        chosen = "Q5_K" if index < 2 else "Q4_K"
    elif label == "Q3_K_L" or (label in ("IQ4_NL", "IQ4_XS") and many) or (label == "Q4_K_S" and index < 4):
        chosen = "Q5_K"
    elif label in ("Q4_K_M", "Q5_K_M") and _more_bits(index, model.n_values):
        chosen = "Q6_K"
    if model.is_70b and chosen in ("Q3_K", "Q4_K"):
        chosen = "Q5_K"
    return "Q8_0" if model.n_expert == 8 else chosen


def _down(index: int, label: str, base: str, model: _Model) -> str:
    n_layer = model.n_layer
    early, more = index < n_layer // 8, _more_bits(index, n_layer)
    if label == "Q2_K":
        return "Q3_K"
    if label == "IQ3_XXS":
        return "Q4_K" if early else "Q3_K"
    if label == "Q3_K_M":
        return "Q5_K" if index < n_layer // 16 else "Q4_K"
    if label == "Q3_K_L":
        return "Q5_K"
    if label == "IQ3_M":
        return "Q4_K" if early or (model.n_expert == 8 and more) else base
    if label in ("Q4_K_M", "Q5_K_M"):
        return "Q6_K" if more else base
    if early:
        return {"Q2_K_S": "Q4_K", "IQ4_NL": "Q5_K", "IQ4_XS": "Q5_K", "Q4_K_S": "Q5_K"}.get(label, base)
    return base


def _attention_output(label: str, base: str, model: _Model) -> str:
    if model.n_expert == 8:
        return "Q5_K" if label in _WIDER_WITH_8_EXPERTS else base
    found = {"Q2_K": "Q3_K", "IQ3_XXS": "IQ3_S", "Q3_K_M": "Q4_K", "Q3_K_L": "Q5_K", "IQ3_M": "Q4_K"}
    return found.get(label, base)
