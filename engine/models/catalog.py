"""The curated catalogue: models that people run on their own computers, known without a network.

Its data is `resources/catalog/models.json` (with a JSON schema beside it). What a file really holds is known when its
repository is asked; the catalogue says which of its facts are approximate.
"""

from __future__ import annotations

import functools
import re
from typing import Literal

import msgspec

import resources
from engine.models.catalog_shape import Shape, count_params, header_of, known_quant, stand_in
from engine.models.gguf_header import GgufHeader

__all__ = ["Catalog", "CatalogModel", "Purpose", "Shape", "load", "parse"]

SCHEMA = 1
Purpose = Literal["chat", "code", "reasoning", "multilingual", "small", "vision"]
#: bits per weight of whole files, where no shape is known; averages over published files
_BITS = {
    "Q2_K": 3.2,
    "Q3_K_M": 3.95,
    "IQ4_XS": 4.35,
    "Q4_K_S": 4.65,
    "Q4_K_M": 4.9,
    "Q5_K_M": 5.7,
    "Q6_K": 6.6,
    "Q8_0": 8.53,
    "MXFP4": 4.6,
    "F16": 16.05,
    "BF16": 16.05,
}


class CatalogModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One model of the catalogue.

    Attributes:
        repo: a repository with its GGUF files. mirrors: others with files of the same model.
        licence: the identifier that its repository gives. open_licence: it sets no conditions on the user's field of
            work, size or place (Apache, MIT and such).
        gated: the repository wants its terms accepted first.
        n_params: all weights; n_active: those that one token uses, of a mixture of experts.
        n_ctx_train: tokens that it was made for.
        thinking: it writes down its thoughts first, or can.
        quants: quantizations that the repository has, as far as known, small to large.
        quant: the one to take where nothing speaks against it.
        shape: hyper-parameters, from which needs are computed offline; None where they are not known for sure.
        sizes: bytes by quantization, where published sizes are known.
        kv_bytes_per_token: KV cache in 16 bit, for models without a shape; 0: unknown.
        approximate: names of fields whose values are not exact.
    """

    id: str
    name: str
    maker: str
    summary: str
    purposes: tuple[Purpose, ...]
    licence: str
    open_licence: bool
    repo: str
    n_params: int
    n_ctx_train: int
    released: str
    mirrors: tuple[str, ...] = ()
    gated: bool = False
    n_active: int = 0
    thinking: bool = False
    quants: tuple[str, ...] = ("Q3_K_M", "Q4_K_M", "Q5_K_M", "Q6_K", "Q8_0")
    quant: str = "Q4_K_M"
    shape: Shape | None = None
    sizes: dict[str, int] = {}
    kv_bytes_per_token: int = 0
    approximate: tuple[str, ...] = ()

    def size_bytes(self, quant: str = "") -> int:
        """Size of the model's file, approximate unless `sizes` names it; 0 for an unknown quantization."""
        label = quant or self.quant
        if label in self.sizes:
            return self.sizes[label]
        if self.shape is not None and known_quant(label):
            return header_of(self.shape, label, self.name, self.n_ctx_train).file_size
        return int(self.n_params * _BITS.get(label.removeprefix("UD-"), 0.0) / 8)

    def header(self, quant: str = "") -> GgufHeader | None:
        """A header as the file would have it, for `engine.fit`; None for a quantization that is not known.

        Where the shape is not known (`estimated`), that of a usual model which takes about as much memory.
        """
        label = (quant or self.quant).removeprefix("UD-")
        if not known_quant(label):
            return None
        return header_of(self.shape or _stand_in(self, label), label, self.name, self.n_ctx_train)

    @property
    def estimated(self) -> bool:
        """True if needs computed from `header` are of a stand-in, not of the model itself."""
        return self.shape is None or "shape" in self.approximate


class Catalog(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All models, as the file lists them. about: what its facts are worth, in words."""

    schema: int
    updated: str
    about: tuple[str, ...]
    models: tuple[CatalogModel, ...]

    def find(self, id_or_repo: str) -> CatalogModel | None:
        """The model with this id, name or repository; capital letters do not matter."""
        word = id_or_repo.casefold()
        return next(
            (
                model
                for model in self.models
                if word in {text.casefold() for text in (model.id, model.name, model.repo, *model.mirrors)}
            ),
            None,
        )

    def search(self, query: str = "", purpose: Purpose | None = None) -> list[CatalogModel]:
        """Models whose texts hold all words of the query; of all purposes or one."""
        words = query.casefold().split()

        def text(model: CatalogModel) -> str:
            return " ".join((model.id, model.name, model.maker, model.summary, *model.purposes, model.repo)).casefold()

        return [
            model
            for model in self.models
            if (purpose is None or purpose in model.purposes) and all(word in text(model) for word in words)
        ]


def parse(data: bytes) -> Catalog:
    """The catalogue out of its JSON.

    Raises:
        ValueError: it breaks the schema, or contradicts itself; the message names the model.
    """
    catalog = msgspec.json.decode(data, type=Catalog)
    if catalog.schema != SCHEMA:
        raise ValueError(f"schema {catalog.schema}, not {SCHEMA}")
    seen: set[str] = set()
    for model in catalog.models:
        if model.id in seen:
            raise ValueError(f"{model.id} comes twice")
        seen.add(model.id)
        for problem in _contradictions(model):
            raise ValueError(f"{model.id}: {problem}")
    return catalog


def _contradictions(model: CatalogModel) -> list[str]:
    found = []
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", model.id):
        found.append("the id may hold small letters, digits, dots and hyphens")
    repos = (model.repo, *model.mirrors)
    found += [f"{repo} is no repository" for repo in repos if not re.fullmatch(r"\w[\w.-]{0,95}/\w[\w.-]{0,95}", repo)]
    if not re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])", model.released):
        found.append("released is no month")
    if not model.purposes:
        found.append("no purpose")
    if model.quant not in model.quants:
        found.append("its quantization is not among those of its repository")
    if not 0 < model.n_params < 2 * 10**12 or not 0 <= model.n_active < model.n_params:
        found.append("impossible numbers of parameters")
    fields = {field.name for field in msgspec.structs.fields(CatalogModel)}
    if not fields.issuperset(model.approximate):
        found.append("approximate names something that is no field")
    if model.shape is not None:
        counted = count_params(model.shape)
        if abs(counted - model.n_params) > 0.02 * model.n_params:
            found.append(f"the shape has {counted:,} parameters, not {model.n_params:,}")
    elif model.quant not in model.sizes:
        found.append("neither a shape nor the size of its quantization")
    return found


def _stand_in(model: CatalogModel, label: str) -> Shape:
    size = model.sizes.get(label) or model.sizes.get(f"UD-{label}") or model.size_bytes(label)
    return stand_in(model.n_params, model.n_active, model.kv_bytes_per_token, label, size)


@functools.cache
def load() -> Catalog:
    """The catalogue that ships with the program. A few milliseconds at the first call."""
    return parse(resources.data("catalog/models.json"))
