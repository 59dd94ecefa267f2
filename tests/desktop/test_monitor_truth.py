"""The monitor shows what was measured and nothing else: every state of a scripted driver in the window (cases B32 and
B33), the speeds of scripted answers (B26), and charts that never draw a number that is none, negative or old."""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from heartbeat import Heartbeat
from pytestqt.qtbot import QtBot
from test_hardware import FakeNvml, NvmlError
from test_monitor import GIB, GPU, HOST, NAMED, model, opened, sampled

from desktop.views.monitor import lines, machine_lines, report
from desktop.views.monitor.charts import SpeedChart
from desktop.views.monitor.places import OLD_S, places_of
from desktop.views.monitor.runs import step_times
from engine import events, gpu_watch, metrics
from engine.figures import FitSummary
from engine.gpu_watch import GpuWatch
from engine.metrics import Sampler

#: a number below zero, by itself: not a range, and not a part of a name
_NEGATIVE = re.compile(r"(?<![\w.–-])[-\u2212]\d")


class Driver:
    """A scripted NVML that the window's monitor asks; `say` changes what it answers."""

    def __init__(self) -> None:
        self.import_error: Exception | None = None
        self.free = threading.Event()
        self.nvml = FakeNvml()
        self.good()

    def load(self) -> Any:
        if self.import_error is not None:
            raise self.import_error
        return self.nvml

    def good(self, **answers: Any) -> None:
        self.import_error = None
        self.free.set()
        full = {
            "nvmlDeviceGetEnforcedPowerLimit": 200_000,
            "nvmlDeviceGetClockInfo": 1_980,
            "nvmlDeviceGetComputeRunningProcesses": [],
            "nvmlDeviceGetGraphicsRunningProcesses": [],
        }
        nvml = FakeNvml(**{**full, **answers})
        for name in [name for name in vars(self.nvml) if name.startswith("nvml")]:
            delattr(self.nvml, name)
        for name, function in vars(nvml).items():
            if name.startswith("nvml"):
                setattr(self.nvml, name, function)

    def hang(self) -> None:
        self.good()
        self.free.clear()
        self.nvml.nvmlDeviceGetCount = FakeNvml.function(lambda: self.free.wait(30) and 1)


def missing(driver: Driver) -> None:
    driver.import_error = ImportError("no pynvml")


def failing(error: Exception, function: str = "nvmlInit") -> Callable[[Driver], None]:
    def script(driver: Driver) -> None:
        driver.good(**{function: error, "nvmlDeviceGetCount": error})

    return script


#: name of the state, how the driver gets there, what stands beside the chat
STATES: list[tuple[str, Callable[[Driver], None], str]] = [
    ("no_package", missing, "not watched"),
    ("ok", lambda d: d.good(), "12 % · 61 °C · 123 W"),
    ("no_library", failing(NvmlError(12)), "no NVIDIA GPU"),
    ("no_driver", failing(NvmlError(9)), "driver not loaded"),
    ("version_mismatch", failing(NvmlError(18)), "driver mismatch"),
    ("no_permission", failing(NvmlError(4)), "no permission"),
    ("no_devices", lambda d: d.good(nvmlDeviceGetCount=0), "no NVIDIA GPU"),
    ("ok", lambda d: d.good(nvmlDeviceGetName=b"NVIDIA Imaginary"), "12 % · 61 °C · 123 W"),
    (  # a driver of another time than the header: functions are missing
        "ok",
        lambda d: d.good(nvmlDeviceGetUtilizationRates=..., nvmlDeviceGetPowerUsage=..., nvmlDeviceGetClockInfo=...),
        "61 °C",
    ),
    ("gpu_lost", failing(NvmlError(15), "nvmlDeviceGetMemoryInfo"), "lost"),
    ("error", failing(NvmlError(999)), "unavailable"),
    ("timeout", lambda d: d.hang(), "driver hangs"),
    ("ok", lambda d: d.good(), "12 % · 61 °C · 123 W"),
]


