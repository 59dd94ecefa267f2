"""Memory of each device and of this computer: what was predicted beside what is measured. No Qt.

llama.cpp's buffers are known since the load; what the drivers and the system tell is of the last look.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.events import GpuFigures, ModelInfo, Sampled
from engine.figures import DeviceFigures

HOST = "Host"
#: a look at the computer that is older than this is shown as an old one
OLD_S = 3.5
#: what differs by less than this is rounding, not a mistake of the plan
_SAME = 0.0005


@dataclass(frozen=True)
class Place:
    """One memory.

    Attributes:
        name, total_bytes: of the device, or "RAM".
        predicted, measured: (kind, bytes) of the model and of other programs; empty where it is not known.
        live: what other programs hold is of the last look; else of the load.
        error: measured over predicted minus 1, of what the model takes there; None where one of them is unknown.
        note: a sentence on what is not known; empty otherwise.
    """

    name: str
    total_bytes: int
    predicted: tuple[tuple[str, int], ...] = ()
    measured: tuple[tuple[str, int], ...] = ()
    live: bool = True
    error: float | None = None
    note: str = ""

    @property
    def predicted_bytes(self) -> int:
        return sum(n for kind, n in self.predicted if kind != "other")

    @property
    def measured_bytes(self) -> int:
        return sum(n for kind, n in self.measured if kind != "other")


def places_of(model: ModelInfo | None, sample: Sampled | None, age_s: float | None = None) -> list[Place]:
    """The devices that the model uses, then main memory. Devices that it does not use are not listed.

    Args:
        age_s: of the look. What is old is not shown as what is there now: then the figures are those of the load.
    """
    if age_s is not None and age_s > OLD_S:
        sample = None
    if model is None or model.fit is None:
        return [_idle_host(sample)] if sample is not None and sample.ram_total_bytes else []
    gpus = _matched(model, sample)
    places = []
    for figures in model.fit.devices:
        if figures.name == HOST:
            places.append(_host(figures, sample, alone=len(model.fit.devices) == 1))
        else:
            places.append(_device(figures, _label(model, figures.name), gpus.get(figures.name)))
    return [place for place in places if place is not None]


def _label(model: ModelInfo, name: str) -> str:
    """What the device is called, with llama.cpp's name for it where that says more."""
    device = next((d for d in model.devices if d.name == name), None)
    words = device.description if device is not None else ""
    if device is not None and device.backend == "RPC":
        return f"{name} at {words}"
    return words or name


def _matched(model: ModelInfo, sample: Sampled | None) -> dict[str, GpuFigures]:
    """The driver's figures of each of llama.cpp's CUDA devices: by name, first those that hold the model's process."""
    found: dict[str, GpuFigures] = {}
    if sample is None or sample.gpus.state != "ok" or (sample.gpus.age_s or 0.0) > OLD_S:
        return found
    left = sorted((g for g in sample.gpus.devices if not g.gone), key=lambda g: g.worker_bytes is None)
    for device in model.devices:
        if device.backend != "CUDA":
            continue
        same = [g for g in left if g.name == device.description]
        if same:
            found[device.name] = same[0]
            left.remove(same[0])
    return found


def _error(figures: DeviceFigures) -> float | None:
    parts = (figures.measured_weights_bytes, figures.measured_kv_bytes, figures.measured_compute_bytes)
    predicted = figures.weights_bytes + figures.kv_bytes + figures.compute_bytes
    if None in parts or predicted <= 0:
        return None
    error = sum(p for p in parts if p is not None) / predicted - 1
    return 0.0 if abs(error) < _SAME else error


def _planned(figures: DeviceFigures, other: int, *, overhead: bool = True) -> tuple[tuple[str, int], ...]:
    """`overhead`: with what is predicted beyond llama.cpp's buffers; left out where nobody measures it either."""
    beyond = figures.overhead_bytes if overhead else 0
    return (
        ("weights", figures.weights_bytes),
        ("kv", figures.kv_bytes),
        ("compute", figures.compute_bytes + beyond),
        ("other", max(0, other)),
    )


def _device(figures: DeviceFigures, name: str, gpu: GpuFigures | None) -> Place | None:
    total = (gpu.total_bytes if gpu is not None else None) or figures.total_bytes
    if total <= 0:
        return None
    before = max(0, figures.total_bytes - figures.free_bytes)
    planned = _planned(figures, before)
    buffers = (figures.measured_weights_bytes, figures.measured_kv_bytes, figures.measured_compute_bytes)
    if None in buffers:
        return Place(name, total, planned, note="llama.cpp has not said yet what it took here.")
    planned = _planned(figures, before, overhead=gpu is not None and gpu.worker_bytes is not None)
    weights, kv, compute = (n or 0 for n in buffers)
    ours = weights + kv + compute
    used, live = None, False
    if gpu is not None and gpu.used_bytes is not None:
        used, live = gpu.used_bytes, True
        if gpu.worker_bytes is not None and gpu.worker_bytes >= ours:
            compute += gpu.worker_bytes - ours  # what the driver keeps for the process
            ours = gpu.worker_bytes
    elif figures.free_after_bytes is not None:
        used = figures.total_bytes - figures.free_after_bytes
    note = "" if live else "The driver of this device does not tell what it holds now; the figures are of the load."
    other = max(0, used - ours) if used is not None else 0
    measured = (("weights", weights), ("kv", kv), ("compute", compute), ("other", other))
    return Place(name, total, planned, measured, live, _error(figures), note)


def _host(figures: DeviceFigures, sample: Sampled | None, *, alone: bool) -> Place | None:
    """Main memory. `alone`: the model uses no device; else its weights here are counted by what is mapped of the file,
    which is more than stays in use, and no measure of the plan."""
    live = sample is not None and sample.ram_total_bytes is not None and sample.ram_available_bytes is not None
    total = (sample.ram_total_bytes if sample is not None else None) or figures.total_bytes
    if total <= 0:
        return None
    planned = _planned(figures, figures.total_bytes - figures.free_bytes)
    buffers = (figures.measured_weights_bytes, figures.measured_kv_bytes, figures.measured_compute_bytes)
    if None in buffers:
        return Place("RAM", total, planned, note="llama.cpp has not said yet what it took here.")
    planned = _planned(figures, figures.total_bytes - figures.free_bytes, overhead=False)
    weights, kv, compute = (n or 0 for n in buffers)
    other = max(0, figures.total_bytes - (figures.free_after_bytes or figures.free_bytes) - kv - compute)
    if live and sample is not None and sample.ram_available_bytes is not None:
        # weights that are mapped from the file count as available, so only what is private is taken off
        private = sample.worker.private_bytes if sample.worker is not None else None
        other = max(0, total - sample.ram_available_bytes - (kv + compute if private is None else private))
    measured = (("weights", weights), ("kv", kv), ("compute", compute), ("other", min(other, total)))
    note = "" if alone else "Weights are counted by what is mapped of the file; parts that lie on a device are dropped."
    return Place("RAM", total, planned, measured, live, _error(figures) if alone else None, note)


def _idle_host(sample: Sampled | None) -> Place:
    assert sample is not None
    total, free = sample.ram_total_bytes or 0, sample.ram_available_bytes or 0
    return Place("RAM", total, measured=(("other", max(0, total - free)),))
