"""A load in the hands of the planner: planned before, made smaller where it fails, compared with what it took.

A plan never blocks a load: whatever goes wrong here, the load goes on as it was asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from engine import events, hardware, log
from engine.figures import DeviceFigures, FitSummary
from engine.fit import speed
from engine.fit.embedding_sizes import sized
from engine.fit.machine import machine
from engine.fit.measured import Measurements
from engine.fit.needs import LoadOptions, Needs, with_adapters
from engine.fit.placement import DeviceSpec, Model, prepare
from engine.fit.plan_records import DeviceFit, FitPlan, Machine, Wishes
from engine.fit.planner import Probe, plan
from engine.fit.probe import probe
from engine.fit.step_down import offers, step_down
from engine.models import gguf
from engine.models.adapter import read_adapter
from engine.models.gguf_header import GgufHeader
from engine.worker import protocol

#: NVML only adds words and bandwidths here, so it may not hold up a load for long
_NVML_S = 2.0
#: an answer shorter than this says little about speed
_LEAST_TOKENS = 16
_log = log.get("fit")


@dataclass(frozen=True)
class PlannedLoad:
    """A load with its plan.

    Attributes:
        request: what goes to the worker.
        stepped_down: a first try did not fit. gave_up: what was given up for this one, also by the user's wish.
    """

    request: protocol.Load
    plan: FitPlan
    model: Model
    machine: Machine
    wishes: Wishes
    stepped_down: bool = False
    gave_up: tuple[str, ...] = ()

    @property
    def devices(self) -> tuple[DeviceSpec, ...]:
        return tuple(device for device in self.machine.devices if device.name in self.plan.use_devices)

    @property
    def place(self) -> str:
        return speed.place_key(speed.placed(self.model, self.plan.options, self.devices), self.devices)


class LoadPlanner:
    """Plans loads with what was measured in this profile. All methods may be called from any thread."""

    def __init__(self, measurements: Measurements | None = None) -> None:
        self.measurements = measurements or Measurements(None)

    def prepare(
        self, request: protocol.Load, chosen: Collection[str], devices: Sequence[events.Device]
    ) -> PlannedLoad | None:
        """Fill in what the user has not chosen; None where no plan can be made.

        Args:
            chosen: fields of the request that the user has chosen.
            devices: of the very worker that will load, so that its own share of memory is taken off already.
        """
        try:
            header, more = read_all(request.path)
            adapters = tuple(read_adapter(adapter.path) for adapter in request.adapters)
            if request.embeddings:
                request = sized(request, prepare(header, more).shape)
            known = self.measurements
            found = machine(devices, gpus=hardware.gpus(_NVML_S), measured=known.machine())
            wishes = wishes_of(request, chosen)
            corrections, ratios = known.corrections(), known.ratios()
            made = plan(header, found, wishes, more=more, adapters=adapters, corrections=corrections, ratios=ratios)
            if made.verdict == "unknown":
                made = self._asked(header, more, adapters, found, wishes)
        except Exception as error:  # the file's own faults are reported by the load
            _log.info("no plan for this load: %s", type(error).__name__)
            return None
        _log.info(
            "plan: %s, %d layers on devices, context %d", made.verdict, made.options.n_gpu_layers, made.needs.n_ctx
        )
        planned = PlannedLoad(request, made, prepare(header, more, adapters), found, wishes)
        return replace(planned, request=filled(request, made, found))

    def _asked(
        self,
        header: GgufHeader,
        more: Sequence[GgufHeader],
        adapters: Sequence[GgufHeader],
        found: Machine,
        wishes: Wishes,
    ) -> FitPlan:
        """llama.cpp's own answer for a model that the formulas do not know; the guess where it gives none."""
        known = self.measurements
        return plan(
            header,
            found,
            wishes,
            more=more,
            adapters=adapters,
            corrections=known.corrections(),
            ratios=known.ratios(),
            probe=asking(header, more, adapters),
        )

    def smaller(self, planned: PlannedLoad, *, asked: bool = False) -> PlannedLoad | None:
        """The next try after this load found too little memory; None after the second, or where nothing is left.

        `asked`: by the user, who may go down as often as there is something left.
        """
        if planned.stepped_down and not asked:
            return None
        try:
            found = step_down(planned.model, planned.machine, planned.devices, planned.wishes, planned.plan)
        except Exception:
            _log.exception("no smaller load could be worked out")
            return None
        if found is None:
            return None
        made, given_up = found
        request = filled(planned.request, made, planned.machine)
        stepped_down, gave_up = planned.stepped_down or not asked, (*planned.gave_up, *given_up)
        return replace(planned, request=request, plan=made, stepped_down=stepped_down, gave_up=gave_up)

    def offers(self, planned: PlannedLoad) -> tuple[str, ...]:
        """What the user may still do, in words, after a load that did not fit."""
        return offers(planned.model, planned.wishes, planned.plan)

    def loaded(self, planned: PlannedLoad, info: events.ModelInfo) -> events.ModelInfo:
        """The model with its plan beside what it took; the comparison is kept."""
        try:
            after = summary(planned, info)
            if info.buffers:
                self._keep(after, info)
            said = _news(planned, info)
            return msgspec.structs.replace(info, fit=after, warnings=(*info.warnings, *said))
        except Exception:
            _log.exception("the load cannot be compared with its plan")
            return info

    def _keep(self, after: FitSummary, info: events.ModelInfo) -> None:
        for device in after.devices:
            predicted = device.kv_bytes + device.compute_bytes
            measured = (device.measured_kv_bytes or 0) + (device.measured_compute_bytes or 0)
            if device.name != "Host":  # there, weights are pages of the file
                predicted += device.weights_bytes
                measured += device.measured_weights_bytes or 0
            if measured:
                self.measurements.add_memory(device.name, info.name, predicted, measured)

    def answered(self, planned: PlannedLoad, done: events.Done) -> None:
        """Keep the speed of an answer that was written alone."""
        tps, tokens = done.timings.decode_tps, done.usage.completion_tokens
        if not tps or tokens < _LEAST_TOKENS:
            return
        try:
            live = done.usage.prompt_tokens + tokens // 2
            seconds = speed.seconds_per_token(
                planned.model, planned.plan.options, planned.devices, planned.machine, live
            )
            if seconds > 0:
                kind = speed.dominant_type(planned.model)
                self.measurements.add_speed(planned.place, kind, 1 / seconds, tps)
        except Exception:
            _log.exception("the speed of an answer cannot be kept")