def test_the_driver_goes_through_every_state_while_the_window_shows_it(
    shell: Any, model_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver()
    missing(driver)  # only before the first look: what was imported once stays
    monkeypatch.setattr(metrics, "INTERVAL_S", 0.05)
    for name, seconds in (("HANG_S", 0.2), ("_AGAIN_S", 0.02), ("_ABSENT_S", 0.02)):
        monkeypatch.setattr(gpu_watch, name, seconds)
    one = shell({})
    one.window.resize(1200, 800)
    one.app.engine.monitor._make = lambda: Sampler(GpuWatch(driver.load))
    one.load(model_file)
    one.window.actions_["toggle_monitor"].trigger()
    feed, dock = one.window.inside.monitor.feed, one.window.inside.monitor.dock
    beat = Heartbeat()
    with beat:
        for state, script, words in STATES:
            script(driver)
            one.wait(lambda s=state: feed.sample is not None and feed.sample.gpus.state == s)
            one.wait(lambda w=words: w in [row.value for row in machine_lines.gpu_rows(feed, full=False)])
            one.wait(lambda w=words: any(w in value for value in shown(dock)))
            check_words(feed)
            if state != "ok":
                gpus = machine_lines.gpu_rows(feed, full=True)
                assert len(gpus[0].tip) > 20, "the reason in words"
                assert {row.tone for row in gpus[1:]} <= {"old"}, "what was known before is greyed"
    assert beat.longest_turn_s < 0.25, "no state holds the window up"
    # the device list is renewed when the computer wakes up
    monkeypatch.setattr(gpu_watch, "_ABSENT_S", 3600.0)
    missing(driver)
    one.app.engine.monitor._sampler.gpus._drop()
    one.wait(lambda: feed.sample.gpus.state == "no_package")
    driver.good()
    one.app.engine._resume.resumed(60.0)
    one.wait(lambda: feed.sample.gpus.state == "ok")
    one.app.engine.monitor.stop()


def shown(dock: Any) -> list[str]:
    return [row.value for row in dock.machine.rows.rows]


def check_words(feed: Any) -> None:
    words = report.words(feed, {})
    assert "nan" not in words.lower() and "inf " not in words.lower() and "None" not in words
    assert not _NEGATIVE.search(words), words


def test_closing_does_not_wait_for_a_driver_that_hangs() -> None:
    driver = Driver()
    watch = GpuWatch(driver.load)
    driver.hang()
    watch.look(None)
    thread = watch._thread
    began = time.monotonic()
    watch.close()
    assert time.monotonic() - began < 1 and thread is not None and thread.is_alive()
    driver.free.set()
    thread.join(5)


# ---- what is old


@pytest.mark.parametrize("state", ["gpu_lost", "timeout", "error", "version_mismatch"])
def test_memory_of_a_device_that_is_silent_is_not_shown_as_it_is_now(state: str) -> None:
    gpu = events.GpuFigures(0, "NVIDIA Imaginary", 8 * GIB, 7 * GIB, GIB, worker_bytes=7 * GIB)
    loaded = model(fit=FitSummary("gpu", devices=(GPU, HOST)), devices=NAMED)
    assert places_of(loaded, sampled(gpu))[0].live
    for sample in (sampled(gpu, state), sampled(gpu, "ok", age_s=OLD_S + 1)):
        device = places_of(loaded, sample)[0]
        assert not device.live and "of the load" in device.note
        assert lines.measured_caption(device).label == "measured at the load"


def test_memory_of_a_look_that_is_old_is_not_shown_as_it_is_now() -> None:
    loaded = model(fit=FitSummary("cpu", devices=(HOST,)))
    assert places_of(loaded, sampled(), 1.0)[0].live
    host = places_of(loaded, sampled(), OLD_S + 1)[0]
    assert not host.live and lines.measured_caption(host).label == "measured at the load"
    assert places_of(None, sampled(), 1.0) and not places_of(None, sampled(), OLD_S + 1)
    feed: Any = SimpleNamespace(model=None, sample=sampled())
    assert "too old" in lines.memory_head(feed, []).tip


# ---- charts


@pytest.mark.parametrize("marks", [True, False])
def test_a_chart_draws_no_number_that_is_none(qtbot: QtBot, marks: bool) -> None:
    tasks: Any = SimpleNamespace(run=lambda *_, **__: None)  # what is drawn is computed without the library
    chart = SpeedChart("decode_chart", "Decode", "accent", tasks, marks=marks)
    qtbot.addWidget(chart)
    chart.show()
    odd = [math.nan, math.inf, -math.inf, -3.0, None]
    points = [(100.0 + 0.5 * i, value) for i, value in enumerate([10.0, *odd, 12.0, 13.0])]
    chart.show_points(points, 104.0)
    xs, ys, joined = chart._line()
    assert list(ys) == [10.0, 12.0, 13.0] and list(joined) == [0, 1, 0], "a gap, not a line over it"
    assert all(x <= 0 for x in xs)
    assert chart.accessibleDescription() == "Between 10.0 and 13.0 tokens a second, at last 13.0"
    # what was measured long ago is not shown at all, and does not end the line at "now"
    chart.show_points(points, 104.0 + 200)
    assert max(chart._line()[0]) < -190
    chart.show_points(points, 104.0 + 1000)
    assert len(chart._line()[0]) == 0 and "Nothing" in chart.accessibleDescription()
    chart.show_points([(100.0, value) for value in odd], 101.0)
    assert len(chart._line()[0]) == 0 and "Nothing" in chart.accessibleDescription()


def test_the_histogram_counts_only_times() -> None:
    found = step_times([0.02, math.nan, -0.5, math.inf, 0.04])
    assert found is not None and found.n == 2 and (found.edges[0], found.longest) == (0.02, 0.04)
    assert step_times([math.nan, 0.02]) is None


# ---- case B26, in the window


def test_three_speeds_of_scripted_answers_are_shown_apart(shell: Any, model_file: Path) -> None:
    """2 s of reading and a token each 40 ms; one token alone, of which all was cached."""
    script = {
        "answers": [
            {"text": "word " * 43, "delay_s": 0.04, "prefill_s": 2.0, "n_prompt": 500, "n_cached": 120},
            {"text": "x", "n_prompt": 510, "n_cached": 510},
        ]
    }
    one = opened(shell, model_file, script)
    feed, dock = one.window.inside.monitor.feed, one.window.inside.monitor.dock
    one.send("Hi")
    one.wait(lambda: feed.current is not None and feed.current.speeds.n_written > 30)
    assert feed.decode_now == pytest.approx(25, rel=0.15), "now: what was read before is not in it"
    one.wait(lambda: one.at_rest(2))
    one.wait(lambda: not feed.runs and lines.main_rate(feed)[1] == "last answer")
    timings = feed.last.timings
    assert timings.ttft_s == pytest.approx(2.0, rel=0.1) and timings.decode_tps == pytest.approx(25, rel=0.1)
    rows = {row.label: row.value for row in lines.speed_rows(feed, full=True)}
    assert rows["First token"] == f"{timings.ttft_s:.2f} s" and "Prefill (380 new of 500)" in rows
    one.answer("And?")
    one.wait(lambda: not feed.runs and feed.last.usage.completion_tokens == 1)
    assert lines.main_rate(feed) == (None, "last answer")
    one.wait(lambda: dock.speed.figure.text() == "—")
    rows = {row.label: row for row in lines.speed_rows(feed, full=True)}
    assert rows["Decode, mean of the answer"].value == "—" and rows["Prefill (0 new of 510)"].value == "—"
    assert "all was in the KV cache" in rows["Prefill (0 new of 510)"].tip
    check_words(feed)


# ---- why it is slow


def slow(rate: float | None, sample: events.Sampled | None, *, low: float = 20.0, n: int = 1) -> list[str]:
    feed: Any = SimpleNamespace(
        model=model(fit=FitSummary("cpu", decode_tps_low=low, decode_tps_high=60.0)),
        runs={number: SimpleNamespace(speeds=SimpleNamespace(reading=False)) for number in range(n)},
        decode_now=rate,
        last=None,
        sample=sample,
    )
    return [row.value for row in lines.slow_rows(feed)]


def busy(all_percent: float, worker_percent: float) -> events.Sampled:
    return events.Sampled(
        time_s=0.0,
        window=events.ProcessFigures(cpu_percent=4.0),
        worker=events.ProcessFigures(cpu_percent=worker_percent),
        cpu_percent=all_percent,
        n_cores=2,
    )


def test_slower_than_predicted_is_said_with_what_is_known_of_the_cause() -> None:
    assert slow(5.0, busy(100.0, 60.0)) == ["others use 68 % of the CPU"]
    assert slow(5.0, busy(100.0, 190.0)) == ["see the trace"]
    assert slow(5.0, busy(100.0, 190.0), n=3) == ["3 answers at once"]
    assert slow(5.0, None) == ["see the trace"]
    assert slow(25.0, busy(100.0, 10.0)) == [], "as fast as was predicted"
    assert slow(None, busy(100.0, 10.0)) == [] and slow(5.0, None, low=0.0) == []
    assert lines.others_percent(busy(10.0, 60.0)) == 0.0
