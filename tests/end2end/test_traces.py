"""Traces from the question to the disk: what is in them, branching, taking a step again, limits, the command line."""

from __future__ import annotations

import json
import math
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from cli_runner import run as run_cli
from store_help import grow, one_transaction

from engine import events
from engine.errors import Gone, InvalidRequest
from engine.sampling import SamplingParams
from engine.store.chats import ChatStore
from engine.trace import Step, Trace

QUESTION = "Why did my Kubernetes pod restart?"
SAMPLING = SamplingParams(temperature=1.0, top_k=60, seed=4, max_tokens=24)


@pytest.fixture
def loaded(watched: Callable[..., Any]) -> Iterator[Any]:
    w = watched()
    w.engine.change_settings(sampling=SAMPLING).result(5)
    w.load(n_threads=2)
    yield w


def trace_of(w: Any, message_id: int) -> Trace:
    trace: Trace | None = w.engine.traces.get(message_id).result(5)
    assert trace is not None
    return trace


def detail(step: Step) -> events.TokenDetail:
    assert step.detail is not None
    return step.detail


def finished(w: Any, start: Callable[[], Any]) -> Any:
    """The answer that a call has begun, at its end."""
    after = len(w.events)
    message = start().result(10)
    return w.finished(message.id, after=after)


def test_an_answer_is_kept_with_its_trace(loaded: Any) -> None:
    question, answer = loaded.answer(QUESTION)
    trace = trace_of(loaded, answer.id)
    assert b"".join(step.piece for step in trace.steps).decode() == answer.text
    assert [(m.id, m.role, m.text) for m in trace.messages] == [(question.id, "user", QUESTION)]
    said = b"".join(p for p, owner in zip(trace.pieces, trace.prompt_owners, strict=True) if owner == 0)
    assert said.decode() == QUESTION
    assert len(trace.prompt_tokens) == trace.n_prompt == answer.generation.usage.prompt_tokens
    assert sum(chunk.count for chunk in trace.chunks) + trace.n_cached == trace.n_prompt
    assert trace.seed == 4 and trace.usage == answer.generation.usage
    assert trace.model_path == loaded.engine.model_state.path
    for step in trace.steps:
        assert step.detail is not None and step.detail.token_id == step.token_id
        assert step.logprob is not None and 0 < math.exp(step.logprob) <= 1
        assert 0 <= step.detail.draw_from < step.detail.draw_to <= 1
        assert step.detail.chosen_p == pytest.approx(step.detail.draw_to - step.detail.draw_from, abs=1e-6)
    assert 0 < trace.n_bytes < 40_000
    assert loaded.engine.traces.usage().result(5) == (1, trace.n_bytes)


def test_the_parts_of_the_time_line_are_the_wall_time(loaded: Any) -> None:
    long = SamplingParams(temperature=0.0, max_tokens=60, logit_bias={2: -1e9, 0: -1e9})
    loaded.engine.change_settings(sampling=long).result(5)
    seen: dict[type[events.Event], float] = {}

    def see(event: events.Event) -> None:
        if isinstance(event, events.GenerationStarted | events.GenerationFinished):
            seen[type(event)] = time.perf_counter()

    stop = loaded.engine.subscribe(see)
    _, answer = loaded.answer("Foxes and hens. " * 30)
    stop()
    trace = trace_of(loaded, answer.id)
    wall = seen[events.GenerationFinished] - seen[events.GenerationStarted]
    parts = trace.parts()
    assert sum(part.took_s for part in parts) == pytest.approx(wall, rel=0.02)
    assert [part.name for part in parts] == ["queue", "template", "wait", "cache", "prefill", "sample", "decode", "end"]
    assert parts[0].from_s == 0 and all(a.to_s == b.from_s for a, b in pairwise(parts))
    timings = answer.generation.timings
    took = {part.name: part.took_s for part in parts}
    assert took["decode"] == pytest.approx(timings.decode_s, rel=0.02)
    assert took["prefill"] == pytest.approx(timings.prefill_s, rel=0.05)
    before_first = sum(part.took_s for part in parts[:6])
    assert before_first == pytest.approx(timings.ttft_s, rel=0.02)


