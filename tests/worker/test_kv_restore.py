"""A chat goes on after a restart, or after its slot was given up, without being read again."""

from __future__ import annotations

import itertools
import shutil
import statistics
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import memory_models
import pytest
from raw_worker import Answer, RawWorker
from test_prefix_reuse import LOAD

from engine import kv_files

STORY = " ".join(
    f"In year {n} the {who} of {place} counted {3 * n + 7} {what} and wrote it down."
    for n, (who, place, what) in enumerate(
        itertools.product(("miller", "keeper"), ("Oban", "Varna", "Elche"), ("geese", "boats", "lamps", "bells"))
    )
)
FIRST = [{"role": "system", "content": STORY}, {"role": "user", "content": "Who counted boats?"}]
ASK = {"temperature": 0, "max_tokens": 12}
HOOKS = {"KV_WORTH_S": "0.001"}
LONG = 480  # tokens, at least


def longer(answer: Answer) -> list[dict[str, str]]:
    said = {"role": "assistant", "content": answer.text}
    return [*FIRST, said, {"role": "user", "content": "And in which year?"}]


def load(worker: RawWorker, model: Path, folder: Path, **options: Any) -> None:
    worker.load(model, **{**LOAD, "n_ctx": 2048, "kv_folder": str(folder), **options})


def figures(answer: Answer) -> tuple[list[int], list[float]]:
    return answer.ids, [e["logprob"] for e in answer.tokens]


Kept = tuple[Path, Answer, Answer]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("tiny")
    return {kind: memory_models.build(folder / f"{kind}.gguf", kind) for kind in memory_models.KINDS}


@pytest.fixture
def model(models: dict[str, Path]) -> Path:
    return models["llama"]


@pytest.fixture(scope="module")
def sessions(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Kept]:
    @cache
    def make(kind: str) -> Kept:
        """(the folder with the state of a chat's first turn, its first answer, the second one without a restart)"""
        folder = tmp_path_factory.mktemp("states")
        with RawWorker(hooks=HOOKS) as worker:
            load(worker, models[kind], folder / "unused")
            first = worker.ask(messages=FIRST, cache_key="chat", **ASK)
            second = worker.ask(messages=longer(first), cache_key="chat", **ASK)
            assert second.done["usage"]["restored_tokens"] == 0 and second.done["usage"]["cached_tokens"] > LONG
        with RawWorker(hooks=HOOKS) as worker:
            load(worker, models[kind], folder / "kv")
            assert figures(worker.ask(messages=FIRST, cache_key="chat", **ASK)) == figures(first)
        (path,) = kv_files.ours(folder / "kv")
        assert path.suffix == kv_files.SUFFIX, "kept at the end of the process"
        return folder / "kv", first, second

    return make


@pytest.fixture
def kept(sessions: Callable[[str], Kept], tmp_path: Path) -> Kept:
    """One of those with a folder of its own."""
    folder, *answers = sessions("llama")
    return shutil.copytree(folder, tmp_path / "kv"), *answers


@pytest.mark.parametrize("kind", memory_models.KINDS)
def test_after_a_restart_the_chat_goes_on_as_if_nothing_was(
    models: dict[str, Path], sessions: Callable[[str], Kept], kind: str, tmp_path: Path
) -> None:
    model, (folder, first, second) = models[kind], sessions(kind)
    folder = shutil.copytree(folder, tmp_path / "kv")
    with RawWorker(hooks=HOOKS) as worker:
        load(worker, model, folder, n_ctx=1536)  # how much the context holds does not matter
        answer = worker.ask(messages=longer(first), cache_key="chat", **ASK)
        usage = answer.done["usage"]
        n_cached = second.done["usage"]["cached_tokens"]
        if usage["cached_tokens"] == n_cached:
            assert figures(answer) == figures(second), "the same bits in the cache, the same chunks, the same answer"
        else:  # other chunks: sums of the same numbers in another order
            assert answer.ids == second.ids
            assert figures(answer)[1] == pytest.approx(figures(second)[1], abs=1e-4)
        # what has left the window is not kept, so it goes back to the state before the answer
        assert usage["restored_tokens"] == usage["cached_tokens"] == (n_cached - 8 if kind == "window" else n_cached)
        if kind != "window":
            assert answer.done.get("reread") == second.done.get("reread")
        # it is there now: the next turn needs no disk
        again = worker.ask(messages=longer(first), cache_key="chat", **ASK)
        assert again.done["usage"]["restored_tokens"] == 0 and again.done["usage"]["cached_tokens"] > LONG
        other = worker.ask(messages=longer(first), cache_key="another", **ASK)
        assert other.done["usage"]["restored_tokens"] == 0


