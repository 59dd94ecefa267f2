"""`inglenook fit` as a user and as a program runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from fit_help import phantom

from engine.fit.needs import DeviceSpec, LoadOptions, needs
from engine.models.gguf import read_header

ROOT = Path(__file__).resolve().parents[2]


def fit(*words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "engine", "fit", *words]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=60, check=False, env=env)


def plan(*words: str) -> dict[str, Any]:
    done = fit(*words, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fit") / "llama.gguf"
    phantom().build("llama-3.1-8b", str(path))
    return path


def test_the_contract_of_the_json(llama: Path) -> None:
    found = plan(str(llama), "--device", "CUDA0:8000:8192", "--ram", "16000:32000")
    assert {"verdict", "source", "plan", "devices", "host", "speed", "reasons"} <= set(found)
    assert found["verdict"] == "gpu" and found["source"] in ("formula", "probe")
    assert {"gpu_layers", "context", "kv_type", "n_cpu_moe", "tensor_split"} <= set(found["plan"])
    assert found["plan"]["gpu_layers"] == 33
    [device] = found["devices"]
    sizes = ("weights_bytes", "kv_bytes", "compute_bytes", "overhead_bytes", "free_bytes")
    assert device["name"] == "CUDA0" and all(isinstance(device[size], int) and device[size] >= 0 for size in sizes)
    assert device["free_bytes"] == 8000 * 2**20 and found["host"]["free_bytes"] == 16000 * 2**20
    assert 0 < found["speed"]["decode_tps_low"] < found["speed"]["decode_tps_high"]
    assert all(isinstance(text, str) for text in found["reasons"])


def test_options_are_kept_and_counted_as_llama_cpp_does(llama: Path) -> None:
    words = ["--context", "4096", "--gpu-layers", "10", "--kv-type", "q8_0", "--flash-attn", "on", "--ubatch", "256"]
    words += [
        "--parallel",
        "2",
        "--no-kv-offload",
        "--device",
        "A:20000",
        "--device",
        "B:10000",
        "--tensor-split",
        "3,1",
    ]
    found = plan(str(llama), *words)
    made = found["plan"]
    assert (made["context"], made["gpu_layers"], made["kv_type"]) == (4096, 10, "q8_0")
    assert made["tensor_split"] == [3, 1] and not made["kv_offload"] and made["ubatch"] == 256
    devices = [DeviceSpec(name, "gpu", mib << 20, mib << 20) for name, mib in (("A", 20000), ("B", 10000))]
    options = LoadOptions(
        n_ctx=4096, n_gpu_layers=10, kv_type_k="q8_0", kv_type_v="q8_0", flash_attention="on", n_ubatch=256,
        n_slots=2, tensor_split=(3, 1), offload_kqv=False,
    )  # fmt: skip
    expected = needs(read_header(llama), options, devices)
    for device, need in zip(found["devices"], expected.devices, strict=True):
        assert (device["name"], device["weights_bytes"]) == (need.name, need.weights_bytes)
        assert (device["kv_bytes"], device["compute_bytes"]) == (need.kv_bytes, need.compute_bytes)
    assert found["host"]["kv_bytes"] == expected.host.kv_bytes > 0


def test_what_is_missing_is_said(llama: Path) -> None:
    found = plan(str(llama), "--gpu-layers", "33", "--context", "131072", "--device", "CUDA0:8000", "--kv-type", "f16")
    assert found["verdict"] == "too_large" and found["missing_bytes"] > 2**30
    assert found["plan"]["gpu_layers"] == 33 and found["plan"]["context"] == 131072


def test_a_header_alone_is_enough(llama: Path, tmp_path: Path) -> None:
    header = read_header(llama)
    short = tmp_path / "short.gguf"
    with llama.open("rb") as whole:
        short.write_bytes(whole.read(header.data_offset))
    words = ("--device", "CUDA0:8000:8192", "--ram", "16000")
    whole_plan, short_plan = plan(str(llama), *words), plan(str(short), *words)
    assert any("not complete" in text for text in short_plan.pop("warnings"))
    whole_plan.pop("warnings")
    assert short_plan == whole_plan


def test_for_people(llama: Path) -> None:
    done = fit(str(llama), "--device", "CUDA0:4000", "--ram", "16000")
    assert done.returncode == 0 and done.stderr == ""
    for word in ("Q4_K_M", "slight loss", "partly on the CPU", "GPU layers", "KV cache", "CUDA0", "Host"):
        assert word in done.stdout, done.stdout


@pytest.mark.serial
def test_a_local_file_takes_a_moment(starter_model: Path) -> None:
    times = []
    for _ in range(3):
        began = time.monotonic()
        found = plan(str(starter_model))
        times.append(time.monotonic() - began)
    assert found["verdict"] in ("cpu", "gpu") and found["plan"]["context"] == 8192
    # the aim is a second on a quiet machine; this finds multiples of it, not slow neighbours
    assert min(times) < 3.0, times


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("someone/some-model-GGUF",), 16, "Offline mode"),
        (("no-such-file.gguf",), 3, "no model"),
        (("starter", "--device", "x"), 2, "NAME:FREE_MIB"),
        (("starter", "--device", "x:1:2:3:y"), 2, "NAME:FREE_MIB"),
        (("starter", "--device", "x:5", "--device", "x:6"), 2, "same name"),
        (("starter", "--ram", "-5"), 2, "MiB"),
        (("starter", "--kv-type", "q9"), 2, "kv-type"),
        (("starter", "--context", "0"), 2, "context"),
        (("starter", "--tensor-split", "a,b"), 2, "tensor-split"),
        (("starter", "--flash-attn", "maybe"), 2, "flash-attn"),
    ],
)
def test_mistakes_are_named(words: tuple[str, ...], code: int, said: str) -> None:
    done = fit(*words, "--json")
    error = json.loads(done.stdout)["error"]
    assert done.returncode == code and said in error["message"], error
    assert "Traceback" not in done.stderr


def test_no_model_at_all(tmp_path: Path) -> None:
    page = tmp_path / "page.gguf"
    page.write_text("<!DOCTYPE html><html></html>")
    done = fit(str(page))
    assert done.returncode == 4 and "page.gguf" in done.stderr
