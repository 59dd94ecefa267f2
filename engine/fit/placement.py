"""Which tensor and which layer lies on which device, and what it takes there.

Rules restated from llama.cpp (MIT; llama-model.cpp `load_tensors`, llama-model-loader.cpp `create_tensor`, the buffer
types of ggml), revision 0c1e570: the last layers go to the GPUs, the output layer first of all, the input tensors
never; an output that shares the embedding's tensor needs a second copy of it on its device.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from engine.fit.layers import ModelShape, shape
from engine.fit.tensor_groups import NO_MATRIX, NORM_IS_OUTPUT, Groups, Table, table_of
from engine.models import quant
from engine.models.gguf_header import GgufHeader, TensorInfo

#: index of the host in lists that have one entry per device and then the host
HOST = -1
#: the buffer alignment and row padding that llama.cpp's backends ask for: (align, pad rows to)
_CPU_LAYOUT = (32, 0)
_LAYOUTS = {"CPU": _CPU_LAYOUT, "RPC": _CPU_LAYOUT, "CUDA": (128, 512), "ROCM": (128, 512), "MUSA": (128, 512)}
_OTHER_LAYOUT = (128, 0)

#: architectures that copy the embedding for the output even where both are on the host
ALWAYS_COPIES = frozenset(("gemma3n", "gemma4"))


@dataclass(frozen=True)
class DeviceSpec:
    """A device that layers can be put on, with the memory it has now.

    Attributes:
        name: llama.cpp's name of it ("CUDA0").
        kind: "cpu" devices are the host and take no layers here.
        free_bytes: room now; the default split between several devices follows it.
        backend: registry name ("CUDA", "Vulkan", "Metal", "RPC"); decides alignment and how work is scheduled.
        shared: its memory is the host's (integrated devices).
        description: what people call it ("NVIDIA GeForce RTX 4070"); empty where nobody said.
    """

    name: str
    kind: Literal["gpu", "igpu", "cpu"]
    free_bytes: int
    total_bytes: int
    backend: str = "CUDA"
    shared: bool = False
    description: str = ""

    @property
    def label(self) -> str:
        """Its name for people."""
        return self.description or self.name


def layout(backend: str) -> tuple[int, int]:
    """(alignment of tensors in bytes, row length that quantized tensors are padded to or 0)."""
    return _LAYOUTS.get(backend.upper(), _OTHER_LAYOUT)


@dataclass(frozen=True)
class Weights:
    """Padded bytes of the tensors of a model for one layout, by where they go together.

    Attributes:
        layers: of each layer all but its experts.
        experts: of each layer its experts.
        every: copied to each device with a layer.
        tied: a copy of the embedding for the output layer; 0 if it has a matrix of its own.
    """

    input: int
    output: int
    layers: tuple[int, ...]
    experts: tuple[int, ...]
    every: int
    tied: int
    output_matrix: int
    _groups: Groups = field(repr=False, compare=False)
    _sizes: list[int] = field(repr=False, compare=False)

    @cached_property
    def largest(self) -> tuple[dict[str, int], ...]:
        """Of each layer the largest matrix by kind: "attention", "inner" (from the model's width), "down" (back to it),
        and the same of experts, "expert_inner", "expert_down". Only asked for where a part stays on the host."""
        sizes = self._sizes
        return tuple([NO_MATRIX | {kind: max(pick(sizes)) for kind, pick in kinds} for kinds in self._groups.largest])


@dataclass
class Model:
    """A header prepared for many questions. Not changed once it is made, but for remembered answers.

    Attributes:
        shape: its hyper-parameters.
        tensors: of all parts of a split model.
        table: of the same tensors.
    """

    shape: ModelShape
    tensors: list[TensorInfo]
    table: Table
    weights_of: dict[tuple[int, int], Weights] = field(default_factory=dict)

    def weights(self, backend: str) -> Weights:
        rule = layout(backend)
        known = self.weights_of.get(rule)
        if known is None:
            self.weights_of[_CPU_LAYOUT], known = _sum_up(self, rule)
            self.weights_of[rule] = known
        return known


#: models by the identities of their headers, which are kept alive with them; the oldest go first
_known: dict[tuple[int, ...], tuple[tuple[GgufHeader, ...], Model]] = {}
_MOST_KNOWN = 512


def prepare(header: GgufHeader, more: Sequence[GgufHeader] = (), adapters: Sequence[GgufHeader] = ()) -> Model:
    """Look at every tensor once. Models are remembered by the identity of their headers: lists are judged again and
    again, with every change of the free memory.

    Args:
        more: headers of the other parts of a split model.
        adapters: of LoRA adapters for it; each of their matrices lies where the matrix that it changes does.
    """
    headers = (header, *more, *adapters)
    key = tuple(map(id, headers))
    known = _known.get(key)
    if known is not None:
        return known[1]
    tensors = [tensor for part in (header, *more) for tensor in part.tensors] if more else header.tensors
    table = table_of(tensors)
    found = shape(header, more, table)
    if adapters:
        tensors = [*tensors, *(tensor for adapter in adapters for tensor in adapter.tensors)]
        table = table_of(tensors)
    model = Model(found, tensors, table)
    while len(_known) >= _MOST_KNOWN:
        _known.pop(next(iter(_known)), None)
    _known[key] = (headers, model)
    return model


def _sum_up(model: Model, rule: tuple[int, int]) -> tuple[Weights, Weights]:
    """Weights in the host's layout and in this one. Whole lists at a time: lists of models are judged by it."""
    tensors, shape = model.tensors, model.shape
    found = model.table.groups(shape.n_layer, len(shape.layers), shape.architecture in NORM_IS_OUTPUT)
    align, row = rule
    plain = [tensor.n_bytes for tensor in tensors]
    padded = plain
    if row:
        padded = plain.copy()
        for at, missing in found.uneven(row):
            padded[at] += _row_padding(tensors[at].type, missing)
    host_low, low = _CPU_LAYOUT[0] - 1, align - 1
    host = [(size + host_low) & ~host_low for size in plain]
    here = [(size + low) & ~low for size in padded]
    host.append(0)  # the place that `Groups` adds to every group
    here.append(0)
    tied = shape.causal and bool(shape.architecture)
    return _weights(found, host, here, tied), _weights(found, here, here, tied)


def _weights(found: Groups, sizes: list[int], on_device: list[int], tied: bool) -> Weights:
    named = {group: sum(pick(sizes)) for group, pick in found.named.items()}
    layers = [sum(pick(sizes)) for pick in found.layers]
    experts = [sum(pick(sizes)) for pick in found.experts] or [0] * len(layers)
    if layers:
        layers[0] += named["first"]
    copy = named["embedding"] if tied and not named["matrix"] else 0
    return Weights(
        input=named["input"] + named["embedding"],
        output=named["output"] + named["matrix"],
        layers=tuple(layers),
        experts=tuple(experts),
        every=named["every"],
        tied=copy,
        output_matrix=named["matrix"] or copy,
        _groups=found,
        _sizes=on_device,
    )


def _row_padding(type_id: int, missing: int) -> int:
    kind = quant.TENSOR_TYPES[type_id]
    return missing // kind.block_size * kind.type_size if kind.block_size > 1 else 0


def usable(devices: Iterable[DeviceSpec]) -> list[bool]:
    """Which devices llama.cpp puts layers on: GPUs; integrated ones only where there is no other."""
    devices = list(devices)
    own = any(device.kind == "gpu" for device in devices)
    return [device.kind == "gpu" or (device.kind == "igpu" and not own) for device in devices]


@dataclass(frozen=True)
class Placement:
    """Where each layer lies.

    Attributes:
        devices: index of a device, or HOST, for each layer and then the output layer.
        n_cpu_moe: the experts of this many first layers stay on the host.
        on_gpu: layers on devices, the output layer counted.
    """

    devices: tuple[int, ...]
    n_cpu_moe: int
    on_gpu: int

    @property
    def everything(self) -> bool:
        return self.on_gpu == len(self.devices)


def place(
    n_layers: int,
    n_gpu_layers: int | None,
    devices: Sequence[DeviceSpec],
    tensor_split: Sequence[float] = (),
    n_cpu_moe: int = 0,
    host_free_bytes: int = 0,
) -> Placement:
    """Lay `n_layers` (as the file counts them) and the output layer out over the devices.

    Args:
        n_gpu_layers: None or below 0: all.
        tensor_split: shares of the usable devices; all zero or empty: by their free memory.
        host_free_bytes: stands in for the free memory of a device that reports none.
    """
    total = n_layers + 1
    indices = [index for index, use in enumerate(usable(devices)) if use]
    wanted = total if n_gpu_layers is None or n_gpu_layers < 0 else min(n_gpu_layers, total)
    if not indices:
        wanted = 0
    start = total - wanted
    shares = _shares(indices, devices, tensor_split, host_free_bytes)
    where = [HOST] * start
    if len(indices) == 1:  # the usual case needs no arithmetic
        return Placement((*where, *indices * wanted), max(0, n_cpu_moe), wanted)
    for i in range(wanted):
        at = min(bisect_right(shares, _f32(i / wanted)), len(indices) - 1)
        where.append(indices[at])
    return Placement(tuple(where), max(0, n_cpu_moe), wanted)


def _shares(
    indices: list[int], devices: Sequence[DeviceSpec], tensor_split: Sequence[float], host_free_bytes: int
) -> list[float]:
    """Cumulated shares, 0 to 1, computed in 32-bit numbers as llama.cpp does."""
    given = [float(share) for share in tensor_split][: len(indices)]
    given += [0.0] * (len(indices) - len(given))
    if not any(given):
        for at, index in enumerate(indices):
            device = devices[index]
            known = device.free_bytes > 0 or device.total_bytes > 0
            given[at] = float(device.free_bytes if known else host_free_bytes)
    if not any(given):
        given = [1.0] * len(indices)
    cumulated, running = [], 0.0
    for share in given:
        running = _f32(running + _f32(max(0.0, share)))
        cumulated.append(running)
    return [_f32(value / running) for value in cumulated] if running > 0 else [1.0] * len(indices)


def _f32(value: float) -> float:
    return ctypes.c_float(value).value


def weights_by_device(model: Model, placement: Placement, devices: Sequence[DeviceSpec]) -> list[int]:
    """Bytes of weights on each device, then on the host."""
    found = [0] * (len(devices) + 1)
    rules = [model.weights(device.backend) for device in devices] + [model.weights("CPU")]
    host = rules[HOST]
    *layers, output = placement.devices
    for index, at in enumerate(layers):
        rule = rules[at]
        found[at] += rule.layers[index]
        if index < placement.n_cpu_moe:
            found[HOST] += host.experts[index]
        else:
            found[at] += rule.experts[index]
    found[HOST] += host.input
    found[output] += rules[output].output
    if rules[output].tied and (output != HOST or model.shape.architecture in ALWAYS_COPIES):
        found[output] += rules[output].tied
    for at in set(layers[: model.shape.n_layer]):
        found[at] += rules[at].every
    return found