@pytest.mark.serial
def test_restored_is_much_quicker_than_read_again(starter_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "kv"
    with RawWorker(hooks=HOOKS) as worker:
        worker.load(starter_model, n_ctx=2048, kv_folder=str(folder))
        first = worker.ask(messages=FIRST, cache_key="chat", **ASK)
    times = {}
    for place in (tmp_path / "empty", folder):
        with RawWorker(hooks=HOOKS) as worker:
            worker.load(starter_model, n_ctx=2048, kv_folder=str(place))
            worker.ask("Hi", **ASK)
            answer = worker.ask(messages=longer(first), cache_key="chat", **ASK)
            times[place] = answer.done["timings"]["ttft_s"]
    assert times[folder] * 5 < times[tmp_path / "empty"], times


@pytest.mark.parametrize("options", [{"kv_type_k": "f16"}, {"flash_attention": "on"}, {"swa_full": True}])
def test_other_settings_do_not_take_it(model: Path, kept: Kept, options: dict[str, Any]) -> None:
    folder, first, _ = kept
    with RawWorker(hooks=HOOKS) as worker:
        load(worker, model, folder, **options)
        answer = worker.ask(messages=longer(first), cache_key="chat", temperature=0, max_tokens=1)
        assert answer.done["usage"]["restored_tokens"] == 0 == answer.done["usage"]["cached_tokens"]


@pytest.mark.parametrize("damage", ["cut", "bit", "sizes"])
def test_a_damaged_one_is_read_again_with_a_line_in_the_log(model: Path, kept: Kept, damage: str) -> None:
    folder, first, second = kept
    (path,) = kv_files.ours(folder)
    raw = bytearray(path.read_bytes())
    if damage == "bit":
        raw[len(raw) // 2] ^= 1
    elif damage == "cut":
        del raw[len(raw) // 2 :]
    else:
        raw[20] ^= 1
    path.write_bytes(raw)
    with RawWorker(hooks=HOOKS) as worker:
        load(worker, model, folder)
        answer = worker.ask(messages=longer(first), cache_key="chat", **ASK)
        assert answer.ids == second.ids and answer.done["usage"]["cached_tokens"] == 0
        lines = [e["text"] for e in worker.events if e["type"] == "log" and e["source"] == "cache"]
        assert len(lines) == 1 and path.name in lines[0]
        assert not path.exists() or path.read_bytes() != raw


def test_given_up_for_another_chat_and_taken_back(model: Path, tmp_path: Path) -> None:
    with RawWorker(hooks=HOOKS) as worker:
        load(worker, model, tmp_path / "kv", n_slots=1)
        first = worker.ask(messages=FIRST, cache_key="chat", **ASK)
        worker.ask("Hi", cache_key="other", **ASK)
        answer = worker.ask(messages=longer(first), cache_key="chat", **ASK)
        usage = answer.done["usage"]
        assert usage["restored_tokens"] == usage["cached_tokens"] > LONG


def test_kept_after_a_while_and_after_an_unload(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "kv"
    with RawWorker(hooks={**HOOKS, "KV_IDLE_S": "0.3"}) as worker:
        load(worker, model, folder)
        first = worker.ask(messages=FIRST, cache_key="chat", **ASK)
        end = time.monotonic() + 10
        while not [p for p in kv_files.ours(folder) if p.suffix == kv_files.SUFFIX]:
            assert time.monotonic() < end
            time.sleep(0.05)
        worker.kill()
    with RawWorker(hooks=HOOKS) as worker:
        load(worker, model, folder)
        second = worker.ask(messages=longer(first), cache_key="chat", **ASK)
        assert second.done["usage"]["restored_tokens"] > LONG
        worker.wait("unloaded", id=worker.send("unload"))
        load(worker, model, folder)
        third = worker.ask(messages=longer(first), cache_key="chat", **ASK)
        assert third.done["usage"]["restored_tokens"] > LONG


def test_a_forgotten_chat_leaves_no_file(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "kv"
    with RawWorker(hooks={**HOOKS, "KV_IDLE_S": "0.1"}) as worker:
        load(worker, model, folder)
        worker.ask(messages=FIRST, cache_key="chat", **ASK)
        worker.ask(messages=FIRST, cache_key="stays", **ASK)
        running = worker.generate(messages=FIRST, cache_key="gone", sampling={"temperature": 0})
        worker.wait("token", id=running)
        for key in ("chat", "gone", "never was"):
            worker.send("forget", cache_key=key)
        worker.stop(running)
        worker.answer(running)
        answer = worker.ask(messages=FIRST, cache_key="chat", **ASK)
        assert answer.done["usage"]["restored_tokens"] == 0 and answer.done.get("reread") is None
        worker.send("forget", cache_key="chat")
        time.sleep(1)
    assert [kv_files.belongs_to(p, "stays") for p in kv_files.ours(folder)] == [True]


def test_many_chats_stay_within_the_cap(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "kv"
    cap = 2 << 20  # room for two
    with RawWorker(hooks=HOOKS) as worker:
        load(worker, model, folder, n_slots=1, kv_cap_bytes=cap)
        for key in "abc":
            worker.ask(messages=FIRST, cache_key=key, temperature=0, max_tokens=1)
            worker.wait("unloaded", id=worker.send("unload"))
            load(worker, model, folder, n_slots=1, kv_cap_bytes=cap)
    found = list(kv_files.ours(folder))
    assert sum(p.stat().st_size for p in found) <= cap and any(kv_files.belongs_to(p, "c") for p in found)


@pytest.mark.serial
def test_keeping_a_state_does_not_stall_another_answer(starter_model: Path, tmp_path: Path) -> None:
    with RawWorker(hooks=HOOKS) as worker:
        worker.load(starter_model, n_ctx=2048, n_slots=2, kv_folder=str(tmp_path / "kv"))
        worker.ask(messages=FIRST, cache_key="chat", **ASK)
        running = worker.generate("Tell me a long story about the sea.", sampling={"temperature": 0, "max_tokens": 150})
        for _ in range(20):
            worker.wait("token", id=running)
        began = time.monotonic()
        worker.ask("Hi", cache_key="other", **ASK)  # takes the slot: its state is written to disk now
        worker.answer(running)
        times = [e["_at"] for e in worker.events if e["type"] == "token" and e["request_id"] == running]
        gaps = [b - a for a, b in itertools.pairwise(t for t in times if t > began - 0.1)]
        # that a prompt is read beside it makes a step as long as 0.1 s; a busy computer makes all of them longer
        assert max(gaps) < max(0.25, 5 * statistics.median(gaps)), f"longest gap {max(gaps):.2f} s"
    assert any(kv_files.belongs_to(p, "chat") for p in kv_files.ours(tmp_path / "kv"))
