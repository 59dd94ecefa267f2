"""What llama.cpp says while it works: kept, passed on, and read for facts that its API does not give.

Sizes of buffers and the placement of layers are only in the log lines (llama.cpp's own summary "offloaded 31/31
layers to GPU" is printed without any GPU too and is not used).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable

from engine.errors import EngineError, LoadFailed, ModelFileDamaged, NotEnoughMemory, UnsupportedModel

#: ggml.h, enum ggml_log_level; 5 continues the line before
_LEVELS = {1: "debug", 2: "info", 3: "warning", 4: "error"}
_CONTINUED = 5
_MIB = 1024 * 1024
_TAIL_LINES = 40
_MAX_LINE = 4000

_BUFFER = re.compile(r"^\S+:\s+(\S.*?)\s+(model|LoRA|KV|RS|compute|output|state) buffer size =\s+([\d.]+) MiB")
_CACHE = re.compile(r"\bK \(\S+?\):\s+([\d.]+) MiB, V \(\S+?\):\s+([\d.]+) MiB")
_LAYER = re.compile(r"layer\s+(\d+) assigned to device ([^,]+)")
_KEPT = re.compile(r"tensor blk\.(\d+)\.\S*exps\S* .* buffer type overridden to (\S+)")
_FLASH = re.compile(r"Flash Attention (enabled|disabled)")
_NOT_LOCKED = re.compile(r"failed to (mlock|VirtualLock)|mlock not supported|GetProcessWorkingSetSize failed")
#: {}: why, in words
NOT_LOCKED = "The weights could not be locked in memory: {}. The system may move them out of it."
_NO_MEMORY = re.compile(
    r"out of memory|failed to allocate|unable to allocate|cannot allocate|OutOf(Device|Host)Memory"
    r"|insufficient memory|cudaMalloc failed|alloc.*buffer.*failed|std::bad_alloc",
    re.IGNORECASE,
)
_UNSUPPORTED = re.compile(r"unknown (model architecture|pre-tokenizer type|tokenizer)|unsupported|not supported", re.I)
_DAMAGED = re.compile(
    r"corrupted or incomplete|not within the file bounds|failed to read|unexpectedly reached end|invalid magic"
    r"|wrong shape|check_tensor_dims|missing tensor|tensor '.*' not found|key not found|invalid split"
    r"|duplicated tensor",
    re.IGNORECASE,
)


class NativeLog:
    """Receives llama.cpp's log pieces, joins them to lines and hands them on.

    Attributes:
        expected_abort: set while a decode is being stopped on request; llama.cpp's warnings about it are then no
        news.
    """

    def __init__(self, on_line: Callable[[str, str], None]) -> None:
        self._on_line = on_line
        self._level = "info"
        self._partial = ""
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._load: list[str] | None = None
        self.expected_abort = False

    def add(self, level: int, text: str) -> None:
        """One call of the log callback: `text` may be a line, several, or a part of one."""
        if level != _CONTINUED:
            self._level = _LEVELS.get(level, "info")
        *lines, self._partial = (self._partial + text).split("\n")
        if len(self._partial) > _MAX_LINE:
            lines, self._partial = [*lines, self._partial], ""
        for line in lines:
            self._line(self._level, line)

    def _line(self, level: str, line: str) -> None:
        line = line.rstrip()
        if not line.strip("."):  # dots of the progress display
            return
        if self._load is not None:
            self._load.append(line)
        if level == "debug":
            return
        self._tail.append(line)
        self._on_line("info" if self.expected_abort else level, line)

    def start_load(self) -> None:
        """Keep every line from now on, also debug ones, for `load_lines`."""
        self._load = []

    def end_load(self) -> list[str]:
        """All lines since `start_load`."""
        lines, self._load = self._load or [], None
        return lines

    def tail(self) -> list[str]:
        """The last lines, oldest first."""
        return list(self._tail)


def buffer_sizes(lines: list[str]) -> dict[str, int]:
    """Bytes by "device kind" ("CPU_Mapped model", "RPC0 KV").

    Weights and caches may come in several lines for one device and are added up; compute and output buffers are
    laid out again and again while llama.cpp looks for a plan, so the last line counts.
    """
    sizes: dict[str, int] = {}
    for line in lines:
        if match := _BUFFER.search(line):
            key, size = f"{match[1]} {match[2]}", round(float(match[3]) * _MIB)
            sizes[key] = size if match[2] in ("compute", "output") else sizes.get(key, 0) + size
    return sizes


def cache_sizes(lines: list[str]) -> tuple[int, int]:
    """Bytes of the keys and of the values in the KV cache, (0, 0) where llama.cpp did not say. A model with two caches
    (of its full and its sliding-window layers) says it twice."""
    found = [match for line in lines if (match := _CACHE.search(line))]
    return sum(round(float(m[1]) * _MIB) for m in found), sum(round(float(m[2]) * _MIB) for m in found)


def layer_devices(lines: list[str]) -> tuple[str, ...]:
    """Name of the device of each layer, and then of the output layer; empty where llama.cpp did not say it of all."""
    placed = {int(m[1]): m[2].strip() for line in lines if (m := _LAYER.search(line))}
    return tuple(placed[index] for index in range(len(placed))) if set(placed) == set(range(len(placed))) else ()


def experts_kept(lines: list[str]) -> int:
    """How many layers have experts that llama.cpp put into main memory, wherever the rest of the layer is."""
    return len({match[1] for line in lines if (match := _KEPT.search(line)) and _is_host(match[2])})


def _is_host(buffer_type: str) -> bool:
    return buffer_type.startswith("CPU") or buffer_type.endswith("_Host")


def layers_on(lines: list[str], devices: frozenset[str]) -> int:
    """How many layers llama.cpp placed on one of these devices. Its output layer counts as one."""
    placed = {int(m[1]): m[2].strip() for line in lines if (m := _LAYER.search(line))}
    return sum(1 for device in placed.values() if device in devices)


def flash_attention(lines: list[str]) -> str:
    """What became of "auto": "on" or "off"; "auto" if llama.cpp did not say."""
    said = [match[1] for line in lines if (match := _FLASH.search(line))]
    return {"enabled": "on", "disabled": "off"}[said[-1]] if said else "auto"


def not_locked(lines: list[str]) -> bool:
    """Whether llama.cpp could not keep the weights from being moved out of memory."""
    return any(_NOT_LOCKED.search(line) for line in lines)


def load_error(name: str, lines: list[str], tail: list[str]) -> EngineError:
    """The error for a load that llama.cpp refused, by what it said."""
    said = [line for line in lines if "create_tensor" not in line and "assigned to device" not in line]
    details = {"log": tail[-15:]}
    text = "\n".join(said)
    if _NO_MEMORY.search(text):
        return NotEnoughMemory(
            f"There is not enough memory for {name}",
            hint="Close other programs, choose a smaller context or a smaller quantization.",
            details=details,
        )
    if _DAMAGED.search(text):
        return ModelFileDamaged(
            f"{name} is damaged: llama.cpp cannot read it", hint="Get the file again.", details=details
        )
    if _UNSUPPORTED.search(text):
        return UnsupportedModel(
            f"{name} is of a kind that this llama.cpp does not know",
            hint="A newer version of Inglenook may know it.",
            details=details,
        )
    return LoadFailed(f"llama.cpp could not load {name}", hint="The details hold what llama.cpp said.", details=details)
