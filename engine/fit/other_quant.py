"""The header of another quantization of a model, made from that of one: one fetch does for a whole repository."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from engine.errors import EngineError
from engine.fit.placement import prepare
from engine.fit.quantize_rules import tensor_types
from engine.models import quant
from engine.models.gguf_header import GgufHeader, TensorInfo

#: a file's size within these bounds of the rules' own sum is taken as made by them
_SAME = (0.97, 1.03)


def requantized(header: GgufHeader, label: str, size_bytes: int, more: Sequence[GgufHeader] = ()) -> GgufHeader:
    """The header as a file of quantization `label` would have it, as one file even where the model is split.

    Tensor types follow llama.cpp's own quantizer; sizes are put in proportion to the real file.

    Args:
        size_bytes: of the real file or set; 0: not known.
    """
    ids = {layout.name: number for number, layout in quant.TENSOR_TYPES.items()}
    plain = label.upper().removeprefix("UD-")
    try:
        typed = [(tensor, ids[kind]) for tensor, kind in tensor_types(header, plain, more)]
        sizes = [quant.tensor_bytes(kind, tensor.n_elements) for tensor, kind in typed]
    except EngineError:  # a recipe of the publisher: the sizes below are put in proportion
        typed = [(tensor, tensor.type) for tensor in prepare(header, more).tensors]
        sizes = [tensor.n_bytes for tensor, _ in typed]
    whole = sum(sizes)
    ratio = (size_bytes - header.data_offset) / whole if whole and size_bytes > header.data_offset else 1.0
    if _SAME[0] < ratio < _SAME[1]:
        ratio = 1.0
    tensors = [
        TensorInfo(tensor.name, tensor.dims, kind, tensor.offset, round(size * ratio))
        for (tensor, kind), size in zip(typed, sizes, strict=True)
    ]
    metadata = {key: value for key, value in header.metadata.items() if not key.startswith("split.")}
    return msgspec.structs.replace(header, tensors=tensors, metadata=metadata, file_size=size_bytes or header.file_size)
