"""Headers made in memory, and machines that nobody has, for tests of the planner."""

from __future__ import annotations

import random
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

from fit_help import phantom

from engine.fit.needs import needs
from engine.fit.placement import DeviceSpec
from engine.fit.plan_records import FitPlan, Machine
from engine.models import quant
from engine.models.gguf import read_header
from engine.models.gguf_header import GgufHeader, TensorInfo

GIB = 2**30
F32, Q8_0, Q4_K, Q6_K = 0, 8, 12, 14


def make_header(
    *,
    n_layer: int = 32,
    n_embd: int = 4096,
    n_ff: int = 14336,
    n_head: int = 32,
    n_head_kv: int = 8,
    n_vocab: int = 128256,
    n_ctx_train: int = 131072,
    kind: int = Q4_K,
    n_expert: int = 0,
    expert_used: int = 0,
    n_ff_exp: int = 0,
    architecture: str = "llama",
    extra: dict[str, Any] | None = None,
) -> GgufHeader:
    """A model of the usual shape; the defaults are those of an 8B."""
    keys = {
        "block_count": n_layer,
        "embedding_length": n_embd,
        "feed_forward_length": n_ff,
        "attention.head_count": n_head,
        "attention.head_count_kv": n_head_kv,
        "context_length": n_ctx_train,
        "vocab_size": n_vocab,
        "expert_count": n_expert,
        "expert_used_count": expert_used,
        "expert_feed_forward_length": n_ff_exp,
    }
    metadata: dict[str, Any] = {f"{architecture}.{key}": value for key, value in keys.items() if value}
    metadata = {"general.architecture": architecture, "general.name": "Made up", **metadata, **(extra or {})}
    tensors: list[TensorInfo] = []
    offset = 0

    def add(name: str, *dims: int, type_id: int = kind) -> None:
        nonlocal offset
        n_bytes = quant.tensor_bytes(type_id, prod(dims))
        tensors.append(TensorInfo(f"{name}.weight", dims, type_id, offset, n_bytes))
        offset += -(-n_bytes // 32) * 32

    add("token_embd", n_embd, n_vocab)
    add("output", n_embd, n_vocab, type_id=Q6_K)
    add("output_norm", n_embd, type_id=F32)
    kv_width = n_head_kv * (n_embd // n_head)
    for i in range(n_layer):
        add(f"blk.{i}.attn_norm", n_embd, type_id=F32)
        add(f"blk.{i}.attn_q", n_embd, n_embd)
        add(f"blk.{i}.attn_k", n_embd, kv_width)
        add(f"blk.{i}.attn_v", n_embd, kv_width)
        add(f"blk.{i}.attn_output", n_embd, n_embd)
        if n_expert:
            add(f"blk.{i}.ffn_gate_inp", n_embd, n_expert, type_id=F32)
            add(f"blk.{i}.ffn_gate_exps", n_embd, n_ff_exp, n_expert)
            add(f"blk.{i}.ffn_up_exps", n_embd, n_ff_exp, n_expert)
            add(f"blk.{i}.ffn_down_exps", n_ff_exp, n_embd, n_expert)
        else:
            add(f"blk.{i}.ffn_gate", n_embd, n_ff)
            add(f"blk.{i}.ffn_up", n_embd, n_ff)
            add(f"blk.{i}.ffn_down", n_ff, n_embd)
    types = {key: "string" if isinstance(value, str) else "uint32" for key, value in metadata.items()}
    return GgufHeader(Path("made-up.gguf"), 3, metadata, types, tensors, 1 << 20, 32, (1 << 20) + offset)


def gpu(free_gib: float, name: str = "CUDA0", total_gib: float | None = None, **options: Any) -> DeviceSpec:
    free = int(free_gib * GIB)
    return DeviceSpec(name, options.pop("kind", "gpu"), free, int((total_gib or free_gib) * GIB), **options)


def computer(*devices: DeviceSpec, ram_gib: float = 64, free_gib: float | None = None, cores: int = 8) -> Machine:
    return Machine(devices, int((free_gib if free_gib is not None else ram_gib) * GIB), int(ram_gib * GIB), cores)


def phantom_headers(folder: Path) -> dict[str, GgufHeader]:
    """Every model of tests/phantom: its real shape with a hole for its weights."""
    found = {}
    for name in phantom().MODELS:
        path = folder / f"{name}.gguf"
        phantom().build(name, str(path))
        found[name] = read_header(path, max_array=4096)
    return found


def random_machines(count: int, seed: int = 7) -> Iterator[Machine]:
    """1 to 3 devices of 2 to 48 GiB, some of it in use."""
    chance = random.Random(seed)
    sizes = (2, 3, 4, 6, 8, 10, 11, 12, 16, 20, 24, 32, 40, 48)
    for _ in range(count):
        devices = []
        for index in range(chance.choice((1, 1, 2, 3))):
            total = chance.choice(sizes) * GIB
            free = int(total * chance.uniform(0.6, 1.0))
            devices.append(DeviceSpec(f"CUDA{index}", "gpu", free, total, "CUDA"))
        yield Machine(tuple(devices), 128 * GIB, 128 * GIB, 16)


def exceeds(plan: FitPlan, header: GgufHeader, machine: Machine) -> int:
    """Bytes by which llama.cpp's own categories go beyond a device, counted anew; 0 or below: nowhere."""
    used = [device for device in machine.devices if device.name in plan.use_devices]
    again = needs(header, plan.options, used)
    return max(
        (need.total_bytes - device.free_bytes for need, device in zip(again.devices, used, strict=True)), default=0
    )
