"""What this computer has: processor, memory, NVIDIA devices. Nothing here raises; what is not known is said in words.

llama.cpp's own list of devices comes from a worker (`events.Hello`), never from here: native backends are probed only
in a child process. NVML is asked in this process, in a thread of its own with a time limit, because a broken driver
can hang in it.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import msgspec
import psutil

NVML_TIMEOUT_S = 10.0


class Cpu(msgspec.Struct, frozen=True):
    """The processor.

    Attributes:
        usable_cores: logical cores this process may use: its affinity, and the quota of its control group.
        flags: feature names in lower case as Linux writes them ("avx2"); empty where the system does not tell.
    """

    name: str
    architecture: str
    physical_cores: int
    logical_cores: int
    usable_cores: float
    flags: tuple[str, ...] = ()


class Ram(msgspec.Struct, frozen=True):
    """Main memory in bytes, as this process may use it.

    Attributes:
        limited_by: "" or "control group" where a container's limit is below the machine's memory.
    """

    total_bytes: int
    available_bytes: int
    limited_by: str = ""


class Gpu(msgspec.Struct, frozen=True):
    """A device as NVML lists it. None: the driver does not tell.

    Attributes:
        bandwidth_bytes_s: of its memory, from bus width and highest clock.
        mig: divided into instances, which programs see in its place.
        users: (process id, bytes) of the programs that hold its memory.
    """

    index: int
    name: str
    memory_total_bytes: int | None = None
    memory_free_bytes: int | None = None
    utilization_percent: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    compute_capability: str = ""
    bandwidth_bytes_s: float | None = None
    mig: bool = False
    users: tuple[tuple[int, int], ...] = ()


class GpuReport(msgspec.Struct, frozen=True):
    """NVIDIA devices, or why there are none to show.

    Attributes:
        state: "ok", "no_devices", "no_package", "no_library", "no_driver", "version_mismatch", "no_permission",
            "gpu_lost", "timeout", "error".
        text: the state in words.
    """

    state: str
    text: str
    devices: tuple[Gpu, ...] = ()
    driver: str = ""


class Hardware(msgspec.Struct, frozen=True):
    system: str
    cpu: Cpu
    ram: Ram
    gpus: GpuReport


def survey() -> Hardware:
    """Everything at once. Milliseconds, with a hanging NVIDIA driver `NVML_TIMEOUT_S`: not for the window's thread."""
    return Hardware(system=platform.platform(), cpu=cpu(), ram=ram(), gpus=gpus())


# ------------------------------------------------------------------ processor


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _sysctl(name: str) -> str:
    try:
        done = subprocess.run(["/usr/sbin/sysctl", "-n", name], capture_output=True, text=True, timeout=5, check=False)
        return done.stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def cpu(root: Path = Path("/")) -> Cpu:
    """The processor. `root` is where /proc and /sys are looked for."""
    logical = os.cpu_count() or 1
    try:
        physical = psutil.cpu_count(logical=False) or logical
    except Exception:  # psutil has raised many kinds on odd systems; a guess is better than none
        physical = logical
    text = _read(root / "proc/cpuinfo")
    fields = _cpuinfo(text)
    name = fields.get("model name") or fields.get("hardware") or fields.get("processor name") or ""
    flags = (fields.get("flags") or fields.get("features") or "").lower().split()
    if sys.platform == "darwin":
        name = name or _sysctl("machdep.cpu.brand_string")
        words = f"{_sysctl('machdep.cpu.features')} {_sysctl('machdep.cpu.leaf7_features')}"
        flags = flags or words.lower().replace(".", "_").split()
    elif sys.platform == "win32":
        flags = flags or _windows_flags()
    return Cpu(
        name=name or platform.processor() or platform.machine() or "unknown",
        architecture=platform.machine() or "unknown",
        physical_cores=physical,
        logical_cores=logical,
        usable_cores=_usable_cores(logical, root),
        flags=tuple(dict.fromkeys(flags)),
    )


def _cpuinfo(text: str) -> dict[str, str]:
    """Fields of the first processor in /proc/cpuinfo, names in lower case."""
    fields: dict[str, str] = {}
    for line in text.split("\n\n", 1)[0].splitlines():
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip().lower(), value.strip())
    return fields


def _windows_flags() -> list[str]:
    """What IsProcessorFeaturePresent tells (winnt.h, PF_AVX_INSTRUCTIONS_AVAILABLE and others)."""
    known = {39: "avx", 40: "avx2", 41: "avx512f", 38: "sse4_2", 37: "sse4_1", 36: "ssse3"}
    try:
        import ctypes

        kernel32: Any = ctypes.WinDLL("kernel32")  # type: ignore[attr-defined, unused-ignore]
        return [flag for number, flag in known.items() if kernel32.IsProcessorFeaturePresent(number)]
    except (OSError, AttributeError):
        return []


