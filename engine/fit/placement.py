"""Which tensor and which layer lies on which device, and what it takes there.

Rules restated from llama.cpp (MIT; llama-model.cpp `load_tensors`, llama-model-loader.cpp `create_tensor`, the buffer
types of ggml), revision 0c1e570: the last layers go to the GPUs, the output layer first of all, the input tensors
never; an output that shares the embedding's tensor needs a second copy of it on its device.
"""

from __future__ import annotations

import ctypes
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from engine.fit.layers import ModelShape, shape
from engine.models import quant
from engine.models.gguf_header import GgufHeader, TensorInfo

#: index of the host in lists that have one entry per device and then the host
HOST = -1
#: the buffer alignment and row padding that llama.cpp's backends ask for: (align, pad rows to)
_CPU_LAYOUT = (32, 0)
_LAYOUTS = {"CPU": _CPU_LAYOUT, "RPC": _CPU_LAYOUT, "CUDA": (128, 512), "ROCM": (128, 512), "MUSA": (128, 512)}
_OTHER_LAYOUT = (128, 0)

#: names (without ".weight", ".bias") that go to the host whatever is offloaded
_INPUT = frozenset(["token_embd", "per_layer_token_embd", "position_embd", "token_types"])
#: used by every layer, so every device that has layers gets a copy
_EVERY_LAYER = frozenset(["rope_freqs", "rope_factors_long", "rope_factors_short"])
#: belong to layer 0
_FIRST_LAYER = frozenset(
    ["per_layer_model_proj", "per_layer_proj_norm", "hrm.z_l_init", "nextn.pre_projection", "conv1d"]
)
#: in files but not read
_UNUSED = frozenset(["masked_embd_centroids", "masked_embd_ordering"])
_BLOCK = re.compile(r"(?:enc\.|dec\.)?blk\.(\d+)\.")
_GROUPS = ("input", "embedding", "output", "matrix", "every", "first", "unused")
_NAMED = (("input", _INPUT), ("every", _EVERY_LAYER), ("unused", _UNUSED), ("first", _FIRST_LAYER))
_KINDS = ("attention", "inner", "down", "expert_inner", "expert_down")
_EXPERT = re.compile(r"blk\.\d+\.ffn_(up|down|gate|gate_up)_(ch|)exps")
#: architectures that copy the embedding for the output even where both are on the host
ALWAYS_COPIES = frozenset(("gemma3n", "gemma4"))
#: whose embedding norm is the output norm under another name
NORM_IS_OUTPUT = frozenset(("lfm2", "lfm2moe"))


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
        largest: of each layer the largest matrix by kind: "attention", "inner" (from the model's width), "down" (back
            to it), and the same of experts, "expert_inner", "expert_down".
        every: copied to each device with a layer.
        tied: a copy of the embedding for the output layer; 0 if it has a matrix of its own.
    """

    input: int
    output: int
    layers: tuple[int, ...]
    experts: tuple[int, ...]
    largest: tuple[dict[str, int], ...]
    every: int
    tied: int
    output_matrix: int


@dataclass
class Model:
    """A header prepared for many questions. Not changed once it is made, but for remembered answers.

    Attributes:
        shape: its hyper-parameters.
        tensors: of all parts of a split model.
    """

    shape: ModelShape
    tensors: list[TensorInfo]
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
    tensors = header.tensors if len(headers) == 1 else [tensor for part in headers for tensor in part.tensors]
    model = Model(shape(header, more), tensors)
    while len(_known) >= _MOST_KNOWN:
        _known.pop(next(iter(_known)), None)
    _known[key] = (headers, model)
    return model


def _sum_up(model: Model, rule: tuple[int, int]) -> tuple[Weights, Weights]:
    """Weights in the host's layout and in this one. A tight loop: long lists of models are judged by it."""
    shape = model.shape
    n_layer, count = shape.n_layer, len(shape.layers)
    align, row = rule
    host_low, low = _CPU_LAYOUT[0] - 1, align - 1
    norm = "output" if shape.architecture in NORM_IS_OUTPUT else "first"
    host_layers, host_experts, layers, experts = ([0] * count for _ in range(4))
    host_groups, groups = dict.fromkeys(_GROUPS, 0), dict.fromkeys(_GROUPS, 0)
    largest = [dict.fromkeys(_KINDS, 0) for _ in range(count)]
    for tensor in model.tensors:
        group, index, kind = classify(tensor.name)
        host_size = size = tensor.n_bytes
        if row and (over := (tensor.dims or (row,))[0] % row):
            size += _row_padding(tensor.type, row - over)
        host_size = (host_size + host_low) & ~host_low
        size = (size + low) & ~low
        if index < 0:
            group = norm if group == "norm" else group
            host_groups[group] += host_size
            groups[group] += size
        elif index < n_layer:  # later ones predict further tokens and are not loaded
            if group == "experts":
                host_experts[index] += host_size
                experts[index] += size
            else:
                host_layers[index] += host_size
                layers[index] += size
            if size > largest[index][kind] and len(tensor.dims) > 1:
                largest[index][kind] = size
    tied = shape.causal and bool(shape.architecture)
    return (
        _weights(host_groups, host_layers, host_experts, largest, tied),
        _weights(groups, layers, experts, largest, tied),
    )


def _weights(
    groups: dict[str, int], layers: list[int], experts: list[int], largest: list[dict[str, int]], tied: bool
) -> Weights:
    if layers:
        layers[0] += groups["first"]
    copy = groups["embedding"] if tied and not groups["matrix"] else 0
    return Weights(
        input=groups["input"] + groups["embedding"],
        output=groups["output"] + groups["matrix"],
        layers=tuple(layers),
        experts=tuple(experts),
        largest=tuple(largest),
        every=groups["every"],
        tied=copy,
        output_matrix=groups["matrix"] or copy,
    )


def _row_padding(type_id: int, missing: int) -> int:
    kind = quant.TENSOR_TYPES[type_id]
    return missing // kind.block_size * kind.type_size if kind.block_size > 1 else 0


@lru_cache(maxsize=1 << 16)
def classify(name: str) -> tuple[str, int, str]:
    """(group, layer or -1, kind) of a tensor; names are the same in thousands of models.

    Groups: "layer" and "experts" of a layer, and of the rest "input", "embedding", "output" (norms of the end),
    "matrix" (the output's), "norm" (of the embedding), "every" (copied to each device), "first" (of layer 0), "unused".
    """
    block = _BLOCK.match(name)
    if block:
        index = int(block[1]) if len(block[1]) < 6 else 1 << 20
        expert = _EXPERT.search(name)
        if expert:
            return "experts", index, "expert_down" if expert[1] == "down" else "expert_inner"
        return "layer", index, "attention" if ".attn_" in name else "down" if ".ffn_down" in name else "inner"
    if name == "token_embd.weight":
        return "embedding", -1, ""
    if name.startswith("token_embd.weight.lora_"):
        return "input", -1, ""
    if name == "output.weight":
        return "matrix", -1, ""
    stem = name.rpartition(".")[0] or name
    if stem == "token_embd_norm":
        return "norm", -1, ""
    group = next((group for group, names in _NAMED if stem in names), "output")
    return group, -1, ""


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