def asking(header: GgufHeader, more: Sequence[GgufHeader] = (), adapters: Sequence[GgufHeader] = ()) -> Probe:
    """Asks llama.cpp for the model; what its adapters take is added by formula."""

    def ask(options: LoadOptions, devices: Sequence[DeviceSpec]) -> Needs:
        found = probe([header, *more], options, devices)
        if not adapters:
            return found
        return with_adapters(found, prepare(header, more, adapters), prepare(header, more), options, devices)

    return ask


def read_all(path: str | Path) -> tuple[GgufHeader, tuple[GgufHeader, ...]]:
    """Headers of a model on this computer: its first file, and the other parts of a set."""
    header = gguf.check_file(path)
    parts = gguf.shard_paths(path)[1:] if header.split_count > 1 else []
    return header, tuple(gguf.read_header(part, max_array=4096) for part in parts)


def wishes_of(request: protocol.Load, chosen: Collection[str]) -> Wishes:
    """What the user has chosen of a load."""

    def wish(field: str) -> bool:
        return field in chosen

    return Wishes(
        n_ctx=request.n_ctx,
        n_gpu_layers=request.n_gpu_layers,
        kv_type_k=request.kv_type_k if wish("kv_type_k") or request.kv_type_k != "f16" else None,
        kv_type_v=request.kv_type_v if wish("kv_type_v") or request.kv_type_v != "f16" else None,
        flash_attention=request.flash_attention if wish("flash_attention") else None,
        n_ubatch=request.n_ubatch if wish("n_ubatch") or request.embeddings or request.n_ubatch != 512 else None,
        n_batch=request.n_batch,
        n_slots=request.n_slots,
        swa_full=True if request.swa_full else None,
        n_cpu_moe=request.n_cpu_moe if wish("n_cpu_moe") or request.n_cpu_moe else None,
        tensor_split=request.tensor_split,
        offload_kqv=request.offload_kqv,
        op_offload=request.op_offload,
        n_outputs=0 if request.embeddings else None,
        use_mlock=request.use_mlock,
        devices=() if request.devices == (protocol.NO_DEVICE,) else request.devices,
    )


