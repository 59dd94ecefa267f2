"""What the computer has, on machines made of files and a scripted NVML."""

from __future__ import annotations

import builtins
import os
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any

import pytest

from engine import hardware

GIB = 2**30


def machine(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


# ------------------------------------------------------------------ processor and memory

CPUINFO = """processor\t: 0
model name\t: Imaginary CPU 3000
flags\t\t: fpu sse4_2 AVX avx2

processor\t: 1
model name\t: Another
flags\t\t: fpu
"""


def test_processor(tmp_path: Path) -> None:
    cpu = hardware.cpu(machine(tmp_path, {"proc/cpuinfo": CPUINFO}))
    assert (cpu.name, cpu.flags) == ("Imaginary CPU 3000", ("fpu", "sse4_2", "avx", "avx2"))
    assert 1 <= cpu.physical_cores <= cpu.logical_cores
    assert 0 < cpu.usable_cores <= cpu.logical_cores


def test_processor_of_this_machine() -> None:
    cpu = hardware.cpu()
    assert cpu.name
    assert cpu.architecture
    assert cpu.logical_cores == os.cpu_count()


def test_nothing_to_read(tmp_path: Path) -> None:
    cpu = hardware.cpu(tmp_path)
    assert cpu.name
    assert hardware.ram(tmp_path).limited_by == ""


def test_missing_features() -> None:
    assert hardware.missing_cpu_features(("sse4_2", "avx"), ["avx", "avx2", "fma"]) == ["avx2", "fma"]
    assert hardware.missing_cpu_features((), ["avx2"]) == [], "not known is not missing"


@pytest.mark.parametrize(
    "files",
    [
        {"proc/self/cgroup": "0::/app.slice/x\n", "sys/fs/cgroup/app.slice/x/cpu.max": "50000 100000\n"},
        {"proc/self/cgroup": "0::/app.slice/x\n", "sys/fs/cgroup/app.slice/cpu.max": "50000 100000\n"},
        {
            "proc/self/cgroup": "3:cpu,cpuacct:/docker/a\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        },
    ],
)
def test_a_quota_limits_the_cores(tmp_path: Path, files: dict[str, str]) -> None:
    assert hardware.cpu(machine(tmp_path, files)).usable_cores == 0.5


@pytest.mark.parametrize("quota", ["max 100000", "", "garbage", "-1 100000", "5 0"])
def test_no_quota(tmp_path: Path, quota: str) -> None:
    files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": quota}
    assert hardware.cpu(machine(tmp_path, files)).usable_cores >= 1


def test_a_container_limits_memory(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/a/b\n",
        "sys/fs/cgroup/a/b/memory.max": "max\n",
        "sys/fs/cgroup/a/memory.max": f"{GIB // 4}\n",
        "sys/fs/cgroup/a/memory.current": f"{GIB // 8}\n",
        "sys/fs/cgroup/a/memory.stat": f"anon 5\ninactive_file {GIB // 16}\n",
    }
    ram = hardware.ram(machine(tmp_path, files))
    assert (ram.total_bytes, ram.limited_by) == (GIB // 4, "control group")
    assert ram.available_bytes == GIB // 4 - GIB // 8 + GIB // 16


def test_the_older_kind_of_container(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "4:memory:/docker/xyz\n0::/\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{GIB // 4}\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{GIB // 8}\n",
    }
    ram = hardware.ram(machine(tmp_path, files))
    assert (ram.total_bytes, ram.available_bytes) == (GIB // 4, GIB // 8)


def test_an_absurd_limit_is_none(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": f"{2**63}\n"}
    ram = hardware.ram(machine(tmp_path, files))
    assert ram.limited_by == ""
    assert 0 < ram.available_bytes <= ram.total_bytes


def test_memory_of_a_process() -> None:
    held = bytearray(b"x" * 50_000_000)
    resident, private = hardware.process_memory(os.getpid())
    assert resident > private > len(held)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        resident, private = hardware.process_memory(child.pid)
        assert resident >= private > 0
        child.communicate(b"\n")
    assert hardware.process_memory(child.pid) == (0, 0)
    assert hardware.process_memory(-1) == (0, 0)
    assert hardware.process_memory(2**40) == (0, 0)


# ------------------------------------------------------------------ NVML


class NvmlError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


class FakeNvml(types.ModuleType):
    """A scripted pynvml. `answers` maps a function's name to its result, or to an exception that it raises."""

    def __init__(self, **answers: Any) -> None:
        super().__init__("pynvml")
        good: dict[str, Any] = {
            "nvmlInit": None,
            "nvmlShutdown": None,
            "nvmlSystemGetDriverVersion": "570.1",
            "nvmlDeviceGetCount": 1,
            "nvmlDeviceGetHandleByIndex": object(),
            "nvmlDeviceGetName": "NVIDIA Imaginary",
            "nvmlDeviceGetMemoryInfo": types.SimpleNamespace(total=8 * GIB, free=6 * GIB, used=2 * GIB),
            "nvmlDeviceGetUtilizationRates": types.SimpleNamespace(gpu=12, memory=3),
            "nvmlDeviceGetTemperature": 61,
            "nvmlDeviceGetPowerUsage": 123_400,
            "nvmlDeviceGetCudaComputeCapability": (8, 9),
        }
        for name, answer in {**good, **answers}.items():
            if answer is not ...:  # ...: a function that this driver or header lacks
                setattr(self, name, self.function(answer))

    @staticmethod
    def function(answer: Any) -> Any:
        def call(*_: Any) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer() if callable(answer) else answer

        return call


def report(monkeypatch: pytest.MonkeyPatch, **answers: Any) -> hardware.GpuReport:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(**answers))
    return hardware.gpus(timeout_s=2)


@pytest.mark.parametrize(
    ("error", "state", "word"),
    [
        (NvmlError(12), "no_library", "not found"),
        (OSError("libnvidia-ml.so.1: cannot open shared object file"), "no_library", "not found"),
        (NvmlError(9), "no_driver", "not loaded"),
        (NvmlError(18), "version_mismatch", "Restart"),
        (NvmlError(4), "no_permission", "permission"),
        (NvmlError(15), "gpu_lost", "lost"),
        (NvmlError(999), "error", "NVML error 999"),
        (AttributeError("nvmlInit_v2"), "error", "nvmlInit_v2"),
        (ValueError("odd"), "error", "odd"),
    ],
)
def test_every_failure_has_words(monkeypatch: pytest.MonkeyPatch, error: Exception, state: str, word: str) -> None:
    found = report(monkeypatch, nvmlInit=error)
    assert (found.state, found.devices) == (state, ())
    assert word in found.text
    assert found.text.endswith("Models run on the processor.")


def test_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert hardware.gpus().state == "no_package"


def test_a_broken_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    real = builtins.__import__

    def broken(name: str, *rest: Any, **more: Any) -> Any:
        if name == "pynvml":
            raise RuntimeError("half installed")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", broken)
    found = hardware.gpus()
    assert found.state == "error"
    assert "half installed" in found.text


def test_no_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    found = report(monkeypatch, nvmlDeviceGetCount=0)
    assert (found.state, found.driver) == ("no_devices", "570.1")


@pytest.mark.parametrize("name", ["NVIDIA Imaginary", b"NVIDIA Imaginary"])
def test_names_as_bytes_or_text(monkeypatch: pytest.MonkeyPatch, name: str | bytes) -> None:
    driver = b"570.1" if isinstance(name, bytes) else "570.1"
    found = report(monkeypatch, nvmlDeviceGetName=name, nvmlSystemGetDriverVersion=driver)
    assert found.state == "ok"
    assert found.driver == "570.1"
    gpu = found.devices[0]
    assert gpu == hardware.Gpu(0, "NVIDIA Imaginary", 8 * GIB, 6 * GIB, 12, 61, 123.4, "8.9")


def test_missing_fields_and_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    found = report(
        monkeypatch,
        nvmlDeviceGetMemoryInfo=types.SimpleNamespace(),
        nvmlDeviceGetUtilizationRates=NvmlError(3),
        nvmlDeviceGetPowerUsage=...,
        nvmlDeviceGetTemperature=NvmlError(13),
        nvmlDeviceGetCudaComputeCapability=...,
        nvmlSystemGetDriverVersion=NvmlError(999),
    )
    assert found.state == "ok"
    assert found.devices == (hardware.Gpu(0, "NVIDIA Imaginary"),)


def test_one_of_two_devices_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    handles = iter([object(), None])

    def handle() -> Any:
        found = next(handles)
        if found is None:
            raise NvmlError(15)
        return found

    found = report(monkeypatch, nvmlDeviceGetCount=2, nvmlDeviceGetHandleByIndex=handle)
    assert [gpu.name for gpu in found.devices] == ["NVIDIA Imaginary", "NVIDIA device 1 (does not answer)"]


def test_a_hanging_driver_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(nvmlInit=lambda: time.sleep(1)))
    start = time.monotonic()
    assert hardware.gpus(timeout_s=0.05).state == "timeout"
    assert time.monotonic() - start < 0.8


def test_survey_never_raises() -> None:
    found = hardware.survey()
    assert found.system
    assert found.gpus.text
