"""What the panels show is what was: speeds, cells and bytes of the cache, memory, time lines, each checked against
another source than the one that the panel has it from."""

from __future__ import annotations

import itertools
import math
import re
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from desktop.speeds import Speeds, of_record
from desktop.views.trace import words
from engine import events, hardware
from engine.sampling import SamplingParams

QUESTION = "Tell me about the sea, and what lives in it."
LONG = SamplingParams(temperature=0.0, max_tokens=200, logit_bias={2: -1e9, 0: -1e9})
SHORT = SamplingParams(temperature=0.0, max_tokens=16, logit_bias={2: -1e9, 0: -1e9})


@pytest.fixture
def loaded(watched: Callable[..., Any], starter_model: Path) -> Any:
    w = watched()
    w.engine.change_settings(sampling=SHORT, speculate=False).result(5)
    w.info = w.load(starter_model, n_ctx=2048)
    return w


def _steps(w: Any, message_id: int, kind: type[Any]) -> list[Any]:
    return [
        e.step
        for e in w.events
        if isinstance(e, events.GenerationStep) and e.message_id == message_id and isinstance(e.step, kind)
    ]


@pytest.mark.serial
def test_speeds_times_and_probabilities_of_an_answer(loaded: Any) -> None:
    loaded.engine.change_settings(sampling=LONG).result(5)
    begun = time.perf_counter()
    _, answer = loaded.answer(QUESTION)
    wall_s = time.perf_counter() - begun
    trace = loaded.engine.traces.get(answer.id).result(10)
    assert trace is not None
    _check_speeds(loaded, answer)
    _check_time_line(answer, trace, wall_s)
    _check_probabilities(trace)


def _check_speeds(loaded: Any, answer: Any) -> None:
    """Within 1 %: what the worker sums up, what is counted while it is written, and what a stored answer gives."""
    tokens = [step for step in _steps(loaded, answer.id, events.Token) if step.token_id >= 0]
    assert len(tokens) == answer.generation.usage.completion_tokens == 200
    real = (len(tokens) - 1) / (tokens[-1].time_s - tokens[0].time_s)
    assert answer.generation.timings.decode_tps == pytest.approx(real, rel=0.01)
    live = Speeds()
    for step in [*_steps(loaded, answer.id, events.PromptProgress), *tokens]:
        live.add(step)
    assert live.decode_tps == pytest.approx(real, rel=0.01)
    assert live.ttft_s == pytest.approx(answer.generation.timings.ttft_s, rel=0.01)
    assert of_record(answer.generation).decode_tps == pytest.approx(real, rel=0.01)


def _check_time_line(answer: Any, trace: Any, wall_s: float) -> None:
    """The sum of the time line is the time that passed."""
    parts = trace.parts()
    assert [part.name for part in parts][-3:] == ["sample", "decode", "end"]
    for before, after in itertools.pairwise(parts):
        assert before.to_s == after.from_s and after.took_s >= 0
    total = sum(part.took_s for part in parts)
    # the clock here also runs while the question and the answer are written to disk
    assert total <= wall_s and total == pytest.approx(wall_s, rel=0.02, abs=0.05)
    took = {part.name: part.took_s for part in parts}
    assert took["decode"] == pytest.approx(answer.generation.timings.decode_s, rel=0.02)
    assert took["prefill"] >= answer.generation.timings.prefill_s - 1e-6


def _check_probabilities(trace: Any) -> None:
    """The ten most probable are in order, what was chosen is among them, and they agree with the plain log
    probability that was computed by other code."""
    assert len(trace.steps) == 200
    for step in trace.steps:
        detail = step.detail
        assert detail is not None
        found = {candidate.token_id: candidate.logprob for candidate in detail.candidates}
        assert step.token_id in found and found[step.token_id] == pytest.approx(step.logprob, abs=1e-4)
        first_ten = [candidate.logprob for candidate in detail.candidates][:10]
        assert first_ten == sorted(first_ten, reverse=True)
        assert sum(math.exp(logprob) for logprob in found.values()) <= 1 + 1e-4
        assert max(found, key=lambda token: found[token]) == step.token_id, "greedy: the most probable one"


def test_the_speed_of_a_branch_counts_what_it_wrote(loaded: Any) -> None:
    """While it is written and afterwards: what was given was not written."""
    loaded.engine.change_settings(sampling=msgspec.structs.replace(LONG, max_tokens=60)).result(5)
    _, answer = loaded.answer(QUESTION)
    trace = loaded.engine.traces.get(answer.id).result(5)
    index = len(trace.steps) // 2
    after = len(loaded.events)
    branch = loaded.engine.traces.branch(answer.id, index, trace.steps[index].detail.candidates[1].token_id).result(10)
    done = loaded.finished(branch.id, after=after)
    tokens = [step for step in _steps(loaded, branch.id, events.Token) if step.token_id >= 0]
    assert [token.forced for token in tokens] == [True] * (index + 1) + [False] * (len(tokens) - index - 1)
    live = Speeds()
    for step in [*_steps(loaded, branch.id, events.PromptProgress), *tokens]:
        live.add(step)
    assert len(tokens) - live.n_given > 10
    assert live.decode_tps == pytest.approx(done.generation.timings.decode_tps, rel=0.01)
    assert live.ttft_s == pytest.approx(done.generation.timings.ttft_s, rel=0.01)
    new = loaded.engine.traces.get(branch.id).result(5)
    assert words.step_time(new, 0)[0] == "" and "given" in words.step_time(new, 0)[1]
    first = words.duration(new.steps[index + 1].time_s - new.marks.prefilled_s)
    assert words.step_time(new, index + 1)[0] == first, "the first that was chosen, without reading what was given"


