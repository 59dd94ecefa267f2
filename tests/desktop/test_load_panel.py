"""Loading with options: what the user chose reaches llama.cpp, and predicted stands beside measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from models_help import TWO_GPUS, open_models, use_machine
from PySide6.QtCore import Qt

from desktop.views.hub.models_view import LIBRARY
from desktop.views.library.load_wishes import taken, wishes_from
from engine.engine_options import EngineOptions, merged
from engine.figures import DeviceFigures, FitSummary
from engine.fit.plan_records import Wishes


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setenv("HOME", str(home))


def opened(one, path: Path):
    """The view with this file of the library chosen and planned."""
    folder = one.app.engine.library.folder
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / path.name
    target.symlink_to(path)
    view = open_models(one)
    view.show_load(str(target))
    one.wait(lambda: view.library_page.load_panel.panel.plan is not None)
    return view, target


def test_wishes_and_options_are_the_same_choices() -> None:
    common = wishes_from({})
    assert common == Wishes(n_slots=4)
    moved = replace(common, n_ctx=1024, kv_type_k="q8_0", kv_type_v="q8_0", n_slots=2)
    own = taken(EngineOptions(n_threads=3), common, moved, common)
    assert own == EngineOptions(n_threads=3, n_ctx=1024, kv_type_k="q8_0", kv_type_v="q8_0", n_slots=2)
    assert wishes_from(merged(own)) == moved
    assert taken(own, moved, common, common) == EngineOptions(n_threads=3), "back to automatic"
    for_all = wishes_from(merged(EngineOptions(n_ctx=2048)))
    shares = replace(for_all, tensor_split=(3.0, 1.0), n_gpu_layers=0)
    own = taken(EngineOptions(), for_all, shares, for_all)
    assert own == EngineOptions(tensor_split=(3.0, 1.0), n_gpu_layers=0), "what holds for all is not taken over"


def test_a_real_load_with_options_shows_predicted_and_measured(shell, starter_model: Path, qtbot) -> None:
    one = shell(real=True)
    view, target = opened(one, starter_model)
    panel = view.library_page.load_panel
    slider = panel.panel.what_if.context.slider
    slider.setValue(1)  # 1,024 tokens
    panel.panel.what_if.kv.button("q8_0").click()
    one.wait(lambda: panel.panel.plan.options.n_ctx == 1024 and panel.panel.plan.options.kv_type_k == "q8_0")
    assert not panel.measured.isVisible()
    qtbot.mouseClick(panel.load, Qt.MouseButton.LeftButton)
    one.wait(lambda: one.window.control.state.status == "ready", 60)
    model = one.window.control.state.model
    assert model.n_ctx == 1024 and one.window.control.state.path == str(target)
    one.wait(panel.measured.isVisible)
    cells = panel.measured.values()
    assert cells[0] == "GiB" and "weights predicted" in cells and "KV measured" in cells
    host = next(d for d in model.fit.devices if d.name == "Host")
    assert host.kv_bytes == pytest.approx(host.measured_kv_bytes, rel=1e-3)  # the log rounds to 10 KiB
    assert f"{host.kv_bytes / 1024**3:.2f}" in cells
    assert panel.load.text() == "Load again" and panel.unload.isVisible()
    kept = one.app.engine.settings.model_engine[str(target)]
    assert kept == EngineOptions(n_ctx=1024, kv_type_k="q8_0", kv_type_v="q8_0") == panel.options
    assert one.app.engine.needs_reload() == ()
    rows = {row.key: row for row in view.library.list.rows.rows}
    assert rows[str(target)].chip.words == "loaded"
    qtbot.mouseClick(panel.unload, Qt.MouseButton.LeftButton)
    one.wait(lambda: not panel.measured.isVisible() and panel.load.text() == "Load")


def test_the_list_of_models_opens_it(shell, starter_model: Path, qtbot) -> None:
    one = shell()
    folder = one.app.engine.library.folder
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "mine.gguf"
    target.symlink_to(starter_model)
    one.load(target)
    one.view.open_picker()
    one.wait(one.view.popup.isVisible)
    qtbot.mouseClick(one.view.popup.options, Qt.MouseButton.LeftButton)
    view = one.window.models.view
    one.wait(lambda: view.tab == LIBRARY and view.library_page.path == str(target))
    assert one.window.views.currentWidget() is view


def test_two_gpus_have_a_share_each(shell, starter_model: Path, monkeypatch) -> None:
    use_machine(monkeypatch, TWO_GPUS)
    one = shell()
    view, _ = opened(one, starter_model)
    panel = view.library_page.load_panel.panel
    one.wait(lambda: len(panel.what_if.shares) == 2 and len(panel.where.bars) == 3)
    panel.what_if.shares[0].slider.setValue(100)
    panel.what_if.shares[1].slider.setValue(0)
    one.wait(lambda: panel.plan.options.tensor_split == (100.0, 0.0))
    assert panel.plan.devices[1].need.weights_bytes == 0 < panel.plan.devices[0].need.weights_bytes
    assert panel.what_if.shares[0].value_label.text() == "100%"


def test_how_far_the_prediction_was_off_is_said() -> None:
    from desktop.views.library.load_panel import error_words

    device = DeviceFigures("CUDA0", 1, 1, 1)
    assert error_words(FitSummary("gpu", devices=(device,), error=0.0)) == "As predicted."
    assert error_words(FitSummary("gpu", devices=(device,), error=0.031)) == "3.1 % more than predicted."
    stepped = FitSummary("split", devices=(device,), error=-0.02, stepped_down=True)
    assert "2.0 % less" in error_words(stepped) and "second" in error_words(stepped)
