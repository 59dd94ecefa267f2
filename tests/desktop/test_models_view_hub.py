"""As a new user would: from an empty profile to a chat with a downloaded model, by mouse only and by keyboard only.

The hub is on loopback and speaks the real API; the model is the starter's file, llama.cpp is real.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from models_help import LAPTOP, use_machine
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QWidget

sys.path.insert(0, str(Path(__file__).parent.parent / "hub"))

from hub_server import Hub, Repo, Stored

from desktop.views.hub.models_view import DISCOVER, DOWNLOADS, LIBRARY
from engine.sampling import SamplingParams

REPO = "tiny/SmolLM2-135M-Instruct-GGUF"
FILE = "SmolLM2-135M-Instruct-Q4_1.gguf"
#: drawn at random, an answer of this small model is sometimes a word and sometimes nothing
GREEDY = SamplingParams(temperature=0.0, max_tokens=400)


@pytest.fixture
def hub(starter_model: Path, monkeypatch: pytest.MonkeyPatch, home: Path) -> Iterator[Hub]:
    """A hub with the starter's file under another name, a gated repository and one that is no model."""
    use_machine(monkeypatch, LAPTOP)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "HF_TOKEN", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("HF_HOME", str(home / "hf"))
    monkeypatch.setattr("engine.models.hub_token.keyring_module", lambda: None)
    repos = {
        REPO: Repo({FILE: Stored(disk=starter_model), "README.md": Stored(b"# tiny", lfs=False)}),
        "closed/Gated-GGUF": Repo({"gated-Q8_0.gguf": Stored(b"GGUF" * 100)}, gated="manual"),
    }
    with Hub(repos) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        yield server


def click(qtbot: Any, widget: QWidget) -> None:
    assert widget.isVisible() and widget.isEnabled(), widget.objectName()
    qtbot.mouseClick(widget, Qt.MouseButton.LeftButton)


def click_row(qtbot: Any, view: Any, index: Any) -> None:
    view.scrollTo(index)
    qtbot.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=view.visualRect(index).center())


def test_by_mouse_only(shell, hub: Hub, qtbot) -> None:
    one = shell(real=True)
    one.result(one.app.engine.change_settings(sampling=GREEDY))
    click(qtbot, one.window.rail_models)
    view = one.window.models.view
    assert hub.calls == []
    click(qtbot, view.discover.go)
    one.wait(lambda: view.discover.list.rows.index_of(f"hub:{REPO}").isValid(), 30)
    click_row(qtbot, view.discover.list, view.discover.list.rows.index_of(f"hub:{REPO}"))
    page = view.model_page
    rows = page.table.table
    one.wait(lambda: any(row.label == "Q4_1" and row.plan is not None for row in rows.rows), 30)
    assert rows.rows[0].label == "Q4_1" and "135 M parameters" in page.facts_below.text()
    one.wait(page.table.button.isVisible)
    click(qtbot, page.table.button)
    one.wait(lambda: view.tabs[DOWNLOADS].isVisible() and bool(one.window.models.desk.downloads.infos), 30)
    click(qtbot, view.tabs[DOWNLOADS])
    one.wait(lambda: bool(view.downloads_page.strips) and view.downloads_page.strips[0].buttons["show"].isVisible(), 60)
    assert not view.badge.isVisible()
    one.wait(lambda: one.window.models.desk.here(REPO, "Q4_1", FILE) is not None)
    click(qtbot, view.downloads_page.strips[0].buttons["show"])
    one.wait(lambda: view.tab == LIBRARY and view.library_page.path.endswith(FILE))
    row = next(row for row in view.library.list.rows.rows if row.key.endswith(FILE))
    assert row.chip is not None and row.chip.words == "verified"
    panel = view.library_page.load_panel
    one.wait(lambda: panel.load.isEnabled() and panel.panel.plan is not None)
    click(qtbot, panel.load)
    one.wait(lambda: one.window.control.state.status == "ready", 60)
    click(qtbot, one.window.rail_chat)
    one.wait(one.view.empty.isVisible)
    click(qtbot, one.view.empty._samples[2])
    click(qtbot, one.view.composer.send)
    one.wait(lambda: len(one.presenter.messages) >= 2 and bool(one.presenter.messages[-1].text.strip()), 60)
    one.presenter.stop()
    one.wait(lambda: not one.presenter.generating, 30)
    click(qtbot, one.window.rail_models)
    click(qtbot, view.tabs[DISCOVER])
    one.wait(lambda: page.table.button.text() == "Load")


def press(qtbot: Any, key: Any, modifier: Any = Qt.KeyboardModifier.NoModifier) -> None:
    qtbot.keyClick(QApplication.focusWidget(), key, modifier)


def tab_to(qtbot: Any, name: str, most: int = 60) -> QWidget:
    """Press Tab until the control of this name has the keyboard."""
    for _ in range(most):
        focused = QApplication.focusWidget()
        if focused is not None and focused.objectName() == name:
            return focused
        press(qtbot, Qt.Key.Key_Tab)
    raise AssertionError(f"Tab does not reach {name}")


