"""GGUF files made to hurt, and files that are something else: a known error, at once, without memory."""

from __future__ import annotations

import random
import struct
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from gguf_maker import ARR, F32, I32, STR, U32, Maker, entry, small_model, string, tensor

from engine.errors import EngineError, ModelFileDamaged, NotAModel, UnsupportedModel
from engine.models.gguf import check_file, read_header

LIMIT_S = 0.05
LIMIT_BYTES = 20_000_000
HUGE = 2**63 - 64


def with_entries(*raw: bytes, **fields: int) -> Callable[[], Maker]:
    def make() -> Maker:
        maker = small_model(**fields)
        maker.entries += raw
        return maker

    return make


def with_tensors(*raw: bytes, data: bytes = bytes(4096)) -> Callable[[], Maker]:
    def make() -> Maker:
        maker = small_model(0)
        maker.tensors += raw
        maker.data = data
        return maker

    return make


def header(**fields: object) -> Callable[[], Maker]:
    def make() -> Maker:
        maker = small_model()
        for name, value in fields.items():
            setattr(maker, name, value)
        return maker

    return make


def aligned(type_id: int, value: object, alignment: int) -> Callable[[], Maker]:
    def make() -> Maker:
        maker = small_model().add("general.alignment", type_id, value)
        maker.alignment = alignment
        return maker

    return make


def cut(n_bytes: int) -> Callable[[], Maker]:
    def make() -> Maker:
        maker = small_model()
        maker.data = maker.data[:-n_bytes]
        return maker

    return make


def key_of_size(size: int) -> bytes:
    return struct.pack("<Q", size % 2**64) + b"key" + struct.pack("<II", U32, 1)


def array_head(item_type: int, count: int) -> bytes:
    return string("list") + struct.pack("<IIQ", ARR, item_type, count % 2**64)


DEFECTS: dict[str, tuple[Callable[[], Maker], type[EngineError]]] = {
    # header
    "bad magic": (header(magic=b"FUGG"), NotAModel),
    "version 0": (header(version=0), NotAModel),
    "version 1": (header(version=1), NotAModel),
    "version of the future": (header(version=4), NotAModel),
    "minus one tensors": (header(n_tensors=-1), ModelFileDamaged),
    "2^40 tensors": (header(n_tensors=2**40), ModelFileDamaged),
    "one tensor more than there is": (header(n_tensors=4), ModelFileDamaged),
    "minus one entries": (header(n_entries=-1), ModelFileDamaged),
    "2^40 entries": (header(n_entries=2**40), ModelFileDamaged),
    # metadata
    "key of 2^64-1 bytes": (with_entries(key_of_size(-1)), ModelFileDamaged),
    "key longer than the file": (with_entries(key_of_size(60_000)), ModelFileDamaged),
    "empty key": (with_entries(entry("", U32, 1)), ModelFileDamaged),
    "NUL in a key": (with_entries(entry("general.alignment\0x", STR, "32")), ModelFileDamaged),
    "key of unknown type": (with_entries(string("key") + struct.pack("<I", 13) + bytes(8)), ModelFileDamaged),
    "key of type 2^32-1": (with_entries(string("key") + struct.pack("<I", 2**32 - 1) + bytes(8)), ModelFileDamaged),
    "list of unknown type": (with_entries(array_head(13, 1) + bytes(8)), ModelFileDamaged),
    "list of lists": (with_entries(array_head(ARR, 1) + struct.pack("<IQ", ARR, 1) * 1000), UnsupportedModel),
    "duplicate key": (with_entries(entry("k", U32, 1), entry("k", U32, 1)), ModelFileDamaged),
    "text of 2^63 bytes": (
        with_entries(string("key") + struct.pack("<IQ", STR, 2**63) + bytes(64)),
        ModelFileDamaged,
    ),
    "list of 2^61 numbers": (with_entries(array_head(F32, 2**61)), ModelFileDamaged),
    "list whose size wraps": (with_entries(array_head(I32, 2**62 + 1) + bytes(64)), ModelFileDamaged),
    "list of 2^60 texts": (with_entries(array_head(STR, 2**60)), ModelFileDamaged),
    "text in a list of 2^63 bytes": (
        with_entries(array_head(STR, 1) + struct.pack("<Q", 2**63) + bytes(64)),
        ModelFileDamaged,
    ),
    # alignment
    "alignment 0": (aligned(U32, 0, 32), ModelFileDamaged),
    "alignment 3": (aligned(U32, 3, 32), ModelFileDamaged),
    "alignment 13": (aligned(U32, 13, 13), ModelFileDamaged),
    "alignment 2^31": (aligned(U32, 2**31, 32), ModelFileDamaged),
    "alignment of type int32": (aligned(I32, 32, 32), ModelFileDamaged),
    "alignment as text": (aligned(STR, "32", 32), ModelFileDamaged),
    "alignment as a list": (aligned(ARR, (U32, [32]), 32), ModelFileDamaged),
    # tensors
    "tensor name of 64 bytes": (with_tensors(tensor("x" * 64, (8,), 0, 0)), ModelFileDamaged),
    "NUL in a tensor name": (with_tensors(tensor("a\0b", (8,), 0, 0)), ModelFileDamaged),
    "five dimensions": (with_tensors(tensor("a", (8, 1, 1, 1, 1), 0, 0)), ModelFileDamaged),
    "2^32-1 dimensions": (
        with_tensors(string("a") + struct.pack("<I", 2**32 - 1) + bytes(4096)),
        ModelFileDamaged,
    ),
    "negative size": (with_tensors(tensor("a", (8, -1), 0, 0)), ModelFileDamaged),
    "too many elements": (with_tensors(tensor("a", (2**32, 2**32), 0, 0)), ModelFileDamaged),
    "elements that wrap": (with_tensors(tensor("a", (2**40, 2**24, 2**40), 24, 0)), ModelFileDamaged),
    "too many bytes": (with_tensors(tensor("a", (2**62,), 27, 0)), ModelFileDamaged),
    "padded size that wraps": (with_tensors(tensor("a", (2**63 - 1,), 24, 0)), ModelFileDamaged),
    "sum of sizes that wraps": (
        with_tensors(tensor("a", (HUGE,), 24, 0), tensor("b", (HUGE,), 24, HUGE)),
        ModelFileDamaged,
    ),
    "type 250": (with_tensors(tensor("a", (8,), 250, 0)), UnsupportedModel),
    "retired type": (with_tensors(tensor("a", (32,), 4, 0)), UnsupportedModel),
    "negative type": (with_tensors(tensor("a", (8,), -1, 0)), ModelFileDamaged),
    "rows of no whole blocks": (with_tensors(tensor("a", (33,), 2, 0)), ModelFileDamaged),
    "bad offset": (with_tensors(tensor("a", (8,), 0, 0), tensor("b", (8,), 0, 64)), ModelFileDamaged),
    "first offset not 0": (with_tensors(tensor("a", (8,), 0, 32)), ModelFileDamaged),
    "duplicate tensor name": (with_tensors(tensor("a", (8,), 0, 0), tensor("a", (8,), 0, 32)), ModelFileDamaged),
    "offsets of another alignment": (
        with_tensors(tensor("a", (1,), 0, 0), tensor("b", (1,), 0, 4)),
        ModelFileDamaged,
    ),
    # data
    "last byte missing": (cut(1), ModelFileDamaged),
    "no data": (cut(384), ModelFileDamaged),
    "size of 2^62 bytes": (with_tensors(tensor("a", (2**62,), 24, 0)), ModelFileDamaged),
}

