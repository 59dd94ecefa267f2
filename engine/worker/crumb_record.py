"""The black box of a worker: a small file that both processes map, with what the worker is at.

The worker writes a record before each thing that may end it; the file is memory of the system, so what was written
stays whatever the worker dies of. Two places are written in turn, each record with its number at both ends: one that
was cut off in the middle is known by that, and the one before it is still there.

No token, no text and no path is ever written into it.
"""

from __future__ import annotations

import contextlib
import os
import struct
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import psutil

#: environment variable that tells a worker which file it is
ENV = "INGLENOOK_BLACK_BOX"
#: devices whose free memory is noted
MAX_DEVICES = 4
SIZE = 4096
_PLACE = SIZE // 2
#: what was noted of memory says nothing about an end that came later than this
_FRESH_S = 10.0
_SHORT_BYTES, _PLENTY_BYTES = 256 << 20, 1 << 30
#: number, monotonic clock, stage, fraction, 8 counts, 4 sizes, devices, number
_LAYOUT = struct.Struct(f"<QdB3xf8I4q{MAX_DEVICES}qQ")
_STAGE_AT = 16

STAGES = (
    "start",  # greeting, looking for devices
    "idle",
    "weights",  # reading the file
    "context",  # making room for the KV cache and what is computed
    "prompt",  # template and tokens of a request
    "step",  # llama_decode
    "sample",  # choosing tokens from what was computed
    "save",  # taking a state out of the KV cache
    "restore",  # putting one back
    "count",
    "adapters",
    "embed",
    "unload",
)


