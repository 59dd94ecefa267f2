"""The library as front ends use it: import, check, delete and take back, changes noticed, and the index of it all."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from library_help import model_bytes, sha256, write_mmproj, write_model, write_set

from engine import events, paths
from engine.errors import (
    Busy,
    Cancelled,
    DiskFull,
    EngineError,
    InvalidRequest,
    ModelFileDamaged,
    ModelNotFound,
    NotAModel,
    StorageFailed,
)
from engine.model_store import ModelStore
from engine.models import hashing, import_file, trash
from engine.models.library_records import FileRecord
from engine.settings import Settings

WAIT_S = 20.0


class Desk:
    """A store with a user's home of its own, the events it sent, and a trash that can be looked into."""

    def __init__(self, home: Path, tmp_path: Path) -> None:
        self.paths = paths.resolve(home).ensure()
        self.settings = Settings(self.paths.settings_file)
        self.user = tmp_path / "user"
        self.user.mkdir(exist_ok=True)
        self.events: list[events.Event] = []
        self.sent: list[tuple[Path, bytes]] = []
        self.loaded = ""
        self.refuse = False
        self.store = ModelStore(
            self.paths,
            self.settings,
            self.events.append,
            loaded=lambda: self.loaded,
            home=self.user,
            env={},
            send_to_trash=self._send,
        )

    def _send(self, path: Path) -> None:
        if self.refuse:
            raise OSError("no trash here")
        self.sent.append((path, path.read_bytes()))
        path.unlink()

    def list(self) -> Any:
        return [m for m in self.store.list().result(WAIT_S) if "starter" not in m.path]

    def kinds(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


@pytest.fixture
def desk(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setattr("sys.prefix", str(tmp_path / "nowhere"))
    monkeypatch.delenv("INGLENOOK_STARTER", raising=False)
    made = Desk(home, tmp_path)
    yield made
    made.store.stop()


def eventually(true: Callable[[], bool], wait_s: float = WAIT_S) -> None:
    end = time.monotonic() + wait_s
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


# ------------------------------------------------------------------ import


def test_a_copy_is_whole_and_knows_its_hash(desk: Desk, tmp_path: Path) -> None:
    source = write_model(tmp_path / "down" / "tiny-Q4_K_M.gguf")
    (row,) = desk.store.import_file(source).result(WAIT_S)
    assert row.path == str(desk.paths.models / "tiny-Q4_K_M.gguf")
    assert Path(row.path).read_bytes() == source.read_bytes()
    assert row.sha256 == sha256(source.read_bytes())
    assert (row.hash_state, row.source, row.removable) == ("unverified", "inglenook", True)
    progress = [event for event in desk.kinds(events.VerifyProgress) if event.stage == "copy"]
    assert progress[-1].bytes_done == progress[-1].bytes_total == source.stat().st_size
    assert os.listdir(desk.paths.models) == ["tiny-Q4_K_M.gguf"]


def test_the_same_file_again_is_not_copied_twice(desk: Desk, tmp_path: Path) -> None:
    source = write_model(tmp_path / "tiny.gguf")
    first = desk.store.import_file(source).result(WAIT_S)
    before = os.stat(first[0].path)
    again = desk.store.import_file(source).result(WAIT_S)
    assert [row.path for row in again] == [first[0].path]
    assert os.stat(first[0].path) == before
    assert len(desk.list()) == 1


def test_another_file_of_the_same_name_is_never_replaced(desk: Desk, tmp_path: Path) -> None:
    mine = write_model(desk.paths.models / "model.gguf", "Mine")
    content = mine.read_bytes()
    other = write_model(tmp_path / "model.gguf", "Mine", salt=7)  # the same size
    longer = write_model(tmp_path / "more" / "model.gguf", "Another name" * 9)
    (second,) = desk.store.import_file(other).result(WAIT_S)
    (third,) = desk.store.import_file(longer).result(WAIT_S)
    assert mine.read_bytes() == content
    assert [Path(row.path).name for row in (second, third)] == ["model-2.gguf", "model-3.gguf"]
    assert Path(second.path).read_bytes() == other.read_bytes()


def test_a_set_by_any_of_its_shards(desk: Desk, tmp_path: Path) -> None:
    parts = write_set(tmp_path / "down", "big")
    (row,) = desk.store.import_file(parts[1]).result(WAIT_S)
    assert [Path(path).name for path in row.files] == [part.name for part in parts]
    assert row.path == str(desk.paths.models / parts[0].name)
    other = write_set(tmp_path / "other", "big")
    write_model(other[2].with_name("x.gguf"))
    other[2].write_bytes(other[2].read_bytes()[:-4] + b"else")
    (second,) = desk.store.import_file(other[0]).result(WAIT_S)
    assert Path(second.path).parent == desk.paths.models / "big"
    assert [Path(path).name for path in second.files] == [part.name for part in parts]


def test_a_folder_keeps_its_order(desk: Desk, tmp_path: Path) -> None:
    source = tmp_path / "stick"
    write_model(source / "a" / "one.gguf")
    write_mmproj(source / "a" / "mmproj-one.gguf")
    write_model(source / "b" / "one.gguf", salt=1)
    (source / "b" / "page.gguf").write_text("<html>")
    found = desk.store.import_file(source).result(WAIT_S)
    root = desk.paths.models / "stick"
    assert [row.path for row in found] == [str(root / "a" / "one.gguf"), str(root / "b" / "one.gguf")]
    assert found[0].mmproj == (str(root / "a" / "mmproj-one.gguf"),)


def test_in_place(desk: Desk, tmp_path: Path) -> None:
    single = write_model(tmp_path / "disk" / "one.gguf")
    (row,) = desk.store.import_file(single, copy=False).result(WAIT_S)
    assert (row.path, row.source, row.removable) == (str(single), "folder", False)
    folder = write_model(tmp_path / "other" / "deep" / "two.gguf").parent.parent
    (row,) = desk.store.import_file(folder, copy=False).result(WAIT_S)
    assert (row.path, row.source) == (str(folder / "deep" / "two.gguf"), "folder")
    assert desk.settings.extra_folders == [str(folder)]
    assert len(desk.list()) == 2
    assert Settings(desk.paths.settings_file).extra_folders == [str(folder)]
    assert list(desk.paths.models.iterdir()) == []


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda p: p.write_bytes(b"<html>"), NotAModel),
        (lambda p: p.write_bytes(model_bytes()[:-100]), ModelFileDamaged),
        (lambda p: write_mmproj(p), NotAModel),
        (lambda p: p.mkdir(), ModelNotFound),
        (lambda p: None, ModelNotFound),
    ],
)
def test_what_is_no_model_is_refused(
    desk: Desk, tmp_path: Path, make: Callable[[Path], object], error: type[EngineError]
) -> None:
    source = tmp_path / "x.gguf"
    make(source)
    for copy in (True, False):
        with pytest.raises(error) as caught:
            desk.store.import_file(source, copy=copy).result(WAIT_S)
        assert caught.value.hint
    assert list(desk.paths.models.iterdir()) == []


