"""Sizes as they are shown."""

from __future__ import annotations


def size_text(n_bytes: int) -> str:
    """GiB with one decimal, below that whole MiB."""
    return f"{n_bytes / 2**30:.1f} GiB" if n_bytes >= 2**30 else f"{max(0, n_bytes) / 2**20:.0f} MiB"
