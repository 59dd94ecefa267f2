"""What a trace says is what llama.cpp did, and asking for it changes nothing."""

from __future__ import annotations

import base64
import math
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bare_trace
import pytest
from raw_worker import Answer, RawWorker

QUESTION = "Tell me about the sea, and what lives in it."
BREAKERS = ["\n", ":", '"', "*"]
OWN = ("trace", "forced", "n_draws", "n_xtc_draws", "surprises", "messages", "json_schema")
Chain = list[list[Any]]


@pytest.fixture(scope="module")
def worker(starter_model: Path) -> Iterator[RawWorker]:
    with RawWorker() as one:
        one.load(starter_model, n_ctx=2048, n_threads=2)
        yield one


def ask(worker: RawWorker, text: str = QUESTION, *, cache_key: str = "", **fields: Any) -> Answer:
    own = {name: fields.pop(name) for name in OWN if name in fields}
    own.setdefault("messages", [{"role": "user", "content": text}])
    return worker.answer(worker.generate(sampling=fields, cache_key=cache_key, **own))


def fresh(worker: RawWorker, model: Path) -> None:
    """Nothing is in the cache: what is reused may differ by rounding."""
    worker.load(model, n_ctx=2048, n_threads=2)


CHAINS: list[tuple[dict[str, Any], Chain]] = [
    (
        {"seed": 7},
        [
            ["top_k", "llama_sampler_init_top_k", 40],
            ["top_p", "llama_sampler_init_top_p", 0.95, 1],
            ["min_p", "llama_sampler_init_min_p", 0.05, 1],
            ["temperature", "llama_sampler_init_temp", 0.8],
            ["draw", "llama_sampler_init_dist", 7],
        ],
    ),
    (
        {
            "seed": 8,
            "logit_bias": {"260": 1.5, "28": -1e9},
            "repeat_penalty": 1.2,
            "repeat_last_n": 64,
            "dry_multiplier": 0.8,
            "top_n_sigma": 2.0,
            "top_k": 200,
            "typical_p": 0.9,
            "top_p": 0.97,
            "min_p": 0.01,
            "xtc_probability": 0.5,
            "xtc_threshold": 0.1,
            "temperature": 1.1,
        },
        [
            ["logit_bias", "llama_sampler_init_logit_bias", [260, 1.5], [28, -1e9]],
            ["penalties", "llama_sampler_init_penalties", 49152, 64, 1.2, 0.0, 0.0],
            ["dry", "llama_sampler_init_dry", 0.8, 1.75, 2, 2048, BREAKERS],
            ["top_n_sigma", "llama_sampler_init_top_n_sigma", 2.0],
            ["top_k", "llama_sampler_init_top_k", 200],
            ["typical", "llama_sampler_init_typical", 0.9, 1],
            ["top_p", "llama_sampler_init_top_p", 0.97, 1],
            ["min_p", "llama_sampler_init_min_p", 0.01, 1],
            ["xtc", "llama_sampler_init_xtc", 0.5, 0.1, 1, 8],
            ["temperature", "llama_sampler_init_temp", 1.1],
            ["draw", "llama_sampler_init_dist", 8],
        ],
    ),
    (
        {"seed": 9, "mirostat": 2, "temperature": 1.0},
        [
            ["temperature", "llama_sampler_init_temp", 1.0],
            ["mirostat", "llama_sampler_init_mirostat_v2", 9, 5.0, 0.1],
        ],
    ),
]


@pytest.mark.timeout(300)
def test_figures_are_those_of_llama_cpp(worker: RawWorker, starter_model: Path) -> None:
    """200 tokens: probabilities to 1e-4, what each sampler leaves, and the draw."""
    prompt = worker.tokens_of(messages=[{"role": "user", "content": QUESTION}])
    answers = []
    for sampling, _ in CHAINS:
        fresh(worker, starter_model)
        answers.append(ask(worker, trace=True, max_tokens=70, **sampling))
    asked = [{"tokens": a.ids, "chain": chain} for a, (_, chain) in zip(answers, CHAINS, strict=True)]
    assert sum(len(a.ids) for a in answers) >= 200
    for answer, expected in zip(answers, bare_trace.run(starter_model, prompt, asked), strict=True):
        for token, truth in zip(answer.tokens, expected, strict=True):
            detail = token["detail"]
            assert math.exp(token["logprob"]) == pytest.approx(truth["p"], abs=1e-4)
            assert detail["entropy_bits"] == pytest.approx(truth["entropy_bits"], abs=1e-3)
            found = {c[0]: math.exp(c[2]) for c in detail["candidates"]}
            assert list(found)[:3] == [i for i, _ in truth["best"]][:3]
            assert all(found[i] == pytest.approx(p, abs=1e-4) for i, p in truth["best"])
            assert token["token_id"] in found and detail["token_id"] == token["token_id"]
            # an array of JSON leaves out nothing
            assert [s[:2] for s in detail["stages"]] == [s[:2] for s in truth["stages"] if s[0] != "draw"]
            changed = {s[0]: s[2] for s in truth["stages"] if s[0] in ("logit_bias", "penalties", "dry")}
            assert {s[0]: s[2] for s in detail["stages"] if s[0] in changed} == changed
            chosen, low, high = truth["drawn"]
            assert chosen == token["token_id"]
            assert (detail.get("draw_from", 0), detail["draw_to"]) == pytest.approx((low, high), abs=1e-5)
            assert (
                detail["chosen_p"] == pytest.approx(high - low, abs=1e-5) if "chosen_p" in detail else high - low == 1
            )


