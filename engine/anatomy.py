"""What a model is made of and where each part lies: its parts row by row, their bytes, types and bits per weight.

Parts come from the tensor table of the file. Where they lie is what llama.cpp said of its layers when it loaded them,
or what a plan would do; which tensor goes with which layer are the rules of `engine.fit.placement`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from engine.events import ModelInfo
from engine.fit.before_load import measured_by_device
from engine.fit.placement import ALWAYS_COPIES, DeviceSpec, Model, place, prepare
from engine.fit.plan_records import FitPlan
from engine.fit.tensor_groups import NORM_IS_OUTPUT, classify
from engine.models import quant
from engine.models.gguf_header import GgufHeader, TensorInfo

#: the name of main memory in all figures
HOST = "Host"
Kind = Literal["embedding", "attention", "feed_forward", "experts", "state", "other", "output"]
#: in the order in which they are told
KINDS: tuple[Kind, ...] = ("embedding", "attention", "feed_forward", "experts", "state", "other", "output")

_ATTENTION = re.compile(r"\.(attn|attention|post_attention|self_attn)")
_FEED_FORWARD = re.compile(r"\.(ffn|post_ffw|pre_ffw|layer_out|channel_mix|exp_probs)")
_STATE = re.compile(r"\.(ssm|time_mix|shortconv|conv)")
#: the number in a name such as "Q4_K_M", "IQ3_XXS", "BF16", "MXFP4"
_DIGITS = re.compile(r"^(?:[A-Z]*?)(?:Q|F|FP|I|T)(\d+)")
_TERNARY = math.log2(3)


@dataclass(frozen=True)
class TypeShare:
    """What is stored in one tensor type. kinds: parts in which it is used."""

    name: str
    n_tensors: int
    n_params: int
    n_bytes: int
    kinds: tuple[Kind, ...] = ()

    @property
    def bits(self) -> float:
        """Bits per weight, scales of the blocks included."""
        return self.n_bytes * 8 / self.n_params if self.n_params else 0.0


@dataclass(frozen=True)
class Piece:
    """A part that lies in one place.

    Attributes:
        place: name of a device, or `HOST`.
        n_params: numbers in it. n_bytes: what they take, without padding.
        copy: the same numbers lie elsewhere too (an output that is the embedding, turned round).
    """

    kind: Kind
    place: str
    n_params: int
    n_bytes: int
    types: tuple[TypeShare, ...]
    copy: bool = False


@dataclass(frozen=True)
class Row:
    """The embedding, one layer, or the output; in the order in which a token goes through them.

    Attributes:
        layer: its index; -1 for the embedding and the output.
        place: where it is computed.
    """

    name: str
    layer: int
    place: str
    pieces: tuple[Piece, ...]

    @property
    def n_bytes(self) -> int:
        return sum(piece.n_bytes for piece in self.pieces)


@dataclass(frozen=True)
class PlaceSum:
    """What lies in one place. n_layers: computed there, the output layer counted as llama.cpp does."""

    name: str
    n_bytes: int
    n_layers: int


@dataclass(frozen=True)
class Layout:
    """Where layers lie.

    Attributes:
        layers: name of the device, or `HOST`, of each layer and then of the output layer.
        n_cpu_moe: the experts of this many first layers stay in main memory.
    """

    layers: tuple[str, ...]
    n_cpu_moe: int = 0


@dataclass(frozen=True)
class Anatomy:
    """A whole model.

    Attributes:
        rows: embedding, layers, output.
        places: main memory first, then devices in the order of the layers on them.
        types: all tensors that are loaded, by type, the largest first; copies are not counted.
        n_params, n_bytes: of what is loaded, each number once.
        not_loaded_bytes: what the file holds beyond it.
        tied: the output uses the embedding's numbers.
        nominal_bits: of its quantization by name (4 for "Q4_K_M"); None where the name tells none.
    """

    quantization: str
    rows: tuple[Row, ...]
    places: tuple[PlaceSum, ...]
    types: tuple[TypeShare, ...]
    n_params: int
    n_bytes: int
    not_loaded_bytes: int = 0
    tied: bool = False
    nominal_bits: float | None = None

    @property
    def bits(self) -> float:
        """Bits per weight over the whole model."""
        return self.n_bytes * 8 / self.n_params if self.n_params else 0.0

    @property
    def ideal_bytes(self) -> int | None:
        """Parameters x bits / 8, with the bits that the quantization is named after."""
        return None if self.nominal_bits is None else round(self.n_params * self.nominal_bits / 8)

    @property
    def scale_bytes(self) -> int:
        """What goes into scales and offsets of blocks: beyond the bits that each tensor's type is named after."""
        return sum(share.n_bytes - round(share.n_params * _named(share)) for share in self.types)

    @property
    def finer_bytes(self) -> int | None:
        """What tensors take because their type is finer (or, below 0, coarser) than the model's quantization."""
        if self.nominal_bits is None or self.ideal_bytes is None:
            return None
        return self.n_bytes - self.ideal_bytes - self.scale_bytes


