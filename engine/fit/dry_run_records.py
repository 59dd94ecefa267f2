"""What goes over the pipe to a dry run and comes back: one JSON object a line."""

from __future__ import annotations

from typing import Literal

import msgspec


class DryDevice(msgspec.Struct, frozen=True):
    """A device to plan for; it need not exist on this computer."""

    name: str
    kind: str
    backend: str
    free_bytes: int
    total_bytes: int


class DryRun(msgspec.Struct, frozen=True, kw_only=True):
    """A question: how would llama.cpp lay this file out? Fields as in `engine.fit.needs.LoadOptions`."""

    id: int
    path: str
    n_ctx: int
    n_gpu_layers: int
    kv_type_k: str
    kv_type_v: str
    flash_attention: Literal["auto", "on", "off"]
    n_ubatch: int
    n_batch: int
    n_slots: int
    kv_unified: bool
    swa_full: bool
    n_cpu_moe: int
    tensor_split: tuple[float, ...]
    offload_kqv: bool
    op_offload: bool
    n_outputs: int
    devices: tuple[DryDevice, ...]


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """The answer.

    Attributes:
        error: what llama.cpp refused, in words; empty: it did not.
        compute: device name or "Host" -> bytes.
        kv_bytes, state_bytes: on all devices together.
        output_bytes: logits on the host.
        layers: name of the device of each layer and of the output layer ("CPU" is the host).
        weights_bytes: all tensors that were loaded, each once.
        flash: whether attention is computed in the memory-saving way.
        pretended: the devices were stood in for.
    """

    id: int
    error: str = ""
    log: tuple[str, ...] = ()
    compute: dict[str, int] = {}
    kv_bytes: int = 0
    state_bytes: int = 0
    output_bytes: int = 0
    layers: tuple[str, ...] = ()
    weights_bytes: int = 0
    n_ctx: int = 0
    flash: bool = True
    pretended: bool = False


class DryHello(msgspec.Struct, frozen=True, kw_only=True):
    """First line of a dry run. `error`: llama.cpp cannot be loaded here."""

    llama_cpp: str = ""
    error: str = ""
