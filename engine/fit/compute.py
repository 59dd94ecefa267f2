"""Size of the compute buffers: what llama.cpp sets aside on each device to work through one batch.

llama.cpp lays out the graph of the largest batch and its allocator reuses what is no longer needed, so the size is that
of the widest moment, not a sum. Here it is the largest of a few moments of a layer, each written as the tensors
alive in it; measured against llama.cpp's own layout (tests/phantom, tests/bench/fit_truth.py), full offload of
usual models is met to the byte and everything else from above. Rules restated from llama.cpp (MIT; llama-graph.cpp,
llama-context.cpp, ggml-backend.cpp, ggml-cuda.cu), revision 0c1e570.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from engine.fit.cache_size import ContextSize
from engine.fit.compute_sizes import NO_OP_OFFLOAD, Settings, Sizes
from engine.fit.layers import Layer, ModelShape, distinct
from engine.fit.placement import HOST, DeviceSpec, Model, Placement, usable

#: head sizes with flash attention on NVIDIA: K size -> (V size, K heads share at least so many Q heads)
_FLASH_HEADS = {
    **{size: (size, 1) for size in (40, 64, 72, 80, 96, 112, 128, 256)},
    192: (128, 8),
    320: (256, 32),
    512: (512, 2),
    576: (512, 2),
}
#: copies of each graph input where several devices work in turn (GGML_SCHED_MAX_COPIES)
_PIPELINE_COPIES = 4
#: batches of fewer tokens stay where the weights are (GGML_OP_OFFLOAD_MIN_BATCH)
_OFFLOAD_MIN_BATCH = 32
_NO_FLASH = frozenset(("grok",))


def uses_flash(
    model: Model, wish: Literal["auto", "on", "off"], devices: Sequence[DeviceSpec], placement: Placement
) -> bool:
    """Whether llama.cpp would compute attention without its whole matrix.

    "auto" is switched off for all layers as soon as one layer's device cannot do it.
    """
    if wish == "off" or model.shape.architecture in _NO_FLASH:
        return False
    if wish == "on":
        return True
    cuda = {index for index, device in enumerate(devices) if device.backend.upper() == "CUDA"}
    there = [layer for layer, at in zip(model.shape.layers, placement.devices, strict=False) if at in cuda]
    if any(layer.attends and not _cuda_flash(layer) for layer in distinct(there)):
        return False
    return _hybrid_keeps_flash(model.shape, placement)


def _cuda_flash(layer: Layer) -> bool:
    known = _FLASH_HEADS.get(layer.head_k)
    if known is None:
        return False
    head_v, share = known
    return layer.head_v == head_v and layer.n_head // max(1, layer.n_head_kv) % share == 0


def _hybrid_keeps_flash(shape: ModelShape, placement: Placement) -> bool:
    """In a hybrid of short convolutions and attention the attention of the last host layer lands on the GPU, which
    llama.cpp takes for "not supported"."""
    if not shape.architecture.startswith("lfm2"):
        return True
    host = [i for i, at in enumerate(placement.devices[:-1]) if at == HOST]
    return not host or len(host) == len(shape.layers) or not shape.layers[host[-1]].attends


def compute_by_device(
    model: Model, placement: Placement, devices: Sequence[DeviceSpec], size: ContextSize, settings: Settings
) -> list[int]:
    """Bytes of compute buffer on each device, then on the host; never below llama.cpp's where the shape is known."""
    sizes = Sizes(model.shape, model.weights("CPU"), size, settings)
    use = [index for index, used in enumerate(usable(devices)) if used]
    helper = _helper(use, devices, settings)
    found = [0] * (len(devices) + 1)
    pipelined = len(use) > 1 and placement.everything and settings.offload_kqv and not placement.n_cpu_moe
    for index in use:
        found[index] = _on_device(sizes, placement, devices, index, pipelined)
    if helper is not None:
        found[helper] = max(found[helper], _for_host(sizes, model, placement, helper, devices[helper]))
    found[HOST] = _on_host(sizes, placement, helper is not None, pipelined)
    return found


def _helper(use: list[int], devices: Sequence[DeviceSpec], settings: Settings) -> int | None:
    """The device that works through prompts for layers whose weights lie on the host."""
    if use and settings.op_offload and devices[use[0]].backend.upper() not in NO_OP_OFFLOAD:
        return use[0]
    return None


