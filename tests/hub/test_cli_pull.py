"""`inglenook models search` and `pull` against a hub on loopback, as a user runs them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hub_server import Call, Hub, Repo, Stored
from library_help import model_bytes, sha256, write_model, write_set

from engine import cli, events, paths
from engine.model_store import ModelStore
from engine.settings import Settings

WAIT_S = 30.0


@pytest.fixture(autouse=True)
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hub: Hub, plain_environment: None) -> Path:
    folder = tmp_path / "user"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("USERPROFILE", str(folder))
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    monkeypatch.setattr("sys.prefix", str(tmp_path / "nowhere"))
    monkeypatch.delenv("INGLENOOK_STARTER", raising=False)
    return folder


@pytest.fixture
def repo(hub: Hub, tmp_path: Path) -> Repo:
    """A repository with three quantizations, one of them split, and what is no model."""
    made = Repo({"README.md": Stored(b"# Tiny", lfs=False)})
    for number, label in enumerate(("Q3_K_M", "Q4_K_M", "Q8_0")):
        made.files[f"Tiny-{label}.gguf"] = Stored(model_bytes("Tiny", salt=number) + bytes(1000 * number))
    for part in write_set(tmp_path / "parts", "Tiny-Q6_K"):
        made.files[f"Q6_K/{part.name}"] = Stored(part.read_bytes())
    hub.repos["maker/Tiny-GGUF"] = made
    return made


def pull(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> dict[str, Any]:
    assert cli.main(["models", "pull", *words, "--json"]) == status
    said = capsys.readouterr()
    assert said.out.endswith("\n")
    found = json.loads(said.out)
    assert isinstance(found, dict)
    return found


def test_search(hub: Hub, repo: Repo, capsys: pytest.CaptureFixture[str]) -> None:
    hub.repos["maker/Other"] = Repo({}, tags=["pytorch"])
    assert cli.main(["models", "search", "tiny", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["repo"], row["license"]) == ("maker/Tiny-GGUF", "apache-2.0")


@pytest.mark.parametrize(
    "wanted", ["maker/Tiny-GGUF:Q4_K_M", "maker/Tiny-GGUF:q4_k_m", "maker/Tiny-GGUF/Tiny-Q4_K_M.gguf"]
)
def test_a_file(home: Path, repo: Repo, capsys: pytest.CaptureFixture[str], wanted: str) -> None:
    stored = repo.files["Tiny-Q4_K_M.gguf"]
    row = pull(capsys, wanted)
    path = home / "models" / "maker" / "Tiny-GGUF" / "Tiny-Q4_K_M.gguf"
    assert (row["path"], row["complete"], row["sha256"]) == (str(path), True, stored.sha256)
    assert (row["hash_state"], row["repo"], row["revision"]) == ("verified", "maker/Tiny-GGUF", repo.commit)
    assert row["removable"]
    assert path.read_bytes() == stored.data
    assert cli.main(["models", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [row]
    assert not (home / "models" / ".incomplete").exists()


def test_a_files_address(hub: Hub, repo: Repo, capsys: pytest.CaptureFixture[str]) -> None:
    row = pull(capsys, f"{hub.endpoint}/maker/Tiny-GGUF/resolve/main/Tiny-Q8_0.gguf?download=true")
    assert row["path"].endswith("Tiny-Q8_0.gguf")


def test_one_shard_brings_the_set(repo: Repo, capsys: pytest.CaptureFixture[str]) -> None:
    row = pull(capsys, "maker/Tiny-GGUF/Q6_K/Tiny-Q6_K-00002-of-00003.gguf")
    assert [Path(path).name for path in row["files"]] == [f"Tiny-Q6_K-0000{n}-of-00003.gguf" for n in (1, 2, 3)]
    assert row["path"] == row["files"][0]
    assert row["hash_state"] == "verified"
    assert row["hashes"] == [sha256(Path(path).read_bytes()) for path in row["files"]]


def test_without_a_quantization_the_fit_chooses(repo: Repo, capsys: pytest.CaptureFixture[str]) -> None:
    row = pull(capsys, "maker/Tiny-GGUF")
    # nobody's memory is too small for these, and small models get the best
    assert Path(row["path"]).name == "Tiny-Q8_0.gguf"


def test_a_name_of_the_catalogue(hub: Hub, repo: Repo, capsys: pytest.CaptureFixture[str]) -> None:
    hub.repos["Qwen/Qwen3-8B-GGUF"] = repo
    assert pull(capsys, "qwen3-8b:Q4_K_M")["repo"] == "Qwen/Qwen3-8B-GGUF"


def test_again_costs_nothing(hub: Hub, repo: Repo, capsys: pytest.CaptureFixture[str]) -> None:
    first = pull(capsys, "maker/Tiny-GGUF:Q4_K_M")
    hub.calls.clear()
    assert pull(capsys, "maker/Tiny-GGUF:Q4_K_M")["sha256"] == first["sha256"]
    assert hub.file_calls("storage") == []


@pytest.mark.parametrize(
    ("wanted", "code", "status"),
    [
        ("maker/Tiny-GGUF:Q5_K_M", "invalid_request", 2),
        ("maker/Tiny-GGUF/absent.gguf", "invalid_request", 2),
        ("maker/Tiny-GGUF/README.md", "invalid_request", 2),
        ("maker/absent", "hub_not_found", 17),
        ("maker/Empty", "invalid_request", 2),
        ("maker/Gated:Q4_K_M", "hub_access_denied", 18),
        ("../x", "unsafe_name", 1),
    ],
)
def test_what_cannot_be_pulled(
    hub: Hub, repo: Repo, home: Path, capsys: pytest.CaptureFixture[str], wanted: str, code: str, status: int
) -> None:
    hub.repos["maker/Empty"] = Repo({"model.safetensors": Stored(b"x")})
    hub.repos["maker/Gated"] = Repo(dict(repo.files), gated="manual")
    error = pull(capsys, wanted, status=status)["error"]
    assert error["code"] == code
    if wanted.endswith("Q5_K_M"):
        assert "Q4_K_M" in error["hint"]
    assert not list((home / "models").rglob("*.gguf"))


def test_one_wrong_byte(hub: Hub, repo: Repo, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def flip(call: Call) -> None:
        if call.is_file:
            call.flip_at = 800

    hub.faults.append(flip)
    assert pull(capsys, "maker/Tiny-GGUF:Q4_K_M", status=20)["error"]["code"] == "checksum_mismatch"
    assert cli.main(["models", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    hub.faults.clear()
    assert pull(capsys, "maker/Tiny-GGUF:Q4_K_M")["hash_state"] == "verified"


def test_a_file_cut_short_later_knows_its_origin(repo: Repo, capsys: pytest.CaptureFixture[str]) -> None:
    row = pull(capsys, "maker/Tiny-GGUF:Q4_K_M")
    path = Path(row["path"])
    path.write_bytes(path.read_bytes()[:500])
    assert cli.main(["models", "list", "--json"]) == 0
    (again,) = json.loads(capsys.readouterr().out)
    assert (again["complete"], again["repo"]) == (False, "maker/Tiny-GGUF")
    assert pull(capsys, "maker/Tiny-GGUF:Q4_K_M")["hash_state"] == "verified"


@pytest.mark.skipif(os.name == "nt", reason="Ctrl+C cannot be sent to one process there")
def test_ctrl_c_pauses_and_the_same_command_goes_on(hub: Hub, repo: Repo, home: Path, user: Path) -> None:
    data = model_bytes("Large") + os.urandom(30_000_000)
    repo.files["Large-F16.gguf"] = Stored(data)

    def stall(call: Call) -> None:
        if call.is_file and call.end > 6_000_000:
            call.stall_at, call.stall_s = min(6_000_000, call.end - call.start), 20.0

    hub.faults.append(stall)
    command = [sys.executable, "-m", "engine", "models", "pull", "maker/Tiny-GGUF:F16", "--json"]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=_interruptible())
    try:
        part = _eventually(lambda: next((home / "models" / ".incomplete").rglob("*.part"), None))
        _eventually(lambda: part.stat().st_size > 2_000_000)
        time.sleep(0.5)
        first.send_signal(signal.SIGINT)
        out, err = first.communicate(timeout=WAIT_S)
    finally:
        first.kill()
    assert first.returncode == 130, err.decode()
    assert b"same command goes on" in err
    assert json.loads(out)["error"]["code"] == "cancelled"
    hub.faults.clear()
    hub.calls.clear()
    second = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert second.returncode == 0, second.stderr.decode()
    row = json.loads(second.stdout)
    assert Path(row["path"]).read_bytes() == data
    assert row["hash_state"] == "verified"
    asked = [headers.get("range", "") for headers in hub.file_calls("storage")]
    assert asked and all(not wanted.startswith("bytes=0-") for wanted in asked), asked
    assert not (home / "models" / ".incomplete").exists()


def _interruptible() -> dict[str, str]:
    return {**os.environ, "PYTHONUNBUFFERED": "1"}


def _eventually(probe: Callable[[], Any]) -> Any:
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        try:
            if found := probe():
                return found
        except OSError:
            pass
        time.sleep(0.02)
    raise AssertionError("it never came")


# ------------------------------------------------------------------ the store behind it


class Watcher:
    def __init__(self, home: Path) -> None:
        self.paths = paths.resolve(home).ensure()
        self.events: list[events.Event] = []
        self.settings = Settings(self.paths.settings_file)
        self.store = ModelStore(self.paths, self.settings, self.events.append, env={})

    def statuses(self) -> list[str]:
        return [event.download.status for event in self.events if isinstance(event, events.DownloadChanged)]


def test_a_finished_download_appears_in_the_library(home: Path, repo: Repo) -> None:
    watcher = Watcher(home)
    try:
        assert watcher.store.list().result(WAIT_S) == []
        info = watcher.store.downloads.info("maker/Tiny-GGUF").result(WAIT_S)
        item = next(item for item in info.sets if item.label == "Q4_K_M")
        added = watcher.store.downloads.add(info, item).result(WAIT_S)
        _eventually(lambda: "done" in watcher.statuses())
        (row,) = watcher.store.list().result(WAIT_S)
        assert (row.path, row.hash_state, row.licence) == (added.paths[0], "verified", "mit")
        assert any(isinstance(event, events.LibraryChanged) for event in watcher.events)
        assert [one.status for one in watcher.store.downloads.list().result(WAIT_S)] == ["done"]
    finally:
        watcher.store.stop()


def test_an_unfinished_download_comes_back_paused_and_connects_to_nobody(home: Path, hub: Hub, repo: Repo) -> None:
    def stall(call: Call) -> None:
        if call.is_file:
            call.stall_at, call.stall_s = 100, 5.0

    hub.faults.append(stall)
    first = Watcher(home)
    info = first.store.downloads.info("maker/Tiny-GGUF").result(WAIT_S)
    added = first.store.downloads.add(info, info.sets[-1]).result(WAIT_S)
    _eventually(lambda: hub.file_calls("storage"))
    first.store.stop()
    hub.faults.clear()
    hub.calls.clear()
    # in another folder meanwhile: what was begun stays where it is
    later = Watcher(home)
    try:
        later.store.use_folder(home / "elsewhere").result(WAIT_S)
        (back,) = later.store.downloads.list().result(WAIT_S)
        assert (back.id, back.status) == (added.id, "paused")
        assert later.store.list().result(WAIT_S) == []
        assert hub.calls == []
        later.store.downloads.resume(back.id).result(WAIT_S)
        _eventually(lambda: "done" in later.statuses())
        rows = later.store.list().result(WAIT_S)
        assert [(row.path, row.hash_state) for row in rows] == [(back.paths[0], "verified")]
        other = next(item for item in info.sets if item.label == "Q3_K_M")
        placed = later.store.downloads.add(info, other).result(WAIT_S)
        assert placed.paths[0].startswith(str(home / "elsewhere"))
    finally:
        later.store.stop()


def test_a_download_never_replaces_a_model_in_use_by_another_name(home: Path, repo: Repo) -> None:
    """Two repositories with one file name keep two files."""
    watcher = Watcher(home)
    own = write_model(watcher.paths.models / "Tiny-Q4_K_M.gguf", "Mine")
    try:
        info = watcher.store.downloads.info("maker/Tiny-GGUF").result(WAIT_S)
        watcher.store.downloads.add(info, next(i for i in info.sets if i.label == "Q4_K_M")).result(WAIT_S)
        _eventually(lambda: "done" in watcher.statuses())
        assert own.read_bytes() == model_bytes("Mine")
        assert len(watcher.store.list().result(WAIT_S)) == 2
    finally:
        watcher.store.stop()


def test_after_the_end_nothing_is_begun(home: Path, repo: Repo, hub: Hub) -> None:
    watcher = Watcher(home)
    watcher.store.stop()
    future = watcher.store.downloads.info("maker/Tiny-GGUF")
    assert future.exception(WAIT_S).code == "cancelled"  # type: ignore[union-attr]
    assert hub.calls == []
