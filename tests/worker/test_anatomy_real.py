"""The picture of a model against llama.cpp's own buffers: the starter on the processor and on two remote devices."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from raw_worker import RawWorker
from test_fit_real import ROUNDING, servers

from engine.anatomy import HOST, anatomy, loaded_layout, measured_weights
from engine.events import ModelInfo
from engine.models.gguf import check_file

ALIGNMENT = 32


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
