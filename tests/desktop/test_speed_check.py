"""The machine is measured when the user asks for it, off the GUI thread, and never beside a model that writes."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from desktop.fit_desk import Subject
from desktop.fit_sources import EngineFitter
from desktop.views.settings.settings_view import ENGINE
from desktop.views.settings.speed_check import result_words
from engine.fit import calibrate as calibrating
from engine.fit.calibrate import Calibration
from engine.fit.placement import DeviceSpec
from engine.fit.plan_records import Machine, Wishes
from engine.models.gguf import read_header

GIB = 2**30


def open_settings(one) -> object:
    one.window.show_settings()
    one.window.settings_view.show_tab(ENGINE)
    check = one.window.settings_view.engine_page.speed_check
    one.wait(lambda: bool(check.words.text()))
    return check


@pytest.mark.usefixtures("home")
def test_it_measures_with_the_starter_model(shell, qtbot, starter_model: Path, home: Path, monkeypatch) -> None:
    monkeypatch.setattr("engine.models.starter.find", lambda models=None: starter_model)
    monkeypatch.setattr(calibrating, "_BANDWIDTH_S", 0.3)
    monkeypatch.setattr(calibrating, "_TOKENS", 16)
    said: list[str] = []
    one = shell(real=True)
    check = open_settings(one)
    assert "not measured" in check.words.text() and not one.app.engine.measurements.calibrated
    assert not (one.app.engine.paths.data / "fit.json").exists(), "never by itself"
    check.button.click()
    assert not check.button.isEnabled()
    seen = lambda: said.append(check.words.text()) or check.button.isEnabled()  # noqa: E731
    one.wait(seen, 60)
    assert {"Measuring the memory…", "Measuring a short answer on the processor…"} <= set(said)
    assert "tokens a second on the processor" in check.words.text() and "GB a second" in check.words.text()
    kept = json.loads((one.app.engine.paths.data / "fit.json").read_text())
    assert kept["bandwidths"]["Host"] > 1e8 and kept["speeds"][0]["place"] == "Host"
    check.load()
    one.wait(lambda: check.button.text() == "Measure again (20 s)")


def test_not_while_a_model_writes(shell, model_file: Path) -> None:
    one = shell({"answers": [{"text": "word " * 400, "delay_s": 0.02}]})
    one.load(model_file)
    one.send("Hi")
    one.wait(lambda: bool(one.app.engine.chats.generating()))
    check = open_settings(one)
    check.measure()
    assert "at work" in check.words.text() and check.button.isEnabled()
    assert not one.app.engine.measurements.calibrated
    one.app.engine.chats.stop()
    one.wait(lambda: not one.app.engine.chats.generating())


def test_off_the_gui_thread_once_and_failures_in_words(shell, monkeypatch) -> None:
    one = shell()
    check = open_settings(one)
    threads, go = [], threading.Event()

    def fake(*_: object, **__: object) -> Calibration:
        threads.append(threading.current_thread())
        assert go.wait(20)
        return Calibration({}, {}, ("The memory bandwidth could not be measured.",))

    monkeypatch.setattr(calibrating, "calibrate", fake)
    check.measure()
    check.measure()
    go.set()
    one.wait(check.button.isEnabled)
    assert len(threads) == 1 and threads[0] is not threading.main_thread()
    assert "could not be measured" in check.words.text() and "no starter model" in check.words.text()
    monkeypatch.setattr(calibrating, "calibrate", lambda *_, **__: 1 / 0)
    check.measure()
    one.wait(check.button.isEnabled)
    assert "the reason is in the log" in check.words.text()


def test_words_of_a_result() -> None:
    found = Calibration({"Host": 21.34e9}, {"Host": 85.2, "CUDA0": 240.0}, ("X.",))
    assert result_words(found) == (
        "The memory is read at 21.3 GB a second. The starter model writes 85.2 tokens a second on the processor. "
        "The starter model writes 240 tokens a second on CUDA0. X."
    )


def test_plans_of_the_window_learn(shell, starter_model: Path) -> None:
    """Ranges are corrected and narrower after real answers, and memory by what real loads took beyond the formula."""
    one = shell(start=False)
    engine = one.app.engine
    fitter = EngineFitter(engine)
    subject = Subject(read_header(starter_model), path=str(starter_model))
    machine = Machine((DeviceSpec("CUDA0", "gpu", 8 * GIB, 8 * GIB, "CUDA"),), 8 * GIB, 16 * GIB, 4)
    before = fitter.plan(subject, machine, Wishes(n_ctx=2048))
    assert before.speed.basis == "estimate"
    middle = (before.speed.decode_tps_low * before.speed.decode_tps_high) ** 0.5
    for _ in range(3):
        engine.measurements.add_speed("CUDA0", "Q4_1", middle, middle / 2)
        engine.measurements.add_memory("CUDA0", "m", 100 * 2**20, 400 * 2**20)
    after = fitter.plan(subject, machine, Wishes(n_ctx=2048))
    assert after.speed.basis == "calibrated"
    assert after.speed.decode_tps_low < middle / 2 < after.speed.decode_tps_high
    width = after.speed.decode_tps_high / after.speed.decode_tps_low
    assert width < before.speed.decode_tps_high / before.speed.decode_tps_low
    grown = after.devices[0].need.total_bytes - before.devices[0].need.total_bytes
    assert grown == 300 * 2**20