def test_waiting_for_the_load_is_a_part(watched: Callable[..., Any]) -> None:
    w = watched()
    w.engine.change_settings(sampling=SamplingParams(temperature=0.0, max_tokens=4)).result(5)
    loading = w.engine.load_model("starter", n_threads=2)
    _, answer = w.answer("Hi")
    loading.result(30)
    trace = trace_of(w, answer.id)
    parts = trace.parts()
    assert parts[0].name == "load" and parts[0].to_s == trace.arrived_s > 0.1
    assert trace.wall_s == pytest.approx(sum(part.took_s for part in parts), rel=0.02)
    assert trace.model_path == w.engine.model_state.path


def test_a_trace_can_be_seen_while_it_is_made(loaded: Any) -> None:
    after = len(loaded.events)
    loaded.engine.change_settings(sampling=SamplingParams(temperature=0.0, max_tokens=200)).result(5)
    loaded.engine.chats.send(None, QUESTION).result(5)
    prompt = loaded.wait(events.GenerationPrompt, after=after)
    loaded.wait(events.GenerationStep, lambda e: isinstance(e.step, events.Token) and e.step.index == 3, after=after)
    live = loaded.engine.traces.live(prompt.message_id).result(1)
    assert live is not None and len(live.steps) >= 3 and live.tokens == prompt.prompt.tokens and live.parts() == ()
    loaded.engine.chats.stop()
    answer = loaded.finished(prompt.message_id, after=after)
    assert loaded.engine.traces.live(answer.id).result(1) is None
    trace = trace_of(loaded, answer.id)
    assert trace.finish_reason == "cancelled" and len(trace.steps) >= len(live.steps) and trace.parts()


def test_stopped_while_it_reads_nothing_is_told_as_done_that_was_not(loaded: Any) -> None:
    after = len(loaded.events)
    loaded.engine.chats.send(None, "Foxes and hens and geese. " * 900).result(5)
    step = loaded.wait(
        events.GenerationStep, lambda e: isinstance(e.step, events.PromptProgress) and e.step.n_chunk > 0, after=after
    )
    loaded.engine.chats.stop()
    answer = loaded.finished(step.message_id, after=after)
    trace = trace_of(loaded, answer.id)
    assert trace.finish_reason == "cancelled" and not trace.steps
    assert 0 < trace.n_read == sum(chunk.count for chunk in trace.chunks) < trace.n_prompt
    parts = trace.parts()
    assert parts[-1].name == "prefill", "what was going on when it was stopped"
    assert parts[-1].took_s >= sum(chunk.took_s for chunk in trace.chunks)
    assert sum(part.took_s for part in parts) == pytest.approx(trace.wall_s, rel=0.02)


def test_no_trace_where_none_is_wanted(loaded: Any) -> None:
    loaded.engine.change_settings(trace=False).result(5)
    after = len(loaded.events)
    _, answer = loaded.answer(QUESTION)
    assert loaded.engine.traces.get(answer.id).result(5) is None
    assert not [e for e in loaded.events[after:] if isinstance(e, events.GenerationPrompt)]
    steps = [e.step for e in loaded.events[after:] if isinstance(e, events.GenerationStep)]
    assert not any(isinstance(step, events.Token) and step.detail for step in steps)
    with pytest.raises(InvalidRequest, match="no trace"):
        loaded.engine.traces.export(answer.id).result(5)


# ------------------------------------------------------------------ branches and steps


