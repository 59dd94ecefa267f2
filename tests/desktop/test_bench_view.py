"""The benchmark in the window: measured for real in small sizes; its history, its chart, and the same in words."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication, QWidget
from test_a11y import controls

from desktop.views.bench.chart import by_parallel, over_time
from desktop.views.bench.form import BenchForm
from engine.bench import BenchSample
from engine.bench_history import BenchHistory, BenchResult, BenchRow, Spread, history_file
from engine.errors import InvalidRequest, WorkerDied
from engine.paths import resolve


def result(number: int, *, threads: int = 2) -> BenchResult:
    def row(parallel: int, decode: float) -> BenchRow:
        chats = Spread(decode * 0.97, decode * 0.96, decode)
        return BenchRow(parallel, Spread(350.0, 340.0, 352.0), Spread(decode, decode - 2, decode + 1), chats)

    return BenchResult(
        model="Tiny",
        path="/models/tiny.gguf",
        quantization="Q4_1",
        n_prompt=512,
        n_generate=128,
        n_runs=3,
        llama_cpp="b7000",
        n_threads=threads,
        n_gpu_layers=0,
        rows=(row(1, 120.0 + number), row(2, 150.0 + number)),
        time_s=1_700_000_000.0 + 86_400 * number,
    )


def kept(home: Path, *results: BenchResult) -> None:
    history = BenchHistory(history_file(resolve(home).data))
    for one in results:
        history.add(one)


def opened(one: Any) -> Any:
    view = one.window.bench.show()
    one.wait(lambda: view.form.model.count() > 0 or bool(view.kept.results))
    return view


def small(view: Any) -> None:
    for name, text in (("n_prompt", "16"), ("n_generate", "12"), ("parallel", "1 2"), ("n_runs", "2")):
        view.form.fields[name].setText(text)
    view.form.fields["n_threads"].setText("1")


def test_it_measures_shows_and_keeps(shell, starter_model: Path, home: Path, monkeypatch) -> None:
    monkeypatch.setattr("engine.models.starter.find", lambda models=None: starter_model)
    one = shell()
    view = opened(one)
    assert view.form.path == str(starter_model)
    small(view)
    view.form.run.click()
    assert view.form.stop.isVisible() and not view.form.run.isVisible() and not view.form.model.isEnabled()
    one.wait(lambda: view.result.isVisible() and view.result.table.table.rowCount() == 1, 60)
    assert view.result.copy.isHidden(), "nothing to copy before the end"
    one.wait(lambda: not one.window.bench.desk.running and view.result.result is not None, 90)
    assert view.form.run.isVisible() and view.form.model.isEnabled()
    found = view.result.result
    assert [row.parallel for row in found.rows] == [1, 2] and found.n_threads == 1
    one.wait(lambda: view.kept.results == [found])
    assert BenchHistory(history_file(resolve(home).data)).results() == [found]
    cell = view.result.table.table.rows[1]
    assert cell[0] == "2" and cell[2].startswith(f"{found.rows[1].decode.median:,.1f}")
    view.result.copy.click()
    text = QGuiApplication.clipboard().text()
    assert "SmolLM2 135M" in text and f"{found.rows[0].decode.median:.1f}" in text
    assert one.window.control.state.status == "none", "nothing was loaded into the window"
    one.wait(lambda: view.result.chart.plot is not None)


def test_a_stop_keeps_nothing_and_shows_what_was_there(shell, starter_model: Path, home: Path, monkeypatch) -> None:
    monkeypatch.setattr("engine.models.starter.find", lambda models=None: starter_model)
    kept(home, result(1))
    one = shell()
    view = opened(one)
    one.wait(lambda: view.result.result == result(1) and view.form.model.count() > 0)
    small(view)
    view.form.fields["n_runs"].setText("90")
    view.form.run.click()
    one.wait(lambda: bool(view._samples), 60)
    assert view.result.result is None
    view.form.stop.click()
    one.wait(lambda: not one.window.bench.desk.running, 20)
    assert view.result.result == result(1) and view.banner.isHidden()
    assert BenchHistory(history_file(resolve(home).data)).results() == [result(1)]


def test_the_end_of_the_program_ends_it(shell, starter_model: Path, monkeypatch) -> None:
    monkeypatch.setattr("engine.models.starter.find", lambda models=None: starter_model)
    one = shell()
    view = opened(one)
    small(view)
    view.form.fields["n_runs"].setText("90")
    view.form.run.click()
    one.wait(lambda: bool(view._samples), 60)
    thread = one.window.bench.desk._thread
    one.close()
    assert not thread.is_alive()


def test_not_beside_an_answer_and_errors_in_words(shell, model_file: Path, monkeypatch) -> None:
    one = shell({"answers": [{"text": "word " * 400, "delay_s": 0.02}]})
    one.load(model_file)
    one.send("Hi")
    one.wait(lambda: bool(one.app.engine.chats.generating()))
    view = opened(one)
    assert view.note.isVisible(), "two models take memory"
    view.form.run.click()
    assert "at work" in view.banner.words.text and not one.window.bench.desk.running
    one.app.engine.chats.stop()
    one.wait(lambda: not one.app.engine.chats.generating())
    view.form.fields["n_prompt"].setText("many")
    view.form.fields["parallel"].setText("1, 1")
    view.form.run.click()
    assert "Tokens of a prompt" in view.banner.words.text
    assert view.form.fields["n_prompt"].property("invalid") == "true"
    view.form.fields["n_prompt"].setText("512")
    view.form.run.click()
    assert view.form.fields["parallel"].property("invalid") == "true" and "Answers at once" in view.banner.words.text
    view.form.fields["parallel"].setText("1")

    def died(self: object) -> None:
        raise WorkerDied("The worker ended while measuring its speed")

    monkeypatch.setattr("engine.bench.Benchmark.run", died)
    view.form.run.click()
    one.wait(lambda: not one.window.bench.desk.running)
    assert "measuring its speed" in view.banner.words.text and view.form.run.isVisible()


def test_history_chart_and_a_removal_that_can_be_undone(shell, home: Path) -> None:
    kept(home, result(1), result(2, threads=4), result(3))
    one = shell()
    view = opened(one)
    one.wait(lambda: view.result.result == result(3))
    assert [row[3] for row in view.kept.table.table.rows] == ["119 · 148", "118 · 147", "117 · 146"]
    assert view.result.views.button("time").isEnabled()
    view.kept.table.choose(1)
    assert view.result.result == result(2, threads=4)
    assert not view.result.views.button("time").isEnabled(), "the only one of its kind"
    view.kept.table.choose(0)
    one.wait(lambda: view.result.chart.plot is not None)
    before = view.result.chart.accessibleDescription()
    view.result.views.button("time").click()
    assert view.result.chart.accessibleDescription() != before
    assert "Answers over time" in view.result.chart.accessibleDescription()
    view.result.remove.click()
    one.wait(lambda: [one.time_s for one in view.kept.results] == [result(2).time_s, result(1).time_s])
    one.window.toast.undo()
    one.wait(lambda: len(view.kept.results) == 3)
    assert view.kept.results[0] == result(3)


def test_what_the_chart_draws_is_what_is_said() -> None:
    picture = by_parallel(result(3), result(1))
    assert [line.name for line in picture.lines] == ["in its process", "through chats", "the time before"]
    assert picture.ticks == ("1", "2")
    assert "in its process: 1: 123.0, 2: 153.0" in picture.words
    other = msgspec.structs.replace(result(1), rows=result(1).rows[:1])
    time = over_time([other, result(3)])
    assert [line.name for line in time.lines] == ["1 at once", "2 at once"]
    assert [place for place, _ in time.lines[1].points] == [1]
    assert len(time.ticks) == 2 and len(set(time.ticks)) == 2
    lonely = msgspec.structs.replace(result(1), rows=(BenchRow(4, Spread(1, 1, 1), Spread(2, 2, 2)),))
    assert [line.name for line in by_parallel(lonely, result(1)).lines] == ["in its process"]


def test_the_form_asks_for_what_was_typed(qtbot) -> None:
    form = BenchForm()
    qtbot.addWidget(form)
    form.set_models([("A", "/a.gguf"), ("B", "/b.gguf")])
    form.choose_model("/b.gguf")
    form.fields["parallel"].setText("8; 1,2")
    form.fields["n_threads"].setText("3")
    spec = form.spec()
    assert (spec.path, spec.parallel, spec.n_prompt) == ("/b.gguf", (8, 1, 2), 512)
    assert spec.load == {"n_threads": 3, "n_threads_batch": 3}
    form.set_models([("A", "/a.gguf")])
    assert form.path == "/a.gguf"
    form.set_models([])
    assert not form.run.isEnabled()
    form.fields["n_runs"].setText("")
    with pytest.raises(InvalidRequest):
        form.spec()


def test_fields_reflow_where_it_is_narrow(qtbot) -> None:
    form = BenchForm()
    qtbot.addWidget(form)
    form.resize(700, 400)
    form.show()
    places = {form._grid.getItemPosition(i)[1] for i in range(form._grid.count())}  # type: ignore[index]
    assert places == {0, 1, 2}
    for _ in range(3):  # each reflow makes a narrower one possible
        form.resize(260, 600)
        QApplication.processEvents()
    assert {form._grid.getItemPosition(i)[1] for i in range(form._grid.count())} == {0}  # type: ignore[index]


def test_rows_so_far_are_medians() -> None:
    from desktop.views.bench.results import rows_so_far

    samples = [BenchSample(1, run, 100.0 + run, 10.0 * run, None) for run in (1, 2, 3)]
    (row,) = rows_so_far([*samples])
    assert row.decode == Spread(20.0, 10.0, 30.0) and row.session is None


def test_every_control_has_a_name_a_tip_and_a_place_in_the_order(shell, home: Path) -> None:
    kept(home, result(1), result(3))
    one = shell()
    view = opened(one)
    one.wait(lambda: view.result.chart.plot is not None)
    view.form.set_models([("Tiny", "/models/tiny.gguf")])
    found = [w for w in controls(view) if not view.result.chart.isAncestorOf(w)]
    assert len(found) > 12
    for widget in found:
        name = f"{type(widget).__name__} {widget.objectName()}"
        assert widget.accessibleName() or getattr(widget, "text", str)(), name
        assert widget.toolTip() or widget.objectName().startswith("banner"), name
    seen: list[QWidget] = []
    view.form.model.setFocus()
    for _ in range(60):
        focus = QApplication.focusWidget()
        if focus is None or (seen and focus is seen[0]):
            break
        seen.append(focus)
        one.window.focusNextPrevChild(True)
    names = [widget.objectName() for widget in seen]
    wanted = ["bench_model", "bench_n_prompt", "bench_run", "bench_table", "bench_view_by_parallel", "bench_copy"]
    assert [name for name in names if name in wanted] == wanted
    assert "bench_kept" in names and "rail_bench" in names
    assert one.window.rail_bench.isChecked() and not one.window.rail_settings.isChecked()


def test_it_is_made_when_it_is_first_shown_and_measures_off_the_gui_thread(
    shell, model_file: Path, monkeypatch
) -> None:
    one = shell()
    assert one.window.bench.view is None
    one.window.actions_["view_bench"].trigger()
    view = one.window.bench.view
    assert view is not None and one.window.views.currentWidget() is view
    threads: list[threading.Thread] = []

    def run(self: object) -> BenchResult:
        threads.append(threading.current_thread())
        return result(5)

    monkeypatch.setattr("engine.bench.Benchmark.run", run)
    view.form.set_models([("Tiny", str(model_file))])
    view.form.run.click()
    one.wait(lambda: view.result.result == result(5))
    assert threads and threads[0] is not threading.main_thread()
