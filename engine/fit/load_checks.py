"""What llama.cpp would refuse or abort on, said in words before anything is loaded."""

from __future__ import annotations

from collections.abc import Sequence

from engine import engine_options
from engine.engine_options import QUANTIZED_KV
from engine.errors import InvalidRequest, UnsupportedModel
from engine.fit.architectures import NO_MEMORY
from engine.fit.cache_size import KV_BLOCKS
from engine.fit.layers import ModelShape
from engine.fit.placement import prepare
from engine.models import gguf
from engine.models.adapter import check_fits, read_adapter
from engine.models.gguf_header import GgufHeader
from engine.models.not_gguf import shown
from engine.worker.protocol import Load

#: architectures whose answers are not written token by token, beside those without a memory
_NO_CHAT = frozenset(("t5", "t5encoder"))
_NO_FLASH = frozenset(("grok",))


def check(request: Load) -> tuple[GgufHeader, tuple[GgufHeader, ...]]:
    """Look at the files of a load; returns the headers of the model: its first file, and the other parts of a set.

    Raises:
        the errors of `gguf.check_file`; those of `read_adapter`, and AdapterMismatch.
        UnsupportedModel: it cannot do what it is loaded for.
        InvalidRequest: options that this model cannot have; `details["field"]`.
    """
    header = gguf.check_file(request.path)
    parts = gguf.shard_paths(request.path)[1:] if header.split_count > 1 else []
    more = tuple(gguf.read_header(part, max_array=4096) for part in parts)
    _check_purpose(request, header)
    if request.kv_type_k in QUANTIZED_KV or request.kv_type_v in QUANTIZED_KV or request.kv_type_k != request.kv_type_v:
        check_cache(request, prepare(header, more).shape)
    check_adapters(request, header, more)
    return header, more


def _check_purpose(request: Load, header: GgufHeader) -> None:
    architecture = header.architecture
    if request.embeddings:
        if architecture == "t5":
            raise UnsupportedModel(
                f"{shown(header.path.name)} translates texts; it makes no vectors of them",
                hint="Choose an embedding model, or any chat model.",
            )
    elif architecture in NO_MEMORY or architecture in _NO_CHAT:
        raise UnsupportedModel(
            f"{shown(header.path.name)} is not a model that writes text token by token",
            hint="Choose a chat or text model; embedding and translation models cannot chat.",
        )


def check_cache(request: Load, shape: ModelShape) -> None:
    """Raises: InvalidRequest: types of the KV cache that llama.cpp does not take for this model."""
    engine_options.check_cache(request.flash_attention, request.kv_type_v)
    if shape.mla and request.kv_type_k != request.kv_type_v:
        raise _refused("This model needs the same type for K and V", "kv_type_v")
    if request.kv_type_v in QUANTIZED_KV and shape.architecture in _NO_FLASH:
        words = f"A V cache in {request.kv_type_v.upper()} needs flash attention, and this model cannot have it"
        raise _refused(words, "kv_type_v")
    for field, widths in (
        ("kv_type_k", {width for layer in shape.layers for width in (layer.head_k, layer.k_width) if width}),
        ("kv_type_v", {width for layer in shape.layers for width in (layer.head_v, layer.v_width) if width}),
    ):
        kind = getattr(request, field)
        block, _ = KV_BLOCKS.get(kind, (1, 0))
        odd = sorted(width for width in widths if width % block)
        if odd:
            words = f"{kind.upper()} keeps {block} numbers together, and the heads of this model have {odd[0]}"
            raise _refused(words, field)


def _refused(words: str, field: str) -> InvalidRequest:
    return InvalidRequest(words, hint="Choose F16 for the KV cache.", details={"field": field})


def check_adapters(request: Load, header: GgufHeader, more: Sequence[GgufHeader] = ()) -> None:
    """Raises: those of `read_adapter`; AdapterMismatch; InvalidRequest: scales that cannot be."""
    engine_options.check_adapters(request.adapters)
    for adapter in request.adapters:
        check_fits(read_adapter(adapter.path), header, more)
