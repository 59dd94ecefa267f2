"""The library's list: one row for each complete model, damaged ones with their next step, and quick."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from library_help import by_name, look, model_bytes, sha256, write_mmproj, write_model, write_set

from engine.models import library_walk
from engine.models.library import Places, scan
from engine.models.library_index import LibraryIndex, stamp
from engine.models.library_records import FileRecord, LibraryRecords


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    folder.mkdir()
    return folder


def test_what_a_row_says(tmp_path: Path, models: Path) -> None:
    path = write_model(models / "maker" / "tiny.gguf", "Tiny 1B")
    (row,) = look(tmp_path, models).models
    assert (row.path, row.files) == (str(path), (str(path),))
    assert (row.name, row.architecture, row.quantization, row.licence) == ("Tiny 1B", "llama", "Q4_K_M", "mit")
    assert (row.n_params, row.n_ctx_train, row.size_bytes) == (96, 4096, path.stat().st_size)
    assert (row.complete, row.has_template, row.problem) == (True, True, None)
    assert (row.sha256, row.hash_state, row.source, row.last_used_s) == (None, "unverified", "inglenook", None)
    assert row.removable


def test_a_split_model_is_one_row(tmp_path: Path, models: Path) -> None:
    parts = write_set(models, "big-Q4_K_M")
    (row,) = look(tmp_path, models).models
    assert row.path == str(parts[0])
    assert row.files == tuple(map(str, parts))
    assert row.size_bytes == sum(part.stat().st_size for part in parts)
    assert row.n_params == 96
    assert row.complete


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_missing_parts_are_named(tmp_path: Path, models: Path, gone: int) -> None:
    parts = write_set(models, "big-Q4_K_M")
    parts[gone].unlink()
    (row,) = look(tmp_path, models).models
    assert row.path == str(parts[0])
    assert not row.complete
    assert row.problem is not None
    assert row.problem.code == "model_not_found"
    assert row.problem.details["missing"] == [parts[gone].name]
    assert row.problem.hint
    assert len(row.files) == 2
    write_set(models, "big-Q4_K_M")
    (row,) = look(tmp_path, models).models
    assert row.complete


DAMAGE = {
    "page.gguf": (b"<!doctype html><html><body>404</body></html>", "not_a_model", "html"),
    "empty.gguf": (b"", "not_a_model", "empty"),
    "zip.gguf": (b"PK\x03\x04" + bytes(60), "not_a_model", "zip"),
    "zeros.gguf": (bytes(5000), "not_a_model", "other"),
    "pointer.gguf": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 4920734272\n",
        "not_a_model",
        "lfs_pointer",
    ),
    "half.gguf": (model_bytes()[:-150], "model_damaged", None),
    "header.gguf": (model_bytes()[:90], "model_damaged", None),
}


def test_damaged_files_are_rows_that_say_what_to_do(tmp_path: Path, models: Path) -> None:
    for name, (data, _, _) in DAMAGE.items():
        (models / name).write_bytes(data)
    rows = by_name(look(tmp_path, models))
    assert set(rows) == set(DAMAGE)
    for name, (data, code, kind) in DAMAGE.items():
        row = rows[name]
        assert not row.complete
        assert row.problem is not None
        assert row.problem.code == code, name
        assert row.problem.hint, name
        assert row.problem.details.get("kind") == kind
        assert row.size_bytes == len(data)
        assert row.name == name.removesuffix(".gguf")
    assert len({row.problem.message for row in rows.values() if row.problem}) == len(DAMAGE)
    assert rows["pointer.gguf"].problem.details["real_size_bytes"] == 4920734272  # type: ignore[union-attr]


def test_a_copy_that_grows_becomes_whole(tmp_path: Path, models: Path) -> None:
    data = model_bytes()
    path = models / "growing.gguf"
    path.write_bytes(data[:-50])
    (row,) = look(tmp_path, models).models
    assert not row.complete
    path.write_bytes(data)
    (row,) = look(tmp_path, models).models
    assert row.complete


def test_what_belongs_to_a_model_hangs_on_it(tmp_path: Path, models: Path) -> None:
    model = write_model(models / "one" / "gemma-3-4b-it-Q4_K_M.gguf")
    other = write_model(models / "one" / "gemma-3-4b-it-Q8_0.gguf", salt=1)
    image = write_mmproj(models / "one" / "mmproj-F16.gguf")
    draft = write_model(models / "one" / "mtp-gemma.gguf", salt=2)
    rows = by_name(look(tmp_path, models))
    assert set(rows) == {model.name, other.name}
    assert rows[model.name].mmproj == rows[other.name].mmproj == (str(image),)
    assert rows[model.name].drafts == (str(draft),)


def test_in_a_folder_of_many_models_names_decide(tmp_path: Path, models: Path) -> None:
    fits = write_model(models / "gemma-3-4b-it-Q4_K_M.gguf")
    write_model(models / "qwen-Q4_K_M.gguf", architecture="qwen2")
    image = write_mmproj(models / "mmproj-gemma-3-4b-it-f16.gguf")
    rows = by_name(look(tmp_path, models))
    assert rows[fits.name].mmproj == (str(image),)
    assert rows["qwen-Q4_K_M.gguf"].mmproj == ()


def test_an_image_part_of_another_width_does_not_fit(tmp_path: Path, models: Path) -> None:
    write_model(models / "gemma-3-4b-it-Q4_K_M.gguf")
    write_mmproj(models / "mmproj-gemma-3-4b-it-f16.gguf", width=128)
    (row,) = look(tmp_path, models).models
    assert row.mmproj == ()


def test_sound_files_that_are_no_models_are_no_rows(tmp_path: Path, models: Path) -> None:
    from gguf_maker import STR, small_model

    small_model().add("general.type", STR, "adapter").write(models / "lora.gguf")
    small_model().add("general.type", STR, "imatrix").write(models / "model.imatrix.gguf")
    small_model(n_tensors=0).write(models / "vocab.gguf")
    write_mmproj(models / "mmproj-alone.gguf")
    (models / "mmproj-half.gguf").write_bytes(b"<html>")
    assert look(tmp_path, models).models == []


def test_files_of_the_same_name_are_two_models(tmp_path: Path, models: Path) -> None:
    one = write_model(models / "a" / "model-Q4_K_M.gguf", "A")
    other = write_model(models / "b" / "model-Q4_K_M.gguf", "B")
    assert [row.path for row in look(tmp_path, models).models] == [str(one), str(other)]


def test_one_file_by_many_ways_is_one_row(tmp_path: Path, models: Path) -> None:
    path = write_model(models / "a.gguf")
    (models / "b.gguf").symlink_to(path)
    os.link(path, models / "c.gguf")
    (models / "loop").symlink_to(models)
    (models / "nowhere.gguf").symlink_to(models / "absent")
    found = look(tmp_path, models, extra=(models,), files=(str(path), str(models / "b.gguf")))
    assert [row.path for row in found.models] == [str(path)]


def test_hidden_and_odd_things_are_left_out(tmp_path: Path, models: Path) -> None:
    write_model(models / ".cache" / "x.gguf")
    write_model(models / ".hidden.gguf")
    (models / "folder.gguf").mkdir()
    os.mkfifo(models / "pipe.gguf")
    (models / "model.gguf.part").write_bytes(model_bytes())
    assert look(tmp_path, models).models == []


def test_names_that_are_no_text(tmp_path: Path, models: Path) -> None:
    path = os.path.join(os.fsencode(models), b"\xff\xfe model.gguf")
    with open(path, "wb") as file:
        file.write(model_bytes(name="A\x1b[31m\nB" + "x" * 999))
    for _ in range(2):
        (row,) = look(tmp_path, models).models
        assert os.fsencode(row.path) == path
        assert row.name.startswith("A [31m Bx")
        assert len(row.name) == 200


def test_an_absent_or_unreadable_folder_is_empty(tmp_path: Path) -> None:
    assert look(tmp_path, tmp_path / "absent").models == []
    (tmp_path / "file").write_text("")
    assert look(tmp_path, tmp_path / "file").models == []


def test_too_many_files_are_said(tmp_path: Path, models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        write_model(models / f"{number}" / "m.gguf", salt=number)
    monkeypatch.setattr(library_walk, "MAX_ENTRIES", 4)
    found = look(tmp_path, models)
    assert len(found.models) < 5
    assert found.notes


def test_five_hundred_files_in_two_hundred_folders(tmp_path: Path, models: Path, slower: Callable[[], float]) -> None:
    for number in range(500):
        write_model(models / f"maker-{number % 20}" / f"model-{number % 200}" / f"m{number}.gguf", salt=number)
    begin = time.monotonic()
    found = look(tmp_path, models)
    cold_s = time.monotonic() - begin
    assert len(found.models) == 500
    begin = time.monotonic()
    again = look(tmp_path, models)
    warm_s = time.monotonic() - begin
    assert again.models == found.models
    print(f"500 files: {cold_s:.2f} s cold, {warm_s:.2f} s warm")
    assert max(cold_s, warm_s) < 2 * slower()


def test_only_what_changed_is_read_again(tmp_path: Path, models: Path) -> None:
    paths = [write_model(models / f"{number}.gguf", salt=number) for number in range(5)]
    index, records = LibraryIndex(tmp_path / "i.json"), LibraryRecords(tmp_path / "r.json")
    scan(Places(models=models), index, records)
    assert index.n_read == 5
    fresh = LibraryIndex(tmp_path / "i.json")
    scan(Places(models=models), fresh, records)
    assert fresh.n_read == 0
    write_model(paths[2], "Other", salt=9)
    paths[3].unlink()
    found = scan(Places(models=models), fresh, records)
    assert fresh.n_read == 1
    assert [row.name for row in found.models] == ["Tiny", "Tiny", "Other", "Tiny"]


@pytest.mark.parametrize("content", [b"", b"{", b'{"schema": 99, "entries": {}}', b'{"schema":1,"entries":{"x":1}}'])
def test_an_unusable_index_is_made_anew(tmp_path: Path, models: Path, content: bytes) -> None:
    write_model(models / "a.gguf")
    (tmp_path / "index.json").write_bytes(content)
    assert len(look(tmp_path, models).models) == 1
    assert len(look(tmp_path, models).models) == 1


# ------------------------------------------------------------------ records


def test_hashes_and_their_origin(tmp_path: Path, models: Path) -> None:
    path = write_model(models / "a.gguf")
    digest = sha256(path.read_bytes())
    records = LibraryRecords(tmp_path / "records.json")
    at = stamp(str(path))

    def row() -> tuple[str | None, str, str]:
        (found,) = look(tmp_path, models).models
        return found.sha256, found.hash_state, found.repo

    records.hashed(at, digest)
    assert row() == (digest, "unverified", "")  # nothing to compare with
    records.put(str(path), FileRecord(at.size_bytes, at.mtime_ns, digest, digest, "owner/name", "main"))
    assert row() == (digest, "verified", "owner/name")
    records.put(str(path), FileRecord(at.size_bytes, at.mtime_ns, digest, "0" * 64, "owner/name"))
    assert row() == (digest, "wrong", "owner/name")
    (found,) = look(tmp_path, models).models
    assert found.problem is not None and found.problem.code == "checksum_mismatch" and found.problem.hint
    os.utime(path, ns=(1, 1))  # touched: it has to be hashed again
    assert row() == (None, "unverified", "owner/name")
    path.write_bytes(model_bytes("Another model of another size, which a longer name makes sure of"))
    assert row() == (None, "unverified", "")


def test_records_follow_a_folder_that_was_moved(tmp_path: Path, models: Path) -> None:
    path = write_model(models / "a.gguf")
    at = stamp(str(path))
    LibraryRecords(tmp_path / "records.json").put(
        str(path), FileRecord(at.size_bytes, at.mtime_ns, "1" * 64, "1" * 64, "owner/name")
    )
    moved = models.rename(tmp_path / "elsewhere")
    (found,) = look(tmp_path, moved).models
    assert (found.hash_state, found.repo) == ("verified", "owner/name")


def test_same_name_and_size_from_two_repositories_stay_apart(tmp_path: Path, models: Path) -> None:
    records = LibraryRecords(tmp_path / "records.json")
    for number, folder in enumerate("ab"):
        path = write_model(models / folder / "m.gguf", salt=number)
        at = stamp(str(path))
        digest = sha256(path.read_bytes())
        records.put(str(path), FileRecord(at.size_bytes, at.mtime_ns, digest, digest, f"{folder}/m"))
    moved = write_model(models / "c" / "m.gguf", salt=1)
    found = {row.path: row for row in look(tmp_path, models).models}
    assert [found[str(models / f / "m.gguf")].repo for f in "ab"] == ["a/m", "b/m"]
    assert found[str(moved)].repo == ""


def test_two_writers_keep_each_others_records(tmp_path: Path) -> None:
    one, other = LibraryRecords(tmp_path / "r.json"), LibraryRecords(tmp_path / "r.json")
    one.put("/a", FileRecord(1))
    other.put("/b", FileRecord(2))
    one.remember_use("/a")
    other.add_imported(["/c"])
    fresh = LibraryRecords(tmp_path / "r.json")
    assert fresh.find(stamp_of("/a", 1)) and fresh.find(stamp_of("/b", 2))
    assert fresh.imported == ["/c"]
    assert fresh.last_used_s("/a") == pytest.approx(time.time(), abs=60)


def stamp_of(path: str, size: int):  # type: ignore[no-untyped-def]
    from engine.models.library_index import FileStamp

    return FileStamp(path, size, 0)


def test_damaged_records_are_set_aside(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text("{")
    records = LibraryRecords(tmp_path / "r.json")
    records.put("/a", FileRecord(1))
    assert len(list(tmp_path.glob("r.json.damaged-*"))) == 1
    assert LibraryRecords(tmp_path / "r.json").find(stamp_of("/a", 1))
