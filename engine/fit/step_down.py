"""One step down the ladder after a load that found too little memory although the plan saw enough."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from engine.fit import ladder, speed
from engine.fit.cache_size import QUANTIZED_KV
from engine.fit.needs import LoadOptions
from engine.fit.placement import DeviceSpec, Model
from engine.fit.plan_records import FitPlan, Machine, Step, Wishes
from engine.fit.planner import verdict_of
from engine.fit.room import Judge, Look

#: the next try is to need this much less of what was short
_LESS = 0.1
#: a context below this is of no use
_LEAST_CONTEXT = 1024


def step_down(
    model: Model, machine: Machine, devices: Sequence[DeviceSpec], wishes: Wishes, failed: FitPlan
) -> tuple[FitPlan, tuple[str, ...]] | None:
    """(a plan that needs about a tenth less, what it gives up in words), or None where the user has chosen everything.

    Rungs are taken in the ladder's order until they save enough.
    """
    judge = Judge(model, machine, devices)
    look = start = judge.look(failed.options)
    goal = _counted(start) * (1 - _LESS)
    steps: list[Step] = []
    for words, options in _rungs(judge, wishes, start):
        after = judge.look(_joined(look.options, start.options, options))
        saved = _counted(look) - _counted(after)
        if saved <= 0:
            continue
        look = after
        steps.append(Step(words, "The first try found too little memory.", saved))
        if _counted(look) <= goal:
            break
    if not steps:
        return None
    made = replace(
        failed,
        verdict=verdict_of(look, judge),
        options=look.options,
        needs=look.needs,
        devices=look.devices,
        host=look.host,
        steps=(*failed.steps, *steps),
        speed=speed.estimate(model, look.options, devices, machine),
        source=look.needs.source,
    )
    return made, tuple(step.what for step in steps)


def _counted(look: Look) -> int:
    """Bytes that can have been short: on devices, or on the host what is no page of a file."""
    on_host = look.host.need.kv_bytes + look.host.need.compute_bytes
    return look.on_devices or on_host


def _joined(now: LoadOptions, start: LoadOptions, wanted: LoadOptions) -> LoadOptions:
    """`now` with what `wanted` changes of `start`."""
    fields = LoadOptions.__dataclass_fields__
    changed = {name: getattr(wanted, name) for name in fields if getattr(wanted, name) != getattr(start, name)}
    return replace(now, **changed)


def _rungs(judge: Judge, wishes: Wishes, start: Look) -> Iterator[tuple[str, LoadOptions]]:
    options, shape = start.options, judge.model.shape
    if ladder.may_quantize_kv(judge.model, wishes, start):
        yield "KV cache in q8_0", replace(options, kv_type_k="q8_0", kv_type_v="q8_0")
    if wishes.n_ubatch is None and options.n_ubatch > ladder.SMALL_UBATCH:
        yield f"prompt in pieces of {ladder.SMALL_UBATCH}", replace(options, n_ubatch=ladder.SMALL_UBATCH)
    if wishes.n_ctx is None and options.n_ctx > _LEAST_CONTEXT:
        n_ctx = max(_LEAST_CONTEXT, options.n_ctx // 2)
        yield f"context of {n_ctx} tokens", replace(options, n_ctx=n_ctx)
    if not start.on_devices:
        return
    if wishes.n_cpu_moe is None and shape.n_expert and options.n_cpu_moe < shape.n_layer:
        n = min(shape.n_layer, options.n_cpu_moe + max(1, shape.n_layer // 4))
        yield f"experts of {n} layers on the CPU", replace(options, n_cpu_moe=n)
    if wishes.n_gpu_layers is None and options.n_gpu_layers > 0:
        n = options.n_gpu_layers - max(1, options.n_gpu_layers // 4)
        # a division into whole layers was made for another number of them
        split = options.tensor_split if wishes.tensor_split else ()
        yield f"{n} layers on the GPU", replace(options, n_gpu_layers=n, tensor_split=split)


def offers(model: Model, wishes: Wishes, failed: FitPlan) -> tuple[str, ...]:
    """What is left to try, also what the user has chosen otherwise."""
    options, found = failed.options, []
    if options.kv_type_k not in QUANTIZED_KV and any(layer.k_width for layer in model.shape.layers):
        found.append("a KV cache in q8_0")
    if options.n_ctx > _LEAST_CONTEXT:
        found.append(f"a context of {max(_LEAST_CONTEXT, options.n_ctx // 2)} tokens")
    if options.n_gpu_layers > 0:
        if model.shape.n_expert and options.n_cpu_moe < model.shape.n_layer:
            found.append("all experts on the CPU")
        found.append("fewer layers on the GPU")
    found.append("a smaller quantization")
    return tuple(found)
