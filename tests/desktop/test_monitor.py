"""The monitor: figures by the worker's clock, nothing stale or invented, and nothing done while it is not seen."""

from __future__ import annotations

import csv
import io
import math
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PySide6.QtCore import QEvent, QPoint
from PySide6.QtGui import QGuiApplication, QHelpEvent
from PySide6.QtWidgets import QApplication, QToolTip
from test_a11y import controls

from desktop.views.monitor import lines, machine_lines, report
from desktop.views.monitor.cache_map import CacheMap, runs_of
from desktop.views.monitor.feed import Look
from desktop.views.monitor.places import places_of
from desktop.views.monitor.runs import Run, step_times, total_now
from engine import events
from engine.figures import DeviceFigures, FitSummary
from engine.message import GenerationRecord, Timings, Usage

GIB, MIB = 2**30, 2**20


def token(index: int, time_s: float, *, drafted: bool = False, forced: bool = False) -> events.Token:
    return events.Token(index=index, token_id=index, piece=b"a", time_s=time_s, drafted=drafted, forced=forced)


# ---- speed


def test_three_numbers_by_the_workers_clock() -> None:
    """Case B26: reading the prompt is no part of the decode speed, and the wait is counted."""
    run = Run(1)
    run.add(events.PromptProgress(n_prompt=100, n_cached=20, n_done=20, elapsed_s=0.0), 0.0)
    run.add(
        events.PromptProgress(
            n_prompt=100, n_cached=20, n_done=100, elapsed_s=2.0, n_chunk=80, first=20, began_s=0.0, took_s=2.0
        ),
        2.0,
    )
    assert run.prefill_now == pytest.approx(40)
    assert run.decode_now(2.0) is None and run.speeds.decode_tps is None
    steps = [run.add(token(i, 2.0 + i * 0.04), 2.0 + i * 0.04) for i in range(43)]
    assert steps[0] is None and steps[1:] == [pytest.approx(0.04)] * 42
    assert run.speeds.ttft_s == 2.0 and run.prefill_now is None
    assert run.decode_now(2.0 + 42 * 0.04) == pytest.approx(25, rel=0.01)
    assert run.speeds.decode_tps == pytest.approx(25, rel=0.01)


def test_tokens_that_a_branch_begins_with_have_no_speed() -> None:
    """They come all at once, and none of them was computed by a step of its own."""
    run = Run(1)
    given = [run.add(token(i, 1.0 + i * 0.001, forced=True), 1.03) for i in range(200)]
    assert given == [None] * 200 and run.decode_now(1.3) is None
    assert run.speeds.ttft_s is None and run.speeds.decode_tps is None
    steps = [run.add(token(200 + i, 1.1 + i * 0.08), 1.1 + i * 0.08) for i in range(20)]
    assert steps[1:] == [pytest.approx(0.08)] * 19 and run.n_written == 220
    assert run.decode_now(1.1 + 19 * 0.08) == pytest.approx(12.5, rel=0.03)
    assert run.speeds.decode_tps == pytest.approx(12.5) and run.speeds.ttft_s == pytest.approx(1.1)
    pair = Run(2)
    pair.add(token(0, 5.0), 5.0)
    pair.add(token(1, 5.001), 5.001)
    assert pair.decode_now(5.001) is None, "two that came together say nothing of the speed"


def test_one_token_has_no_speed_and_a_halt_leaves_none() -> None:
    run = Run(1)
    run.add(token(0, 0.5), 0.5)
    assert run.decode_now(0.5) is None
    for i in range(1, 10):
        run.add(token(i, 0.5 + i * 0.1), 0.5 + i * 0.1)
    assert run.decode_now(1.5) == pytest.approx(10)
    assert run.decode_now(4.0) is None, "what has not come for a while has no speed now"
    slow = Run(2)
    for i in range(3):
        slow.add(token(i, i * 5.0), i * 5.0)
    assert slow.decode_now(14.0) == pytest.approx(0.2), "a slow model has not stopped"
    assert total_now([run, slow], 14.0) == pytest.approx(0.2)
    assert total_now([], 1.0) is None


