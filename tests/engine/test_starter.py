"""Finding the starter, turning names into paths, listing the models folder."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from gguf_maker import STR, U16, small_model

from engine import paths as places
from engine.errors import InvalidRequest, ModelNotFound
from engine.models import library, starter


@pytest.fixture
def paths(home: Path) -> places.Paths:
    return places.resolve(home).ensure()


def test_the_starter_is_the_pinned_file(starter_model: Path) -> None:
    assert starter_model.stat().st_size == starter.SIZE_BYTES
    digest = hashlib.sha256()
    with starter_model.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    assert digest.hexdigest() == starter.SHA256


def test_the_variable_wins_over_the_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = small_model().write(tmp_path / "own.gguf")
    monkeypatch.setenv("INGLENOOK_STARTER", str(own))
    assert starter.find() == own
    assert starter.resolve_model("starter") == own
    assert starter.is_starter(tmp_path / "." / "own.gguf")


def test_without_any_starter(paths: places.Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.prefix", str(tmp_path / "nowhere"))
    monkeypatch.setenv("INGLENOOK_STARTER", str(tmp_path / "absent.gguf"))
    assert starter.find(paths.models) is None
    with pytest.raises(ModelNotFound) as caught:
        starter.resolve_model("starter", paths)
    assert caught.value.hint
    assert not starter.is_starter(tmp_path)
    placed = small_model().write(paths.models / starter.FILE_NAME)
    assert starter.resolve_model("starter", paths) == placed
    placed.unlink()
    shared = tmp_path / "nowhere" / "share" / "inglenook" / "starter"
    shared.mkdir(parents=True)
    assert starter.find() is None
    inside = small_model().write(shared / "any name.gguf")
    assert starter.find() == inside
    monkeypatch.setattr("sys._MEIPASS", str(tmp_path / "bundle"), raising=False)
    assert starter.find() == inside


@pytest.mark.parametrize("name", ["my model.gguf", "my model", "MY MODEL.GGUF"])
def test_a_name_in_the_models_folder(paths: places.Paths, name: str) -> None:
    file = small_model().write(paths.models / "my model.gguf")
    assert starter.resolve_model(name, paths) == file


def test_a_name_used_before(paths: places.Paths, tmp_path: Path) -> None:
    file = small_model().write(tmp_path / "old.gguf")
    assert starter.resolve_model("old", paths, [str(tmp_path / "gone.gguf"), str(file)]) == file


def test_a_path_wins_and_may_be_odd(paths: places.Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "山 月 Абв ü"
    folder.mkdir()
    file = small_model().write(folder / "模型 q4.gguf")
    assert starter.resolve_model(file, paths) == file
    monkeypatch.chdir(folder)
    assert starter.resolve_model("模型 q4.gguf", paths).samefile(file)
    assert starter.resolve_model(str(folder)) == folder  # named as what it is later
    monkeypatch.setenv("HOME", str(folder))
    if os.name == "posix":
        assert starter.resolve_model("~/模型 q4.gguf", paths) == file


def test_a_later_shard_means_its_first(tmp_path: Path) -> None:
    for number in range(2):
        maker = small_model().add("split.no", U16, number).add("split.count", U16, 2)
        maker.write(tmp_path / f"big-{number + 1:05d}-of-00002.gguf")
    first, second = sorted(tmp_path.glob("big-*"))
    assert starter.resolve_model(second) == first


@pytest.mark.parametrize("name", ["absent.gguf", "no/such/model.gguf", "../models/x.gguf", "~nobody-of-that-name/x"])
def test_an_unknown_name(paths: places.Paths, name: str) -> None:
    with pytest.raises(ModelNotFound) as caught:
        starter.resolve_model(name, paths)
    assert "starter" in caught.value.hint


@pytest.mark.parametrize("name", ["x" * 5000, "x" * 300 + ".gguf", "a/" * 4000, "link.gguf"])
def test_a_name_that_the_system_refuses(paths: places.Paths, tmp_path: Path, name: str) -> None:
    """Too long, or a link to itself: an ordinary error with the system's own words, wherever the name stands."""
    (tmp_path / "link.gguf").symlink_to(tmp_path / "link.gguf")
    with pytest.raises(ModelNotFound, match=r"long|levels"):
        starter.resolve_model(tmp_path / name, paths, recent=[name])


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_names_that_no_file_can_have(paths: places.Paths, name: str) -> None:
    with pytest.raises(InvalidRequest):
        starter.resolve_model(name, paths)


def test_list_of_models(paths: places.Paths, tmp_path: Path, starter_model: Path) -> None:
    good = small_model().add("general.name", STR, "Good").write(paths.models / "b.gguf")
    deep = paths.models / "folder" / "deep.gguf"
    deep.parent.mkdir()
    small_model().write(deep)
    (paths.models / "page.gguf").write_bytes(b"<!doctype html>")
    (paths.models / "empty.gguf").touch()
    cut = small_model().write(paths.models / "cut.gguf")
    os.truncate(cut, cut.stat().st_size - 1)
    (paths.models / "folder.gguf").mkdir()
    for number in range(2):
        shard = small_model().add("split.no", U16, number).add("split.count", U16, 2)
        shard.write(paths.models / f"set-{number + 1:05d}-of-00002.gguf")
    small_model().write(paths.models / "alone-00001-of-00003.gguf")
    elsewhere = small_model().write(tmp_path / "elsewhere.gguf")
    recent = [str(elsewhere), str(good), str(tmp_path / "gone.gguf"), "", "a\0b"]
    found = library.list_models(paths, recent)
    assert [Path(model.path).name for model in found] == [
        starter_model.name,
        "alone-00001-of-00003.gguf",
        "b.gguf",
        "deep.gguf",
        "set-00001-of-00002.gguf",
        "elsewhere.gguf",
    ]
    assert found[0].name == starter.NAME
    assert found[2].name == "Good"
    assert found[4].n_files == 2


def test_list_without_a_models_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    monkeypatch.delenv("INGLENOOK_STARTER", raising=False)
    assert library.list_models(places.resolve(tmp_path / "none")) == []
