"""Weightless copies: the same layout as the model, from its header alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fit_help import GIB, build, header, phantom

from engine.errors import StorageFailed, UnsupportedModel
from engine.fit.needs import DeviceSpec, LoadOptions, needs
from engine.fit.probe import Prober
from engine.fit.stub import stub_bytes, write_stub
from engine.models.gguf import check_file, read_header
from engine.models.gguf_header import GgufArray, GgufHeader, TensorInfo

ONE = [DeviceSpec("CUDA0", "gpu", 80 * GIB, 80 * GIB)]


@pytest.fixture(scope="module")
def prober() -> Iterator[Prober]:
    made = Prober()
    yield made
    made.close()


@pytest.mark.parametrize("model", phantom().MODELS)
def test_a_stub_is_a_sound_small_file_of_full_size(model: str, tmp_path: Path) -> None:
    known = header(model)
    path = write_stub([known], tmp_path)
    stub = read_header(path)
    assert path.stat().st_blocks * 512 < 300_000
    assert stub.need_bytes <= stub.file_size == path.stat().st_size
    assert [(t.name, t.dims, t.type) for t in stub.tensors] == [(t.name, t.dims, t.type) for t in known.tensors]
    assert needs(stub, LoadOptions(), ONE) == needs(known, LoadOptions(), ONE)
    assert "tokenizer.ggml.tokens" not in stub.metadata and stub.text("tokenizer.ggml.model") == "no_vocab"
    assert write_stub([known], tmp_path) == path and len(list(tmp_path.glob("*.gguf*"))) == 1


def test_metadata_survives(starter_model: Path, tmp_path: Path) -> None:
    known = check_file(starter_model)
    stub = read_header(write_stub([known], tmp_path))
    for key, value in known.metadata.items():
        if not key.startswith(("tokenizer.", "general.alignment")):
            kept = stub.metadata[key]
            assert (list(kept) == list(value)) if isinstance(value, GgufArray) else kept == value
            assert stub.value_types[key] == known.value_types[key]


def test_the_first_megabytes_of_a_file_are_enough(tmp_path: Path, prober: Prober) -> None:
    """As they come over HTTP by range: the header, and then nothing."""
    whole = build("qwen3-30b-a3b", tmp_path / "whole.gguf")
    full = read_header(whole)
    begun = tmp_path / "begun.gguf"
    with whole.open("rb") as file:
        begun.write_bytes(file.read(full.data_offset))
    part = read_header(begun, max_array=4096)
    options = LoadOptions(n_ctx=16384, n_cpu_moe=12)
    assert needs(part, options, ONE) == needs(full, options, ONE)
    answer = prober.probe(part, options, ONE)
    assert answer.source == "probe" and answer == prober.probe(full, options, ONE)


def test_a_split_model_becomes_one_stub(tmp_path: Path, prober: Prober) -> None:
    whole = header("llama-3.2-1b")
    half = len(whole.tensors) // 2
    first, second = _part(whole, whole.tensors[:half], 0), _part(whole, whole.tensors[half:], 1)
    options = LoadOptions(n_ctx=4096, n_gpu_layers=9)
    assert needs(first, options, ONE, [second]) == needs(whole, options, ONE)
    stub = read_header(write_stub([first, second], tmp_path))
    assert stub.split_count == 1 and len(stub.tensors) == len(whole.tensors)
    assert prober.probe([first, second], options, ONE) == prober.probe(whole, options, ONE)


def _part(whole: GgufHeader, tensors: list[TensorInfo], number: int) -> GgufHeader:
    metadata = {**whole.metadata, "split.count": 2, "split.no": number, "split.tensors.count": len(whole.tensors)}
    kinds = {**whole.value_types, "split.count": "uint16", "split.no": "uint16", "split.tensors.count": "int32"}
    if number:
        metadata = {key: value for key, value in metadata.items() if key.startswith("split.")}
    return GgufHeader(whole.path, 3, metadata, kinds, tensors, whole.data_offset, 32, 0)


def test_sizes_beyond_all_disks_are_refused(tmp_path: Path) -> None:
    known = header("llama-3.2-1b")
    giant = TensorInfo("blk.0.attn_q.weight", (1 << 30, 1 << 20), 0, 0, 1 << 52)
    with pytest.raises(UnsupportedModel):
        stub_bytes([_part(known, [giant], 0)])
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageFailed):
        write_stub([known], tmp_path / "file" / "folder")