def test_guesses_that_were_right_are_one_step() -> None:
    run = Run(1)
    times = [(0, 0.0, False), (1, 0.10, True), (2, 0.10, True), (3, 0.10, False), (4, 0.15, False)]
    steps = [run.add(token(i, t, drafted=d), t) for i, t, d in times]
    assert [s for s in steps if s is not None] == [pytest.approx(0.10), pytest.approx(0.05)]


def test_the_distribution_of_steps() -> None:
    assert step_times([]) is None and step_times([0.02]) is None
    found = step_times([0.02] * 94 + [0.05] * 5 + [3.0])
    assert found is not None and sum(found.counts) == found.n == 100
    assert (found.median, found.p95, found.longest) == (0.02, 0.05, 3.0)
    same = step_times([0.02, 0.02])
    assert same is not None and sum(same.counts) == 2 and all(math.isfinite(edge) for edge in same.edges)


def test_parts_add_up_to_the_first_token() -> None:
    timings = Timings(queue_s=0.01, template_s=0.02, prefill_s=0.3, ttft_s=0.35, decode_s=1.0)
    parts = lines.first_token_parts(GenerationRecord(timings=timings, usage=Usage(100, 10, 40)))
    assert sum(seconds for _, seconds, _, _ in parts) == pytest.approx(0.35)
    assert lines.first_token_parts(GenerationRecord()) == []


def test_the_parts_are_those_of_the_trace_where_there_is_one() -> None:
    record = GenerationRecord(timings=Timings(ttft_s=0.35, decode_s=1.0), usage=Usage(100, 10, 40))
    traced = (("queue", 0.01), ("template", 0.02), ("wait", 0.0), ("cache", 0.005), ("prefill", 0.3), ("sample", 0.015))
    rows = lines._first_token_parts(record, traced)
    assert [row.value for row in rows[1:]] == ["10.0 ms", "20.0 ms", "0.0 ms", "5.0 ms", "300 ms", "15.0 ms"]
    writing = lines._first_token_parts(None, traced)
    assert {row.value for row in writing[1:]} == {"—"}, "what was before is not shown as new"


def test_the_predicted_speed_stands_beside_the_measured_one() -> None:
    feed: Any = SimpleNamespace(model=model(fit=FitSummary("gpu", decode_tps_low=44.0, decode_tps_high=52.5)))
    assert lines._expected(feed).value == "44.0–52.5 tok/s"
    feed.model = model(fit=FitSummary("cpu"))
    assert lines._expected(feed).value == "—" and lines._expected(feed).tip


# ---- KV cache and memory


def test_every_cell_is_on_the_map_once() -> None:
    held = (
        events.KvSequence(0, "chat-3", n_cells=300, n_shared=100, n_saved=250),
        events.KvSequence(1, "chat-5", n_cells=150, n_shared=100, n_listed=100, moved_from=120, n_moved=20),
        events.KvSequence(2, "", n_cells=10),
    )
    runs = runs_of(events.KvMap(n_ctx=1000, n_used=360, sequences=held), 5, {3: "Haiku"})
    assert sum(run.n_cells for run in runs) == 1000
    assert [(run.kind, run.n_cells, run.name, run.saved) for run in runs] == [
        ("shared", 100, "shared prefix", False),
        ("this", 20, "this chat", False),
        ("moved", 20, "this chat, moved", False),
        ("this", 10, "this chat", False),
        ("other", 150, "Haiku", True),
        ("other", 50, "Haiku", False),
        ("other", 10, "another request", False),
        ("free", 640, "free", False),
    ]
    only_sum = runs_of(events.KvMap(n_ctx=10, n_used=4), None, {})
    assert [(run.name, run.n_cells) for run in only_sum] == [("in use", 4), ("free", 6)]


