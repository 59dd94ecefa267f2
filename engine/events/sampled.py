"""What the processes and the devices of this computer do, measured while somebody watches."""

from __future__ import annotations

import msgspec

from engine.events.base import Event


class ProcessFigures(msgspec.Struct, frozen=True, omit_defaults=True):
    """One process. None: the system does not tell.

    Attributes:
        rss_bytes: resident in main memory; private_bytes of it are its own, mapped_bytes belong to files (weights that
            are memory-mapped, libraries) and can be dropped when memory is needed.
        cpu_percent: of one core since the sample before.
    """

    rss_bytes: int | None = None
    private_bytes: int | None = None
    mapped_bytes: int | None = None
    cpu_percent: float | None = None


class GpuFigures(msgspec.Struct, frozen=True, omit_defaults=True):
    """One device as its driver tells it. None: it does not.

    Attributes:
        used_bytes: by all programs. worker_bytes: by the model's process.
        load_percent: of the last moment; memory_load_percent: how busy its memory was.
        clock_mhz, memory_clock_mhz: now. power_w: now; power_limit_w: what it may draw.
        gone: it does not answer any more.
    """

    index: int
    name: str
    total_bytes: int | None = None
    used_bytes: int | None = None
    free_bytes: int | None = None
    worker_bytes: int | None = None
    load_percent: int | None = None
    memory_load_percent: int | None = None
    clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    gone: bool = False


class GpuState(msgspec.Struct, frozen=True, omit_defaults=True):
    """NVIDIA devices, or why there are none to show.

    Attributes:
        state: as in `engine.hardware.GpuReport`. text: the state in words.
        devices: where the state is not "ok" the last figures that are known.
        age_s: how old the figures are; None where there are none.
    """

    state: str
    text: str
    devices: tuple[GpuFigures, ...] = ()
    age_s: float | None = None


class Sampled(Event, frozen=True):
    """One look at this computer.

    Attributes:
        time_s: when, on the clock of `time.monotonic`.
        window, worker: the program that shows this, and the model's process; None where there is none.
        cpu_percent: of all processors together, by all programs; None for the first look.
        n_cores: logical processors.
        ram_total_bytes, ram_available_bytes: main memory as this program may use it, None where it is unknown.
        ram_limited_by: "control group" where a container's limit is below the machine's memory.
    """

    time_s: float
    window: ProcessFigures | None = None
    worker: ProcessFigures | None = None
    cpu_percent: float | None = None
    n_cores: int = 1
    ram_total_bytes: int | None = None
    ram_available_bytes: int | None = None
    ram_limited_by: str = ""
    gpus: GpuState = GpuState("unknown", "The devices have not been asked yet.")
