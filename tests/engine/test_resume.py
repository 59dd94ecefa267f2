"""After a sleep of the computer: noticed once, and what is gone is said; nothing is claimed that is not known."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from engine import events, resume
from engine.errors import WorkerDied
from engine.events import Device, ModelInfo, ModelState, Notice, Resumed, TemplateInfo
from engine.fit import machine
from engine.fit.plan_records import Machine
from engine.hardware import GpuReport
from engine.model_host import ModelHost, error_info
from engine.paths import resolve
from engine.resume import Resume, SleepWatch, used_devices
from engine.service import Engine
from engine.worker import protocol

CPU = Device("CPU", "Some processor", "cpu", "CPU", 8 << 30, 16 << 30)
CARD_A = Device("CUDA0", "NVIDIA A", "gpu", "CUDA", 7 << 30, 8 << 30)
CARD_B = Device("CUDA1", "NVIDIA B", "gpu", "CUDA", 7 << 30, 8 << 30)
TWIN = Device("CUDA1", "NVIDIA A", "gpu", "CUDA", 7 << 30, 8 << 30)
GONE_A = "The GPU NVIDIA A is gone since the computer slept."


def renamed(device: Device, name: str) -> Device:
    return Device(name, device.description, device.kind, device.backend, 1 << 30, device.memory_total_bytes)


def wait(condition: Callable[[], object], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


# ---------------------------------------------------------------- the watch


class Clock:
    """Seconds slept so far; stands still unless told."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("steps", "slept"),
    [
        ([0.0, 0.0, 3600.0, 0.0], [3600.0]),
        ([14.0, 14.0, 15.0], []),  # each is no sleep, and they do not add up
        ([-3600.0, 16.0], [16.0]),  # a wall clock that was set back
        ([20.0, 30.0], [20.0, 30.0]),
    ],
)
def test_each_jump_is_noticed_once(steps: list[float], slept: list[float]) -> None:
    clock, seen = Clock(), []
    watch = SleepWatch(seen.append, clock=clock, jump_s=resume.WALL_JUMP_S)
    for step in steps:
        clock.now += step
        watch.check()
    assert seen == pytest.approx(slept)


