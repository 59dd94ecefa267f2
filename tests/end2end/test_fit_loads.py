"""Loads planned by the engine: with the real worker on the starter model, with a scripted one where memory is short."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import events
from engine.errors import InvalidRequest, NotEnoughMemory
from engine.fit import before_load
from engine.sampling import SamplingParams
from engine.worker import protocol


def test_a_load_is_planned_compared_and_kept(watched: Callable[..., Any]) -> None:
    w = watched()
    sampling = SamplingParams(temperature=0.0, max_tokens=24)
    w.engine.change_settings(sampling={f: getattr(sampling, f) for f in sampling.__struct_fields__}).result(5)
    info = w.load()
    assert info.fit is not None and info.fit.verdict == "cpu" and w.engine.model_state.fit == info.fit
    assert info.n_ctx == 8192 and info.warnings == ()
    host = info.fit.devices[-1]
    assert host.name == "Host"
    assert host.measured_kv_bytes == pytest.approx(host.kv_bytes, rel=0.001)
    assert host.measured_weights_bytes == pytest.approx(host.weights_bytes, rel=0.02)
    assert host.compute_bytes * 0.85 <= (host.measured_compute_bytes or 0) <= host.compute_bytes * 1.05
    assert info.fit.error == pytest.approx(0, abs=0.05)
    w.answer("Why is the sky blue?")
    w.engine.model._thread.submit(lambda: None).result(5)
    kept = json.loads((w.engine.paths.data / "fit.json").read_text())
    assert kept["memory"][0]["device"] == "Host"
    [one] = kept["speeds"]
    assert one["place"] == "Host" and one["quantization"] == "Q4_1" and one["measured_tps"] > 0


def test_choices_of_the_user_reach_the_worker(watched: Callable[..., Any]) -> None:
    w = watched()
    info = w.load(n_ctx=1024, kv_type_k="q8_0", kv_type_v="q8_0", n_ubatch=128)
    assert (info.n_ctx, info.n_ubatch) == (1024, 128)
    host = info.fit.devices[-1]
    assert host.kv_bytes == 30 * 1024 * (192 // 32 * 34) * 2
    assert host.measured_kv_bytes == pytest.approx(host.kv_bytes, rel=0.001), "the log has two places"


_SERVER = """
import ctypes, sys
from engine.worker import backends, devices
backends.load(add_ons=False)
rpc, api = devices._rpc_library(), devices._api()
start = rpc.ggml_backend_rpc_start_server
start.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p)]
start(sys.argv[1].encode(), None, 1, 1, (ctypes.c_void_p * 1)(api.dev_get(0)))
"""


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two of llama.cpp's RPC servers on this machine's CPU: to the engine they are two GPUs."""
    endpoints, running = [], []
    for _ in range(2):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            endpoints.append(f"127.0.0.1:{probe.getsockname()[1]}")
        running.append(
            subprocess.Popen(
                [sys.executable, "-c", _SERVER, endpoints[-1]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        )
    try:
        deadline = time.monotonic() + 60
        for endpoint in endpoints:
            host, port = endpoint.split(":")
            while True:
                try:
                    socket.create_connection((host, int(port)), 1).close()
                    break
                except OSError:
                    assert time.monotonic() < deadline
                    time.sleep(0.1)
        monkeypatch.setenv("INGLENOOK_RPC_SERVERS", ",".join(endpoints))
        yield
    finally:
        for server in running:
            server.kill()
            server.wait()


@pytest.mark.parametrize(
    "options",
    [{}, {"devices": ("RPC0",)}, {"n_gpu_layers": 12, "tensor_split": (3.0, 1.0)}],
    ids=["two", "one", "split"],
)
def test_a_load_on_devices_takes_what_was_planned(
    watched: Callable[..., Any], servers: None, options: dict[str, Any]
) -> None:
    w = watched()
    info = w.load(**options)
    made = info.fit
    assert made is not None and made.verdict == ("split" if "n_gpu_layers" in options else "gpu")
    assert info.n_gpu_layers == options.get("n_gpu_layers", 31)
    *found, _ = made.devices
    assert [device.name for device in found] == (["RPC0"] if "devices" in options else ["RPC0", "RPC1"])
    for device in found:
        assert device.measured_weights_bytes == pytest.approx(device.weights_bytes, rel=0.001)
        assert device.measured_kv_bytes == pytest.approx(device.kv_bytes, rel=0.001)
        assert device.free_after_bytes is not None
    assert made.error == pytest.approx(0, abs=0.05), made


def test_a_device_that_is_not_there(watched: Callable[..., Any]) -> None:
    w = watched()
    with pytest.raises(InvalidRequest):
        w.load(devices=("CUDA7",))


def scripted(tmp_path: Path, *loads: dict[str, Any]) -> list[str]:
    """A worker whose first process behaves as the first script says, and so on; the last one again and again."""
    for number, load in enumerate(loads):
        (tmp_path / f"script-{number}.json").write_text(json.dumps({"load": load}))
    starter = tmp_path / "take_turns.py"
    starter.write_text(
        f"""
import sys
from pathlib import Path
folder = Path({str(tmp_path)!r})
turn = folder / "turn"
number = int(turn.read_text()) if turn.exists() else 0
turn.write_text(str(number + 1))
from engine.worker.fake import main
sys.exit(main(["--script", str(folder / f"script-{{min(number, {len(loads) - 1})}}.json")]))
"""
    )
    return [sys.executable, str(starter)]


FULL = {"error": {"code": "not_enough_memory", "message": "There is not enough memory for the model"}}


def test_a_load_without_memory_steps_down_once_and_says_so(watched: Callable[..., Any], tmp_path: Path) -> None:
    w = watched(worker_command=scripted(tmp_path, FULL, {}))
    info = w.load()
    assert info.fit is not None and info.fit.stepped_down
    assert any("too little memory" in text and "q8_0" in text for text in info.warnings)
    notice = w.wait(events.Notice)
    assert "trying with less" in notice.text and "q8_0" in notice.hint
    statuses = [e.status for e in w.events if isinstance(e, events.ModelState)]
    assert "failed" not in statuses and statuses[-1] == "ready"


def test_the_second_failure_offers_the_rest(watched: Callable[..., Any], tmp_path: Path) -> None:
    w = watched(worker_command=scripted(tmp_path, FULL))
    with pytest.raises(NotEnoughMemory) as caught:
        w.load()
    assert "context" in caught.value.hint and caught.value.details["offers"]
    assert int((tmp_path / "turn").read_text()) == 2, "tried twice and no more"
    assert w.engine.model_state.status == "failed"


def test_choices_are_not_stepped_over(watched: Callable[..., Any], tmp_path: Path) -> None:
    w = watched(worker_command=scripted(tmp_path, FULL))
    with pytest.raises(NotEnoughMemory) as caught:
        w.load(n_ctx=4096, n_gpu_layers=0, kv_type_k="f16", kv_type_v="f16", n_ubatch=512)
    assert int((tmp_path / "turn").read_text()) == 1
    assert "context of 2048" in caught.value.hint


def test_a_planner_that_fails_blocks_nothing(watched: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **options: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(before_load, "plan", broken)
    w = watched()
    info = w.load()
    assert info.fit is None and info.n_ctx == 8192


def test_the_wire_names_no_device_where_there_is_none() -> None:
    assert protocol.Load(id="1", path="x").devices == () and protocol.NO_DEVICE == "none"