def test_branching_is_another_version_that_goes_on_from_there(loaded: Any) -> None:
    question, answer = loaded.answer(QUESTION)
    trace = trace_of(loaded, answer.id)
    other = next(c for c in detail(trace.steps[6]).candidates if c.token_id != trace.steps[6].token_id)
    branch = finished(loaded, lambda: loaded.engine.traces.branch(answer.id, 6, other.token_id))
    assert (branch.parent_id, branch.version, branch.n_versions) == (question.id, 2, 2)
    new = trace_of(loaded, branch.id)
    assert [s.token_id for s in new.steps[:7]] == [*(s.token_id for s in trace.steps[:6]), other.token_id]
    assert [s.forced for s in new.steps] == [True] * 7 + [False] * (len(new.steps) - 7)
    assert new.seed == trace.seed and new.n_forced == 7 and new.sampling == trace.sampling
    assert new.n_cached == new.n_prompt, "the prompt is not read again"
    assert b"".join(step.piece for step in new.steps).decode() == branch.text
    # what could have come is known for the forced ones too
    assert [detail(s).candidates for s in new.steps[:6]] == [detail(s).candidates for s in trace.steps[:6]]
    assert detail(new.steps[6]).token_id == other.token_id and new.steps[6].logprob == other.logprob
    assert detail(new.steps[6]).stages == ()
    _, shown = loaded.engine.chats.open(question.chat_id).result(5)
    assert shown[-1].id == branch.id
    _, shown = loaded.engine.chats.switch_version(branch.id, -1).result(5)
    assert shown[-1].id == answer.id and shown[-1].text == answer.text


def test_a_branch_is_what_forcing_from_scratch_gives(loaded: Any, starter_model: Path) -> None:
    _, answer = loaded.answer(QUESTION)
    trace = trace_of(loaded, answer.id)
    token = detail(trace.steps[4]).candidates[1].token_id
    branch = finished(loaded, lambda: loaded.engine.traces.branch(answer.id, 4, token))
    loaded.load(n_threads=2)  # nothing of it is in the cache any more
    loaded.engine.model.forget(f"chat-{answer.chat_id}")
    scratch = finished(loaded, lambda: loaded.engine.traces.branch(answer.id, 4, token))
    assert trace_of(loaded, scratch.id).n_cached == 0
    assert scratch.text == branch.text


def test_going_on_behind_the_end(loaded: Any) -> None:
    ends = SamplingParams(temperature=0.0, max_tokens=12, logit_bias={2: 100.0})
    loaded.engine.change_settings(sampling=ends).result(5)
    _, answer = loaded.answer("Hi")
    trace = trace_of(loaded, answer.id)
    assert trace.steps == () and trace.end is not None and trace.end.token_id == 2
    other = detail(trace.end).candidates[1].token_id
    branch = finished(loaded, lambda: loaded.engine.traces.branch(answer.id, 0, other))
    assert [s.token_id for s in trace_of(loaded, branch.id).steps] == [other]
    for index in (-1, 2):
        with pytest.raises(InvalidRequest, match="no such token"):
            loaded.engine.traces.branch(branch.id, index, other).result(5)


def test_an_answer_that_was_continued_can_be_branched(loaded: Any) -> None:
    _, answer = loaded.answer(QUESTION)
    more = finished(loaded, lambda: loaded.engine.chats.continue_message(answer.id))
    trace = trace_of(loaded, answer.id)
    assert trace.continued and trace.messages[-1].text == answer.text and more.text.startswith(answer.text)
    token = detail(trace.steps[3]).candidates[1].token_id
    branch = finished(loaded, lambda: loaded.engine.traces.branch(answer.id, 3, token))
    assert branch.id != answer.id and branch.text.startswith(answer.text)
    said = b"".join(step.piece for step in trace_of(loaded, branch.id).steps)
    assert branch.text == answer.text + said.decode()


def test_a_step_taken_again_is_the_same_and_with_other_settings_another(loaded: Any) -> None:
    _, answer = loaded.answer(QUESTION)
    trace = trace_of(loaded, answer.id)
    n_messages = len(loaded.engine.chats.open(answer.chat_id).result(5)[1])
    for index in (0, 5, len(trace.steps) - 1):
        again = loaded.engine.traces.replay(answer.id, index, trace.sampling).result(20)
        assert again.token_id == trace.steps[index].token_id
        assert [s.name for s in again.stages] == ["top_k", "top_p", "min_p", "temperature"]
        assert again.draw_to == pytest.approx(detail(trace.steps[index]).draw_to, abs=0.02)
    greedy = loaded.engine.traces.replay(answer.id, 5, SamplingParams(temperature=0.0)).result(20)
    assert greedy.token_id == greedy.candidates[0].token_id and greedy.draw_to == 0
    assert loaded.engine.traces.usage().result(5)[0] == 1, "nothing is stored"
    assert len(loaded.engine.chats.open(answer.chat_id).result(5)[1]) == n_messages
    with pytest.raises(InvalidRequest):
        loaded.engine.traces.replay(answer.id, 99, trace.sampling).result(5)


