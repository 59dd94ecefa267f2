"""Predicted beside measured: the starter model really loaded, on the processor and on one and two remote devices."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from raw_worker import RawWorker

from engine.fit.needs import DeviceSpec, LoadOptions, Needs, needs
from engine.fit.probe import Prober
from engine.models.gguf import check_file

MIB = 1024 * 1024
#: the log's sizes have two places
ROUNDING = 0.01 * MIB
_SERVER = """
import ctypes, sys
from engine.worker import backends, devices
backends.load(add_ons=False)
rpc, api = devices._rpc_library(), devices._api()
start = rpc.ggml_backend_rpc_start_server
start.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p)]
start(sys.argv[1].encode(), None, 1, 1, (ctypes.c_void_p * 1)(api.dev_get(0)))
"""


@contextlib.contextmanager
def servers(count: int) -> Iterator[list[str]]:
    """llama.cpp's RPC servers on this machine's processor: to a client each is a GPU."""
    running, endpoints = [], []
    try:
        for _ in range(count):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            endpoints.append(f"127.0.0.1:{port}")
            running.append(
                subprocess.Popen(
                    [sys.executable, "-c", _SERVER, endpoints[-1]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
            )
            deadline = time.monotonic() + 30
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    assert running[-1].poll() is None and time.monotonic() < deadline
                    time.sleep(0.05)
        yield endpoints
    finally:
        for server in running:
            server.kill()
            server.wait()


def measured(buffers: dict[str, int], endpoint: str | None, kind: tuple[str, ...]) -> int:
    """Bytes in the buffers of a remote device, or of the host. The log names remote devices by their endpoint."""
    total = 0
    for key, size in buffers.items():
        holder, _, what = key.rpartition(" ")
        remote = "[" in holder
        if what in kind and (f"[{endpoint}]" in holder if endpoint else not remote):
            total += size
    return total


def compare(answer: Needs, buffers: dict[str, int], endpoints: list[str]) -> list[str]:
    """A line for each device, and the checks."""
    table, predicted, taken = [], 0, 0
    for need, endpoint in zip((*answer.devices, answer.host), (*endpoints, None), strict=True):
        weights, cache, compute, output = (
            measured(buffers, endpoint, kind) for kind in (("model",), ("KV", "RS"), ("compute",), ("output",))
        )
        assert abs(need.weights_bytes - weights) <= 3 * ROUNDING, (need, buffers)
        assert abs(need.kv_bytes - cache) <= 3 * ROUNDING, (need, buffers)
        ours, theirs = need.total_bytes, weights + cache + compute + output
        assert theirs <= ours + 4 * ROUNDING, (need, buffers)
        if answer.source == "probe":
            assert ours <= theirs * 1.05, (need, buffers)
        predicted, taken = predicted + ours, taken + theirs
        table.append(f"{answer.source} {need.name}: {ours / MIB:.1f} predicted, {theirs / MIB:.1f} MiB measured")
    assert predicted <= taken * 1.05
    return table


@pytest.mark.parametrize(("count", "layers"), [(0, -1), (1, -1), (1, 10), (2, -1), (2, 10)])
def test_predicted_and_measured(count: int, layers: int, starter_model: Path) -> None:
    known, prober = check_file(starter_model), Prober()
    with contextlib.closing(prober), servers(count) as endpoints:
        with RawWorker(env={"INGLENOOK_RPC_SERVERS": ",".join(endpoints)}) as worker:
            found: list[dict[str, Any]] = worker.wait("hello")["devices"]
            info = worker.load(starter_model, n_ctx=4096, n_gpu_layers=layers, n_slots=4, use_mmap=False)
        devices = [
            DeviceSpec(d["name"], d["kind"], d["memory_free_bytes"], d["memory_total_bytes"], d["backend"])
            for d in found
            if d["kind"] != "cpu"
        ]
        assert len(devices) == count
        options = LoadOptions(n_ctx=4096, n_gpu_layers=layers, n_slots=4)
        for answer in (needs(known, options, devices), prober.probe(known, options, devices)):
            assert answer.n_ctx == info["n_ctx"]
            print("\n".join(compare(answer, info["buffers"], endpoints)))
        assert answer.source == "probe"
