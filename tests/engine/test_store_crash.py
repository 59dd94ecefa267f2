"""What a killed process, a full or read-only disk and a damaged file leave behind."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from store_help import grow, one_transaction

from engine.errors import DatabaseDamaged, StorageFailed
from engine.message import TextPart
from engine.store.chats import ChatStore, recover, set_aside

WRITER = Path(__file__).parent / "store_writer.py"
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chats.db"


@pytest.fixture(scope="module")
def filled_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("filled") / "chats.db"
    store = ChatStore(path)
    with one_transaction(store):
        for number in range(3):
            grow(store, store.create_chat(f"chat {number}").id, 300, body="x" * 300 + f" chat{number} message")
    store.close()
    return path


@pytest.fixture
def filled(path: Path, filled_once: Path) -> Path:
    """A closed database: 3 chats with 300 messages each."""
    shutil.copy(filled_once, path)
    return path


def start_writer(path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, WRITER, path], stdout=subprocess.PIPE, text=True, cwd=ROOT)


def test_kill_9_at_any_moment_loses_nothing_acknowledged(path: Path) -> None:
    chance = random.Random(27)
    users: dict[int, str] = {}
    parts: dict[int, int] = {}
    for _ in range(20):
        child = start_writer(path)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(chance.uniform(0.0, 0.15))
        child.kill()
        # only whole lines: the last one may be cut by the kill
        for line in child.stdout.read().rpartition("\n")[0].splitlines():
            kind, row_id, value = line.split()
            if kind == "user":
                users[int(row_id)] = value
            else:
                parts[int(row_id)] = int(value)
        child.wait()
        child.stdout.close()
    assert len(users) > 20
    store = ChatStore(path)
    assert store.is_sound()
    assert store.mark_interrupted() <= 1
    for row_id, value in users.items():
        assert store.message(row_id).text == value
    for row_id, length in parts.items():
        assert store.message(row_id).text.count("word") >= length
        assert store.message(row_id).status in ("complete", "interrupted")
    for chat in store.chats():
        branch = store.branch(chat.id)
        assert len(branch) == chat.n_messages
        assert [m.parent_id for m in branch[1:]] == [m.id for m in branch[:-1]]
    some = next(iter(users.values()))
    assert store.search(some)
    store.close()


def test_a_killed_first_start_leaves_no_half_database(path: Path) -> None:
    for delay_s in (0.05, 0.1, 0.15, 0.2, 0.25, 0.3):
        child = start_writer(path)
        time.sleep(delay_s)
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()
        ChatStore(path).close()
        path.unlink()


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: b"\0" * 65536,
        lambda raw: b"",
        lambda raw: b"<html>not a database</html>" * 100,
        lambda raw: raw[:100] + b"\0" * (len(raw) - 100),
        lambda raw: raw[:18] + b"\x09" * 20 + raw[38:],
        lambda raw: raw[:50],
    ],
    ids=["nuls", "empty", "html", "header only", "broken header", "50 bytes"],
)
def test_a_file_that_cannot_be_opened_is_set_aside_and_kept(filled: Path, damage: object) -> None:
    raw = damage(filled.read_bytes())  # type: ignore[operator]
    filled.write_bytes(raw)
    with pytest.raises(DatabaseDamaged) as caught:
        ChatStore(filled).close()
    assert caught.value.hint
    folder = set_aside(filled)
    assert folder.name.startswith("damaged-")
    assert (folder / filled.name).read_bytes() == raw
    found = recover(folder, filled)
    assert not found.complete
    store = ChatStore(filled)
    assert len(store.chats()) == found.n_chats
    store.create_chat("goes on")
    store.close()
    assert (folder / filled.name).read_bytes() == raw, "the evidence must not be touched"


def test_half_a_file_gives_back_what_is_readable(filled: Path) -> None:
    raw = filled.read_bytes()
    filled.write_bytes(raw[: len(raw) // 2])
    with pytest.raises(DatabaseDamaged):
        store = ChatStore(filled)
        try:
            for chat in store.chats():
                store.branch(chat.id)
        finally:
            store.close()
    found = recover(set_aside(filled), filled)
    assert 100 < found.n_messages < 900
    assert not found.complete


def test_garbage_in_the_middle_costs_only_its_own_page(filled: Path) -> None:
    raw = bytearray(filled.read_bytes())
    at = raw.index(b"chat1 message 150")
    page = at // 4096 * 4096
    raw[page : page + 4096] = random.Random(1).randbytes(4096)
    filled.write_bytes(raw)
    store = ChatStore(filled)
    assert not store.is_sound()
    store.close()
    found = recover(set_aside(filled), filled)
    assert 880 <= found.n_messages < 900
    assert found.n_chats == 3
    assert not found.complete
    store = ChatStore(filled)
    assert store.is_sound()
    for chat in store.chats():
        # what stood after the gap hangs below what stood before it
        branch = store.branch(chat.id)
        assert len(branch) == chat.n_messages
        assert branch[-1].text.endswith(" 299")
    assert store.search("chat1 message 299")
    store.close()


def test_a_sound_file_is_recovered_whole_with_its_wal(path: Path, tmp_path: Path) -> None:
    store = ChatStore(path)
    chat = store.create_chat()
    root = store.add_message(chat.id, None, "user", (TextPart("only in the WAL"),), pinned=True)
    gone = store.add_message(chat.id, root.id, "assistant", (TextPart("deleted"),))
    store.delete_message(gone.id)
    copies = tmp_path / "killed"
    copies.mkdir()
    for file in tmp_path.glob("chats.db*"):
        shutil.copy(file, copies)
    store.close()
    target = copies / "chats.db"
    found = recover(set_aside(target), target)
    assert (found.n_chats, found.n_messages, found.complete) == (1, 2, True)
    store = ChatStore(target)
    assert store.branch(chat.id)[0].text == "only in the WAL"
    assert store.branch(chat.id)[0].pinned
    assert len(store.branch(chat.id)) == 1
    assert store.restore_message(gone.id).active_leaf_id == gone.id
    store.close()


def test_recovery_never_overwrites(filled: Path) -> None:
    folder = set_aside(filled)
    ChatStore(filled).close()
    with pytest.raises(StorageFailed):
        recover(folder, filled)
    with pytest.raises(StorageFailed):
        set_aside(filled.with_name("missing.db"))


def test_a_wal_without_its_database_is_not_played_into_a_new_one(path: Path, tmp_path: Path) -> None:
    store = ChatStore(path)
    store.create_chat("old")
    kept = tmp_path / "kept"
    shutil.copy(tmp_path / "chats.db-wal", kept)
    store.close()
    path.unlink()
    shutil.copy(kept, tmp_path / "chats.db-wal")
    store = ChatStore(path)
    assert store.chats() == []
    assert store.is_sound()
    store.close()
    assert list(tmp_path.glob("damaged-*/chats.db-wal"))


def test_another_programs_database_is_refused(path: Path) -> None:
    import sqlite3

    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE recipes (name TEXT)")
    other.close()
    with pytest.raises(DatabaseDamaged):
        ChatStore(path)
    assert b"recipes" in path.read_bytes()


@pytest.mark.parametrize("name", ["山 月 Абв ü", "100% #1 & 'so'?mode=ro", "a\nb", "file:x", ":memory:", "a" * 200])
def test_odd_folders_and_files(tmp_path: Path, name: str) -> None:
    path = tmp_path / name / f"{name[:100]}.db"
    store = ChatStore(path)
    store.create_chat("x")
    store.close()
    assert path.stat().st_size > 0
    folder = set_aside(path)
    assert recover(folder, path).n_chats == 1


def run_child(code: str, path: Path, *, user: int | None = None, fsize: int = 0) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", code, path, str(user or 0), str(fsize)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


OPEN_AND_WRITE = """
import os, resource, sys
from pathlib import Path
from engine.errors import EngineError
from engine.message import TextPart
from engine.store.chats import ChatStore
saved, user, fsize = 0, int(sys.argv[2]), int(sys.argv[3])
if fsize:
    resource.setrlimit(resource.RLIMIT_FSIZE, (fsize, fsize))