def nominal_bits(name: str) -> float | None:
    """Bits that a quantization or a tensor type is named after; None where its name holds no number."""
    label = name.upper().removeprefix("UD-")
    if label.startswith(("TQ1", "TQ2")):
        return _TERNARY if label.startswith("TQ1") else 2.0
    found = _DIGITS.match(label)
    return float(found[1]) if found and int(found[1]) <= 64 else None


def _named(share: TypeShare) -> float:
    """Bytes per weight by the type's name; what it really takes where the name says nothing."""
    bits = nominal_bits(share.name)
    return (share.bits if bits is None else bits) / 8


# ------------------------------------------------------------------ where layers lie


def loaded_layout(info: ModelInfo) -> Layout | None:
    """How llama.cpp placed a loaded model; None where it did not say it."""
    if len(info.layer_devices) < 2:
        return None
    gpus = {device.name for device in info.devices if device.kind in ("gpu", "igpu")}
    return Layout(tuple(name if name in gpus else HOST for name in info.layer_devices), info.n_cpu_moe)


def planned_layout(plan: FitPlan, devices: Sequence[DeviceSpec], n_layers: int) -> Layout:
    """How a plan would place a model.

    Args:
        devices: what there is; those that the plan does not use are left out.
        n_layers: as the file counts them, without the output layer.
    """
    used = [device for device in devices if device.name in plan.use_devices]
    options = plan.options
    found = place(n_layers, options.n_gpu_layers, used, options.tensor_split, options.n_cpu_moe)
    return Layout(tuple(HOST if at < 0 else used[at].name for at in found.devices), found.n_cpu_moe)


def measured_weights(info: ModelInfo) -> dict[str, int]:
    """Bytes of llama.cpp's own model buffers, without adapters, by device and `HOST`.

    In main memory a mapped file counts from its first to its last tensor that is used there, whatever lies between.
    """
    names = [device.name for device in info.devices if device.kind in ("gpu", "igpu")]
    buffers = {key: size for key, size in info.buffers.items() if key.endswith(" model")}
    found = measured_by_device(buffers, names, info.devices)
    return {name: parts["weights"] for name, parts in found.items() if "weights" in parts}


# ------------------------------------------------------------------ parts


class _Sums:
    """Bytes and numbers by tensor type."""

    def __init__(self) -> None:
        self._by_type: dict[int, list[int]] = {}
        self._kinds: dict[int, set[Kind]] = {}

    def add(self, tensor: TensorInfo, kind: Kind) -> None:
        sums = self._by_type.setdefault(tensor.type, [0, 0, 0])
        sums[0] += 1
        sums[1] += tensor.n_elements
        sums[2] += tensor.n_bytes
        self._kinds.setdefault(tensor.type, set()).add(kind)

    def shares(self) -> tuple[TypeShare, ...]:
        found = [
            TypeShare(
                quant.tensor_type_name(type_id),
                n_tensors,
                n_params,
                n_bytes,
                tuple(kind for kind in KINDS if kind in self._kinds[type_id]),
            )
            for type_id, (n_tensors, n_params, n_bytes) in self._by_type.items()
        ]
        return tuple(sorted(found, key=lambda share: -share.n_bytes))


