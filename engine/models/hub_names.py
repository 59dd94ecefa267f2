"""What file names of a repository say: quantization, shards of one model, and files that only go with one.

The names follow what publishers do, not a rule: "Model-Q4_K_M.gguf", "model.i1-IQ3_XXS.gguf",
"UD-Q4_K_XL/Model-UD-Q4_K_XL-00001-of-00002.gguf", "mmproj-F16.gguf".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

_LABEL = re.compile(
    r"(?<![A-Za-z0-9])"
    r"(UD-)?("
    r"IQ[1-6]_(?:XXS|XS|NL_XL|NL|KSS|KS|KT|KL|K|S|M|L|R4)(?:_R4)?"
    r"|Q[1-8]_K(?:_(?:XXS|XS|S|M|L|XL|XXL|P))?"
    r"|Q[1-8]_[01](?:_(?:4_4|4_8|8_8|XL|L|R8))?"
    r"|TQ[12]_0|MXFP4(?:_MOE)?|NVFP4|BF16|F16|FP16|F32|FP32|FP8"
    r")(?![A-Za-z0-9])",
    re.IGNORECASE,
)
_SAME = {"FP16": "F16", "FP32": "F32"}
_SHARD = re.compile(r"^(?P<stem>.*?)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf$", re.IGNORECASE | re.DOTALL)
_DRAFT = re.compile(r"(?:^|[-_.])(?:draft|mtp|eagle\d?|dflash|speculator)(?:[-_.]|$)", re.IGNORECASE)
_NO_MODEL = re.compile(r"(?:^|[-_.])(?:imatrix|i-matrix)(?:[-_.]|$)|^ggml-vocab-", re.IGNORECASE)


class HubFile(msgspec.Struct, frozen=True):
    """A file of a repository. sha256 is None where the hub keeps the file in Git itself (small files)."""

    path: str
    size_bytes: int
    sha256: str | None = None


class ModelSet(msgspec.Struct, frozen=True):
    """One model that can be downloaded: one file, or all its shards in order.

    Attributes:
        label: quantization ("Q4_K_M", "UD-Q4_K_XL"), or the file's name where that tells none.
        name: file name without ending and shard numbers; tells sets of one label apart.
        size_bytes: of `files` together.
        mmproj: files with the image or audio part; any one of them goes with this model.
        draft: smaller models that draft for this one.
        complete: False if the repository lacks some of the shards.
    """

    label: str
    name: str
    files: tuple[HubFile, ...]
    size_bytes: int
    mmproj: tuple[HubFile, ...] = ()
    draft: tuple[HubFile, ...] = ()
    complete: bool = True


def quant_label(path: str) -> str:
    """The quantization that a file's name tells ("UD-Q4_K_XL"), or else its folder's; "" if neither does."""
    folder, _, name = path.rpartition("/")
    match = _SHARD.match(name)
    stem = match["stem"] if match else re.sub(r"\.gguf$", "", name, flags=re.IGNORECASE)
    for text in (stem, folder.rpartition("/")[2]):
        found = list(_LABEL.finditer(text))
        if found:
            kind = found[-1][2].upper()
            return ("UD-" if found[-1][1] else "") + _SAME.get(kind, kind)
    return ""


def shard_of(path: str) -> tuple[str, int, int]:
    """(path without shard number and ending, number from 1, count); a single file is 1 of 1."""
    match = _SHARD.match(path)
    if match and 1 <= int(match["number"]) <= int(match["count"]):
        return match["stem"], int(match["number"]), int(match["count"])
    return re.sub(r"\.gguf$", "", path, flags=re.IGNORECASE), 1, 1


def is_gguf(path: str) -> bool:
    return path.lower().endswith(".gguf")


def is_mmproj(path: str) -> bool:
    return "mmproj" in path.rpartition("/")[2].lower()


def is_draft(path: str) -> bool:
    """By its name a model that only drafts for another (speculative decoding)."""
    return bool(_DRAFT.search(_stem(path)))


def model_sets(files: Iterable[HubFile]) -> tuple[ModelSet, ...]:
    """The models of a repository, smallest first; images parts and drafts hang on those they can serve."""
    ggufs = [file for file in files if is_gguf(file.path) and not _NO_MODEL.search(_stem(file.path))]
    mmproj = [file for file in ggufs if is_mmproj(file.path)]
    drafts = [file for file in ggufs if is_draft(file.path) and file not in mmproj]
    models = [file for file in ggufs if file not in mmproj and file not in drafts]
    if not models:  # a repository of drafts offers them as models
        models, drafts = drafts, []
    groups: dict[tuple[str, int], list[HubFile]] = {}
    for file in models:
        stem, _, count = shard_of(file.path)
        groups.setdefault((stem, count), []).append(file)
    sets = [_one_set(stem, count, group, mmproj, drafts) for (stem, count), group in groups.items()]
    return tuple(sorted(sets, key=lambda item: (item.size_bytes, item.name)))


def _one_set(
    stem: str, count: int, group: list[HubFile], mmproj: Sequence[HubFile], drafts: Sequence[HubFile]
) -> ModelSet:
    group = sorted(group, key=lambda file: shard_of(file.path)[1])
    name = stem.rpartition("/")[2]
    return ModelSet(
        label=quant_label(group[0].path) or name,
        name=name,
        files=tuple(group),
        size_bytes=sum(file.size_bytes for file in group),
        mmproj=tuple(file for file in mmproj if _serves(file.path, group[0].path)),
        draft=tuple(file for file in drafts if _serves(file.path, group[0].path)),
        complete=[shard_of(file.path)[1] for file in group] == list(range(1, count + 1)),
    )


def _serves(companion: str, model: str) -> bool:
    """A companion at the top serves all models, one in a folder those in that folder."""
    folder = companion.rpartition("/")[0]
    return not folder or model.startswith(f"{folder}/") or folder.lower().endswith("mmproj")


def find_set(sets: Iterable[ModelSet], wanted: str) -> ModelSet | None:
    """The set that a user means by a quantization, a name, or the path of any of its files; None if there is none.

    Capital letters do not matter; "Q4_K_M" prefers the plain one to "UD-Q4_K_M".
    """
    sets, word = list(sets), wanted.strip().casefold()
    tests = (
        lambda s: any(file.path.casefold() == word for file in s.files),
        lambda s: any(file.path.rpartition("/")[2].casefold() == word for file in s.files),
        lambda s: s.label.casefold() == word,
        lambda s: s.name.casefold() == word,
        lambda s: s.label.casefold() == f"ud-{word}",
    )
    return next((item for test in tests for item in sets if test(item)), None)


def _stem(path: str) -> str:
    return shard_of(path.rpartition("/")[2])[0]
