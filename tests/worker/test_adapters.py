"""LoRA adapters in a real worker: what they change, scales without a reload, and what does not belong to the model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from raw_worker import RawWorker
from tiny_models import lora

QUESTION = "Tell me about the sea in a few words."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("adapters")


@pytest.fixture(scope="module")
def strong(folder: Path, starter_model: Path) -> Path:
    return lora(folder / "strong.gguf", starter_model, size=0.5)


@pytest.fixture(scope="module")
def nothing(folder: Path, starter_model: Path) -> Path:
    return lora(folder / "nothing.gguf", starter_model, size=0.0)


@pytest.fixture(scope="module")
def plain(starter_model: Path) -> list[int]:
    """What the model says without any adapter."""
    with RawWorker() as worker:
        worker.load(starter_model, n_ctx=512, n_threads=1)
        return said(worker)


@pytest.fixture(scope="module")
def worker(starter_model: Path, strong: Path, nothing: Path) -> Iterator[RawWorker]:
    with RawWorker() as one:
        info = one.load(starter_model, n_ctx=512, n_threads=1, adapters=use((nothing, 1.0), (strong, 0.0)))
        assert [(a["path"], a["scale"]) for a in info["adapters"]] == [(str(nothing), 1.0), (str(strong), 0.0)]
        assert any(key.endswith(" LoRA") for key in info["buffers"])
        yield one


def use(*adapters: tuple[Path, float]) -> list[dict[str, Any]]:
    return [{"path": str(path), "scale": scale} for path, scale in adapters]


def said(worker: RawWorker) -> list[int]:
    return worker.ask(QUESTION, temperature=0, max_tokens=24).ids


def set_scales(worker: RawWorker, *adapters: tuple[Path, float]) -> list[float]:
    event = worker.wait("adapters_set", "error", id=worker.send("setadapters", adapters=use(*adapters)))
    assert event["type"] == "adapters_set", event
    return [adapter["scale"] for adapter in event["adapters"]]


def test_one_without_effect_changes_nothing_and_one_with_effect_does(
    worker: RawWorker, plain: list[int], strong: Path, nothing: Path
) -> None:
    assert said(worker) == plain
    assert set_scales(worker, (nothing, 1.0), (strong, 1.0)) == [1.0, 1.0]
    changed = said(worker)
    assert changed != plain
    assert set_scales(worker, (strong, 0.5)) == [0.0, 0.5]
    assert set_scales(worker) == [0.0, 0.0]
    assert said(worker) == plain, "back without a reload"
    set_scales(worker, (strong, 1.0))
    assert said(worker) == changed


def test_what_was_computed_with_other_scales_is_not_used_again(worker: RawWorker, strong: Path) -> None:
    set_scales(worker, (strong, 0.0))
    said(worker)
    cached = worker.ask(QUESTION, temperature=0, max_tokens=2).done["usage"]["cached_tokens"]
    assert cached > 5
    set_scales(worker, (strong, 0.0))
    assert worker.ask(QUESTION, temperature=0, max_tokens=2).done["usage"]["cached_tokens"] > 5, "nothing has changed"
    set_scales(worker, (strong, 0.25))
    assert worker.ask(QUESTION, temperature=0, max_tokens=2).done["usage"].get("cached_tokens", 0) == 0


def test_a_change_while_an_answer_is_written(worker: RawWorker, strong: Path, plain: list[int]) -> None:
    set_scales(worker)
    request = worker.generate(QUESTION, sampling={"temperature": 0, "max_tokens": 60})
    worker.wait("token", id=request)
    set_scales(worker, (strong, 1.0))
    answer = worker.answer(request)
    assert len(answer.ids) > 1 and answer.reason in ("length", "stop")
    set_scales(worker)
    assert said(worker) == plain


def test_a_strange_adapter_or_scale_is_refused(worker: RawWorker, folder: Path, plain: list[int]) -> None:
    set_scales(worker)
    for adapters, words in (
        (use((folder / "other.gguf", 1.0)), "was not loaded"),
        (use((folder / "strong.gguf", 1e9)), "scale"),
    ):
        event = worker.wait("error", "adapters_set", id=worker.send("setadapters", adapters=adapters))
        assert event["type"] == "error" and event["error"]["code"] == "invalid_request"
        assert words in event["error"]["message"]
    assert said(worker) == plain


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ({"widen": 32}, "adapter_mismatch", "make 608 x 576"),
        ({"architecture": "qwen2"}, "adapter_mismatch", "qwen2, not llama"),
        ({"targets": ["blk.0.attn_norm.weight"]}, "adapter_mismatch", "attn_norm"),
    ],
)
def test_what_does_not_belong_to_the_model(
    starter_model: Path, tmp_path: Path, options: dict[str, Any], code: str, words: str
) -> None:
    if "targets" in options:
        from engine.models.gguf import read_header

        [norm] = [t for t in read_header(starter_model, max_array=8).tensors if t.name == "blk.0.attn_norm.weight"]
        assert len(norm.dims) == 1
        path = lora(tmp_path / "bad.gguf", starter_model, targets=["blk.0.attn_q.weight"])
        path.write_bytes(path.read_bytes().replace(b"attn_q.weight.lora", b"attn_v.weight.lora"))
        words = "attn_v"
    else:
        path = lora(tmp_path / "bad.gguf", starter_model, targets=["blk.0.attn_q.weight"], size=1.0, **options)
    with RawWorker() as worker:
        request = worker.send("load", path=str(starter_model), n_ctx=256, adapters=use((path, 1.0)))
        event = worker.wait("loaded", "error", id=request)
        assert event["type"] == "error" and event["error"]["code"] == code
        assert words in event["error"]["message"] and event["error"]["hint"]
        worker.load(starter_model, n_ctx=256)


def test_a_model_is_no_adapter_and_an_adapter_no_model(starter_model: Path, strong: Path) -> None:
    with RawWorker() as worker:
        request = worker.send("load", path=str(starter_model), adapters=use((starter_model, 1.0)))
        event = worker.wait("loaded", "error", id=request)
        assert event["error"]["code"] == "not_a_model" and "not an adapter" in event["error"]["message"]
        event = worker.wait("loaded", "error", id=worker.send("load", path=str(strong)))
        assert event["error"]["code"] == "not_a_model" and "adapter" in event["error"]["message"]