class _Builder:
    """Puts each tensor into its row and its place."""

    def __init__(self, model: Model, layout: Layout) -> None:
        self._shape, self._layout = model.shape, layout
        self._n_layer = min(model.shape.n_layer, len(layout.layers) - 1)
        self._cells: dict[tuple[int, Kind, str, bool], _Sums] = {}
        self.all = _Sums()
        self.not_loaded = 0
        matrix = any(tensor.name == "output.weight" for tensor in model.tensors)
        self.tied = model.shape.causal and bool(model.shape.architecture) and not matrix
        for tensor in model.tensors:
            self._add(tensor)

    def _add(self, tensor: TensorInfo) -> None:
        group, index, _ = classify(tensor.name)
        if group == "unused" or index >= self._n_layer:
            self.not_loaded += tensor.n_bytes
            return
        for cell in self._cells_of(tensor.name, group, index):
            self._cells.setdefault(cell, _Sums()).add(tensor, cell[1])
        self.all.add(tensor, kind_of(tensor.name))

    def _cells_of(self, name: str, group: str, index: int) -> list[tuple[int, Kind, str, bool]]:
        """(row, kind, place, whether it is a copy) of a tensor, the first one being its own."""
        layers, kind, last = self._layout.layers, kind_of(name), self._n_layer + 1
        output = layers[-1]
        if index >= 0:
            stays = group == "experts" and index < self._layout.n_cpu_moe
            return [(index + 1, kind, HOST if stays else layers[index], False)]
        if group == "every":
            places = list(dict.fromkeys(layers[: self._n_layer]))
            return [(layers.index(at) + 1, "other", at, number > 0) for number, at in enumerate(places)]
        if group == "embedding" and self.tied and (output != HOST or self._shape.architecture in ALWAYS_COPIES):
            return [(0, "embedding", HOST, False), (last, "output", output, True)]
        if group in ("input", "embedding"):
            return [(0, "embedding", HOST, False)]
        if group == "first" or (group == "norm" and self._shape.architecture not in NORM_IS_OUTPUT):
            return [(1, "other", layers[0], False)]
        return [(last, "output", output, False)]

    def rows(self) -> tuple[Row, ...]:
        layers = self._layout.layers
        names = ["embedding", *(f"layer {index}" for index in range(self._n_layer)), "output"]
        places = [HOST, *layers[: self._n_layer], layers[-1]]
        pieces: list[list[Piece]] = [[] for _ in names]
        order = sorted(self._cells, key=lambda cell: (cell[0], KINDS.index(cell[1])))
        for cell in order:
            row, kind, at, copy = cell
            shares = self._cells[cell].shares()
            n_params, n_bytes = sum(share.n_params for share in shares), sum(share.n_bytes for share in shares)
            pieces[row].append(Piece(kind, at, n_params, n_bytes, shares, copy))
        return tuple(
            Row(name, row - 1 if 0 < row < len(names) - 1 else -1, places[row], tuple(pieces[row]))
            for row, name in enumerate(names)
        )


def kind_of(name: str) -> Kind:
    """The part that a tensor belongs to, by its name."""
    group, index, _ = classify(name)
    if group == "experts":
        return "experts"
    if index >= 0:
        if _ATTENTION.search(name):
            return "attention"
        if _FEED_FORWARD.search(name):
            return "feed_forward"
        return "state" if _STATE.search(name) else "other"
    if group in ("input", "embedding"):
        return "embedding"
    return "other" if group in ("every", "first", "norm") else "output"


def anatomy(header: GgufHeader, layout: Layout, more: Sequence[GgufHeader] = (), quantization: str = "") -> Anatomy:
    """The parts of a model in these places.

    Args:
        more: headers of the other parts of a split model.
        quantization: its label.
    """
    built = _Builder(prepare(header, more), layout)
    rows, types = built.rows(), built.all.shares()
    return Anatomy(
        quantization=quantization,
        rows=rows,
        places=_places(rows),
        types=types,
        n_params=sum(share.n_params for share in types),
        n_bytes=sum(share.n_bytes for share in types),
        not_loaded_bytes=built.not_loaded,
        tied=built.tied,
        nominal_bits=nominal_bits(quantization),
    )


def _places(rows: Sequence[Row]) -> tuple[PlaceSum, ...]:
    n_bytes: dict[str, int] = {HOST: 0}
    counted: dict[str, int] = {}
    for number, row in enumerate(rows):
        for piece in row.pieces:
            n_bytes[piece.place] = n_bytes.get(piece.place, 0) + piece.n_bytes
        if number:
            counted[row.place] = counted.get(row.place, 0) + 1
    return tuple(PlaceSum(name, size, counted.get(name, 0)) for name, size in n_bytes.items())
