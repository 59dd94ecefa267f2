"""What each option of a load would be if nobody chose it, in words: from the processor, the loaded model, or a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from desktop.views.settings.option_form import Automatic, value_words
from engine.engine_options import EngineOptions, chosen

if TYPE_CHECKING:
    from engine.cores import Cores
    from engine.events import ModelInfo
    from engine.fit.plan_records import FitPlan

FOR_ALL = "For all models"
_PLAIN = {
    "n_ctx": Automatic("8,192", "less where memory is short"),
    "n_gpu_layers": Automatic("all that fit"),
    "n_slots": Automatic("4"),
    "n_threads": Automatic("one per fast core"),
    "n_threads_batch": Automatic("one per fast core"),
    "n_batch": Automatic("2,048"),
    "n_ubatch": Automatic("512", "256 where memory is short"),
    "flash_attention": Automatic("on", "where the device can"),
    "kv_type_k": Automatic("F16", "Q8_0 where memory is short"),
    "kv_type_v": Automatic("F16", "Q8_0 where memory is short"),
    "swa_full": Automatic("off"),
    "offload_kqv": Automatic("on"),
    "op_offload": Automatic("on", "off where a layer needs the room"),
    "use_mmap": Automatic("on", "where that is good for the device"),
    "use_mlock": Automatic("off"),
}


def plain(cores: Cores | None, n_threads: int | None = None) -> dict[str, Automatic]:
    """What is automatic whatever the model. n_threads: those for answers, if they are chosen."""
    found = dict(_PLAIN)
    if cores is not None:
        threads = Automatic(f"{cores.threads}", cores.reason)
        found |= {"n_threads": threads, "n_threads_batch": threads}
    if n_threads is not None:
        found["n_threads_batch"] = Automatic(f"{n_threads}", "as for answers")
    return found


def of_loaded(
    cores: Cores | None, options: EngineOptions, model: ModelInfo | None, request: Any
) -> dict[str, Automatic]:
    """The same, with what was chosen for the loaded model where its load (`request`) left it open."""
    found = plain(cores, options.n_threads)
    if model is None or request is None:
        return found
    why = f"for {model.name}"
    if request.n_ctx is None:
        found["n_ctx"] = Automatic(f"{model.n_ctx:,}", why)
    if request.n_gpu_layers is None:
        found["n_gpu_layers"] = Automatic(f"{model.n_gpu_layers} of {model.n_layer + 1}", why)
    if request.flash_attention == "auto" and model.flash_attention in ("on", "off"):
        found["flash_attention"] = Automatic(model.flash_attention, why)
    return found


def of_plan(
    cores: Cores | None, own: EngineOptions, common: EngineOptions, plan: FitPlan | None
) -> dict[str, Automatic]:
    """For one model: as it is set for all models, else what the plan has chosen."""
    found = plain(cores, own.n_threads or common.n_threads)
    if plan is not None:
        options = plan.options
        planned = {name: getattr(options, name) for name in ("n_ubatch", "kv_type_k", "kv_type_v", "op_offload")}
        planned["flash_attention"] = "on" if plan.needs.flash_attention else "off"
        for name, value in planned.items():
            if getattr(own, name) is None:  # else it is the user's choice that the plan repeats
                found[name] = Automatic(value_words(name, value))
    set_for_all: dict[str, Any] = chosen(common)
    for name, value in set_for_all.items():
        found[name] = Automatic(value_words(name, value), lead=FOR_ALL)
    return found
