"""A profile that a newer Inglenook has written: nothing is lost, misread or overwritten, and it is said in words."""

from __future__ import annotations

import json
import re
import sqlite3
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine import bench_history, events, kv_files, trace
from engine.bench_history import BenchHistory
from engine.chat import export
from engine.errors import DatabaseTooNew, InvalidRequest, StorageFailed
from engine.fit import measured
from engine.fit.measured import Measurements
from engine.models import download_state, library_index, library_records, trash
from engine.models.library_index import FileStamp, LibraryIndex
from engine.models.library_records import FileRecord, LibraryRecords
from engine.newer import is_newer
from engine.paths import Paths, resolve
from engine.service import Engine
from engine.settings import SCHEMA as SETTINGS
from engine.settings import Settings
from engine.store import migrations
from engine.store.chats import ChatStore
from engine.trace import Trace

ROOT = Path(__file__).resolve().parents[2]
#: every constant of the sources that numbers a form on disk, and the test below that holds what a newer one does
FORMS: dict[str, Callable[..., None] | str] = {}


@pytest.fixture
def paths(home: Path) -> Paths:
    return resolve(home).ensure()


def newer(path: Path, known: int, **content: Any) -> bytes:
    """Write a JSON file of the form after the known one, as it may look then; gives its bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schema": known + 1, "invented": {"later": [1, 2, 3]}, **content}))
    return path.read_bytes()


def started(paths: Paths) -> tuple[Engine, list[events.Event]]:
    engine, seen = Engine(paths), []
    engine.subscribe(seen.append)
    engine.start().result(30)
    return engine, seen


def notices(seen: list[events.Event]) -> list[str]:
    return [event.text for event in seen if isinstance(event, events.Notice)]


# ------------------------------------------------------------------ what the user is told


def test_everything_newer_is_told_in_one_notice_and_left_alone(paths: Paths) -> None:
    kept = {
        paths.data / "fit.json": newer(paths.data / "fit.json", measured.SCHEMA),
        paths.data / "bench.json": newer(paths.data / "bench.json", bench_history.SCHEMA, results={"by": "model"}),
        paths.data / "library.json": newer(paths.data / "library.json", library_records.SCHEMA, files=[1]),
    }
    paths.settings_file.write_text(json.dumps({"schema_version": SETTINGS + 1, "theme": "dark", "engine": "later"}))
    kept[paths.settings_file] = paths.settings_file.read_bytes()
    engine, seen = started(paths)
    assert engine.settings.theme == "dark"  # what is understood is used
    engine.change_settings(theme="light").result(10)
    engine.measurements.add_speed("CPU", "Q4_K", 10, 12)
    engine.library.note_use("/m/x.gguf")
    engine.library.list().result(30)
    engine.stop()
    (text,) = notices(seen)
    assert "settings.json were written by a newer Inglenook" in text
    words = "what was measured of this computer, the measurements of models and where models came from"
    assert words in text
    assert "update Inglenook" in text
    assert {path: path.read_bytes() for path in kept} == kept


def test_a_profile_of_this_version_is_told_nothing(paths: Paths) -> None:
    Measurements(paths.data / "fit.json").add_speed("CPU", "Q4_K", 10, 12)
    LibraryRecords(paths.data / "library.json").remember_use("/m/x.gguf")
    (paths.data / "bench.json").write_text("{ damaged")
    engine, seen = started(paths)
    engine.stop()
    assert notices(seen) == []


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b'{"schema": "9"}', b'{"schema": 1}', b'{"other": 9}', b"\xff", b"[" * 9999]
)
def test_what_is_no_newer_file(raw: bytes) -> None:
    assert not is_newer(raw, 1)
    assert is_newer(b'{"schema": 2, "x": 1}', 1)


# ------------------------------------------------------------------ file by file


def test_the_database_is_refused(paths: Paths) -> None:
    store = ChatStore(paths.database)
    store.create_chat("kept")
    store.close()
    with sqlite3.connect(paths.database) as other:
        other.execute("ALTER TABLE chats ADD COLUMN later TEXT")
        other.execute(f"PRAGMA user_version = {migrations.SCHEMA + 1}")
    other.close()
    before = paths.database.read_bytes()
    engine = Engine(paths)
    with pytest.raises(DatabaseTooNew) as caught:
        engine.start().result(30)
    assert "newer Inglenook" in caught.value.message and "Update Inglenook" in caught.value.hint
    with pytest.raises(DatabaseTooNew):
        engine.chats.list().result(30)
    engine.stop()
    assert paths.database.read_bytes() == before


def test_measurements_of_the_computer(tmp_path: Path) -> None:
    path = tmp_path / "fit.json"
    before = newer(path, measured.SCHEMA, speeds="in another form")
    found = Measurements(path)
    found.add_speed("CPU", "Q4_K", 10, 12)
    found.add_memory("CPU", "m", 10, 12)
    assert len(found.memory()) == 1  # for this run
    assert path.read_bytes() == before


def test_measurements_of_models(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    before = newer(path, bench_history.SCHEMA)
    history = BenchHistory(path)
    assert history.results() == []
    with pytest.raises(StorageFailed, match="newer Inglenook") as caught:
        history.add(bench_result())
    assert "Update Inglenook" in caught.value.hint
    assert path.read_bytes() == before
    path.unlink()
    history.add(bench_result())
    assert len(history.results()) == 1


def bench_result() -> Any:
    plain = {"str": "x", "int": 1, "float": 1.0, "bool": False}
    values = {
        field.name: plain.get(getattr(field.type, "__name__", ""), ())
        for field in msgspec.structs.fields(bench_history.BenchResult)
        if field.required
    }
    return bench_history.BenchResult(**values)


@pytest.mark.parametrize("files", [{"/m/x.gguf": {"size_bytes": 5, "sha256": "ab", "later": 1}}, ["another form"]])
def test_records_of_models(tmp_path: Path, files: Any) -> None:
    path = tmp_path / "data" / "library.json"
    before = newer(path, library_records.SCHEMA, files=files)
    records = LibraryRecords(path)
    found = records.find(FileStamp("/m/x.gguf", 5, 0))
    assert (found is not None) == isinstance(files, dict)
    records.put("/m/y.gguf", FileRecord(7))
    records.remember_use("/m/y.gguf")
    records.refresh()
    assert records.origin("/m/y.gguf") is not None  # until the program ends
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["library.json"]


def test_the_index_of_models_is_made_anew(tmp_path: Path) -> None:
    """It is a cache: what a newer version kept in it costs it one look at the files."""
    path = tmp_path / "library-index.json"
    newer(path, library_index.SCHEMA, entries="in another form")
    model = tmp_path / "x.gguf"
    model.write_bytes(b"GGUF")
    index = LibraryIndex(path)
    assert index.look([library_index.stamp(str(model))]).kind == "problem"
    index.save()
    assert LibraryIndex(path).look([library_index.stamp(str(model))]).kind == "problem"


def test_a_download(paths: Paths) -> None:
    folder = paths.models / download_state.STAGING / "d1"
    folder.mkdir(parents=True)
    state = folder / download_state.STATE_FILE
    state.write_text(json.dumps({"version": download_state.VERSION + 1, "id": "d1", "parts": {"a": 1}}))
    (folder / "0000.part").write_bytes(b"half a model")
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    engine, _ = started(paths)
    (found,) = engine.library.downloads.list().result(10)
    assert found.error is not None
    assert found.error.message == "This download was begun by a newer Inglenook"
    assert "Update Inglenook" in found.error.hint
    engine.stop()
    assert {name: (folder / name).read_bytes() for name in before} == before
    state.write_text("{ damaged")
    assert "cannot be read" in download_state.why_unusable(folder).message


def test_deleted_models(tmp_path: Path) -> None:
    """A list in a later form is not understood: what lies there stays."""
    folder = tmp_path / trash.FOLDER / "0011223344556677"
    folder.mkdir(parents=True)
    (folder / "x.gguf").write_bytes(b"a model")
    (folder / "trash.json").write_text(json.dumps({"schema": 2, "files": [["x.gguf", "/m/x.gguf"]]}))
    assert trash.waiting([tmp_path]) == []
    assert (folder / "x.gguf").read_bytes() == b"a model"


def test_a_trace() -> None:
    encoded = msgspec.msgpack.encode((trace.FORMAT + 1, {"later": 1}))
    with pytest.raises(ValueError, match="trace"):
        Trace.unpacked(zlib.compress(encoded))


def test_an_exported_chat() -> None:
    chat = {"id": 1, "title": "", "created_s": 0.0, "updated_s": 0.0}
    later = {"format": export.FORMAT, "version": export.VERSION + 1, "messages": [], "chat": chat, "tree": []}
    with pytest.raises(InvalidRequest, match="newer Inglenook") as caught:
        export.from_json(json.dumps(later))
    assert caught.value.hint == "Update Inglenook."
    later["chat"] = {"moved": "elsewhere"}
    with pytest.raises(InvalidRequest, match="newer Inglenook"):
        export.from_json(json.dumps(later))


def test_the_state_of_a_chat(tmp_path: Path) -> None:
    """A cache: one in a later form is not understood and goes, and the chat is read again."""
    from engine.worker.kv_disk import KvDisk

    path = kv_files.path_of(tmp_path, "chat", "a" * 64)
    notes: list[str] = []
    disk = KvDisk(tmp_path, 1 << 30, "a" * 64, notes.append)
    try:
        assert disk.read("chat").result(10) is None
        path.write_bytes(b"INGLEKV2 in a form of later")
        assert disk.read("chat").result(10) is None
    finally:
        disk.close(5.0)
    assert [note for note in notes if "it was removed" in note]
    assert not path.exists()


def test_settings(tmp_path: Path) -> None:
    path = tmp_path / "config" / "settings.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"schema_version": SETTINGS + 1, "theme": ["by", "hour"], "later": 1}))
    before = path.read_bytes()
    settings = Settings(path)
    settings.theme = "dark"
    assert settings.save() is False
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["settings.json"]


FORMS.update(
    {
        "engine/settings.py SCHEMA": test_settings,
        "engine/store/migrations.py SCHEMA": test_the_database_is_refused,
        "engine/fit/measured.py SCHEMA": test_measurements_of_the_computer,
        "engine/bench_history.py SCHEMA": test_measurements_of_models,
        "engine/models/library_records.py SCHEMA": test_records_of_models,
        "engine/models/library_index.py SCHEMA": test_the_index_of_models_is_made_anew,
        "engine/models/download_state.py VERSION": test_a_download,
        "engine/chat/export.py VERSION": test_an_exported_chat,
        "engine/trace.py FORMAT": test_a_trace,
        "engine/worker/kv_disk.py _FORMAT": test_the_state_of_a_chat,
        "engine/models/catalog.py SCHEMA": "ships with the program",
    }
)


def test_every_numbered_form_is_held_by_a_test_here() -> None:
    found = set()
    for path in sorted([*(ROOT / "engine").rglob("*.py"), *(ROOT / "desktop").rglob("*.py")]):
        for name in re.findall(r"(?m)^(_?(?:SCHEMA|VERSION|FORMAT))(?:: \w+)? = (?:\d|len\()", path.read_text("utf-8")):
            found.add(f"{path.relative_to(ROOT).as_posix()} {name}")
    assert found == set(FORMS)