SOUND: dict[str, Callable[[], Maker]] = {
    "nothing in it": Maker,
    "metadata only": lambda: Maker().add("k", U32, 1),
    "tensors": small_model,
    "version 2": header(version=2),
    "zero dimension": with_tensors(tensor("a", (8, 0), 0, 0)),
    "zero dimension and a huge one": with_tensors(tensor("a", (0, 2**40), 0, 0)),
    "no dimensions": with_tensors(tensor("a", (), 0, 0)),
    "data": header(data=bytes(384 + 64)),
    "alignment 1": lambda: _tight(1),
    "alignment 64": aligned(U32, 64, 64),
}


def _tight(alignment: int) -> Maker:
    maker = Maker(alignment=alignment).add("general.architecture", STR, "llama")
    maker.add("general.alignment", U32, alignment)
    maker.tensors = [tensor("a", (1,), 24, 0), tensor("b", (3,), 24, 1)]
    maker.data = b"abcd"
    return maker


def timed_error(path: Path) -> tuple[EngineError | None, float, int]:
    """(error, seconds of CPU, most bytes allocated) of a check. Bytes are measured in a run of its own: it slows."""
    error: EngineError | None = None
    best = 1e9
    for _ in range(3):
        start = time.process_time()
        try:
            check_file(path)
        except EngineError as caught:
            error = caught
        best = min(best, time.process_time() - start)
    tracemalloc.start()
    try:
        check_file(path)
    except EngineError:
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return error, best, peak


@pytest.mark.parametrize("name", DEFECTS)
def test_defect(tmp_path: Path, name: str) -> None:
    make, kind = DEFECTS[name]
    error, seconds, peak = timed_error(make().write(tmp_path / "m.gguf"))
    assert type(error) is kind, error
    assert error.message
    assert seconds < LIMIT_S
    assert peak < LIMIT_BYTES


