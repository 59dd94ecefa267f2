"""Verdicts for long lists of files: one or two looks by formula each, about a millisecond.

The plan of the one file that is chosen in the end is made by `engine.fit.planner`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.fit import ladder, speed
from engine.fit.choice import choose
from engine.fit.needs import LoadOptions
from engine.fit.placement import prepare
from engine.fit.plan_records import Machine, SpeedRange, Verdict, Wishes
from engine.fit.planner import comfortable_context, verdict_of
from engine.fit.room import Judge, Look
from engine.models import quant
from engine.models.gguf_header import GgufHeader

_NO_SPEED = SpeedRange()


@dataclass(frozen=True)
class Judged:
    """The short answer. `n_gpu_layers` of `n_layers` is an estimate where the verdict is "split"."""

    verdict: Verdict
    n_gpu_layers: int
    n_layers: int
    n_ctx: int
    missing_bytes: int = 0
    speed: SpeedRange = _NO_SPEED


def judge(
    header: GgufHeader,
    machine: Machine,
    wishes: Wishes | None = None,
    *,
    more: Sequence[GgufHeader] = (),
    size_bytes: int = 0,
    label: str = "",
    ratios: speed.Ratios | None = None,
) -> Judged:
    """The verdict of one file.

    Args:
        size_bytes: of another quantization of the same model, which is judged then, its header not being at hand.
        label: its quantization; empty: the header's own.
    """
    wishes = wishes or Wishes()
    model = prepare(header, more)
    devices, _ = choose(machine, wishes)
    own = sum(tensor.n_bytes for tensor in model.tensors) if size_bytes else 0
    scale = size_bytes / own if own else 1.0
    judged = Judge(model, machine, devices, weight_scale=scale)
    options = LoadOptions(
        n_ctx=wishes.n_ctx or comfortable_context(model), n_gpu_layers=judged.n_layers, n_slots=wishes.n_slots
    )
    look = judged.look(options)
    if not look.fits:
        look = _smaller(judged, wishes, look)
    layers = look.needs.n_gpu_layers
    verdict = verdict_of(look, judged)
    if look.device_short and verdict == "too_large":
        layers = _layers_that_fit(judged, look)
        host = look.host.need.total_bytes + look.on_devices * (1 - layers / judged.n_layers)
        fits = host + look.host.headroom_bytes <= look.host.free_bytes
        verdict = ("split" if layers else "cpu") if fits else "too_large"
    missing = 0 if verdict != "too_large" else max(1, look.over_bytes - look.host.free_bytes)
    estimate = _speed(judged, replace(look.options, n_gpu_layers=layers), look, label or _label(header), scale, ratios)
    return Judged(verdict, layers, judged.n_layers, look.needs.n_ctx, missing, estimate)


def _smaller(judged: Judge, wishes: Wishes, look: Look) -> Look:
    """All that costs no speed, at once."""
    options = look.options
    if ladder.may_quantize_kv(judged.model, wishes, look):
        options = replace(options, kv_type_k="q8_0", kv_type_v="q8_0")
    if wishes.n_ctx is None:
        options = replace(options, n_ctx=min(options.n_ctx, ladder.LEAST_CONTEXT))
    return judged.look(replace(options, n_ubatch=ladder.SMALL_UBATCH))


def _layers_that_fit(judged: Judge, look: Look) -> int:
    """By proportion: what is on the devices grows about evenly with the layers, the buffers stay."""
    fixed = sum(fit.need.compute_bytes + fit.need.overhead_bytes for fit in look.devices)
    room = sum(max(0, fit.free_bytes - fit.headroom_bytes) for fit in look.devices) - fixed
    weights = judged.model.weights(judged.devices[0].backend)
    # a partial load has room for one matrix of the host's share beside, when prompts are read
    matrices = (size for layer in weights.largest for size in layer.values())
    beside = max(matrices, default=0) if look.options.op_offload else 0
    output = weights.output + weights.tied
    each = (look.on_devices - fixed - output) / max(1, judged.n_layers - 1)
    left = room - beside - output
    if left < 0 or each <= 0:
        return 0
    return min(judged.n_layers - 1, 1 + int(left / each))


def _label(header: GgufHeader) -> str:
    return quant.FILE_TYPES.get((header.integer("general.file_type") or 0) & ~quant.FILE_TYPE_GUESSED, "")


def _speed(
    judged: Judge, options: LoadOptions, look: Look, label: str, scale: float, ratios: speed.Ratios | None
) -> SpeedRange:
    kind = speed.type_of(label)
    kept = sum(fit.need.kv_bytes for fit in (*look.devices, look.host))
    share = kept * min(1.0, speed.LIVE_TOKENS / max(1, look.needs.n_ctx))
    placement = speed.placed(judged.model, options, judged.devices)
    seconds = speed.quick_seconds(judged.model, placement, judged.devices, judged.machine, kind, share) * scale
    return speed.as_range(seconds, speed.place_key(placement, judged.devices), kind, ratios)
