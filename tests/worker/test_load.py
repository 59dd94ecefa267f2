"""Loading: any path, honest errors, honest figures, devices."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from raw_worker import RawWorker
from tiny_models import lora

Make = Callable[..., dict[str, Any]]
TAIL = "[reply]"


@pytest.fixture(scope="module")
def model(scripted_model: Make) -> Path:
    return Path(scripted_model(["Hello", " world"], tail=TAIL)["path"])


@pytest.fixture(scope="module")
def worker() -> Iterator[RawWorker]:
    with RawWorker() as one:
        yield one


@pytest.mark.parametrize(
    "name",
    [
        "模型 q4.gguf",
        "100% #1 & 'x'.gguf",
        "two\nlines.gguf",
        "-c.gguf",
        "ü é Абв.gguf",
        "a" * 240 + ".gguf",
        "no suffix",
    ],
)
def test_any_path(worker: RawWorker, model: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "山 月 Абв ü"
    folder.mkdir(exist_ok=True)
    path = folder / name
    shutil.copy(model, path)
    info = worker.load(path, n_ctx=256)
    assert info["path"] == str(path)
    assert worker.ask(prompt=f"Go{TAIL}", temperature=0).text == "Hello world"


def test_a_home_with_other_letters(model: Path, tmp_path: Path) -> None:
    home = tmp_path / "山 月 Абв ü"
    home.mkdir()
    with RawWorker(env={"HOME": str(home), "TMPDIR": str(home)}) as worker:
        worker.load(model, n_ctx=256)
        assert worker.ask(prompt=f"Go{TAIL}", temperature=0).text == "Hello world"


def refused(worker: RawWorker, path: str | Path, **options: Any) -> dict[str, Any]:
    event = worker.wait("loaded", "error", id=worker.send("load", path=str(path), **options))
    assert event["type"] == "error", event
    error: dict[str, Any] = event["error"]
    return error


def test_what_is_no_model(worker: RawWorker, model: Path, tmp_path: Path) -> None:
    assert refused(worker, tmp_path / "missing.gguf")["code"] == "model_not_found"
    page = tmp_path / "page.gguf"
    page.write_text("<!doctype html><html>")
    assert refused(worker, page)["code"] == "not_a_model"
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(model.read_bytes()[:-5000])
    assert refused(worker, cut)["code"] == "model_damaged"
    assert refused(worker, "")["code"] == "invalid_request"
    assert refused(worker, "a\0b")["code"] == "invalid_request"


def test_an_unknown_architecture_is_named_with_the_native_lines(worker: RawWorker, model: Path, tmp_path: Path) -> None:
    odd = tmp_path / "odd.gguf"
    data = model.read_bytes()
    assert data.count(b"llama.") > 5
    odd.write_bytes(data.replace(b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0lxxma", 1))
    error = refused(worker, odd)
    assert error["code"] == "model_unsupported" and any("lxxma" in line for line in error["details"]["log"])
    assert [e for e in worker.events if e["type"] == "log" and e["level"] == "error"]


@pytest.mark.parametrize(
    "options",
    [
        {"n_ctx": 0},
        {"n_ctx": -5},
        {"n_ctx": 2**40},
        {"n_slots": 0},
        {"n_slots": 1000},
        {"n_batch": 0},
        {"n_threads": 0},
        {"kv_type_k": "q9_9"},
        {"n_gpu_layers": -2},
    ],
)
def test_impossible_options(worker: RawWorker, model: Path, options: dict[str, Any]) -> None:
    assert refused(worker, model, **options)["code"] == "invalid_request"


def test_a_cache_that_does_not_fit_is_said_to_be_too_large(worker: RawWorker, starter_model: Path) -> None:
    error = refused(worker, starter_model, n_ctx=2**24)
    assert error["code"] == "not_enough_memory" and error["details"]["log"] and error["hint"]
    worker.load(starter_model, n_ctx=256)


def test_progress_goes_up_to_one(worker: RawWorker, starter_model: Path) -> None:
    request = worker.send("load", path=str(starter_model), n_ctx=256)
    worker.wait("loaded", id=request)
    steps = [e["fraction"] for e in worker.events if e["type"] == "load_progress" and e["request_id"] == request]
    assert steps == sorted(steps) and steps[-1] == 1.0 and steps.count(1.0) == 1 and len(steps) < 200


def test_the_context_is_the_real_one(worker: RawWorker, model: Path) -> None:
    assert worker.load(model)["n_ctx"] == 4096  # trained context of the scripted model
    assert worker.load(model, n_ctx=300)["n_ctx"] == 512  # llama.cpp rounds up
    info = worker.load(model, n_ctx=8192)
    assert info["n_ctx"] == 8192 and "4096" in info["warnings"][0]
    assert worker.load(model, n_ctx=256, kv_type_k="q8_0", kv_type_v="q8_0")["kv_bytes"] > 0
    assert worker.ask(prompt=f"Go{TAIL}", temperature=0).text == "Hello world"


def test_layers_for_a_gpu_that_is_not_there(worker: RawWorker, model: Path) -> None:
    info = worker.load(model, n_ctx=256, n_gpu_layers=10)
    assert info["n_gpu_layers"] == 0 and any("GPU" in w for w in info["warnings"])
    assert not worker.load(model, n_ctx=256).get("warnings")


# ------------------------------------------------------------------ a GPU device on any machine

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
def rpc_server(tmp_path: Path) -> Iterator[str]:
    """llama.cpp's own RPC server on this machine's CPU: to a client it is a GPU."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{probe.getsockname()[1]}"
    with (tmp_path / "server.log").open("wb") as log:
        server = subprocess.Popen([sys.executable, "-c", _SERVER, endpoint], stdout=log, stderr=log)
    try:
        host, port = endpoint.split(":")
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection((host, int(port)), 1).close()
                break
            except OSError:
                assert server.poll() is None and time.monotonic() < deadline, (tmp_path / "server.log").read_text()
                time.sleep(0.05)
        yield endpoint
    finally:
        server.kill()
        server.wait()