def test_cells_and_bytes_of_the_cache_are_those_of_llama_cpps_log(loaded: Any) -> None:
    end = loaded.engine.monitor.watch()
    question, first = loaded.answer(QUESTION)
    loaded.answer("And what else?", question.chat_id)
    _, other = loaded.answer("Something quite different: why is the sky blue?")
    total = loaded.wait(
        events.KvMap,
        lambda e: len(e.sequences) >= 2 and not any(s.active for s in e.sequences),
        after=len(loaded.events) - 1 if isinstance(loaded.events[-1], events.KvMap) else 0,
    )
    end()
    lines = [line for line in loaded.engine.model._client.log_tail if "KV buffer" in line or "size =" in line]
    found = re.search(
        r"size =\s+([\d.]+) MiB \(\s*(\d+) cells,.*K \((\w+)\):\s+([\d.]+) MiB, V \((\w+)\):\s+([\d.]+) MiB",
        "\n".join(lines),
    )
    assert found is not None, lines
    mib, cells, k_type, k_mib, v_type, v_mib = found.groups()
    info = loaded.info
    assert total.n_ctx == int(cells) == info.n_ctx
    assert info.kv_bytes == pytest.approx(float(mib) * 2**20, abs=2**20 / 50)
    assert (info.kv_type_k, info.kv_type_v) == (k_type, v_type)
    assert float(k_mib) + float(v_mib) == pytest.approx(float(mib), abs=0.02)

    held = {sequence.chat_id: sequence for sequence in total.sequences}
    usage = other.generation.usage
    last = held[other.chat_id]
    # the last token of an answer was chosen, but nothing was computed from it
    assert last.n_cells == usage.prompt_tokens + usage.completion_tokens - 1
    assert total.n_used == sum(s.n_own + s.n_shared_new for s in total.sequences)
    assert first.generation.usage.prompt_tokens < held[question.chat_id].n_cells


@pytest.mark.serial
def test_memory_is_what_the_system_says(loaded: Any) -> None:
    """Within a sample: what is shown lies between what the system says before and after."""
    worker = psutil.Process(loaded.engine.worker_pid)
    before = worker.memory_info().rss, psutil.Process().memory_info().rss, hardware.ram().available_bytes
    end = loaded.engine.monitor.watch()
    sample = loaded.wait(events.Sampled)
    after = worker.memory_info().rss, psutil.Process().memory_info().rss, hardware.ram().available_bytes
    end()
    assert sample.worker is not None and sample.window is not None
    near = 4 << 20
    assert min(before[0], after[0]) - near <= sample.worker.rss_bytes <= max(before[0], after[0]) + near
    assert min(before[1], after[1]) - near <= sample.window.rss_bytes <= max(before[1], after[1]) + near
    assert sample.ram_available_bytes == pytest.approx(statistics.mean((before[2], after[2])), rel=0.1)
    assert sample.ram_total_bytes == hardware.ram().total_bytes
    private, mapped = sample.worker.private_bytes, sample.worker.mapped_bytes
    assert private is not None and mapped is not None
    assert private + mapped == pytest.approx(sample.worker.rss_bytes, abs=near)
    # weights are pages of the file, the cache and what is computed are the process's own
    assert private >= loaded.info.kv_bytes // 4 and mapped > 50 << 20


def test_nothing_looks_when_nobody_watches(loaded: Any) -> None:
    end = loaded.engine.monitor.watch()
    loaded.wait(events.Sampled)
    loaded.wait(events.KvMap)
    end()
    before = len(loaded.events)
    loaded.answer("Hello")
    kinds = {type(event) for event in loaded.events[before:]}
    assert events.KvMap not in kinds, "the model's process was told that nobody looks"
    assert sum(isinstance(event, events.Sampled) for event in loaded.events[before:]) <= 1
    assert not loaded.engine.monitor.watched


def test_a_branch_is_the_answer_with_that_token_forced(loaded: Any) -> None:
    """The answer up to a token, then the other one, and then what follows at the same seed; the cache is used."""
    loaded.engine.change_settings(sampling=SamplingParams(seed=11, max_tokens=24)).result(5)
    _, answer = loaded.answer(QUESTION)
    trace = loaded.engine.traces.get(answer.id).result(10)
    for n, index in enumerate((0, 3, len(trace.steps) - 1)):
        step = trace.steps[index]
        other = next(c for c in step.detail.candidates if c.token_id != step.token_id)
        after = len(loaded.events)
        branch = loaded.engine.traces.branch(answer.id, index, other.token_id).result(10)
        branch = loaded.finished(branch.id, after=after)
        made = loaded.engine.traces.get(branch.id).result(10)
        ids = [one.token_id for one in made.steps]
        assert ids[: index + 1] == [*(one.token_id for one in trace.steps[:index]), other.token_id]
        assert branch.generation.usage.cached_tokens > 0 and (branch.version, branch.n_versions) == (n + 2, n + 2)
        assert made.seed == trace.seed
