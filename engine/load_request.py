"""What is asked of a load: its own options, then those of the model, then those of all models; else automatic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine import engine_options
from engine.engine_options import EngineOptions
from engine.settings import Settings
from engine.worker import protocol

_NAMES = frozenset(EngineOptions.__struct_fields__)
#: adapters are compared in their own way; where states are kept is no reason to load again
_NOT_COMPARED = frozenset(("id", "adapters", "kv_folder", "kv_cap_bytes"))
#: settings that hold for chats and embeddings alike
_SHARED = frozenset(
    ("n_gpu_layers", "n_threads", "n_threads_batch", "flash_attention", "use_mmap", "use_mlock", "op_offload")
)
#: short texts that are computed at the same time
_EMBEDDED_TOGETHER = 16


def load_request(
    settings: Settings, request_id: str, path: str, options: Mapping[str, Any]
) -> tuple[protocol.Load, frozenset[str]]:
    """(the request, the fields of it that somebody has chosen).

    Args:
        options: of this load alone, fields of `Load`; None there: as the settings say.

    Raises:
        InvalidRequest: choices that no load could have, or that exclude each other.
    """
    layers = (options, settings.model_engine.get(path, EngineOptions()), settings.engine)
    wanted = engine_options.merged(*layers)
    engine_options.check(EngineOptions(**{name: value for name, value in wanted.items() if name in _NAMES}))
    return protocol.Load(id=request_id, path=path, **wanted), frozenset(wanted)


def embedding_request(
    settings: Settings, request_id: str, path: str, options: Mapping[str, Any]
) -> tuple[protocol.Load, frozenset[str]]:
    """The same for a model that is loaded for embeddings: what is set for chats (context, cache) does not hold for it.

    Raises:
        InvalidRequest: as `load_request`.
    """
    layers = (settings.model_engine.get(path, EngineOptions()), settings.engine)
    shared = {name: value for name, value in engine_options.merged(*layers).items() if name in _SHARED}
    wanted = embedding_options({**shared, **engine_options.merged(options)})
    engine_options.check(EngineOptions(**{name: value for name, value in wanted.items() if name in _NAMES}))
    return protocol.Load(id=request_id, path=path, **wanted), frozenset(wanted) - {"embeddings"}


def embedding_options(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a `Load` for embeddings."""
    return {"n_slots": _EMBEDDED_TOGETHER, **chosen, "embeddings": True}


def differences(loaded: protocol.Load, wanted: protocol.Load) -> tuple[str, ...]:
    """Fields in which a load that was made differs from the one that would be made now; scales of adapters do not
    count, they change without a load."""
    if loaded.path != wanted.path:
        return ()
    found = [
        name
        for name in loaded.__struct_fields__
        if name not in _NOT_COMPARED and getattr(loaded, name) != getattr(wanted, name)
    ]
    if {adapter.path for adapter in loaded.adapters} != {adapter.path for adapter in wanted.adapters}:
        found.append("adapters")
    return tuple(found)
