"""Discovering models: the catalogue without a network, the Hub on request, the page of one model."""

from __future__ import annotations

import time

import pytest
from models_help import (
    GIB,
    LAPTOP,
    NO_GPU,
    StandInDownloads,
    choose,
    hits,
    open_models,
    repo_info,
    use_machine,
)
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication

from desktop.models.hub_results import GOOD, LARGER
from engine.errors import HubAccessDenied, HubUnreachable
from engine.models.hub import SearchPage

QWEN = "catalog:qwen3-8b"


@pytest.fixture
def laptop(monkeypatch: pytest.MonkeyPatch) -> None:
    use_machine(monkeypatch, LAPTOP)


def rows_under(view, heading: str) -> list:
    rows, under = [], ""
    for row in view.discover.list.rows.rows:
        if not row.key:
            under = row.title
        elif under == heading:
            rows.append(row)
    return rows


def test_the_catalogue_stands_without_a_network(shell, laptop, qtbot) -> None:
    one = shell()
    qtbot.keyClick(one.window, Qt.Key.Key_2, Qt.KeyboardModifier.ControlModifier)
    view = one.window.models.view
    assert view is not None and view.isVisible() and one.window.rail_models.isChecked()
    one.wait(lambda: len(rows_under(view, GOOD)) > 10)
    good, larger = rows_under(view, GOOD), rows_under(view, LARGER)
    assert {row.key: row for row in good}[QWEN].chip.words == "fits"
    assert larger and all(row.chip.words == "too large" for row in larger)
    assert all(row.line.startswith("needs ") or "likely" not in row.chip.words for row in larger)
    tones = {row.chip.tone for row in good}
    assert "bad" not in tones and "good" in tones


def test_the_most_capable_that_fits_stands_first(shell, laptop) -> None:
    one = shell()
    view = open_models(one)
    first = rows_under(view, GOOD)[0]
    assert first.chip.words == "fits"
    sizes = {f"catalog:{model.id}": model.n_params for model in view.discover.catalog}
    fitting = [sizes[row.key] for row in rows_under(view, GOOD) if row.chip.words == "fits"]
    assert sizes[first.key] == max(fitting)


def test_a_machine_without_a_gpu_calls_what_fits_fitting(shell, monkeypatch) -> None:
    use_machine(monkeypatch, NO_GPU)
    one = shell()
    view = open_models(one)
    assert {row.chip.words for row in rows_under(view, GOOD)} <= {"fits", "likely fits"}
    choose(one, view, "catalog:qwen3-4b-2507") if view.discover.list.rows.index_of(
        "catalog:qwen3-4b-2507"
    ).isValid() else choose(one, view, rows_under(view, GOOD)[0].key)
    assert not view.model_page.fit_panel.what_if.layers.isVisible()
    assert len(view.model_page.fit_panel.where.bars) == 1


def test_the_page_marks_the_best_and_says_why(shell, laptop) -> None:
    one = shell()
    view = open_models(one)
    choose(one, view, QWEN)
    page = view.model_page
    rows = page.table.table.rows
    assert page.title.text() == "Qwen3 8B" and "36 layers" in page.facts_below.text()
    assert [row.size_bytes for row in rows] == sorted((row.size_bytes for row in rows), reverse=True)
    best = [row for row in rows if row.best]
    assert len(best) == 1 and best[0].plan.verdict == "gpu"
    larger = [row for row in rows if row.size_bytes > best[0].size_bytes and (row.bits or 0) <= 9]
    assert all(row.plan.verdict != "gpu" for row in larger)
    assert best[0].label in page.best_text.text() and "GPU" in page.best_text.text()
    assert page.table.current_row == best[0]
    assert page.table.button.isVisible() and page.table.button.text() == "Download"
    assert "tokens" in page.table.table.memory_heading


def test_a_dense_model_has_no_slider_for_experts_a_mixture_has(shell, laptop) -> None:
    one = shell()
    view = open_models(one)
    choose(one, view, QWEN)
    assert not view.model_page.fit_panel.what_if.experts.isVisibleTo(view)
    choose(one, view, "catalog:gpt-oss-20b")
    one.wait(lambda: view.model_page.fit_panel.what_if.experts.isVisibleTo(view))


