"""Options of a load through the engine: merged, planned, measured; adapters counted and changed without a reload."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_runner import answer, run
from tiny_models import lora

from engine.engine_options import Adapter, EngineOptions
from engine.errors import AdapterMismatch, InvalidRequest


def test_settings_reach_llama_cpp(watched: Callable[..., Any], starter_model: Path) -> None:
    w = watched()
    engine = w.engine
    engine.change_settings(
        engine=EngineOptions(n_ctx=1024, n_threads=1, kv_type_k="q8_0"),
        model_engine={str(starter_model): EngineOptions(n_ctx=512, kv_type_v="q8_0")},
    ).result(5)
    info = w.load(starter_model)
    assert (info.n_ctx, info.n_threads, info.kv_type_k, info.kv_type_v) == (512, 1, "q8_0", "q8_0")
    assert engine.needs_reload() == ()
    engine.change_settings(engine=EngineOptions(n_threads=1, kv_type_k="q8_0", use_mmap=False)).result(5)
    assert engine.needs_reload() == ("use_mmap",)
    assert w.load(starter_model).buffers and engine.needs_reload() == ()
    engine.change_settings(engine=EngineOptions(n_threads=1, flash_attention="off")).result(5)
    with pytest.raises(InvalidRequest, match="flash attention"):
        engine.load_model(starter_model)
    assert engine.model_state.status == "ready", "what is loaded stays"


def test_adapters_are_counted_and_rescaled(watched: Callable[..., Any], starter_model: Path, tmp_path: Path) -> None:
    w = watched()
    path = lora(tmp_path / "a.gguf", starter_model, rank=32, size=0.3)
    plain = w.load(starter_model, n_ctx=512, n_threads=1)
    loaded = w.load(starter_model, n_ctx=512, n_threads=1, adapters=(Adapter(str(path), 1.0),))
    [host] = [d for d in loaded.fit.devices if d.name == "Host"]
    [before] = [d for d in plain.fit.devices if d.name == "Host"]
    grown = host.measured_weights_bytes - before.measured_weights_bytes
    assert grown == pytest.approx(path.stat().st_size, rel=0.02)
    assert host.weights_bytes - before.weights_bytes == pytest.approx(grown, rel=0.02)
    pid = w.engine.worker_pid
    assert w.engine.set_adapters([Adapter(str(path), 0.25)]).result(20) == (Adapter(str(path), 0.25),)
    assert w.engine.model_state.model.adapters == (Adapter(str(path), 0.25),)
    assert w.engine.worker_pid == pid
    with pytest.raises(InvalidRequest):
        w.engine.set_adapters([Adapter("/elsewhere.gguf")]).result(20)
    again = w.engine.model.reload().result(60)
    assert again.adapters == (Adapter(str(path), 0.25),), "a reload keeps the scales"


def test_a_wrong_adapter_does_not_cost_the_loaded_model_its_place(
    watched: Callable[..., Any], starter_model: Path, tmp_path: Path
) -> None:
    w = watched()
    w.load(starter_model, n_ctx=256)
    pid = w.engine.worker_pid
    wrong = lora(tmp_path / "wrong.gguf", starter_model, widen=32)
    with pytest.raises(AdapterMismatch):
        w.load(starter_model, adapters=(Adapter(str(wrong)),))
    assert w.engine.model_state.status == "ready" and w.engine.worker_pid == pid


def test_an_adapter_on_the_command_line(home: Path, starter_model: Path, tmp_path: Path) -> None:
    strong = lora(tmp_path / "strong.gguf", starter_model, size=0.5)
    words = ("--prompt", "Name three colours.", "--temperature", "0", "--max-tokens", "12", "-c", "256")
    plain = answer(*words)["text"]
    assert answer(*words, "--lora", f"{strong}=0")["text"] == plain
    assert answer(*words, "--lora", str(strong))["text"] != plain
    wrong = lora(tmp_path / "wrong.gguf", starter_model, widen=32)
    done = run("chat", *words, "--lora", str(wrong))
    assert done.returncode == 21 and "does not belong" in done.stderr
