"""The worker with a real model: the same text as llama.cpp itself, and facts that are true."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import bare_loop
import psutil
import pytest
from raw_worker import RawWorker

QUESTIONS = [
    "Why did my Kubernetes pod restart? The container's last termination reason is OOMKilled.",
    "Hi",
    "Write a Python function that adds two numbers.\n\n\n",
    "歪 and 👨‍👩‍👧‍👦: what are these?",
]
LONG = "Tell me a story about a fox. " * 75  # more than one batch of 512


@pytest.fixture(scope="module")
def worker(starter_model: Path) -> Iterator[RawWorker]:
    with RawWorker() as one:
        one.info = one.load(starter_model, n_ctx=2048)  # type: ignore[attr-defined]
        yield one


@pytest.mark.timeout(300)
def test_greedy_text_is_that_of_a_plain_llama_loop(worker: RawWorker, starter_model: Path) -> None:
    questions = [*QUESTIONS, LONG]
    prompts = [worker.tokens_of(messages=[{"role": "user", "content": q}]) for q in questions]
    assert len(prompts[-1]) > 512
    counts = [24, 24, 24, 24, 4]
    expected = bare_loop.run(starter_model, [{"tokens": p, "n": n} for p, n in zip(prompts, counts, strict=True)])
    for question, prompt, n, plain in zip(questions, prompts, counts, expected, strict=True):
        worker.load(starter_model, n_ctx=2048)  # no cache: reuse may differ by rounding
        answer = worker.ask(question, temperature=0, max_tokens=n)
        assert answer.ids == plain["tokens"], question
        assert answer.done["usage"]["prompt_tokens"] == len(prompt)


def test_model_info_says_what_is_really_there(worker: RawWorker, starter_model: Path) -> None:
    info = worker.info  # type: ignore[attr-defined]
    assert info["n_ctx"] == 2048 and info["n_ctx_train"] == 8192
    assert info["n_gpu_layers"] == 0  # although llama.cpp logs "offloaded 31/31 layers to GPU"
    assert info["backends"] == ["CPU"] and info["n_layer"] == 30 and info["n_vocab"] == 49152
    assert sorted(info["eog_tokens"]) == [0, 2, 4]
    kv_row = 30 * 192 * 2 * 2  # layers, embedding of keys or values, both, f16
    assert info["kv_bytes"] == pytest.approx(2048 * kv_row, rel=0.01)
    assert sum(v for k, v in info["buffers"].items() if k.endswith(" model")) > 90e6
    assert info["n_threads"] <= (psutil.cpu_count(logical=False) or 1)
    assert info["size_bytes"] == pytest.approx(starter_model.stat().st_size, rel=0.05)
    assert info["template"]["source"] == "file"
    hello = worker.events[0]
    assert hello["type"] == "hello" and hello["pid"] == worker.process.pid
    assert [d["kind"] for d in hello["devices"]] == ["cpu"] and "CPU" in hello["backends"]


def test_stream_counts_and_times_agree(worker: RawWorker) -> None:
    sent = time.monotonic()
    answer = worker.ask("Name three colours.", temperature=0, max_tokens=30)
    took = time.monotonic() - sent
    done, usage, timings = answer.done, answer.done["usage"], answer.done["timings"]
    assert answer.streamed == answer.text
    assert len(answer.tokens) == usage["completion_tokens"]
    assert [e["index"] for e in answer.tokens] == list(range(len(answer.tokens)))
    times = [e["time_s"] for e in answer.tokens]
    assert times == sorted(times)
    assert timings["ttft_s"] == pytest.approx(times[0]) and timings["decode_s"] == pytest.approx(times[-1] - times[0])
    assert timings["decode_tps"] == pytest.approx((len(times) - 1) / timings["decode_s"])
    assert timings["prefill_tps"] == pytest.approx(
        (usage["prompt_tokens"] - usage["cached_tokens"]) / timings["prefill_s"]
    )
    assert 0 < timings["ttft_s"] < took and answer.events[-1] is done
    progress = [e for e in answer.events if e["type"] == "prompt_progress"]
    assert progress[-1]["n_done"] == progress[-1]["n_prompt"] == usage["prompt_tokens"]
    memory = [e for e in answer.events if e["type"] == "memory"]
    assert len(memory) == 1 and memory[0]["kv_total_cells"] == 2048
    assert memory[0]["kv_used_cells"] >= usage["prompt_tokens"]
    assert memory[0]["rss_bytes"] == pytest.approx(psutil.Process(worker.process.pid).memory_info().rss, rel=0.1)


def test_the_rest_of_a_conversation_is_read_from_the_cache(worker: RawWorker) -> None:
    first = worker.ask("Remember the word heron.", temperature=0, max_tokens=12)
    messages = [
        {"role": "user", "content": "Remember the word heron."},
        {"role": "assistant", "content": first.text},
        {"role": "user", "content": "Which word?"},
    ]
    second = worker.ask(messages=messages, temperature=0, max_tokens=4)
    usage = second.done["usage"]
    assert usage["cached_tokens"] >= first.done["usage"]["prompt_tokens"]
    again = worker.ask(messages=messages, temperature=0, max_tokens=4)
    assert again.done["usage"]["cached_tokens"] == usage["prompt_tokens"] - 1  # its last token is computed again
    assert again.done["timings"]["prefill_tps"] > 0


def test_probability_of_each_token_by_the_raw_logits(worker: RawWorker) -> None:
    greedy = worker.ask("Name three colours.", temperature=0, max_tokens=8)
    forced = worker.ask("Name three colours.", temperature=0, max_tokens=8, logit_bias={str(greedy.ids[0]): -1e9})
    assert all(-20 < e["logprob"] <= 0 for e in greedy.tokens)
    # the banned best token was more probable than the one that took its place, by the same raw logits
    assert forced.ids[0] != greedy.ids[0] and forced.tokens[0]["logprob"] < greedy.tokens[0]["logprob"]
    both = math.exp(forced.tokens[0]["logprob"]) + math.exp(greedy.tokens[0]["logprob"])
    assert both < 1.0001
    silent = worker.ask("Hi", temperature=0, max_tokens=3, logprobs=False)
    assert all(e.get("logprob") is None for e in silent.tokens)


def test_requests_at_once_do_not_see_each_other(scripted_model: Callable[..., dict[str, Any]]) -> None:
    """Three answers in one batch: the model says which word stands in its own context, whatever the rounding."""
    words = [("A", ["\u2581house"]), ("B", ["\u2581river"]), ("C", ["\u2581tree"])]
    path = scripted_model([" one", " two", " three", " four", " five"], tail="[reply]", probes=words)["path"]
    asked = {" house": "A+B-C-", " river": "A-B+C-", " tree": "A-B-C+", " house river": "A+B+C-", " water": "A-B-C-"}
    with RawWorker(hooks={"SLOW_TOKEN_S": "0.02"}) as worker:
        worker.load(path, n_ctx=1024, n_slots=3)
        for _ in range(2):
            plain = {"temperature": 0, "max_tokens": 40}
            ids = {word: worker.generate(prompt=f"See{word} there.[reply]", sampling=plain) for word in asked}
            answers = {word: worker.answer(one) for word, one in ids.items()}
            assert {word: a.text for word, a in answers.items()} == {
                word: f"{said} one two three four five" for word, said in asked.items()
            }
            first = [answers[w] for w in (" house", " river", " tree")]
            spans = [(a.tokens[0]["_at"], a.tokens[-1]["_at"]) for a in first]
            assert max(s for s, _ in spans) < min(e for _, e in spans), "they were not worked on at the same time"


def test_more_requests_than_slots_wait_and_are_answered_in_order(starter_model: Path) -> None:
    with RawWorker(hooks={"SLOW_TOKEN_S": "0.02"}) as worker:
        worker.load(starter_model, n_ctx=512, n_slots=1)
        plain = {"temperature": 0, "max_tokens": 6}
        first = worker.generate("Hi", sampling=plain)
        worker.wait("token", id=first)
        late = worker.generate("Hi", sampling=plain, priority=1)
        also = worker.generate("Hi", sampling=plain, priority=1)
        urgent = worker.generate("Hi", sampling=plain)
        for one in (first, late, also, urgent):
            worker.answer(one)
        ends = [e["request_id"] for e in worker.events if e["type"] == "done"]
        assert ends == [first, urgent, late, also]
        queued = worker.answer(also).done["timings"]["queue_s"]
        assert queued > 0.2


def test_tokenize_is_answered_while_an_answer_is_written(worker: RawWorker) -> None:
    running = worker.generate("Tell me a story.", sampling={"temperature": 0, "max_tokens": 60})
    worker.wait("token", id=running)
    assert worker.tokens_of(text="hello world") == [28120, 905]
    worker.send("ping", id="ping-now")
    worker.wait("pong", id="ping-now")
    assert not any(e["type"] == "done" and e["request_id"] == running for e in worker.events)
    worker.answer(running)


def test_bad_requests_are_errors_and_the_worker_lives(worker: RawWorker) -> None:
    worker.send_line(b"this is no JSON\n")
    assert worker.wait("error")["error"]["code"] == "invalid_request"
    worker.send_line(b'{"type":"generate","id":"odd","sampling":{"top_k":"many"}}\n')
    assert worker.wait("error", id="odd")["error"]["code"] == "invalid_request"
    worker.send_line(b'{"type":"fly","id":"bird"}\n\xff\xfe\n[' + b"[" * 100000 + b"\n")
    assert [worker.wait("error")["error"]["code"] for _ in range(3)] == ["invalid_request"] * 3
    cases = [
        {"temperature": -1},
        {"top_p": 2},
        {"stop": [""]},
        {"logit_bias": {"999999": 1.0}},
        {"seed": 2**32},
        {"max_tokens": 0},
    ]
    for sampling in cases:
        error = worker.ask("Hi", **sampling).error
        assert error["code"] == "invalid_request" and error["details"]["field"] == next(iter(sampling))
    assert worker.ask(messages=[]).error["code"] == "invalid_request"
    assert worker.ask("Hi", temperature=0, max_tokens=2).reason in ("length", "stop")


def test_without_a_model_it_says_so() -> None:
    with RawWorker() as worker:
        assert worker.ask("Hi").error["code"] == "model_not_loaded"
        assert worker.wait("error", id=worker.send("tokenize", text="a"))["error"]["code"] == "model_not_loaded"
        worker.wait("unloaded", id=worker.send("unload"))


def test_unload_ends_running_answers_and_frees_the_memory(starter_model: Path) -> None:
    with RawWorker() as worker:
        worker.load(starter_model, n_ctx=8192)
        running = worker.generate("Tell me a long story.", sampling={"temperature": 0})
        worker.wait("token", id=running)
        loaded = psutil.Process(worker.process.pid).memory_info().rss
        unload = worker.send("unload")
        worker.wait("unloaded", id=unload)
        answer = worker.answer(running)
        assert answer.reason == "cancelled" and answer.text == answer.streamed != ""
        assert psutil.Process(worker.process.pid).memory_info().rss < loaded - 100e6
        assert worker.ask("Hi").error["code"] == "model_not_loaded"
        worker.load(starter_model, n_ctx=512)
        assert worker.ask("Hi", temperature=0, max_tokens=2).text


def test_native_prints_do_not_reach_the_protocol(starter_model: Path) -> None:
    with RawWorker(hooks={"NATIVE_PRINT": '{"type":"done"}\nnoise'}) as worker:
        worker.load(starter_model, n_ctx=512)
        answer = worker.ask("Hi", temperature=0, max_tokens=5)
        assert len(answer.tokens) == 5 and worker.bad_lines == []
    assert "noise" in worker.stderr and "llama_model_loader" in worker.stderr


@pytest.mark.parametrize("phase", ["idle", "writing", "reading"])
def test_end_of_input_ends_it(starter_model: Path, phase: str) -> None:
    with RawWorker(hooks={"SLOW_PREFILL_S": "30" if phase == "reading" else "0"}) as worker:
        worker.load(starter_model, n_ctx=512)
        assert worker.process.stdin
        if phase != "idle":
            request = worker.generate("Tell me a long story.", sampling={"temperature": 0})
            worker.wait("token" if phase == "writing" else "prompt_progress", id=request)
        began = time.monotonic()
        worker.process.stdin.close()
        assert worker.process.wait(10) == 0
        assert time.monotonic() - began < 3


def test_a_llama_cpp_that_cannot_be_loaded_is_an_error_not_a_traceback(tmp_path: Path) -> None:
    with RawWorker(env={"LLAMA_CPP_LIB_PATH": os.fspath(tmp_path)}) as worker:
        event = worker.next_event()
        assert event["type"] == "error" and event["error"]["code"] == "backend_missing"
        assert worker.process.wait(10) == 3
    assert "Traceback" not in worker.stderr
