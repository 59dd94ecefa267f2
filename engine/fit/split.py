"""Dividing the layers between several devices by the room on each, as whole layers."""

from __future__ import annotations

from engine.fit.cache_size import cells, context_size, row_bytes
from engine.fit.room import Judge, Look, grows


def layer_bytes(judge: Judge, look: Look) -> list[int]:
    """Bytes that each layer and then the output layer take on a device: weights, cache, state."""
    model, options = judge.model, look.options
    shape = model.shape
    weights = model.weights(judge.devices[0].backend)
    size = context_size(
        shape,
        options.n_ctx,
        n_batch=options.n_batch,
        n_ubatch=options.n_ubatch,
        n_slots=options.n_slots,
        unified=options.kv_unified,
    )
    found = []
    for index, layer in enumerate(shape.layers):
        total = weights.layers[index] + (0 if index < options.n_cpu_moe else weights.experts[index])
        if options.offload_kqv:
            rows = cells(layer.window, size, options.swa_full) * size.streams
            total += rows * row_bytes(options.kv_type_k, layer.k_width) if layer.k_width else 0
            total += rows * row_bytes(options.kv_type_v, layer.v_width) if layer.v_width else 0
            total += layer.state * 4 * size.n_seq
        found.append(total)
    return [*found, weights.output + weights.tied]


def spread(judge: Judge, look: Look) -> list[tuple[float, ...]]:
    """Counts of layers per device, to be used as `tensor_split`: first in proportion to the room, then filled up one
    device after the other, each time from the first and with the small buffers of the others left alone."""
    wanted = look.needs.n_gpu_layers
    if wanted < 1:
        return []
    sizes = layer_bytes(judge, look)[-wanted:]
    rooms = []
    widest = max((fit.need.compute_bytes for fit in look.devices), default=0)
    for device, fit in zip(judge.devices, look.devices, strict=True):
        room = fit.free_bytes - fit.headroom_bytes - grows(device.backend) - widest
        rooms.append(max(0, room))
    total = sum(rooms)
    if not total:
        return []
    found = [_proportional(sizes, rooms), _filled(sizes, rooms), _filled_from_the_end(sizes, rooms)]
    return list(dict.fromkeys(tuple(float(n) for n in counts) for counts in found if any(counts)))


def _proportional(sizes: list[int], rooms: list[int]) -> list[int]:
    share = sum(sizes) / sum(rooms)
    return _divide(sizes, [room * share for room in rooms])


def _filled(sizes: list[int], rooms: list[int]) -> list[int]:
    return _divide(sizes, [float(room) for room in rooms])


def _filled_from_the_end(sizes: list[int], rooms: list[int]) -> list[int]:
    return _divide(sizes[::-1], [float(room) for room in rooms[::-1]])[::-1]


def _divide(sizes: list[int], targets: list[float]) -> list[int]:
    """Layers in order, each device up to its target; the last device takes what is left."""
    counts = [0] * len(targets)
    at, left = 0, targets[0]
    for size in sizes:
        while at < len(targets) - 1 and size > left:
            at += 1
            left = targets[at]
        counts[at] += 1
        left -= size
    return counts
