"""`inglenook bench` with the starter model, in small sizes: what it prints, what it keeps, how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from cli_runner import COMMAND, environment, events, run

from engine.bench import Benchmark, BenchSpec, Progress
from engine.bench_history import BenchHistory, history_file
from engine.errors import Cancelled, ModelFileDamaged, NotAModel
from engine.paths import resolve

SMALL = ("bench", "--pp", "32", "--tg", "24", "--parallel", "1,2", "--runs", "2", "--threads", "1")


def test_the_last_line_is_the_result(home: Path) -> None:
    done = run(*SMALL, "--json")
    assert done.returncode == 0, done.stderr
    lines = events(done)
    last = lines[-1]
    assert list(last) == ["llama_cpp", "threads", "rows"]
    assert last["threads"] == 1 and "llama-cpp-python" in last["llama_cpp"]
    assert [row["parallel"] for row in last["rows"]] == [1, 2]
    for row in last["rows"]:
        assert list(row) == ["parallel", "prefill_tps", "decode_tps", "session_decode_tps"]
        assert all(isinstance(value, int | float) and value > 0 for value in row.values())
        assert row["prefill_tps"] > row["decode_tps"] / 2, "a prompt is read in batches"
        assert row["session_decode_tps"] < 2 * row["decode_tps"]
    runs = [line for line in lines if line.get("type") == "bench_run"]
    assert [(line["parallel"], line["run"]) for line in runs] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    for row in last["rows"]:
        values = sorted(line["decode_tps"] for line in runs if line["parallel"] == row["parallel"])
        assert values[0] <= row["decode_tps"] <= values[-1]
    (details,) = (line for line in lines if line.get("type") == "bench_details")
    assert (details["pp"], details["tg"], details["runs"]) == (32, 24, 2)
    kept = BenchHistory(history_file(resolve(home).data)).results()
    assert [round(row.decode.median, 2) for row in kept[-1].rows] == [row["decode_tps"] for row in last["rows"]]
    assert not list(resolve(home).data.glob("*.db")), "it has no chats of its own in the profile"


def test_the_table_for_people() -> None:
    done = run("bench", "--pp", "8", "--tg", "8", "--parallel", "2", "--runs", "1", "--threads", "1")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "SmolLM2 135M" in lines[0] and "1 thread" in lines[0]
    assert lines[3].split() == ["at", "once", "prompt", "answer", "answer", "in", "a", "chat"]
    assert lines[4].split()[0] == "2" and float(lines[4].split()[1]) > 0
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (("--pp", "0"), "pp"),
        (("--tg", "1"), "tg"),
        (("--runs", "0"), "runs"),
        (("--parallel", "0"), "parallel"),
        (("--parallel", "1,1"), "parallel"),
        (("--threads", "0"), "threads"),
    ],
)
def test_wrong_values_are_named(words: tuple[str, ...], field: str) -> None:
    done = run("bench", *words, "--json")
    assert done.returncode == 2
    error = events(done)[-1]["error"]
    assert error["code"] == "invalid_request" and error["details"]["field"] == field
    assert f"--{field}" in error["message"]


def test_words_that_are_no_numbers_and_no_model() -> None:
    assert run("bench", "--parallel", "1,two", "--json").returncode == 2
    assert run("bench", "--model", "nowhere.gguf", "--json").returncode == 3


@pytest.mark.skipif(os.name != "posix", reason="POSIX signals")
def test_ctrl_c_ends_it_soon_and_leaves_no_process() -> None:
    process = subprocess.Popen(
        [*COMMAND, "bench", "--pp", "700", "--parallel", "8", "--threads", "1", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    children: set[int] = set()
    end = time.monotonic() + 60
    while not children and time.monotonic() < end:
        time.sleep(0.1)
        children = workers_of(process.pid)
    assert children, "no model process"
    time.sleep(2)
    children |= workers_of(process.pid)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert time.monotonic() - began < 10
    assert b"Traceback" not in err, err
    assert json.loads(out.splitlines()[-1])["error"]["code"] == "cancelled"
    alive = lambda: [pid for pid in children if Path(f"/proc/{pid}").exists() and not zombie(pid)]  # noqa: E731
    end = time.monotonic() + 10
    while alive() and time.monotonic() < end:
        time.sleep(0.1)
    assert not alive()


def workers_of(pid: int) -> set[int]:
    import psutil

    return {child.pid for child in psutil.Process(pid).children(recursive=True)}


def zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


# ------------------------------------------------------------------ the runner


def test_progress_rises_and_a_stop_keeps_what_is_done(starter_model: Path) -> None:
    seen: list[Progress] = []
    enough = threading.Event()

    def on_progress(now: Progress) -> None:
        seen.append(now)
        if now.sample is not None and now.run == 2:
            enough.set()

    spec = BenchSpec(str(starter_model), n_prompt=16, n_generate=12, parallel=(1, 2), n_runs=50, load={"n_threads": 1})
    bench = Benchmark(spec, progress=on_progress)
    ended: list[Any] = []

    def work() -> None:
        try:
            ended.append(bench.run())
        except Cancelled as error:
            ended.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    assert enough.wait(60)
    began = time.monotonic()
    bench.stop()
    thread.join(30)
    assert time.monotonic() - began < 8
    assert isinstance(ended[0], Cancelled) and len(bench.samples) >= 2
    assert {now.stage for now in seen} == {"load", "model", "chat"}
    fractions = [now.fraction for now in seen if now.stage != "load"]
    assert fractions == sorted(fractions) and 0 <= fractions[0] < fractions[-1] < 1


def test_the_users_settings_of_a_load_hold_and_his_profile_is_left_alone(starter_model: Path, home: Path) -> None:
    from engine.engine_options import EngineOptions
    from engine.settings import Settings

    paths = resolve(home).ensure()
    settings = Settings(paths.settings_file)
    settings.engine = EngineOptions(n_threads=1)
    settings.system_prompt = "word " * 400
    before = sorted(path.name for path in paths.home.rglob("*"))
    spec = BenchSpec(str(starter_model), n_prompt=16, n_generate=8, parallel=(1,), n_runs=1)
    found = Benchmark(spec, settings=settings).run()
    assert found.n_threads == 1 and found.model == "SmolLM2 135M"
    assert sorted(path.name for path in paths.home.rglob("*")) == before
    assert found.rows[0].decode.median > 0


def test_a_file_that_is_no_model_is_an_error_and_no_hang(tmp_path: Path) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises((NotAModel, ModelFileDamaged)):
        Benchmark(BenchSpec(str(path))).run()


def test_a_worker_that_dies_is_an_error_and_no_hang(starter_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.errors import WorkerDied

    monkeypatch.setenv("INGLENOOK_TEST_HOOKS", "1")
    monkeypatch.setenv("INGLENOOK_TEST_CRASH", "stream:abort:5")
    with pytest.raises(WorkerDied):
        Benchmark(BenchSpec(str(starter_model), n_prompt=8, n_generate=16, parallel=(1,), load={"n_threads": 1})).run()
