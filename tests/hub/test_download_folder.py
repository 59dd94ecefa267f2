"""A download can begin at any moment, also at that in which the end of the last one removes the folder above."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

import pytest

from engine.errors import StorageFailed
from engine.models import download_state
from engine.models.download_state import STAGING, SavedDownload, create, remove


def saved(number: int) -> SavedDownload:
    return SavedDownload(f"id-{number}", "a/b", "0" * 40, "", "https://hub.example", [])


def test_new_downloads_begin_while_the_empty_folder_is_removed_all_the_time(tmp_path: Path) -> None:
    over = threading.Event()

    def tidy() -> None:
        while not over.wait(0.0001):
            with suppress(OSError):
                (tmp_path / STAGING).rmdir()

    one = threading.Thread(target=tidy)
    one.start()
    try:
        for number in range(1000):
            folder = create(tmp_path, saved(number))
            assert folder.is_dir() and folder.name == f"id-{number}"
            remove(folder)
    finally:
        over.set()
        one.join()


@pytest.mark.parametrize("n_times", [1, 5])
def test_the_folder_above_goes_between_making_it_and_using_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_times: int
) -> None:
    make, left = download_state.make_private_folder, [n_times]

    def made_too_late(folder: Path) -> None:
        if left[0]:
            left[0] -= 1
            # as the system answers where the folder above has gone, and another download has made it anew since
            (tmp_path / STAGING).mkdir(exist_ok=True)
            raise StorageFailed("gone", details={"errno": 2})
        make(folder)

    monkeypatch.setattr(download_state, "make_private_folder", made_too_late)
    assert create(tmp_path, saved(1)).is_dir()


def test_a_folder_that_cannot_be_made_is_an_error_and_not_tried_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(folder: Path) -> None:
        raise StorageFailed("gone", details={"errno": 2})

    monkeypatch.setattr(download_state, "make_private_folder", never)
    with pytest.raises(StorageFailed, match="gone"):
        create(tmp_path, saved(1))


@pytest.mark.parametrize("kind", ["file", "link", "dangling"])
def test_what_is_no_plain_folder_is_refused(tmp_path: Path, kind: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    place = tmp_path / STAGING
    if kind == "file":
        place.write_bytes(b"")
    else:
        place.symlink_to(tmp_path / ("elsewhere" if kind == "link" else "nowhere"))
    with pytest.raises(StorageFailed, match="plain folder"):
        create(tmp_path, saved(1))
    assert list((tmp_path / "elsewhere").iterdir()) == []
