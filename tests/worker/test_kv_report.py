"""What is said of the KV cache: it is what the worker counts and llama.cpp logs, and is said only when it changes."""

from __future__ import annotations

import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import memory_models
import pytest
from raw_worker import RawWorker
from test_prefix_reuse import LOAD, SYSTEM
from test_shift_and_roll import ASK, CONTEXT, conversation

from engine import events
from engine.worker.cells import Cells
from engine.worker.kv_report import SHORTEST_S, KvReport
from engine.worker.native_log import cache_sizes


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return memory_models.build(tmp_path_factory.mktemp("tiny") / "llama.gguf", "llama", n_layer=1)


def last_map(worker: RawWorker, n_used: int) -> dict[str, Any]:
    """The report of a cache that holds so many cells; what is over may be told a moment later."""
    while True:
        told = [e for e in worker.events if e["type"] == "kv_map"]
        if told and told[-1]["n_used"] == n_used:
            return told[-1]
        worker.wait("kv_map", timeout=5)


def used(worker: RawWorker) -> int:
    return int([e for e in worker.events if e["type"] == "memory"][-1]["kv_used_cells"])


def ask(text: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}]


def test_chats_that_begin_alike_share_cells_and_each_cell_is_named_once(model: Path) -> None:
    with RawWorker() as worker:
        worker.load(model, **LOAD)
        worker.send("watch", interval_s=0.25)
        first = worker.ask(messages=ask("What is a mill?"), cache_key="chat-7", temperature=0, max_tokens=8)
        worker.ask(messages=ask("Who lives by the sea?"), cache_key="chat-9", temperature=0, max_tokens=8)
        told = last_map(worker, used(worker))
        one, two = told["sequences"]
        assert told["n_ctx"] == LOAD["n_ctx"]
        assert [s["key"] for s in (one, two)] == ["chat-7", "chat-9"]
        shared = two["n_shared"]
        assert one["n_shared"] == shared == two["n_listed"] > 40
        assert one["n_cells"] == first.done["usage"]["prompt_tokens"] + first.done["usage"]["completion_tokens"] - 1
        assert one["n_cells"] + two["n_cells"] - shared == told["n_used"]
        assert not any(s.get("active") for s in (one, two))


def test_moved_cells_are_told_apart(model: Path) -> None:
    with RawWorker() as worker:
        worker.load(model, **CONTEXT)
        worker.send("watch", interval_s=0.25)
        for n in range(14):
            answer = worker.ask(messages=conversation(n), overflow="drop_oldest", cache_key="chat-1", **ASK)
        moved = answer.done["usage"]["shifted_tokens"]
        assert moved > 100
        # what was moved before is still where it was moved to; the map of the answer before may hold as many cells
        while (sequence := last_map(worker, used(worker))["sequences"][0])["n_moved"] < moved:
            worker.wait("kv_map", timeout=5)
        assert sequence["moved_from"] + sequence["n_moved"] <= sequence["n_cells"]


def test_nothing_is_said_unasked_and_nothing_twice(model: Path) -> None:
    with RawWorker() as worker:
        worker.load(model, **LOAD)
        worker.ask(messages=ask("Hello"), temperature=0, max_tokens=4)
        assert not [e for e in worker.events if e["type"] == "kv_map"]
        worker.send("watch", interval_s=0.25)
        worker.wait("kv_map")
        worker.tokens_of(text="a")
        worker.tokens_of(text="b")
        assert len([e for e in worker.events if e["type"] == "kv_map"]) == 1, "nothing has changed"
        worker.send("watch", interval_s=0)
        worker.ask(messages=ask("Hello again"), temperature=0, max_tokens=4)
        worker.tokens_of(text="c")
        assert len([e for e in worker.events if e["type"] == "kv_map"]) == 1


def test_a_map_is_said_again_when_as_many_cells_hold_something_else() -> None:
    cells, told = Cells(100, 2), list[Any]()
    slots = [SimpleNamespace(id=0, n_past=0, n_saved=0, key="chat-1", answer=None)]
    cells.grow(0, 50)
    slots[0].n_past = 50
    report = KvReport(told.append)
    report.watch(SHORTEST_S)
    assert report.look(slots, cells) is None  # type: ignore[arg-type]
    # between two looks an answer is read, of which a part was moved, and as many cells are held as before
    cells.close_gap(0, 10, 20)
    cells.grow(0, 10)
    rest_s = report.look(slots, cells)  # type: ignore[arg-type]
    assert rest_s is not None and rest_s <= SHORTEST_S, "it is told when it is due"
    time.sleep(rest_s)
    assert report.look(slots, cells) is None  # type: ignore[arg-type]
    assert [m.sequences[0].n_moved for m in told] == [0, 30]
    assert report.look(slots, cells) is None  # type: ignore[arg-type]
    assert len(told) == 2, "nothing has changed"


def test_bytes_of_keys_and_values_are_those_of_the_log(starter_model: Path) -> None:
    with RawWorker() as worker:
        info = worker.load(starter_model, n_ctx=2048, kv_type_k="q8_0", kv_type_v="f16", flash_attention="on")
        assert info["kv_k_bytes"] + info["kv_v_bytes"] == pytest.approx(info["kv_bytes"], rel=1e-3)
        # 30 layers, 3 heads of 64 for keys and for values; q8_0 takes 34 bytes for 32 numbers
        assert info["kv_v_bytes"] == pytest.approx(2048 * 30 * 192 * 2, rel=1e-3)
        assert info["kv_k_bytes"] == pytest.approx(2048 * 30 * 192 * 34 / 32, rel=1e-3)


def test_two_caches_are_added_up() -> None:
    line = "llama_kv_cache: size = {0} MiB ( 512 cells, 1 layers, 4/1 seqs), K (f16): {1} MiB, V (q8_0): {2} MiB"
    lines = [line.format("3.00", "2.00", "1.00"), line.format("0.75", "0.50", "0.25"), "K and V of nothing"]
    assert cache_sizes(lines) == (round(2.5 * 2**20), round(1.25 * 2**20))
    assert cache_sizes([]) == (0, 0)
    assert re.search("K ", lines[0])


def test_what_was_moved_is_followed_through_cuts_and_copies() -> None:
    cells = Cells(100, 3)
    cells.grow(0, 50)
    cells.close_gap(0, 10, 20)
    assert cells.moved(0) == (10, 30)
    cells.grow(0, 5)
    assert cells.moved(0) == (10, 30)
    cells.copy(0, 1, 25)
    assert (cells.moved(1), cells.same(0, 1), cells.same(1, 0), cells.same(0, 2)) == ((10, 15), 25, 25, 0)
    cells.cut(0, 12)
    assert (cells.moved(0), cells.same(0, 1)) == ((10, 2), 12)
    cells.cut(0, 5)
    assert cells.moved(0) == (0, 0)


def test_a_sequence_knows_its_parts() -> None:
    one = events.KvSequence(0, "chat-12", n_cells=100, n_shared=30, n_listed=10, moved_from=20, n_moved=50)
    assert (one.chat_id, one.n_shared_new, one.n_own, one.n_own_moved) == (12, 20, 70, 40)
    assert events.KvSequence(0, "other").chat_id is None
