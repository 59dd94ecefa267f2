"""The queue: pause, resume, restart, sets, space on the disk, names, and what is left lying about."""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hub_help import QUICK, client, leftovers, listed, model_bytes, put, start, the_set, wait_for
from hub_server import COMMIT, Call, Hub, Repo, Stored

from engine.errors import InvalidRequest, UnsafeName
from engine.models import download_parts, download_run
from engine.models.download import Downloads
from engine.models.hub import Hub as Client
from engine.models.hub_names import HubFile, ModelSet

Make = Callable[..., Downloads]
FINAL = "ann/tiny/Tiny-Q4_K_M.gguf"


def slow(call: Call) -> None:
    """Half of every body, then a rest."""
    if call.host == "storage" and call.is_file:
        call.stall_at, call.stall_s = (call.end - call.start) // 2, 0.8


def until_some(queue: Downloads, download_id: str) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if any(info.id == download_id and info.bytes_done > 0 for info in queue.list()):
            return
        time.sleep(0.01)
    raise AssertionError("no bytes came")


def test_pause_and_resume(hub: Hub, models: Path, downloads: Make) -> None:
    data = put(hub, 2_500_000)
    hub.faults.append(slow)
    queue = downloads()
    info = start(queue, hub)
    until_some(queue, info.id)
    began = time.monotonic()
    assert queue.pause(info.id).status == "paused"
    assert time.monotonic() - began < 2
    had = wait_for(queue, info.id, "paused").bytes_done
    time.sleep(0.3)
    calls = len(hub.calls)
    time.sleep(0.3)
    assert len(hub.calls) == calls and queue.list()[0].status == "paused" and listed(models) == []
    hub.faults.clear()
    queue.resume(info.id)
    done = wait_for(queue, info.id, "done")
    assert (models / FINAL).read_bytes() == data and done.paths == (str(models / FINAL),)
    assert 0 < had < len(data) and leftovers(models) == []


def test_a_resumed_download_asks_only_for_what_is_missing(hub: Hub, models: Path, downloads: Make) -> None:
    data = put(hub, 1_000_000)
    hub.faults.append(slow)
    queue = downloads()
    info = start(queue, hub)
    until_some(queue, info.id)
    time.sleep(0.2)
    queue.close()
    stored = json.loads((models / ".incomplete" / info.id / "state.json").read_text())
    (begin, end), *_ = stored["files"][0]["done"]
    assert begin == 0 and end > 0
    hub.faults.clear()
    hub.calls.clear()
    again = downloads()
    assert [(i.id, i.status, i.bytes_done) for i in again.list()] == [(info.id, "paused", end)]
    assert hub.calls == []  # coming back makes no connection
    again.resume(info.id)
    wait_for(again, info.id, "done")
    asked = hub.file_calls("storage")[0]
    assert asked["range"] == f"bytes={end}-999999" and asked["if-range"]
    assert (models / FINAL).read_bytes() == data


def test_cancel_leaves_nothing(hub: Hub, models: Path, downloads: Make) -> None:
    put(hub, 2_500_000)
    hub.faults.append(slow)
    seen: list[Any] = []
    queue = downloads(on_event=lambda e: seen.append(e.download))
    info = start(queue, hub)
    until_some(queue, info.id)
    queue.cancel(info.id)
    assert queue.list() == []
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and not (seen and seen[-1].error and seen[-1].error.code == "cancelled"):
        time.sleep(0.02)
    assert seen[-1].error.code == "cancelled"
    assert leftovers(models) == [] and listed(models) == [] and not (models / ".incomplete").exists()
    with pytest.raises(InvalidRequest):
        queue.resume(info.id)