@pytest.mark.parametrize("sampling", [sampling for sampling, _ in CHAINS] + [{"temperature": 0}])
def test_the_same_tokens_come_with_and_without_a_trace(
    worker: RawWorker, starter_model: Path, sampling: dict[str, Any]
) -> None:
    found = []
    for trace in (False, True):
        fresh(worker, starter_model)
        found.append(ask(worker, trace=trace, max_tokens=24, **sampling))
    plain, traced = found
    assert plain.ids == traced.ids and plain.text == traced.text
    assert [t["logprob"] for t in plain.tokens] == pytest.approx([t["logprob"] for t in traced.tokens], abs=1e-4)
    assert not any("detail" in t for t in plain.tokens) and "marks" not in plain.done


def test_without_a_trace_nothing_of_it_is_sent(worker: RawWorker) -> None:
    answer = ask(worker, max_tokens=3, temperature=0)
    assert not [e for e in answer.events if e["type"] == "prompt_trace"]


def test_the_prompt_is_told_token_by_token(worker: RawWorker) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is a fox?"}]
    answer = ask(worker, messages=messages, trace=True, max_tokens=2, temperature=0)
    prompt = next(e for e in answer.events if e["type"] == "prompt_trace")
    tokens = array("i", base64.b64decode(prompt["tokens"]))
    owners = array("h", base64.b64decode(prompt["owners"]))
    pieces = [base64.b64decode(piece) for piece in prompt["pieces"]]
    assert list(tokens) == worker.tokens_of(messages=messages)
    assert len(owners) == len(pieces) == len(tokens)
    said = {
        number: b"".join(p for p, owner in zip(pieces, owners, strict=True) if owner == number).decode()
        for number in (-1, 0, 1)
    }
    assert said[0] == "Be brief." and said[1] == "What is a fox?"
    assert "<|im_start|>" in said[-1] and "<|im_end|>" in said[-1]
    assert answer.events.index(prompt) < answer.events.index(answer.tokens[0])


def test_chunks_cover_what_was_read(worker: RawWorker, starter_model: Path) -> None:
    fresh(worker, starter_model)
    answer = ask(worker, "Foxes and hens. " * 120, trace=True, max_tokens=2, temperature=0)
    chunks = [e for e in answer.events if e["type"] == "prompt_progress" and e.get("n_chunk")]
    assert len(chunks) > 1
    at = 0
    for chunk in chunks:
        assert chunk.get("first", 0) == at and chunk["took_s"] > 0
        at += chunk["n_chunk"]
    assert at == answer.done["usage"]["prompt_tokens"]
    began = [chunk["began_s"] for chunk in chunks]
    assert began == sorted(began) and began[0] > 0 and chunks[-1]["elapsed_s"] >= began[-1] + chunks[-1]["took_s"]


def test_marks_are_in_order_and_end_with_the_answer(worker: RawWorker) -> None:
    marks = ask(worker, "Hi", trace=True, max_tokens=5, temperature=0).done["marks"]
    names = ["template_from_s", "template_to_s", "started_s", "cached_s", "prefilled_s", "first_s", "last_s", "end_s"]
    times = [marks[name] for name in names]
    assert times == sorted(times) and times[0] >= 0


def test_the_end_token_is_told(worker: RawWorker) -> None:
    ends = {"0": -1e9, "2": 100.0}
    done = ask(worker, "Hi", trace=True, max_tokens=5, temperature=0, logit_bias=ends).done
    assert done["end"]["token_id"] == 2 and base64.b64decode(done["end"]["piece"]) == b"<|im_end|>"
    assert done["end"]["detail"]["stages"][0][0] == "logit_bias"


# ------------------------------------------------------------------ forced tokens


def test_an_answer_begins_as_it_is_forced_to(worker: RawWorker, starter_model: Path) -> None:
    fresh(worker, starter_model)
    first = ask(worker, trace=True, max_tokens=30, temperature=0, cache_key="a")
    other = first.tokens[10]["detail"]["candidates"][1][0]
    forced = [*first.ids[:10], other]
    branch = ask(worker, trace=True, max_tokens=30, temperature=0, forced=forced, cache_key="a")
    assert branch.ids[:11] == forced and branch.text.startswith(
        b"".join(base64.b64decode(t["piece"]) for t in branch.tokens[:11]).decode().rstrip("\ufffd")[:20]
    )
    n_prompt = first.done["usage"]["prompt_tokens"]
    assert branch.done["usage"]["prompt_tokens"] == n_prompt == branch.done["usage"]["cached_tokens"]
    chunks = [e for e in branch.events if e["type"] == "prompt_progress" and e.get("n_chunk")]
    assert chunks == [], "what was written before is in the cache"
    fresh(worker, starter_model)
    scratch = ask(worker, max_tokens=30, temperature=0, forced=forced)
    assert scratch.ids == branch.ids


