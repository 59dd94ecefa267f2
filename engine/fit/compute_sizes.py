"""Sizes of the tensors of one batch and of the moments at which many of them are alive: the parts that `compute` puts
together. All in bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.fit.cache_size import QUANTIZED_KV, ContextSize, cells, row_bytes
from engine.fit.layers import Layer, ModelShape, distinct
from engine.fit.placement import DeviceSpec, Weights

#: these compute on a GPU only what lies there; the others also take over the host's share of a prompt
NO_OP_OFFLOAD = frozenset(("RPC", "CPU"))
#: alignment of the tensors in a buffer and the small ones among them: fixed, and for each token of the batch
_SLACK, _SLACK_PER_TOKEN = 96 * 1024, 64
#: architectures whose attention has sinks, which keep a second copy of the matrix of weights where it is not flash
_SINKS = frozenset(("gpt-oss",))


@dataclass(frozen=True)
class Settings:
    """What the buffers depend on beside the model and the context. `n_outputs`: tokens per batch with logits."""

    kv_type_k: str
    kv_type_v: str
    flash: bool
    swa_full: bool
    offload_kqv: bool
    op_offload: bool
    n_outputs: int


class Sizes:
    """Bytes of the tensors of one batch."""

    def __init__(self, shape: ModelShape, weights: Weights, size: ContextSize, settings: Settings) -> None:
        self.shape, self.size, self.settings = shape, size, settings
        self.tokens = size.n_tokens
        self.embd = 4 * self.tokens * shape.n_embd
        has_logits = weights.output_matrix > 0
        self.logits = 4 * settings.n_outputs * shape.n_vocab if has_logits else 0
        self.output = 4 * settings.n_outputs * shape.n_embd
        self.slack = _SLACK + _SLACK_PER_TOKEN * self.tokens
        self.per_layer = 4 * self.tokens * shape.per_layer_embd * len(shape.layers)
        # Gemma 3n keeps several versions of each token's state beside
        self.extra = self.per_layer + (8 * self.embd if shape.architecture == "gemma3n" else 0)

    def kv_cells(self, layer: Layer) -> int:
        """Cells that one token looks at."""
        if not layer.k_width and not layer.v_width and not self._cached:
            return self.tokens
        return cells(layer.window, self.size, self.settings.swa_full)

    @property
    def _cached(self) -> bool:
        return any(layer.k_width for layer in self.shape.layers)

    def at_cache(self, layer: Layer) -> int:
        """What the host holds beside the inputs where a device works but the cache of the layer is here."""
        if layer.state:
            return self.recurrence(layer) // 2 + self.embd
        width = layer.n_head * layer.head_k + 3 * layer.n_head_kv * layer.head_k
        return max(0, 4 * self.tokens * width - self.embd) if layer.attends and not self.shape.mla else self.embd

    def mask(self, layers: Sequence[Layer]) -> int:
        """Attention masks of these layers: one for full, one for windowed attention. With flash attention off also
        the positions that the transposed V cache is written to."""
        bytes_each = 2 if self.settings.flash else 4
        per_stream = self.tokens if self.size.streams == 1 else -(-self.tokens // self.size.streams)
        total = 0
        seen: dict[bool, int] = {}
        for layer in distinct(layers):
            if layer.attends:
                widest = self.kv_cells(layer) * per_stream * self.size.streams * bytes_each
                if not self.settings.flash and self._cached:
                    widest += 8 * self.tokens * layer.v_width
                seen[bool(layer.window)] = max(seen.get(bool(layer.window), 0), widest)
        total = sum(seen.values())
        if self.settings.kv_type_k in QUANTIZED_KV or self.settings.kv_type_v in QUANTIZED_KV:
            total += len(seen) * 2 * 4 * 256 * 256  # rotations before quantizing
        return total

    def query(self, layer: Layer) -> int:
        head = max(layer.head_k, layer.head_v) if not self.shape.mla else self.shape.mla_head
        return 4 * self.tokens * layer.n_head * head

    def feed_forward(self, layer: Layer) -> int:
        query = self.query(layer) if layer.attends else self.embd
        dense = 3 * 4 * self.tokens * layer.n_ff
        return max(dense, self.experts(layer)) + 2 * self.embd + max(query, self.embd)

    def routed(self, layer: Layer) -> tuple[int, int]:
        """Results of the experts of all tokens, inside and behind them."""
        each = 4 * self.tokens * self.shape.expert_used if layer.n_ff_exp else 0
        return each * layer.n_ff_exp, each * self.shape.n_embd

    def experts(self, layer: Layer) -> int:
        inner, outer = self.routed(layer)
        total = 3 * inner + (outer if outer > 2 * inner else 0)
        if layer.n_ff_shexp:
            total += self.embd + 4 * self.tokens * layer.n_ff_shexp
        return total

    def entry(self, layer: Layer | None) -> int:
        """What comes on top where the work comes from the host: inputs that are copies."""
        inner, outer = self.routed(layer) if layer else (0, 0)
        return 3 * self.embd + (outer if outer <= 2 * inner else 0)

    def crossing(self, layers: Sequence[Layer], first: bool, last: bool) -> int:
        """Tensors that pass from one device to the next while both work on different batches."""
        if self.extra:
            return (1 if first else 2) * self.extra + 6 * self.embd
        if any(layer.state for layer in layers):
            return self.embd * (3 if first else 6 if last else 8)
        return self.embd * ((1 if first else 2) + (1 if self.shape.mla else 0))

    def attention(self, layer: Layer, *, on: DeviceSpec | None, copied: int = 0) -> int:
        """Widest moment of the attention itself.

        Args:
            on: the device it is computed on, None: the host.
            copied: bytes of K and V that have to be brought there first.
        """
        if not layer.attends:
            return 0
        settings, n_kv = self.settings, self.kv_cells(layer)
        query = self.query(layer)
        total = 2 * self.embd + 2 * query + copied
        if self.shape.mla:  # compressed queries and results are as wide as the cache
            wide = 4 * self.tokens * layer.n_head * layer.head_k
            total = 4 * self.embd + 3 * wide + copied
        per_stream = -(-self.tokens // self.size.streams)
        if not settings.flash:
            return (
                total
                + (5 if self.shape.mla else 1) * self.embd
                + 4 * layer.n_head * n_kv * per_stream * self.size.streams
            )
        if on is not None and on.backend.upper() not in NO_OP_OFFLOAD and (scratch := self.scratch(layer)):
            total += scratch + self.embd + 4 * self.tokens * layer.n_head_kv * (layer.head_k + layer.head_v)
        return total

    def scratch(self, layer: Layer) -> int:
        """Copies of one layer's K and V in 16 bits, as NVIDIA's flash attention wants them."""
        rows, total = 2 * self.kv_cells(layer) * self.size.streams, 0
        if self.settings.kv_type_k != "f16":
            total += rows * layer.head_k * layer.n_head_kv
        if self.settings.kv_type_v != "f16" and not self.shape.mla:
            total += rows * layer.head_v * layer.n_head_kv
        return total

    def recurrence(self, layer: Layer) -> int:
        """Widest moment of a state-space or linear-attention layer."""
        if not layer.state:
            return 0
        shape = self.shape
        inner = 4 * self.tokens * max(shape.d_inner, shape.n_embd)
        mixed = 4 * self.tokens * 2 * shape.n_group * shape.d_state
        kept = 2 * 4 * layer.state * self.size.n_seq
        return 6 * inner + 2 * mixed + kept + self.embd

    def layer(self, layer: Layer, on: DeviceSpec | None, copied: int = 0) -> int:
        return max(self.feed_forward(layer), self.attention(layer, on=on, copied=copied), self.recurrence(layer))

    def left_of(self, layers: Sequence[Layer]) -> int:
        """What may still be in the way when the logits of many tokens are made: holes too small for them."""
        flat = max((max(self.feed_forward(layer), self.recurrence(layer)) for layer in layers), default=0)
        hybrid = any(layer.state for layer in layers) and self.shape.expert_used
        return flat if hybrid else flat // 2

    def cache_copy(self, layer: Layer, *, hole: bool) -> int:
        """Room for K and V of one layer where they lie on another device than the work is done on.

        Args:
            hole: copies of several layers follow each other; where all are of one size, the allocator leaves a hole.
        """
        rows = self.kv_cells(layer) * self.size.streams
        k = rows * row_bytes(self.settings.kv_type_k, layer.head_k * layer.n_head_kv)
        v = k if self.shape.mla else rows * row_bytes(self.settings.kv_type_v, layer.head_v * layer.n_head_kv)
        total = k + v
        if hole and not self.windowed:
            total += k if self.shape.mla else (k + v) // 2
        return 3 * total if layer.source >= 0 and hole else total

    @property
    def windowed(self) -> bool:
        return any(layer.window for layer in self.shape.layers)

    def host_attention(self, layer: Layer, largest: dict[str, int], device: DeviceSpec, *, first: bool) -> int:
        """Widest moment of an attention whose cache and matrices are copied from the host.

        Args:
            largest: the layer's largest matrices (`Weights.largest`).
            first: no other layer lies there.
        """
        brought = self.cache_copy(layer, hole=not first)
        total = self.attention(layer, on=device, copied=brought) + largest["attention"] + self.entry(layer)
        return 2 * total if self.shape.architecture in _SINKS and not self.settings.flash else total

    def host_experts(self, layer: Layer, largest: dict[str, int], around: tuple[int, int], *, foreign: bool) -> int:
        """Widest moment of experts whose matrices are copied from the host one by one.

        Args:
            around: size of the attention before, and the room in it that is free again for a matrix.
            foreign: the layer itself lies on yet another device; then two matrices are there at once.
        """
        query = max(self.query(layer), self.embd)
        inner, outer = self.routed(layer)
        two = largest["expert_inner"] if self._hybrid else 0
        beside = inner + outer + two + 5 * self.embd + query
        total = max(largest["expert_inner"] + self.feed_forward(layer), _beside(largest["expert_down"], beside, around))
        if foreign:
            total = max(total, largest["expert_inner"] + largest["expert_down"] + 3 * self.embd + query)
        return total

    def host_dense(self, layer: Layer, largest: dict[str, int], around: tuple[int, int]) -> int:
        """The same of the other matrices of a layer that lies on the host."""
        query = max(self.query(layer), self.embd)
        beside = 4 * self.tokens * layer.n_ff + 4 * self.embd + query
        recurrence = self.recurrence(layer) + largest["inner"] + self.entry(layer) if layer.state else 0
        return max(
            recurrence,
            largest["inner"] + self.feed_forward(layer) + 2 * self.embd,
            _beside(largest["down"], beside, around),
        )

    @property
    def _hybrid(self) -> bool:
        return any(layer.state for layer in self.shape.layers)


def _beside(matrix: int, beside: int, around: tuple[int, int]) -> int:
    """A matrix that does not fit where the copied cache was comes on top of all that the attention took."""
    attention, room = around
    return matrix + (max(beside, attention) if matrix > room else beside)
