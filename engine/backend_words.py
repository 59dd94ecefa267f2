"""Which backends compute here and which do not, in words: for the window, the command line and a report."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class AddOn(msgspec.Struct, frozen=True):
    """A backend in a file of its own that was found on this computer.

    Attributes:
        name: as llama.cpp calls it ("CUDA", "Vulkan").
        state: "active" (loaded, its devices are in the registry), "no_device" (it works and has nothing to work with),
            "refused" (it belongs to another llama.cpp), "failed" (it cannot be loaded, or its trial process died).
        reason: why it is not active, in words without a full stop: "no NVIDIA driver".
    """

    name: str
    state: str
    reason: str = ""
    path: str = ""


def cpu_words(module: str) -> str:
    """The CPU backend with the module that was chosen for this processor: "CPU (zen4)"; "CPU" where it is built in."""
    return f"CPU ({module})" if module else "CPU"


def add_on_words(add_on: AddOn) -> str:
    return f"{add_on.name} add-on: {add_on.reason or 'active'}"


def summary(module: str, add_ons: Sequence[AddOn]) -> str:
    """All of it in one line: "CPU (zen4) — CUDA add-on: no NVIDIA driver"."""
    return " — ".join([cpu_words(module), *map(add_on_words, add_ons)])


def broken(add_ons: Sequence[AddOn]) -> list[str]:
    """A sentence for each add-on that should work and does not. None for one that has no device or driver here."""
    return [
        f"The {one.name} add-on is not used: {one.reason}. Without it the CPU computes, which is slower."
        for one in add_ons
        if one.state in ("refused", "failed")
    ]
