"""Rows of the table of quantizations, from the files of a repository or the catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from desktop.models.quant_table import QuantRow

if TYPE_CHECKING:
    from engine.models.hub_names import ModelSet


def set_key(item: ModelSet) -> str:
    """Names a set in its repository."""
    return item.files[0].path


def set_note(item: ModelSet) -> str:
    """What belongs to a set beside its first file."""
    return f"{len(item.files)} files" if len(item.files) > 1 else ""


def make_row(key: str, label: str, size_bytes: int, n_params: int, note: str = "") -> QuantRow:
    """A row with what its label and size tell."""
    from engine.fit import quality

    known = quality.of(label)
    bits = size_bytes * 8 / n_params if n_params and size_bytes else known.bits_per_weight if known else None
    loss = known.kl_divergence if known else 0.0
    tone = "bad" if loss > 0.35 else "warn" if loss > 0.11 else ""
    return QuantRow(key, label, size_bytes, bits, loss_words(quality.words(label)), tone, note)


def loss_words(words: str) -> str:
    """The loss under a heading that names it already: "slight loss" becomes "slight"."""
    short = {"no loss that can be noticed": "none to be noticed", "nearly lossless": "hardly any"}
    return short.get(words, words.removesuffix(" loss").replace("loss not known", "not known"))