def missing_cpu_features(have: Collection[str], needed: Iterable[str]) -> list[str]:
    """Which of the needed features a processor lacks; none where its features are not known at all."""
    return [feature for feature in needed if feature not in have] if have else []


def _usable_cores(logical: int, root: Path) -> float:
    try:
        allowed = float(len(os.sched_getaffinity(0)))
    except (AttributeError, OSError):
        allowed = float(logical)
    for folder in _cgroup_folders(root, "cpu"):
        words = _read(folder / "cpu.max").split()
        if not words:
            words = [*_read(folder / "cpu.cfs_quota_us").split(), *_read(folder / "cpu.cfs_period_us").split()]
        if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]):
            allowed = min(allowed, max(int(words[0]) / int(words[1]), 0.01))
    return allowed


# ------------------------------------------------------------------ memory


def ram(root: Path = Path("/")) -> Ram:
    """Main memory; a container's limit counts where it is below the machine's."""
    try:
        memory = psutil.virtual_memory()
        total, available = int(memory.total), int(memory.available)
    except Exception:  # unreadable /proc in a sandbox: psutil raises OSError, ValueError or its own kinds
        total = available = 0
    limit, room = _cgroup_memory(root)
    if limit is None or (total and limit >= total):
        return Ram(total_bytes=total, available_bytes=available)
    assert room is not None
    return Ram(
        total_bytes=limit,
        available_bytes=min(available, room) if total else room,
        limited_by="control group",
    )


def _cgroup_folders(root: Path, controller: str) -> list[Path]:
    """Folders of this process's control group and all above it, for both versions of the interface."""
    folders: list[Path] = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if number == "0" and not controllers:
            base = root / "sys/fs/cgroup"
        elif controller in controllers.split(","):
            base = root / "sys/fs/cgroup" / controller
        else:
            continue
        parts = [part for part in group.split("/") if part and part != ".."]
        folders += [base.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]
    return folders


def _number(text: str) -> int | None:
    text = text.strip()
    return int(text) if text.isdigit() else None


def _cgroup_memory(root: Path) -> tuple[int | None, int | None]:
    """(limit, what is left of it) in bytes: the least of all levels; (None, None) without a limit.

    Cached file pages count as free: the kernel drops them when memory is needed.
    """
    limits: list[int] = []
    rooms: list[int] = []
    names = (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    )
    for folder in _cgroup_folders(root, "memory"):
        for limit_name, used_name, cache_key in names:
            limit = _number(_read(folder / limit_name))
            if limit is None:
                continue
            used = _number(_read(folder / used_name)) or 0
            stat = dict(line.split(" ", 1) for line in _read(folder / "memory.stat").splitlines() if " " in line)
            cached = _number(stat.get(cache_key, "")) or 0
            limits.append(limit)
            rooms.append(max(0, limit - max(0, used - cached)))
    return (min(limits), min(rooms)) if limits else (None, None)


def process_memory(pid: int) -> tuple[int, int]:
    """(resident, private) bytes of a process; (0, 0) if it is gone or hidden.

    Resident counts mapped weights that are in memory; private is what no file backs: KV cache, buffers, the heap.
    """
    try:
        info = psutil.Process(pid).memory_info()
        resident = int(info.rss)
        private = getattr(info, "private", None)  # Windows
        if private is None:
            private = _anonymous_bytes(pid)
        if private is None:
            private = resident - int(getattr(info, "shared", 0))
        return resident, max(0, int(private))
    except (psutil.Error, OSError, ValueError, OverflowError):
        return 0, 0


def _anonymous_bytes(pid: int) -> int | None:
    # cheap on a process of any size, unlike smaps, for which the kernel walks every page
    for line in _read(Path(f"/proc/{pid}/status")).splitlines():
        if line.startswith("RssAnon:"):
            kib = _number(line.split(":", 1)[1].replace("kB", ""))
            return None if kib is None else kib * 1024
    return None


# ------------------------------------------------------------------ NVIDIA

_ADVICE_CPU = "Models run on the processor."
#: NVML return code (nvml.h, nvmlReturn_t) -> state, words
_NVML_STATES: dict[int, tuple[str, str]] = {
    4: ("no_permission", "This user may not ask the NVIDIA driver (no permission on its device files)."),
    9: ("no_driver", "The NVIDIA driver is not loaded."),
    12: ("no_library", "There is no NVIDIA driver on this computer (its library NVML was not found)."),
    13: ("error", "The NVIDIA driver is too old for this program (a function is missing)."),
    15: ("gpu_lost", "The NVIDIA device is lost: it fell off the bus. Restart the computer."),
    16: ("gpu_lost", "The NVIDIA device needs a reset. Restart the computer."),
    18: (
        "version_mismatch",
        "The NVIDIA driver was updated and its parts do not fit together. Restart the computer.",
    ),
}


