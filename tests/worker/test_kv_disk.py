"""States of chats on disk: what is kept comes back as it was, and what is damaged, foreign or too much does not."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from engine import kv_files
from engine.worker.checkpoints import SavedState
from engine.worker.kv_disk import KvDisk

IDENTITY = "0123456789abcdef0123/build 1"
OTHER = "fedcba9876543210fedc/build 1"


@pytest.fixture
def notes() -> list[str]:
    return []


@pytest.fixture
def open_disk(tmp_path: Path, notes: list[str]) -> Iterator[Callable[..., KvDisk]]:
    made: list[KvDisk] = []

    def make(identity: str = IDENTITY, cap_bytes: int = 1 << 30) -> KvDisk:
        made.append(KvDisk(tmp_path / "kv", cap_bytes, identity, notes.append))
        return made[-1]

    yield make
    for disk in made:
        disk.close(5)


def state(n_tokens: int = 100, n_bytes: int = 3_000_000, seed: int = 0) -> SavedState:
    draw = np.random.default_rng(seed)
    parts = [draw.integers(0, 256, size, np.uint8) for size in (n_bytes, 50_000, 70_000)]
    return SavedState(list(range(seed, seed + n_tokens)), parts[0], [(10, parts[1]), (60, parts[2])])


def same(one: SavedState, other: SavedState) -> bool:
    return (
        list(one.tokens) == list(other.tokens)
        and np.array_equal(one.state, other.state)
        and [n for n, _ in one.checkpoints] == [n for n, _ in other.checkpoints]
        and all(np.array_equal(a, b) for (_, a), (_, b) in zip(one.checkpoints, other.checkpoints, strict=True))
    )


def files(disk: KvDisk) -> list[Path]:
    disk.settle()
    return sorted(kv_files.ours(disk.folder))


def test_what_is_kept_comes_back(open_disk: Callable[..., KvDisk]) -> None:
    disk, kept = open_disk(), state()
    assert not disk.has("chat") and disk.read("chat").result() is None
    assert disk.write("chat", kept)
    assert disk.has("chat") and same(disk.read("chat").result(), kept), "also before it is written"
    (path,) = files(disk)
    assert path.suffix == kv_files.SUFFIX and "chat" not in path.name
    if os.name == "posix":
        assert path.stat().st_mode & 0o077 == 0
    found = open_disk().read("chat").result()
    assert found is not None and same(found, kept)
    disk.write("chat", state(seed=7))
    disk.settle()
    again = disk.read("chat").result()
    assert again is not None and same(again, state(seed=7)) and len(files(disk)) == 1


def test_another_model_finds_nothing_and_leaves_it_alone(open_disk: Callable[..., KvDisk], notes: list[str]) -> None:
    disk = open_disk()
    disk.write("chat", state())
    disk.settle()
    other = open_disk(OTHER)
    assert not other.has("chat") and other.read("chat").result() is None
    other.write("chat", state(seed=3))
    assert len(files(other)) == 2 and notes == []
    found = disk.read("chat").result()
    assert found is not None and same(found, state())


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda raw: b"",
    "cut short": lambda raw: raw[:-1],
    "cut in the head": lambda raw: raw[:9],
    "longer": lambda raw: raw + b"\0",
    "one bit": lambda raw: raw[:1_000_000] + bytes([raw[1_000_000] ^ 4]) + raw[1_000_001:],
    "one bit of the last byte": lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]),
    "one bit of the description": lambda raw: raw[:40] + bytes([raw[40] ^ 1]) + raw[41:],
    "something else": lambda raw: b"GGUF" + raw[4:],
    "a web page": lambda raw: b"<!doctype html><p>Not found",
    "a huge description": lambda raw: raw[:8] + b"\xff\xff\xff\x7f" + raw[12:],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_said_and_removed(open_disk: Callable[..., KvDisk], notes: list[str], damage: str) -> None:
    disk = open_disk()
    disk.write("chat", state())
    (path,) = files(disk)
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    assert disk.read("chat").result() is None
    assert len(notes) == 1 and path.name in notes[0] and not path.exists()
    disk.write("chat", state())
    assert len(files(disk)) == 1


def test_a_file_of_another_identity_under_our_name_is_not_used(
    open_disk: Callable[..., KvDisk], notes: list[str]
) -> None:
    disk, other = open_disk(), open_disk(OTHER)
    other.write("chat", state())
    (path,) = files(other)
    path.rename(kv_files.path_of(disk.folder, "chat", IDENTITY))
    assert disk.read("chat").result() is None and len(notes) == 1 and files(disk) == []


def test_what_a_dead_worker_left_is_tidied_up(open_disk: Callable[..., KvDisk], notes: list[str]) -> None:
    older = open_disk("0123456789abcdef0123/build 0")
    older.write("old", state())
    older.settle()
    (older.folder / f"x{kv_files.PART}").write_bytes(b"half")
    disk = open_disk()
    disk.settle()
    assert len(notes) == 2 and sum("another build" in note for note in notes) == 1
    disk.write("good", state())
    disk.write("tried", state())
    disk.settle()
    with pytest.raises(KeyboardInterrupt), disk.trying("tried"):
        raise KeyboardInterrupt  # the process died of it
    fresh = open_disk()
    assert len(files(fresh)) == 1 and fresh.has("good") and not fresh.has("tried") and len(notes) == 3


def test_the_cap_holds_and_the_oldest_go(open_disk: Callable[..., KvDisk]) -> None:
    disk = open_disk(cap_bytes=10_000_000)
    for n, key in enumerate("abc"):
        disk.write(key, state(seed=n))
        (path,) = [p for p in files(disk) if kv_files.belongs_to(p, key)]
        os.utime(path, (1000 + n, 1000 + n))
    with disk.trying("a"):
        pass  # used: now "b" is the one not used for longest
    disk.write("d", state(seed=9))
    disk.settle()
    assert [key for key in "abcd" if disk.has(key)] == ["a", "c", "d"]
    assert sum(p.stat().st_size for p in files(disk)) <= 10_000_000
    assert not disk.write("e", state(n_bytes=20_000_000)) and not disk.has("e")
    assert [key for key in "abcd" if disk.has(key)] == ["a", "c", "d"], "nothing goes for what never fits"


def test_forgotten_is_forgotten_also_on_its_way(open_disk: Callable[..., KvDisk]) -> None:
    disk, other = open_disk(), open_disk(OTHER)
    other.write("chat", state())
    other.settle()
    for n in range(5):
        disk.write("chat", state(seed=n))
    disk.write("stays", state())
    disk.forget("chat")
    assert not disk.has("chat")
    assert len(files(disk)) == 1 and disk.has("stays") and not disk.has("chat")
    kv_files.forget(disk.folder, "stays")
    assert files(disk) == []
    kv_files.forget(disk.folder / "nowhere", "stays")


def test_a_folder_that_cannot_be_written_costs_nothing_else(tmp_path: Path, notes: list[str]) -> None:
    (tmp_path / "kv").write_bytes(b"a file")
    disk = KvDisk(tmp_path / "kv", 1 << 30, IDENTITY, notes.append)
    disk.write("chat", state())
    disk.settle()
    assert not disk.has("chat") and disk.read("chat").result() is None and notes
    disk.close(1)


def test_the_end_waits_for_a_write_but_not_for_ever(open_disk: Callable[..., KvDisk]) -> None:
    disk = open_disk()
    disk.write("chat", state(n_bytes=30_000_000))
    began = time.monotonic()
    disk.close(10)
    assert time.monotonic() - began < 5
    found = open_disk().read("chat").result()
    assert found is not None and same(found, state(n_bytes=30_000_000))
