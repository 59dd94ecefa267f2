"""Looks at this computer: equal to what the system says, only while somebody watches; every state of the driver."""

from __future__ import annotations

import math
import os
import threading
import time
import types
from collections.abc import Callable
from typing import Any

import psutil
import pytest
from test_hardware import FakeNvml, NvmlError

from engine import events, gpu_watch
from engine.gpu_watch import GpuWatch
from engine.metrics import Monitor, Sampler
from engine.worker import protocol

GIB = 2**30


def settled(watch: GpuWatch, pid: int | None = None) -> events.GpuState:
    """What a look finds that is begun now."""
    for _ in range(2):  # the one that may be on its way, then the one that counts
        if (thread := watch._thread) is not None:
            thread.join(5)
        watch.renew()
        watch.look(pid)
    if (thread := watch._thread) is not None:
        thread.join(5)
    watch._not_before_s = math.inf
    return watch.look(pid)


def scripted(**answers: Any) -> tuple[GpuWatch, FakeNvml]:
    full = {
        "nvmlDeviceGetEnforcedPowerLimit": 200_000,
        "nvmlDeviceGetClockInfo": 1_980,
        "nvmlDeviceGetComputeRunningProcesses": [types.SimpleNamespace(pid=42, usedGpuMemory=GIB)],
        "nvmlDeviceGetGraphicsRunningProcesses": [],
    }
    nvml = FakeNvml(**{**full, **answers})
    return GpuWatch(lambda: nvml), nvml


def test_all_that_the_driver_tells() -> None:
    watch, _ = scripted()
    assert watch.look(42).state == "unknown", "the first look waits for nothing"
    state = settled(watch, 42)
    assert state.state == "ok" and state.age_s is not None and state.age_s < 5
    gpu = state.devices[0]
    assert (gpu.used_bytes, gpu.total_bytes, gpu.worker_bytes) == (2 * GIB, 8 * GIB, GIB)
    assert (gpu.load_percent, gpu.memory_load_percent, gpu.temperature_c) == (12, 3, 61)
    assert (gpu.power_w, gpu.power_limit_w, gpu.clock_mhz) == (123.4, 200.0, 1980)


def test_each_figure_may_be_missing() -> None:
    lacking = dict.fromkeys(
        [
            "nvmlDeviceGetUtilizationRates",
            "nvmlDeviceGetPowerUsage",
            "nvmlDeviceGetClockInfo",
            "nvmlDeviceGetEnforcedPowerLimit",
            "nvmlDeviceGetComputeRunningProcesses",
        ],
        ...,
    )
    watch, _ = scripted(**lacking, nvmlDeviceGetTemperature=NvmlError(3), nvmlDeviceGetName=b"NVIDIA Imaginary")
    gpu = settled(watch, 42).devices[0]
    assert gpu.name == "NVIDIA Imaginary" and gpu.used_bytes == 2 * GIB and not gpu.gone
    assert gpu.worker_bytes is gpu.load_percent is gpu.power_w is gpu.clock_mhz is gpu.temperature_c is None


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (NvmlError(12), "no_library"),
        (OSError("libnvidia-ml.so.1: cannot open"), "no_library"),
        (NvmlError(9), "no_driver"),
        (NvmlError(18), "version_mismatch"),
        (NvmlError(4), "no_permission"),
        (NvmlError(15), "gpu_lost"),
        (NvmlError(999), "error"),
        (ValueError("odd"), "error"),
    ],
)
def test_every_state_has_words(error: Exception, state: str) -> None:
    watch, _ = scripted(nvmlInit=error)
    found = settled(watch)
    assert (found.state, found.devices, found.age_s) == (state, (), None)
    assert len(found.text) > 20


def test_without_the_package_and_without_devices() -> None:
    def none() -> Any:
        raise ImportError("no pynvml")

    assert settled(GpuWatch(none)).state == "no_package"
    assert settled(scripted(nvmlDeviceGetCount=0)[0]).state == "no_devices"


@pytest.mark.parametrize("error", [NvmlError(15), NvmlError(999)])
def test_a_device_that_is_lost_leaves_old_figures_and_comes_back(error: Exception) -> None:
    watch, nvml = scripted()
    assert settled(watch).state == "ok"
    good = nvml.nvmlDeviceGetCount
    nvml.nvmlDeviceGetCount = FakeNvml.function(error)
    lost = settled(watch)
    assert lost.state in ("gpu_lost", "error")
    assert lost.devices[0].used_bytes == 2 * GIB and lost.age_s is not None, "what was known last, and how old it is"
    older = watch.look(None)
    assert older.age_s is not None and older.age_s >= lost.age_s
    nvml.nvmlDeviceGetCount = good
    assert settled(watch).state == "ok"


