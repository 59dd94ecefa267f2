"""What is refused in words before a load: types of the cache, encoders that should chat, translators that embed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from gguf_maker import STR, U32, Maker, tensor
from tiny_models import bert

from engine.errors import InvalidRequest, UnsupportedModel
from engine.fit.embedding_sizes import sized
from engine.fit.layers import shape
from engine.fit.load_checks import check
from engine.models.gguf import read_header
from engine.worker.protocol import Load


def model(path: Path, *, architecture: str = "llama", width: int = 64, heads: int = 2, **more: int) -> Path:
    maker = Maker().add("general.architecture", STR, architecture)
    values = {
        "block_count": 1,
        "context_length": 2048,
        "embedding_length": width,
        "feed_forward_length": 64,
        "attention.head_count": heads,
        "attention.head_count_kv": heads,
        **more,
    }
    for key, value in values.items():
        maker.add(f"{architecture}.{key}", U32, value)
    maker.tensors.append(tensor("token_embd.weight", (width, 16), 0, 0))
    maker.data = bytes(4 * width * 16)
    return maker.write(path)


def load(path: Path, **options: Any) -> Load:
    return Load(id="r", path=str(path), **options)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({}, ""),
        ({"kv_type_k": "q8_0", "kv_type_v": "q8_0"}, ""),
        ({"kv_type_k": "q8_0", "flash_attention": "off"}, ""),
        ({"kv_type_v": "q8_0", "flash_attention": "off"}, "kv_type_v"),
        ({"kv_type_v": "iq4_nl", "flash_attention": "off"}, "kv_type_v"),
    ],
)
def test_types_of_the_cache(tmp_path: Path, options: dict[str, Any], field: str) -> None:
    request = load(model(tmp_path / "m.gguf"), **options)
    if not field:
        check(request)
        return
    with pytest.raises(InvalidRequest) as caught:
        check(request)
    assert caught.value.details["field"] == field and caught.value.hint


def test_heads_that_are_no_whole_blocks(tmp_path: Path) -> None:
    path = model(tmp_path / "m.gguf", width=80, heads=2)  # heads of 40
    check(load(path))
    with pytest.raises(InvalidRequest, match="32 numbers together, and the heads of this model have 40"):
        check(load(path, kv_type_k="q8_0"))
    with pytest.raises(InvalidRequest, match="Q4_0"):
        check(load(path, kv_type_v="q4_0"))


def test_a_model_that_never_has_flash_attention(tmp_path: Path) -> None:
    path = model(tmp_path / "m.gguf", architecture="grok")
    with pytest.raises(InvalidRequest, match="cannot have it"):
        check(load(path, kv_type_v="q8_0"))


def test_what_a_model_can_be_loaded_for(tmp_path: Path) -> None:
    encoder = bert(tmp_path / "bert.gguf")
    check(load(encoder, embeddings=True))
    with pytest.raises(UnsupportedModel, match="token by token"):
        check(load(encoder))
    translator = model(tmp_path / "t5.gguf", architecture="t5")
    for embeddings in (True, False):
        with pytest.raises(UnsupportedModel):
            check(load(translator, embeddings=embeddings))
    half = model(tmp_path / "t5e.gguf", architecture="t5encoder")
    check(load(half, embeddings=True))
    with pytest.raises(UnsupportedModel):
        check(load(half))


def test_context_and_batches_of_embeddings(tmp_path: Path) -> None:
    encoder = shape(read_header(bert(tmp_path / "bert.gguf", context=512)))
    request = sized(load(tmp_path, embeddings=True), encoder)
    assert (request.n_ctx, request.n_batch, request.n_ubatch) == (512, 512, 512)
    assert sized(load(tmp_path, n_ctx=100), encoder).n_batch == 256, "rounded as llama.cpp rounds"
    assert sized(load(tmp_path, n_ctx=4000), encoder).n_ctx == 512, "positions end there"
    decoder = shape(read_header(model(tmp_path / "m.gguf")))
    request = sized(load(tmp_path, embeddings=True), decoder)
    assert (request.n_ctx, request.n_batch, request.n_ubatch) == (2048, 512, 512)
    assert sized(load(tmp_path, n_ubatch=64), decoder).n_batch == 64


def test_logits_that_nobody_wants_bound_the_batch(tmp_path: Path) -> None:
    from dataclasses import replace

    decoder = shape(read_header(model(tmp_path / "m.gguf")))
    wide = replace(decoder, n_vocab=262_144, n_ctx_train=32_768)
    request = sized(load(tmp_path), wide)
    assert request.n_ubatch == 128 and request.n_ctx == 8192
    both_ways = replace(wide, causal=False, n_vocab=250_002, n_ctx_train=8192)
    request = sized(load(tmp_path), both_ways)
    assert request.n_ctx is not None and request.n_ctx * 250_002 * 4 <= 2**30
    assert sized(load(tmp_path, n_ctx=8192), both_ways).n_ctx == 8192, "whoever asks for more gets it"
    assert msgspec.structs.asdict(request)["embeddings"] is False