def test_whatever_is_there_has_a_square(qtbot) -> None:
    drawn = CacheMap()
    qtbot.addWidget(drawn)
    drawn.resize(280, drawn.height())
    held = (events.KvSequence(0, "chat-3", n_cells=2), events.KvSequence(1, "chat-5", n_cells=130_000))
    runs = runs_of(events.KvMap(n_ctx=131_072, n_used=130_002, sequences=held), 3, {})
    drawn.set_runs(runs)
    places = drawn._places(drawn._grid()[1])
    assert len(places) == drawn._grid()[1] and {p.name for p in places if p} == {run.name for run in runs}
    assert "this chat 2" in drawn.accessibleDescription()
    where = drawn.mapToGlobal(QPoint(3, 3))
    drawn.event(QHelpEvent(QEvent.Type.ToolTip, QPoint(3, 3), where))
    assert "this chat 2 tokens" in QToolTip.text()


def model(**fields: Any) -> events.ModelInfo:
    names = ("n_params", "size_bytes", "n_ctx_train", "n_slots", "n_vocab", "n_layer", "n_embd", "n_gpu_layers")
    plain: dict[str, Any] = dict.fromkeys((*names, "n_batch", "n_ubatch", "n_threads"), 1)
    texts = {"path": "m", "name": "M", "architecture": "llama", "quantization": "Q4_1"}
    return events.ModelInfo(**{**plain, **texts, "n_ctx": 100, "template": events.TemplateInfo("file"), **fields})


GPU = DeviceFigures("CUDA0", 4 * GIB, GIB, GIB, 0, 4 * GIB, GIB, GIB + 30 * MIB, 7 * GIB, 8 * GIB, 1 * GIB)
HOST = DeviceFigures("Host", 100 * MIB, 0, 50 * MIB, 0, 100 * MIB, 0, 50 * MIB, 10 * GIB, 16 * GIB, 9 * GIB)
NAMED = (events.Device("CUDA0", "NVIDIA Imaginary", "gpu", "CUDA"),)


def sampled(gpu: events.GpuFigures | None = None, state: str = "ok", age_s: float = 0.5) -> events.Sampled:
    return events.Sampled(
        time_s=0.0,
        worker=events.ProcessFigures(rss_bytes=500 * MIB, private_bytes=300 * MIB, mapped_bytes=200 * MIB),
        ram_total_bytes=16 * GIB,
        ram_available_bytes=12 * GIB,
        gpus=events.GpuState(state, "words of the state", (gpu,) if gpu else (), age_s),
    )


def test_memory_is_the_buffers_and_what_the_driver_tells_of_others() -> None:
    gpu = events.GpuFigures(0, "NVIDIA Imaginary", 8 * GIB, 7 * GIB, GIB, worker_bytes=6 * GIB + 200 * MIB)
    device, host = places_of(model(fit=FitSummary("gpu", devices=(GPU, HOST)), devices=NAMED), sampled(gpu))
    assert device.name == "NVIDIA Imaginary" and device.live
    assert dict(device.measured) == {
        "weights": 4 * GIB,
        "kv": GIB,
        "compute": GIB + 200 * MIB,
        "other": 7 * GIB - 6 * GIB - 200 * MIB,
    }
    assert device.error == pytest.approx(30 / (6 * 1024), rel=1e-3)
    assert host.name == "RAM" and dict(host.measured)["other"] == 4 * GIB - 300 * MIB
    assert host.error is None, "what is mapped beside a device is no measure of the plan"
    assert places_of(model(fit=FitSummary("cpu", devices=(HOST,))), sampled())[0].error == 0