class Crumb(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a worker was at. Memory is in bytes, -1 where it is not known.

    Attributes:
        stage: one of `STAGES`. at_s: monotonic clock of this computer when it began.
        fraction: of the weights that are read.
        n_batch: tokens of the step; n_reading of them belong to prompts, of `n_answers` answers in the step.
        n_read, n_prompt: tokens of these prompts that were read before the step, and all of them.
        n_written: tokens that the answers in the step have so far.
        used_cells, n_ctx: of the KV cache.
        rss_bytes: of the worker. ram_free_bytes, ram_total_bytes: of the computer, or of what a container may use.
        n_oom_kills: how often the system had ended a process for want of memory, by its own count.
        device_free_bytes: of the devices that are not the CPU, in llama.cpp's order.
    """

    stage: str
    at_s: float = 0.0
    fraction: float = 0.0
    n_batch: int = 0
    n_reading: int = 0
    n_answers: int = 0
    n_read: int = 0
    n_prompt: int = 0
    n_written: int = 0
    used_cells: int = 0
    n_ctx: int = 0
    rss_bytes: int = -1
    ram_free_bytes: int = -1
    ram_total_bytes: int = -1
    n_oom_kills: int = -1
    device_free_bytes: tuple[int, ...] = ()


class LastSeen(msgspec.Struct, frozen=True):
    """The last crumb of a worker that has ended.

    Attributes:
        ago_s: from the crumb to the end, in seconds.
        n_oom_kills: the system's count after the end (see `Crumb`).
        ram_free_bytes: of the computer, right after the end; -1 where that is not known.
    """

    crumb: Crumb
    ago_s: float
    n_oom_kills: int = -1
    ram_free_bytes: int = -1

    @property
    def is_fresh(self) -> bool:
        """Whether the memory it noted is still what it was at the end."""
        return self.ago_s <= _FRESH_S

    @property
    def free_at_end_bytes(self) -> int:
        """Memory that was free at the end: as the worker noted it, where that is fresh; else what is free after it,
        less all that the worker may have held itself. -1 where neither is known."""
        if self.is_fresh and self.crumb.ram_free_bytes >= 0:
            return self.crumb.ram_free_bytes
        return -1 if self.ram_free_bytes < 0 else max(0, self.ram_free_bytes - max(0, self.crumb.rss_bytes))

    @property
    def memory_ran_out(self) -> bool | None:
        """Whether the system was short of memory at the end; None where that cannot be told."""
        crumb, free = self.crumb, self.free_at_end_bytes
        if 0 <= crumb.n_oom_kills < self.n_oom_kills:
            return True
        if free > max(_PLENTY_BYTES, crumb.ram_total_bytes // 8):
            return False
        short = 0 <= free < max(_SHORT_BYTES, crumb.ram_total_bytes // 32)
        # after the end it is reckoned low: a shortage is only sure where it was noted
        return True if short and self.is_fresh and crumb.ram_free_bytes >= 0 else None


def last_seen_of(details: Mapping[str, object]) -> LastSeen | None:
    """What the details of a death say of its black box, if they do."""
    try:
        return msgspec.convert(details["last"], LastSeen) if "last" in details else None
    except msgspec.ValidationError:
        return None


def write(buffer: memoryview, number: int, stage: int, at_s: float, fraction: float, *values: int) -> None:
    """Put a record into its place. `values`: the counts, the sizes and `MAX_DEVICES` devices, as `Crumb` has them."""
    _LAYOUT.pack_into(buffer, number % 2 * _PLACE, number, at_s, stage, fraction, *values, number)


def change_stage(buffer: memoryview, number: int, stage: int) -> None:
    """The record of this number is about another stage now. It stays whole: a byte is written or not."""
    buffer[number % 2 * _PLACE + _STAGE_AT] = stage


def read(data: bytes | bytearray) -> Crumb | None:
    """The last whole record; None where there is none."""
    best: Any = None
    for start in (0, _PLACE):
        if len(data) < start + _LAYOUT.size:
            break
        found = _LAYOUT.unpack_from(data, start)
        whole = found[0] == found[-1] and found[0] > 0 and found[2] < len(STAGES)
        if whole and (best is None or found[0] > best[0]):
            best = found
    if best is None:
        return None
    _, at_s, stage, fraction, *rest = best
    values: Any = (STAGES[stage], at_s, fraction, *rest[:12], tuple(size for size in rest[12:-1] if size >= 0))
    return Crumb(*values)


class BlackBoxFile:
    """The file, made by the parent. Where none can be made there is no black box, and all else goes on.

    Attributes:
        env: what a worker's environment needs to find it.
    """

    def __init__(self) -> None:
        self._descriptor, self._path = -1, ""
        with contextlib.suppress(OSError):
            self._descriptor, self._path = tempfile.mkstemp(prefix="inglenook-", suffix=".box")
            os.write(self._descriptor, bytes(SIZE))
        self.env = {ENV: self._path} if self._path else {}

    def last_seen(self) -> LastSeen | None:
        """What the worker was at when it wrote last, to be asked when it has ended; None if it never wrote."""
        try:
            os.lseek(self._descriptor, 0, os.SEEK_SET)
            crumb = read(os.read(self._descriptor, SIZE))
        except OSError:
            return None
        if crumb is None:
            return None
        return LastSeen(crumb, max(0.0, time.monotonic() - crumb.at_s), oom_kills(), _ram_free(crumb))

    def close(self) -> None:
        """Delete it. Idempotent."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(descriptor)
            with contextlib.suppress(OSError):  # the worker has done it already where that is possible
                os.unlink(self._path)  # noqa: PTH108


def _ram_free(crumb: Crumb) -> int:
    """Free memory of this computer now; -1 where the worker had another memory than that (a container's limit)."""
    try:
        memory = psutil.virtual_memory()
    except Exception:  # unreadable /proc in a sandbox: psutil raises OSError, ValueError or its own kinds
        return -1
    return int(memory.available) if int(memory.total) == crumb.ram_total_bytes else -1


def oom_kills() -> int:
    """How often the system has ended a process for want of memory: in this control group where it has a count, else
    on this computer; -1 where nobody tells."""
    own = ""
    with contextlib.suppress(OSError, ValueError):
        group = Path("/proc/self/cgroup").read_text(encoding="ascii", errors="replace").split("0::", 1)[-1].split()[0]
        own = f"/sys/fs/cgroup{group.rstrip('/')}/memory.events"
    for path, key in ((own, "oom_kill "), ("/sys/fs/cgroup/memory.events", "oom_kill "), ("/proc/vmstat", "oom_kill ")):
        with contextlib.suppress(OSError, ValueError, StopIteration):
            lines = Path(path).read_text(encoding="ascii", errors="replace").splitlines() if path else []
            return int(next(line for line in lines if line.startswith(key)).split()[1])
    return -1
