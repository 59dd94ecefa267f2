"""NVIDIA devices asked again and again, on a thread of their own: a driver that hangs holds up nothing but that thread.

The library is kept open between two looks. What fails is asked again later, so that a device that comes back after a
sleep or an update is seen; until then the last figures stay, marked as old.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec

from engine import hardware
from engine.events import GpuFigures, GpuState

#: a look that takes longer is reported as one that hangs
HANG_S = 3.0
#: seconds until a driver that gave an error is asked again, and until one that is not there is looked for again
_AGAIN_S, _ABSENT_S = 2.0, 30.0
_ABSENT = ("no_package", "no_library", "no_driver", "no_devices")
_TEMPERATURE_GPU, _CLOCK_SM, _CLOCK_MEMORY = 0, 1, 2  # nvml.h


class GpuWatch:
    """Asked with `look`, which never waits: it gives what is known and has the next look begin.

    Args:
        import_nvml: gives pynvml, or raises.
    """

    def __init__(self, import_nvml: Callable[[], Any] | None = None) -> None:
        self._import = import_nvml or _pynvml
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._nvml: Any = None
        self._state = GpuState("unknown", "The devices have not been asked yet.")
        self._good_s: float | None = None  # when the figures in it were taken
        self._began_s = self._not_before_s = 0.0

    def look(self, worker_pid: int | None) -> GpuState:
        """What is known now."""
        now = time.monotonic()
        with self._lock:
            if self._thread is None and now >= self._not_before_s:
                self._began_s = now
                # a daemon: one that hangs in the driver must not keep the program from ending
                self._thread = threading.Thread(target=self._ask, args=(worker_pid,), name="gpus", daemon=True)
                self._thread.start()
            state, good_s = self._state, self._good_s
            hung_s = now - self._began_s if self._thread is not None else 0.0
        age_s = None if good_s is None else now - good_s
        if hung_s > HANG_S:
            words = f"The NVIDIA driver has not answered for {hung_s:.0f} s."
            return GpuState("timeout", words, state.devices, age_s)
        return msgspec.structs.replace(state, age_s=age_s)

    def renew(self) -> None:
        """The computer has slept, or something else may have changed the devices: ask at the next look."""
        with self._lock:
            self._not_before_s = 0.0

    def close(self) -> None:
        """Let go of the driver, unless it hangs."""
        with self._lock:
            nvml = self._nvml if self._thread is None else None
            if nvml is not None:
                self._nvml = None
        if nvml is not None:
            hardware.nvml_call(nvml, "nvmlShutdown")

    # ------------------------------------------------------------------ on the thread

    def _ask(self, worker_pid: int | None) -> None:
        try:
            state = self._once(worker_pid)
        except Exception as error:  # whatever a driver comes up with: the next look is asked all the same
            state = GpuState("error", f"The NVIDIA driver gives an error: {type(error).__name__}: {error}.")
        now = time.monotonic()
        with self._lock:
            if state.state == "ok":
                self._good_s, self._not_before_s = now, 0.0
            else:
                self._not_before_s = now + (_ABSENT_S if state.state in _ABSENT else _AGAIN_S)
                state = msgspec.structs.replace(state, devices=self._state.devices)
            self._state = state
            self._thread = None

    def _once(self, worker_pid: int | None) -> GpuState:
        try:
            nvml = self._open()
            count = int(nvml.nvmlDeviceGetCount())
            devices = tuple(_figures(nvml, index, worker_pid) for index in range(count))
        except ImportError:
            return GpuState("no_package", "NVIDIA devices are not watched: pynvml is not installed.")
        except Exception as error:
            self._drop()
            failure = hardware.nvml_failure(error)
            return GpuState(failure.state, failure.text)
        if not devices:
            return GpuState("no_devices", "The NVIDIA driver is loaded but lists no device.")
        if all(device.gone for device in devices):
            self._drop()
            return GpuState("gpu_lost", "The NVIDIA device does not answer any more. Restart the computer.")
        return GpuState("ok", ", ".join(device.name for device in devices), devices)

    def _open(self) -> Any:
        if self._nvml is None:
            nvml = self._import()
            nvml.nvmlInit()
            self._nvml = nvml
        return self._nvml

    def _drop(self) -> None:
        nvml, self._nvml = self._nvml, None
        if nvml is not None:
            hardware.nvml_call(nvml, "nvmlShutdown")


def _pynvml() -> Any:
    import pynvml

    return pynvml


def _figures(nvml: Any, index: int, worker_pid: int | None) -> GpuFigures:
    """One device; each figure only where the driver tells it."""
    name = f"NVIDIA device {index}"
    handle = hardware.nvml_call(nvml, "nvmlDeviceGetHandleByIndex", index)
    if handle is None:
        return GpuFigures(index, name, gone=True)

    def number(function: str, *arguments: object) -> int | None:
        value = hardware.whole_number(hardware.nvml_call(nvml, function, handle, *arguments))
        return value if value is not None and value >= 0 else None

    memory = hardware.nvml_call(nvml, "nvmlDeviceGetMemoryInfo", handle)
    rates = hardware.nvml_call(nvml, "nvmlDeviceGetUtilizationRates", handle)
    power_mw, limit_mw = number("nvmlDeviceGetPowerUsage"), number("nvmlDeviceGetEnforcedPowerLimit")
    known = hardware.nvml_call(nvml, "nvmlDeviceGetName", handle)
    if memory is None and rates is None and known is None and power_mw is None:
        return GpuFigures(index, name, gone=True)  # it has a handle still, but fell off the bus
    return GpuFigures(
        index=index,
        name=hardware.decoded(known) if known else name,
        total_bytes=_positive(getattr(memory, "total", None)),
        used_bytes=_positive(getattr(memory, "used", None)),
        free_bytes=_positive(getattr(memory, "free", None)),
        worker_bytes=_held_by(nvml, handle, worker_pid),
        load_percent=_percent(getattr(rates, "gpu", None)),
        memory_load_percent=_percent(getattr(rates, "memory", None)),
        clock_mhz=number("nvmlDeviceGetClockInfo", _CLOCK_SM),
        memory_clock_mhz=number("nvmlDeviceGetClockInfo", _CLOCK_MEMORY),
        temperature_c=number("nvmlDeviceGetTemperature", _TEMPERATURE_GPU),
        power_w=None if power_mw is None else power_mw / 1000,
        power_limit_w=None if limit_mw is None else limit_mw / 1000,
    )


def _positive(value: object) -> int | None:
    number = hardware.whole_number(value)
    return number if number is not None and number >= 0 else None


def _percent(value: object) -> int | None:
    number = _positive(value)
    return number if number is not None and number <= 100 else None


def _held_by(nvml: Any, handle: Any, pid: int | None) -> int | None:
    """Bytes that a process holds on the device; None where the driver does not list it (in a container, say)."""
    found = None
    for kind in ("Compute", "Graphics"):
        for process in hardware.nvml_call(nvml, f"nvmlDeviceGet{kind}RunningProcesses", handle) or ():
            if pid is not None and getattr(process, "pid", None) == pid:
                held = _positive(getattr(process, "usedGpuMemory", None))
                found = held if found is None else max(found, held or 0)
    return found