def test_offload_to_an_rpc_device(rpc_server: str, starter_model: Path) -> None:
    with RawWorker(env={"INGLENOOK_RPC_SERVERS": rpc_server}) as worker:
        hello = worker.wait("hello")
        assert [d["kind"] for d in hello["devices"]] in (["gpu", "cpu"], ["cpu", "gpu"])
        gpu = next(d for d in hello["devices"] if d["kind"] == "gpu")
        assert gpu["backend"].startswith("RPC") and gpu["memory_total_bytes"] > 0
        info = worker.load(starter_model, n_ctx=512, n_gpu_layers=10)
        assert info["n_gpu_layers"] == 10
        on_gpu = {k: v for k, v in info["buffers"].items() if k.startswith("RPC")}
        assert {k.rsplit(" ", 1)[1] for k in on_gpu} >= {"model", "KV", "compute"}
        assert any(b.startswith("RPC") for b in info["backends"]) and "CPU" in info["backends"]
        answer = worker.ask("Name three colours.", temperature=0, max_tokens=8)
        assert worker.load(starter_model, n_ctx=512, n_gpu_layers=0)["n_gpu_layers"] == 0
        assert worker.ask("Name three colours.", temperature=0, max_tokens=8).ids[:4] == answer.ids[:4]
        everything = worker.load(starter_model, n_ctx=512)
        assert everything["n_gpu_layers"] == everything["n_layer"] + 1  # the output layer counts, as in llama.cpp


def test_adapters_and_embeddings_on_an_rpc_device(rpc_server: str, starter_model: Path, tmp_path: Path) -> None:
    adapter = lora(tmp_path / "a.gguf", starter_model, size=0.5)
    with RawWorker(env={"INGLENOOK_RPC_SERVERS": rpc_server}) as worker:
        used = [{"path": str(adapter), "scale": 1.0}]
        info = worker.load(starter_model, n_ctx=512, n_gpu_layers=10, adapters=used)
        on_gpu = sum(size for key, size in info["buffers"].items() if key.startswith("RPC") and key.endswith(" LoRA"))
        assert 0.2 < on_gpu / adapter.stat().st_size < 0.4, "as its layers: 9 of 30"
        assert worker.ask("Name three colours.", temperature=0, max_tokens=4).ids
        worker.load(starter_model, n_ctx=512, n_gpu_layers=10, embeddings=True)
        event = worker.wait("embedded", "error", id=worker.send("embed", texts=["Name three colours."]))
        assert event["type"] == "embedded" and event["n_embd"] == 576


def test_an_rpc_server_that_is_not_there_is_reported(model: Path) -> None:
    with RawWorker(env={"INGLENOOK_RPC_SERVERS": "127.0.0.1:1"}) as worker:
        info = worker.load(model, n_ctx=256)
        assert any("127.0.0.1:1" in w for w in info["warnings"])
        assert worker.ask(prompt=f"Go{TAIL}", temperature=0).text == "Hello world"


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize(
    ("crash", "code"),
    [("load:abort", -6), ("load:segv:0.5", -11), ("prefill:abort", -6), ("stream:kill:2", -9), ("stream:exit:1", 3)],
)
def test_crash_hooks_kill_the_process_where_they_say(model: Path, crash: str, code: int) -> None:
    with RawWorker(hooks={"CRASH": crash}) as worker:
        worker.send("load", path=str(model), n_ctx=256)
        worker.generate(prompt=f"Go{TAIL}", sampling={"temperature": 0})
        with pytest.raises(EOFError):
            while True:
                worker.next_event()
        assert worker.process.wait(10) == code
        kinds = [e["type"] for e in worker.events]
        assert ("loaded" in kinds) == (not crash.startswith("load"))
        # the last ones may not have been written yet: see `Channel`
        assert kinds.count("token") <= (2 if "kill" in crash else 1 if "exit" in crash else 0)


def test_without_the_switch_the_hooks_do_nothing(model: Path) -> None:
    with RawWorker(env={"INGLENOOK_TEST_CRASH": "stream:abort:1"}) as worker:
        worker.load(model, n_ctx=256)
        assert worker.ask(prompt=f"Go{TAIL}", temperature=0).text == "Hello world"
