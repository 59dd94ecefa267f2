"""`inglenook models` without a network: the list, imports, checks, the trash, and what words mean."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from library_help import model_bytes, sha256, write_model, write_ollama, write_set

from engine import cli
from engine.cli_models import Progress, parse_wanted
from engine.cli_output import exit_status
from engine.errors import InvalidRequest


@pytest.fixture(autouse=True)
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user whose home holds nothing of other programs."""
    folder = tmp_path / "user"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("USERPROFILE", str(folder))
    monkeypatch.setattr("sys.prefix", str(tmp_path / "nowhere"))
    for name in ("INGLENOOK_STARTER", "OLLAMA_MODELS", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    return folder


def run(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
    assert cli.main(["models", *words]) == status
    return capsys.readouterr().out


def rows(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> list[dict[str, Any]]:
    found = json.loads(run(capsys, *words, "--json", status=status))
    assert isinstance(found, list)
    return found


def test_the_list(capsys: pytest.CaptureFixture[str], home: Path, user: Path) -> None:
    assert "No model yet" in run(capsys, "list")
    assert rows(capsys, "list") == []
    path = write_model(home / "models" / "a.gguf", "Model A")
    (home / "models" / "half.gguf").write_bytes(model_bytes()[:-60])
    write_ollama(user / ".ollama" / "models", "library/b:1", model_bytes(salt=2))
    found = {row["name"]: row for row in rows(capsys, "list")}
    assert set(found) == {"Model A", "half", "b:1"}
    row = found["Model A"]
    assert (row["path"], row["complete"], row["sha256"], row["problem"]) == (str(path), True, None, None)
    keys = "path name architecture n_params quantization n_ctx_train licence size_bytes complete sha256 hash_state"
    assert set(row) >= {*keys.split(), "has_template", "last_used_s", "source", "problem", "repo", "revision", "files"}
    assert (found["half"]["complete"], found["half"]["problem"]["code"]) == (False, "model_damaged")
    assert found["b:1"]["source"] == "ollama"
    text = run(capsys, "list")
    assert "cut short" in text and "Download it again." in text and str(path) in text


def test_import_verify_and_delete(
    capsys: pytest.CaptureFixture[str], home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []

    def send(path: str) -> None:
        sent.append(path)
        Path(path).unlink()

    monkeypatch.setattr("send2trash.send2trash", send)
    parts = write_set(tmp_path / "down", "big")
    (row,) = rows(capsys, "import", str(parts[1]))
    kept = [home / "models" / part.name for part in parts]
    assert row["files"] == [str(path) for path in kept]
    (row,) = rows(capsys, "verify", "big")
    assert row["hashes"] == [sha256(part.read_bytes()) for part in parts]
    assert row["sha256"] == row["hashes"][0]
    assert [row["path"] for row in rows(capsys, "rm", "big")] == [str(kept[0])]
    assert sorted(sent) == sorted(map(str, kept))
    assert rows(capsys, "list") == []
    assert all(part.exists() for part in parts)


def test_import_in_place(capsys: pytest.CaptureFixture[str], home: Path, tmp_path: Path) -> None:
    path = write_model(tmp_path / "disk" / "a.gguf")
    assert [row["path"] for row in rows(capsys, "import", "--in-place", str(path))] == [str(path)]
    assert [row["path"] for row in rows(capsys, "list")] == [str(path)]
    assert "the file stays" in run(capsys, "rm", str(path))
    assert path.exists() and rows(capsys, "list") == []


def test_a_system_without_trash(
    capsys: pytest.CaptureFixture[str], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def send(path: str) -> None:
        raise OSError("no trash on this disk")

    monkeypatch.setattr("send2trash.send2trash", send)
    write_model(home / "models" / "a.gguf")
    assert cli.main(["models", "rm", "Tiny"]) == 14
    said = capsys.readouterr().err
    assert "no trash on this disk" in said and "kept in" in said
    (kept,) = (home / "models").rglob("a.gguf")
    assert kept.read_bytes() == model_bytes()


def test_a_damaged_file_fails_the_check(capsys: pytest.CaptureFixture[str], user: Path) -> None:
    blob = write_ollama(user / ".ollama" / "models", "library/a:1", model_bytes())
    (row,) = rows(capsys, "verify")
    assert row["hash_state"] == "verified"
    blob.write_bytes(model_bytes(salt=1))
    (row,) = rows(capsys, "verify", status=20)
    assert row["hash_state"] == "wrong"
    assert "DAMAGED" in run(capsys, "verify", "a:1", status=20)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("verify", "absent"), "model_not_found"),
        (("rm", "absent"), "model_not_found"),
        (("import", "absent.gguf"), "model_not_found"),
        (("import", "page.gguf"), "not_a_model"),
        (("import", "half.gguf"), "model_damaged"),
        (("pull", "nothing"), "invalid_request"),
        (("pull",), "invalid_request"),
        (("nonsense",), "invalid_request"),
        ((), "invalid_request"),
    ],
)
def test_errors(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    code: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("page.gguf").write_text("<html>")
    Path("half.gguf").write_bytes(model_bytes()[:-60])
    expected = {"model_not_found": 3, "not_a_model": 4, "model_damaged": 5, "invalid_request": 2}[code]
    assert cli.main(["models", *words, "--json"]) == expected
    said = json.loads(capsys.readouterr().out)
    assert said["error"]["code"] == code
    assert said["error"]["message"]


def test_the_catalogue_needs_no_network(capsys: pytest.CaptureFixture[str]) -> None:
    found = rows(capsys, "search", "--catalog", "coder")
    assert {"qwen2.5-coder-7b", "qwen3-coder-30b-a3b"} <= {row["id"] for row in found}
    assert "qwen3-coder-30b-a3b" in run(capsys, "search", "--catalog", "coder", "30b")


def test_without_a_network_the_reason_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nobody listens there
    for words in (("search", "x"), ("pull", "a/b"), ("pull", "qwen3-8b")):
        assert cli.main(["models", *words]) == 16
        said = capsys.readouterr()
        assert said.out == ""
        assert "127.0.0.1" in said.err and "network" in said.err


WANTED = {
    "o/n": ("o/n", "", ""),
    "o/n:Q4_K_M": ("o/n", "", "Q4_K_M"),
    "o/n/sub/m-00002-of-00003.gguf": ("o/n", "", "sub/m-00002-of-00003.gguf"),
    "https://huggingface.co/o/n": ("o/n", "", ""),
    "https://huggingface.co/o/n/tree/v2": ("o/n", "v2", ""),
    "https://huggingface.co/o/n/resolve/main/m.gguf?download=true": ("o/n", "main", "m.gguf"),
    "https://huggingface.co/o/n/blob/main/sub/m.gguf": ("o/n", "main", "sub/m.gguf"),
    "hf.co/o/n:Q8_0": ("o/n", "", "Q8_0"),
    "http://127.0.0.1:1/o/n": ("o/n", "", ""),
}


@pytest.mark.parametrize(("text", "meant"), WANTED.items())
def test_what_is_to_be_pulled(text: str, meant: tuple[str, str, str]) -> None:
    assert parse_wanted(text, "http://127.0.0.1:1") == meant


@pytest.mark.parametrize("text", ["", "/", "name", "o/", "/n", "o//n"])
def test_what_cannot_be_pulled(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_wanted(text)


def test_progress_in_a_pipe_is_a_few_lines(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress()
    for done in range(1001):
        progress.show("model", done * 1_000_000, 1_000_000_000)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 11
    assert lines[-1].startswith("model  100%  954 MiB of 954 MiB")


def test_nothing_of_the_hub_is_imported_for_the_list(home: Path) -> None:
    """A list must be quick, and must not touch what could connect."""
    code = (
        "import sys; from engine import cli; cli.main(['models', 'list', '--json']); "
        "print([m for m in ('httpx', 'huggingface_hub', 'llama_cpp', 'PySide6', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_every_error_of_the_hub_has_an_exit_status() -> None:
    from engine import errors

    kinds = (
        errors.HubUnreachable,
        errors.HubNotFound,
        errors.HubAccessDenied,
        errors.DownloadFailed,
        errors.ChecksumMismatch,
    )
    found = {exit_status(kind("")) for kind in kinds}
    assert len(found) == len(kinds) and 1 not in found
