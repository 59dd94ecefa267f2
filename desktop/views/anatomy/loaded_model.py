"""A loaded model with all that its page shows. Reading it may take its time: it runs beside the window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from desktop.fit_desk import Subject, read_subject
from engine.anatomy import Anatomy, anatomy, loaded_layout, measured_weights
from engine.events import ModelInfo


@dataclass(frozen=True)
class LoadedModel:
    """A loaded model with its parts. measured: bytes of llama.cpp's buffers by place. labels: names of devices."""

    info: ModelInfo
    subject: Subject
    found: Anatomy
    measured: dict[str, int]
    labels: dict[str, str]


def device_label(name: str, description: str, backend: str) -> str:
    """What people call a device; of a remote one its description is only an address."""
    if backend.startswith("RPC") and description:
        return f"{name} {description}"
    return description or name


def look(path: str, info: ModelInfo, read: Callable[[str], Subject] = read_subject) -> LoadedModel | None:
    """Read the headers of a loaded model; None where llama.cpp did not say how it is placed.

    Raises:
        the errors of `read`.
    """
    layout = loaded_layout(info)
    if layout is None:
        return None
    subject = read(path)
    if info.adapters:
        from engine.models.adapter import read_adapter

        subject = replace(subject, adapters=tuple(read_adapter(adapter.path) for adapter in info.adapters))
    found = anatomy(subject.header, layout, subject.more, subject.quantization)
    labels = {device.name: device_label(device.name, device.description, device.backend) for device in info.devices}
    return LoadedModel(info, subject, found, measured_weights(info), labels)
