"""What this computer is for the fit: devices as llama.cpp lists them, memory as it is free now, states in words.

llama.cpp's registry is asked in a worker process only (its `Hello`): before a load in the very process that will load,
for a look without a load in one that ends at once. A hang, a lost device or a missing driver becomes a note.
"""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable, Sequence
from typing import Literal

from engine import cores as cores_of
from engine import events, hardware
from engine.errors import EngineError
from engine.fit.placement import DeviceSpec
from engine.fit.plan_records import Machine, Measured
from engine.worker.client import WorkerClient

#: a device of these shares the computer's memory on Apple's processors
_UNIFIED = frozenset(("METAL", "MTL"))
_START_S = 20.0
#: NVML states that say nothing but that there is no NVIDIA device
_SILENT_STATES = frozenset(("ok", "no_devices", "no_package", "no_library"))


def specs(devices: Sequence[events.Device]) -> tuple[DeviceSpec, ...]:
    """The devices that layers can be put on, from a worker's list."""
    found = []
    for device in devices:
        if device.kind not in ("gpu", "igpu"):
            continue
        kind: Literal["gpu", "igpu"] = "igpu" if device.kind == "igpu" else "gpu"
        backend = device.backend.split("[", 1)[0]  # "RPC[host:port]"
        unified = backend.upper() in _UNIFIED and platform.machine() == "arm64"
        free, total = max(0, device.memory_free_bytes), max(0, device.memory_total_bytes)
        if total:
            free = min(free, total)
        found.append(DeviceSpec(device.name, kind, free, total, backend, kind == "igpu" or unified, device.description))
    return tuple(found)


def machine(
    devices: Sequence[events.Device],
    *,
    ram: hardware.Ram | None = None,
    cores: int = 0,
    gpus: hardware.GpuReport | None = None,
    measured: Measured | None = None,
    problem: str = "",
) -> Machine:
    """The machine for a plan, from what was found out.

    Args:
        devices: llama.cpp's list, the CPU among them.
        gpus: NVML's report; gives bandwidths and the reason why an NVIDIA device is not in the list.
        measured: by a calibration; its bandwidths win over told ones.
        problem: why llama.cpp's list could not be had.
    """
    ram = ram or hardware.ram()
    usable = specs(devices)
    told = _told_bandwidths(devices, gpus)
    known = measured or Measured()
    return Machine(
        devices=usable,
        ram_available_bytes=max(0, ram.available_bytes),
        ram_total_bytes=max(0, ram.total_bytes),
        cores=cores or usable_cores(),
        bandwidths={**told, **known.bandwidths},
        notes=tuple(_notes(devices, gpus, problem)),
        listed=not problem,
        lock_bytes=lock_limit(),
        rates=known.rates,
        layer_s=known.layer_s,
    )


def lock_limit() -> int | None:
    """Bytes of main memory that this user may lock; None: no limit, or the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows, where the limit is the free memory
        return None
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return None if limit in (-1, resource.RLIM_INFINITY) else limit


def usable_cores() -> int:
    """Cores that llama.cpp computes with by default."""
    return cores_of.here().threads


def look(
    *,
    measured: Measured | None = None,
    start: Callable[[], events.Hello] | None = None,
    gpus: Callable[[], hardware.GpuReport] = hardware.gpus,
) -> Machine:
    """Ask everything now, llama.cpp in a process that ends at once. Takes about half a second; never raises.

    Args:
        start: gives a worker's greeting; for tests.
        gpus: gives NVML's report; for tests.
    """
    report: list[hardware.GpuReport] = []

    def ask_nvml() -> None:
        report.append(gpus())

    thread = threading.Thread(target=ask_nvml, name="nvml-for-fit", daemon=True)
    thread.start()
    hello, problem = _greeting(start or _throw_away)
    thread.join(hardware.NVML_TIMEOUT_S)
    found = report[0] if report else hardware.GpuReport("timeout", "The NVIDIA driver did not answer.")
    return machine(hello.devices if hello else (), gpus=found, measured=measured, problem=problem)


def _throw_away() -> events.Hello:
    client = WorkerClient(lambda event: None)
    try:
        return client.start(_START_S)
    finally:
        # it may hang in a driver: nobody waits for its end
        threading.Thread(target=client.stop, args=(1.0,), name="fit-look-end", daemon=True).start()


def _greeting(start: Callable[[], events.Hello]) -> tuple[events.Hello | None, str]:
    try:
        return start(), ""
    except EngineError as error:
        return None, error.message


def _cuda(devices: Sequence[events.Device]) -> list[events.Device]:
    return [device for device in devices if device.backend.upper() == "CUDA"]


def _told_bandwidths(devices: Sequence[events.Device], gpus: hardware.GpuReport | None) -> dict[str, float]:
    """NVML's figures for llama.cpp's devices, which have another order: joined by the device's name, which is enough
    since equal cards are equally fast."""
    by_name = {gpu.name: gpu.bandwidth_bytes_s for gpu in gpus.devices} if gpus else {}
    return {device.name: known for device in _cuda(devices) if (known := by_name.get(device.description))}


def _notes(devices: Sequence[events.Device], gpus: hardware.GpuReport | None, problem: str) -> list[str]:
    notes = []
    if problem:
        notes.append(f"The devices could not be listed: {problem}. Only the processor is counted with.")
    if gpus is None:
        return notes
    if gpus.state not in _SILENT_STATES:
        notes.append(gpus.text)
    elif gpus.devices and not _cuda(devices) and not problem:
        names = ", ".join(gpu.name for gpu in gpus.devices)
        notes.append(f"{names} cannot be used: this build of llama.cpp has no CUDA, or the driver does not let it.")
    if any(gpu.mig for gpu in gpus.devices):
        notes.append("The NVIDIA device is divided into instances (MIG); the memory shown is that of one.")
    return notes