def test_a_step_of_mirostat_taken_again_is_the_same(loaded: Any) -> None:
    sampling = SamplingParams(temperature=1.2, mirostat=2, mirostat_tau=3.0, mirostat_eta=0.3, seed=9, max_tokens=30)
    loaded.engine.change_settings(sampling=sampling).result(5)
    _, answer = loaded.answer(QUESTION)
    trace = trace_of(loaded, answer.id)
    for index in (1, 11, len(trace.steps) - 1):
        again = loaded.engine.traces.replay(answer.id, index, trace.sampling).result(20)
        then = detail(trace.steps[index])
        assert (again.token_id, again.stages) == (then.token_id, then.stages)
        assert again.chosen_p == pytest.approx(then.chosen_p, abs=0.01)


def test_another_model_cannot_go_on(loaded: Any, scripted_model: Callable[..., dict[str, Any]]) -> None:
    _, answer = loaded.answer(QUESTION)
    loaded.load(scripted_model(["one"])["path"])
    with pytest.raises(InvalidRequest, match="Another model"):
        loaded.engine.traces.branch(answer.id, 0, 5).result(5)
    with pytest.raises(InvalidRequest, match="Another model"):
        loaded.engine.traces.replay(answer.id, 0, SAMPLING).result(5)
    assert len(loaded.engine.chats.open(answer.chat_id).result(5)[1]) == 2


def test_from_what_was_deleted_nothing_goes_on(loaded: Any) -> None:
    question, answer = loaded.answer(QUESTION)
    traces, chats = loaded.engine.traces, loaded.engine.chats
    token = detail(trace_of(loaded, answer.id).steps[2]).candidates[1].token_id
    assert traces.lost(answer.id).result(5) == ""
    put_away: list[tuple[str, str, Callable[[], Any], Callable[[], Any]]] = [
        (
            "message",
            "This answer was deleted",
            lambda: chats.delete_message(answer.id),
            lambda: chats.restore_message(answer.id),
        ),
        (
            "message",
            "This answer was deleted",
            lambda: chats.delete_message(question.id),
            lambda: chats.restore_message(question.id),
        ),
        (
            "chat",
            "The chat of this answer was deleted",
            lambda: chats.delete(answer.chat_id),
            lambda: chats.restore(answer.chat_id),
        ),
    ]
    for what, words, delete, restore in put_away:
        delete().result(5)
        assert traces.lost(answer.id).result(5) == what
        assert trace_of(loaded, answer.id).steps, "it can be read all the same"
        for ask in (lambda: traces.branch(answer.id, 2, token), lambda: traces.replay(answer.id, 2, SAMPLING)):
            with pytest.raises(Gone, match=words):
                ask().result(5)
        restore().result(5)
        assert traces.lost(answer.id).result(5) == ""
    assert traces.replay(answer.id, 2, SAMPLING).result(20)
    assert traces.lost(10**6).result(5) == "message"
    with pytest.raises(Gone, match="This chat was deleted, or was never there"):
        chats.open(10**6).result(5)


# ------------------------------------------------------------------ keeping them


def test_the_oldest_go_and_all_can_go(loaded: Any) -> None:
    loaded.engine.change_settings(sampling=SamplingParams(max_tokens=4)).result(5)
    answers = [loaded.answer(f"Hi {number}")[1] for number in range(3)]
    n, n_bytes = loaded.engine.traces.usage().result(5)
    assert n == 3
    loaded.engine.settings._values["trace_cap_mib"] = n_bytes / 2**20  # smaller than a user may set it
    answers.append(loaded.answer("Hi 3")[1])
    there = [loaded.engine.traces.get(a.id).result(5) is not None for a in answers]
    assert there[0] is False and there[-1] is True and loaded.engine.traces.usage().result(5)[1] <= n_bytes
    assert loaded.engine.traces.latest().result(5) == answers[-1].id
    loaded.engine.traces.clear().result(5)
    assert loaded.engine.traces.usage().result(5) == (0, 0)
    assert loaded.engine.traces.get(answers[-1].id).result(5) is None