def test_a_device_whose_driver_is_silent_shows_the_load() -> None:
    remote = DeviceFigures("RPC0", GIB, 0, 0, 0, GIB, 0, 0, 3 * GIB, 4 * GIB, 2 * GIB)
    device = places_of(model(fit=FitSummary("gpu", devices=(remote,))), sampled())[0]
    assert not device.live and "of the load" in device.note
    assert dict(device.measured)["other"] == GIB
    assert "at the load" in lines.measured_caption(device).label
    unknown = places_of(model(fit=FitSummary("gpu", devices=(DeviceFigures("RPC0", GIB, total_bytes=GIB),))), None)[0]
    assert unknown.measured == () and lines.measured_caption(unknown).value == "—"
    assert places_of(None, None) == []


@pytest.mark.parametrize("state", ["no_library", "version_mismatch", "gpu_lost", "timeout", "error", "no_package"])
def test_every_state_of_the_driver_is_said_and_old_figures_look_old(state: str) -> None:
    gpu = events.GpuFigures(0, "Imaginary", load_percent=91, temperature_c=61, power_w=84.0)
    feed: Any = SimpleNamespace(sample=sampled(state=state), sample_age_s=0.1)
    first = machine_lines.gpu_rows(feed, full=False)[0]
    assert first.value not in ("", "—", state) and first.tip == "words of the state"
    feed.sample = sampled(gpu, state, age_s=12.0)
    rows = machine_lines.gpu_rows(feed, full=True)
    assert {row.tone for row in rows[1:]} == {"old"} and "12 s old" in rows[1].tip and rows[1].value == "12 s old"
    assert "91 %" not in [row.value for row in machine_lines.gpu_rows(feed, full=False)], (
        "no old figure beside the chat"
    )
    feed.sample = sampled(gpu)
    assert machine_lines.gpu_rows(feed, full=False)[0].value == "91 % · 61 °C · 84 W"
    feed.sample = sampled(events.GpuFigures(0, "Imaginary"))
    assert {row.value for row in machine_lines.gpu_rows(feed, full=True)[1:]} == {"—"}


def test_a_spreadsheet_has_no_old_figures_and_no_words() -> None:
    gpu = events.GpuFigures(0, "Imaginary", 8 * GIB, GIB, load_percent=5)
    looks = [Look(sampled(gpu), 12.345, None, 5, 100), Look(sampled(gpu, "timeout"), None, 99.0, None, None)]
    rows = list(csv.DictReader(io.StringIO(report.csv_text(looks))))
    assert rows[0]["decode_tok_s"] == "12.35" and rows[0]["gpu0_used_bytes"] == str(GIB)
    assert rows[1]["gpu0_used_bytes"] == "" and rows[1]["decode_tok_s"] == "" and rows[1]["prefill_tok_s"] == "99.00"
    assert report.csv_text([]).count("\n") == 1


# ---- in the window


SCRIPT = {"answers": [{"text": "one two three four five six seven eight nine ten", "delay_s": 0.03, "prefill_s": 0.1}]}


def metrics_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "metrics"]


def opened(shell: Any, model_file: Path, script: dict[str, Any] = SCRIPT) -> Any:
    one = shell(script)
    one.window.resize(1200, 800)
    one.load(model_file)
    one.view.header.monitor_button.click()
    return one


def test_the_dock_shows_an_answer_and_nothing_runs_once_it_is_closed(shell, model_file: Path) -> None:
    one = opened(shell, model_file)
    corner = one.window.inside.monitor
    dock, feed = corner.dock, corner.feed
    assert dock.isVisible() and feed._connected
    one.wait(lambda: feed.sample is not None)
    answer = one.answer("What is a pod?")
    one.wait(lambda: feed.last is not None and not feed.runs and feed.kv is not None)
    one.wait(lambda: dock.speed.figure.text() == f"{answer.generation.timings.decode_tps:.1f}")
    assert dock.speed.rows.value_of("First token") == f"{answer.generation.timings.ttft_s:.2f} s"
    usage = answer.generation.usage
    one.wait(lambda: feed.kv.n_used == usage.prompt_tokens + usage.completion_tokens)
    one.wait(lambda: dock.cache.rows.value_of("Tokens").startswith(f"{feed.kv.n_used:,} of {feed.kv.n_ctx:,}"))
    assert len(feed.steps) == usage.completion_tokens - 1
    assert "MiB" in dock.machine.rows.value_of("RAM, window + worker")
    assert len(metrics_threads()) == 1
    dock.close_button.click()
    assert not dock.isVisible() and not one.view.header.monitor_button.isChecked()
    one.wait(lambda: not feed._connected and not metrics_threads())
    n_steps, n_looks = len(feed.steps), len(feed.looks)
    unseen = one.answer("And a node?")
    assert (len(feed.steps), len(feed.looks)) == (n_steps, n_looks), "nothing is gathered unseen"
    assert not feed._clock.isActive() and not feed._refresh.isActive()
    one.view.header.monitor_button.click()
    assert feed.last == unseen.generation, "an older answer is not shown as the last one"


