"""What a measurement is made of: rates out of arrivals, what may be asked for, what is kept."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from engine.bench import Benchmark, BenchSpec, spread
from engine.bench_chats import GROUP_S, total_rate
from engine.bench_history import (
    KEPT_ALL,
    KEPT_EACH,
    BenchHistory,
    BenchResult,
    BenchRow,
    Spread,
    history_file,
    spread_words,
    table_words,
)
from engine.errors import InvalidRequest


def steady(n: int, step_s: float, start_s: float = 0.0) -> list[float]:
    return [start_s + i * step_s for i in range(n)]


def grouped(times: list[float], hold_s: float) -> list[float]:
    """As a reader gets them whose writer holds tokens back until `hold_s` after the first of a group."""
    seen, group = [], []
    for when in times:
        group.append(when)
        if when - group[0] + 1e-9 >= hold_s:
            seen += [when + 1e-5 * i for i in range(len(group))]
            group = []
    return seen + [times[-1]] * len(group)


def test_rate_of_one_and_of_several() -> None:
    assert total_rate([steady(100, 0.02)]) == pytest.approx(50, rel=0.001)
    assert total_rate([steady(100, 0.02), steady(100, 0.02, 0.0001)]) == pytest.approx(100, rel=0.001)


@pytest.mark.parametrize("step_s", [0.002, 0.007, 0.011, 0.02])
@pytest.mark.parametrize("answers", [1, 8])
def test_rate_of_tokens_that_come_in_groups(step_s: float, answers: int) -> None:
    """The first group's tokens are not counted: taken from its end, the rate is neither too high nor too low."""
    times = grouped(steady(400, step_s), 0.033)
    found = total_rate([times] * answers)
    assert found == pytest.approx(answers / step_s, rel=0.01)
    naive = answers * (len(times) - 1) / (times[-1] - times[0])
    assert abs(naive * step_s / answers - 1) > abs(found * step_s / answers - 1)


def test_only_the_time_counts_in_which_all_were_written() -> None:
    """The second begins late and the first ends early: before and after, the other one is faster alone."""
    first = steady(50, 0.02) + steady(100, 0.04, 1.0)
    second = steady(100, 0.04, 1.0) + steady(200, 0.02, 5.0)
    assert total_rate([first, second]) == pytest.approx(50, rel=0.02)


def test_no_rate_without_a_span_of_time() -> None:
    assert total_rate([]) is None and total_rate([[]]) is None and total_rate([[1.0], [1.0]]) is None
    assert total_rate([[0.0, GROUP_S / 4, GROUP_S / 2]]) is None
    assert total_rate([steady(10, 0.05), steady(10, 0.05, 3.0)]) is None, "they never were written together"


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"n_prompt": 0}, "n_prompt"),
        ({"n_generate": 1}, "n_generate"),
        ({"n_runs": 0}, "n_runs"),
        ({"parallel": ()}, "parallel"),
        ({"parallel": (1, 1)}, "parallel"),
        ({"parallel": (0,)}, "parallel"),
        ({"parallel": (65,)}, "parallel"),
    ],
)
def test_what_cannot_be_measured_is_refused(values: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Benchmark(BenchSpec("x.gguf", **values))  # type: ignore[arg-type]
    assert caught.value.details["field"] == field


def test_the_context_holds_all_at_once() -> None:
    assert BenchSpec("x", n_prompt=100, n_generate=50, parallel=(2, 4)).n_ctx >= 4 * 150


# ------------------------------------------------------------------ what is kept


def result(number: int, *, threads: int = 2, model: str = "A") -> BenchResult:
    row = BenchRow(1, Spread(300 + number, 290, 310), Spread(100 + number, 99, 101), Spread(95.0, 95.0, 95.0))
    return BenchResult(
        model=model,
        path=f"/models/{model}.gguf",
        quantization="Q4_1",
        n_prompt=512,
        n_generate=128,
        n_runs=3,
        llama_cpp=f"b{number}",
        n_threads=threads,
        n_gpu_layers=0,
        rows=(row, BenchRow(2, row.prefill, row.decode)),
        time_s=1_700_000_000.0 + number,
    )


def test_results_come_back_as_they_were(tmp_path: Path) -> None:
    path = history_file(tmp_path / "data")
    history = BenchHistory(path)
    assert history.results() == []
    history.add(result(1))
    history.add(msgspec.structs.replace(result(2), load={"n_threads": 2, "flash_attention": "on"}))
    assert BenchHistory(path).results() == history.results()
    first, second = history.results()
    assert first == result(1) and second.rows[1].session is None
    assert first.key != second.key, "other settings of the load"
    history.remove(first)
    assert history.results() == [second]
    history.add(first)
    assert history.results() == [first, second], "what is put back finds its place"


def test_the_history_is_bounded_for_each_kind_and_in_all(tmp_path: Path) -> None:
    history = BenchHistory(tmp_path / "bench.json")
    history.add(result(0, model="other"))
    for number in range(1, KEPT_EACH + 6):
        history.add(result(number))
    kept = history.results()
    assert [one.llama_cpp for one in kept] == ["b0", *(f"b{n}" for n in range(6, KEPT_EACH + 6))]
    for number in range(KEPT_ALL + 3):
        history.add(result(100 + number, threads=1 + number))
    kept = history.results()
    assert len(kept) == KEPT_ALL and kept[-1].n_threads == KEPT_ALL + 3


@pytest.mark.parametrize(
    "data", [b"{", b"[]", b'{"schema":1,"results":[{"model":1}]}', b'{"schema":0,"results":[]}', b"\xff"]
)
def test_a_damaged_history_is_started_anew(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "bench.json"
    path.write_bytes(data)
    history = BenchHistory(path)
    assert history.results() == []
    history.add(result(1))
    assert history.results() == [result(1)]


def test_the_same_model_at_another_place_is_compared(tmp_path: Path) -> None:
    moved = msgspec.structs.replace(result(1), path="C:\\Models\\A.gguf", llama_cpp="newer")
    assert moved.key == result(1).key
    assert result(1, threads=4).key != result(1).key


def test_words() -> None:
    assert spread([3.0, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0)
    assert spread_words(Spread(118.24, 116.9, 119.0)) == "118.2 (116.9–119.0)"
    assert spread_words(Spread(95.0, 95.0, 95.0)) == "95.0" and spread_words(None) == "–"
    lines = table_words(result(1)).splitlines()
    assert lines[0] == "A Q4_1 · 2 threads · llama.cpp b1"
    assert "512" in lines[1] and "medians of 3 runs" in lines[1]
    assert [line.split() for line in lines[4:]] == [
        ["1", "301.0", "(290.0–310.0)", "101.0", "(99.0–101.0)", "95.0"],
        ["2", "301.0", "(290.0–310.0)", "101.0", "(99.0–101.0)", "–"],
    ]
    assert len({len(line) for line in lines[3:]}) == 1, "columns stand under each other"
