"""Whole models on disk: one GGUF file or a set of shards. What can be known of them without llama.cpp.

`check_file` runs before every load, because llama.cpp gives one and the same error for a web page, a download cut
short and a missing shard.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from engine.errors import EngineError, InvalidRequest, ModelFileDamaged, ModelNotFound, NotAModel
from engine.models import quant
from engine.models.gguf_format import read_header
from engine.models.gguf_header import GgufArray, GgufHeader, TensorInfo
from engine.models.not_gguf import shown

__all__ = [
    "GgufArray",
    "GgufHeader",
    "ModelFile",
    "TensorInfo",
    "check_complete",
    "check_file",
    "describe",
    "read_header",
    "shard_paths",
    "summarize",
]

#: lists longer than this (vocabularies) are not kept where only a summary is wanted
_SUMMARY_ARRAY = 4096


class ModelFile(msgspec.Struct, frozen=True):
    """What a list of models shows of one file (or one set of shards).

    Attributes:
        path: the file to load; of a set its first.
        name: the model's own name, or the file's.
        quantization: label such as "Q4_K_M".
        n_params: weights counted in the tensor table.
        size_bytes: all shards together.
        n_ctx_train: context the model was trained for, in tokens; 0 if the file does not say.
        has_template: the file brings a chat template.
        n_files: shards of the set.
    """

    path: str
    name: str
    architecture: str
    quantization: str
    n_params: int
    size_bytes: int
    n_ctx_train: int = 0
    has_template: bool = False
    n_files: int = 1


_SHARD = re.compile(r"^(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf$", re.DOTALL)


def shard_paths(path: str | os.PathLike[str]) -> list[Path]:
    """All files of the set that a file belongs to by its name, in order; the file alone if it is no shard."""
    path = Path(path)
    match = _SHARD.match(path.name)
    if not match or not 1 <= int(match["count"]) <= 9999:
        return [path]
    count = match["count"]
    return [path.with_name(f"{match['stem']}-{number:05d}-of-{count}.gguf") for number in range(1, int(count) + 1)]


def check_file(path: str | os.PathLike[str]) -> GgufHeader:
    """What can be said of a model without loading it: it is one, complete, and of known tensor types.

    Of a split model the first file is given; all others must be there and complete too. Whether the architecture
    is known is left to llama.cpp.

    Raises:
        ModelNotFound: no such file, or shards are missing (`details["missing"]`).
        NotAModel: something else (`details["kind"]`).
        ModelFileDamaged: malformed or cut short (`details["have_bytes"]`, `details["need_bytes"]`).
        UnsupportedModel, StorageFailed, InvalidRequest (a later shard; `details["first"]` names the first).
    """
    header = read_header(path, max_array=_SUMMARY_ARRAY)
    if header.split_count > 1:
        _check_first_shard(header)
    _check_purpose(header)
    check_complete(header)
    if header.split_count > 1:
        _check_other_shards(header)
    elif not header.tensors:
        raise NotAModel(
            f"{shown(header.path)} holds a vocabulary but no weights",
            hint="Choose a file with the model itself.",
            details={"kind": "vocabulary"},
        )
    return header


def _check_purpose(header: GgufHeader) -> None:
    """GGUF also carries things that are no language models."""
    kinds = {
        "adapter": "an adapter (LoRA) for a model, not a model",
        "mmproj": "the image or audio part of a model (mmproj), not the model itself",
        "imatrix": "an importance matrix for quantizing, not a model",
    }
    kind = header.text("general.type")
    if header.architecture == "clip":
        kind = "mmproj"
    if kind in kinds:
        raise NotAModel(
            f"{shown(header.path)} is {kinds[kind]}",
            hint="Choose the file with the language model.",
            details={"kind": kind},
        )
    if not header.architecture:
        raise NotAModel(
            f"{shown(header.path)} does not say which architecture it is (general.architecture)",
            hint="It is no language model, or its conversion was not finished.",
            details={"kind": "no_architecture"},
        )


def check_complete(header: GgufHeader) -> None:
    """Raises: ModelFileDamaged: the file ends before its last tensor."""
    have, need = header.file_size, header.need_bytes
    if have < need:
        raise ModelFileDamaged(
            f"{shown(header.path)} is cut short: {have:,} of at least {need:,} bytes are there",
            hint="The download did not finish. Download it again.",
            details={"have_bytes": have, "need_bytes": need},
        )


def _check_first_shard(header: GgufHeader) -> None:
    """Later parts carry no metadata but their place in the set, so this comes before all other checks."""
    count = header.split_count
    paths = shard_paths(header.path)
    if len(paths) != count:
        raise ModelFileDamaged(
            f"{shown(header.path)} is one of {count} parts, but its name does not say so",
            hint=f"Give the parts their names back: NAME-00001-of-{count:05d}.gguf and so on.",
            details={"have_bytes": header.file_size},
        )
    if header.split_number != 0:
        raise InvalidRequest(
            f"{shown(header.path)} is part {header.split_number + 1} of {count}",
            hint=f"Open the first part, {shown(paths[0].name)}.",
            details={"field": "path", "first": str(paths[0])},
        )


def _check_other_shards(header: GgufHeader) -> None:
    count, paths = header.split_count, shard_paths(header.path)
    missing = [p.name for p in paths if not p.exists()]
    if missing:
        raise ModelNotFound(
            f"{len(missing)} of {count} parts of this model are missing: " + ", ".join(map(shown, missing[:5])),
            hint="Put all parts into one folder.",
            details={"missing": missing},
        )
    n_tensors = len(header.tensors)
    for number, path in enumerate(paths[1:], 1):
        shard = read_header(path, max_array=_SUMMARY_ARRAY)
        if shard.split_number != number or shard.split_count != count:
            raise ModelFileDamaged(
                f"{shown(path)} is not part {number + 1} of {count}: it says that it is part "
                f"{shard.split_number + 1} of {shard.split_count}",
                hint="Download this part again.",
                details={"have_bytes": shard.file_size},
            )
        check_complete(shard)
        n_tensors += len(shard.tensors)
    expected = header.integer("split.tensors.count")
    if expected is not None and expected != n_tensors:
        raise ModelFileDamaged(
            f"The parts of {shown(header.path)} hold {n_tensors} tensors together, not {expected}",
            hint="The parts do not belong together. Download the model again.",
            details={"have_tensors": n_tensors, "need_tensors": expected},
        )


def describe(path: str | os.PathLike[str]) -> ModelFile:
    """Summary for lists. A set of shards is one model; parts that cannot be read are left out of the sums.

    Raises:
        the errors of `read_header` for the file itself.
    """
    return summarize(read_header(path, max_array=_SUMMARY_ARRAY))


def summarize(header: GgufHeader) -> ModelFile:
    """Summary of a model whose header was read already (its other shards are read here)."""
    headers = [header]
    if header.split_count > 1:
        headers += _other_shards(header)
    by_type: dict[int, int] = {}
    for tensor in (tensor for part in headers for tensor in part.tensors):
        by_type[tensor.type] = by_type.get(tensor.type, 0) + tensor.n_bytes
    first = min(headers, key=lambda part: part.split_number)
    return ModelFile(
        path=str(first.path),
        name=first.text("general.name").strip() or _plain_name(first.path),
        architecture=first.architecture,
        quantization=quant.file_label(first.metadata.get("general.file_type"), by_type),
        n_params=sum(tensor.n_elements for part in headers for tensor in part.tensors),
        size_bytes=sum(part.file_size for part in headers),
        n_ctx_train=first.of_architecture("context_length") or 0,
        has_template=bool(first.text("tokenizer.chat_template")),
        n_files=header.split_count,
    )


def _other_shards(header: GgufHeader) -> list[GgufHeader]:
    found = []
    for path in shard_paths(header.path):
        if path.name != header.path.name:
            try:
                found.append(read_header(path, max_array=_SUMMARY_ARRAY))
            except EngineError:
                continue
    return found


def _plain_name(path: Path) -> str:
    match = _SHARD.match(path.name)
    return match["stem"] if match else path.stem