def test_page_and_dock_go_on_with_what_is_known(shell, model_file: Path) -> None:
    one = opened(shell, model_file)
    feed = one.window.inside.monitor.feed
    one.answer("What is a pod?")
    thread = metrics_threads()
    one.window.inside.monitor.dock.more.click()
    page = one.window.inside.view.page("monitor")
    assert page.isVisible() and len(feed.steps) == 9
    one.wait(lambda: page.decode_chart.plot is not None and page.step_chart.plot is not None)
    assert metrics_threads() == thread
    assert "steps: median" in page.step_chart.accessibleDescription()
    one.window.show_chat()
    assert feed._connected
    one.window.show_settings()
    one.wait(lambda: not feed._connected)


def test_pause_text_and_copy(shell, model_file: Path) -> None:
    one = opened(shell, model_file)
    page = one.window.inside.show("monitor").page("monitor")
    feed = one.window.inside.monitor.feed
    one.wait(lambda: len(feed.looks) > 0)
    page.copy_csv.click()
    assert QGuiApplication.clipboard().text().startswith("time_s,decode_tok_s")
    page.pause.click()
    told: list[int] = []
    feed.changed.connect(lambda: told.append(1))
    n_looks = len(feed.looks)
    one.wait(lambda: len(feed.looks) > n_looks)
    assert not told and page.pause.text() == "Go on"
    page.pause.click()
    assert told and page.pause.text() == "Pause"
    page.as_text.click()
    words = page.text.toPlainText()
    for wanted in ("SPEED (no answer yet)", "Decode: —", "KV cache", "Worker, private: ", "CPU: "):
        assert wanted in words
    assert "nan" not in words.lower().replace("nano", "") and "None" not in words
    page.as_text.click()
    assert page.stack.currentWidget() is page.scroll_area


def test_a_narrow_window_keeps_the_chat_and_shows_the_page(shell, model_file: Path) -> None:
    one = opened(shell, model_file)
    corner = one.window.inside.monitor
    one.window.resize(800, 600)
    one.wait(lambda: not corner.dock.isVisible())
    one.window.actions_["toggle_monitor"].trigger()
    assert one.window.views.currentWidget() is one.window.inside.view
    one.window.show_chat()
    one.window.resize(1200, 800)
    one.wait(lambda: corner.dock.isVisible())


def test_it_is_open_again_the_next_time(shell, model_file: Path) -> None:
    one = opened(shell, model_file)
    one.close()
    again = shell(SCRIPT)
    again.window.resize(1200, 800)
    again.wait(lambda: again.window.inside.monitor.wanted)
    again.wait(lambda: again.window.inside.monitor.dock.isVisible())
    assert again.view.header.monitor_button.isChecked()


def test_a_minimized_window_asks_for_nothing(shell, model_file: Path) -> None:
    one = opened(shell, model_file)
    feed = one.window.inside.monitor.feed
    one.window.showMinimized()
    one.wait(lambda: not feed._connected and not metrics_threads())
    one.window.showNormal()
    one.wait(lambda: feed._connected)


