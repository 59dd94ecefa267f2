"""How models are loaded: every option with its limits, for all models and for single ones.

None always means "automatic": the planner (`engine.fit`), the worker or llama.cpp chooses. `merged` puts the choices
for one load together; `check` refuses what no load could have.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from engine.errors import InvalidRequest

KV_TYPES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
QUANTIZED_KV = frozenset(("q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"))
MAX_SCALE = 10.0
#: tokens that all answers of a model together may guess ahead in one step; room for their logits is set aside
GUESSED_TOKENS = 8


class Adapter(msgspec.Struct, frozen=True):
    """A LoRA adapter: a file that changes a model a little. scale: how much of it; 0: nothing, 1: as it was trained."""

    path: str
    scale: float = 1.0


class EngineOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the user has chosen; the fields are those of `protocol.Load`, described in `OPTIONS`."""

    n_ctx: int | None = None
    n_gpu_layers: int | None = None
    n_cpu_moe: int | None = None
    tensor_split: tuple[float, ...] | None = None
    n_slots: int | None = None
    n_threads: int | None = None
    n_threads_batch: int | None = None
    n_batch: int | None = None
    n_ubatch: int | None = None
    flash_attention: Literal["auto", "on", "off"] | None = None
    kv_type_k: str | None = None
    kv_type_v: str | None = None
    swa_full: bool | None = None
    offload_kqv: bool | None = None
    op_offload: bool | None = None
    use_mmap: bool | None = None
    use_mlock: bool | None = None
    adapters: tuple[Adapter, ...] | None = None


@dataclass(frozen=True)
class Option:
    """What one option may be.

    Attributes:
        doc: one or two sentences for tooltips and help: what it is, and what it costs.
        low, high: limits of a whole number; 0 and 0: it is none.
        choices: the words it may be; empty: it is no word.
        per_model: it only makes sense for one model.
    """

    label: str
    doc: str
    low: int = 0
    high: int = 0
    choices: tuple[str, ...] = ()
    per_model: bool = False


OPTIONS: dict[str, Option] = {
    "n_ctx": Option(
        "Context length",
        "Context window (n_ctx): how many tokens the model can see at once. Its cache takes memory for each of them.",
        1,
        2**24,
    ),
    "n_gpu_layers": Option(
        "Layers on the GPU",
        "How many layers are computed on the GPU (n_gpu_layers); 0 uses the CPU only. Each takes memory there.",
        0,
        10_000,
    ),
    "n_cpu_moe": Option(
        "Experts on the CPU",
        "Of how many layers the experts stay in main memory (n_cpu_moe): less memory on the GPU, somewhat slower.",
        0,
        10_000,
        per_model=True,
    ),
    "tensor_split": Option(
        "Shares of the devices", "How the layers are divided over several GPUs (tensor_split).", per_model=True
    ),
    "n_slots": Option(
        "Chats at once", "How many answers can be written at the same time (slots); they share the context.", 1, 64
    ),
    "n_threads": Option(
        "Threads for answers",
        "CPU threads that compute while an answer is written (n_threads). More than there are fast cores is slower.",
        1,
        1024,
    ),
    "n_threads_batch": Option(
        "Threads for prompts",
        "CPU threads that compute while a prompt is read (n_threads_batch). All cores may help here.",
        1,
        1024,
    ),
    "n_batch": Option(
        "Batch",
        "Most tokens handed to llama.cpp at once (n_batch). It costs next to nothing; it also limits the pieces.",
        1,
        1 << 20,
    ),
    "n_ubatch": Option(
        "Piece of a prompt",
        "Tokens computed at once while a prompt is read (n_ubatch). More are faster on a GPU and take more memory.",
        1,
        1 << 20,
    ),
    "flash_attention": Option(
        "Flash attention",
        "Attention without its whole matrix in memory: the same answers, less memory. A quantized V cache needs it.",
        choices=("auto", "on", "off"),
    ),
    "kv_type_k": Option(
        "K cache",
        "How exactly keys are kept in the KV cache. Q8_0 takes about half of F16 with hardly any loss, Q4_0 a quarter.",
        choices=KV_TYPES,
    ),
    "kv_type_v": Option(
        "V cache",
        "How exactly values are kept in the KV cache. Quantized values need flash attention.",
        choices=KV_TYPES,
    ),
    "swa_full": Option(
        "Full sliding-window cache",
        "Keep all tokens also for layers that look back on a window only (swa_full). More memory; an edited chat is "
        "then read again from the edit on, not from the beginning.",
    ),
    "offload_kqv": Option(
        "KV cache on the GPU",
        "Keep the cache of a layer on the layer's device (offload_kqv). Off saves memory there and is much slower.",
    ),
    "op_offload": Option(
        "GPU helps with prompts",
        "Read prompts on the GPU also for layers whose weights are in main memory (op_offload). Takes room there.",
    ),
    "use_mmap": Option(
        "Map the file",
        "Use the model's file as memory (mmap): it loads faster, and what is not needed can leave memory. Off reads "
        "all of it into memory of its own.",
    ),
    "use_mlock": Option(
        "Lock in memory",
        "Forbid the system to move the weights out of memory (mlock). Needs as much free memory as the file is large.",
    ),
    "adapters": Option("Adapters", "LoRA adapters, which change a model a little, with scales.", per_model=True),
}


