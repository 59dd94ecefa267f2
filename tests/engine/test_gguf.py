"""Reading sound GGUF files: all value types, alignment, summaries, sets of shards, speed on big vocabularies."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import gguf as reference
import numpy as np
import pytest
from gguf_maker import ARR, BOOL, F32, F64, I8, I16, I32, I64, STR, U8, U16, U32, U64, Maker, small_model, tensor

from engine.errors import InvalidRequest, ModelFileDamaged, ModelNotFound, NotAModel, StorageFailed
from engine.models.gguf import check_file, describe, read_header, shard_paths

ODD_NAMES = ["山 月 Абв ü", "a%20b", "a#b", "a&b", "it's", "new\nline", "-dash", "模型 q4", "e\u0301"]


def test_every_value_type(tmp_path: Path) -> None:
    values = {
        "u8": (U8, 255),
        "i8": (I8, -128),
        "u16": (U16, 65535),
        "i16": (I16, -32768),
        "u32": (U32, 2**32 - 1),
        "i32": (I32, -(2**31)),
        "f32": (F32, 0.5),
        "u64": (U64, 2**64 - 1),
        "i64": (I64, -(2**63)),
        "f64": (F64, 0.1),
        "bool": (BOOL, True),
        "text": (STR, "Grüße 模型 \n\0 end"),
    }
    maker = Maker()
    for key, (type_id, content) in values.items():
        maker.add(key, type_id, content)
        maker.add(f"{key}.list", ARR, (type_id, [content, content]))
        maker.add(f"{key}.empty", ARR, (type_id, []))
    header = read_header(maker.write(tmp_path / "m.gguf"))
    for key, (_, content) in values.items():
        assert header.metadata[key] == content
        assert list(header.metadata[f"{key}.list"]) == [content, content]
        assert list(header.metadata[f"{key}.empty"]) == []
    assert header.metadata["bool"] is True
    assert header.value_types["u16"] == "uint16"


def test_agrees_with_the_reference_reader_on_the_starter(starter_model: Path) -> None:
    ours = check_file(starter_model)
    theirs = reference.GGUFReader(str(starter_model))
    assert ours.data_offset == theirs.data_offset
    assert [t.name for t in ours.tensors] == [t.name for t in theirs.tensors]
    for mine, other in zip(ours.tensors, theirs.tensors, strict=True):
        assert (ours.data_offset + mine.offset, mine.n_bytes) == (other.data_offset, other.n_bytes)
        assert (mine.dims, mine.type) == (tuple(map(int, other.shape)), int(other.tensor_type))
    whole = read_header(starter_model)
    tokens = theirs.fields["tokenizer.ggml.tokens"].contents()
    assert list(whole.metadata["tokenizer.ggml.tokens"]) == tokens
    assert whole.need_bytes == whole.file_size


@pytest.mark.parametrize("alignment", [8, 16, 32, 64, 128])
def test_offsets_with_any_alignment(tmp_path: Path, alignment: int) -> None:
    path = tmp_path / "m.gguf"
    for length in range(1, 33):
        writer = reference.GGUFWriter(path, "llama")
        writer.add_custom_alignment(alignment)
        writer.add_string("filler", "x" * length)
        for name, count in (("a.weight", 3), ("b.weight", 100), ("c.weight", 1)):
            writer.add_tensor(name, np.arange(count, dtype=np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        ours, theirs = read_header(path), reference.GGUFReader(str(path))
        assert ours.alignment == alignment
        assert ours.data_offset == theirs.data_offset
        expected = [t.data_offset for t in theirs.tensors]
        assert [ours.data_offset + t.offset for t in ours.tensors] == expected
        raw = path.read_bytes()
        last = ours.tensors[-2]
        start = ours.data_offset + last.offset
        assert raw[start : start + last.n_bytes] == np.arange(100, dtype=np.float32).tobytes()
        del theirs  # it maps the file, which the next round writes again


def test_text_that_is_not_utf8_spoils_only_its_own_value(tmp_path: Path) -> None:
    maker = small_model().add("good", STR, "é").add("bad", STR, b"caf\xe9")
    maker.add("list", ARR, (STR, ["a", b"\xff\xfe", "c"])).add(b"key\xff", U32, 7)
    header = check_file(maker.write(tmp_path / "m.gguf"))
    assert header.metadata["good"] == "é"
    assert header.metadata["bad"] == b"caf\xe9"
    assert header.text("bad") == ""
    assert list(header.metadata["list"]) == ["a", b"\xff\xfe", "c"]
    assert header.metadata["key\\xff"] == 7


@pytest.mark.parametrize(
    ("type_id", "content", "expected"),
    [
        (U32, 8, [8]),
        (I32, 8, [8]),
        (ARR, (I32, [0, 0, 8, 0] * 4), [0, 0, 8, 0] * 4),
        (ARR, (U32, list(range(88))), list(range(88))),
        (ARR, (BOOL, [True, False]), [1, 0]),
        (STR, "8", []),
        (F32, 8.0, []),
    ],
)
def test_one_number_or_one_per_layer(tmp_path: Path, type_id: int, content: object, expected: list[int]) -> None:
    maker = small_model().add("llama.attention.head_count_kv", type_id, content)
    header = check_file(maker.write(tmp_path / "m.gguf"))
    assert header.integers("llama.attention.head_count_kv") == expected
    assert header.of_architecture("attention.head_count_kv") == max(expected, default=None)


def test_a_vocabulary_of_250000_tokens_is_read_in_under_a_second(tmp_path: Path, slower: Callable[[], float]) -> None:
    tokens = [f"token number {index}" for index in range(250_000)]
    maker = small_model().add("tokenizer.ggml.tokens", ARR, (STR, tokens))
    maker.add("tokenizer.ggml.scores", ARR, (F32, [0.5] * len(tokens)))
    maker.add("tokenizer.ggml.merges", ARR, (STR, tokens))
    path = maker.write(tmp_path / "m.gguf")
    start = time.process_time()
    summary = describe(path)
    skipping_s = time.process_time() - start
    start = time.process_time()
    kept = read_header(path).metadata["tokenizer.ggml.tokens"]
    assert list(kept) == tokens
    keeping_s = time.process_time() - start
    assert summary.n_params == 3 * 32
    assert skipping_s < slower()
    assert keeping_s < slower()
    skipped = check_file(path).metadata["tokenizer.ggml.tokens"]
    assert (len(skipped), skipped.kept) == (250_000, False)
    with pytest.raises(ValueError, match="left out"):
        list(skipped)


def test_describe_the_starter(starter_model: Path) -> None:
    summary = describe(starter_model)
    assert summary.architecture == "llama"
    assert summary.quantization == "Q4_1"
    assert summary.n_params == 134_515_008
    assert summary.size_bytes == starter_model.stat().st_size
    assert summary.n_ctx_train == 8192
    assert summary.has_template
    assert summary.n_files == 1


def test_describe_without_a_name_or_file_type(tmp_path: Path) -> None:
    summary = describe(small_model().write(tmp_path / "my model.gguf"))
    assert (summary.name, summary.quantization, summary.has_template) == ("my model", "F32", False)


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_file_and_folder_names(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    path = small_model().write(folder / f"{name}.gguf")
    assert check_file(path).file_size == path.stat().st_size
    assert check_file(str(path)).path == path
    path.write_bytes(b"")
    with pytest.raises(NotAModel) as caught:
        check_file(path)
    assert "\n" not in caught.value.message


@pytest.mark.skipif(os.name != "posix", reason="only POSIX file names are bytes")
def test_a_file_name_that_is_not_utf8(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.gguf"))
    assert check_file(small_model().write(path)).tensors
    path.write_bytes(b"x")
    with pytest.raises(NotAModel) as caught:
        check_file(path)
    caught.value.message.encode()


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound):
        check_file(tmp_path / "absent.gguf")
    with pytest.raises(NotAModel, match="folder") as caught:
        check_file(tmp_path)
    assert caught.value.details["kind"] == "directory"
    with pytest.raises((InvalidRequest, ModelNotFound)):
        check_file("a\0b.gguf")
    with pytest.raises((StorageFailed, ModelNotFound)):
        check_file(tmp_path / ("x" * 5000))
    with pytest.raises((StorageFailed, ModelNotFound)):
        check_file(small_model().write(tmp_path / "file.gguf") / "below.gguf")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_named_pipe_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "pipe.gguf"
    os.mkfifo(path)
    with pytest.raises(NotAModel):
        check_file(path)


def test_a_file_cut_short_says_what_is_missing(tmp_path: Path, starter_model: Path) -> None:
    with starter_model.open("rb") as file:
        head = file.read(5_000_000)
    size = starter_model.stat().st_size
    path = tmp_path / "cut.gguf"
    with path.open("wb") as file:
        file.write(head)
        file.truncate(size * 9 // 10)
    with pytest.raises(ModelFileDamaged) as caught:
        check_file(path)
    assert caught.value.details == {"have_bytes": size * 9 // 10, "need_bytes": size}
    assert "cut short" in caught.value.message


@pytest.mark.parametrize(
    ("entries", "kind"),
    [
        ([("general.architecture", STR, "llama")], "vocabulary"),
        ([("general.architecture", STR, "clip"), ("general.type", STR, "mmproj")], "mmproj"),
        ([("general.architecture", STR, "llama"), ("general.type", STR, "adapter")], "adapter"),
        ([], "no_architecture"),
    ],
)
def test_gguf_files_that_are_no_language_models(tmp_path: Path, entries: list, kind: str) -> None:
    maker = Maker()
    for key, type_id, content in entries:
        maker.add(key, type_id, content)
    path = maker.write(tmp_path / "m.gguf")
    read_header(path)
    with pytest.raises(NotAModel) as caught:
        check_file(path)
    assert caught.value.details["kind"] == kind


# ------------------------------------------------------------------ sets of shards


def shards(folder: Path, count: int = 3, total: int | None = None) -> list[Path]:
    paths = []
    for number in range(count):
        maker = small_model(2) if number == 0 else Maker()
        if number:
            maker.tensors = [tensor(f"blk.{number}.{i}.weight", (8, 4), 0, i * 128) for i in range(2)]
            maker.data = bytes(256)
        maker.add("split.no", U16, number).add("split.count", U16, count)
        maker.add("split.tensors.count", I32, 2 * count if total is None else total)
        paths.append(maker.write(folder / f"big model-{number + 1:05d}-of-{count:05d}.gguf"))
    return paths


def test_a_complete_set(tmp_path: Path) -> None:
    paths = shards(tmp_path)
    assert shard_paths(paths[1]) == paths
    header = check_file(paths[0])
    assert (header.split_count, header.split_number) == (3, 0)
    for path in paths:  # any part describes the whole
        summary = describe(path)
        assert summary.path == str(paths[0])
        assert summary.n_params == 6 * 32
        assert summary.size_bytes == sum(p.stat().st_size for p in paths)
        assert (summary.n_files, summary.name, summary.architecture) == (3, "big model", "llama")


def test_missing_parts_are_named(tmp_path: Path) -> None:
    paths = shards(tmp_path)
    paths[1].unlink()
    with pytest.raises(ModelNotFound, match="big model-00002-of-00003") as caught:
        check_file(paths[0])
    assert caught.value.details["missing"] == [paths[1].name]
    assert describe(paths[0]).n_params == 4 * 32


def test_a_later_part_names_the_first(tmp_path: Path) -> None:
    paths = shards(tmp_path)
    with pytest.raises(InvalidRequest) as caught:
        check_file(paths[2])
    assert caught.value.details["first"] == str(paths[0])


def test_parts_that_do_not_belong_together(tmp_path: Path) -> None:
    paths = shards(tmp_path)
    paths[2].write_bytes(paths[1].read_bytes())
    with pytest.raises(ModelFileDamaged, match="not part 3"):
        check_file(paths[0])
    paths = shards(tmp_path, total=7)
    with pytest.raises(ModelFileDamaged, match="6 tensors together, not 7"):
        check_file(paths[0])


def test_a_part_cut_short(tmp_path: Path) -> None:
    paths = shards(tmp_path)
    size = paths[1].stat().st_size
    os.truncate(paths[1], size - 1)
    with pytest.raises(ModelFileDamaged) as caught:
        check_file(paths[0])
    assert caught.value.details == {"have_bytes": size - 1, "need_bytes": size}
    assert paths[1].name in caught.value.message


def test_a_renamed_part(tmp_path: Path) -> None:
    path = shards(tmp_path)[0]
    with pytest.raises(ModelFileDamaged, match="name"):
        check_file(path.rename(tmp_path / "model.gguf"))
