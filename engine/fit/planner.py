"""Will it fit, and how: from a header, a machine and the user's wishes to a plan with the reason of every step.

What the user has chosen is respected and checked: if it cannot work, the plan says what is missing. The formulas
answer in milliseconds; where `probe` is given, llama.cpp's own dry run has the last word on the plan found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from engine.fit import ladder, quality, speed
from engine.fit.cache_size import QUANTIZED_KV
from engine.fit.choice import choose
from engine.fit.needs import DeviceNeed, LoadOptions, Needs
from engine.fit.placement import DeviceSpec, Model, prepare
from engine.fit.plan_records import DeviceFit, FitPlan, Machine, Sibling, Step, Verdict, Wishes
from engine.fit.room import Judge, Look, headroom
from engine.fit.words import size_text
from engine.models.gguf_header import GgufHeader

Probe = Callable[[LoadOptions, Sequence[DeviceSpec]], Needs]
#: share of the room that a context above the comfortable one may take when nobody asked for it
_CONTEXT_SHARE = 0.25
_PROBES = 4


def plan(
    header: GgufHeader,
    machine: Machine,
    wishes: Wishes | None = None,
    *,
    more: Sequence[GgufHeader] = (),
    adapters: Sequence[GgufHeader] = (),
    siblings: Sequence[Sibling] = (),
    corrections: Mapping[str, int] | None = None,
    ratios: speed.Ratios | None = None,
    probe: Probe | None = None,
) -> FitPlan:
    """The best way to load this model here.

    Args:
        more: headers of the other parts of a split model. adapters: of LoRA adapters for it.
        siblings: other quantizations of it that could be had.
        corrections: bytes that real loads took beyond the formula, by device name and "Host".
        ratios: measured over predicted speed of real answers.
        probe: asks llama.cpp; what it cannot answer is answered by the formula.

    Raises:
        InvalidRequest: wishes that no load could have.
    """
    wishes = wishes or Wishes()
    model = prepare(header, more, adapters)
    devices, notes = choose(machine, wishes)
    judge = Judge(model, machine, devices, corrections=corrections)
    look, steps = _search(judge, wishes)
    unused: tuple[DeviceFit, ...] = ()
    if look.needs.n_gpu_layers == 0 and devices and wishes.n_gpu_layers is None:
        # nothing goes to a device, so nothing is given up for one either
        judge = Judge(model, machine, (), corrections=corrections)
        look, steps = _search(judge, wishes)
        notes = (*notes, "Not one layer fits on the GPU beside what it needs to work.")
        unused, devices = tuple(_unused(device) for device in devices), ()
    if probe is not None:
        look, judge = _probed(judge, look, wishes, probe, corrections)
    steps = (*ladder.free_steps(judge, wishes, look), *steps) if look.needs.source == "formula" else steps
    verdict = verdict_of(look, judge)
    found = FitPlan(
        verdict=verdict,
        options=replace(look.options, n_gpu_layers=look.needs.n_gpu_layers),
        needs=look.needs,
        devices=look.devices or unused,
        host=look.host,
        n_layers=judge.n_layers,
        use_devices=tuple(device.name for device in devices),
        steps=steps,
        missing_bytes=(look.over_bytes or look.device_short + look.host_short) if verdict == "too_large" else 0,
        speed=speed.estimate(model, look.options, devices, machine, ratios=ratios),
        source=look.needs.source,
    )
    found = replace(found, better=_better(found, judge, wishes, siblings, header))
    return replace(
        found,
        reasons=(*_reasons(found, judge, look), *notes),
        warnings=(*machine.notes, *_warnings(found, judge, look, wishes)),
    )


def _unused(device: DeviceSpec) -> DeviceFit:
    nothing = DeviceNeed(device.name, 0, 0, 0)
    return DeviceFit(
        device.name, nothing, device.free_bytes, device.total_bytes, headroom(device), device.shared, device.description
    )


def _search(judge: Judge, wishes: Wishes) -> tuple[Look, tuple[Step, ...]]:
    look = _start(judge, wishes)
    climbed = ladder.climb(judge, wishes, look)
    return climbed.look, climbed.steps


def _start(judge: Judge, wishes: Wishes) -> Look:
    """Everything on the devices, in the best quality, with the wished or the most comfortable context."""
    options = LoadOptions(
        n_ctx=wishes.n_ctx or comfortable_context(judge.model),
        n_gpu_layers=judge.n_layers if wishes.n_gpu_layers is None or wishes.n_gpu_layers < 0 else wishes.n_gpu_layers,
        kv_type_k=wishes.kv_type_k or "f16",
        kv_type_v=wishes.kv_type_v or "f16",
        flash_attention=wishes.flash_attention or "auto",
        n_ubatch=512 if wishes.n_ubatch is None else wishes.n_ubatch,
        n_batch=wishes.n_batch,
        n_slots=wishes.n_slots,
        kv_unified=wishes.kv_unified,
        swa_full=bool(wishes.swa_full),
        n_cpu_moe=wishes.n_cpu_moe or 0,
        tensor_split=wishes.tensor_split,
        offload_kqv=wishes.offload_kqv,
        op_offload=wishes.op_offload,
        n_outputs=wishes.n_outputs,
    )
    look = judge.look(options)
    if wishes.n_ctx is not None or not look.fits or not judge.devices:
        return look  # on the processor a longer context would only be slow
    trained = judge.model.shape.n_ctx_train
    room = sum(fit.free_bytes - fit.headroom_bytes for fit in look.devices)
    for n_ctx in (ladder.MOST_CONTEXT, ladder.MOST_CONTEXT // 2):
        if options.n_ctx < n_ctx <= trained:
            wider = judge.look(replace(options, n_ctx=n_ctx))
            if wider.fits and wider.everything - look.everything <= room * _CONTEXT_SHARE:
                return wider
    return look


def comfortable_context(model: Model) -> int:
    """Tokens of context where none is wished: never more than the model was trained with."""
    return min(model.shape.n_ctx_train or ladder.COMFORT_CONTEXT, ladder.COMFORT_CONTEXT)


def _probed(
    judge: Judge, look: Look, wishes: Wishes, probe: Probe, corrections: Mapping[str, int] | None
) -> tuple[Look, Judge]:
    """The plan in llama.cpp's own figures; a layer less where they say that it does not fit after all."""
    asked = Judge(
        judge.model,
        judge.machine,
        judge.devices,
        corrections=corrections,
        ask=lambda options: probe(options, judge.devices),
    )
    best = look
    for _ in range(_PROBES):
        try:
            best = asked.look(look.options)
        except Exception:  # a probe is one more opinion: the formula stands without it
            return look, judge
        if best.needs.source != "probe":
            return look, judge
        layers = look.options.n_gpu_layers
        if not best.device_short or wishes.n_gpu_layers is not None or layers < 1:
            break
        look = judge.look(replace(look.options, n_gpu_layers=layers - 1))
    return best, asked


