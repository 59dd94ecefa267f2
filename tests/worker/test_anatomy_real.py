"""The picture of a model against llama.cpp's own buffers: the starter on the processor and on two remote devices."""

from __future__ import annotations

from pathlib import Path

import memory_models
import msgspec
import pytest
from raw_worker import RawWorker
from test_fit_real import ROUNDING, servers

from engine.anatomy import HOST, anatomy, loaded_layout, measured_weights
from engine.events import ModelInfo
from engine.models.gguf import check_file

ALIGNMENT = 32


@pytest.mark.parametrize(("asked", "kept"), [(0, 0), (1, 1), (99, 3)])
def test_experts_in_main_memory_are_those_that_llama_cpp_put_there(asked: int, kept: int, tmp_path: Path) -> None:
    path = memory_models.build(tmp_path / "experts.gguf", "experts", n_layer=3)
    with servers(1) as endpoints:
        with RawWorker(env={"INGLENOOK_RPC_SERVERS": ",".join(endpoints)}) as worker:
            said = worker.load(path, n_ctx=256, n_gpu_layers=-1, n_slots=1, use_mmap=False, n_cpu_moe=asked)
    info = msgspec.convert(said, ModelInfo)
    assert info.n_cpu_moe == kept, "not what was asked for"
    layout = loaded_layout(info)
    assert layout is not None
    found = anatomy(check_file(path), layout, quantization=info.quantization)
    stay = [row for row in found.rows if any(p.kind == "experts" and p.place == HOST != row.place for p in row.pieces)]
    assert len(stay) == kept
    measured = measured_weights(info)
    for place in found.places:
        off = measured[place.name] - place.n_bytes
        assert -2 * ROUNDING <= off <= ALIGNMENT * 60 + 2 * ROUNDING, (place, info.buffers)


def test_a_model_without_experts_keeps_none(starter_model: Path) -> None:
    with RawWorker() as worker:
        assert worker.load(starter_model, n_ctx=256, n_slots=1, n_cpu_moe=5).get("n_cpu_moe", 0) == 0


@pytest.mark.parametrize(("count", "layers"), [(0, -1), (1, 10), (2, -1), (2, 10)])
def test_parts_add_up_to_the_buffers(count: int, layers: int, starter_model: Path) -> None:
    header = check_file(starter_model)
    with servers(count) as endpoints:
        with RawWorker(env={"INGLENOOK_RPC_SERVERS": ",".join(endpoints)}) as worker:
            said = worker.load(starter_model, n_ctx=512, n_gpu_layers=layers, n_slots=1, use_mmap=False)
    info = msgspec.convert(said, ModelInfo)
    layout = loaded_layout(info)
    assert layout is not None and len(layout.layers) == info.n_layer + 1
    on_devices = sum(name != HOST for name in layout.layers)
    assert on_devices == info.n_gpu_layers == (0 if not count else info.n_layer + 1 if layers < 0 else layers)
    found = anatomy(header, layout, quantization=info.quantization)
    measured = measured_weights(info)
    assert {place.name for place in found.places} == set(measured) and len(measured) == count + 1
    for place in found.places:
        off = measured[place.name] - place.n_bytes
        assert -2 * ROUNDING <= off <= ALIGNMENT * len(header.tensors) + 2 * ROUNDING, (place, info.buffers)
        print(f"{place.name}: {place.n_bytes:,} in the picture, {measured[place.name]:,} in llama.cpp's buffers")
    assert found.n_params == info.n_params
    assert sum(place.n_layers for place in found.places) == info.n_layer + 1