def test_a_device_whose_every_call_fails_is_gone() -> None:
    watch, nvml = scripted()
    assert settled(watch).state == "ok"
    for name in dir(nvml):
        if name.startswith("nvmlDeviceGet") and name not in ("nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex"):
            setattr(nvml, name, FakeNvml.function(NvmlError(15)))
    state = settled(watch)
    assert state.state == "gpu_lost" and state.devices[0].total_bytes == 8 * GIB


def test_a_driver_that_hangs_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    watch, nvml = scripted()
    assert settled(watch).state == "ok"
    monkeypatch.setattr(gpu_watch, "HANG_S", 0.05)
    free = threading.Event()
    nvml.nvmlDeviceGetCount = FakeNvml.function(lambda: free.wait(20) and 1)
    watch.renew()
    watch.look(None)
    n_threads = threading.active_count()
    watch._began_s -= 1  # it has hung for a second
    for _ in range(5):
        began = time.monotonic()
        state = watch.look(None)
        assert time.monotonic() - began < 1
    assert state.state == "timeout" and state.devices, "the last figures stay, as old ones"
    assert threading.active_count() == n_threads, "no look begins while one hangs"
    thread = watch._thread
    free.set()
    assert thread is not None
    thread.join(5)
    assert settled(watch).state == "ok"


def test_memory_is_what_the_system_says() -> None:
    quiet = GpuWatch(lambda: FakeNvml(nvmlInit=NvmlError(12)))
    sampler = Sampler(quiet)
    first = sampler.look(os.getpid())
    rss = psutil.Process().memory_info().rss
    assert first.window is not None and first.worker is not None and first.window.rss_bytes is not None
    assert first.window.rss_bytes == pytest.approx(rss, rel=0.05)
    assert first.window.private_bytes and first.window.mapped_bytes is not None
    assert first.window.private_bytes + first.window.mapped_bytes == pytest.approx(rss, rel=0.05)
    assert first.window.cpu_percent is None and first.cpu_percent is None, "one look tells no speed"
    spent = time.process_time() + 0.2
    while time.process_time() < spent:
        pass
    second = sampler.look(None)
    assert second.worker is None
    assert second.window is not None and second.window.cpu_percent is not None and second.window.cpu_percent > 5
    assert second.cpu_percent is None or 0 <= second.cpu_percent <= 100
    assert sampler.look(2**22 + 12345).worker is None, "there is no such process"


def watched(look: Callable[[int | None], events.Sampled]) -> tuple[Monitor, list[events.Event], list[protocol.Request]]:
    told: list[events.Event] = []
    asked: list[protocol.Request] = []
    fake: Any = types.SimpleNamespace(look=look, gpus=types.SimpleNamespace(close=lambda: None, renew=lambda: None))
    return Monitor(told.append, asked.append, lambda: 7, lambda: fake), told, asked


def metrics_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "metrics"]


def test_it_looks_only_while_somebody_watches() -> None:
    seen = threading.Event()

    def look(pid: int | None) -> events.Sampled:
        assert pid == 7
        seen.set()
        return events.Sampled(time_s=1.0)

    monitor, told, asked = watched(look)
    assert not metrics_threads()
    end, end_other = monitor.watch(), monitor.watch()
    assert seen.wait(5) and len(metrics_threads()) == 1
    monitor.see(events.ModelState(status="ready"))
    end()
    end()
    assert monitor.watched
    thread = metrics_threads()[0]
    end_other()
    thread.join(5)
    assert not thread.is_alive() and not monitor.watched
    monitor.see(events.ModelState(status="ready"))
    intervals = [r.interval_s for r in asked if isinstance(r, protocol.Watch)]
    assert intervals == [0.25, 0.25, 0.0], "asked at first, again by a new process, and told to end"
    assert any(isinstance(event, events.Sampled) for event in told)


def test_a_look_that_fails_is_not_the_last() -> None:
    calls = []
    again = threading.Event()

    def look(pid: int | None) -> events.Sampled:
        calls.append(pid)
        if len(calls) == 1:
            raise RuntimeError("odd")
        again.set()
        return events.Sampled(time_s=1.0)

    monitor, _, _ = watched(look)
    end = monitor.watch()
    assert again.wait(5)
    end()