@pytest.mark.parametrize("status", ["running", "failed", "done"])
def test_cancelled_by_a_listener_at_any_report(status: str, hub: Hub, models: Path, downloads: Make) -> None:
    put(hub, 2_500_000)
    if status == "failed":
        hub.faults.append(lambda c: c.fail(404) if c.host == "hub" else None)

    def listen(event: Any) -> None:
        if event.download.status == status:
            queue.cancel(event.download.id)

    queue = downloads()
    queue._on_event = listen
    start(queue, hub)
    deadline = time.monotonic() + 10
    while (queue.list() or leftovers(models)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert queue.list() == [] and leftovers(models) == []


def test_two_at_once_and_the_others_wait(hub: Hub, downloads: Make) -> None:
    for n in range(4):
        put(hub, 300_000 + n, repo=f"ann/m{n}")
    hub.faults.append(slow)
    queue = downloads(max_running=2)
    ids = [start(queue, hub, f"ann/m{n}").id for n in range(4)]
    states = [info.status for info in queue.list()]
    assert states.count("queued") == 2
    for download_id in ids:
        wait_for(queue, download_id, "done")


def test_adding_the_same_again_gives_the_same(hub: Hub, downloads: Make) -> None:
    put(hub)
    hub.faults.append(slow)
    queue = downloads()
    info = start(queue, hub)
    assert start(queue, hub).id == info.id
    queue.pause(info.id)
    assert start(queue, hub).id == info.id
    wait_for(queue, info.id, "done")


# ---------------------------------------------------------------------- sets


def split(hub: Hub, n: int = 3, size: int = 200_000) -> dict[str, bytes]:
    data = {f"Q8_0/Big-Q8_0-{i:05d}-of-{n:05d}.gguf": model_bytes(size + i, i) for i in range(1, n + 1)}
    hub.repos["ann/big"] = Repo({name: Stored(content) for name, content in data.items()})
    return data


def test_a_split_set_appears_whole_or_not_at_all(hub: Hub, models: Path, downloads: Make) -> None:
    data = split(hub)
    hub.faults.append(lambda c: c.fail(404) if c.host == "hub" and "00003-of" in c.path else None)
    queue = downloads()
    info = wait_for(queue, start(queue, hub, "ann/big").id, "failed")
    assert listed(models) == [] and info.bytes_done == 200_001 + 200_002
    hub.faults.clear()
    hub.calls.clear()
    queue.retry(info.id)
    info = wait_for(queue, info.id, "done")
    assert len(hub.file_calls("hub")) == 1  # the finished shards are not fetched again
    assert {name: (models / "ann/big" / name).read_bytes() for name in data} == data
    assert [Path(p).name[9:14] for p in info.paths] == ["00001", "00002", "00003"] and leftovers(models) == []


def test_a_crash_between_two_renames_is_made_good(hub: Hub, models: Path, downloads: Make, monkeypatch: Any) -> None:
    data = split(hub)
    real, moved = Path.replace, []

    def replace(self: Path, target: Any) -> Path:
        if self.suffix == ".part":
            if moved:
                raise OSError(errno.EIO, "power cut")
            moved.append(target)
        return real(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    queue = downloads()
    info = wait_for(queue, start(queue, hub, "ann/big").id, "failed")
    assert not any("00001-of" in name for name in listed(models))  # the first shard comes last
    monkeypatch.undo()
    queue.retry(info.id)
    wait_for(queue, info.id, "done")
    assert {name: (models / "ann/big" / name).read_bytes() for name in data} == data


def test_an_incomplete_set_is_not_begun(hub: Hub, downloads: Make) -> None:
    split(hub)
    del hub.repos["ann/big"].files["Q8_0/Big-Q8_0-00002-of-00003.gguf"]
    with pytest.raises(InvalidRequest, match="lacks"):
        start(downloads(), hub, "ann/big")


def test_an_image_part_that_is_there_is_not_fetched_again(hub: Hub, models: Path, downloads: Make) -> None:
    put(hub)
    hub.repos["ann/tiny"].files["mmproj-F16.gguf"] = Stored(model_bytes(100_000, 7))
    model = the_set(hub)
    queue = downloads()
    first = queue.add("ann/tiny", COMMIT, model, extras=model.mmproj)
    wait_for(queue, first.id, "done")
    (models / FINAL).unlink()
    hub.calls.clear()
    wait_for(queue, queue.add("ann/tiny", COMMIT, model, extras=model.mmproj).id, "done")
    assert [path for where, path, _ in hub.calls if where == "hub" and "mmproj" in path] == []
    assert listed(models) == [FINAL, "ann/tiny/mmproj-F16.gguf"]


# ---------------------------------------------------------------------- disk


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def test_too_little_space_is_told_before_the_first_byte(hub: Hub, downloads: Make, monkeypatch: Any) -> None:
    put(hub)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**9, 0, 1_200_000))
    queue = downloads()
    info = wait_for(queue, start(queue, hub).id, "paused")
    assert info.error is not None and info.error.code == "disk_full"
    assert info.error.details["needed_bytes"] == 1_500_000 and info.error.details["free_bytes"] == 1_200_000
    assert hub.calls == []
    monkeypatch.undo()
    queue.resume(info.id)
    wait_for(queue, info.id, "done")


