"""Options of a load as wishes for a plan, and back: what the user moved becomes an option of the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from desktop.views.hub.what_if import DEFAULT_CHATS
from engine.engine_options import EngineOptions
from engine.fit.plan_records import Wishes

_FIELDS = (
    *("n_ctx", "n_gpu_layers", "n_cpu_moe", "n_slots", "tensor_split", "kv_type_k", "kv_type_v", "flash_attention"),
    *("n_ubatch", "n_batch", "swa_full", "offload_kqv", "op_offload", "use_mlock"),
)


def wishes_from(options: Mapping[str, Any]) -> Wishes:
    """What is chosen, as wishes; the rest is the planner's."""
    chosen = {name: options[name] for name in _FIELDS if name in options}
    return replace(Wishes(n_slots=DEFAULT_CHATS), **chosen)


def taken(own: EngineOptions, before: Wishes, after: Wishes, common: Wishes) -> EngineOptions:
    """The options of a model after its wishes have become others.

    Args:
        common: the wishes where nothing is chosen for the model.
    """
    changed: dict[str, Any] = {}
    for name in _FIELDS:
        value = getattr(after, name)
        if value != getattr(before, name):
            changed[name] = None if value == getattr(common, name) else value
    return msgspec.structs.replace(own, **changed)
