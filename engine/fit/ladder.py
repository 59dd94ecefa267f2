"""The ladder: what to give up for room, in the order of what it costs the user.

Each rung looks at the way of loading so far and offers the next one, or nothing where it does not apply, where the user
has chosen, or where it would save nothing. What is free of charge comes first, then what costs a trace of quality,
then what costs speed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from engine.fit.cache_size import QUANTIZED_KV
from engine.fit.placement import Model
from engine.fit.plan_records import MIB, Step, Wishes
from engine.fit.room import Judge, Look
from engine.fit.split import spread

#: contexts the planner chooses from where none is wished, the comfortable one first
COMFORT_CONTEXT, LEAST_CONTEXT, MOST_CONTEXT = 8192, 4096, 32768
SMALL_UBATCH = 256


@dataclass(frozen=True)
class Climbed:
    """Where the ladder ended, and by which steps."""

    look: Look
    steps: tuple[Step, ...]


Rung = Callable[[Judge, Wishes, Look], "tuple[Look, Step] | None"]


def climb(judge: Judge, wishes: Wishes, look: Look) -> Climbed:
    """Go down from `look` rung by rung until it fits, or to the end."""
    steps: list[Step] = []
    for rung in RUNGS:
        if look.fits:
            break
        found = rung(judge, wishes, look)
        if found is not None:
            look, step = found
            steps.append(step)
    return Climbed(look, tuple(steps))


def saved(before: Look, after: Look) -> int:
    """Bytes saved where they are short: on the devices, or on the host where the devices have enough."""
    if before.device_short:
        return max(0, before.on_devices - after.on_devices)
    return max(0, before.everything - after.everything)


def helps(before: Look, after: Look) -> bool:
    """The step reduces what is missing (one without memory of its own cannot be worse on a device)."""
    return (after.device_short, after.host_short) < (before.device_short, before.host_short)


# ------------------------------------------------------------------ free of charge


def flash_attention(judge: Judge, wishes: Wishes, look: Look) -> tuple[Look, Step] | None:
    """Insist on flash attention where llama.cpp would drop it although the devices can do it."""
    if wishes.flash_attention is not None or look.needs.flash_attention:
        return None
    if not judge.look(replace(look.options, n_gpu_layers=judge.n_layers)).needs.flash_attention:
        return None
    after = judge.look(replace(look.options, flash_attention="on"))
    if not helps(look, after):
        return None
    why = "llama.cpp would switch it off for this placement, and then keep the whole attention matrix in memory."
    return after, Step("Flash attention on", why, saved(look, after))


def free_steps(judge: Judge, wishes: Wishes, look: Look) -> tuple[Step, ...]:
    """What is won at no cost compared with llama.cpp's plain settings; only to be told, it is in `look` already."""
    found = []
    if wishes.flash_attention is None and look.needs.flash_attention and look.options.kv_type_v not in QUANTIZED_KV:
        gain = judge.look(replace(look.options, flash_attention="off")).everything - look.everything
        if gain >= MIB:
            why = "The attention matrix is never kept whole; the answers are the same."
            found.append(Step("Flash attention", why, gain))
    windowed = [layer for layer in judge.model.shape.layers if layer.window and layer.k_width]
    if wishes.swa_full is None and windowed:
        gain = judge.look(replace(look.options, swa_full=True)).everything - look.everything
        if gain >= MIB:
            why = (
                f"{len(windowed)} layers look back on {max(layer.window for layer in windowed)} tokens only, "
                "so no more is kept for them."
            )
            found.append(Step("Sliding-window cache", why, gain))
    return tuple(found)


def other_split(judge: Judge, wishes: Wishes, look: Look) -> tuple[Look, Step] | None:
    """Divide the layers by the room that each device has, not by its free memory alone."""
    after = _divided(judge, wishes, look)
    if after is look:
        return None
    why = "By free memory alone one of the devices would be too full."
    return after, Step("Layers divided by the room on each device", why, saved(look, after))


# ------------------------------------------------------------------ a trace of quality


def may_quantize_kv(model: Model, wishes: Wishes, look: Look) -> bool:
    """A cache in 8 bits is possible, and the user has not chosen another."""
    if (wishes.kv_type_k, wishes.kv_type_v) != (None, None) or look.options.kv_type_k != "f16":
        return False
    layers = [layer for layer in model.shape.layers if layer.k_width]
    widths = {width for layer in layers for width in (layer.head_k, layer.head_v) if width}
    return bool(layers) and look.needs.flash_attention and not any(width % 32 for width in widths)


def kv_q8(judge: Judge, wishes: Wishes, look: Look) -> tuple[Look, Step] | None:
    """KV cache in 8 bits: less loss than that of Q8_0 weights, half the size."""
    if not may_quantize_kv(judge.model, wishes, look):
        return None
    after = judge.look(replace(look.options, kv_type_k="q8_0", kv_type_v="q8_0"))
    if not helps(look, after) or not after.needs.flash_attention:
        return None
    why = "It takes about half the memory; the loss is smaller than that of Q8_0 weights."
    return after, Step("KV cache in q8_0", why, saved(look, after))


def small_ubatch(judge: Judge, wishes: Wishes, look: Look) -> tuple[Look, Step] | None:
    if wishes.n_ubatch is not None or look.options.n_ubatch <= SMALL_UBATCH:
        return None
    after = judge.look(replace(look.options, n_ubatch=SMALL_UBATCH))
    if not helps(look, after):
        return None
    why = "The prompt is read in smaller pieces: somewhat slower, with smaller buffers."
    return after, Step(f"Prompt in pieces of {SMALL_UBATCH}", why, saved(look, after))


