"""Sizes of KV caches and recurrent states.

Rules restated from llama.cpp (MIT; llama-kv-cache.cpp, llama-kv-cache-iswa.cpp, llama-memory-recurrent.cpp,
llama-context.cpp), revision 0c1e570.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.fit.layers import ModelShape
from engine.fit.placement import HOST, DeviceSpec, Placement, layout

#: type name -> (numbers per block, bytes per block)
KV_BLOCKS = {
    "f32": (1, 4),
    "f16": (1, 2),
    "bf16": (1, 2),
    "q8_0": (32, 34),
    "q5_1": (32, 24),
    "q5_0": (32, 22),
    "q4_1": (32, 20),
    "q4_0": (32, 18),
    "iq4_nl": (32, 18),
}
QUANTIZED_KV = frozenset(name for name, (block, _) in KV_BLOCKS.items() if block > 1)


@dataclass(frozen=True)
class ContextSize:
    """The context as llama.cpp rounds it.

    Attributes:
        n_ctx: all cells together; n_ctx_seq: of one sequence.
        streams: separate caches (one per sequence, or one for all).
        n_batch, n_ubatch: tokens per call and per graph.
        n_tokens: of the largest graph.
    """

    n_ctx: int
    n_ctx_seq: int
    streams: int
    n_seq: int
    n_batch: int
    n_ubatch: int
    n_tokens: int


def _pad(value: int, to: int) -> int:
    return -(-value // to) * to


def context_size(
    shape: ModelShape, n_ctx: int, *, n_batch: int, n_ubatch: int, n_slots: int, unified: bool
) -> ContextSize:
    """Round the wished context up. `n_ctx` above 0."""
    n_seq = max(1, n_slots)
    batch = min(n_ctx, n_batch) if shape.causal else n_batch
    ubatch = min(batch, n_ubatch or batch)
    total = _pad(n_ctx, 256)
    per_seq = total
    if not unified:
        per_seq = _pad(total // n_seq, 256)
        total = per_seq * n_seq
    return ContextSize(total, per_seq, 1 if unified else n_seq, n_seq, batch, ubatch, min(total, ubatch))


def cells(window: int, size: ContextSize, swa_full: bool) -> int:
    """Cells that a layer keeps in each stream."""
    if not window or swa_full:
        return size.n_ctx_seq
    wanted = window * (size.n_seq if size.streams == 1 else 1) + size.n_ubatch
    return _pad(min(size.n_ctx_seq, wanted), 256)


def row_bytes(kv_type: str, width: int) -> int:
    block, size = KV_BLOCKS[kv_type]
    return -(-width // block) * size


def _tensor_bytes(kv_type: str, width: int, rows: int, rule: tuple[int, int]) -> int:
    align, pad_row = rule
    size = rows * row_bytes(kv_type, width)
    if pad_row and kv_type in QUANTIZED_KV and width % pad_row:
        size += row_bytes(kv_type, pad_row - width % pad_row)
    return _pad(size, align)


def cache_by_device(
    shape: ModelShape,
    placement: Placement,
    devices: Sequence[DeviceSpec],
    size: ContextSize,
    *,
    kv_type_k: str,
    kv_type_v: str,
    flash: bool,
    swa_full: bool,
    offload: bool,
) -> list[int]:
    """Bytes of KV cache and recurrent state on each device, then on the host."""
    found = [0] * (len(devices) + 1)
    rules = [layout(device.backend) for device in devices] + [layout("CPU")]
    # without flash attention V is kept transposed, as wide as that of the widest layer
    widest = 0 if flash else max((layer.v_width for layer in shape.layers), default=0)
    alike: dict[tuple[int, int], int] = {}  # most layers are: one answer for all of them on a device
    for layer, device in zip(shape.layers, placement.devices, strict=False):
        at = device if offload else HOST
        taken = alike.get((id(layer), at))
        if taken is None:
            taken = 0
            if layer.k_width:
                rows = cells(layer.window, size, swa_full) * size.streams
                taken = _tensor_bytes(kv_type_k, layer.k_width, rows, rules[at])
                if layer.v_width:
                    taken += _tensor_bytes(kv_type_v, widest or layer.v_width, rows, rules[at])
            if layer.state:
                taken += _pad(layer.state * 4 * size.n_seq, rules[at][0])
            alike[id(layer), at] = taken
        found[at] += taken
    return found
