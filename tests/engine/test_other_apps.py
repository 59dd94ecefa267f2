"""Models that other programs keep: found in their own layouts, used in place, never believed blindly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from library_help import (
    look,
    model_bytes,
    sha256,
    write_hub_cache,
    write_mmproj,
    write_model,
    write_ollama,
    write_set,
)

from engine.models import other_apps
from engine.models.library import LibraryModel


@pytest.fixture
def user(tmp_path: Path) -> Path:
    folder = tmp_path / "user"
    folder.mkdir()
    return folder


def rows(tmp_path: Path, user: Path, platform: str = "linux") -> list[LibraryModel]:
    return look(tmp_path, tmp_path / "models", home=user, platform=platform).models


LAYOUTS = [
    ("lmstudio", "linux", ".lmstudio/models/maker/model/m.gguf"),
    ("lmstudio", "linux", ".cache/lm-studio/models/maker/model/m.gguf"),
    ("lmstudio", "win32", ".lmstudio/models/maker/model/m.gguf"),
    ("gpt4all", "linux", ".local/share/nomic.ai/GPT4All/m.gguf"),
    ("gpt4all", "darwin", "Library/Application Support/nomic.ai/GPT4All/m.gguf"),
    ("gpt4all", "win32", "AppData/Local/nomic.ai/GPT4All/m.gguf"),
    ("gpt4all", "linux", ".cache/gpt4all/m.gguf"),
    ("jan", "linux", ".local/share/Jan/data/llamacpp/models/maker/m/model.gguf"),
    ("jan", "linux", ".local/share/Jan/data/models/m/model.gguf"),
    ("jan", "darwin", "Library/Application Support/Jan/data/llamacpp/models/m/model.gguf"),
    ("jan", "win32", "AppData/Roaming/Jan/data/llamacpp/models/m/model.gguf"),
]


@pytest.mark.parametrize(("source", "platform", "path"), LAYOUTS)
def test_folders_of_files(tmp_path: Path, user: Path, source: str, platform: str, path: str) -> None:
    write_model(user / path)
    (row,) = rows(tmp_path, user, platform)
    assert (row.source, row.path, row.complete, row.removable) == (source, str(user / path), True, False)


def test_lm_studio_elsewhere(tmp_path: Path, user: Path) -> None:
    moved, chosen = tmp_path / "moved", tmp_path / "chosen"
    (user / ".lmstudio-home-pointer").write_text(str(moved))
    write_model(moved / "models" / "a" / "b" / "one.gguf")
    (moved / "settings.json").write_text(json.dumps({"downloadsFolder": str(chosen)}))
    write_model(chosen / "a" / "b" / "two.gguf", salt=1)
    assert sorted(Path(row.path).name for row in rows(tmp_path, user)) == ["one.gguf", "two.gguf"]


def test_hugging_face_cache(tmp_path: Path, user: Path) -> None:
    data = model_bytes()
    hub = user / ".cache" / "huggingface" / "hub"
    snapshot = write_hub_cache(hub, "owner/some--name", {"Q4/model-Q4_K_M.gguf": data, "README.md": b"#"})
    (hub / "models--owner--empty").mkdir()
    (hub / "version.txt").write_text("1")
    (row,) = rows(tmp_path, user)
    assert row.path == str(snapshot / "Q4" / "model-Q4_K_M.gguf")
    assert (row.source, row.repo, row.revision) == ("huggingface", "owner/some--name", "a" * 40)
    assert (row.sha256, row.hash_state, row.removable) == (None, "unverified", False)


def test_of_two_snapshots_the_one_of_main_counts(tmp_path: Path, user: Path) -> None:
    hub = user / ".cache" / "huggingface" / "hub"
    write_hub_cache(hub, "o/n", {"m.gguf": model_bytes()}, revision="1" * 40, main=False)
    write_hub_cache(hub, "o/n", {"m.gguf": model_bytes()}, revision="2" * 40)
    write_hub_cache(hub, "o/n", {"m.gguf": model_bytes("Older", salt=3)}, revision="0" * 40, main=False)
    found = rows(tmp_path, user)
    assert [(row.revision[0], row.name) for row in found] == [("2", "Tiny"), ("0", "Older")]


def test_hugging_face_half_downloaded(tmp_path: Path, user: Path) -> None:
    hub = user / ".cache" / "huggingface" / "hub"
    parts = {path.name: path.read_bytes() for path in write_set(tmp_path / "made", "big")}
    parts.pop("big-00002-of-00003.gguf")
    write_hub_cache(hub, "o/n", parts)
    (hub / "models--o--n" / "blobs" / ("f" * 64 + ".incomplete")).write_bytes(b"GGUF")
    (row,) = rows(tmp_path, user)
    assert not row.complete
    assert row.problem is not None and "1 of 3 parts" in row.problem.message


def test_hugging_face_folder_by_environment(tmp_path: Path, user: Path) -> None:
    for number, (variable, below) in enumerate({"HF_HUB_CACHE": "", "HF_HOME": "hub"}.items()):
        place = tmp_path / f"place{number}"
        (place / below).mkdir(parents=True)
        found = other_apps.app_folders(user, {variable: str(place)}, "linux")
        assert [(app.source, app.path) for app in found] == [("huggingface", place / below)]


def test_ollama(tmp_path: Path, user: Path) -> None:
    store = user / ".ollama" / "models"
    data = model_bytes("Qwen3 8B")
    image = write_mmproj(tmp_path / "image.gguf").read_bytes()
    blob = write_ollama(store, "library/qwen3:8b", data, mmproj=image)
    write_ollama(store, "library/qwen3:latest", data)  # the same blob
    write_ollama(store, "someone/special:q4", model_bytes(salt=1))
    found = {row.name: row for row in rows(tmp_path, user)}
    assert set(found) == {"qwen3:8b", "someone/special:q4"}
    row = found["qwen3:8b"]
    assert row.path == str(blob)
    assert (row.source, row.architecture, row.quantization, row.removable) == ("ollama", "llama", "Q4_K_M", False)
    assert row.mmproj == (str(store / "blobs" / f"sha256-{sha256(image)}"),)


@pytest.mark.parametrize(
    "digest",
    [
        "sha256:x/../../../../../secret.gguf",
        "sha256:../../../etc/passwd",
        "sha256:" + "A" * 64,
        "sha256:" + "a" * 63,
        "/etc/passwd",
        "md5:" + "a" * 32,
    ],
)
def test_a_digest_that_leads_elsewhere(tmp_path: Path, user: Path, digest: str) -> None:
    store = user / ".ollama" / "models"
    write_ollama(store, "library/evil:1", model_bytes(), digest=digest)
    (store / "blobs" / "sha256-x").mkdir()
    write_model(tmp_path / "secret.gguf")
    assert rows(tmp_path, user) == []


@pytest.mark.parametrize("content", ["", "{", "[]", '{"layers": 5}', '{"layers": [1, {"mediaType": []}]}', "[" * 99999])
def test_an_odd_manifest(tmp_path: Path, user: Path, content: str) -> None:
    manifest = user / ".ollama/models/manifests/registry.ollama.ai/library/x/latest"
    manifest.parent.mkdir(parents=True)
    manifest.write_text(content)
    assert rows(tmp_path, user) == []


def test_ollama_elsewhere(tmp_path: Path, user: Path) -> None:
    write_ollama(tmp_path / "store", "library/a:1", model_bytes())
    (app,) = other_apps.app_folders(user, {"OLLAMA_MODELS": str(tmp_path / "store")}, "darwin")
    models, watched = other_apps.ollama_models(app.path)
    assert [model.name for model in models] == ["a:1"]
    assert tmp_path / "store" / "manifests" in watched


def test_a_folder_of_another_program_stays_its_own(tmp_path: Path, user: Path) -> None:
    """Also where the user has added it as one of their folders."""
    write_model(user / ".lmstudio" / "models" / "a" / "b" / "m.gguf")
    folder = user / ".lmstudio" / "models"
    (row,) = look(tmp_path, tmp_path / "models", home=user, extra=(folder,)).models
    assert (row.source, row.removable) == ("lmstudio", False)


def test_nothing_installed(tmp_path: Path, user: Path) -> None:
    assert other_apps.app_folders(user, {}, "linux") == []
    assert rows(tmp_path, user) == []