def test_a_disk_that_fills_up_pauses_and_goes_on_later(
    hub: Hub, models: Path, downloads: Make, monkeypatch: Any
) -> None:
    data = put(hub, 5_000_000)
    real = Path.open

    class Full:
        """A file on a disk with room for 2 MB."""

        def __init__(self, file: Any) -> None:
            self.file = file

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()

        def seek(self, at: int) -> None:
            self.file.seek(at)

        def write(self, piece: Any) -> int:
            if self.file.tell() + len(piece) > 2_000_000:
                raise OSError(errno.ENOSPC, "No space left on device")
            return int(self.file.write(piece))

    def opened(self: Path, mode: str = "r", *args: Any, **options: Any) -> Any:
        file = real(self, mode, *args, **options)
        return Full(file) if self.suffix == ".part" and mode == "r+b" and options.get("buffering") == 0 else file

    monkeypatch.setattr(Path, "open", opened)
    queue = downloads()
    info = wait_for(queue, start(queue, hub).id, "paused")
    assert info.error is not None and info.error.code == "disk_full"
    assert info.error.details["needed_bytes"] > 0 and info.error.details["free_bytes"] > 0
    queue.close()
    again = downloads()  # the next start is a normal one, and does not go on by itself
    assert [i.status for i in again.list()] == ["paused"] and again.list()[0].bytes_done > 0
    monkeypatch.undo()
    again.resume(info.id)
    wait_for(again, info.id, "done")
    assert (models / FINAL).read_bytes() == data


def test_a_state_that_cannot_be_read_can_be_cancelled(hub: Hub, models: Path, downloads: Make) -> None:
    folder = models / ".incomplete" / "abc"
    folder.mkdir(parents=True)
    (folder / "state.json").write_text("{")
    (folder / "0000.part").write_bytes(b"x")
    queue = downloads()
    (info,) = queue.list()
    assert info.status == "failed" and info.error is not None
    queue.cancel(info.id)
    deadline = time.monotonic() + 5
    while folder.parent.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not (models / ".incomplete").exists()


def test_two_programs_do_not_write_one_download(hub: Hub, downloads: Make) -> None:
    put(hub, 2_500_000)
    hub.faults.append(slow)
    one = downloads()
    info = start(one, hub)
    until_some(one, info.id)
    other = downloads()
    other.resume(info.id)
    seen = wait_for(other, info.id, "failed")
    assert seen.error is not None and seen.error.code == "already_running"
    wait_for(one, info.id, "done")


# ---------------------------------------------------------------------- names

HOSTILE = [
    *("../up.gguf", "a/../../up.gguf", "/etc/x.gguf", "//srv/share/x.gguf", "\\\\srv\\share\\x.gguf", "C:\\x.gguf"),
    *("C:x.gguf", "a\\b.gguf", "nul.gguf", "COM1.gguf", "a/con/x.gguf", "x.gguf.", "x.gguf ", "a\0b.gguf", "./x.gguf"),
    *("a//x.gguf", ".hidden.gguf", ".incomplete/x.gguf", f"{'n' * 260}.gguf", "a:b.gguf", "a\nb.gguf", "\ud800.gguf"),
    *("lpt\u00b9.gguf", "/".join("abcdefghij") + "/x.gguf", "", "..", "x?.gguf"),
]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_refused(name: str, hub: Hub, tmp_path: Path, models: Path, downloads: Make) -> None:
    before = sorted(tmp_path.rglob("*"))
    model = ModelSet("Q4_0", "x", (HubFile(name, 10, "0" * 64),), 10)
    with pytest.raises(UnsafeName) as caught:
        downloads().add("ann/tiny", COMMIT, model)
    caught.value.message.encode()
    assert sorted(tmp_path.rglob("*")) == before and hub.calls == []


@pytest.mark.parametrize(
    "repo", ["..", "../x", "a/..", "a/b/c", "/etc", "a\\b", "con/x", "a/nul", ".git/x", "", "a/b c"]
)
def test_hostile_repositories_are_refused(repo: str, hub: Hub, downloads: Make) -> None:
    model = ModelSet("Q4_0", "x", (HubFile("x.gguf", 10, "0" * 64),), 10)
    with pytest.raises(UnsafeName):
        downloads().add(repo, COMMIT, model)
    with pytest.raises(UnsafeName):
        client(hub).info(repo)
    assert hub.calls == []


def test_only_gguf_files_and_only_at_a_commit(downloads: Make) -> None:
    queue = downloads()
    with pytest.raises(InvalidRequest):
        queue.add("ann/tiny", COMMIT, ModelSet("x", "x", (HubFile("run.exe", 10, None),), 10))
    with pytest.raises(InvalidRequest):
        queue.add("ann/tiny", "main", ModelSet("x", "x", (HubFile("x.gguf", 10, None),), 10))


