"""What the desk of plans asks in the running program: the engine's own fit. Everything is imported when it is asked."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from desktop.fit_desk import Subject

if TYPE_CHECKING:
    from engine.events import Hello, ModelInfo
    from engine.fit.plan_records import FitPlan, Machine, Wishes
    from engine.fit.planner import Probe
    from engine.models.gguf_header import GgufHeader
    from engine.service import Engine


class EngineFitter:
    """The engine's planner and llama.cpp's dry run. Called from threads of the desk only."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def machine(self) -> Machine:
        """What there is now. The model that is loaded counts as free room, because it goes before another comes."""
        from engine.fit import machine

        loaded = self._engine.model_state.model
        known = self._engine.measurements.machine()
        # llama.cpp's RPC servers talk to one process at a time: while a model is on one, another could only wait
        remote = loaded is not None and any(device.backend.startswith("RPC") for device in loaded.devices)
        found = machine.look(measured=known, start=(lambda: _as_loaded(loaded)) if remote and loaded else None)
        return with_room_of(found, loaded) if loaded is not None else found

    def plan(self, subject: Subject, machine: Machine, wishes: Wishes) -> FitPlan:
        return self._plan(subject, machine, wishes, None)

    def probe(self, subject: Subject, machine: Machine, wishes: Wishes) -> FitPlan:
        from engine.fit.before_load import asking

        ask = asking(with_types(subject.header), subject.more, subject.adapters)
        return self._plan(subject, machine, wishes, ask)

    def _plan(self, subject: Subject, machine: Machine, wishes: Wishes, probe: Probe | None) -> FitPlan:
        from engine.fit.planner import plan

        known = self._engine.measurements
        return plan(
            subject.header,
            machine,
            wishes,
            more=subject.more,
            adapters=subject.adapters,
            corrections=known.corrections(),
            ratios=known.ratios(),
            probe=probe,
        )


def _as_loaded(model: ModelInfo) -> Hello:
    """The devices as the process of the loaded model saw them after the load."""
    from engine.events import Hello

    return Hello(protocol=0, engine="", pid=0, devices=model.devices)


def with_types(header: GgufHeader) -> GgufHeader:
    """A header that was made, not read, says of none of its values how they are stored; llama.cpp has to be told."""
    if header.value_types or not header.metadata:
        return header
    import msgspec

    # loading wants these values; they take part in no size
    needless = {f"{header.architecture}.attention.layer_norm{kind}_epsilon": 1e-6 for kind in ("", "_rms")}
    metadata = {**needless, **header.metadata}
    names = {str: "string", bool: "bool", int: "uint32", float: "float32"}
    types = {key: names.get(type(value), "array") for key, value in metadata.items()}
    return msgspec.structs.replace(header, metadata=metadata, value_types=types)


def with_room_of(machine: Machine, model: ModelInfo) -> Machine:
    """The machine as it is once a loaded model has gone. Its weights in main memory are file cache and free already."""
    from engine.fit.before_load import measured_by_device

    names = [device.name for device in machine.devices]
    measured = measured_by_device(model.buffers, names, model.devices)
    held = {name: sum(parts.values()) for name, parts in measured.items()}
    held["Host"] -= measured["Host"].get("weights", 0)
    devices = tuple(
        replace(device, free_bytes=min(device.total_bytes, device.free_bytes + held.get(device.name, 0)))
        for device in machine.devices
    )
    ram = min(machine.ram_total_bytes, machine.ram_available_bytes + held.get("Host", 0))
    return replace(machine, devices=devices, ram_available_bytes=ram)


def requantized(header: GgufHeader, label: str, size_bytes: int, more: tuple[GgufHeader, ...] = ()) -> Subject:
    """Another quantization of a model, from the header of one of them."""
    from engine.fit import other_quant

    return Subject(other_quant.requantized(header, label, size_bytes, more), label, size_bytes)