def filled(request: protocol.Load, made: FitPlan, machine: Machine) -> protocol.Load:
    """The request with everything that the plan decided."""
    options = made.options
    none = (protocol.NO_DEVICE,) if machine.devices else ()
    return msgspec.structs.replace(
        request,
        n_ctx=options.n_ctx,
        n_gpu_layers=options.n_gpu_layers,
        kv_type_k=options.kv_type_k,
        kv_type_v=options.kv_type_v,
        flash_attention=options.flash_attention,
        n_ubatch=options.n_ubatch,
        n_cpu_moe=options.n_cpu_moe,
        tensor_split=options.tensor_split,
        op_offload=options.op_offload,
        devices=made.use_devices or request.devices or none,
    )


def _news(planned: PlannedLoad, info: events.ModelInfo) -> list[str]:
    """What is to be said that the worker does not say."""
    found, made = [], planned.plan
    if planned.stepped_down:
        found.append(f"There was too little memory at first; loaded with less: {', '.join(planned.gave_up)}.")
    elif planned.gave_up:
        found.append(f"Loaded with less, to be on the safe side: {', '.join(planned.gave_up)}.")
    if made.verdict in ("split", "too_large"):
        found.append(made.reasons[0] if made.verdict == "split" else f"This model is too large here. {made.reasons[0]}")
    found += [text for text in made.warnings if "trained" not in text and text not in info.warnings]
    return found


# ------------------------------------------------------------------ figures


def measured_by_device(
    buffers: dict[str, int], names: Sequence[str], devices: Sequence[events.Device] = ()
) -> dict[str, dict[str, int]]:
    """llama.cpp's buffers ("CPU_Mapped model", "RPC0[host:port] KV") by device and kind; all else is the host.

    Buffers of remote devices are counted anew on each server, so there the address decides, not the name.
    """
    at = {f"[{device.description}]": device.name for device in devices if device.backend.startswith("RPC")}
    kinds = {"model": "weights", "LoRA": "weights", "KV": "kv", "RS": "kv", "compute": "compute"}
    found: dict[str, dict[str, int]] = {name: {} for name in (*names, "Host")}
    for key, size in buffers.items():
        holder, _, kind = key.rpartition(" ")
        if kind not in kinds:
            continue
        name = at.get(holder[holder.find("[") :]) if "[" in holder else None
        name = name or next((name for name in names if holder == name or holder.startswith(f"{name}[")), "Host")
        if name not in found:
            continue
        found[name][kinds[kind]] = found[name].get(kinds[kind], 0) + size
    return found


def summary(planned: PlannedLoad, info: events.ModelInfo | None = None) -> FitSummary:
    """The plan as data for every reader, with measured figures once there are some."""
    made = planned.plan
    names = [fit.name for fit in made.devices]
    measured = measured_by_device(info.buffers, names, info.devices) if info is not None and info.buffers else None
    after = {device.name: device.memory_free_bytes for device in info.devices} if info is not None else {}
    devices = tuple(
        _figures(fit, measured[fit.name] if measured else None, after.get(fit.name))
        for fit in (*made.devices, made.host)
    )
    return FitSummary(
        verdict=made.verdict,
        source=made.source,
        devices=devices,
        steps=tuple(step.what for step in made.steps),
        reasons=made.reasons,
        decode_tps_low=made.speed.decode_tps_low,
        decode_tps_high=made.speed.decode_tps_high,
        speed_basis=made.speed.basis,
        error=_error(devices) if measured else None,
        stepped_down=planned.stepped_down,
    )


def _figures(fit: DeviceFit, measured: dict[str, int] | None, free_after: int | None) -> DeviceFigures:
    need = fit.need
    return DeviceFigures(
        name=fit.name,
        weights_bytes=need.weights_bytes,
        kv_bytes=need.kv_bytes,
        compute_bytes=need.compute_bytes,
        overhead_bytes=need.overhead_bytes,
        measured_weights_bytes=None if measured is None else measured.get("weights", 0),
        measured_kv_bytes=None if measured is None else measured.get("kv", 0),
        measured_compute_bytes=None if measured is None else measured.get("compute", 0),
        free_bytes=fit.free_bytes,
        total_bytes=fit.total_bytes,
        free_after_bytes=free_after,
    )


def _error(devices: Sequence[DeviceFigures]) -> float | None:
    used = [device for device in devices if device.name != "Host" and device.weights_bytes] or list(devices)
    predicted = sum(device.weights_bytes + device.kv_bytes + device.compute_bytes for device in used)
    measured = sum(
        (device.measured_weights_bytes or 0) + (device.measured_kv_bytes or 0) + (device.measured_compute_bytes or 0)
        for device in used
    )
    return measured / predicted - 1 if predicted > 0 and measured > 0 else None