@pytest.mark.skipif(os.name != "posix", reason="links need rights on Windows")
def test_links_on_the_way_are_not_followed(hub: Hub, tmp_path: Path, models: Path, downloads: Make) -> None:
    put(hub)
    outside = tmp_path / "outside"
    outside.mkdir()
    models.mkdir()
    (models / "ann").symlink_to(outside)
    queue = downloads()
    info = wait_for(queue, start(queue, hub).id, "failed")
    assert info.error is not None and info.error.code == "unsafe_name"
    assert list(outside.iterdir()) == [] and hub.calls == []


def test_a_link_in_the_place_of_the_file_is_replaced(hub: Hub, tmp_path: Path, models: Path, downloads: Make) -> None:
    data = put(hub)
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    (models / "ann/tiny").mkdir(parents=True)
    (models / FINAL).symlink_to(victim)
    queue = downloads()
    wait_for(queue, start(queue, hub).id, "done")
    assert victim.read_bytes() == b"mine" and (models / FINAL).read_bytes() == data


def test_a_web_page_under_a_models_name(hub: Hub, models: Path, downloads: Make) -> None:
    hub.repos["ann/tiny"] = Repo({"Tiny-Q4_K_M.gguf": Stored(b"<!DOCTYPE html><html>" * 40, lfs=False)})
    model = ModelSet("Q4_K_M", "x", (HubFile("Tiny-Q4_K_M.gguf", 840, None),), 840)
    queue = downloads()
    info = wait_for(queue, queue.add("ann/tiny", COMMIT, model).id, "failed")
    assert info.error is not None and info.error.code == "not_a_model" and listed(models) == []


# ---------------------------------------------------------------------- figures


def test_numbers_above_two_gib_and_speed(monkeypatch: Any) -> None:
    from engine.models.download_rate import Rate

    now = [0.0]
    rate = Rate(5.0, lambda: now[0])
    assert rate.speed_bps() is None and rate.eta_s(10) is None
    for _ in range(5):
        rate.feed(int(now[0] * 1_000_000_000))
        now[0] += 1
    assert rate.speed_bps() == pytest.approx(1e9) and rate.eta_s(5_000_000_000) == pytest.approx(5.0)
    now[0] += 5
    assert rate.speed_bps() is None and rate.eta_s(1) is None and rate.quiet
    rate.feed(0)  # from the beginning again
    assert rate.speed_bps() is None


def test_intervals() -> None:
    from engine.models.download_state import Intervals

    some = Intervals([(10, 20), (0, 5), (5, 7), (-3, 2), (9, 9)])
    assert some.items == [(0, 7), (10, 20)] and some.prefix == 7 and some.total == 17
    assert some.missing(25) == [(7, 10), (20, 25)]
    some.add(6, 12)
    assert some.items == [(0, 20)]
    some.cut(3)
    assert some.items == [(0, 3)] and some.missing(3) == []


def test_the_policy_of_tests_is_only_quicker() -> None:
    real = download_parts.Policy()
    assert real.connections == QUICK.connections and real.stall_s == 30 and download_run.Policy is download_parts.Policy


def test_a_damaged_download_is_still_one_after_a_restart(hub: Hub, models: Path, downloads: Make) -> None:
    data = put(hub)

    def flip(call: Call) -> None:
        call.flip_at = 1000 if call.host == "storage" else None

    hub.faults.append(flip)
    queue = downloads()
    info = wait_for(queue, start(queue, hub).id, "failed")
    queue.close()
    hub.faults.clear()
    again = downloads()
    (seen,) = again.list()
    assert seen.status == "failed" and seen.error == info.error and seen.bytes_done == 0
    again.retry(seen.id)
    wait_for(again, seen.id, "done")
    assert (models / FINAL).read_bytes() == data and leftovers(models) == []


def test_a_proxy_of_the_environment_is_used(hub: Hub, models: Path, monkeypatch: Any) -> None:
    put(hub)
    monkeypatch.setenv("http_proxy", hub.endpoint)
    queue = Downloads(models, Client("http://hub.invalid", token=lambda: "hf_good_token_123"), policy=QUICK)
    info = wait_for(queue, start(queue, hub).id, "failed")
    queue.close()
    assert info.error is not None
    assert hub.calls[0][1].startswith("http://hub.invalid/ann/tiny/resolve/")
    # no token without encryption, also not because of the proxy
    assert not any("authorization" in headers for _, _, headers in hub.calls)
