"""Folders of a profile: any name the system accepts, private, and known errors where they cannot be made."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from engine import paths
from engine.errors import DiskFull, StorageFailed

ODD_NAMES = ["山 月 Абв ü", "100% #1 & 'so'", "a\nb", "trailing.", "e\u0301", "😀", "-rf", "~", "$HOME", "a" * 200]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_any_home_name_works(tmp_path: Path, name: str) -> None:
    home = tmp_path / name
    made = paths.resolve(home).ensure()
    for folder in (made.data, made.config, made.cache, made.logs, made.models):
        assert folder.is_dir()
        assert folder.is_relative_to(home)
    paths.atomic_write(made.settings_file, b"content")
    assert made.settings_file.read_bytes() == b"content"
    assert os.listdir(made.config) == ["settings.json"], "no temporary file may be left"


@pytest.mark.skipif(os.name != "posix", reason="names that are no text exist on POSIX only")
def test_a_home_whose_name_is_no_text(tmp_path: Path) -> None:
    made = paths.resolve(Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe"))).ensure()
    paths.atomic_write(made.settings_file, b"x")
    assert paths.shown(made.home).endswith("\ufffd\ufffd")
    paths.shown(made.home).encode()


def test_an_argument_wins_over_the_variable_and_that_over_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INGLENOOK_HOME", str(tmp_path / "variable"))
    assert paths.resolve().database == tmp_path / "variable" / "data" / "chats.db"
    assert paths.resolve(tmp_path / "given").home == tmp_path / "given"
    monkeypatch.setenv("INGLENOOK_HOME", "")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "xdg"))
    own = paths.resolve()
    assert own.data.name == "inglenook"
    if os.name == "posix" and os.uname().sysname == "Linux":
        assert own.data == tmp_path / "xdg" / "inglenook"
    assert own.lock_file.parent == own.data


def test_a_user_without_a_home_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service account in a container: neither HOME nor an entry for its number."""

    def none(*words: object, **more: object) -> Path:
        raise RuntimeError("could not determine the home directory")

    monkeypatch.delenv("INGLENOOK_HOME")
    monkeypatch.setattr("platformdirs.user_data_path", none)
    with pytest.raises(StorageFailed, match="no home folder") as caught:
        paths.resolve()
    assert "INGLENOOK_HOME" in caught.value.hint
    assert paths.resolve(tmp_path).home == tmp_path


def test_a_relative_home_does_not_move_with_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INGLENOOK_HOME", "here")
    found = paths.resolve()
    monkeypatch.chdir("/")
    assert found.home == tmp_path / "here"


@pytest.mark.skipif(os.name != "posix", reason="POSIX permissions")
def test_new_folders_are_private_and_old_ones_are_left_alone(tmp_path: Path) -> None:
    old = tmp_path / "shared"
    old.mkdir()
    old.chmod(0o755)
    made = paths.resolve(old / "profile").ensure()
    assert stat.S_IMODE(made.data.stat().st_mode) == 0o700
    assert stat.S_IMODE(made.home.stat().st_mode) == 0o700
    assert stat.S_IMODE(old.stat().st_mode) == 0o755
    paths.atomic_write(made.settings_file, b"")
    assert stat.S_IMODE(made.settings_file.stat().st_mode) == 0o600
    made.ensure()


def test_a_file_in_the_place_of_a_folder_is_a_known_error(tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("")
    for home in (blocked, blocked / "below"):
        with pytest.raises(StorageFailed) as caught:
            paths.resolve(home).ensure()
        assert str(blocked) in caught.value.message
        assert caught.value.hint


def test_a_failed_write_leaves_the_old_content_and_no_rubbish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "file"
    paths.atomic_write(target, b"old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskFull):
        paths.atomic_write(target, b"new")
    assert target.read_bytes() == b"old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "home"]


@pytest.mark.skipif(os.name != "posix", reason="links need rights on Windows")
def test_a_linked_file_stays_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "dotfiles" / "real.json", tmp_path / "link.json"
    real.parent.mkdir()
    real.write_bytes(b"old")
    link.symlink_to(real)
    paths.atomic_write(link, b"new")
    assert link.is_symlink()
    assert real.read_bytes() == b"new"


def test_a_temporary_home_is_gone_afterwards() -> None:
    with paths.temp_home() as folder:
        made = paths.resolve(folder).ensure()
        (made.data / "file").write_text("x")
    assert not folder.exists()