@pytest.mark.parametrize("name", DEFECTS)
def test_defect_in_a_file_of_a_terabyte(tmp_path: Path, name: str) -> None:
    """The size of the file must not turn an absurd count into a plausible one."""
    path = DEFECTS[name][0]().write(tmp_path / "m.gguf")
    try:
        with path.open("r+b") as file:
            file.truncate(2**40)
    except OSError:
        pytest.skip("this file system has no sparse files of that size")
    error, seconds, peak = timed_error(path)
    if name in ("last byte missing", "no data"):
        assert error is None
    else:
        assert type(error) is DEFECTS[name][1], error
    assert seconds < LIMIT_S
    assert peak < LIMIT_BYTES


@pytest.mark.parametrize("name", SOUND)
def test_odd_but_sound(tmp_path: Path, name: str) -> None:
    made = SOUND[name]()
    read = read_header(made.write(tmp_path / "m.gguf"))
    assert len(read.tensors) == len(made.tensors)


def test_every_cut_of_a_header_is_a_known_error(tmp_path: Path) -> None:
    maker = small_model().add("words", ARR, (STR, ["a", "bc"])).add("numbers", ARR, (I32, [1, 2, 3]))
    whole = maker.bytes()
    path = tmp_path / "m.gguf"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises((ModelFileDamaged, NotAModel)):
            check_file(path)


def test_random_damage_is_never_anything_but_a_known_error(tmp_path: Path) -> None:
    maker = small_model(6).add("words", ARR, (STR, ["a", "bc"])).add("numbers", ARR, (I32, [1, 2, 3]))
    whole = maker.bytes()
    n_header = len(maker.header())
    rng = random.Random(20261129)
    path = tmp_path / "m.gguf"
    refused = 0
    for _ in range(1500):
        raw = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            raw[rng.randrange(4, n_header)] = rng.choice([0, 1, 255, rng.randrange(256)])
        path.write_bytes(raw)
        try:
            check_file(path)
        except EngineError:
            refused += 1
    assert refused > 500


# ------------------------------------------------------------------ something else

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"ab" * 32 + b"\nsize 4368439584\n"
SAFETENSORS = struct.pack("<Q", 60) + b'{"__metadata__":{"format":"pt"}}'.ljust(60) + bytes(100)
OTHERS: dict[str, tuple[bytes, str]] = {
    "web page": (b"\n<!DOCTYPE html><html><head><title>404</title>", "html"),
    "web page with a byte order mark": (b"\xef\xbb\xbf<html lang='en'>", "html"),
    "pointer": (LFS, "lfs_pointer"),
    "safetensors": (SAFETENSORS, "safetensors"),
    "zip": (b"PK\x03\x04" + bytes(100), "zip"),
    "pickle": (b"\x80\x02}q\x00.", "pickle"),
    "big-endian": (b"GGUF\x00\x00\x00\x03" + bytes(100), "big_endian"),
    "GGUF 1": (b"GGUF\x01\x00\x00\x00" + bytes(100), "old_version"),
    "before GGUF": (b"tjgg\x03\x00\x00\x00" + bytes(100), "old_version"),
    "GGUF 99": (b"GGUF\x63\x00\x00\x00" + bytes(100), "future_version"),
    "empty": (b"", "empty"),
    "short text": (b"Entry not found", "other"),
    "error of a server": (b'{"error":"Invalid username or password."}', "other"),
    "gzip": (b"\x1f\x8b\x08" + bytes(50), "archive"),
    "zeros": (bytes(5000), "other"),
    "noise": (random.Random(1).randbytes(5000), "other"),
    "four bytes": (b"GGU\0", "other"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_something_else_is_named(tmp_path: Path, name: str) -> None:
    content, kind = OTHERS[name]
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    error, seconds, _ = timed_error(path)
    assert isinstance(error, NotAModel), error
    assert error.details["kind"] == kind
    assert error.hint
    assert seconds < LIMIT_S


def test_seven_kinds_seven_messages(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    messages = set()
    for name in ("web page", "pointer", "safetensors", "zip", "big-endian", "GGUF 1", "empty"):
        path.write_bytes(OTHERS[name][0])
        with pytest.raises(NotAModel) as caught:
            check_file(path)
        messages.add(caught.value.message)
    assert len(messages) == 7


def test_a_pointer_tells_the_real_size(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(LFS)
    with pytest.raises(NotAModel, match="4,368,439,584 bytes") as caught:
        check_file(path)
    assert caught.value.details["real_size_bytes"] == 4_368_439_584


def test_a_short_text_cannot_steer_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"line one\nline two\t")
    with pytest.raises(NotAModel) as caught:
        check_file(path)
    assert caught.value.message.isprintable()
