"""Models of real shape without weights, what llama.cpp itself says they take, and options as its rows have them."""

from __future__ import annotations

import importlib.util
import json
import lzma
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from engine.fit.needs import DeviceNeed, DeviceSpec, LoadOptions, Needs
from engine.models.gguf import read_header
from engine.models.gguf_header import GgufHeader

FOLDER = Path(__file__).resolve().parent.parent / "phantom"
GIB, MIB = 1 << 30, 1 << 20
Row = dict[str, Any]


@lru_cache(maxsize=1)
def phantom() -> Any:
    """The module that makes such models."""
    spec = importlib.util.spec_from_file_location("phantom", FOLDER / "phantom.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@lru_cache(maxsize=1)
def rows() -> tuple[Row, ...]:
    """llama.cpp's own figures in bytes, without the one load that it refuses."""
    with lzma.open(FOLDER / "truth.jsonl.xz", "rt", encoding="utf-8") as file:
        return tuple(row for row in map(json.loads, file) if "error" not in row)


def build(name: str, path: Path, quant: str | None = None) -> Path:
    phantom().build(name, path, quant)
    return path


@lru_cache(maxsize=64)
def header(name: str, quant: str | None = None) -> GgufHeader:
    """Header of a phantom; the file itself is gone again."""
    with tempfile.TemporaryDirectory() as folder:
        return read_header(build(name, Path(folder) / f"{name}.gguf", quant), max_array=4096)


def fresh(known: GgufHeader) -> GgufHeader:
    """The same header as another object: nothing that was remembered of it counts."""
    return msgspec.structs.replace(known)


def options(row: Row) -> LoadOptions:
    a = row["args"]
    return LoadOptions(
        n_ctx=a["ctx"],
        n_gpu_layers=a["ngl"],
        kv_type_k=a["ctk"],
        kv_type_v=a["ctv"],
        flash_attention=a["fa"],
        n_ubatch=a["ub"],
        n_slots=a["np"],
        kv_unified=a["kv_unified"],
        swa_full=a["swa_full"],
        n_cpu_moe=a["n_cpu_moe"],
        tensor_split=tuple(map(float, a["tensor_split"].split(","))) if a["tensor_split"] else (),
        offload_kqv=not a["no_kv_offload"],
        op_offload=a["op_offload"],
        n_outputs=a["n_outputs"],
    )


def devices(row: Row) -> list[DeviceSpec]:
    backend = "RPC" if row["backend"] == "rpc" else "CUDA"
    return [DeviceSpec(d["name"], "gpu", 80 * GIB, 80 * GIB, backend) for d in row["devices"][:-1]]


def pairs(row: Row, needs: Needs) -> list[tuple[str, DeviceNeed, Row]]:
    """(device, what we say, what llama.cpp says); its host has the repacked weights that its own table leaves out."""
    host = dict(row["devices"][-1])
    host["model"] += sum(part["model"] for part in row["uncounted"])
    ours = [*needs.devices, needs.host]
    return [(said["name"], our, said) for our, said in zip(ours, [*row["devices"][:-1], host], strict=True)]


def name(row: Row) -> str:
    return f"{row['model']} {row['backend']} {row['cli']} n_outputs {row['args']['n_outputs']}"


def own_setting(row: Row) -> bool:
    """Taken with the application's own number of outputs, on one NVIDIA-like device."""
    return row["backend"] == "fake-cuda" and row["args"]["n_outputs"] > 0 and row["args"]["n_devices"] == 1
