"""How many threads a model should compute with here: the physical cores that this process may use.

On processors with two kinds of cores only the fast ones count. llama.cpp's threads wait for each other about a
thousand times a token, so the slowest of them sets the pace, and two threads of one core share what computes.

What the system says is read in one place for each system and judged by `count`, which needs no system.
"""

from __future__ import annotations

import ctypes
import struct
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import psutil

#: cores of at least this share of the fastest one's capacity are fast, by the kernel's own measure of them
_FAST_CAPACITY = 0.7
#: the same by clock: favoured cores reach a few percent more than their equals, small ones a quarter less and below
_FAST_CLOCK = 0.8
#: winnt.h, RelationProcessorCore
_RELATION_CORE = 0


@dataclass(frozen=True)
class LogicalCpu:
    """One processor as the system numbers them.

    Attributes:
        core: the same for all threads of one core.
        fast: False for the small cores of a hybrid processor.
    """

    number: int
    core: tuple[int, ...]
    fast: bool = True


class Cores(msgspec.Struct, frozen=True):
    """What there is to compute with.

    Attributes:
        threads: how many to use.
        physical: cores that this process may use; fast: those of them that count, all where all are alike.
        reason: what `threads` is, in words: "physical cores", "performance cores of 14", "share of this container".
    """

    threads: int
    physical: int
    fast: int
    reason: str = "physical cores"


def count(cpus: Sequence[LogicalCpu], allowed: Collection[int] | None = None, share: float = 0.0) -> Cores:
    """How many threads to use.

    Args:
        cpus: all processors; none: nothing is known, and one thread is used.
        allowed: numbers of those that this process may run on; None: all.
        share: processors' worth of time that its container may use; 0: no limit.
    """
    mine = [cpu for cpu in cpus if allowed is None or cpu.number in allowed] or list(cpus)
    physical = {cpu.core for cpu in mine}
    fast = {cpu.core for cpu in mine if cpu.fast} or physical
    n_physical, threads = max(1, len(physical)), max(1, len(fast))
    reason = "physical cores" if len(fast) == len(physical) else f"performance cores of {n_physical}"
    if share and threads > max(1, int(share)):
        threads, reason = max(1, int(share)), "share of this container"
    return Cores(threads, n_physical, max(1, len(fast)), reason)


def here(root: Path = Path("/")) -> Cores:
    """This computer now. Milliseconds; never raises. `root` is where /sys is looked for."""
    from engine import hardware

    cpu = hardware.cpu(root)
    share = cpu.usable_cores if cpu.usable_cores < cpu.logical_cores else 0.0
    try:
        found = list(_cpus(root))
    except (OSError, ValueError, AttributeError, struct.error, subprocess.SubprocessError):
        found = []
    return count(found or _plain(cpu.physical_cores, cpu.logical_cores), _allowed(), share)


def _cpus(root: Path) -> Iterable[LogicalCpu]:
    if sys.platform == "win32":
        return from_windows(_windows_records())
    if sys.platform == "darwin":
        return from_levels(_mac_levels())
    return from_sysfs(root / "sys/devices")


def _allowed() -> Collection[int] | None:
    """Numbers of the processors this process may run on; None where the system has no such thing."""
    try:
        return frozenset(psutil.Process().cpu_affinity() or ())
    except (AttributeError, psutil.Error, OSError, ValueError):
        return None


