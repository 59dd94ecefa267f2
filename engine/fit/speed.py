"""How fast it will write: bytes read per token over the bandwidth that a device really reaches with that quantization.

Writing is bound by memory: every weight that takes part is read once per token, and the cache of the chat so far.
Quantizations with fewer bits need more arithmetic per byte, so their bytes come slower; on few cores that is the limit,
not the memory. Everything is an estimate until real answers correct it (`engine.fit.measured`), and shown as a range.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from engine.fit.cache_size import row_bytes
from engine.fit.needs import LoadOptions
from engine.fit.placement import HOST, DeviceSpec, Model, Placement, place
from engine.fit.plan_records import Machine, SpeedRange
from engine.fit.tensor_groups import classify
from engine.models import quant

#: share of a GPU's bandwidth that decoding reaches, by tensor type, from llama.cpp's own table of one 8B model in all
#: quantizations (tools/quantize/README.md), put in proportion to 16 bits
_GPU_SHARE = {
    "F32": 0.75, "F16": 0.75, "BF16": 0.72, "Q8_0": 0.70, "Q6_K": 0.62, "Q5_K": 0.61, "Q5_0": 0.60, "Q5_1": 0.60,
    "Q4_K": 0.57, "Q4_0": 0.58, "Q4_1": 0.58, "IQ4_XS": 0.55, "IQ4_NL": 0.55, "MXFP4": 0.55, "NVFP4": 0.55,
    "Q3_K": 0.46, "IQ3_S": 0.42, "IQ3_XXS": 0.38, "Q2_K": 0.40, "IQ2_S": 0.33, "IQ2_XS": 0.32, "IQ2_XXS": 0.31,
    "IQ1_M": 0.27, "IQ1_S": 0.26,
}  # fmt: skip
#: bytes a second that one core works through, by tensor type: the types of 32 measured with the starter model on one
#: x86 core with AVX-512 (tests/bench/fit_speed.py), the others in proportion to published runs
_CORE_RATE = {
    "F32": 10e9, "F16": 8.3e9, "BF16": 7e9, "Q8_0": 7.6e9, "Q5_0": 7.2e9, "Q5_1": 6.7e9, "Q4_0": 7.1e9, "Q4_1": 7.5e9,
    "Q6_K": 5e9, "Q5_K": 5e9, "Q4_K": 5.5e9, "Q3_K": 4e9, "Q2_K": 3.5e9, "IQ4_XS": 4.5e9, "IQ4_NL": 5e9,
    "MXFP4": 4.5e9, "NVFP4": 4.5e9, "IQ3_S": 1.8e9, "IQ3_XXS": 1.8e9, "IQ2_S": 1.5e9, "IQ2_XS": 1.5e9,
    "IQ2_XXS": 1.5e9, "IQ1_M": 1.4e9, "IQ1_S": 1.4e9,
}  # fmt: skip
_DEFAULT_TYPE = "Q4_K"
_HOST_SHARE = 0.85
#: bytes a second where nothing was measured or told: dedicated, integrated, a core of the host and its most
_DEDICATED, _SHARED, _PER_CORE, _HOST_MOST = 300e9, 60e9, 10e9, 50e9
#: seconds per layer and token that do not depend on sizes, and per hand-over between devices
_LAYER_S, _DEVICE_LAYER_S = 200e-6, 15e-6
_HANDOVER_S = 100e-6
#: as good as nothing, where 0 means "not known"; and the least that a measured layer can cost
_NO_TIME, _LEAST_LAYER_S = 1e-12, 5e-6
_SAMPLE_S_PER_TOKEN = 4e-9
#: the host's part in `place_key`
HOST_KEY = "Host"
#: tokens of a chat that the estimate is for
LIVE_TOKENS = 512
UNCALIBRATED, CALIBRATED = (0.6, 1.6), (0.85, 1.2)


@dataclass(frozen=True)
class Ratios:
    """Measured over predicted speed: medians of real answers.

    Attributes:
        exact: by (place, quantization), as `place_key` and `dominant_type` give them.
    """

    exact: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def of(self, place: str, quantization: str) -> tuple[float, bool]:
        """(ratio, True if it is of this very quantization); that of others in the same place stands in for it."""
        found = self.exact.get((place, quantization))
        if found is not None:
            return found, True
        near = [ratio for (where, _), ratio in self.exact.items() if where == place]
        return (median(near), False) if near else (1.0, False)


@dataclass(frozen=True)
class Traffic:
    """Bytes read for one token, by tensor type.

    Attributes:
        layers: of each layer all but its experts; experts: those of all its experts together.
        output: of the output layer (the embedding where it is shared).
    """

    layers: tuple[Mapping[str, int], ...]
    experts: tuple[Mapping[str, int], ...]
    output: Mapping[str, int]


_recent: list[tuple[Model, Traffic]] = []


def traffic(model: Model) -> Traffic:
    """Look at every tensor once; the last few models are remembered."""
    for known, found in _recent:
        if known is model:
            return found
    count = len(model.shape.layers)
    layers: list[dict[str, int]] = [{} for _ in range(count)]
    experts: list[dict[str, int]] = [{} for _ in range(count)]
    output: dict[str, int] = {}
    embedding: dict[str, int] = {}
    for tensor in model.tensors:
        name = quant.tensor_type_name(tensor.type)
        group, index, _ = classify(tensor.name)
        if index >= 0:
            if index < model.shape.n_layer:
                into = (experts if group == "experts" else layers)[index]
                into[name] = into.get(name, 0) + tensor.n_bytes
        elif tensor.name.startswith("output"):
            output[name] = output.get(name, 0) + tensor.n_bytes
        elif tensor.name == "token_embd.weight":
            embedding[name] = tensor.n_bytes
    if not any(tensor.name == "output.weight" for tensor in model.tensors):
        output = {**output, **embedding}
    made = Traffic(tuple(layers), tuple(experts), output)
    _recent.insert(0, (model, made))
    del _recent[4:]
    return made


def dominant_type(model: Model) -> str:
    """The tensor type that most bytes are in."""
    totals: dict[str, int] = {}
    found = traffic(model)
    for part in (*found.layers, *found.experts, found.output):
        for name, size in part.items():
            totals[name] = totals.get(name, 0) + size
    return max(totals, key=lambda name: totals[name]) if totals else ""


def place_key(placement: Placement, devices: Sequence[DeviceSpec]) -> str:
    """Where the work is done, as one word: "CUDA0", "CUDA0+Host", "Host"."""
    at = set(placement.devices)
    names = [device.name for index, device in enumerate(devices) if index in at]
    if HOST in at or placement.n_cpu_moe:
        names.append(HOST_KEY)
    return "+".join(names)


def placed(model: Model, options: LoadOptions, devices: Sequence[DeviceSpec]) -> Placement:
    return place(len(model.shape.layers), options.n_gpu_layers, devices, options.tensor_split, options.n_cpu_moe)


def seconds_per_token(
    model: Model, options: LoadOptions, devices: Sequence[DeviceSpec], machine: Machine, live_tokens: int = LIVE_TOKENS
) -> float:
    """Estimated seconds from one token to the next with `live_tokens` in the cache; 0: not known."""
    placement, found, shape = placed(model, options, devices), traffic(model), model.shape
    used = shape.expert_used / shape.n_expert if shape.n_expert else 1.0
    total = shape.n_vocab * _SAMPLE_S_PER_TOKEN
    before: int | None = None
    for index, layer in enumerate(shape.layers[: shape.n_layer]):
        at = placement.devices[index]
        total += _layer_s(at, machine) + _read_s(found.layers[index], at, devices, machine)
        with_experts = HOST if index < placement.n_cpu_moe else at
        total += _read_s(found.experts[index], with_experts, devices, machine) * used
        if with_experts != at:
            total += 2 * _HANDOVER_S
        cached = min(live_tokens, layer.window or live_tokens)
        row = row_bytes(options.kv_type_k, layer.k_width) if layer.k_width else 0
        row += row_bytes(options.kv_type_v, layer.v_width) if layer.v_width else 0
        kept_at = at if options.offload_kqv else HOST
        total += _read_s({"F16": row * cached + layer.state * 8}, kept_at, devices, machine)
        total += _HANDOVER_S if before is not None and before != at else 0
        before = at
    total += _read_s(found.output, placement.devices[-1], devices, machine)
    return total if math.isfinite(total) else 0.0


def _layer_s(at: int, machine: Machine) -> float:
    return (machine.layer_s or _LAYER_S) if at == HOST else _DEVICE_LAYER_S


def _read_s(parts: Mapping[str, int], at: int, devices: Sequence[DeviceSpec], machine: Machine) -> float:
    device = None if at == HOST else devices[at]
    return sum(size / rate(name, device, machine) for name, size in parts.items() if size)


def rate(tensor_type: str, device: DeviceSpec | None, machine: Machine) -> float:
    """Bytes a second that weights of this type are worked through, on a device or (None) on the host."""
    bandwidth = bandwidth_of(device, machine)
    if device is not None:
        return bandwidth * _GPU_SHARE.get(tensor_type, _GPU_SHARE[_DEFAULT_TYPE])
    measured = machine.rates.get(tensor_type, 0.0)
    if measured > 0:
        return measured
    core = _CORE_RATE.get(tensor_type, _CORE_RATE[_DEFAULT_TYPE])
    return min(bandwidth * _HOST_SHARE, core * max(1, machine.cores))


def layer_seconds(model: Model, options: LoadOptions, machine: Machine, seconds: float, live_tokens: int) -> float:
    """Seconds of a layer beside its weights, from a token that took `seconds` with all of the model on the host."""
    without = replace(machine, layer_s=_NO_TIME)
    rest = seconds - seconds_per_token(model, options, (), without, live_tokens)
    return max(_LEAST_LAYER_S, rest / max(1, model.shape.n_layer))


def bandwidth_of(device: DeviceSpec | None, machine: Machine) -> float:
    """Bytes a second of a device's memory, or the host's: measured, told, or the usual of its kind."""
    known = machine.bandwidths.get("Host" if device is None else device.name, 0.0)
    if known > 0:
        return known
    host = min(_HOST_MOST, _PER_CORE * max(1, machine.cores))
    if device is None:
        return host
    if device.backend.upper() == "RPC":
        return host
    return _SHARED if device.shared else _DEDICATED


def quick_seconds(
    model: Model, placement: Placement, devices: Sequence[DeviceSpec], machine: Machine, kind: str, kv_share: float
) -> float:
    """`seconds_per_token` for long lists: as if all weights were of one type, without a look at every tensor.

    Args:
        kind: the tensor type.
        kv_share: bytes of the cache that are read for a token.
    """
    shape, weights = model.shape, model.weights("CPU")
    used = shape.expert_used / shape.n_expert if shape.n_expert else 1.0
    places = (*range(len(devices)), HOST)
    seconds = {at: 1 / rate(kind, None if at == HOST else devices[at], machine) for at in places}
    last = seconds[placement.devices[-1]]
    total = shape.n_vocab * _SAMPLE_S_PER_TOKEN + ((weights.output_matrix or weights.output) + kv_share) * last
    for index, at in enumerate(placement.devices[: shape.n_layer]):
        experts_at = HOST if index < placement.n_cpu_moe else at
        total += _layer_s(at, machine) + weights.layers[index] * seconds[at]
        total += weights.experts[index] * used * seconds[experts_at]
    n_host = sum(at == HOST for at in placement.devices)
    total += _HANDOVER_S if 0 < n_host < len(placement.devices) else 0
    return total if math.isfinite(total) else 0.0


def estimate(
    model: Model,
    options: LoadOptions,
    devices: Sequence[DeviceSpec],
    machine: Machine,
    *,
    ratios: Ratios | None = None,
    live_tokens: int = LIVE_TOKENS,
) -> SpeedRange:
    """The range that an answer's speed is expected in."""
    if not model.shape.causal or not model.tensors:
        return SpeedRange()
    seconds = seconds_per_token(model, options, devices, machine, live_tokens)
    return as_range(seconds, place_key(placed(model, options, devices), devices), dominant_type(model), ratios)


def as_range(seconds: float, place: str, quantization: str, ratios: Ratios | None) -> SpeedRange:
    """The range around an estimate, narrower where real answers stand behind it."""
    if seconds <= 0:
        return SpeedRange()
    ratio, exact = (ratios or Ratios()).of(place, quantization)
    low, high = CALIBRATED if exact else UNCALIBRATED
    return SpeedRange(ratio / seconds * low, ratio / seconds * high, "calibrated" if exact else "estimate")


def type_of(label: str) -> str:
    """The tensor type that most of a file of this quantization is in: "Q4_K_M" is mostly Q4_K."""
    name = label.upper()
    return next((known for known in sorted(_CORE_RATE, key=len, reverse=True) if name.startswith(known)), _DEFAULT_TYPE)
