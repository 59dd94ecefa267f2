"""What the picker says of the model is what llama.cpp reported."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest
from PySide6.QtCore import Qt

from desktop.theme import DARK
from desktop.views.chat.model_about import about
from desktop.views.chat.model_picker import button_words, chip_words
from engine import backend_words
from engine.backend_words import AddOn
from engine.events import ModelInfo, ModelState, TemplateInfo
from engine.message import ErrorInfo


def model(n_gpu_layers: int, *backends: str) -> ModelInfo:
    return ModelInfo(
        path="/m/q.gguf", name="Qwen3 8B", architecture="qwen3", quantization="Q5_K_M", n_params=8_190_000_000,
        size_bytes=5_800_000_000, n_ctx=8192, n_ctx_train=40960, n_slots=4, n_vocab=151936, n_layer=36, n_embd=4096,
        n_batch=2048, n_ubatch=512, n_threads=6, n_gpu_layers=n_gpu_layers, template=TemplateInfo(source="file"),
        backends=("CPU", *backends),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("info", "words", "tone"),
    [
        (None, "", "neutral"),
        (model(0), "CPU", "neutral"),
        (model(37, "CUDA"), "all 37 layers on GPU", "good"),
        (model(36, "CUDA"), "all 36 layers on GPU", "good"),
        (model(29, "CUDA"), "29 of 37 layers on GPU", "warn"),
    ],
)
def test_the_chip_says_where_the_layers_are(info: ModelInfo | None, words: str, tone: str) -> None:
    text, kind, tip = chip_words(info)
    assert (text, kind) == (words, tone)
    assert bool(tip) == (info is not None)


@pytest.mark.parametrize(
    ("state", "reason", "tone", "warned"),
    [("no_device", "no NVIDIA driver", "neutral", False), ("failed", "its trial process died: SIGSEGV", "warn", True)],
)
def test_a_gpu_add_on_that_is_not_used_is_never_silent(state: str, reason: str, tone: str, warned: bool) -> None:
    found = msgspec.structs.replace(model(0), cpu_module="zen4", add_ons=(AddOn("CUDA", state, reason),))
    text, kind, tip = chip_words(found)
    assert (text, kind) == ("CPU", tone)
    assert f"CPU (zen4) — CUDA add-on: {reason}" in tip
    lines = about(ModelState(status="ready", name="Q", model=found))
    assert f"computes on CPU (zen4) — CUDA add-on: {reason}" in lines
    assert bool(backend_words.broken(found.add_ons)) == warned
    assert "add-on" not in about(ModelState(status="ready", name="Q", model=model(0)))


def test_the_button_names_model_quantization_and_real_context() -> None:
    ready = ModelState(status="ready", name="Qwen3 8B", model=model(0))
    assert button_words(ready) == ("Qwen3 8B", "Q5_K_M · 8,192 ctx")
    assert button_words(ModelState(status="none")) == ("Choose a model", "")
    assert button_words(ModelState(status="loading", name="Q", fraction=0.31)) == ("Q", "loading 31%")
    assert button_words(ModelState(status="loading", name="Q")) == ("Q", "loading"), "no number without real progress"
    failed = ModelState(status="failed", name="Q", error=ErrorInfo("load_failed", "x"))
    assert button_words(failed) == ("Q", "not loaded")


def test_arrows_stay_in_the_list(shell, qtbot, monkeypatch) -> None:
    one = shell()
    popup = one.view.popup
    one.wait(lambda: popup._control._library_known)  # no other list comes after this one
    monkeypatch.setattr(popup._control, "look", lambda: None)
    popup._control.found.disconnect(popup._show_models)  # the look of the start may come in between
    popup.open_below(one.view.header.picker)
    popup.set_state(ModelState(status="ready", name="Qwen3 8B", model=model(0)))  # with a button before the list
    names = [SimpleNamespace(name=n, quantization="Q8_0", size_bytes=1, path=f"/m/{n}") for n in "abcdefghij"]
    popup._show_models(names)
    places = [*popup._rows(), popup.options, popup.open_file]
    one.wait(lambda: all(place.isVisible() for place in places))
    places[0].setFocus()
    for number in range(1, len(places) + 1):
        qtbot.keyClick(popup.focusWidget(), Qt.Key.Key_Down)
        assert popup.focusWidget() is places[number % len(places)]
    qtbot.keyClick(popup.focusWidget(), Qt.Key.Key_Up)
    assert popup.focusWidget() is places[-1]
    popup.hide()


def test_the_list_marks_the_loaded_model(shell, monkeypatch) -> None:
    one = shell()
    popup = one.view.popup
    one.wait(lambda: popup._control._library_known)  # no other list comes after this one
    monkeypatch.setattr(popup._control, "look", lambda: None)
    popup._control.found.disconnect(popup._show_models)  # the look of the start may come in between
    popup.open_below(one.view.header.picker)
    popup._show_models([SimpleNamespace(name=n, quantization="Q8_0", size_bytes=1, path=f"/m/{n}") for n in "abc"])

    def marked() -> list[str]:
        rows = [row for row in popup._rows() if row.check.isVisibleTo(row)]
        assert all(not row.check.pixmap().isNull() for row in rows)
        assert rows == [row for row in popup._rows() if row.accessibleName().endswith(", loaded")]
        return [row.path for row in rows]

    assert marked() == []
    for path in ("/m/b", "/m/c"):
        popup.set_state(ModelState(status="ready", path=path, name="Q", model=model(0)))
        assert marked() == [path]
    popup._show_models([SimpleNamespace(name=n, quantization="Q8_0", size_bytes=1, path=f"/m/{n}") for n in "xc"])
    assert marked() == ["/m/c"], "also in a list that is made anew"
    popup.apply_theme(DARK, 2.0)
    assert marked() == ["/m/c"]
    popup.set_state(ModelState(status="loading", path="/m/c", name="Q"))
    assert marked() == []
    popup.hide()
