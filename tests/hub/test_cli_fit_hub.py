"""`inglenook fit` of a repository, against a hub on loopback: one header is fetched, whatever the repository holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fit_help import phantom
from hub_server import Hub, Repo, Stored
from library_help import write_set

from engine import cli

MACHINE = ("--device", "CUDA0:8000:8192", "--ram", "16000:32000")
REPO = "maker/Llama-GGUF"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An 8B model in its real shape, as a sparse file."""
    path = tmp_path_factory.mktemp("phantom") / "llama.gguf"
    phantom().build("llama-3.1-8b", str(path))
    return path


def sized(file: Path, size: int) -> Stored:
    stored = Stored(disk=file)
    object.__setattr__(stored, "_sha", f"{size:064x}")
    return stored


@pytest.fixture
def repo(hub: Hub, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repo:
    """The model in three quantizations. Only the Q4_K_M is really there; the others are listed with their sizes."""
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    made = Repo({"README.md": Stored(b"# Llama", lfs=False)})
    for number, (label, gib) in enumerate((("Q4_K_M", 0), ("Q6_K", 6.14), ("Q8_0", 7.95), ("F16", 14.97))):
        name = f"Llama-{label}.gguf"
        made.files[name] = sized(built, number + 1)
        size = round(gib * 2**30) or built.stat().st_size
        made.listed[name] = {"size": size, "sha256": f"{number + 1:064x}"}
    hub.repos[REPO] = made
    return made


def fit(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> dict[str, Any]:
    assert cli.main(["fit", *words, "--json"]) == status
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def test_one_header_and_every_quantization(
    hub: Hub, repo: Repo, built: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = fit(capsys, f"{REPO}:Q4_K_M", *MACHINE)
    assert len(hub.file_calls("hub")) == len(hub.file_calls("storage")) == 1, "one header"
    assert hub.file_calls("storage")[0]["range"] == f"bytes=0-{8 * 2**20 - 1}"
    assert len([path for host, path, _ in hub.calls if "/api/" in path]) == 1
    local = fit(capsys, str(built), *MACHINE)
    assert {key: found[key] for key in local if key != "reasons"} == {k: v for k, v in local.items() if k != "reasons"}
    assert (found["repo"], found["quantization"], found["file"]) == (REPO, "Q4_K_M", "Llama-Q4_K_M.gguf")
    rows = {row["quantization"]: row for row in found["quantizations"]}
    assert list(rows) == ["Q4_K_M", "Q6_K", "Q8_0", "F16"], "smallest first"
    assert rows["Q4_K_M"]["verdict"] == found["verdict"] == "gpu"
    assert rows["F16"]["verdict"] == "split" and 0 < rows["F16"]["gpu_layers"] < 33
    assert [row["best"] for row in found["quantizations"]].count(True) == 1
    assert all(row["speed"]["decode_tps_high"] > 0 for row in found["quantizations"])


def test_without_a_quantization_the_best_for_this_machine(
    hub: Hub, repo: Repo, capsys: pytest.CaptureFixture[str]
) -> None:
    found = fit(capsys, REPO, *MACHINE)
    assert len(hub.file_calls("storage")) == 1
    (best,) = [row for row in found["quantizations"] if row["best"]]
    assert found["quantization"] == best["quantization"] == "Q6_K"
    weights = sum(part["weights_bytes"] for part in (*found["devices"], found["host"]))
    assert abs(weights / best["size_bytes"] - 1) < 0.01, "its own size, not that of the file whose header came"
    assert any("header of Q4_K_M" in text for text in found["warnings"])
    small = fit(capsys, REPO, "--device", "CUDA0:5500", "--ram", "16000:32000")
    assert small["quantization"] != "Q6_K", "another machine, another choice"


def test_a_file_of_a_repository_and_text(hub: Hub, repo: Repo, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["fit", f"{REPO}/Llama-Q8_0.gguf", *MACHINE]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{REPO}  Q8_0, ") and "In this repository:" in said
    assert "best for this machine" in said and "partly on the CPU" in said
    assert len(hub.file_calls("storage")) == 1


def test_a_named_set_of_parts_has_all_its_headers_read(
    hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    parts = write_set(tmp_path / "parts", "Tiny-Q6_K")
    hub.repos[REPO] = Repo({f"Q6_K/{part.name}": Stored(part.read_bytes()) for part in parts})
    found = fit(capsys, f"{REPO}:Q6_K", "--ram", "4000")
    assert len(hub.file_calls("storage")) == 3
    assert found["quantizations"][0]["n_files"] == 3


@pytest.mark.parametrize(
    ("wanted", "code", "status"),
    [
        ("maker/Nothing", "hub_not_found", 17),
        ("maker/Gated", "hub_access_denied", 18),
        (f"{REPO}:Q2_K", "invalid_request", 2),
        ("maker/Empty", "invalid_request", 2),
    ],
)
def test_errors_in_words(
    hub: Hub, repo: Repo, capsys: pytest.CaptureFixture[str], wanted: str, code: str, status: int
) -> None:
    hub.repos["maker/Gated"] = Repo(dict(repo.files), gated="auto")
    hub.repos["maker/Empty"] = Repo({"README.md": Stored(b"#", lfs=False)})
    error = fit(capsys, wanted, *MACHINE, status=status)["error"]
    assert error["code"] == code and error["message"] and error["hint"]


def test_offline_nothing_is_asked(
    hub: Hub, repo: Repo, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert fit(capsys, REPO, *MACHINE, status=16)["error"]["code"] == "hub_unreachable"
    assert hub.calls == []


def test_a_missing_file_is_not_looked_for_on_the_hub(
    hub: Hub, repo: Repo, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    for wanted in ("models/a/b.gguf", "models/name", "./a/b", "/a/b/c.gguf", "a/b.gguf", "nothing.gguf"):
        assert fit(capsys, wanted, *MACHINE, status=3)["error"]["code"] == "model_not_found"
    assert hub.calls == []
