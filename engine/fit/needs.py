"""What loading a model takes on each device, by formula: no process, no GPU, no weights needed.

`weights_bytes`, `kv_bytes` and `compute_bytes` are llama.cpp's own categories (model, context and compute buffers). The
formulas answer for long lists and say what the parts of a sum are; llama.cpp's own dry run (`engine.fit.probe`) has
the last word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from engine.engine_options import GUESSED_TOKENS
from engine.errors import InvalidRequest
from engine.fit import compute
from engine.fit.cache_size import KV_BLOCKS, QUANTIZED_KV, ContextSize, cache_by_device, context_size
from engine.fit.compute_sizes import Settings
from engine.fit.placement import DeviceSpec, Model, Placement, place, prepare, usable, weights_by_device
from engine.fit.quantize_rules import predict_quant
from engine.models.gguf_header import GgufHeader

__all__ = ["DeviceNeed", "DeviceSpec", "LoadOptions", "Needs", "needs", "needs_of", "predict_quant", "with_adapters"]

#: context that the worker takes where none is wished
DEFAULT_CONTEXT = 8192


@dataclass(frozen=True)
class LoadOptions:
    """How a model would be loaded. The defaults are the worker's, but for `n_slots`.

    Attributes:
        n_ctx: tokens; 0: the trained context, at most 8192.
        n_gpu_layers: as llama.cpp counts them, the output layer being the first; below 0: all.
        n_cpu_moe: the experts of this many first layers stay on the host.
        tensor_split: shares of the devices; empty: by free memory.
        n_outputs: tokens per batch whose logits are computed; None: one per slot and the guessed ones, as the worker
            does; 0: all.
    """

    n_ctx: int = 0
    n_gpu_layers: int = -1
    kv_type_k: str = "f16"
    kv_type_v: str = "f16"
    flash_attention: Literal["auto", "on", "off"] = "auto"
    n_ubatch: int = 512
    n_batch: int = 2048
    n_slots: int = 1
    kv_unified: bool = True
    swa_full: bool = False
    n_cpu_moe: int = 0
    tensor_split: tuple[float, ...] = ()
    offload_kqv: bool = True
    op_offload: bool = True
    n_outputs: int | None = None


@dataclass(frozen=True)
class DeviceNeed:
    """Bytes on one device, or on the host. `overhead_bytes` is what llama.cpp does not count itself."""

    name: str
    weights_bytes: int
    kv_bytes: int
    compute_bytes: int
    overhead_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        return self.weights_bytes + self.kv_bytes + self.compute_bytes + self.overhead_bytes


@dataclass(frozen=True)
class Needs:
    """The answer.

    Attributes:
        devices: one entry per device given, in that order.
        host: main memory.
        n_ctx: context that llama.cpp would really make.
        source: where the numbers are from.
        unknown: reasons why they may be wrong, in words; empty: they can be relied on.
        flash_attention: whether the attention is computed in the memory-saving way.
        n_gpu_layers: layers on devices, the output layer counted.
    """

    devices: tuple[DeviceNeed, ...]
    host: DeviceNeed
    n_ctx: int
    source: Literal["formula", "probe"]
    unknown: tuple[str, ...] = ()
    flash_attention: bool = True
    n_gpu_layers: int = 0


def needs(
    header: GgufHeader, options: LoadOptions, devices: Sequence[DeviceSpec], more: Sequence[GgufHeader] = ()
) -> Needs:
    """What the model of this header takes when loaded so.

    Args:
        more: headers of the other parts of a split model.

    Raises:
        InvalidRequest: options that no load could have (a KV type that does not exist, a negative size).
    """
    return needs_of(prepare(header, more), options, devices)


def needs_of(model: Model, options: LoadOptions, devices: Sequence[DeviceSpec]) -> Needs:
    """The same for a model that `placement.prepare` has looked at already."""
    options = _checked(options)
    shape = model.shape
    unknown = list(shape.unknown)
    wished = options.n_ctx or min(shape.n_ctx_train or DEFAULT_CONTEXT, DEFAULT_CONTEXT)
    size = context_size(
        shape,
        wished,
        n_batch=options.n_batch,
        n_ubatch=options.n_ubatch,
        n_slots=options.n_slots,
        unified=options.kv_unified,
    )
    placement = place(len(shape.layers), options.n_gpu_layers, devices, options.tensor_split, options.n_cpu_moe)
    # llama.cpp insists on flash attention where V is quantized and nobody has switched it off
    insists = options.flash_attention == "auto" and options.kv_type_v in QUANTIZED_KV
    flash = compute.uses_flash(model, "on" if insists else options.flash_attention, devices, placement)
    unknown += _refusals(model, options, flash)
    if _scattered_sharing(model, placement, sum(usable(devices))):
        unknown.append("layers that share a cache are spread out, which may switch flash attention off")
    weights = weights_by_device(model, placement, devices)
    cache = cache_by_device(
        shape,
        placement,
        devices,
        size,
        kv_type_k=options.kv_type_k,
        kv_type_v=options.kv_type_v,
        flash=flash,
        swa_full=options.swa_full,
        offload=options.offload_kqv,
    )
    scratch = _scratch(model, options, devices, size, placement, flash)
    found = [DeviceNeed(device.name, weights[i], cache[i], scratch[i]) for i, device in enumerate(devices)]
    n_outputs = _n_outputs(options, size)
    logits = max(size.n_seq, min(n_outputs, size.n_batch)) * shape.n_vocab * 4
    return Needs(
        devices=tuple(found),
        host=DeviceNeed("Host", weights[-1], cache[-1], scratch[-1], logits),
        n_ctx=size.n_ctx,
        source="formula",
        unknown=tuple(unknown),
        flash_attention=flash,
        n_gpu_layers=placement.on_gpu,
    )


def with_adapters(
    needs: Needs, model: Model, plain: Model, options: LoadOptions, devices: Sequence[DeviceSpec]
) -> Needs:
    """Needs of `plain`, which llama.cpp was asked for, with the adapters that `model` has in addition."""
    full, less = needs_of(model, options, devices), needs_of(plain, options, devices)

    def more(need: DeviceNeed, a: DeviceNeed, b: DeviceNeed) -> DeviceNeed:
        return replace(need, weights_bytes=need.weights_bytes + a.weights_bytes - b.weights_bytes)

    return replace(
        needs,
        devices=tuple(map(more, needs.devices, full.devices, less.devices)),
        host=more(needs.host, full.host, less.host),
    )


def _scratch(
    model: Model,
    options: LoadOptions,
    devices: Sequence[DeviceSpec],
    size: ContextSize,
    placement: Placement,
    flash: bool,
) -> list[int]:
    n_outputs = _n_outputs(options, size)
    return compute.compute_by_device(
        model,
        placement,
        devices,
        size,
        Settings(
            kv_type_k=options.kv_type_k,
            kv_type_v=options.kv_type_v,
            flash=flash,
            swa_full=options.swa_full,
            offload_kqv=options.offload_kqv,
            op_offload=options.op_offload,
            n_outputs=min(size.n_tokens, max(1, n_outputs)),
        ),
    )


def _n_outputs(options: LoadOptions, size: ContextSize) -> int:
    if options.n_outputs is None:
        return size.n_seq + GUESSED_TOKENS
    return options.n_outputs or size.n_batch


def _checked(options: LoadOptions) -> LoadOptions:
    for field in ("kv_type_k", "kv_type_v"):
        if getattr(options, field) not in KV_BLOCKS:
            raise InvalidRequest(
                f"{field} must be one of {', '.join(KV_BLOCKS)}, not {getattr(options, field)}",
                details={"field": field},
            )
    for field in ("n_ctx", "n_cpu_moe", "n_outputs"):
        value = getattr(options, field)
        if value is not None and value < 0:
            raise InvalidRequest(f"{field} cannot be negative", details={"field": field})
    for field in ("n_ubatch", "n_batch", "n_slots"):
        if getattr(options, field) < 1:
            raise InvalidRequest(f"{field} must be at least 1", details={"field": field})
    return replace(options, n_ctx=min(options.n_ctx, 1 << 30))


def _scattered_sharing(model: Model, placement: Placement, n_devices: int) -> bool:
    shares = any(layer.source >= 0 for layer in model.shape.layers)
    return shares and n_devices > 1 and 0 < placement.on_gpu < len(placement.devices)


def _refusals(model: Model, options: LoadOptions, flash: bool) -> list[str]:
    """Loads that llama.cpp refuses, so that no number is right."""
    found = []
    if model.shape.mla and options.kv_type_k != options.kv_type_v:
        found.append("this model needs the same KV type for K and V")
    if options.kv_type_v in QUANTIZED_KV and not flash:
        found.append("a quantized V cache needs flash attention")
    return found