def less_context(judge: Judge, wishes: Wishes, look: Look) -> tuple[Look, Step] | None:
    """Down to the least comfortable context, where no context was wished."""
    if wishes.n_ctx is not None or look.options.n_ctx <= LEAST_CONTEXT:
        return None
    after = look
    for n_ctx in range(look.options.n_ctx - 1024, LEAST_CONTEXT - 1, -1024):
        after = judge.look(replace(look.options, n_ctx=n_ctx))
        if after.fits:
            break
    if not helps(look, after):
        return None
    why = f"{look.options.n_ctx} tokens would not fit."
    return after, Step(f"Context of {after.options.n_ctx} tokens", why, saved(look, after))


# ------------------------------------------------------------------ speed


def experts_to_cpu(judge: Judge, wishes: Wishes, look: Look) -> tuple[Look, Step] | None:
    """Experts of the first layers to the host: few of them are used for a token."""
    shape = judge.model.shape
    if wishes.n_cpu_moe is not None or not shape.n_expert or not look.device_short or wishes.n_gpu_layers == 0:
        return None

    def at(n_cpu_moe: int) -> Look:
        return _divided(judge, wishes, judge.look(replace(look.options, n_cpu_moe=n_cpu_moe)))

    moved = _least(1, shape.n_layer, lambda n: not at(n).device_short)
    after = at(shape.n_layer if moved is None else moved)
    if not helps(look, after):
        return None
    n_moved = after.options.n_cpu_moe
    why = f"Only {shape.expert_used} of {shape.n_expert} experts work on a token, so this costs less speed than layers."
    return after, Step(f"Experts of {n_moved} of {shape.n_layer} layers on the CPU", why, saved(look, after))


def layers_to_cpu(judge: Judge, wishes: Wishes, look: Look) -> tuple[Look, Step] | None:
    if wishes.n_gpu_layers is not None or not look.device_short:
        return None
    after = most_layers(judge, wishes, look)
    if after is None:
        return None
    n_host = judge.n_layers - after.needs.n_gpu_layers
    why = "They are computed there: slower, and the more so the more there are."
    return after, Step(f"{n_host} of {judge.n_layers} layers on the CPU", why, saved(look, after))


def most_layers(judge: Judge, wishes: Wishes, look: Look) -> Look | None:
    """The look with the most layers on devices that fits there; None: not even with none."""
    best = _most(judge, look, ())
    can_split = not wishes.tensor_split and len(judge.devices) > 1
    if can_split:
        # a division by room can hold more than that by free memory; the last device also holds the output
        low = best.needs.n_gpu_layers if best else 0
        found = _largest(low + 1, judge.n_layers, lambda n: _spread_fits(judge, look, n) is not None)
        if found is not None:
            best = _spread_fits(judge, look, found) or best
    if (best is None or not best.needs.n_gpu_layers) and look.options.op_offload:
        # what helps with prompts takes room that one layer could have
        plain = _most(judge, look, (), op_offload=False)
        if plain is not None and (best is None or plain.needs.n_gpu_layers):
            best = plain
    return best


def _most(judge: Judge, look: Look, split: tuple[float, ...], op_offload: bool | None = None) -> Look | None:
    options = replace(look.options, tensor_split=split or look.options.tensor_split)
    if op_offload is not None:
        options = replace(options, op_offload=op_offload)

    def at(n: int) -> Look:
        return judge.look(replace(options, n_gpu_layers=n))

    if not at(judge.n_layers).device_short:
        return at(judge.n_layers)
    found = _largest(0, judge.n_layers - 1, lambda n: not at(n).device_short)
    return None if found is None else at(found)


def _spread_fits(judge: Judge, look: Look, n_gpu_layers: int) -> Look | None:
    found = _divided(judge, Wishes(), judge.look(replace(look.options, n_gpu_layers=n_gpu_layers)))
    return None if found.device_short else found


def _divided(judge: Judge, wishes: Wishes, look: Look) -> Look:
    """The same layers over several devices as they fit; `look` itself where no division does."""
    if not look.device_short or wishes.tensor_split or len(judge.devices) < 2:
        return look
    for shares in spread(judge, look):
        after = judge.look(replace(look.options, tensor_split=shares))
        if not after.device_short:
            return after
    return look


def _largest(low: int, high: int, good: Callable[[int], bool]) -> int | None:
    """The largest number that is good, where smaller ones are good too; None: not even `low`.

    Sizes do not always grow with the number (a layer of another kind moves to another device), so the next few are
    tried as well.
    """
    if low > high or not good(low):
        # an exception near the bottom: the buffers for the host's share may be what does not fit
        return next((n for n in range(low + 1, min(low + 3, high) + 1) if good(n)), None)
    bottom, top = low, high + 1
    while top - bottom > 1:
        middle = (bottom + top) // 2
        if good(middle):
            bottom = middle
        else:
            top = middle
    return next((n for n in range(min(bottom + 3, high), bottom, -1) if good(n)), bottom)


def _least(low: int, high: int, good: Callable[[int], bool]) -> int | None:
    if low > high or not good(high):
        return None
    while low < high:
        middle = (low + high) // 2
        if good(middle):
            high = middle
        else:
            low = middle + 1
    return low


RUNGS: tuple[Rung, ...] = (
    flash_attention,
    other_split,
    kv_q8,
    small_ubatch,
    less_context,
    experts_to_cpu,
    layers_to_cpu,
)
