"""Which quantization is the best for this machine, and why, in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from desktop import figures
from desktop.models.catalog_rows import READABLE_TPS
from desktop.models.quant_table import QuantRow

if TYPE_CHECKING:
    from engine.fit.plan_records import FitPlan

#: beyond this many bits nothing that can be noticed is won
_ENOUGH_BITS = 9.0


@dataclass(frozen=True)
class Best:
    """place: of the row; -1: there is none. words: the sentence behind the name."""

    place: int
    words: str


def middle_tps(plan: FitPlan) -> float:
    return (plan.speed.decode_tps_low + plan.speed.decode_tps_high) / 2


def choose(rows: Sequence[QuantRow]) -> Best:
    """The best of rows that are sorted from the largest to the smallest.

    Whole on the GPU comes first, then the best quality that still writes fast enough to read along, then speed.
    Quantizations that lose much are never chosen unless nothing else fits.
    """
    from engine.fit import quality

    judged = [(place, row) for place, row in enumerate(rows) if row.plan is not None]
    sensible = [(p, r) for p, r in judged if quality.good_enough(r.label) and (r.bits or 0) <= _ENOUGH_BITS]
    for candidates in (sensible, judged):
        for verdicts, fast in ((("gpu",), False), (("split", "cpu"), True), (("split", "cpu"), False)):
            found = [
                (place, row)
                for place, row in candidates
                if row.plan is not None
                and row.plan.verdict in verdicts
                and (not fast or middle_tps(row.plan) >= READABLE_TPS)
            ]
            if found:
                place, row = found[0] if verdicts == ("gpu",) or fast else found[-1]
                return Best(place, _why(rows, place, row))
    return Best(-1, "No quantization of this model fits into the memory that is free now.")


def _why(rows: Sequence[QuantRow], place: int, row: QuantRow) -> str:
    plan = row.plan
    if plan is None:
        return ""
    context = f"{plan.needs.n_ctx:,} tokens of context"
    if plan.verdict == "gpu":
        spare = min(fit.free_bytes - fit.need.total_bytes for fit in plan.devices if fit.need.total_bytes)
        words = f"The largest that stays whole on your GPU with {context} and {figures.size(max(0, spare))} to spare."
        if (row.bits or 0) > 8 and place == 0:
            words = f"It stays whole on your GPU with {context}, and nothing that you would notice is lost."
    elif plan.verdict == "split":
        count = f"{plan.needs.n_gpu_layers} of {plan.n_layers} layers"
        words = f"{count} fit on your GPU with {context}; the CPU does the rest."
        if plan.options.n_cpu_moe:
            words = f"Everything but the experts fits on your GPU with {context}."
    elif middle_tps(plan) >= READABLE_TPS:
        words = f"The best quality that the CPU still writes fast enough to read along, with {context}."
    else:
        words = f"The fastest of good quality on the CPU, with {context}."
    return f"{words} {_next_words(rows, place, plan)}".strip()


def _next_words(rows: Sequence[QuantRow], place: int, plan: FitPlan) -> str:
    """What the next larger one would cost."""
    larger = next((row for row in reversed(rows[:place]) if row.plan is not None), None)
    if larger is None or larger.plan is None or plan.verdict == "split":
        return ""
    other = larger.plan
    if other.verdict == "too_large":
        return f"{larger.label} would need {figures.size(other.missing_bytes)} more."
    mine, its = middle_tps(plan), middle_tps(other)
    slower = f" and run about {1 - its / mine:.0%} slower".replace("%", " %") if mine > 0 and its < mine * 0.95 else ""
    if plan.verdict == "gpu" and other.verdict == "split":
        left = other.n_layers - other.needs.n_gpu_layers
        moved = f"the experts of {other.options.n_cpu_moe} layers" if other.options.n_cpu_moe else _layers(left)
        return f"{larger.label} would leave {moved} on the CPU{slower}."
    if slower:
        return f"{larger.label} would{slower.removeprefix(' and')}."
    return ""


def _layers(count: int) -> str:
    return "one layer" if count == 1 else f"{count} layers"
