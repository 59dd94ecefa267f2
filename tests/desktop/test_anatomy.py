"""The page of the loaded model: its picture, the same by key and in words, and what would be otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from models_help import GIB, TWO_GPUS, use_machine
from PySide6.QtCore import QPointF, Qt
from PySide6.QtGui import QGuiApplication
from test_a11y import controls
from test_fit_real import servers

from desktop.theme import DARK
from desktop.views.anatomy import words
from desktop.views.anatomy.loaded_wishes import asked_for, wishes_of
from engine.anatomy import HOST, measured_weights
from engine.engine_options import EngineOptions
from engine.fit.plan_records import Wishes


@pytest.fixture
def opened(shell: Any, starter_model: Path) -> Any:
    """The page with the starter model loaded for real."""

    def make(**options: Any) -> tuple[Any, Any]:
        one = shell(real=True)
        one.window.control.load(starter_model, n_ctx=1024, **options)
        one.wait(lambda: one.window.control.state.status == "ready", 60)
        one.window.inside.show_model()
        page = one.window.inside.view.page("model")
        one.wait(lambda: page.picture.anatomy is not None)
        return one, page

    return make


def test_the_loaded_model_as_a_picture(opened: Any, qtbot: Any) -> None:
    one, page = opened()
    found, info = page.picture.anatomy, one.window.control.state.model
    assert found.n_params == info.n_params and len(found.rows) == info.n_layer + 2
    assert page.source.text() == "as llama.cpp placed it"
    assert f"All {info.n_layer + 1} layers" in page.summary.text() and "RAM" in page.summary.text()
    assert info.quantization in page.facts.text() and "135 M parameters" in page.facts.text()
    assert "parameters × 4 bits ÷ 8" in page.weights.words.text()
    table = page.weights.table.table
    assert {row[0] for row in table.rows} == {share.name for share in found.types}
    rows = {row[:2]: row[2:] for row in page.measured.table.table.rows}
    host = next(device for device in info.fit.devices if device.name == "Host")
    assert rows["RAM", "KV"][:2] == (words.size(host.kv_bytes), words.size(host.measured_kv_bytes))
    assert rows["RAM", "KV"][2] == "0.0 %" and len(rows) == 3
    # the sum of all that is painted is the model
    painted = {(row, piece) for row, piece, _ in page.picture._geometry.spots}
    assert painted == {(r, p) for r, row in enumerate(found.rows) for p in range(len(row.pieces))}
    row, piece, rect = next(spot for spot in page.picture._geometry.spots if found.rows[spot[0]].layer == 12)
    tip = page.picture.tip_at(rect.center())
    assert (
        tip.startswith("Layer 12, attention: ")
        and "in RAM" in tip
        and found.rows[row].pieces[piece].types[0].name in tip
    )
    assert "llama.cpp's own buffers here" in page.picture.tip_at(QPointF(rect.left(), 4))
    assert page.picture.tip_at(QPointF(2, page.picture.height() - 1)) == ""
    qtbot.mouseMove(page.picture, rect.center().toPoint())
    one.wait(lambda: page.detail.text() == tip)
    wishes = wishes_of(info)
    assert (wishes.n_ctx, wishes.n_gpu_layers, wishes.n_slots) == (1024, info.n_gpu_layers, info.n_slots)
    assert asked_for(Wishes(n_ctx=512, n_slots=2)) == {"n_ctx": 512, "n_slots": 2}


def test_the_picture_by_key_and_in_words(opened: Any, qtbot: Any) -> None:
    one, page = opened()
    assert page.picture.hasFocus() or page.picture.focusPolicy() == Qt.FocusPolicy.StrongFocus
    page.picture.setFocus()
    for key, start in (
        (Qt.Key.Key_Down, "Embedding: "),
        (Qt.Key.Key_Down, "Layer 0, attention: "),
        (Qt.Key.Key_Right, "Layer 0, feed-forward: "),
        (Qt.Key.Key_PageDown, "Layer 8, feed-forward: "),
        (Qt.Key.Key_End, "Output: "),
        (Qt.Key.Key_Home, "Embedding: "),
        (Qt.Key.Key_Left, "Embedding: "),
    ):
        qtbot.keyClick(page.picture, key)
        assert page.detail.text().startswith(start), key
    assert page.picture.accessibleDescription().startswith("All 31 layers")
    page.as_text.click()
    assert page.text.isVisible() and "layer 29: attention " in page.text.toPlainText()
    page.copy.click()
    said = QGuiApplication.clipboard().text()
    assert said == page.plain_text and "Q4_1: 5, " in said and "llama.cpp's own buffers" in said
    for control in controls(page):
        assert control.accessibleName() or control.property("text"), control.objectName()
    for size in ((720, 480), (1400, 900)):
        one.window.resize(*size)
        page.apply_theme(DARK, 1.5)
        bar = page.scroll_area.horizontalScrollBar()
        one.wait(lambda: page.picture.width() <= page.scroll_area.viewport().width())
        assert bar.maximum() == 0, "nothing is cut off at the right"


def test_what_would_be_otherwise_is_painted_too(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    use_machine(monkeypatch, TWO_GPUS)
    one, page = opened()
    loaded = page.picture.anatomy
    panel = page.panel
    one.wait(lambda: panel.plan is not None)
    assert not page.load.isVisible() and panel.plan.needs.n_ctx == 1024 and panel.plan.needs.n_gpu_layers == 0
    panel.what_if.layers.slider.setValue(21)
    one.wait(lambda: page.picture.anatomy is not loaded)
    assert page.source.text().startswith("as it would be") and page.load.isVisible()
    sums = {place.name: place for place in page.picture.anatomy.places}
    assert sums["CUDA0"].n_layers + sums["CUDA1"].n_layers == 21 and sums[HOST].n_layers == 10
    assert "10 in RAM" in page.summary.text()
    panel.what_if.reset.click()
    one.wait(lambda: page.picture.anatomy is loaded)
    assert page.source.text() == "as llama.cpp placed it" and not page.load.isVisible()


def test_loading_like_this_keeps_what_was_moved(opened: Any, starter_model: Path) -> None:
    one, page = opened()
    before = one.window.control.state.model
    one.wait(lambda: page.panel.plan is not None)
    page.panel.what_if.kv.button("q8_0").click()
    assert page.load.isVisible()
    page.load.click()
    one.wait(lambda: one.window.control.state.status == "ready" and one.window.control.state.model is not before, 60)
    model = one.window.control.state.model
    assert (model.n_ctx, model.kv_type_k, model.kv_type_v) == (1024, "q8_0", "q8_0")
    kept = one.app.engine.settings.model_engine[str(starter_model)]
    assert kept == EngineOptions(kv_type_k="q8_0", kv_type_v="q8_0")
    one.wait(lambda: not page.load.isVisible() and page.panel.what_if.wishes.kv_type_k == "q8_0")


def test_remote_devices_are_known_while_the_model_is_on_them(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """llama.cpp's RPC server talks to one process at a time, and that is the model's."""
    with servers(1) as endpoints:
        monkeypatch.setenv("INGLENOOK_RPC_SERVERS", endpoints[0])
        one, page = opened(n_gpu_layers=10)
        found, info = page.picture.anatomy, one.window.control.state.model
        sums = {place.name: place for place in found.places}
        assert sums["RPC0"].n_layers == 10 and sums[HOST].n_layers == 21
        measured = measured_weights(info)["RPC0"]
        assert abs(measured - sums["RPC0"].n_bytes) < 0.02 * 2**20
        assert f"RPC0 {endpoints[0]}" in page.summary.text() and "21 in RAM" in page.summary.text()
        one.wait(lambda: page.panel.plan is not None)
        plan = page.panel.plan
        assert [fit.name for fit in plan.devices] == ["RPC0"] and plan.needs.n_gpu_layers == 10
        assert plan.devices[0].need.weights_bytes == pytest.approx(measured, abs=0.02 * 2**20)
        one.close()


def test_without_a_model_and_while_hidden(shell: Any, model_file: Path) -> None:
    one = shell()
    one.window.inside.show_model()
    page = one.window.inside.view.page("model")
    assert page.empty.isVisible() and "No model is loaded" in page.empty.text()
    page.choose.click()
    one.wait(lambda: one.window.models.view is not None and one.window.models.view.isVisible())
    one.load(model_file)
    assert page.picture.anatomy is None and page._wanted is None, "nothing is read while it is hidden"
    one.window.inside.show_model()
    one.wait(lambda: "did not say" in page.empty.text())


def test_sizes_and_bits_in_words() -> None:
    assert [words.size(n) for n in (0, 900, 2304, 5 * 2**20, 3 * GIB)] == [
        "0 bytes",
        "900 bytes",
        "2.2 KiB",
        "5.0 MiB",
        "3.0 GiB",
    ]
    assert words.bits(4.0) == "4" and words.bits(4.8) == "4.80"
    assert words.count(576) == "576" and words.count(28_311_552) == "28.3 M"
