"""The memory picture of two devices and the processor is that of llama.cpp's buffers, byte for byte as it logs them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_fit_real import servers

from desktop.views.monitor.places import places_of
from engine import events


def test_two_devices_and_the_processor(
    watched: Callable[..., Any], starter_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with servers(2) as endpoints:
        monkeypatch.setenv("INGLENOOK_RPC_SERVERS", ",".join(endpoints))
        w = watched()
        model = w.load(starter_model, n_ctx=2048, n_gpu_layers=20)
        end = w.engine.monitor.watch()
        sample = w.wait(events.Sampled)
        end()
        places = places_of(model, sample)
        w.engine.stop()
    assert [place.name for place in places][-1] == "RAM" and len(places) == 3
    remote = {key: n for key, n in model.buffers.items() if key.startswith("RPC")}
    for kind, words in (("weights", "model"), ("kv", "KV"), ("compute", "compute")):
        logged = sorted(n for key, n in remote.items() if key.endswith(f" {words}"))
        assert sorted(dict(place.measured)[kind] for place in places[:2]) == logged, kind
        assert len(logged) == 2 and logged[0] > 0
    for place in places[:2]:
        assert not place.live and "of the load" in place.note
    host = dict(places[-1].measured)
    cpu = {key: n for key, n in model.buffers.items() if not key.startswith("RPC")}
    assert host["kv"] == sum(n for key, n in cpu.items() if key.endswith(" KV")) > 0
    assert host["weights"] > 0 and places[-1].live
    total = sum(dict(place.measured)["kv"] for place in places)
    assert total == model.kv_bytes == pytest.approx(model.kv_k_bytes + model.kv_v_bytes, rel=1e-3)
