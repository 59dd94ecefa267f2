"""How a model is loaded now, as wishes: where the controls that ask "what if" begin."""

from __future__ import annotations

from typing import Any

from engine.events import ModelInfo
from engine.fit.plan_records import Wishes

#: wishes that go into a load as they are shown
_ASKED = ("n_ctx", "n_gpu_layers", "n_cpu_moe", "n_slots", "kv_type_k", "kv_type_v", "tensor_split")


def wishes_of(info: ModelInfo) -> Wishes:
    """All that a plan needs to come out as the model is loaded."""
    gpus = [device.name for device in info.devices if device.kind in ("gpu", "igpu")]
    counts = {name: float(info.layer_devices.count(name)) for name in gpus}
    used = tuple(name for name in gpus if counts[name])
    return Wishes(
        n_ctx=info.n_ctx,
        n_gpu_layers=info.n_gpu_layers,
        kv_type_k=info.kv_type_k,
        kv_type_v=info.kv_type_v,
        n_ubatch=info.n_ubatch,
        n_batch=info.n_batch,
        n_slots=info.n_slots,
        n_cpu_moe=info.n_cpu_moe,
        tensor_split=tuple(counts[name] for name in gpus) if len(used) > 1 and len(used) == len(gpus) else (),
        devices=used if len(used) < len(gpus) else (),
    )


def asked_for(wishes: Wishes) -> dict[str, Any]:
    """Options of a load that comes out as these wishes say; what is left open stays the planner's."""
    found = {name: getattr(wishes, name) for name in _ASKED}
    return {name: value for name, value in found.items() if value not in (None, ())}