@pytest.mark.serial
def test_every_move_is_followed_within_50_ms(shell, laptop) -> None:
    from heartbeat import Heartbeat

    one = shell()
    view = open_models(one)
    choose(one, view, QWEN)
    panel = view.model_page.fit_panel
    slider = panel.what_if.context.slider
    one.wait(lambda: panel.what_if.source.text() != "")
    waits = []
    with Heartbeat() as beat:
        for position in [*range(slider.minimum(), slider.maximum()), *range(slider.maximum(), slider.minimum(), -1)]:
            before = panel.plan
            start = time.perf_counter()
            slider.setValue(position)
            QApplication.processEvents()
            while panel.plan is before and time.perf_counter() < start + 5:
                QApplication.processEvents()
            waits.append(time.perf_counter() - start)
    assert panel.plan.options.n_ctx == panel.what_if.wishes.n_ctx
    print("ms from move to bar:", [round(wait * 1000, 1) for wait in sorted(waits)])
    # the aim is 50 ms; on a busy machine only a multiple of it is a fault
    assert sorted(waits)[len(waits) // 2] < 0.2, waits
    assert beat.longest_turn_s < 0.2


def test_layers_and_cache_change_the_bars(shell, laptop) -> None:
    one = shell()
    view = open_models(one)
    choose(one, view, QWEN)
    panel = view.model_page.fit_panel
    full = panel.plan
    panel.what_if.layers.slider.setValue(10)
    one.wait(lambda: panel.plan.needs.n_gpu_layers == 10)
    gpu, host = panel.where.bars
    assert gpu.parts[0].n_bytes < full.devices[0].need.weights_bytes
    assert host.parts[0].n_bytes > full.host.need.weights_bytes
    assert "10 of 37" in panel.where.chip.text()
    kv = panel.plan.devices[0].need.kv_bytes
    panel.what_if.kv.button("q4_0").click()
    one.wait(lambda: panel.plan.options.kv_type_k == "q4_0")
    assert panel.plan.devices[0].need.kv_bytes < kv / 2
    assert panel.what_if.reset.isVisible()
    panel.what_if.reset.click()
    one.wait(lambda: panel.plan.needs.n_gpu_layers == full.needs.n_gpu_layers)
    assert not panel.what_if.reset.isVisible()


def test_the_figures_say_whose_count_they_are(shell, laptop) -> None:
    one = shell()
    view = open_models(one)
    choose(one, view, QWEN)
    panel = view.model_page.fit_panel
    one.wait(lambda: panel.what_if.source.text() == "memory is llama.cpp's own count", 40)
    assert panel.plan.source == "probe"
    panel.what_if.context.slider.setValue(3)
    one.wait(lambda: panel.what_if.source.text().startswith("estimate"))


# ---- the Hub


def test_typing_filters_and_asks_nobody(shell, laptop, qtbot) -> None:
    one = shell()
    hub = StandInDownloads()
    view = open_models(one, hub)
    qtbot.keyClicks(view.discover.search, "gemma")
    rows = [row for row in view.discover.list.rows.rows if row.key]
    assert rows and all("gemma" in f"{row.title}{row.tip}".lower() for row in rows)
    qtbot.wait(400)
    assert hub.asked == []


def test_offline_says_so_and_the_catalogue_stays(shell, laptop, qtbot) -> None:
    one = shell()
    answers = [HubUnreachable("huggingface.co cannot be reached", hint="Check the network connection.")]
    hub = StandInDownloads(lambda query, cursor: answers[0])
    view = open_models(one, hub)
    before = len(view.discover.list.rows.rows)
    qtbot.keyClick(view.discover.search, Qt.Key.Key_Return)
    one.wait(lambda: view.discover.state.title.text() == "The Hub cannot be reached")
    assert "Check the network" in view.discover.state.text.text()
    assert len(view.discover.list.rows.rows) == before
    answers[0] = SearchPage(hits("a/One-GGUF"))
    view.discover.state.retry.click()
    one.wait(lambda: view.discover.list.rows.index_of("hub:a/One-GGUF").isValid())
    assert view.discover.state.isHidden()


def test_pages_are_added_below(shell, laptop, qtbot) -> None:
    one = shell()
    pages = {"": SearchPage(hits("a/One", "a/Two"), "next"), "next": SearchPage(hits("b/Three"))}
    hub = StandInDownloads(lambda query, cursor: pages[cursor])
    view = open_models(one, hub)
    qtbot.keyClicks(view.discover.search, "qwen")
    qtbot.mouseClick(view.discover.go, Qt.MouseButton.LeftButton)
    one.wait(lambda: view.discover.more.isVisible())
    qtbot.mouseClick(view.discover.more, Qt.MouseButton.LeftButton)
    one.wait(lambda: view.discover.list.rows.index_of("hub:b/Three").isValid())
    assert [row.title for row in view.discover.list.rows.rows if row.key] == ["One", "Two", "Three"]
    assert not view.discover.more.isVisible()
    assert hub.asked == [("search", "qwen", ""), ("search", "qwen", "next")]
    view.discover.back.click()
    assert view.discover.list.rows.index_of(QWEN).isValid()


def test_nothing_found_is_said(shell, laptop) -> None:
    one = shell()
    view = open_models(one, StandInDownloads())
    view.discover.search.setText("no such thing")
    view.discover.ask_hub()
    one.wait(lambda: view.discover.state.title.text() == "Nothing found")


def test_an_answer_to_older_words_is_no_answer(shell, laptop) -> None:
    one = shell()
    view = open_models(one, StandInDownloads(lambda query, cursor: SearchPage(hits(f"x/{query}"))))
    view.discover.search.setText("first")
    view.discover.ask_hub()
    view.discover.search.setText("second")
    one.qtbot.wait(200)
    assert not view.discover.list.rows.index_of("hub:x/first").isValid()


def test_a_gated_repository_asks_for_a_token(shell, laptop, qtbot, monkeypatch) -> None:
    from engine.models import hub_token

    kept: dict[str, str] = {}
    monkeypatch.setattr(hub_token, "save", lambda endpoint, token: kept.update({endpoint: token}))
    one = shell()
    hub = StandInDownloads(lambda query, cursor: SearchPage(hits("maker/Model-GGUF")))
    hub.info_answer = HubAccessDenied("maker/Model-GGUF is open only to those who accepted its terms")
    view = open_models(one, hub)
    view.discover.ask_hub()
    one.wait(lambda: view.discover.list.rows.index_of("hub:maker/Model-GGUF").isValid())
    view.discover.list.clicked.emit(view.discover.list.rows.index_of("hub:maker/Model-GGUF"))
    state = view.model_page.state
    one.wait(lambda: state.token.isVisible())
    assert state.title.text() == "Access has to be asked for"
    hub.info_answer = repo_info()
    qtbot.keyClicks(state.token, "hf_secret")
    qtbot.keyClick(state.token, Qt.Key.Key_Return)
    one.wait(lambda: len(view.model_page.table.table.rows) == 3)
    assert list(kept.values()) == ["hf_secret"] and state.token.text() == ""


def test_a_repository_is_judged_by_one_header(shell, laptop) -> None:
    one = shell()
    hub = StandInDownloads(lambda query, cursor: SearchPage(hits("maker/Model-GGUF")))
    view = open_models(one, hub)
    view.discover.ask_hub()
    one.wait(lambda: view.discover.list.rows.index_of("hub:maker/Model-GGUF").isValid())
    choose(one, view, "hub:maker/Model-GGUF")
    rows = view.model_page.table.table.rows
    one.wait(lambda: all(row.plan is not None for row in view.model_page.table.table.rows))
    rows = view.model_page.table.table.rows
    assert [row.label for row in rows] == ["Q8_0", "Q5_K_M", "Q4_K_M"]
    assert [entry[0] for entry in hub.asked].count("header") == 1
    weights = [
        row.plan.host.need.weights_bytes + sum(fit.need.weights_bytes for fit in row.plan.devices) for row in rows
    ]
    for row, held in zip(rows, weights, strict=True):
        assert held == pytest.approx(row.size_bytes, rel=0.02)
    assert "8.19 B parameters" in view.model_page.facts_below.text()


def test_the_button_downloads_and_the_badge_counts(shell, laptop, qtbot) -> None:
    one = shell()
    hub = StandInDownloads()
    hub.info_answer = repo_info("Qwen/Qwen3-8B-GGUF", ("Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q3_K_M"))
    view = open_models(one, hub)
    choose(one, view, QWEN)
    page = view.model_page
    assert not view.badge.isVisible()
    one.wait(lambda: page.table.button.isVisible())
    qtbot.mouseClick(page.table.button, Qt.MouseButton.LeftButton)
    one.wait(lambda: view.badge.text() == "1")
    label = next(entry for entry in hub.asked if entry[0] == "add")[2]
    assert page.table.current_row.label == label and page.table.button.text() == "0 %"
    assert "not finished" in view.tabs[2].accessibleName()


def test_the_card_opens_on_a_click_only(shell, laptop, qtbot, monkeypatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("desktop.commands.QDesktopServices.openUrl", lambda url: opened.append(url.toString()))
    one = shell()
    view = open_models(one)
    choose(one, view, QWEN)
    assert opened == []
    qtbot.mouseClick(view.model_page.card, Qt.MouseButton.LeftButton)
    assert len(opened) == 1 and opened[0].startswith("https://huggingface.co/") and opened[0].endswith("GGUF")


def test_sizes_above_two_gibibytes_stay_what_they_are(shell, laptop) -> None:
    one = shell()
    hub = StandInDownloads()
    hub.info_answer = repo_info()
    view = open_models(one, hub)
    choose(one, view, QWEN)
    assert max(row.size_bytes for row in view.model_page.table.table.rows) > 8 * GIB // 10 * 9


def test_a_model_shown_from_elsewhere_stays_when_the_list_is_judged(shell, laptop) -> None:
    one = shell()
    view = one.window.show_models()
    view.show_model("some/where-GGUF")
    assert not view.discover._judged
    one.wait(lambda: view.discover._judged)
    QApplication.processEvents()
    assert view.model_page.repo == "some/where-GGUF"
