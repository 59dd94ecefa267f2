"""Adapters on disk: what is one, to which model it belongs, where the library shows it, what it takes."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gguf_maker import F32, F64, STR, Maker, tensor
from library_help import by_name, look, write_model
from tiny_models import lora

from engine.errors import AdapterMismatch, EngineError, ModelFileDamaged, NotAModel, UnsupportedModel
from engine.fit.needs import LoadOptions, needs_of, with_adapters
from engine.fit.placement import DeviceSpec, prepare
from engine.models import gguf
from engine.models.adapter import check_fits, read_adapter, summarize_adapter
from engine.models.library_index import read_entry, stamp

GIB = 2**30


def adapter(*pairs: tuple[str, tuple[int, ...], tuple[int, ...]], **keys: Any) -> Maker:
    """An adapter byte by byte. pairs: (name, sizes of A, sizes of B)."""
    maker = Maker()
    values = {"general.architecture": "llama", "general.type": "adapter", "adapter.type": "lora", **keys}
    for key, value in values.items():
        if value is not None:
            maker.add(key, STR if isinstance(value, str) else F32, value)
    offset = 0
    for name, a, b in pairs:
        for end, dims in ((".lora_a", a), (".lora_b", b)):
            if dims:
                maker.tensors.append(tensor(name + end, dims, 0, offset))
                n_bytes = 4
                for size in dims:
                    n_bytes *= size
                offset += -(-n_bytes // 32) * 32
    maker.data = bytes(offset)
    return maker


def model(*matrices: tuple[str, tuple[int, ...]], architecture: str = "llama", kind: int = 0) -> Maker:
    maker = Maker().add("general.architecture", STR, architecture)
    offset = 0
    for name, dims in matrices:
        maker.tensors.append(tensor(name, dims, kind, offset))
        n_bytes = 4
        for size in dims:
            n_bytes *= size
        offset += -(-n_bytes // 32) * 32
    maker.data = bytes(offset)
    return maker


GOOD = ("blk.0.attn_q.weight", (8, 2), (2, 16))


def test_what_an_adapter_says_of_itself(tmp_path: Path) -> None:
    found = summarize_adapter(read_adapter(adapter(GOOD, **{"general.name": "Pirate"}).write(tmp_path / "a.gguf")))
    assert (found.name, found.architecture, found.rank, found.n_matrices) == ("Pirate", "llama", 2, 1)
    assert found.embedding == 8
    nameless = summarize_adapter(read_adapter(adapter(GOOD).write(tmp_path / "nameless.gguf")))
    assert nameless.name == "nameless"


@pytest.mark.parametrize(
    ("maker", "error"),
    [
        (adapter(GOOD, **{"general.type": "model"}), NotAModel),
        (adapter(GOOD, **{"general.type": None}), NotAModel),
        (adapter(GOOD, **{"adapter.type": "ia3"}), UnsupportedModel),
        (adapter(GOOD, **{"general.architecture": ""}), ModelFileDamaged),
        (adapter(), ModelFileDamaged),
        (adapter(("blk.0.attn_q.weight", (8, 2), ())), ModelFileDamaged),
        (adapter(GOOD).add("adapter.lora.alpha", F64, 1.0), ModelFileDamaged),
        (adapter(GOOD).add("adapter.lora.alpha", STR, "1"), ModelFileDamaged),
        (adapter(GOOD, **{"adapter.lora.alpha": float("inf")}), ModelFileDamaged),
        (adapter(GOOD).add("adapter.alora.invocation_tokens", 9, (4, [1, 2])), UnsupportedModel),
    ],
)
def test_what_is_no_usable_adapter(tmp_path: Path, maker: Maker, error: type[EngineError]) -> None:
    with pytest.raises(error):
        read_adapter(maker.write(tmp_path / "a.gguf"))


def test_one_that_is_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(adapter(GOOD).bytes()[:-40])
    with pytest.raises(ModelFileDamaged):
        read_adapter(path)


@pytest.mark.parametrize(
    ("matrix", "a", "b", "fits"),
    [
        (("w.weight", (8, 16)), (8, 2), (2, 16), True),
        (("w.weight", (8, 16)), (8, 2), (3, 16), False),
        (("w.weight", (8, 16)), (16, 2), (2, 8), False),
        (("w.weight", (8, 16)), (8, 2, 1), (2, 16, 1), True),
        (("w.weight", (8, 16)), (8, 2, 4), (2, 16, 4), False),
        (("w.weight", (8, 16, 4)), (8, 2, 4), (2, 16, 4), True),
        (("w.weight", (8, 16, 4)), (8, 2), (2, 16), False),
        (("w.weight", (8,)), (8, 2), (2, 1), False),
        (("w.weight", (8, 16)), (8, 0), (0, 16), False),
        (("token_embd.weight", (8, 100)), (2, 100), (2, 8), True),
        (("token_embd.weight", (8, 100)), (8, 2), (2, 100), False),
    ],
)
def test_sizes(tmp_path: Path, matrix: Any, a: tuple[int, ...], b: tuple[int, ...], fits: bool) -> None:
    whole = gguf.read_header(model(matrix).write(tmp_path / "m.gguf"))
    part = gguf.read_header(adapter((matrix[0], a, b)).write(tmp_path / "a.gguf"))
    if fits:
        check_fits(part, whole)
        return
    with pytest.raises(AdapterMismatch) as caught:
        check_fits(part, whole)
    assert matrix[0] in caught.value.message and caught.value.details["adapter"].endswith("a.gguf")


def test_another_architecture_and_a_matrix_that_is_not_there(tmp_path: Path) -> None:
    part = gguf.read_header(adapter(GOOD).write(tmp_path / "a.gguf"))
    with pytest.raises(AdapterMismatch, match="llama, not qwen2"):
        check_fits(part, gguf.read_header(model(("x", (8, 16)), architecture="qwen2").write(tmp_path / "m.gguf")))
    other = gguf.read_header(model(("blk.1.attn_q.weight", (8, 16))).write(tmp_path / "n.gguf"))
    with pytest.raises(AdapterMismatch, match=r"no matrix blk\.0\.attn_q"):
        check_fits(part, other)
    check_fits(part, other, [gguf.read_header(model((GOOD[0], (8, 16))).write(tmp_path / "o.gguf"))])


def test_the_index_remembers_adapters_and_broken_ones(tmp_path: Path) -> None:
    entry = read_entry((stamp(str(adapter(GOOD).write(tmp_path / "a.gguf"))),))
    assert entry.kind == "adapter" and entry.model is None and entry.problem is None
    assert entry.adapter is not None and entry.adapter.rank == 2
    broken = read_entry((stamp(str(adapter(GOOD, **{"adapter.type": "ia3"}).write(tmp_path / "b.gguf"))),))
    assert broken.kind == "adapter" and broken.adapter is None and broken.problem is not None


def test_the_library_attaches_adapters_and_never_lists_them(tmp_path: Path) -> None:
    models = tmp_path / "models"
    write_model(models / "one" / "llama.gguf", "Llama")
    write_model(models / "two" / "qwen.gguf", "Qwen", architecture="qwen2")
    folder = models / "adapters"
    folder.mkdir()
    wide = ("blk.0.attn_q.weight", (64, 2), (2, 64))
    adapter(wide, **{"general.name": "Pirate"}).write(folder / "pirate.gguf")
    adapter(GOOD).write(folder / "narrow.gguf")  # for a model of another width
    adapter(wide, **{"general.architecture": "gemma3"}).write(folder / "gemma.gguf")
    rows = by_name(look(tmp_path, models))
    assert set(rows) == {"llama.gguf", "qwen.gguf"}
    assert [one.name for one in rows["llama.gguf"].adapters] == ["Pirate"]
    assert rows["qwen.gguf"].adapters == ()


def test_memory_of_an_adapter_lies_where_its_matrices_do(starter_model: Path, tmp_path: Path) -> None:
    header = gguf.check_file(starter_model)
    lora_header = read_adapter(lora(tmp_path / "a.gguf", starter_model, rank=8))
    size = sum(tensor.n_bytes for tensor in lora_header.tensors)
    whole, plain = prepare(header, (), (lora_header,)), prepare(header)
    assert prepare(header, (), (lora_header,)) is whole and prepare(header) is plain
    device = (DeviceSpec("CUDA0", "gpu", 8 * GIB, 8 * GIB),)
    for options, on_device in (
        (LoadOptions(n_gpu_layers=-1), 1.0),
        (LoadOptions(n_gpu_layers=16), 0.5),
        (LoadOptions(n_gpu_layers=0), 0.0),
    ):
        more, less = needs_of(whole, options, device), needs_of(plain, options, device)
        on_gpu = more.devices[0].weights_bytes - less.devices[0].weights_bytes
        on_host = more.host.weights_bytes - less.host.weights_bytes
        assert on_gpu + on_host == pytest.approx(size, rel=0.01)
        assert on_gpu / size == pytest.approx(on_device, abs=0.02)
        asked = with_adapters(replace(less, source="probe"), whole, plain, options, device)
        assert asked.devices[0].weights_bytes == more.devices[0].weights_bytes
        assert asked.host.weights_bytes == more.host.weights_bytes and asked.source == "probe"


def test_alpha_is_a_32_bit_number(tmp_path: Path) -> None:
    header = read_adapter(adapter(GOOD, **{"adapter.lora.alpha": 16.0}).write(tmp_path / "a.gguf"))
    assert header.metadata["adapter.lora.alpha"] == struct.unpack("<f", struct.pack("<f", 16.0))[0]
