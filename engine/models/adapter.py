"""LoRA adapters: small GGUF files that change a model, and whether one belongs to a certain model.

An adapter brings for some matrices W of a model two thin ones, A and B; W + scale * alpha / rank * B A is used in place
of W. Rules of what fits are those of llama.cpp's reader (llama-adapter.cpp) and of the operations that follow, which
abort the process on sizes that do not fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from engine.errors import AdapterMismatch, ModelFileDamaged, NotAModel, UnsupportedModel
from engine.models import quant
from engine.models.gguf import check_complete
from engine.models.gguf_format import read_header
from engine.models.gguf_header import GgufHeader, TensorInfo
from engine.models.not_gguf import shown

_A, _B = ".lora_a", ".lora_b"
_MAX_ARRAY = 4096
#: names of tensors of an adapter that llama.cpp passes over
_IGNORED = "_norm.weight"


class AdapterFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a list shows of one adapter.

    Attributes:
        architecture: of the models that it is for.
        rank: the largest of its matrices.
        embedding: width of the vectors of those models, where its matrices tell; 0: they do not.
    """

    path: str
    name: str
    architecture: str
    rank: int
    size_bytes: int
    n_matrices: int
    embedding: int = 0


def read_adapter(path: str | Path) -> GgufHeader:
    """The header of an adapter, looked over as far as it goes without its model.

    Raises:
        NotAModel: it is no LoRA adapter (`details["kind"]`).
        ModelFileDamaged, ModelNotFound, UnsupportedModel, StorageFailed.
    """
    header = read_header(path, max_array=_MAX_ARRAY)
    name = shown(header.path)
    kind = header.text("general.type") or "model"
    if kind != "adapter":
        raise NotAModel(
            f"{name} is not an adapter",
            hint="Choose a LoRA adapter in GGUF format.",
            details={"kind": kind},
        )
    form = header.text("adapter.type")
    if form != "lora":
        raise UnsupportedModel(f"{name} is an adapter of the kind {form or 'unknown'}; only LoRA can be used")
    if "adapter.alora.invocation_tokens" in header.metadata:
        raise UnsupportedModel(
            f"{name} is an activated adapter (aLoRA), which would have to be switched on in the middle of a prompt",
            hint="Choose an ordinary LoRA adapter.",
        )
    check_complete(header)
    key = "adapter.lora.alpha"  # ggml aborts the process on another type
    if key in header.metadata and not (header.value_types[key] == "float32" and math.isfinite(header.metadata[key])):
        raise _damaged(header, f"its strength ({key}) is no 32-bit number")
    if not header.architecture:
        raise _damaged(header, "it does not say for which architecture it is")
    if not list(pairs(header)):
        raise _damaged(header, "it holds no matrices")
    return header


def _damaged(header: GgufHeader, what: str) -> ModelFileDamaged:
    return ModelFileDamaged(f"{shown(header.path)} is damaged: {what}", hint="Get the adapter again.")


def pairs(header: GgufHeader) -> Iterator[tuple[str, TensorInfo, TensorInfo]]:
    """(name of the model's matrix, A, B).

    Raises:
        ModelFileDamaged: one of a pair is missing, or a tensor belongs to no pair.
    """
    halves: dict[str, dict[str, TensorInfo]] = {}
    for tensor in header.tensors:
        stem, dot, end = tensor.name.rpartition(".")
        if f".{end}" in (_A, _B) and dot:
            halves.setdefault(stem, {})[f".{end}"] = tensor
        elif not tensor.name.endswith(_IGNORED):
            raise _damaged(header, f"the tensor {tensor.name} belongs to no pair of matrices")
    for name, both in halves.items():
        if len(both) < 2:
            raise _damaged(header, f"one of the two matrices for {name} is missing")
        yield name, both[_A], both[_B]


def summarize_adapter(header: GgufHeader) -> AdapterFile:
    """What a list shows of an adapter that `read_adapter` has read."""
    found = list(pairs(header))
    ranks = [_rank(name, a, b) for name, a, b in found]
    widths = {a.dims[0] for name, a, _ in found if name.endswith(("attn_q.weight", "attn_qkv.weight", "ffn_up.weight"))}
    return AdapterFile(
        path=str(header.path),
        name=header.text("general.name").strip() or header.path.stem,
        architecture=header.architecture,
        rank=max(ranks, default=0),
        size_bytes=header.file_size,
        n_matrices=len(found),
        embedding=widths.pop() if len(widths) == 1 else 0,
    )


def _rank(name: str, a: TensorInfo, b: TensorInfo) -> int:
    """Of a pair; that of the token embedding is stored the other way round."""
    side = a if _is_embedding(name) else b
    return side.dims[0] if side.dims else 0


def _is_embedding(name: str) -> bool:
    return name.endswith("token_embd.weight")


def check_fits(adapter: GgufHeader, model: GgufHeader, more: Sequence[GgufHeader] = ()) -> None:
    """Whether an adapter belongs to a model.

    Args:
        more: headers of the other parts of a split model.

    Raises:
        AdapterMismatch: another architecture, or a matrix that the model does not have or has in another size.
    """
    if adapter.architecture != model.architecture:
        raise _mismatch(
            adapter, f"it is for models of the architecture {adapter.architecture}, not {model.architecture}"
        )
    tensors = {tensor.name: tensor for part in (model, *more) for tensor in part.tensors}
    for name, a, b in pairs(adapter):
        target = tensors.get(name)
        if target is None:
            raise _mismatch(adapter, f"the model has no matrix {name}")
        if not _fits(name, target.dims, a.dims, b.dims):
            raise _mismatch(
                adapter, f"its matrices for {name} make {_made(name, a, b)}, and the model's is {_sizes(target.dims)}"
            )
        if quant.TENSOR_TYPES[target.type].name == "NVFP4":
            raise _mismatch(adapter, "weights in NVFP4 cannot be changed by an adapter")


def _mismatch(adapter: GgufHeader, why: str) -> AdapterMismatch:
    return AdapterMismatch(
        f"The adapter {shown(adapter.path.name)} does not belong to this model: {why}",
        hint="Choose an adapter that was made for exactly this model.",
        details={"adapter": str(adapter.path)},
    )


def _fits(name: str, target: tuple[int, ...], a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    if not 2 <= len(target) <= 3 or not all(target):
        return False
    a, b, target = _three(a), _three(b), _three(target)
    if not all((*a, *b)) or a[2] != target[2] or b[2] != target[2]:
        return False
    if _is_embedding(name):
        return (target[0], target[1]) == (b[1], a[1]) and a[0] == b[0]
    return (target[0], target[1]) == (a[0], b[1]) and a[1] == b[0]


def _three(dims: tuple[int, ...]) -> tuple[int, int, int]:
    """Sizes with ones for those that are not written; (0, 0, 0) for what is no matrix."""
    if len(dims) > 3 and any(size != 1 for size in dims[3:]):
        return 0, 0, 0
    full = (*dims[:3], 1, 1, 1)
    return (full[0], full[1], full[2]) if dims else (0, 0, 0)


def _made(name: str, a: TensorInfo, b: TensorInfo) -> str:
    first, second = _three(a.dims), _three(b.dims)
    return _sizes((second[1], first[1]) if _is_embedding(name) else (first[0], second[1]))


def _sizes(dims: tuple[int, ...]) -> str:
    return " x ".join(str(size) for size in dims) or "nothing"
