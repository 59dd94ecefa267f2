"""The first start: three steps, nothing blocked, gone when it is not wanted."""

from __future__ import annotations

from pathlib import Path

import pytest
from models_help import LAPTOP, NO_GPU, StandInDownloads, repo_info, use_machine
from PySide6.QtCore import Qt

from desktop.models.best_quant import middle_tps
from desktop.models.catalog_rows import READABLE_TPS
from desktop.views.first_run.recommend import recommend
from engine.errors import HubUnreachable
from engine.events import DownloadChanged, DownloadInfo
from engine.fit.plan_records import Wishes
from engine.fit.planner import plan
from engine.models.catalog import load


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    use_machine(monkeypatch, LAPTOP)
    monkeypatch.setenv("HOME", str(home))


def first_run(one):
    one.wait(lambda: one.window.models.first_run is not None)
    page = one.window.models.first_run
    one.wait(lambda: page.verdict.text() != "")
    return page


def test_an_empty_profile_is_welcomed(shell) -> None:
    one = shell(load_model=True)
    page = first_run(one)
    assert one.window.views.currentWidget() is page and page.isVisible()
    assert "RTX 4070 Laptop with 7.6 GiB of 8.0 GiB free" in page.machine.text()
    assert "fast enough to read along" in page.verdict.text()
    for card in page.cards.values():
        assert card.recommendation is not None and "tok/s" in card.words.text() and "GiB" in card.words.text()
        assert card.button.isEnabled()
    assert page.chat.hasFocus() or not one.window.isActiveWindow()


@pytest.mark.parametrize("given", [LAPTOP, NO_GPU], ids=["laptop", "no gpu"])
def test_what_is_recommended_fits_and_can_be_read_along(given) -> None:
    models = load().models
    headers = {model.id: model.header(model.quant) for model in models}
    plans = {key: plan(header, given, Wishes(n_slots=4)) for key, header in headers.items() if header is not None}
    found = recommend(models, plans)
    assert set(found) == {"chat", "reasoning", "code", "small"}
    for purpose, one in found.items():
        assert purpose in one.model.purposes and not one.model.gated
        assert one.plan.verdict in ("gpu", "cpu", "split") and middle_tps(one.plan) >= READABLE_TPS
    assert found["small"].model.n_params <= found["chat"].model.n_params


def test_nothing_is_recommended_where_nothing_is_known() -> None:
    assert recommend(load().models, {}) == {}


def test_it_goes_when_it_is_skipped_and_never_comes_again(shell, qtbot) -> None:
    one = shell(load_model=True)
    page = first_run(one)
    qtbot.mouseClick(page.close_button, Qt.MouseButton.LeftButton)
    assert one.window.views.currentWidget() is one.window.chat_page
    one.close()
    again = shell(load_model=True)
    again.wait(lambda: again.window.chat_list.model is not None)
    qtbot.wait(400)
    assert again.window.models.first_run is None


def test_it_blocks_nothing(shell, qtbot) -> None:
    one = shell(load_model=True)
    first_run(one)
    qtbot.keyClick(one.window, Qt.Key.Key_2, Qt.KeyboardModifier.ControlModifier)
    assert one.window.models.view.isVisible()
    qtbot.keyClick(one.window, Qt.Key.Key_1, Qt.KeyboardModifier.ControlModifier)
    assert one.window.chat_view.isVisible()


def test_a_profile_with_a_model_is_not_welcomed(shell, qtbot, model_file: Path) -> None:
    one = shell()
    one.load(model_file)
    one.wait(lambda: one.app.engine.settings.last_model != "")
    one.close()
    again = shell(load_model=True)
    qtbot.wait(400)
    assert again.window.models.first_run is None


def test_download_from_the_card_and_chat_meanwhile(shell, qtbot) -> None:
    one = shell(load_model=True)
    page = first_run(one)
    hub = StandInDownloads()
    one.app.engine.library.downloads.stop()
    one.app.engine.library.downloads = hub
    card = page.cards["chat"]
    repo, quant = card.recommendation.model.repo, card.recommendation.model.quant
    hub.info_answer = HubUnreachable("huggingface.co cannot be reached", hint="Check the network.")
    qtbot.mouseClick(card.button, Qt.MouseButton.LeftButton)
    one.wait(page.error.isVisible)
    assert "cannot be reached" in page.error.text() and card.button.isEnabled()
    hub.info_answer = repo_info(repo, ("Q8_0", quant))
    qtbot.mouseClick(card.button, Qt.MouseButton.LeftButton)
    one.wait(lambda: ("add", repo, quant) in hub.asked)
    emit = one.app.engine._emit
    emit(DownloadChanged(download=DownloadInfo("d1", repo, quant, "running", 10, 40, 1e6, 30.0)))
    one.wait(lambda: card.bar.isVisible() and card.bar.value() == 250)
    assert card.button.text() == "Downloading" and not page.error.isVisible()
    qtbot.mouseClick(page.chat, Qt.MouseButton.LeftButton)
    assert one.window.chat_view.isVisible()