def gpus(timeout_s: float = NVML_TIMEOUT_S) -> GpuReport:
    """NVIDIA devices by NVML, or the reason in words. Other makers' devices are only in llama.cpp's list."""
    result: list[GpuReport] = []
    thread = threading.Thread(target=lambda: result.append(_ask_nvml()), name="nvml", daemon=True)
    thread.start()
    thread.join(timeout_s)
    return result[0] if result else GpuReport("timeout", f"The NVIDIA driver did not answer within {timeout_s:g} s.")


def _ask_nvml() -> GpuReport:
    try:
        import pynvml
    except ImportError:
        return GpuReport("no_package", f"NVIDIA devices are not watched: pynvml is not installed. {_ADVICE_CPU}")
    except Exception as error:  # a broken package must not end the program
        return GpuReport("error", f"NVIDIA devices are not watched: pynvml is broken ({_words(error)}).")
    try:
        pynvml.nvmlInit()
    except Exception as error:
        return nvml_failure(error)
    try:
        driver = decoded(nvml_call(pynvml, "nvmlSystemGetDriverVersion") or "")
        count = int(pynvml.nvmlDeviceGetCount())
        devices = tuple(_gpu(pynvml, index) for index in range(count))
    except Exception as error:
        return nvml_failure(error)
    finally:
        nvml_call(pynvml, "nvmlShutdown")
    if not devices:
        return GpuReport("no_devices", f"The NVIDIA driver is loaded but lists no device. {_ADVICE_CPU}", (), driver)
    names = ", ".join(device.name for device in devices)
    return GpuReport("ok", f"{names}, driver {driver or 'of unknown version'}", devices, driver)


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".strip().removesuffix(":")


def nvml_failure(error: Exception) -> GpuReport:
    code = getattr(error, "value", None)
    known = _NVML_STATES.get(code) if isinstance(code, int) else None
    if known is None and isinstance(error, OSError):  # the loader found no library, or one that does not load
        known = _NVML_STATES[12]
    state, text = known or ("error", f"The NVIDIA driver gives an error: {_words(error)}.")
    return GpuReport(state, f"{text} {_ADVICE_CPU}")


def decoded(value: object) -> str:
    """Older versions give bytes, newer str."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def nvml_call(nvml: Any, function: str, *arguments: object) -> Any:
    """The answer of one NVML function; None where the driver or the header does not have it or refuses."""
    try:
        call: Callable[..., Any] = getattr(nvml, function)
        return call(*arguments)
    except Exception:
        return None


def whole_number(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _gpu(nvml: Any, index: int) -> Gpu:
    handle = nvml_call(nvml, "nvmlDeviceGetHandleByIndex", index)
    if handle is None:
        return Gpu(index, f"NVIDIA device {index} (does not answer)")
    memory = nvml_call(nvml, "nvmlDeviceGetMemoryInfo", handle)
    rates = nvml_call(nvml, "nvmlDeviceGetUtilizationRates", handle)
    power_mw = whole_number(nvml_call(nvml, "nvmlDeviceGetPowerUsage", handle))
    capability = nvml_call(nvml, "nvmlDeviceGetCudaComputeCapability", handle)
    return Gpu(
        index=index,
        name=decoded(nvml_call(nvml, "nvmlDeviceGetName", handle) or f"NVIDIA device {index}"),
        memory_total_bytes=whole_number(getattr(memory, "total", None)),
        memory_free_bytes=whole_number(getattr(memory, "free", None)),
        utilization_percent=whole_number(getattr(rates, "gpu", None)),
        temperature_c=whole_number(nvml_call(nvml, "nvmlDeviceGetTemperature", handle, 0)),  # 0: the GPU's own sensor
        power_w=None if power_mw is None else power_mw / 1000,
        compute_capability=f"{capability[0]}.{capability[1]}" if isinstance(capability, tuple | list) else "",
        bandwidth_bytes_s=_bandwidth(nvml, handle),
        mig=next(iter(nvml_call(nvml, "nvmlDeviceGetMigMode", handle) or ()), 0) == 1,
        users=_users(nvml, handle),
    )


def _bandwidth(nvml: Any, handle: Any) -> float | None:
    bits = whole_number(nvml_call(nvml, "nvmlDeviceGetMemoryBusWidth", handle))
    mhz = whole_number(nvml_call(nvml, "nvmlDeviceGetMaxClockInfo", handle, 2))  # 2: memory, with two transfers a clock
    return bits / 8 * mhz * 2e6 if bits and mhz else None


def _users(nvml: Any, handle: Any) -> tuple[tuple[int, int], ...]:
    found: dict[int, int] = {}
    for kind in ("Compute", "Graphics"):
        for process in nvml_call(nvml, f"nvmlDeviceGet{kind}RunningProcesses", handle) or ():
            if (pid := whole_number(getattr(process, "pid", None))) is not None:
                found[pid] = max(found.get(pid, 0), whole_number(getattr(process, "usedGpuMemory", None)) or 0)
    return tuple(found.items())
