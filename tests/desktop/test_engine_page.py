"""The engine's options: for all models on a settings page, for one in the load panel; automatic values beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gguf_maker import small_model
from models_help import LAPTOP, open_models, use_machine
from PySide6.QtCore import Qt
from tiny_models import lora

from desktop.views.settings.option_form import Automatic, OptionRow
from desktop.views.settings.settings_view import ENGINE, GENERAL
from engine import service
from engine.cores import Cores
from engine.engine_options import OPTIONS, Adapter, EngineOptions


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(service, "here", lambda: Cores(6, 14, 6, "performance cores of 14"))


def opened(shell: Any, **options: Any) -> Any:
    one = shell(**options)
    one.window.actions_["view_settings"].trigger()
    view = one.window.settings_view
    view.show_tab(ENGINE)
    one.page = view.engine_page
    one.wait(lambda: "6" in one.page.row("n_threads").automatic.text())
    return one


def saved(one: Any) -> dict[str, Any]:
    path: Path = one.app.engine.paths.settings_file
    return json.loads(path.read_text()) if path.exists() else {}


def choose(row: OptionRow, value: Any) -> None:
    row.control.setCurrentIndex(row.control.findData(value))


def test_every_option_for_all_models_has_a_row(shell) -> None:
    one = opened(shell)
    rows = {name for form in one.page.forms for name in form.rows}
    assert rows == {name for name, option in OPTIONS.items() if not option.per_model}
    for name in rows:
        row = one.page.row(name)
        assert row.automatic.text().startswith("Automatic: "), name
        assert row.control.accessibleName() == row.option.label
        assert row.automatic.text() in row.control.accessibleDescription()
        assert not row.reset.isVisible()


def test_values_are_kept_and_reset_one_by_one(shell, qtbot) -> None:
    one = opened(shell)
    engine = one.app.engine
    assert one.page.row("n_threads").automatic.text() == "Automatic: 6 (performance cores of 14)"
    one.page.row("n_threads").control.setText("3")
    choose(one.page.row("kv_type_k"), "q8_0")
    choose(one.page.row("use_mmap"), False)
    one.wait(lambda: engine.settings.engine == EngineOptions(n_threads=3, kv_type_k="q8_0", use_mmap=False))
    one.wait(lambda: saved(one).get("engine") == {"n_threads": 3, "kv_type_k": "q8_0", "use_mmap": False})
    reset = one.page.row("kv_type_k").reset
    assert reset.isVisible()
    qtbot.mouseClick(reset, Qt.MouseButton.LeftButton)
    assert engine.settings.engine == EngineOptions(n_threads=3, use_mmap=False)
    assert one.page.row("kv_type_k").control.currentData() is None and not reset.isVisible()


@pytest.mark.parametrize(("text", "words"), [("many", "whole number"), ("0", "between 1 and 1,024"), ("-2", "whole")])
def test_a_number_that_cannot_be(shell, text: str, words: str) -> None:
    one = opened(shell)
    row = one.page.row("n_threads")
    row.control.setText(text)
    row.commit()
    assert words in row.automatic.text() and row.control.property("invalid") == "true"
    assert one.app.engine.settings.engine == EngineOptions()
    row.control.setText("")
    row.commit()
    assert row.automatic.text().startswith("Automatic") and row.control.property("invalid") == "false"


def test_a_quantized_v_cache_without_flash_attention_is_refused_in_words(shell) -> None:
    one = opened(shell)
    choose(one.page.row("flash_attention"), "off")
    choose(one.page.row("kv_type_v"), "q8_0")
    assert "needs flash attention" in one.page.row("kv_type_v").automatic.text()
    assert one.app.engine.settings.engine == EngineOptions(flash_attention="off")
    choose(one.page.row("flash_attention"), "auto")
    assert "needs" not in one.page.row("kv_type_v").automatic.text()


def test_reload_to_apply(shell, tmp_path: Path, qtbot) -> None:
    one = opened(shell)
    assert not one.page.reload_bar.isVisible()
    one.load(small_model().write(tmp_path / "small.gguf"))
    assert not one.page.reload_bar.isVisible()
    one.page.row("n_ubatch").control.setText("128")
    one.page.row("n_ubatch").commit()
    assert one.page.reload_bar.isVisible() and OPTIONS["n_ubatch"].label in one.page.reload_words.text()
    qtbot.mouseClick(one.page.reload, Qt.MouseButton.LeftButton)
    one.wait(lambda: one.window.control.state.status == "ready" and one.window.control.state.model.n_ubatch == 128)
    one.wait(lambda: not one.page.reload_bar.isVisible())


def test_the_loaded_model_tells_what_was_chosen_for_it(shell, model_file: Path) -> None:
    one = opened(shell)
    one.load(model_file)
    name = one.window.control.state.model.name
    one.wait(lambda: name in one.page.row("n_ctx").automatic.text())
    assert one.page.row("n_ctx").automatic.text().startswith("Automatic: ")
    view = one.window.settings_view
    view.show_tab(GENERAL)
    assert view.system_prompt.isVisible() and not one.page.isVisible()


def test_what_saves_work(shell) -> None:
    one = opened(shell)
    settings = one.app.engine.settings
    assert one.page.boxes["kv_on_disk"].isChecked() and one.page.kv_disk_gib.value() == 4
    one.page.kv_disk_gib.setValue(2.5)
    one.page.boxes["speculate"].setChecked(False)
    one.page.boxes["kv_on_disk"].setChecked(False)
    assert (settings.kv_disk_gib, settings.speculate, settings.kv_on_disk) == (2.5, False, False)
    assert not one.page.kv_disk_gib.isEnabled()
    one.wait(lambda: saved(one).get("kv_on_disk") is False)


def test_words() -> None:
    assert Automatic("2", "physical cores").words == "Automatic: 2 (physical cores)"
    assert Automatic("on", lead="For all models").words == "For all models: on"


# ------------------------------------------------------------------ one model


def load_panel(one: Any, path: Path) -> tuple[Any, Path]:
    folder = one.app.engine.library.folder
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / path.name
    target.symlink_to(path)
    view = open_models(one)
    view.show_load(str(target))
    panel = view.library_page.load_panel
    one.wait(lambda: panel.panel.plan is not None)
    return panel, target


def test_own_options_of_a_model_and_the_bar_follows(shell, starter_model: Path, monkeypatch) -> None:
    use_machine(monkeypatch, LAPTOP)
    one = shell()
    one.app.engine.change_settings(engine=EngineOptions(n_threads=4))
    panel, target = load_panel(one, starter_model)
    assert panel.advanced.form is None
    panel.advanced.fold.click()
    rows = panel.advanced.form.rows
    one.wait(lambda: panel._loads.cores is not None)
    assert rows["n_threads"].automatic.text() == "For all models: 4"
    assert rows["n_threads_batch"].automatic.text() == "Automatic: 4 (as for answers)"
    assert rows["kv_type_k"].automatic.text() == "Automatic: F16"
    before = sum(fit.need.kv_bytes for fit in panel.panel.plan.devices)
    choose(rows["kv_type_k"], "q8_0")
    one.wait(lambda: panel.panel.plan.options.kv_type_k == "q8_0")
    assert sum(fit.need.kv_bytes for fit in panel.panel.plan.devices) < before
    assert panel.panel.what_if.kv.value == "", "K and V are different, so no one word holds for both"
    assert "1 chosen" in panel.advanced.fold.text()
    panel.panel.what_if.kv.button("q8_0").click()
    one.wait(lambda: panel.panel.plan.options.kv_type_v == "q8_0")
    assert rows["kv_type_v"].value == "q8_0"
    choose(rows["flash_attention"], "off")
    assert "needs flash attention" in rows["flash_attention"].automatic.text()
    assert panel.options == EngineOptions(kv_type_k="q8_0", kv_type_v="q8_0")
    panel.request_load()
    assert one.app.engine.settings.model_engine == {str(target): panel.options}
    panel.set_path("")
    panel.set_path(str(target))
    assert panel.options == EngineOptions(kv_type_k="q8_0", kv_type_v="q8_0")
    one.wait(lambda: panel.panel.plan is not None and panel.panel.plan.options.kv_type_k == "q8_0")
    panel.panel.what_if.reset.click()
    assert panel.options == EngineOptions()


def test_adapters_are_listed_counted_and_rescaled(shell, starter_model: Path, tmp_path: Path, qtbot) -> None:
    one = shell(real=True)
    folder = one.app.engine.library.folder
    folder.mkdir(parents=True, exist_ok=True)
    inside = lora(folder / "pirate.gguf", starter_model, size=0.5, rank=8, name="Pirate")
    outside = lora(tmp_path / "outside.gguf", starter_model, size=0.1)
    wrong = lora(tmp_path / "wrong.gguf", starter_model, size=0.1, widen=32)
    panel, target = load_panel(one, starter_model)
    one.wait(lambda: len(panel.adapters.rows) == 1)
    row = panel.adapters.rows[0]
    assert "Pirate" in row.box.text() and not row.slider.isVisible()
    plain = sum(fit.need.weights_bytes for fit in (*panel.panel.plan.devices, panel.panel.plan.host))
    row.box.click()
    assert panel.options.adapters == (Adapter(str(inside), 1.0),)
    one.wait(lambda: sum(f.need.weights_bytes for f in (*panel.panel.plan.devices, panel.panel.plan.host)) > plain)
    panel.use_adapter(str(wrong))
    one.wait(lambda: "does not belong" in panel.adapters.words.text())
    panel.use_adapter(str(outside))
    one.wait(lambda: len(panel.adapters.rows) == 2)
    assert panel.adapters.rows[1].box.isChecked()
    qtbot.mouseClick(panel.load, Qt.MouseButton.LeftButton)
    one.wait(lambda: one.window.control.state.status == "ready", 60)
    assert {a.path for a in one.window.control.state.model.adapters} == {str(inside), str(outside)}
    pid = one.app.engine.worker_pid
    panel.adapters.rows[0].slider.slider.setValue(10)
    one.wait(lambda: one.window.control.state.model.adapters[0].scale == 0.5)
    assert one.app.engine.worker_pid == pid and one.app.engine.needs_reload() == ()
    one.wait(lambda: "these scales" in panel.adapters.words.text())
    kept = one.app.engine.settings.model_engine[str(target)].adapters
    assert kept == (Adapter(str(inside), 0.5), Adapter(str(outside), 1.0))
