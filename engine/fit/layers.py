"""What each layer of a model keeps in memory while it works: a KV cache, a recurrent state, both or nothing.

Rules restated from llama.cpp (MIT; llama-hparams.cpp, llama-model.cpp `create_memory`, the files of src/models),
revision 0c1e570. An architecture that is not listed follows the rule of its metadata keys, and where that leaves a
doubt, the answer says so in `ModelShape.unknown`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from engine.fit.architectures import (
    HYBRID_BY_HEADS,
    HYBRID_BY_INTERVAL,
    KNOWN,
    NEMOTRON,
    NO_MEMORY,
    RECURRENT,
    SPECIAL,
    WINDOWS,
)
from engine.fit.tensor_groups import Table, table_of
from engine.models.gguf_header import GgufArray, GgufHeader

#: llama.cpp refuses more (LLAMA_MAX_LAYERS)
MAX_LAYERS = 512
#: values above this are no sizes of a real model; they are taken for absent
_MAX_SIZE = 1 << 40


@dataclass(frozen=True)
class Layer:
    """One layer.

    Attributes:
        k_width, v_width: numbers per token in the KV cache; 0: none.
        window: tokens that a sliding-window layer looks back on; 0: all.
        state: numbers of recurrent state per sequence (always 32-bit); 0: none.
        attends: the layer looks at a KV cache, its own or that of another layer.
        source: the layer whose cache it uses in place of one of its own; -1: none.
        n_head, n_head_kv, head_k, head_v: shape of its attention as the graph computes it.
        n_ff, n_ff_exp, n_ff_shexp: widths of its dense feed-forward part, of one expert, and of the expert that every
            token uses; 0 if there is none.
    """

    k_width: int = 0
    v_width: int = 0
    window: int = 0
    state: int = 0
    attends: bool = False
    source: int = -1
    n_head: int = 0
    n_head_kv: int = 0
    head_k: int = 0
    head_v: int = 0
    n_ff: int = 0
    n_ff_exp: int = 0
    n_ff_shexp: int = 0


@dataclass(frozen=True)
class ModelShape:
    """Hyper-parameters that memory depends on.

    Attributes:
        layers: all blocks that llama.cpp counts (`block_count`), also those it does not load.
        n_layer: how many of them it runs; the rest predict further tokens (MTP) and are left out.
        mla: K and V of a token are kept as one compressed vector (DeepSeek).
        n_expert, expert_used: experts, and how many of them work on a token; 0: none.
        mla_head: width of a head before compression.
        per_layer_embd: width of the embedding that each layer adds (Gemma 3n, Gemma 4).
        unknown: what the rules cannot vouch for, in words.
    """

    architecture: str
    layers: tuple[Layer, ...]
    n_layer: int
    n_embd: int
    n_vocab: int
    n_ctx_train: int
    mla: bool = False
    causal: bool = True
    n_expert: int = 0
    expert_used: int = 0
    mla_head: int = 0
    per_layer_embd: int = 0
    conv_kernel: int = 0
    d_inner: int = 0
    d_state: int = 0
    n_group: int = 0
    time_step_rank: int = 0
    unknown: tuple[str, ...] = ()


class _Values:
    """Metadata of `<architecture>.*`, with nonsense taken for absent and noted."""

    def __init__(self, header: GgufHeader) -> None:
        self._header = header
        self._prefix = header.architecture + "."
        self.unknown: list[str] = []

    def one(self, key: str, default: int = 0) -> int:
        return max(self._list(key), default=default)

    def per_layer(self, key: str, n_layer: int, default: int) -> list[int]:
        """One number per layer, from one number or a list; a list that is too short is filled with zeros."""
        values = self._list(key)
        if not values:
            return [default] * n_layer
        if len(values) == 1 and not isinstance(self._header.metadata.get(self._prefix + key), GgufArray):
            return values * n_layer
        if len(values) < n_layer:
            self.unknown.append(f"{self._prefix}{key} lists {len(values)} of {n_layer} layers")
        return (values + [0] * n_layer)[:n_layer]

    def is_list(self, key: str) -> bool:
        return isinstance(self._header.metadata.get(self._prefix + key), GgufArray)

    def has(self, key: str) -> bool:
        return self._prefix + key in self._header.metadata

    def _list(self, key: str) -> list[int]:
        values = self._header.integers(self._prefix + key)
        if any(not 0 <= value <= _MAX_SIZE for value in values):
            self.unknown.append(f"{self._prefix}{key} is no possible size")
            return []
        return values


def shape(header: GgufHeader, more: Sequence[GgufHeader] = (), table: Table | None = None) -> ModelShape:
    """Read the shape of a model. Never raises on what a readable header says; see `ModelShape.unknown`.

    Args:
        more: headers of the other parts of a split model.
        table: of the tensors of all parts, where it is known.
    """
    architecture, values = header.architecture, _Values(header)
    n_all = min(values.one("block_count"), MAX_LAYERS)
    if not n_all:
        values.unknown.append("the file does not say how many layers it has")
    n_layer = max(0, n_all - values.one("nextn_predict_layers"))
    n_embd = values.one("embedding_length")
    if table is None:
        table = table_of([tensor for part in (header, *more) for tensor in part.tensors])
    widths = table.widths(n_all)
    layers, mla = _layers(values, architecture, n_all, n_layer, n_embd, widths)
    if architecture not in KNOWN:
        values.unknown.append(f"the architecture {architecture or '(none)'} is not known; it is taken for a usual one")
    if architecture in SPECIAL:
        values.unknown.append(f"{architecture} keeps caches that are not counted here")
    return ModelShape(
        architecture=architecture,
        layers=layers,
        n_layer=n_layer,
        n_embd=n_embd,
        n_vocab=_vocabulary(header, more),
        n_ctx_train=values.one("context_length"),
        mla=mla,
        causal=bool(values.one("attention.causal", 1)),
        n_expert=values.one("expert_count"),
        expert_used=values.one("expert_used_count"),
        mla_head=values.one("attention.key_length_mla") if mla else 0,
        per_layer_embd=values.one("embedding_length_per_layer_input"),
        conv_kernel=values.one("ssm.conv_kernel"),
        d_inner=values.one("ssm.inner_size"),
        d_state=values.one("ssm.state_size"),
        n_group=values.one("ssm.group_count"),
        time_step_rank=values.one("ssm.time_step_rank"),
        unknown=tuple(dict.fromkeys(values.unknown)),
    )


def _layers(
    values: _Values, architecture: str, n_all: int, n_layer: int, n_embd: int, widths: Mapping[str, Sequence[int]]
) -> tuple[tuple[Layer, ...], bool]:
    heads = values.per_layer("attention.head_count", n_all, 0)
    kv_heads = values.per_layer("attention.head_count_kv", n_all, 0)
    if not values.has("attention.head_count_kv"):
        kv_heads = list(heads)
    ff = values.per_layer("feed_forward_length", n_all, 0)
    # llama.cpp derives a missing head size from the first layer
    usual = n_embd // heads[0] if heads and heads[0] else 0
    head_k, head_v = values.one("attention.key_length", usual), values.one("attention.value_length", usual)
    if not (heads and heads[0]) and any(heads):
        head_k = head_v = 0
        values.unknown.append("the first layer has no attention heads, so llama.cpp takes head sizes for 0")
    swa_k, swa_v = values.one("attention.key_length_swa", head_k), values.one("attention.value_length_swa", head_v)
    mla = bool(values.one("attention.key_length_mla") and values.one("attention.value_length_mla"))
    windows = _windows(values, architecture, n_all, n_layer)
    recurrent = _recurrent(values, architecture, n_all, kv_heads, ff)
    owners = _kv_owners(values, architecture, n_all)
    state = _state_size(values, architecture, n_embd, heads[0] if heads else 0, head_k)
    has_cache = architecture not in NO_MEMORY
    found = []
    alike: dict[tuple[int, ...], Layer] = {}  # most layers are: one object for all of them
    any_width = any(map(any, widths.values()))
    for i in range(n_all):
        k, v = (swa_k, swa_v) if windows[i] else (head_k, head_v)
        attends = kv_heads[i] > 0 and (not recurrent[i] or architecture == "falcon-h1")
        if architecture in NEMOTRON:
            attends = not recurrent[i] and ff[i] == 0
        runs = i < n_layer
        own = attends and has_cache and runs and i < owners
        values_of = (
            k * kv_heads[i] if own else 0,
            v * kv_heads[i] if own and not mla else 0,
            windows[i],
            state if recurrent[i] and runs else 0,
            attends and runs,
            owners - (2 if windows[i] else 1) if i >= owners >= 2 else -1,
            heads[i] if attends else 0,
            kv_heads[i] if attends else 0,
            k if attends else 0,
            v if attends else 0,
            widths["ffn_down"][i] if any_width else ff[i],
            widths["ffn_down_exps"][i],
            widths["ffn_down_shexp"][i],
        )
        layer = alike.get(values_of)
        if layer is None:
            layer = alike[values_of] = Layer(*values_of)
        found.append(layer)
    return tuple(found), mla


def distinct(layers: Iterable[Layer]) -> list[Layer]:
    """Each object once; layers of a kind are the same object. (Their hash takes longer than a look at the layer.)"""
    return list({id(layer): layer for layer in layers}.values())


def _kv_owners(values: _Values, architecture: str, n_all: int) -> int:
    """Layers from this one on use the cache of an earlier layer."""
    if architecture == "gemma3n":
        return min(n_all, 20)  # fixed in llama.cpp
    if architecture == "gemma4":
        return max(0, n_all - values.one("attention.shared_kv_layers"))
    return n_all


def _windows(values: _Values, architecture: str, n_all: int, n_layer: int) -> list[int]:
    """Window of each layer, 0 where it sees all."""
    none = [0] * n_all
    rule = WINDOWS.get(architecture)
    named = values.one("attention.sliding_window")
    if architecture in ("lfm2", "lfm2moe") and named:
        return [named] * n_layer + [0] * (n_all - n_layer)
    if rule is None:
        # phi3 and others name a window that llama.cpp does not use
        return none
    if architecture == "exaone4" and n_layer != 64:
        return none
    if architecture == "llama4" and values.has("attention.sliding_window") and not named:
        return none
    if architecture == "smallthinker" and not named:
        return none
    window = rule.fixed or named or rule.default
    if not window:
        return none
    key = "attention.sliding_window_pattern"
    if values.is_list(key):
        flags = values.per_layer(key, n_all, 0)
        return [window if flag and i < n_layer else 0 for i, flag in enumerate(flags)]
    period = values.one(key, rule.period) if values.has(key) else rule.period
    if not period:
        if rule.period == 0 and not values.has(key):
            values.unknown.append("the file does not say which layers have a sliding window")
            return none
        return [window] * n_layer + [0] * (n_all - n_layer)
    full_at = 0 if rule.full_first else period - 1
    return [window if i < n_layer and i % period != full_at else 0 for i in range(n_all)]


def _recurrent(values: _Values, architecture: str, n_all: int, kv_heads: list[int], ff: list[int]) -> list[bool]:
    if architecture in RECURRENT or architecture == "falcon-h1":
        return [True] * n_all
    if architecture in HYBRID_BY_HEADS:
        return [heads == 0 for heads in kv_heads]
    if architecture in NEMOTRON:
        return [heads == 0 and width == 0 for heads, width in zip(kv_heads, ff, strict=True)]
    if architecture in HYBRID_BY_INTERVAL:
        key = "attention.recurrent_layers"
        if values.has(key):
            return [bool(flag) for flag in values.per_layer(key, n_all, 0)]
        interval = values.one("full_attention_interval") or HYBRID_BY_INTERVAL[architecture]
        return [(i + 1) % interval != 0 for i in range(n_all)]
    if architecture not in KNOWN and values.one("ssm.inner_size"):
        return [heads == 0 for heads in kv_heads]
    return [False] * n_all


def _state_size(values: _Values, architecture: str, n_embd: int, n_head: int, head_k: int) -> int:
    """Numbers of recurrent state per layer and sequence (llama-hparams.cpp, n_embd_r + n_embd_s)."""
    wkv = values.one("wkv.head_size")
    if wkv:
        return values.one("token_shift_count", 2) * n_embd + n_embd * wkv
    cache = values.one("shortconv.l_cache")
    if cache:
        return n_embd * (cache - 1)
    kernel = values.one("ssm.conv_kernel")
    inner, size, groups = (values.one(f"ssm.{key}") for key in ("inner_size", "state_size", "group_count"))
    kda = values.one("kda.head_dim")
    if kda:
        return 3 * (kernel - 1 if kernel else 3) * n_head * kda + kda * kda * n_head
    conv = max(0, kernel - 1) * (inner + 2 * groups * size)
    if architecture == "minimax-01":
        return conv + head_k * head_k * n_head
    return conv + size * inner


def _vocabulary(header: GgufHeader, more: Sequence[GgufHeader]) -> int:
    """Rows of the output matrix."""
    for part in (header, *more):
        for tensor in part.tensors:
            if tensor.name in ("output.weight", "token_embd.weight") and len(tensor.dims) > 1:
                return tensor.dims[1]
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    return len(tokens) if isinstance(tokens, GgufArray) else header.of_architecture("vocab_size") or 0
