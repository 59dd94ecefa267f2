"""Texts as vectors: beside the chat in a process of its own, and on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_runner import run

from engine.embeddings import GROUP, rows
from engine.errors import ContextFull, InvalidRequest, ModelNotLoaded
from engine.sampling import SamplingParams

ENDLESS = SamplingParams(temperature=0.0, max_tokens=400, logit_bias={2: -1e9, 0: -1e9})


def dot(a: Any, b: Any) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def test_a_second_process_that_leaves_the_chat_alone(watched: Callable[..., Any]) -> None:
    w = watched()
    engine = w.engine
    with pytest.raises(ModelNotLoaded):
        engine.embeddings.embed(["x"]).result(10)
    engine.change_settings(sampling=ENDLESS).result(5)
    w.load()
    chat_pid = engine.worker_pid
    engine.chats.send(None, "Count.").result(10)
    loading = engine.embeddings.load("starter", n_ctx=256, n_threads=1)
    waiting = engine.embeddings.embed(["The cat sat on the mat."])
    info = loading.result(60)
    assert info.embeddings and info.n_ctx == 256
    first = waiting.result(60)
    assert engine.embeddings.pid not in (None, chat_pid) and engine.worker_pid == chat_pid
    assert engine.model_state.status == "ready" and not engine.model_state.model.embeddings
    texts = [f"Number {i} of many." for i in range(2 * GROUP + 5)]
    many = engine.embeddings.embed(texts).result(90)
    assert len(many.n_tokens) == len(texts) and len(list(rows(many))) == len(texts)
    [[vector]] = list(rows(first))
    assert dot(vector, vector) == pytest.approx(1, abs=1e-5)
    [near], [far] = rows(engine.embeddings.embed(["A cat on a mat.", "Tax law."]).result(30))
    assert dot(vector, near) > dot(vector, far)
    engine.chats.stop()
    engine.embeddings.unload().result(10)
    assert engine.embeddings.pid is None and engine.worker_pid == chat_pid


def test_what_cannot_be_embedded(watched: Callable[..., Any]) -> None:
    embeddings = watched().engine.embeddings
    embeddings.load("starter", n_ctx=256, n_threads=1).result(60)
    with pytest.raises(ContextFull):
        embeddings.embed(["fine", "word " * 1000]).result(30)
    for texts in ([], [""]):
        with pytest.raises(InvalidRequest):
            embeddings.embed(texts).result(30)
    future = embeddings.embed(["The quick brown fox jumps over the lazy dog. " * 20] * 500)
    assert future.cancel()
    assert embeddings.embed(["after"]).result(30).n_tokens


def test_the_command_line(home: Path) -> None:
    done = run("embed", "a cat", "a dog", "--threads", "1", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["pooling"] == "mean" and found["normalized"] and found["n_embd"] == 576
    assert [row["index"] for row in found["data"]] == [0, 1]
    vectors = [row["embedding"] for row in found["data"]]
    assert all(len(vector) == 576 for vector in vectors) and dot(vectors[0], vectors[0]) == pytest.approx(1, abs=1e-4)
    plain = run("embed", "--threads", "1", stdin="a cat\na dog\n")
    lines = plain.stdout.splitlines()
    assert [[float(n) for n in line.split()] for line in lines] == [
        pytest.approx(vector, abs=1e-5) for vector in vectors
    ]
    none = run("embed", "a cat", "--pooling", "none", "--no-normalize", "--threads", "1", "--json")
    row = json.loads(none.stdout)["data"][0]
    assert len(row["embedding"]) == row["n_tokens"] and len(row["embedding"][0]) == 576


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("embed", ""), 2, "empty text"),
        (("embed",), 2, "no text"),
        (("embed", "x", "--context", "0"), 2, "--context"),
        (("embed", "x", "-m", "nowhere.gguf"), 3, "nowhere.gguf"),
        (("embed", "word " * 400, "--context", "256", "--threads", "1"), 9, "tokens"),
    ],
)
def test_errors_of_the_command_line(home: Path, words: tuple[str, ...], status: int, said: str) -> None:
    done = run(*words)
    assert done.returncode == status and said in done.stderr