def _plain(physical: int, logical: int) -> list[LogicalCpu]:
    """All alike, threads of one core side by side; for systems that tell no more than the numbers."""
    each = max(1, logical // max(1, physical))
    return [LogicalCpu(number, (number // each,)) for number in range(max(1, logical))]


# ------------------------------------------------------------------ Linux


def from_sysfs(devices: Path) -> list[LogicalCpu]:
    """Processors as Linux tells of them in /sys/devices; empty where it does not."""
    folder = devices / "system/cpu"
    numbers = sorted(int(path.name[3:]) for path in folder.glob("cpu[0-9]*") if path.name[3:].isdigit())
    cores = {number: _core(folder / f"cpu{number}/topology") for number in numbers}
    online = numbers_in(_read(folder / "online"))
    known = {number: core for number, core in cores.items() if core and (not online or number in online)}
    fast = _fast(devices, list(known))
    return [LogicalCpu(number, core, number in fast) for number, core in known.items()]


def _core(topology: Path) -> tuple[int, ...]:
    """(package, die, core); empty for a processor that is switched off."""
    words = [_read(topology / name) for name in ("physical_package_id", "die_id", "core_id")]
    if not words[2].lstrip("-").isdigit():
        return ()
    return tuple(int(word) if word.lstrip("-").isdigit() else 0 for word in words)


def _fast(devices: Path, numbers: Sequence[int]) -> Collection[int]:
    """Which of the processors are fast, by the first of three sources that tells a difference."""
    intel = numbers_in(_read(devices / "cpu_core/cpus"))
    if intel & set(numbers):
        return intel
    folder = devices / "system/cpu"
    for name, least in (("cpu_capacity", _FAST_CAPACITY), ("cpufreq/cpuinfo_max_freq", _FAST_CLOCK)):
        values = {number: _read(folder / f"cpu{number}" / name) for number in numbers}
        sizes = {number: int(word) for number, word in values.items() if word.isdigit()}
        if len(sizes) == len(numbers) and len(set(sizes.values())) > 1:
            return {number for number, size in sizes.items() if size >= least * max(sizes.values())}
    return numbers


def numbers_in(text: str) -> set[int]:
    """The numbers of a list as the kernel writes it, "0-3,8"; what is no number is left out."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit() and (last or first).isdigit():
            low, high = int(first), int(last or first)
            found.update(range(low, min(high, low + 65_535) + 1))
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


# ------------------------------------------------------------------ macOS


def from_levels(levels: Sequence[tuple[int, int]]) -> list[LogicalCpu]:
    """Processors from (physical, logical) counts of each performance level, the fastest first."""
    found: list[LogicalCpu] = []
    for level, (physical, logical) in enumerate(levels):
        each = max(1, logical // max(1, physical))
        for index in range(logical):
            found.append(LogicalCpu(len(found), (level, index // each), level == 0))
    return found


def _mac_levels() -> list[tuple[int, int]]:
    """What sysctl says; processors of one kind (Intel) have no levels."""
    n_levels = _sysctl("hw.nperflevels")
    names = [f"hw.perflevel{level}." for level in range(n_levels)] or ["hw."]
    return [(_sysctl(f"{name}physicalcpu"), _sysctl(f"{name}logicalcpu")) for name in names]


def _sysctl(name: str) -> int:
    done = subprocess.run(["/usr/sbin/sysctl", "-n", name], capture_output=True, text=True, timeout=5, check=False)
    word = done.stdout.strip()
    return int(word) if word.isdigit() else 0


# ------------------------------------------------------------------ Windows


def from_windows(records: bytes) -> list[LogicalCpu]:
    """Processors from the answer of GetLogicalProcessorInformationEx for cores.

    Each record (winnt.h, SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX with PROCESSOR_RELATIONSHIP) is one core with its
    efficiency class, where more is faster, and masks of its threads.
    """
    cores = list(_windows_cores(records))
    best = max((speed for speed, _ in cores), default=0)
    found = [
        LogicalCpu(number, (index,), speed == best)
        for index, (speed, numbers) in enumerate(cores)
        for number in numbers
    ]
    return sorted(found, key=lambda cpu: cpu.number)


def _windows_cores(records: bytes) -> Iterator[tuple[int, list[int]]]:
    at, pointer = 0, struct.calcsize("P")
    while at + 8 <= len(records):
        relation, size = struct.unpack_from("<II", records, at)
        if size < 8:
            return
        if relation == _RELATION_CORE:
            speed = records[at + 9]
            (n_groups,) = struct.unpack_from("<H", records, at + 30)
            numbers: list[int] = []
            for place in range(n_groups):
                start = at + 32 + place * (pointer + 8)
                mask = int.from_bytes(records[start : start + pointer], "little")
                (group,) = struct.unpack_from("<H", records, start + pointer)
                numbers += [64 * group + bit for bit in range(8 * pointer) if mask >> bit & 1]
            yield speed, numbers
        at += size


def _windows_records() -> bytes:
    kernel32: Any = ctypes.WinDLL("kernel32")  # type: ignore[attr-defined, unused-ignore]
    size = ctypes.c_uint32(0)
    kernel32.GetLogicalProcessorInformationEx(_RELATION_CORE, None, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(max(1, size.value))
    if not kernel32.GetLogicalProcessorInformationEx(_RELATION_CORE, buffer, ctypes.byref(size)):
        return b""
    return buffer.raw[: size.value]
