"""Which of a machine's devices a model goes to, unless the user says otherwise."""

from __future__ import annotations

from engine.fit.placement import DeviceSpec
from engine.fit.plan_records import Machine, Wishes

#: a device with less memory than this share of the largest one's is left alone: display cards are small and in use
_ALIKE = 0.5


def choose(machine: Machine, wishes: Wishes) -> tuple[tuple[DeviceSpec, ...], tuple[str, ...]]:
    """(devices to use, what was left out and why).

    Memory of unlike devices is not added up: dedicated devices come before integrated ones, of several backends the one
    with the largest device, and then devices of at least half its size.
    """
    known = {device.name for device in machine.devices}
    notes = [f"There is no device {name}." for name in (*wishes.devices, *wishes.excluded) if name not in known]
    devices = [device for device in machine.devices if device.kind != "cpu" and device.name not in wishes.excluded]
    if wishes.devices:
        return tuple(device for device in devices if device.name in wishes.devices), tuple(notes)
    silent = [device for device in devices if device.total_bytes <= 0 and device.free_bytes <= 0]
    notes += [f"{device.name} does not say how much memory it has and is not used." for device in silent]
    devices = [device for device in devices if device not in silent]
    if wishes.spread or not devices:
        return tuple(devices), tuple(notes)
    own = [device for device in devices if not device.shared and device.kind == "gpu"]
    left = [device for device in devices if device not in own]
    if own and left:
        notes += [f"{device.name} is not used: its memory is the computer's own." for device in left]
    elif not own:
        own = [max(left, key=lambda device: device.free_bytes)]
        notes.append(f"The memory of {own[0].name} is the computer's own; it is counted once.")
    largest = max(own, key=lambda device: device.total_bytes)
    used = []
    for device in own:
        if device.backend != largest.backend:
            notes.append(f"{device.name} is not used: {largest.name} is of another kind ({largest.backend}).")
        elif device.total_bytes < largest.total_bytes * _ALIKE:
            notes.append(f"{device.name} is not used: it is much smaller than {largest.name}.")
        else:
            used.append(device)
    return tuple(used), tuple(notes)
