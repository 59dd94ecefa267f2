"""Embeddings: the same vectors as llama.cpp's own pooling gives, texts of any number and length, honest refusals."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bare_embedding
import numpy as np
import numpy.typing as npt
import pytest
from raw_worker import Event, RawWorker
from tiny_models import bert

MEAN, CLS, LAST = 1, 2, 3
TEXTS = ["The cat sat on the mat.", "A dog ran under the moon, red and blue, and nobody saw it.", "x"]


@pytest.fixture(scope="module")
def decoder(starter_model: Path) -> Iterator[RawWorker]:
    with RawWorker() as worker:
        info = worker.load(starter_model, embeddings=True, n_ctx=1024, n_ubatch=64, n_threads=1)
        assert info["embeddings"] and "pooling" not in info
        assert info["n_ubatch"] == 64
        yield worker


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bert(tmp_path_factory.mktemp("bert") / "tiny-bert.gguf")


@pytest.fixture(scope="module")
def encoder(tiny: Path) -> Iterator[RawWorker]:
    with RawWorker() as worker:
        info = worker.load(tiny, embeddings=True, n_threads=1)
        assert info["pooling"] == "mean" and info["architecture"] == "bert"
        yield worker


def ask(worker: RawWorker, texts: list[str], **options: Any) -> Event:
    return worker.wait("embedded", "error", id=worker.send("embed", texts=texts, **options))


def vectors(event: Event) -> npt.NDArray[np.float32]:
    assert event["type"] == "embedded", event
    raw = base64.b64decode(event["vectors"])
    return np.frombuffer(raw, "<f4").reshape(-1, event["n_embd"])


def refused(worker: RawWorker, texts: list[str], **options: Any) -> dict[str, Any]:
    event = ask(worker, texts, **options)
    assert event["type"] == "error", event
    error: dict[str, Any] = event["error"]
    return error


def special(worker: RawWorker, text: str) -> list[int]:
    return worker.tokens_of(text=text, add_special=True)


@pytest.mark.parametrize(("pooling", "number"), [("mean", MEAN), ("last", LAST), ("cls", CLS)])
def test_a_chat_model_gives_llama_cpps_own_vectors(
    decoder: RawWorker, starter_model: Path, pooling: str, number: int
) -> None:
    event = ask(decoder, TEXTS, pooling=pooling, normalize=False)
    tokens = [special(decoder, text) for text in TEXTS]
    assert event["n_tokens"] == [len(text) for text in tokens] and event["pooling"] == pooling
    expected = np.array(bare_embedding.run(starter_model, number, tokens), np.float32)
    assert cosines(vectors(event), expected).min() > 0.9995  # the batch has another shape
    alone = np.concatenate([vectors(ask(decoder, [text], pooling=pooling, normalize=False)) for text in TEXTS])
    assert np.abs(alone - expected).max() < 2e-3 * np.abs(expected).max()


def cosines(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    found: npt.NDArray[np.float32] = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    return found


def test_an_embedding_model_gives_llama_cpps_own_vectors(encoder: RawWorker, tiny: Path) -> None:
    texts = ["the cat sat on the mat", "red dogs", "the moon ran"]
    event = ask(encoder, texts, normalize=False)
    assert event["pooling"] == "mean"
    tokens = [special(encoder, text) for text in texts]
    assert tokens[0][0] == 2 and tokens[0][-1] == 3, "[CLS] and [SEP] are put around"
    expected = np.array(bare_embedding.run(tiny, MEAN, tokens), np.float32)
    assert np.abs(vectors(event) - expected).max() < 1e-4
    first = vectors(ask(encoder, texts, pooling="cls", normalize=False))
    assert np.abs(first - np.array(bare_embedding.run(tiny, CLS, tokens), np.float32)).max() < 1e-4


def test_vectors_have_the_length_one_unless_asked_otherwise(encoder: RawWorker) -> None:
    plain = vectors(ask(encoder, ["the cat"], normalize=False))
    event = ask(encoder, ["the cat"])
    assert event["normalized"] and np.linalg.norm(vectors(event)) == pytest.approx(1, abs=1e-6)
    assert np.linalg.norm(plain) != pytest.approx(1, abs=1e-3)
    assert np.abs(vectors(event) * np.linalg.norm(plain) - plain).max() < 1e-5


def test_one_vector_for_each_token(encoder: RawWorker) -> None:
    event = ask(encoder, ["the cat sat", "moon"], pooling="none", normalize=False)
    rows = vectors(event)
    assert event["n_tokens"] == [5, 3] and len(rows) == 8
    mean = vectors(ask(encoder, ["the cat sat"], normalize=False))[0]
    assert np.abs(rows[:5].mean(0) - mean).max() < 1e-5


def test_more_texts_than_fit_at_once_and_the_order_is_kept(encoder: RawWorker) -> None:
    words = ["the cat", "dogs ran", "red moon", "blue mat", "sat on", "running"]
    texts = [words[i % len(words)] for i in range(100)]
    rows = vectors(ask(encoder, texts))
    one = {word: vectors(ask(encoder, [word]))[0] for word in words}
    for text, row in zip(texts, rows, strict=True):
        assert float(row @ one[text]) > 0.9999


def test_a_long_text_is_read_in_pieces_where_the_model_allows(decoder: RawWorker, starter_model: Path) -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 20
    tokens = special(decoder, text)
    assert 64 * 3 < len(tokens) < 512, "several batches here, one in llama.cpp's own way"
    event = ask(decoder, [text], pooling="mean", normalize=False)
    expected = np.array(bare_embedding.run(starter_model, MEAN, [tokens]), np.float32)
    assert cosines(vectors(event), expected).min() > 0.9995
    last = ask(decoder, [text], pooling="last", normalize=False)
    expected = np.array(bare_embedding.run(starter_model, LAST, [tokens]), np.float32)
    assert cosines(vectors(last), expected).min() > 0.999


def test_what_cannot_be_embedded_is_said(encoder: RawWorker, decoder: RawWorker) -> None:
    error = refused(encoder, ["the cat " * 100])
    assert error["code"] == "context_full" and "202 tokens" in error["message"] and "64" in error["message"]
    assert "the cat the cat" in error["message"] and error["hint"]
    error = refused(decoder, ["word " * 5000])
    assert error["code"] == "context_full" and "1,024" in error["message"]
    assert refused(decoder, ["fine", ""])["code"] == "invalid_request"
    assert refused(decoder, [])["code"] == "invalid_request"
    many = refused(decoder, ["one two three four five six seven"] * 2500, pooling="none")
    assert many["code"] == "invalid_request" and "vectors are too many" in many["message"]
    assert ask(decoder, ["still there"])["type"] == "embedded"


def test_an_embedding_model_does_not_chat_and_a_chat_worker_does_not_embed(
    encoder: RawWorker, tiny: Path, starter_model: Path
) -> None:
    answer = encoder.ask("hello")
    assert answer.error["code"] == "invalid_request" and "embeddings" in answer.error["message"]
    with RawWorker() as worker:
        event = worker.wait("loaded", "error", id=worker.send("load", path=str(tiny)))
        assert event["error"]["code"] == "model_unsupported" and "token by token" in event["error"]["message"]
        worker.load(starter_model, n_ctx=256)
        error = refused(worker, ["x"])
        assert error["code"] == "invalid_request" and "loaded for chat" in error["message"]
        assert worker.ask("Say hi", max_tokens=3).done


def test_a_reranker_is_refused(tmp_path: Path) -> None:
    path = bert(tmp_path / "rank.gguf", pooling=4)
    with RawWorker() as worker:
        event = worker.wait("loaded", "error", id=worker.send("load", path=str(path), embeddings=True))
        assert event["error"]["code"] == "model_unsupported" and "belong together" in event["error"]["message"]
        worker.load(bert(tmp_path / "plain.gguf", pooling=None), embeddings=True)
        assert ask(worker, ["the cat"])["pooling"] == "mean", "a file that says nothing"


def test_a_stop_ends_it(decoder: RawWorker) -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 60
    request = decoder.send("embed", texts=[text] * 100)
    decoder.stop(request)
    event = decoder.wait("embedded", "error", id=request, timeout=20)
    assert event["type"] == "error" and event["error"]["code"] == "cancelled"
    assert ask(decoder, ["after"])["type"] == "embedded"
