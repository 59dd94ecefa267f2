"""Does it fit: what a way of loading needs, against what every device and the host have free."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from engine.fit.needs import DeviceNeed, LoadOptions, Needs, needs_of
from engine.fit.placement import DeviceSpec, Model
from engine.fit.plan_records import MIB, DeviceFit, Machine

#: kept free on a GPU: for the screen, other programs that grow, and what no formula knows
_GPU_HEADROOM = (512 * MIB, 0.03)
_HOST_HEADROOM = (256 * MIB, 0.01)
#: a Windows desktop takes more while it is used
_WINDOWS_DISPLAY = 300 * MIB
#: what the first prompt adds: scratch of the matrix library and its pools. Remote devices are not ours to judge, the
#: CPU has none
_FIRST_PROMPT = 150 * MIB
_NO_GROWTH = frozenset(("RPC", "CPU", "BLAS"))


def grows(backend: str) -> int:
    """Bytes that the first prompt adds on a device of this backend."""
    return 0 if backend.upper() in _NO_GROWTH else _FIRST_PROMPT


def headroom(device: DeviceSpec, platform: str = sys.platform) -> int:
    """Bytes that are left free on a device."""
    least, share = _GPU_HEADROOM
    room = max(least, int(device.total_bytes * share))
    return room + (_WINDOWS_DISPLAY if platform == "win32" else 0)


def host_headroom(machine: Machine) -> int:
    least, share = _HOST_HEADROOM
    return max(least, int(machine.ram_total_bytes * share))


@dataclass(frozen=True)
class Look:
    """One way of loading, judged.

    Attributes:
        device_short: bytes missing on devices with headroom, host_short: in main memory.
    """

    options: LoadOptions
    needs: Needs
    devices: tuple[DeviceFit, ...]
    host: DeviceFit
    device_short: int
    host_short: int

    @property
    def fits(self) -> bool:
        return not self.device_short and not self.host_short

    @property
    def fits_without_headroom(self) -> bool:
        return not self.over_bytes

    @property
    def over_bytes(self) -> int:
        shared = sum(device.need.total_bytes for device in self.devices if device.shared)
        host = max(0, self.host.need.total_bytes + shared - self.host.free_bytes)
        return sum(device.over_bytes for device in self.devices) + host

    @property
    def on_devices(self) -> int:
        return sum(device.need.total_bytes for device in self.devices)

    @property
    def everything(self) -> int:
        return self.on_devices + self.host.need.total_bytes


class Judge:
    """Looks at ways to load one model on one set of devices; remembers what it has seen.

    Args:
        corrections: bytes to add by device name ("Host" too), learned from real loads.
        weight_scale: size of the quantization in question over that of the header's.
        ask: gives the needs; the formula by default.
    """

    def __init__(
        self,
        model: Model,
        machine: Machine,
        devices: Sequence[DeviceSpec],
        *,
        corrections: Mapping[str, int] | None = None,
        weight_scale: float = 1.0,
        ask: Callable[[LoadOptions], Needs] | None = None,
    ) -> None:
        self.model, self.machine, self.devices = model, machine, tuple(devices)
        self._corrections = corrections or {}
        self._scale = weight_scale
        self._ask = ask or (lambda options: needs_of(model, options, self.devices))
        self._seen: dict[LoadOptions, Look] = {}
        self._headrooms = [headroom(device) for device in self.devices]

    @property
    def n_layers(self) -> int:
        """Layers with the output layer."""
        return len(self.model.shape.layers) + 1

    def look(self, options: LoadOptions) -> Look:
        known = self._seen.get(options)
        if known is None:
            known = self._seen[options] = self._look(options)
        return known

    def _look(self, options: LoadOptions) -> Look:
        needs = self._ask(options)
        fits = []
        for device, need, room in zip(self.devices, needs.devices, self._headrooms, strict=True):
            extra = grows(device.backend) + self._corrections.get(device.name, 0) if need.total_bytes else 0
            fits.append(
                DeviceFit(
                    device.name,
                    self._full(need, extra),
                    device.free_bytes,
                    device.total_bytes,
                    room,
                    device.shared,
                    device.description,
                )
            )
        machine = self.machine
        host = DeviceFit(
            "Host",
            self._full(needs.host, self._corrections.get("Host", 0)),
            machine.ram_available_bytes,
            machine.ram_total_bytes,
            host_headroom(machine),
        )
        shared = sum(fit.need.total_bytes for fit in fits if fit.shared)
        host_short = max(0, host.need.total_bytes + shared + host.headroom_bytes - host.free_bytes)
        needs = replace(needs, devices=tuple(fit.need for fit in fits), host=host.need)
        return Look(options, needs, tuple(fits), host, sum(fit.short_bytes for fit in fits), host_short)

    def _full(self, need: DeviceNeed, extra: int) -> DeviceNeed:
        weights = need.weights_bytes if self._scale == 1 else round(need.weights_bytes * self._scale)
        return replace(need, weights_bytes=weights, overhead_bytes=max(0, need.overhead_bytes + extra))
