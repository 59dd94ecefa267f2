"""Numbers as they stand on screen: bytes as MiB or GiB, rates and times with fitting digits, a dash for nothing."""

from __future__ import annotations

import math

DASH = "—"
_MIB = 1024**2
_GIB = 1024**3


def count(value: int | None) -> str:
    """1884 -> "1,884"."""
    return DASH if value is None else f"{value:,}"


def size(n_bytes: int | None) -> str:
    """Bytes as "412 MiB" or "5.2 GiB"."""
    if n_bytes is None or n_bytes < 0:
        return DASH
    if n_bytes >= _GIB:
        return f"{n_bytes / _GIB:.1f} GiB"
    mib = n_bytes / _MIB
    return f"{mib:.0f} MiB" if mib >= 10 or mib == 0 else f"{mib:.1f} MiB"


def rate(per_second: float | None) -> str:
    """Tokens per second without its unit: "48.2", "1,940"; a dash where it is not defined."""
    if per_second is None or not math.isfinite(per_second) or per_second < 0:
        return DASH
    return f"{per_second:,.0f}" if per_second >= 1000 else f"{per_second:.1f}"


def seconds(value_s: float | None) -> str:
    """As "0.21 s", "12.3 s", "2 min 05 s"; a dash where it is not defined."""
    if value_s is None or not math.isfinite(value_s) or value_s < 0:
        return DASH
    if value_s >= 60:
        minutes, rest = divmod(round(value_s), 60)
        return f"{minutes} min {rest:02d} s"
    return f"{value_s:.1f} s" if value_s >= 10 else f"{value_s:.2f} s"