def test_a_branch_goes_on_with_the_same_seed(worker: RawWorker, starter_model: Path) -> None:
    fresh(worker, starter_model)
    first = ask(worker, trace=True, max_tokens=40, seed=5, cache_key="b")
    forced = [*first.ids[:7], first.tokens[7]["detail"]["candidates"][2][0]]
    branch = ask(worker, max_tokens=40, seed=5, forced=forced, cache_key="b")
    fresh(worker, starter_model)
    assert ask(worker, max_tokens=40, seed=5, forced=forced).ids == branch.ids


def test_the_random_numbers_can_be_taken_up_later(worker: RawWorker, starter_model: Path) -> None:
    """Step n with n draws passed over is the step that the answer took, also where XTC draws too."""
    extras: tuple[dict[str, Any], ...] = ({}, {"xtc_probability": 0.5, "xtc_threshold": 0.05, "min_p": 0.0})
    for extra in extras:
        fresh(worker, starter_model)
        sampling = {"seed": 11, "temperature": 1.2, "top_k": 200, "top_p": 1.0, **extra}
        whole = ask(worker, trace=True, max_tokens=24, **sampling)
        for n in (3, 9, 23):
            left = [{s[0]: s[1] for s in t["detail"]["stages"]} for t in whole.tokens[:n]]
            n_xtc = sum(stages.get("xtc", 0) > 0 and stages["top_k"] > 1 for stages in left)
            draws: dict[str, Any] = {"n_draws": n, "n_xtc_draws": n_xtc}
            again = ask(worker, trace=True, max_tokens=n + 1, forced=whole.ids[:n], **draws, **sampling)
            assert again.ids == whole.ids[: n + 1]


@pytest.mark.parametrize("version", [1, 2])
def test_mirostat_goes_on_from_what_it_has_learned(worker: RawWorker, starter_model: Path, version: int) -> None:
    """Step n with the surprises of the tokens before is the step that the answer took: the same tokens are left, and
    the same one of them is drawn."""
    fresh(worker, starter_model)
    sampling = {"seed": 11, "temperature": 1.3, "mirostat": version, "mirostat_tau": 3.0, "mirostat_eta": 0.3}
    whole = ask(worker, trace=True, max_tokens=30, **sampling)
    bits = [-math.log2(t["detail"].get("chosen_p", 1.0)) for t in whole.tokens]
    learned = 0
    for n in (1, 4, 9, 17, 29):
        again = ask(worker, trace=True, max_tokens=n + 1, forced=whole.ids[:n], surprises=bits[:n], **sampling)
        assert again.ids == whole.ids[: n + 1]
        assert again.tokens[n]["detail"]["stages"] == whole.tokens[n]["detail"]["stages"]
        assert again.tokens[n]["detail"]["draw_to"] == pytest.approx(whole.tokens[n]["detail"]["draw_to"], abs=1e-3)
        plain = ask(worker, trace=True, max_tokens=n + 1, forced=whole.ids[:n], **sampling)
        learned += plain.tokens[n]["detail"]["stages"] != whole.tokens[n]["detail"]["stages"]
    assert learned, "it is not the same without them"


def test_forced_tokens_that_cannot_be(worker: RawWorker) -> None:
    assert ask(worker, "Hi", forced=[49152]).error["code"] == "invalid_request"
    assert ask(worker, "Hi", forced=[2, 260]).error["code"] == "invalid_request"
    assert ask(worker, "Hi", forced=[260] * 2100).error["code"] == "context_full"
    ended = ask(worker, "Hi", forced=[260, 2])
    assert ended.ids == [260] and ended.reason == "stop"
    short = ask(worker, "Hi", forced=[260, 261, 262], max_tokens=2)
    assert short.ids == [260, 261] and short.reason == "length"
    assert short.done["timings"]["decode_tps"] is None and short.done["timings"]["ttft_s"] is None


def test_the_answer_format_is_a_stage(worker: RawWorker) -> None:
    schema = '{"type": "object", "properties": {"fox": {"type": "boolean"}}, "required": ["fox"]}'
    answer = ask(worker, "Is it a fox?", trace=True, json_schema=schema, max_tokens=20, seed=1)
    first = answer.tokens[0]["detail"]["stages"][0]
    assert first[0] == "format" and 0 < first[1] < 49152
    assert all(t["detail"]["stages"][-1][1] <= t["detail"]["stages"][0][1] for t in answer.tokens)
