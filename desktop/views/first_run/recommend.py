"""What a fresh computer is told: what it can run, and one model for each purpose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from desktop import figures
from desktop.models.best_quant import middle_tps
from desktop.models.catalog_rows import READABLE_TPS
from desktop.models.library import parameters

if TYPE_CHECKING:
    from engine.fit.plan_records import FitPlan, Machine
    from engine.models.catalog import CatalogModel

PURPOSES = (
    ("chat", "everyday chat"),
    ("reasoning", "thinking things through"),
    ("code", "writing code"),
    ("small", "quick answers"),
)
#: nobody waits for a download of this size to see whether the program is any good
_MOST_BYTES = 24 * 1024**3
#: for quick answers
_QUICK_BYTES = 3 * 1024**3


@dataclass(frozen=True)
class Recommendation:
    model: CatalogModel
    plan: FitPlan


def machine_words(machine: Machine) -> str:
    """The computer in a sentence."""
    ram = f"{figures.size(machine.ram_available_bytes)} of {figures.size(machine.ram_total_bytes)} memory free"
    cores = f"{machine.cores} cores" if machine.cores else ""
    if not machine.devices:
        return ", ".join(part for part in ("No GPU that can be used", cores, ram) if part) + "."
    gpus = [
        f"{d.label} with {figures.size(d.free_bytes)} of {figures.size(d.total_bytes)} free" for d in machine.devices
    ]
    return ", ".join(part for part in (*gpus, cores, ram) if part) + "."


def _usable(plan: FitPlan | None) -> bool:
    return plan is not None and plan.verdict in ("gpu", "split", "cpu")


def smaller_words(models: Sequence[CatalogModel], plans: Mapping[str, FitPlan | None]) -> str:
    """How large a model may be here."""
    quick, slow = 0, 0
    for model in models:
        plan = plans.get(model.id)
        if plan is None or not _usable(plan):
            continue
        slow = max(slow, model.n_params)
        if middle_tps(plan) >= READABLE_TPS:
            quick = max(quick, model.n_params)
    if not slow:
        return "Only very small models fit into the memory that is free now."
    if not quick:
        return f"Models up to {parameters(slow)} parameters fit, but write slowly."
    words = f"Models up to {parameters(quick)} parameters write fast enough to read along."
    return f"{words} Up to {parameters(slow)} fit, more slowly." if slow > quick else words


def recommend(models: Sequence[CatalogModel], plans: Mapping[str, FitPlan | None]) -> dict[str, Recommendation]:
    """One model for each purpose: the largest that fits, writes fast enough to read along and is free to use.

    Whole on the GPU comes before partly; the same model is not given twice where there is another.
    """
    chosen: dict[str, Recommendation] = {}
    for purpose, _ in PURPOSES:
        found = [
            Recommendation(model, plan)
            for model in models
            if purpose in model.purposes
            and not model.gated
            and (plan := plans.get(model.id)) is not None
            and _usable(plan)
        ]
        most = _QUICK_BYTES if purpose == "small" else _MOST_BYTES
        found = [r for r in found if r.model.size_bytes() <= most] or found
        taken = {r.model.id for r in chosen.values()}
        found.sort(key=lambda r: (r.model.id in taken, *_rank(r)))
        if found:
            chosen[purpose] = found[0]
    return chosen


def _rank(found: Recommendation) -> tuple[bool, bool, bool, int]:
    fast = middle_tps(found.plan) >= READABLE_TPS
    whole = found.plan.verdict != "split"
    size = found.model.n_params if fast else -found.model.n_params
    return not fast, not whole, not found.model.open_licence, -size
