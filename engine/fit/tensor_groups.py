"""Which tensors of a model go together, by their names: the parts of each layer, its experts, the rest.

Names restated from llama.cpp (MIT; llama-arch.cpp, llama-model.cpp `load_tensors`), revision 0c1e570.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter

from engine.models.gguf_header import TensorInfo

Pick = Callable[[Sequence[int]], tuple[int, ...]]
"""Takes the sizes of a group's tensors out of the sizes of all, in the file's order and then a 0."""

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
_DIGITS = re.compile(r"[0-9]{1,5}")  # a stranger's file may hold longer ones, and other characters that are digits
_BLOCK = re.compile(r"(?:enc\.|dec\.)?blk\.(\d+)\.")
_GROUPS = ("input", "embedding", "output", "matrix", "every", "first", "unused")
_NAMED = (("input", _INPUT), ("every", _EVERY_LAYER), ("unused", _UNUSED), ("first", _FIRST_LAYER))
#: the kinds of matrices, none of which has any bytes
NO_MATRIX = dict.fromkeys(("attention", "inner", "down", "expert_inner", "expert_down"), 0)
_EXPERT = re.compile(r"blk\.\d+\.ffn_(up|down|gate|gate_up)_(ch|)exps")
#: whose embedding norm is the output norm under another name
NORM_IS_OUTPUT = frozenset(("lfm2", "lfm2moe"))


@dataclass(frozen=True)
class Groups:
    """The tensors of a model by where they go together. It knows no size: the files of one model share it.

    Attributes:
        named: the groups of `classify` that belong to no layer.
        layers: of each layer all but its experts.
        experts: of each layer its experts; empty for a model without any.
        largest: of each layer its matrices by kind; no kind that it has none of.
        n_row: of each tensor the length of its rows.
    """

    named: dict[str, Pick]
    layers: tuple[Pick, ...]
    experts: tuple[Pick, ...]
    largest: tuple[tuple[tuple[str, Pick], ...], ...]
    n_row: tuple[int, ...]
    _uneven: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    def uneven(self, row: int) -> list[tuple[int, int]]:
        """(place, elements missing) of each tensor whose rows are not a multiple of `row` long."""
        known = self._uneven.get(row)
        if known is None:
            beyond = ((at, n_row % row) for at, n_row in enumerate(self.n_row))
            known = self._uneven[row] = [(at, row - over) for at, over in beyond if over]
        return known


class Table:
    """Names and sizes of a model's tensors, without their types: what its quantizations have in common.

    What is worked out from it is remembered, and the table itself is (`table_of`): most lists are many quantizations of
    a few models.
    """

    def __init__(self, names: tuple[str, ...], dims: tuple[tuple[int, ...], ...]) -> None:
        self._names, self._dims = names, dims
        self._widths: dict[int, dict[str, list[int]]] = {}
        self._groups: dict[tuple[int, int, bool], Groups] = {}

    def widths(self, n_all: int) -> Mapping[str, Sequence[int]]:
        """Inner widths of the feed-forward parts of `n_all` layers, from the matrices: the keys for them differ."""
        known = self._widths.get(n_all)
        if known is None:
            known = {name: [0] * n_all for name in ("ffn_down", "ffn_down_exps", "ffn_down_shexp")}
            for tensor, dims in zip(self._names, self._dims, strict=True):
                if ".ffn_down" in tensor:
                    _, index, name, *_ = [*tensor.split("."), "", ""]
                    if name in known and _DIGITS.fullmatch(index) and int(index) < n_all and dims:
                        known[name][int(index)] = max(known[name][int(index)], dims[0])
            self._widths[n_all] = known
        return known

    def groups(self, n_layer: int, n_known: int, norm_is_output: bool) -> Groups:
        """Which tensors go together.

        Args:
            n_layer: layers that are loaded; later ones predict further tokens and are in no group.
            n_known: layers that the answer has, at least `n_layer`.
            norm_is_output: the norm of the embedding is the output's (`NORM_IS_OUTPUT`).
        """
        key = n_layer, n_known, norm_is_output
        known = self._groups.get(key)
        if known is None:
            known = self._groups[key] = _group(self._names, self._dims, *key)
        return known


def table_of(tensors: Sequence[TensorInfo]) -> Table:
    """The same object for the same names and sizes, as long as it is remembered."""
    return _table(tuple([tensor.name for tensor in tensors]), tuple([tensor.dims for tensor in tensors]))


@lru_cache(maxsize=64)
def _table(names: tuple[str, ...], dims: tuple[tuple[int, ...], ...]) -> Table:
    return Table(names, dims)


def _group(
    names: tuple[str, ...], dims: tuple[tuple[int, ...], ...], n_layer: int, n_known: int, norm_is_output: bool
) -> Groups:
    named: dict[str, list[int]] = {group: [] for group in _GROUPS}
    layers: list[list[int]] = [[] for _ in range(n_known)]
    experts: list[list[int]] = [[] for _ in range(n_known)]
    largest: list[dict[str, list[int]]] = [{kind: [] for kind in NO_MATRIX} for _ in range(n_known)]
    for at, (name, sizes) in enumerate(zip(names, dims, strict=True)):
        group, index, kind = classify(name)
        if index < 0:
            group = ("output" if norm_is_output else "first") if group == "norm" else group
            named[group].append(at)
        elif index < n_layer:
            (experts if group == "experts" else layers)[index].append(at)
            if len(sizes) > 1:
                largest[index][kind].append(at)
    none = len(names)
    return Groups(
        {group: _pick(places, none) for group, places in named.items()},
        tuple(_pick(places, none) for places in layers),
        tuple(_pick(places, none) for places in experts) if any(experts) else (),
        tuple(tuple((kind, _pick(places, none)) for kind, places in kinds.items() if places) for kinds in largest),
        tuple(sizes[0] if sizes else 0 for sizes in dims),
    )


def _pick(places: list[int], none: int) -> Pick:
    return itemgetter(*places, none, none)  # from two places on it gives a tuple


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