if user:  # permissions mean nothing to root
    os.setuid(user)
try:
    store = ChatStore(Path(sys.argv[1]))
    chat = store.create_chat()
    for number in range(2000):
        store.add_message(chat.id, None, "user", (TextPart("z" * 2000),))
        saved += 1
except EngineError as error:
    print(error.code, saved, bool(error.hint))
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that another user can reach, which pytest's own cannot be."""
    folder = Path(tempfile.mkdtemp(prefix="inglenook-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_FSIZE as tried here is Linux's")
def test_a_write_the_system_refuses_keeps_what_was_saved(path: Path) -> None:
    code, saved, has_hint = run_child(OPEN_AND_WRITE, path, fsize=1_000_000)
    assert code in ("storage_failed", "disk_full")
    assert has_hint == "True"
    assert int(saved) > 10
    store = ChatStore(path)
    assert store.is_sound()
    assert store.chats()[0].n_messages == int(saved)
    store.close()


@pytest.mark.skipif(os.name != "posix", reason="POSIX permissions")
def test_a_read_only_folder_is_a_known_error(open_folder: Path) -> None:
    user = 65534 if os.geteuid() == 0 else None
    open_folder.chmod(0o555)
    refused = ["storage_failed", "0", "True"]
    assert run_child(OPEN_AND_WRITE, open_folder / "new.db", user=user) == refused
    assert run_child(OPEN_AND_WRITE, open_folder / "sub" / "new.db", user=user) == refused
    open_folder.chmod(0o755)
    old = open_folder / "old.db"
    ChatStore(old).close()
    content = old.read_bytes()
    old.chmod(0o444)
    open_folder.chmod(0o555)
    assert run_child(OPEN_AND_WRITE, old, user=user) == refused
    open_folder.chmod(0o755)
    assert old.read_bytes() == content