@pytest.mark.skipif(sys.platform != "linux", reason="the clocks of Linux")
def test_linux_counts_the_sleep_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time awake does not matter."""
    times = {time.CLOCK_BOOTTIME: 500.0, time.CLOCK_MONOTONIC: 400.0}
    monkeypatch.setattr(time, "clock_gettime", times.__getitem__)
    seen: list[float] = []
    watch = SleepWatch(seen.append)
    times[time.CLOCK_BOOTTIME] += 7200.0
    times[time.CLOCK_MONOTONIC] += 7200.0
    watch.check()
    assert seen == []
    times[time.CLOCK_BOOTTIME] += 95.0
    times[time.CLOCK_MONOTONIC] += 5.0
    watch.check()
    assert seen == [90.0]


def test_elsewhere_the_wall_clock_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    clock, jump_s = resume._sleep_clock()
    assert jump_s == 15.0
    assert clock() == pytest.approx(time.time() - time.monotonic(), abs=0.1)


def test_the_thread_ticks_survives_an_error_and_ends() -> None:
    clock, seen = Clock(), []

    def fail(slept_s: float) -> None:
        seen.append(slept_s)
        raise RuntimeError("no driver")

    watch = SleepWatch(fail, clock=clock, tick_s=0.01)
    watch.start()
    watch.start()
    assert [t.name for t in threading.enumerate()].count("sleep-watch") == 1
    for n in (1, 2):
        clock.now += 60
        wait(lambda n=n: len(seen) == n)
    watch.stop()
    watch.stop()
    assert not watch._thread.is_alive()
    watch.start()  # nothing begins again
    assert not watch._thread.is_alive()


# ---------------------------------------------------------------- devices


def model(*devices: Device, on: Sequence[str] = ("CUDA0",), n_gpu_layers: int = 10) -> ModelInfo:
    return ModelInfo(
        "/m.gguf", "M", "llama", "Q8_0", 1, 1, 2048, 2048, 1, 10, 10, 64, 512, 512, 2, n_gpu_layers,
        TemplateInfo("file"), buffers={"CPU model": 5, **{f"{name} model": 100 for name in on}}, devices=devices,
    )  # fmt: skip


class Host:
    """A model host whose worker answers or not."""

    def __init__(self, loaded: ModelInfo | None) -> None:
        self.state = ModelState(status="ready" if loaded else "none", model=loaded)
        self.pid = 7 if loaded else None
        self.answer: events.Event | None = events.Pong()

    def submit(self, request: protocol.Ping, handler: Callable[[events.Event], None]) -> None:
        if self.answer is not None:
            handler(self.answer)


def listed(*devices: Device) -> Machine:
    return machine.look(start=lambda: events.Hello(protocol=1, engine="", pid=1, devices=devices), gpus=no_nvml)


def no_nvml() -> GpuReport:
    return GpuReport("no_devices", "")


def not_listed() -> Machine:
    def hang() -> events.Hello:
        raise WorkerDied("The worker did not start within 20 s")

    return machine.look(start=hang, gpus=no_nvml)


def notices(host: Host, *looks: Machine) -> list[tuple[str, str]]:
    """What is said after a sleep when the looks find these, one after the other."""
    said: list[events.Event] = []
    left = list(looks)
    check = Resume(host, said.append, look=lambda: left.pop(0), ping_s=0.05, confirm_s=0.01)  # type: ignore[arg-type]
    check.resumed(90.0)
    assert said[0] == Resumed(slept_s=90.0)
    assert left == []
    assert all(isinstance(event, Notice) for event in said[1:])
    return [(event.level, event.text) for event in said[1:] if isinstance(event, Notice)]


def test_a_gpu_that_vanished_is_named() -> None:
    host = Host(model(CPU, CARD_A))
    before = host.state
    assert notices(host, listed(CPU), listed(CPU)) == [("error", GONE_A)]
    assert host.state is before  # the model is not marked


def test_a_gpu_that_stays_is_silent() -> None:
    assert notices(Host(model(CPU, CARD_A)), listed(CPU, renamed(CARD_A, "CUDA0"))) == []


def test_a_gpu_that_comes_back_late_is_silent() -> None:
    assert notices(Host(model(CPU, CARD_A)), listed(CPU), listed(CPU, CARD_A)) == []


def test_names_that_are_counted_anew_do_not_mislead() -> None:
    """Card B is CUDA0 once card A is gone."""
    after = listed(CPU, renamed(CARD_B, "CUDA0"))
    assert notices(Host(model(CPU, CARD_A, CARD_B, on=["CUDA1"])), after) == []
    assert notices(Host(model(CPU, CARD_A, CARD_B)), after, after) == [("error", GONE_A)]


def test_one_of_two_equal_cards() -> None:
    after = listed(CPU, CARD_A)
    assert notices(Host(model(CPU, CARD_A, TWIN, on=["CUDA0", "CUDA1"])), after, after) == [("error", GONE_A)]


@pytest.mark.parametrize("loaded", [None, model(CPU, CARD_A, on=(), n_gpu_layers=0)])
def test_without_layers_on_a_gpu_nobody_looks(loaded: ModelInfo | None) -> None:
    assert notices(Host(loaded)) == []


def test_a_look_that_hangs_claims_nothing() -> None:
    assert not not_listed().listed
    assert notices(Host(model(CPU, CARD_A)), not_listed()) == []
    assert notices(Host(model(CPU, CARD_A)), listed(CPU), not_listed()) == []


def test_a_model_loaded_meanwhile_is_not_judged_by_the_old_list() -> None:
    host, said = Host(model(CPU, CARD_A)), []

    def look() -> Machine:
        host.state = ModelState(status="ready", model=model(CPU, on=(), n_gpu_layers=0))
        return listed(CPU)

    Resume(host, said.append, look=look, confirm_s=0.01).resumed(90.0)  # type: ignore[arg-type]
    assert said == [Resumed(slept_s=90.0)]


def test_buffers_say_which_devices_are_used() -> None:
    assert [d.name for d in used_devices(model(CPU, CARD_A, CARD_B, on=["CUDA1"]))] == ["CUDA1"]
    assert [d.name for d in used_devices(model(CPU, CARD_A, on=()))] == ["CUDA0"]
    assert used_devices(model(CPU, CARD_A, CARD_B, on=())) == ()


def test_stopping_does_not_wait_for_a_look_that_hangs() -> None:
    """And nothing is said after the end."""
    clock, said = Clock(), []
    looking, release = threading.Event(), threading.Event()

    def look() -> Machine:
        looking.set()
        release.wait(20)
        return listed(CPU)

    check = Resume(Host(model(CPU, CARD_A)), said.append, look=look, clock=clock)  # type: ignore[arg-type]
    check.watch._tick_s = 0.01
    check.watch.start()
    clock.now += 90
    assert looking.wait(20)
    start = time.monotonic()
    check.watch.stop()
    assert time.monotonic() - start < 5
    release.set()
    check.watch._thread.join(20)
    assert not check.watch._thread.is_alive()
    assert said == [Resumed(slept_s=90.0)]


# ---------------------------------------------------------------- the model's process


def worker(**script: object) -> list[str]:
    return [sys.executable, "-m", "engine.worker.fake", "--script", json.dumps(script)]


@pytest.mark.parametrize("pong", [True, False])
def test_a_worker_that_does_not_answer_is_said(tmp_path: Path, pong: bool) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(b"GGUF")
    said: list[events.Event] = []
    host = ModelHost(lambda event: None, command=worker(pong=pong))
    try:
        host.load(protocol.Load(id="1", path=str(path))).result(20)
        Resume(host, said.append, look=lambda: listed(CPU), ping_s=20.0 if pong else 0.3).resumed(90.0)
        assert host.state.status == "ready"
    finally:
        host.stop()
    texts = [(event.level, event.text) for event in said if isinstance(event, Notice)]
    wanted = ("warning", "The model process does not answer since the computer slept.")
    assert texts == ([] if pong else [wanted])


def test_a_worker_that_died_is_left_to_its_host() -> None:
    host = Host(model(CPU, on=(), n_gpu_layers=0))
    host.answer = events.Error(error=error_info(WorkerDied("The worker died")))
    assert notices(host) == []


def test_the_engine_watches_from_start_to_stop(home: Path) -> None:
    engine = Engine(resolve(home).ensure(), worker_command=worker())
    said: list[events.Event] = []
    engine.subscribe(said.append)
    engine.start().result(20)
    thread = engine._resume.watch._thread
    assert thread.is_alive() and thread.daemon
    engine._resume.resumed(90.0)
    assert Resumed(slept_s=90.0) in said
    engine.stop()
    assert not thread.is_alive()
