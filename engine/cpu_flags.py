"""What the processor can do, asked of the processor itself and not of the system's list of names.

/proc/cpuinfo tells of the machine's processor even where this process runs on another one (an emulator, a virtual
machine that hides features), so it comes second. Names are llama.cpp's ("avx2", "avx512_vnni").
"""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

#: what every native library of the program (NumPy, Qt) may use on x86: x86-64-v2, processors since 2009
FLOOR = ("sse3", "ssse3", "sse4_1", "sse4_2", "popcnt")
#: how people call them
_NAMES = {
    "sse3": "SSE3", "ssse3": "SSSE3", "sse4_1": "SSE4.1", "sse4_2": "SSE4.2", "popcnt": "POPCNT", "avx": "AVX",
    "avx2": "AVX2", "f16c": "F16C", "fma": "FMA", "bmi2": "BMI2", "avx512": "AVX-512", "avx_vnni": "AVX-VNNI",
    "avx512_vbmi": "AVX-512 VBMI", "avx512_vnni": "AVX-512 VNNI", "avx512_bf16": "AVX-512 BF16",
    "amx_int8": "AMX INT8",
}  # fmt: skip

_EAX, _EBX, _ECX, _EDX = range(4)
#: glibc's number of a CPUID leaf (sys/platform/x86.h, CPUID_INDEX_1, _7, _7_ECX_1), its register and bit
_BITS: dict[str, tuple[int, int, int]] = {
    "sse3": (0, _ECX, 0), "ssse3": (0, _ECX, 9), "fma": (0, _ECX, 12), "sse4_1": (0, _ECX, 19),
    "sse4_2": (0, _ECX, 20), "popcnt": (0, _ECX, 23), "avx": (0, _ECX, 28), "f16c": (0, _ECX, 29),
    "avx2": (1, _EBX, 5), "bmi2": (1, _EBX, 8), "avx512f": (1, _EBX, 16), "avx512dq": (1, _EBX, 17),
    "avx512cd": (1, _EBX, 28), "avx512bw": (1, _EBX, 30), "avx512vl": (1, _EBX, 31),
    "avx512_vbmi": (1, _ECX, 1), "avx512_vnni": (1, _ECX, 11), "amx_int8": (1, _EDX, 25),
    "avx_vnni": (6, _EAX, 4), "avx512_bf16": (6, _EAX, 5),
}  # fmt: skip
#: llama.cpp's "avx512" is all of these
_AVX512 = ("avx512f", "avx512cd", "avx512vl", "avx512dq", "avx512bw")
#: how Linux writes some of them
_ALIASES = {"pni": "sse3", "avx512vbmi": "avx512_vbmi"}
#: winnt.h, PF_..._INSTRUCTIONS_AVAILABLE
_WINDOWS = {13: "sse3", 36: "ssse3", 37: "sse4_1", 38: "sse4_2", 39: "avx", 40: "avx2", 41: "avx512f"}


class _Leaf(ctypes.Structure):
    """glibc, struct cpuid_feature."""

    _fields_ = [("cpuid", ctypes.c_uint32 * 4), ("active", ctypes.c_uint32 * 4)]


def is_x86() -> bool:
    return platform.machine().lower() in ("x86_64", "amd64")


def active() -> frozenset[str] | None:
    """Features that this process may use; None where that cannot be found out."""
    if not is_x86():
        return None
    found = _ask_glibc() or _ask_system()
    if not found:
        return None
    return found | {"avx512"} if set(_AVX512) <= found else found


def _ask_glibc() -> frozenset[str]:
    """Since 2.33 glibc tells what CPUID said when the process began; empty elsewhere."""
    if not sys.platform.startswith("linux"):
        return frozenset()
    try:
        ask: Callable[[int], Any] = ctypes.CDLL(None).__x86_get_cpuid_feature_leaf
    except (OSError, AttributeError):
        return frozenset()
    ask.argtypes, ask.restype = [ctypes.c_uint], ctypes.POINTER(_Leaf)  # type: ignore[attr-defined]
    leaves = {index: ask(index).contents for index in {place[0] for place in _BITS.values()}}
    return frozenset(
        name for name, (index, register, bit) in _BITS.items() if leaves[index].active[register] >> bit & 1
    )


def _ask_system() -> frozenset[str]:
    if sys.platform == "win32":
        kernel32: Any = ctypes.WinDLL("kernel32")
        return frozenset(name for number, name in _WINDOWS.items() if kernel32.IsProcessorFeaturePresent(number))
    if sys.platform.startswith("linux"):
        try:
            text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return frozenset()
        line = next((line for line in text.splitlines() if line.startswith("flags")), "")
        return frozenset(_ALIASES.get(word, word) for word in line.partition(":")[2].split())
    return frozenset()  # every x86 Mac that can run this has them


def missing(needed: Collection[str], have: Collection[str] | None) -> list[str]:
    """Those of the needed features that are not there, in people's words; none where nothing is known."""
    if have is None:
        return []
    return [_NAMES.get(name, name) for name in needed if name not in have]


def below_floor() -> str:
    """A sentence about what this processor lacks to run the program at all; "" if it lacks nothing."""
    lacks = missing(FLOOR, active())
    return (
        f"This processor lacks {', '.join(lacks)}, which Inglenook needs (processors since 2009 have it)."
        if lacks
        else ""
    )