@pytest.mark.serial
def test_while_all_are_removed_an_answer_still_gets_to_the_disk(home: Path, watched: Callable[..., Any]) -> None:
    """Hundreds of MiB of traces: what is written meanwhile is never more than 2 s behind on disk."""
    script = json.dumps({"answers": [{"text": "word " * 3000, "delay_s": 0.01}]})
    w = watched(worker_command=[sys.executable, "-m", "engine.worker.fake", "--script", script])
    model = home / "any.gguf"
    model.write_bytes(b"GGUF")
    w.load(model)
    old = w.engine.chats.create().result(10).id

    def fill(store: ChatStore) -> None:
        ids = grow(store, old, 500)
        for message_id in ids[1::2]:
            store.traces.put(message_id, os.urandom(1 << 20), 1 << 40)

    w.engine.chats._run(lambda store: one_transaction_of(store, fill)).result(120)
    assert w.engine.traces.usage().result(10)[1] >= 250 << 20
    chat = w.engine.chats.send(None, "Hi").result(10).chat_id
    w.wait(events.GenerationStep, lambda e: isinstance(e.step, events.Token) and e.step.index > 20)
    database = next(home.rglob("chats.db"))
    clearing = w.engine.traces.clear()
    turns = [w.engine.chats.open(chat)]
    worst, seen = 0.0, {0: time.monotonic()}  # characters -> when they came
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as other:
        while not clearing.done():
            now = time.monotonic()
            n_written = sum(len(e.step.text) for e in w.events if isinstance(e, events.GenerationStep) and text(e))
            seen[n_written] = now
            stored = json.loads(other.execute("SELECT parts FROM messages ORDER BY id DESC LIMIT 1").fetchone()[0])
            n_stored = sum(len(part["text"]) for part in stored)
            worst = max(worst, now - min((at for n, at in seen.items() if n > n_stored), default=now))
            time.sleep(0.02)
            if turns[-1].done():
                turns.append(w.engine.chats.open(chat))
    other.close()
    clearing.result(1)
    assert w.engine.chats.generating(), "the answer is still being written, so all of this was meanwhile"
    assert worst < 2.0
    assert len(turns) > 10, "others had their turn in between"
    assert w.engine.traces.usage().result(10) == (0, 0) and database.stat().st_size < 16 << 20
    w.engine.chats.stop()


def text(event: events.GenerationStep) -> bool:
    return isinstance(event.step, events.Token)


def one_transaction_of(store: ChatStore, work: Callable[[ChatStore], None]) -> None:
    with one_transaction(store):
        work(store)


def test_export_and_command_line(loaded: Any, home: Path) -> None:
    _, answer = loaded.answer(QUESTION)
    trace = trace_of(loaded, answer.id)
    exported = json.loads(loaded.engine.traces.export(answer.id).result(5))
    assert exported["format"] == "inglenook-trace-1" and exported["message_id"] == answer.id
    assert "".join(step["text"] for step in exported["steps"]) == answer.text
    assert [step["token_id"] for step in exported["steps"]] == [step.token_id for step in trace.steps]
    assert [t["token_id"] for t in exported["prompt"]] == list(trace.prompt_tokens)
    assert exported["steps"][0]["stages"][0]["name"] == "top_k" and len(exported["parts"]) == 8
    loaded.engine.stop()
    shown = run_cli("trace", "last", "--json")
    assert shown.returncode == 0 and json.loads(shown.stdout) == exported
    table = run_cli("trace", str(answer.id))
    assert table.returncode == 0 and "prefill" in table.stdout and "seed 4" in table.stdout
    assert run_cli("trace", "999").returncode == 2 and run_cli("trace", "x").returncode == 2