def test_joined_in_the_middle_nothing_is_invented(shell, model_file: Path) -> None:
    one = opened(shell, model_file)
    feed = one.window.inside.monitor.feed
    step = events.GenerationStep(request_id="r", chat_id=1, message_id=2, step=token(40, 9.0))
    feed._on_step(step)
    rows = {row.label: row for row in lines.speed_rows(feed, full=True)}
    assert rows["First token"].value == "—" and "before this could be seen" in rows["First token"].tip
    assert rows["Tokens written"].value == "41"
    feed.runs.clear()


@pytest.mark.parametrize("way", ["dock", "page", "minimized"])
def test_hidden_and_shown_again_during_an_answer_it_knows_what_the_window_knows(
    shell, model_file: Path, way: str
) -> None:
    answer = {"text": "word " * 400, "delay_s": 0.02, "prefill_s": 0.3, "n_prompt": 900, "n_cached": 100}
    one = opened(shell, model_file, {"answers": [answer]})
    corner = one.window.inside.monitor
    feed = corner.feed
    hide, show = {
        "dock": (corner.toggle, corner.toggle),
        "page": (one.window.show_settings, lambda: one.window.inside.show("monitor")),
        "minimized": (one.window.showMinimized, one.window.showNormal),
    }[way]
    one.send("What is a pod?")
    one.wait(lambda: feed.current is not None and feed.current.speeds.n_written > 5)
    hide()
    one.wait(lambda: not feed._connected)
    known = next(iter(one.presenter.live_speeds.values()))
    n_then = known.n_written
    one.wait(lambda: known.n_written > n_then + 10)
    show()
    assert feed._connected and feed.current is not None
    rows = {row.label: row for row in lines.speed_rows(feed, full=True)}
    assert rows["First token"].value == f"{known.ttft_s:.2f} s"
    assert rows["Prefill (800 new of 900)"].value.endswith("tok/s") and "—" not in rows["Tokens written"].value
    assert int(rows["Tokens written"].value) == known.n_written > n_then
    one.wait(lambda: feed.decode_now is not None)
    one.wait(lambda: feed.current.n_written > n_then + 25)
    assert feed.current.n_written == known.n_written and feed.current.speeds.ttft_s == known.ttft_s
    assert feed.current.speeds.decode_tps == known.decode_tps, "each token counts once"
    one.presenter.stop()
    one.wait(lambda: not feed.runs)


def test_a_hidden_monitor_does_not_find_an_answer_that_ended_meanwhile(shell, model_file: Path) -> None:
    one = opened(shell, model_file)
    corner = one.window.inside.monitor
    one.send("What is a pod?")
    one.wait(lambda: corner.feed.current is not None)
    corner.toggle()
    one.wait(lambda: not corner.feed._connected)
    one.wait(lambda: one.at_rest(2))
    corner.toggle()
    assert not corner.feed.runs and not corner.feed._clock.isActive()
    assert corner.feed.last == one.presenter.messages[-1].generation


def test_without_a_model_every_figure_says_why(shell) -> None:
    one = shell({})
    one.window.resize(1200, 800)
    one.window.actions_["toggle_monitor"].trigger()
    dock = one.window.inside.monitor.dock
    for rows in (dock.speed.rows, dock.cache.rows, dock.cache.head):
        assert all(row.value and (row.value != "—" or row.tip) for row in rows.rows if row.kind != "note"), rows.rows
    assert dock.cache.map.isHidden()


def test_controls_have_names_and_tips(shell, model_file: Path) -> None:
    one = opened(shell, model_file)
    page = one.window.inside.show("monitor").page("monitor")
    for root in (one.window.inside.monitor.dock, page):
        for widget in controls(root):
            if any(chart.isAncestorOf(widget) for chart in page._charts):
                continue
            assert widget.accessibleName() or getattr(widget, "text", str)(), widget.objectName()
    assert QApplication.focusWidget() is page.pause