def test_an_incomplete_set_is_refused(desk: Desk, tmp_path: Path) -> None:
    parts = write_set(tmp_path / "down", "big")
    parts[2].unlink()
    with pytest.raises(ModelNotFound, match="1 of 3 parts"):
        desk.store.import_file(parts[0]).result(WAIT_S)


def test_no_room(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage:
        free = 1000

    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage)
    with pytest.raises(DiskFull) as caught:
        desk.store.import_file(write_model(tmp_path / "x.gguf")).result(WAIT_S)
    assert caught.value.details["free_bytes"] == 1000
    assert list(desk.paths.models.iterdir()) == []


def test_a_disk_that_fills_up_leaves_nothing(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(_: int) -> None:
        raise OSError(28, "No space left on device")

    source = write_model(tmp_path / "x.gguf")
    monkeypatch.setattr("engine.models.hashing.os.fsync", fsync)
    with pytest.raises(DiskFull):
        desk.store.import_file(source).result(WAIT_S)
    monkeypatch.undo()
    assert list(desk.paths.models.iterdir()) == []


def test_a_copy_can_be_stopped(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_model(tmp_path / "x.gguf")
    begun, go_on = threading.Event(), threading.Event()
    real = hashing.Meter.add

    def add(self: hashing.Meter, n: int) -> None:
        begun.set()
        go_on.wait(WAIT_S)
        real(self, n)

    monkeypatch.setattr(hashing.Meter, "add", add)
    future = desk.store.import_file(source)
    assert begun.wait(WAIT_S)
    desk.store.cancel(source)
    go_on.set()
    with pytest.raises(Cancelled):
        future.result(WAIT_S)
    assert list(desk.paths.models.iterdir()) == []


def test_leftovers_of_a_crash_are_removed(desk: Desk) -> None:
    gone = desk.paths.models / "a" / ".m.gguf.999999999.inglenook-copy"
    gone.parent.mkdir()
    gone.write_bytes(b"x")
    ours = desk.paths.models / f".m.gguf.{os.getpid()}.inglenook-copy"
    ours.write_bytes(b"x")
    desk.store.start().result(WAIT_S)
    assert not gone.exists()
    assert ours.exists()


def test_a_file_that_comes_meanwhile_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_model(tmp_path / "x.gguf")
    target = tmp_path / "models" / "x.gguf"
    real = import_file.copy_hashed

    def copy(path: Path, part: Path, meter: hashing.Meter) -> str:
        target.write_bytes(b"came first")
        return real(path, part, meter)

    monkeypatch.setattr(import_file, "copy_hashed", copy)
    with pytest.raises(StorageFailed):
        import_file.copy_in(import_file.sets_at(source), source, target.parent, hashing.Meter(0))
    assert target.read_bytes() == b"came first"
    assert os.listdir(target.parent) == ["x.gguf"]


# ------------------------------------------------------------------ verify


def test_checking_a_file(desk: Desk) -> None:
    path = write_model(desk.paths.models / "a.gguf")
    row = desk.store.verify(str(path)).result(WAIT_S)
    assert (row.sha256, row.hash_state) == (sha256(path.read_bytes()), "unverified")
    progress = desk.kinds(events.VerifyProgress)[-1]
    assert (progress.path, progress.bytes_done, progress.stage) == (str(path), path.stat().st_size, "hash")
    status = path.stat()
    data = path.read_bytes()
    path.write_bytes(data[:-1] + b"!")  # a failing disk: other bytes, same size and time
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    row = desk.store.verify("a").result(WAIT_S)
    assert row.hash_state == "wrong"
    assert row.problem is not None and row.problem.code == "checksum_mismatch"
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert desk.store.verify("a").result(WAIT_S).hash_state == "verified"


def test_checking_against_ollamas_digest(desk: Desk) -> None:
    from library_help import write_ollama

    blob = write_ollama(desk.user / ".ollama" / "models", "library/a:1", model_bytes())
    assert desk.store.verify("a:1").result(WAIT_S).hash_state == "verified"
    blob.write_bytes(model_bytes(salt=5))
    assert desk.store.verify("a:1").result(WAIT_S).hash_state == "wrong"


def test_checking_can_be_stopped(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_model(desk.paths.models / "a.gguf")
    real = hashing.Meter.add

    def add(self: hashing.Meter, n: int) -> None:
        desk.store.cancel(str(path))
        real(self, n)

    monkeypatch.setattr(hashing.Meter, "add", add)
    with pytest.raises(Cancelled):
        desk.store.verify(str(path)).result(WAIT_S)
    (row,) = desk.list()
    assert row.sha256 is None


# ------------------------------------------------------------------ trash


def test_deleting_and_taking_back(desk: Desk) -> None:
    parts = write_set(desk.paths.models / "big", "big")
    image = write_mmproj(desk.paths.models / "big" / "mmproj-big.gguf", width=0)
    before = {path: path.read_bytes() for path in (*parts, image)}
    gone = desk.store.trash(str(parts[0])).result(WAIT_S)
    assert gone.name == "big"
    assert desk.list() == []
    assert not any(path.exists() for path in before)
    assert desk.sent == []
    back = desk.store.restore(str(parts[0])).result(WAIT_S)
    assert back.complete and back.mmproj == (str(image),)
    assert {path: path.read_bytes() for path in before} == before
    assert not (desk.paths.models / trash.FOLDER).exists()
    with pytest.raises(ModelNotFound):
        desk.store.restore(str(desk.paths.models / "never.gguf")).result(WAIT_S)


def test_at_the_end_it_goes_to_the_systems_trash(desk: Desk) -> None:
    path = write_model(desk.paths.models / "a.gguf")
    content = path.read_bytes()
    desk.store.trash("a").result(WAIT_S)
    desk.store.stop()
    assert desk.sent == [(path, content)]  # under its own place, so that the system can put it back
    assert list(desk.paths.models.iterdir()) == []


def test_after_a_crash_the_next_start_goes_on(desk: Desk, home: Path, tmp_path: Path) -> None:
    path = write_model(desk.paths.models / "a.gguf")
    desk.store.trash("a").result(WAIT_S)
    other = write_model(path, "Another", salt=1)  # the place is taken again
    later = Desk(home, tmp_path)
    later.store.start().result(WAIT_S)
    later.store.stop()
    assert [content for _, content in later.sent] == [model_bytes()]
    assert other.read_bytes() == model_bytes("Another", salt=1)
    assert not (desk.paths.models / trash.FOLDER).exists()


def test_a_system_without_trash_loses_nothing(desk: Desk) -> None:
    write_model(desk.paths.models / "a.gguf")
    desk.store.trash("a").result(WAIT_S)
    desk.refuse = True
    desk.store.empty_trash().result(WAIT_S)
    (notice,) = desk.kinds(events.Notice)
    assert "no trash here" in notice.text and notice.hint
    (kept,) = (desk.paths.models / trash.FOLDER).glob("*/a.gguf")
    assert kept.read_bytes() == model_bytes()


def test_taking_back_never_replaces(desk: Desk) -> None:
    path = write_model(desk.paths.models / "a.gguf")
    desk.store.trash("a").result(WAIT_S)
    write_model(path, "New", salt=3)
    with pytest.raises(StorageFailed, match="another file"):
        desk.store.restore(str(path)).result(WAIT_S)
    assert path.read_bytes() == model_bytes("New", salt=3)


def test_a_hostile_list_in_the_trash_folder_moves_nothing(desk: Desk, tmp_path: Path) -> None:
    folder = desk.paths.models / trash.FOLDER / "x"
    folder.mkdir(parents=True)
    (folder / "bait").write_text("bait")
    outside, victim = tmp_path / "outside", tmp_path / "victim"
    victim.write_text("mine")
    import msgspec

    listed = trash.Trashed(str(folder), (str(outside), str(tmp_path / "o2")), ("bait", "../../../victim"))
    (folder / "trash.json").write_bytes(msgspec.json.encode(listed))
    desk.store.start().result(WAIT_S)
    assert desk.sent == [(folder / "bait", b"bait")]
    assert victim.read_text() == "mine"
    assert not outside.exists()


def test_the_loaded_model_is_not_deleted(desk: Desk) -> None:
    path = write_model(desk.paths.models / "a.gguf")
    desk.loaded = str(path)
    with pytest.raises(Busy):
        desk.store.trash("a").result(WAIT_S)
    assert path.exists()


def test_files_of_other_programs_are_never_deleted(desk: Desk) -> None:
    path = write_model(desk.user / ".lmstudio" / "models" / "m" / "m" / "a.gguf")
    with pytest.raises(InvalidRequest, match="LM Studio"):
        desk.store.trash(str(path)).result(WAIT_S)
    desk.settings.extra_folders = [str(path.parent)]
    with pytest.raises(InvalidRequest, match="LM Studio"):
        desk.store.trash(str(path)).result(WAIT_S)
    assert path.exists()


def test_a_file_used_where_it_is_only_leaves_the_list(desk: Desk, tmp_path: Path) -> None:
    path = write_model(tmp_path / "mine" / "a.gguf")
    desk.store.import_file(path, copy=False).result(WAIT_S)
    desk.settings.recent_models = [str(path)]
    desk.store.trash(str(path)).result(WAIT_S)
    assert desk.list() == []
    assert path.exists()
    assert desk.store.restore(str(path)).result(WAIT_S).path == str(path)


# ------------------------------------------------------------------ duplicates, names, use


def test_duplicates(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = write_model(desk.paths.models / "a.gguf")
    two = write_model(desk.user / ".lmstudio" / "models" / "b" / "b" / "b.gguf")
    os.link(one, desk.paths.models / "link.gguf")  # the same file, no duplicate
    write_model(desk.paths.models / "other.gguf", salt=9)  # the same size
    write_model(desk.paths.models / "size.gguf", "Another size" * 9)
    write_set(desk.paths.models / "x", "big")
    write_set(desk.paths.models / "y", "big")
    hashed: list[str] = []
    real = hashing.sha256_of
    monkeypatch.setattr(
        "engine.models.library_work.sha256_of", lambda path, meter: hashed.append(path.name) or real(path, meter)
    )
    groups = desk.store.duplicates().result(WAIT_S)
    assert sorted(sorted(Path(row.path).name for row in group) for group in groups) == [
        ["a.gguf", "b.gguf"],
        ["big-00001-of-00003.gguf"] * 2,
    ]
    assert "other.gguf" not in hashed and "size.gguf" not in hashed
    assert {row.sha256 for group in groups for row in group if str(row.path) in (str(one), str(two))} == {
        sha256(model_bytes())
    }
    hashed.clear()
    assert len(desk.store.duplicates().result(WAIT_S)) == 2
    assert hashed == []


def test_finding_by_name(desk: Desk) -> None:
    write_model(desk.paths.models / "x" / "Model-Q4_K_M.gguf", "The Model")
    write_model(desk.paths.models / "y" / "twin.gguf", salt=1)
    write_model(desk.paths.models / "z" / "twin.gguf", salt=2)
    for name in ("model-q4_k_m", "Model-Q4_K_M.gguf", "the model", str(desk.paths.models / "x" / "Model-Q4_K_M.gguf")):
        assert desk.store.find(name).result(WAIT_S).name == "The Model"
    with pytest.raises(InvalidRequest) as caught:
        desk.store.find("twin").result(WAIT_S)
    assert len(caught.value.details["paths"]) == 2
    with pytest.raises(ModelNotFound):
        desk.store.find("absent").result(WAIT_S)


def test_the_last_use_is_noted(desk: Desk) -> None:
    path = write_model(desk.paths.models / "a.gguf")
    desk.list()
    desk.store.note_use(str(path))
    (row,) = desk.list()
    assert row.last_used_s == pytest.approx(time.time(), abs=60)
    assert desk.kinds(events.LibraryChanged)


# ------------------------------------------------------------------ folders, changes


def test_the_folder_can_be_moved(desk: Desk, tmp_path: Path) -> None:
    old = write_model(desk.paths.models / "old.gguf")
    target = tmp_path / "big disk" / "models"
    desk.store.use_folder(target).result(WAIT_S)
    assert desk.store.folder == target
    assert [row.path for row in desk.list()] == [str(old)]
    (row,) = desk.store.import_file(write_model(tmp_path / "new.gguf", salt=1)).result(WAIT_S)
    assert row.path == str(target / "new.gguf")
    assert Settings(desk.paths.settings_file).models_folder == str(target)
    desk.store.use_folder(desk.paths.models).result(WAIT_S)
    assert (desk.settings.models_folder, desk.settings.extra_folders) == ("", [str(target)])
    assert len(desk.list()) == 2


def test_a_folder_that_cannot_be_used(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageFailed):
        desk.store.use_folder(tmp_path / "file" / "x").result(WAIT_S)
    assert desk.store.folder == desk.paths.models


def test_changes_on_disk_are_noticed_while_someone_watches(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.library_desk.POLL_S", 0.05)
    desk.list()

    def changed() -> bool:
        return bool(desk.kinds(events.LibraryChanged))

    end = desk.store.watch()
    path = write_model(desk.paths.models / "new" / "a.gguf")
    eventually(changed)
    desk.events.clear()
    path.write_bytes(model_bytes()[:-50])  # a file that changes in place
    eventually(changed)
    eventually(lambda: any(not row.complete for row in desk.list()))
    desk.events.clear()
    path.unlink()
    eventually(changed)
    end()
    end()
    eventually(lambda: not [t for t in threading.enumerate() if t.name == "library-watch"])
    desk.events.clear()
    write_model(path)
    time.sleep(0.3)
    assert not changed()
    assert len(desk.list()) == 1  # asked for, it is there


def test_an_unchanged_library_is_not_scanned_again(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(50):
        path = write_model(desk.paths.models / f"{number}" / "m.gguf", salt=number)
        for old in (path, path.parent):
            os.utime(old, ns=(1, 1))
    os.utime(desk.paths.models, ns=(1, 1))
    first = desk.list()
    monkeypatch.setattr("engine.models.library.scan", lambda *_: pytest.fail("scanned"))
    begin = time.monotonic()
    assert desk.list() == first
    assert time.monotonic() - begin < 1


def test_a_change_within_a_tick_of_the_clock_is_seen(desk: Desk) -> None:
    path = write_model(desk.paths.models / "a.gguf")
    at = path.parent.stat().st_mtime_ns
    assert len(desk.list()) == 1
    write_model(desk.paths.models / "b.gguf", salt=1)
    os.utime(path.parent, ns=(at, at))
    assert len(desk.list()) == 2


def test_a_download_cut_short_still_knows_where_it_came_from(desk: Desk) -> None:
    path = write_model(desk.paths.models / "a.gguf")
    size = path.stat().st_size
    desk.store.note_downloaded({str(path): FileRecord(size, 0, "", "1" * 64, "owner/name", "c" * 40, own=True)})
    path.write_bytes(path.read_bytes()[:-50])
    (row,) = desk.list()
    assert (row.complete, row.repo, row.revision) == (False, "owner/name", "c" * 40)


def test_a_store_that_is_never_used_touches_no_disk(home: Path, tmp_path: Path) -> None:
    desk = Desk(home, tmp_path)
    before = sorted(home.rglob("*"))
    desk.store.stop()
    desk.store.stop()
    assert sorted(home.rglob("*")) == before
