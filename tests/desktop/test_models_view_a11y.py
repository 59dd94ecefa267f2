"""Every control of the models' views has a name, a tooltip and a way to it by keyboard; texts stay on the page."""

from __future__ import annotations

from pathlib import Path

import pytest
from models_help import LAPTOP, StandInDownloads, choose, open_models, use_machine
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QAbstractButton, QLabel, QSlider, QWidget
from test_a11y import controls
from tiny_models import lora

from desktop.views.hub.models_view import DISCOVER, DOWNLOADS, LIBRARY
from engine.events import DownloadChanged, DownloadInfo

NAMES = {
    *("models_view", "models_panel", "tab_discover", "tab_library", "tab_downloads", "search_models", "search_hub"),
    *("discover_list", "hub_state", "hub_token", "more_results", "quant_table", "download", "model_card"),
    *("what_if_context", "what_if_layers", "what_if_experts", "what_if_chats", "what_if_kv", "memory_legend"),
    *("library_list", "filter_library", "import_model", "rescan", "verify", "reveal", "delete_model", "load_model"),
    *("downloads_badge", "download_strip", "download_progress", "download_pause", "free_space", "fit_verdict"),
}


@pytest.fixture
def everything(shell, monkeypatch: pytest.MonkeyPatch, home: Path, starter_model: Path):
    use_machine(monkeypatch, LAPTOP)
    monkeypatch.setenv("HOME", str(home))
    one = shell()
    folder = one.app.engine.library.folder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mine.gguf").symlink_to(starter_model)
    lora(folder / "mine-lora.gguf", starter_model, targets=["blk.0.attn_q.weight"])
    view = open_models(one, StandInDownloads())
    choose(one, view, "catalog:gpt-oss-20b")
    one.app.engine._emit(DownloadChanged(download=DownloadInfo("d", "a/b", "Q4_0", "running", 5, 10)))
    one.wait(lambda: len(view.downloads_page.strips) == 1 and len(view.library.list.rows.rows) == 1)
    view.show_tab(LIBRARY)
    panel = view.library_page.load_panel
    one.wait(lambda: panel.panel.plan is not None and len(panel.adapters.rows) == 1)
    panel.adapters.rows[0].box.click()
    panel.advanced.fold.click()
    return one, view


def named(view: QWidget) -> list[QWidget]:
    return [*controls(view), *view.findChildren(QSlider)]


def test_names_and_tooltips(everything) -> None:
    _, view = everything
    found = named(view)
    assert len(found) > 50
    nameless = [w for w in found if not (w.accessibleName() or (isinstance(w, QAbstractButton) and w.text()))]
    tipless = [w for w in found if not w.toolTip()]
    assert [f"{type(w).__name__} {w.objectName()}" for w in nameless] == []
    assert [f"{type(w).__name__} {w.objectName()}" for w in tipless] == []
    unnamed = [w for w in found if not w.objectName()]
    assert [f"{type(w).__name__} {w.accessibleName()}" for w in unnamed] == []


def test_the_names_that_tests_and_readers_rely_on(everything) -> None:
    _, view = everything
    have = {widget.objectName() for widget in [view, *view.findChildren(QWidget)]}
    assert have >= NAMES, NAMES - have


@pytest.mark.parametrize("tab", [DISCOVER, LIBRARY, DOWNLOADS])
def test_tab_reaches_every_control_that_can_be_seen(everything, qtbot, tab: int) -> None:
    one, view = everything
    view.show_tab(tab)
    view.focus_first()
    qtbot.wait(50)
    wanted = {
        w
        for w in named(view)
        if w.isVisible() and w.isEnabled() and w.focusPolicy() & Qt.FocusPolicy.TabFocus and w.objectName()
    }
    reached: set[QWidget] = set()
    for _ in range(120):
        focused = one.window.focusWidget()
        if focused in reached and len(reached) > len(wanted):
            break
        reached.add(focused)
        qtbot.keyClick(focused, Qt.Key.Key_Tab)
    assert [w.objectName() for w in wanted - reached] == []


@pytest.mark.parametrize("scale", [1.0, 2.0])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_button_is_cut_off(shell, monkeypatch, home: Path, scale: float, theme: str) -> None:
    use_machine(monkeypatch, LAPTOP)
    monkeypatch.setenv("HOME", str(home))
    one = shell(theme=theme)
    one.window.resize(1180, 780)
    one.app.engine.change_settings(text_scale=scale)
    view = open_models(one, StandInDownloads())
    choose(one, view, "catalog:qwen3-8b")
    one.qtbot.wait(100)
    for tab in (DISCOVER, LIBRARY, DOWNLOADS):
        view.show_tab(tab)
        one.qtbot.wait(30)
        for button in view.findChildren(QAbstractButton):
            if button.isVisible() and button.text():
                need = button.fontMetrics().horizontalAdvance(button.text())
                assert button.width() >= need, f"{button.objectName()} is {button.width()} wide, needs {need}"
        for label in view.findChildren(QLabel):
            if label.isVisible() and label.text() and not label.wordWrap() and label.objectName() == "downloads_badge":
                assert label.width() >= label.sizeHint().width()