def _on_device(sizes: Sizes, placement: Placement, devices: Sequence[DeviceSpec], index: int, pipelined: bool) -> int:
    layers = distinct([layer for layer, at in zip(sizes.shape.layers, placement.devices, strict=False) if at == index])
    has_output = placement.devices[-1] == index
    if not layers and not has_output:
        return 0
    device = devices[index]
    peak, copies = 0, 2 * _PIPELINE_COPIES if pipelined else 3 if sizes.settings.offload_kqv else 2
    for layer in layers:
        elsewhere = not sizes.settings.offload_kqv or (layer.source >= 0 and placement.devices[layer.source] != index)
        peak = max(peak, sizes.layer(layer, device, copies * sizes.cache_copy(layer, hole=False) if elsewhere else 0))
    before = placement.devices[placement.devices.index(index) - 1] if placement.devices[0] != index else index
    entry = 0
    if not sizes.settings.offload_kqv or (before == HOST and not pipelined):
        entry = sizes.entry(layers[0] if layers else None)
        if not layers:
            entry += max((sizes.routed(layer)[1] for layer in sizes.shape.layers), default=0)
    peak += entry
    inputs = sizes.mask(layers)
    if pipelined:
        inputs = _PIPELINE_COPIES * (inputs + sizes.crossing(layers, placement.devices[0] == index, has_output))
    total = peak + inputs + sizes.extra
    if has_output:
        # masks are no longer needed when the logits are made, unless they are kept for the next batch
        left = sizes.left_of(layers) + entry + (inputs if pipelined else 0)
        if sizes.extra:
            left = total
        total = max(total, sizes.logits + 2 * sizes.output + left)
    return total + sizes.slack * (_PIPELINE_COPIES if pipelined else 1)


def _for_host(sizes: Sizes, model: Model, placement: Placement, index: int, device: DeviceSpec) -> int:
    """What the first device needs to work on a prompt with weights that lie on the host: a copy of one matrix at a
    time, and of one layer's K and V."""
    weights = model.weights(device.backend)
    total = 0
    parts_here = HOST in placement.devices[: sizes.shape.n_layer] or placement.n_cpu_moe > 0
    if parts_here and sizes.tokens >= _OFFLOAD_MIN_BATCH:
        layers = list(zip(sizes.shape.layers[: sizes.shape.n_layer], placement.devices, weights.largest, strict=False))
        around = (0, 0)
        first = placement.devices[:2].count(HOST) == 1
        for layer, at, largest in layers:
            if at == HOST and layer.attends:
                taken = sizes.host_attention(layer, largest, device, first=first)
                around = max(around, (taken, sizes.cache_copy(layer, hole=False)))
        total = around[0]
        for i, (layer, at, largest) in enumerate(layers):
            if at == HOST:
                total = max(total, sizes.host_dense(layer, largest, around))
            if largest["expert_inner"] and (at == HOST or i < placement.n_cpu_moe):
                before = max(around, _scratch_around(sizes, layer, device))
                foreign = at not in (HOST, index)
                total = max(total, sizes.host_experts(layer, largest, before, foreign=foreign))
        if total:
            total += total // 20 + sizes.mask(sizes.shape.layers[: sizes.shape.n_layer]) + sizes.extra
    if placement.devices[-1] == HOST and sizes.settings.n_outputs >= _OFFLOAD_MIN_BATCH:
        left = 2 * sizes.left_of(distinct(sizes.shape.layers))
        total = max(total, weights.output_matrix + sizes.logits + 2 * sizes.output + left)
    return total + sizes.slack if total else 0


def _scratch_around(sizes: Sizes, layer: Layer, device: DeviceSpec) -> tuple[int, int]:
    """An attention on the device whose scratch for a quantized cache leaves a hole, as copies of a cache do."""
    scratch = sizes.scratch(layer) if layer.attends and sizes.settings.flash else 0
    return (sizes.attention(layer, on=device), scratch) if scratch else (0, 0)


def _on_host(sizes: Sizes, placement: Placement, helped: bool, pipelined: bool) -> int:
    layers = sizes.shape.layers[: sizes.shape.n_layer]
    mask, every = sizes.mask(layers), distinct(layers)
    if pipelined:
        return _PIPELINE_COPIES * (mask + sizes.slack) + 5 * sizes.embd + sizes.per_layer
    on_host = distinct([layer for layer, at in zip(layers, placement.devices, strict=False) if at == HOST])
    cache_here = on_host if sizes.settings.offload_kqv else every
    inputs = mask + 2 * sizes.embd + sizes.per_layer
    if helped:
        inputs += max((sizes.at_cache(layer) for layer in cache_here), default=0)
        total = inputs
    else:
        working = every if placement.n_cpu_moe else on_host
        total = inputs + max((sizes.layer(layer, None) for layer in working), default=0)
        total += sizes.extra - sizes.per_layer if working else 0
        if on_host and placement.on_gpu:
            total += sizes.embd
        if not sizes.settings.offload_kqv:
            total += max((sizes.attention(layer, on=None) for layer in every), default=0)
    if placement.devices[-1] == HOST and (not helped or sizes.settings.n_outputs < _OFFLOAD_MIN_BATCH):
        left = sizes.left_of(on_host) if not helped else 0
        total = max(total, sizes.logits + 2 * sizes.output + inputs + left)
    return total + sizes.slack
