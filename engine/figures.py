"""What a load was expected to take and what it took, as data for every reader."""

from __future__ import annotations

import msgspec


class DeviceFigures(msgspec.Struct, frozen=True, omit_defaults=True):
    """One device, or "Host": what was predicted beside what llama.cpp really took, in bytes.

    Attributes:
        overhead_bytes: predicted beyond llama.cpp's own categories.
        measured_weights_bytes, ...: None before the load. On the host weights are the mapped part of the file.
        free_bytes: before the load. free_after_bytes: after it, where the driver tells.
    """

    name: str
    weights_bytes: int = 0
    kv_bytes: int = 0
    compute_bytes: int = 0
    overhead_bytes: int = 0
    measured_weights_bytes: int | None = None
    measured_kv_bytes: int | None = None
    measured_compute_bytes: int | None = None
    free_bytes: int = 0
    total_bytes: int = 0
    free_after_bytes: int | None = None


class FitSummary(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a load was planned, and after it what it took.

    Attributes:
        verdict: "gpu", "split", "cpu", "too_large", "unknown".
        source: "formula" or "probe" (llama.cpp's own dry run).
        devices: the devices used, then "Host".
        steps: what was given up for room, in words. reasons: why it is so.
        decode_tps_low, decode_tps_high: expected tokens a second; speed_basis: "estimate" or "calibrated".
        error: measured over predicted minus 1, of all that llama.cpp counts on devices (on the host where there is no
            device); None before the load.
        stepped_down: the first try did not fit, this is the second.
    """

    verdict: str
    source: str = "formula"
    devices: tuple[DeviceFigures, ...] = ()
    steps: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    decode_tps_low: float = 0.0
    decode_tps_high: float = 0.0
    speed_basis: str = "estimate"
    error: float | None = None
    stepped_down: bool = False