def merged(*layers: EngineOptions | Mapping[str, Any]) -> dict[str, Any]:
    """The choices of several layers as fields of a load, the first layer that has chosen a field winning.

    None counts as "not chosen" everywhere.
    """
    result: dict[str, Any] = {}
    for layer in reversed(layers):
        items = chosen(layer) if isinstance(layer, EngineOptions) else dict(layer)
        result.update({name: value for name, value in items.items() if value is not None})
    return result


def chosen(options: EngineOptions) -> dict[str, Any]:
    """What is not left to be chosen, by field."""
    return {name: value for name in options.__struct_fields__ if (value := getattr(options, name)) is not None}


def check(options: EngineOptions) -> EngineOptions:
    """The same options.

    Raises:
        InvalidRequest: a value that no load could have, or values that exclude each other; `details["field"]`.
    """
    for name, option in OPTIONS.items():
        value = getattr(options, name)
        if value is None:
            continue
        if option.high and not option.low <= value <= option.high:
            words = f"{option.label} must be between {option.low:,} and {option.high:,}, not {value:,}"
            raise InvalidRequest(words, details={"field": name})
        if option.choices and value not in option.choices:
            words = f"{option.label} must be one of {', '.join(option.choices)}, not {value}"
            raise InvalidRequest(words, details={"field": name})
    check_adapters(options.adapters or ())
    if any(not 0 <= share < 1e9 for share in options.tensor_split or ()):
        raise InvalidRequest("Shares of devices must be numbers from 0 up", details={"field": "tensor_split"})
    check_cache(options.flash_attention or "auto", options.kv_type_v or "f16")
    return options


def check_adapters(adapters: tuple[Adapter, ...]) -> None:
    """Raises: InvalidRequest: a scale that is no sensible number, or the same file twice."""
    for adapter in adapters:
        if not math.isfinite(adapter.scale) or abs(adapter.scale) > MAX_SCALE:
            words = f"The scale of an adapter must be between -{MAX_SCALE:g} and {MAX_SCALE:g}, not {adapter.scale:g}"
            raise InvalidRequest(words, details={"field": "adapters"})
    paths = [adapter.path for adapter in adapters]
    if len(set(paths)) < len(paths):
        raise InvalidRequest("An adapter can be used only once", details={"field": "adapters"})


def check_cache(flash_attention: str, kv_type_v: str) -> None:
    """llama.cpp makes no context with a quantized V cache and without flash attention.

    Raises:
        InvalidRequest: that combination.
    """
    if flash_attention == "off" and kv_type_v in QUANTIZED_KV:
        raise InvalidRequest(
            f"A V cache in {kv_type_v.upper()} needs flash attention, and that is switched off",
            hint="Set flash attention to automatic or on, or keep values in F16.",
            details={"field": "kv_type_v"},
        )


def from_mapping(values: Mapping[str, Any]) -> EngineOptions:
    """Options from plain data (a settings file), checked.

    Raises:
        InvalidRequest: no such option, a wrong type, or what `check` refuses.
    """
    try:
        options = msgspec.convert(dict(values), EngineOptions)
    except (msgspec.ValidationError, TypeError) as error:
        raise InvalidRequest(f"not options of a load: {error}") from error
    return check(options)
