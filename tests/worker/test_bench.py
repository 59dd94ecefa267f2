"""A measurement in the worker: its sums, its end when stopped, and that nothing of it is left."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from raw_worker import RawWorker

OPTIONS = {"n_ctx": 2048, "n_slots": 4, "n_threads": 1, "n_gpu_layers": 0}


def bench(worker: RawWorker, **fields: int) -> dict[str, object]:
    request = worker.send("bench", **fields)
    return worker.wait("benched", "error", id=request, timeout=100)


def test_the_sums_are_those_that_were_asked_for(starter_model: Path) -> None:
    with RawWorker() as worker:
        worker.load(starter_model, **OPTIONS)
        for n in (1, 3):
            began = time.monotonic()
            found = bench(worker, n_parallel=n, n_prompt=24, n_generate=9)
            took = time.monotonic() - began
            assert found["type"] == "benched", found
            assert found["n_prefilled"] == 24 * n
            # the first token of each comes with the step that no longer reads a prompt; the others are counted
            assert found["n_decoded"] == 8 * n
            assert found["prefill_s"] > 0 and found["decode_s"] > 0
            assert found["prefill_s"] + found["decode_s"] <= took
            assert "llama-cpp-python" in str(found["llama_cpp"])
        assert not [e for e in worker.events if e["type"] in ("token", "done", "prompt_progress")], (
            "it keeps its answers"
        )
        assert [e for e in worker.events if e["type"] == "bench_progress"]


def test_it_leaves_the_cache_empty_and_the_answers_as_they_were(starter_model: Path) -> None:
    with RawWorker() as worker:
        worker.load(starter_model, **OPTIONS)
        before = worker.ask("What is the capital of France?", temperature=0, max_tokens=12)
        bench(worker, n_parallel=4, n_prompt=60, n_generate=8)
        after = worker.ask("What is the capital of France?", temperature=0, max_tokens=12)
        assert after.done["usage"].get("cached_tokens", 0) == 0
        assert after.ids == before.ids
        memory = [e for e in worker.events if e["type"] == "memory"][-1]
        assert memory["kv_used_cells"] <= after.done["usage"]["prompt_tokens"] + 12


def test_a_stop_ends_it_within_a_second(starter_model: Path) -> None:
    with RawWorker() as worker:
        worker.load(starter_model, **OPTIONS)
        for fields in ({"n_prompt": 1800, "n_generate": 100}, {"n_prompt": 8, "n_generate": 1900}):
            request = worker.send("bench", n_parallel=1, **fields)
            worker.wait("bench_progress", id=request)
            began = time.monotonic()
            worker.stop(request)
            end = worker.wait("benched", "error", id=request, timeout=30)
            assert end["type"] == "error" and end["error"]["code"] == "cancelled"
            assert time.monotonic() - began < 3
        assert worker.ask("Hi", temperature=0, max_tokens=2).reason in ("length", "stop")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"n_parallel": 5}, "n_parallel"),
        ({"n_parallel": 0}, "n_parallel"),
        ({"n_prompt": 0}, "n_prompt"),
        ({"n_generate": 1}, "n_generate"),
        ({"n_parallel": 4, "n_prompt": 512, "n_generate": 128}, "n_prompt"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(starter_model: Path, fields: dict[str, int], field: str) -> None:
    with RawWorker() as worker:
        worker.load(starter_model, **OPTIONS)
        found = bench(worker, **fields)
        assert found["type"] == "error" and found["error"]["code"] == "invalid_request"
        assert found["error"]["details"]["field"] == field


def test_it_does_not_begin_beside_an_answer_or_without_a_model(starter_model: Path) -> None:
    with RawWorker() as worker:
        assert bench(worker)["error"]["code"] == "model_not_loaded"  # type: ignore[index]
        worker.load(starter_model, **OPTIONS)
        answer = worker.generate("Tell a long story", sampling={"max_tokens": 400})
        worker.wait("token", id=answer)
        assert bench(worker, n_prompt=8, n_generate=4)["error"]["code"] == "busy"  # type: ignore[index]
        worker.stop(answer)
        assert worker.answer(answer).reason == "cancelled"
        assert bench(worker, n_prompt=8, n_generate=4)["type"] == "benched"