# ------------------------------------------------------------------ words


def verdict_of(look: Look, judge: Judge) -> Verdict:
    """The verdict of one way of loading."""
    if look.needs.unknown:
        return "unknown"
    if not look.fits and not look.fits_without_headroom:
        return "too_large"
    on_gpu = look.needs.n_gpu_layers
    if not on_gpu:
        return "cpu"
    moved = look.options.n_cpu_moe and judge.model.shape.n_expert
    return "gpu" if on_gpu >= judge.n_layers and not moved else "split"


def _reasons(found: FitPlan, judge: Judge, look: Look) -> tuple[str, ...]:
    options, reasons = found.options, []
    where = " and ".join(fit.label for fit in found.devices if fit.name in found.use_devices)
    if found.verdict == "unknown":
        reasons += [f"The figures are a guess: {text}." for text in look.needs.unknown]
    elif found.verdict == "too_large":
        reasons.append(f"{size_text(found.missing_bytes)} are missing.")
        for fit in (*found.devices, found.host):
            if fit.over_bytes:
                need = size_text(fit.need.total_bytes)
                reasons.append(f"{fit.label} would need {need} and has {size_text(fit.free_bytes)} free.")
    elif found.verdict == "gpu":
        reasons.append(f"All {judge.n_layers} layers fit on {where}.")
    elif found.verdict == "split":
        on_gpu = options.n_gpu_layers
        text = f"{on_gpu} of {judge.n_layers} layers fit on {where}"
        reasons.append(
            f"{text}; experts of {options.n_cpu_moe} layers are on the CPU." if options.n_cpu_moe else f"{text}."
        )
    else:
        reasons.append("It runs on the processor." if judge.machine.devices else "There is no GPU; it runs on the CPU.")
    cache = sum(fit.need.kv_bytes for fit in (*found.devices, found.host))
    if cache:
        kinds = " and ".join(dict.fromkeys((options.kv_type_k, options.kv_type_v)))
        reasons.append(f"A context of {found.needs.n_ctx} tokens costs {size_text(cache)} of cache in {kinds}.")
    reasons += [f"{step.what}: {step.why} Saves {size_text(step.saves_bytes)}." for step in found.steps]
    if found.better is not None:
        better = found.better
        reasons.append(
            f"{better.quantization} ({size_text(better.size_bytes)}, {quality.words(better.quantization)}) "
            "would fit better."
        )
    return tuple(reasons)


