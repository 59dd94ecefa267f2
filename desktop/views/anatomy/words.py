"""The picture of a model in words: for tooltips, for screen readers, and as text to copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from desktop import figures
from desktop.models.library import parameters
from engine.anatomy import HOST, Anatomy, Kind, Piece, PlaceSum, Row, TypeShare

_KIB = 1024
_MIB = 1024**2


@dataclass(frozen=True)
class PartWords:
    """words: in legends. tip: the part in one sentence. term: its id in the glossary."""

    words: str
    tip: str
    term: str


PARTS: dict[Kind, PartWords] = {
    "embedding": PartWords("embedding", "The table that turns each token into numbers", "embedding_layer"),
    "attention": PartWords("attention", "Looks back at the tokens before, through the KV cache", "attention"),
    "feed_forward": PartWords("feed-forward", "Works on each token by itself; most of the weights", "feed_forward"),
    "experts": PartWords("experts", "Many feed-forward parts of which each token uses a few", "expert"),
    "state": PartWords("recurrent", "Keeps a summary of all tokens before, in place of a KV cache", "recurrent_model"),
    "other": PartWords("other", "Norms and small tables", "layer"),
    "output": PartWords("output", "Turns the numbers of the last layer into a score for each token", "output_layer"),
}


def size(n_bytes: int) -> str:
    """As `figures.size`, with KiB and bytes below 0.1 MiB."""
    if n_bytes >= _MIB // 10:
        return figures.size(n_bytes)
    return f"{n_bytes / _KIB:.1f} KiB" if n_bytes >= _KIB else f"{n_bytes} bytes"


def count(n_params: int) -> str:
    """Numbers of a part: "1.77 M", "576"."""
    return parameters(n_params) if n_params >= 10**5 else f"{n_params:,}"


def bits(value: float) -> str:
    """4.5 -> "4.50"; whole ones without digits."""
    return f"{value:.0f}" if value == round(value) else f"{value:.2f}"


def place_name(name: str, labels: Mapping[str, str]) -> str:
    """What people call a place."""
    return "RAM" if name == HOST else labels.get(name, name)


def layer_name(row: Row) -> str:
    return row.name[:1].upper() + row.name[1:]


def piece_words(row: Row, piece: Piece, labels: Mapping[str, str]) -> str:
    """A part with all its figures, in one or two lines."""
    head = layer_name(row) if row.name == piece.kind else f"{layer_name(row)}, {PARTS[piece.kind].words}"
    at = place_name(piece.place, labels)
    where = "in RAM" if piece.place == HOST else f"on {at}"
    average = piece.n_bytes * 8 / piece.n_params if piece.n_params else 0.0
    words = f"{head}: {size(piece.n_bytes)} {where}, {count(piece.n_params)} parameters of {bits(average)} bits"
    words += f"\n{types_words(piece.types)}"
    if piece.copy:
        words += "\nA second copy: the same numbers lie in RAM as the embedding" if row.name == "output" else ""
    elif piece.kind == "experts" and row.place != piece.place:
        words += "\nThese experts stay in main memory, where the CPU computes them"
    return words


def types_words(types: Sequence[TypeShare]) -> str:
    """ "Q4_1 1.1 MiB, F32 4.5 KiB"."""
    return ", ".join(f"{share.name} {size(share.n_bytes)}" for share in types)


def place_words(place: PlaceSum, n_layers: int, labels: Mapping[str, str], measured: Mapping[str, int]) -> str:
    """What lies in one place, and what llama.cpp says of it."""
    name = place_name(place.name, labels)
    said = f"{name}: {size(place.n_bytes)} of weights, {place.n_layers} of {n_layers} layers computed here"
    if place.name in measured:
        said += f"\nllama.cpp's own buffers here: {size(measured[place.name])}"
        if place.name == HOST:
            said += ", a mapped file counted from its first to its last tensor in use"
    return said


def ideal_words(found: Anatomy) -> str:
    """How the ideal size and the real one come about."""
    if found.nominal_bits is None or found.ideal_bytes is None or found.finer_bytes is None:
        return f"{found.n_params:,} parameters take {size(found.n_bytes)}: {bits(found.bits)} bits each."
    named = bits(found.nominal_bits)
    words = (
        f"{count(found.n_params)} parameters × {named} bits ÷ 8 would be {size(found.ideal_bytes)}. "
        f"It is {size(found.n_bytes)}, {bits(found.bits)} bits each"
    )
    parts = []
    if found.scale_bytes > 0:
        parts.append(f"{size(found.scale_bytes)} are scales: each block of numbers has its own")
    if found.finer_bytes > 0:
        parts.append(f"{size(found.finer_bytes)} are tensors that are kept more exactly")
    elif found.finer_bytes < 0:
        parts.append(f"{size(-found.finer_bytes)} are saved by tensors that are kept less exactly")
    return f"{words}: {'; '.join(parts)}." if parts else f"{words}."


def summary_words(found: Anatomy, labels: Mapping[str, str]) -> str:
    """Where the model is, in a sentence or two."""
    n_layers = len(found.rows) - 1
    devices = [place for place in found.places if place.name != HOST]
    if not any(place.n_layers for place in devices):
        return f"All {n_layers} layers, the output counted as one, are in RAM and computed by the CPU."
    said = [f"{place.n_layers} of {n_layers} layers on {place_name(place.name, labels)}" for place in devices]
    host = next(place for place in found.places if place.name == HOST)
    rest = f"{host.n_layers} in RAM" if host.n_layers else "the embedding stays in RAM"
    words = f"{', '.join(said)}, {rest}."
    kept = [row for row in found.rows if any(p.kind == "experts" and p.place != row.place for p in row.pieces)]
    if kept:
        held = sum(p.n_bytes for row in kept for p in row.pieces if p.kind == "experts")
        words += f" The experts of {len(kept)} layers, {size(held)}, stay in RAM."
    return words


def as_text(name: str, found: Anatomy, labels: Mapping[str, str], measured: Mapping[str, int]) -> str:
    """The whole page as plain text."""
    n_layers = len(found.rows) - 1
    lines = [name, "", ideal_words(found), summary_words(found, labels), ""]
    lines += [place_words(place, n_layers, labels, measured).replace("\n", ". ") for place in found.places]
    lines += ["", "type: bits per weight, tensors, parameters, size"]
    lines += [
        f"{share.name}: {bits(share.bits)}, {share.n_tensors}, {share.n_params:,}, {size(share.n_bytes)}"
        for share in found.types
    ]
    lines.append("")
    for row in found.rows:
        parts = [f"{PARTS[p.kind].words} {size(p.n_bytes)} in {place_name(p.place, labels)}" for p in row.pieces]
        lines.append(f"{row.name}: {'; '.join(parts) or 'uses the numbers of the embedding'}")
    return "\n".join(lines) + "\n"
