"""Models that are not here, as rows: the catalogue and the hits of the Hub, each with what is known of its fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from desktop import figures
from desktop.models.hub_results import GOOD, LARGER, UNJUDGED, ModelRow
from desktop.models.library import licence_words, parameters
from desktop.widgets.fit_chip import ASKING, UNKNOWN, Chip, chip_for

if TYPE_CHECKING:
    from engine.fit.plan_records import FitPlan, Machine
    from engine.models.catalog import CatalogModel
    from engine.models.hub import HubModel

CATALOG, HUB = "catalog:", "hub:"
_USUAL_BITS = 4.9
#: tokens a second below which reading along is no pleasure
READABLE_TPS = 6.0
#: beside the weights: cache and scratch of a usual chat
_BESIDE = 1.12, 600 * 1024**2
_PURPOSES = {
    "chat": "everyday chat",
    "code": "code",
    "reasoning": "thinking",
    "multilingual": "many languages",
    "small": "fast, small",
    "vision": "images",
}


def purposes(model: CatalogModel, most: int = 2) -> str:
    """What it is good for, in a few words."""
    return ", ".join(_PURPOSES[purpose] for purpose in model.purposes[:most])


def rough_chip(size_bytes: int, machine: Machine | None) -> Chip:
    """A verdict from a file size alone, where nothing more is known; it says so."""
    if machine is None:
        return ASKING
    if size_bytes <= 0:
        return UNKNOWN
    need = int(size_bytes * _BESIDE[0]) + _BESIDE[1]
    gpu = sum(device.free_bytes for device in machine.devices if not device.shared and device.kind == "gpu")
    why = f"Judged by its size alone, {figures.size(size_bytes)} at about {_USUAL_BITS} bits"
    if need <= gpu:
        return Chip("likely fits", "good", f"{why}: it should fit on the GPU")
    if need <= gpu + machine.ram_available_bytes:
        return Chip("likely, part CPU" if gpu else "likely fits", "warn" if gpu else "good", f"{why}: it should fit")
    missing = need - gpu - machine.ram_available_bytes
    return Chip("too large", "bad", f"{why}: about {figures.size(missing)} more than is free")


def catalog_row(
    model: CatalogModel, plan: FitPlan | None, machine: Machine | None, judged: bool
) -> tuple[str, ModelRow]:
    """(heading, row) of a model of the catalogue.

    Args:
        plan: of its usual quantization; None where its shape is not known or nothing was worked out yet (`judged`).
    """
    if plan is not None:
        chip = chip_for(plan, on_gpu=bool(machine and machine.devices))
    elif not judged:
        chip = ASKING
    else:
        chip = rough_chip(model.size_bytes(), machine)
    line = f"{purposes(model, 1)} · {licence_words(model.licence)}"
    if chip.tone == "bad" and plan is not None:
        line = f"needs {figures.size(plan.missing_bytes)} more"
    group = LARGER if chip.tone == "bad" else UNJUDGED if chip is UNKNOWN else GOOD
    tip = f"{model.name} by {model.maker}\n{model.summary}"
    return group, ModelRow(model.name, CATALOG + model.id, line, chip, tip)


def usefulness(model: CatalogModel, plan: FitPlan | None) -> tuple[int, int]:
    """Sorts: whole on the GPU and fast enough to read along, then fast enough, then the others; large ones first."""
    if plan is None or plan.speed.decode_tps_low + plan.speed.decode_tps_high < 2 * READABLE_TPS:
        return 2, -model.n_params
    return (0 if plan.verdict == "gpu" else 1), -model.n_params


def compact(number: int) -> str:
    """1234567 -> "1.2 M"."""
    for limit, letter in ((10**9, "B"), (10**6, "M"), (10**3, "k")):
        if number >= limit:
            return f"{number / limit:.1f} {letter}"
    return str(number)


def hub_row(model: HubModel, machine: Machine | None) -> ModelRow:
    """A hit of the Hub."""
    parts = [
        model.author,
        parameters(model.n_params) if model.n_params else "",
        f"{compact(model.downloads)} downloads",
        licence_words(model.license),
        "gated" if model.gated else "",
    ]
    chip = rough_chip(int(model.n_params * _USUAL_BITS / 8), machine)
    name = model.repo.partition("/")[2]
    return ModelRow(name, HUB + model.repo, " · ".join(part for part in parts if part), chip, model.repo)