def _warnings(found: FitPlan, judge: Judge, look: Look, wishes: Wishes) -> list[str]:
    warnings = []
    trained = judge.model.shape.n_ctx_train
    if trained and found.needs.n_ctx > max(trained, 256) and found.options.n_ctx > trained:
        warnings.append(
            f"The context of {found.options.n_ctx} tokens is longer than the {trained} that the model was trained "
            "with; answers may get worse beyond that."
        )
    if not look.fits and found.verdict in ("gpu", "split", "cpu"):
        warnings.append(f"It is tight: {size_text(look.device_short + look.host_short)} less than advised stay free.")
    wished = wishes.n_gpu_layers
    if wished and not judge.devices:
        warnings.append("No GPU can be used here; all layers are on the CPU.")
    if wishes.tensor_split and len(wishes.tensor_split) > len(judge.devices):
        warnings.append(f"The split names {len(wishes.tensor_split)} devices; there are {len(judge.devices)}.")
    if wishes.kv_type_v in QUANTIZED_KV:
        if not look.needs.flash_attention:
            warnings.append("A quantized V cache needs flash attention; llama.cpp refuses this load.")
        elif not judge.look(replace(look.options, kv_type_v="f16")).needs.flash_attention:
            warnings.append(
                "There is no flash attention for this model on the GPU, and a quantized V cache needs it: attention is "
                "computed on the CPU then, and slowly."
            )
    weights, most = found.host.need.weights_bytes, judge.machine.lock_bytes
    if wishes.use_mlock and most is not None and weights > most:
        warnings.append(
            f"This user may lock {size_text(most)} of memory, and the weights in main memory have "
            f"{size_text(weights)}: they will not be locked."
        )
    return warnings


def _better(
    found: FitPlan, judge: Judge, wishes: Wishes, siblings: Sequence[Sibling], header: GgufHeader
) -> Sibling | None:
    """The largest smaller quantization, not worse than the floor, that fits better than this one."""
    if found.verdict not in ("too_large", "split", "cpu") or not siblings:
        return None
    own = sum(tensor.n_bytes for tensor in judge.model.tensors) or header.file_size
    devices = judge.devices or choose(judge.machine, wishes)[0]
    for sibling in sorted(siblings, key=lambda one: -one.size_bytes):
        if sibling.size_bytes >= own or not quality.good_enough(sibling.quantization):
            continue
        scaled = Judge(judge.model, judge.machine, devices, weight_scale=sibling.size_bytes / own)
        look, _ = _search(scaled, wishes)
        verdict = verdict_of(look, scaled)
        if verdict == "gpu" or (found.verdict == "too_large" and verdict in ("split", "cpu")):
            return sibling
    return None