def test_by_keyboard_only(shell, hub: Hub, qtbot) -> None:
    one = shell(real=True)
    one.result(one.app.engine.change_settings(sampling=GREEDY))
    one.window.activateWindow()
    one.wait(lambda: QApplication.focusWidget() is not None)
    press(qtbot, Qt.Key.Key_2, Qt.KeyboardModifier.ControlModifier)
    view = one.window.models.view
    one.wait(lambda: QApplication.focusWidget() is view.discover.search)
    qtbot.keyClicks(QApplication.focusWidget(), "SmolLM2")
    press(qtbot, Qt.Key.Key_Return)
    one.wait(lambda: view.discover.list.rows.index_of(f"hub:{REPO}").isValid(), 30)
    press(qtbot, Qt.Key.Key_Down)
    assert QApplication.focusWidget() is view.discover.list
    while view.discover.list.currentIndex() != view.discover.list.rows.index_of(f"hub:{REPO}"):
        press(qtbot, Qt.Key.Key_Down)
    press(qtbot, Qt.Key.Key_Return)
    page = view.model_page
    one.wait(lambda: any(row.label == "Q4_1" and row.plan is not None for row in page.table.table.rows), 30)
    tab_to(qtbot, "quant_table")
    press(qtbot, Qt.Key.Key_Return)
    one.wait(lambda: bool(one.window.models.desk.downloads.infos), 30)
    one.wait(lambda: one.window.models.desk.here(REPO, "Q4_1", FILE) is not None, 60)
    tab_to(qtbot, "tab_library")
    press(qtbot, Qt.Key.Key_Space)
    one.wait(lambda: view.tab == LIBRARY and len(view.library.list.rows.rows) == 1)
    tab_to(qtbot, "library_list")
    press(qtbot, Qt.Key.Key_Return)
    one.wait(lambda: one.window.control.state.status == "ready", 60)
    press(qtbot, Qt.Key.Key_1, Qt.KeyboardModifier.ControlModifier)
    one.wait(lambda: QApplication.focusWidget() is one.view.composer.edit)
    qtbot.keyClicks(QApplication.focusWidget(), "Say hello.")
    press(qtbot, Qt.Key.Key_Return)
    one.wait(lambda: len(one.presenter.messages) >= 2 and len(one.presenter.messages[-1].text) > 1, 60)
    one.presenter.stop()
    one.wait(lambda: not one.presenter.generating, 30)


def test_a_hub_that_is_not_there(shell, hub: Hub, monkeypatch, qtbot) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    one = shell()
    view = one.window.show_models()
    one.wait(lambda: view.discover._judged)
    click(qtbot, view.discover.go)
    one.wait(lambda: view.discover.state.title.text() == "The Hub cannot be reached", 30)
    assert len([row for row in view.discover.list.rows.rows if row.key]) > 30


def test_a_gated_repository_on_the_real_protocol(shell, hub: Hub, qtbot) -> None:
    one = shell()
    view = one.window.show_models()
    view.discover.search.setText("Gated")
    view.discover.ask_hub()
    one.wait(lambda: view.discover.list.rows.index_of("hub:closed/Gated-GGUF").isValid(), 30)
    view.discover.list.clicked.emit(view.discover.list.rows.index_of("hub:closed/Gated-GGUF"))
    state = view.model_page.state
    one.wait(lambda: state.title.text() not in ("", "Reading the header of one file…") and state.token.isVisible(), 30)
    assert state.title.text() == "Access has to be asked for"


def test_pause_and_resume_end_in_the_same_file(shell, hub: Hub, starter_model: Path, qtbot) -> None:
    hub.faults.append(lambda call: setattr(call, "stall_at", 2_000_000) if call.is_file and call.number == 1 else None)
    hub.faults.append(lambda call: setattr(call, "stall_s", 0.5) if call.is_file else None)
    one = shell()
    view = one.window.show_models()
    view.show_model(REPO)
    one.wait(lambda: view.model_page.table.button.isVisible(), 30)
    click(qtbot, view.model_page.table.button)
    one.wait(lambda: bool(view.downloads_page.strips), 30)
    view.show_tab(DOWNLOADS)
    strip = view.downloads_page.strips[0]
    one.wait(lambda: strip.buttons["pause"].isVisible() or strip.buttons["show"].isVisible(), 30)
    if strip.buttons["pause"].isVisible():
        click(qtbot, strip.buttons["pause"])
        one.wait(lambda: strip.buttons["resume"].isVisible() or strip.buttons["show"].isVisible(), 30)
    if strip.buttons["resume"].isVisible():
        assert "paused" in strip.words.text()
        click(qtbot, strip.buttons["resume"])
    one.wait(strip.buttons["show"].isVisible, 60)
    path = Path(one.window.models.desk.downloads.infos[0].paths[0])
    assert path.read_bytes() == starter_model.read_bytes()
