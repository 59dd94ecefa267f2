"""Model files that other programs keep on this computer. They are used where they are, and never written to.

Where each program keeps them: LM Studio's docs (`models/<publisher>/<model>/<file>.gguf`), the Hugging Face cache
(`models--<owner>--<name>/snapshots/<revision>/<file>`, mostly links to `blobs/<sha256>`), Ollama's store (manifests
in the form of OCI that name `blobs/sha256-<digest>`), GPT4All's and Jan's data folders. Everything read here may have
been written by anyone: names are checked before they become paths.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

Source = Literal["inglenook", "lmstudio", "huggingface", "ollama", "gpt4all", "jan", "folder"]
APP_NAMES: Mapping[str, str] = {
    "lmstudio": "LM Studio",
    "huggingface": "Hugging Face",
    "ollama": "Ollama",
    "gpt4all": "GPT4All",
    "jan": "Jan",
}
_MAX_MANIFEST_BYTES = 1 << 20
_MAX_MANIFESTS = 5000
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})\Z")
_HEX = re.compile(r"[0-9a-f]{64}\Z")
_REVISION = re.compile(r"[0-9a-f]{7,64}\Z")
_MODEL_LAYER = "application/vnd.ollama.image.model"
_PROJECTOR_LAYER = "application/vnd.ollama.image.projector"


class AppFolder(NamedTuple):
    """A folder of another program that may hold models."""

    source: Source
    path: Path


class OllamaModel(NamedTuple):
    """One manifest of Ollama's store.

    Attributes:
        name: as Ollama calls it ("qwen3:8b").
        path: the blob with the model; `sha256` is its name.
        mmproj: blobs with its image part.
    """

    name: str
    path: Path
    sha256: str
    mmproj: tuple[Path, ...]


class HubOrigin(NamedTuple):
    """Where a file of the Hugging Face cache came from. sha256: "" where the cache does not tell."""

    repo: str
    revision: str
    sha256: str


def app_folders(
    home: Path | None = None, env: Mapping[str, str] | None = None, platform: str = sys.platform
) -> list[AppFolder]:
    """Folders of the known programs that exist here.

    Args:
        home: the user's home; tests give their own.
        env: the environment; only read.
        platform: as `sys.platform`.
    """
    env = os.environ if env is None else env
    try:
        home = home or Path.home()
    except RuntimeError:  # no home at all: a service account
        return []
    found: list[AppFolder] = []
    seen: set[Path] = set()
    for source, path in _candidates(home, env, platform):
        try:
            if path.is_dir() and (real := path.resolve()) not in seen:
                seen.add(real)
                found.append(AppFolder(source, path))
        except (OSError, ValueError, RuntimeError):
            continue
    return found


def _candidates(home: Path, env: Mapping[str, str], platform: str) -> list[tuple[Source, Path]]:
    def named(variable: str) -> Path | None:
        value = env.get(variable, "")
        return Path(os.path.expanduser(value)) if value else None  # noqa: PTH111 (never raises)

    found: list[tuple[Source, Path]] = []
    found += [("lmstudio", path) for path in _lm_studio(home)]
    hub = named("HF_HUB_CACHE") or named("HUGGINGFACE_HUB_CACHE")
    if hub is None:
        cache = named("XDG_CACHE_HOME") or home / ".cache"
        hub = (named("HF_HOME") or cache / "huggingface") / "hub"
    found += [("huggingface", hub), ("huggingface", home / ".cache" / "huggingface" / "hub")]
    ollama = [named("OLLAMA_MODELS"), home / ".ollama" / "models"]
    if platform.startswith("linux"):
        ollama.append(Path("/usr/share/ollama/.ollama/models"))  # where its system service keeps them
    found += [("ollama", path) for path in ollama if path]
    support = home / "Library" / "Application Support"
    if platform == "darwin":
        gpt4all = [support / "nomic.ai" / "GPT4All"]
        jan = [support / "Jan" / "data", support / "jan"]
    elif platform == "win32":
        local = named("LOCALAPPDATA") or home / "AppData" / "Local"
        roaming = named("APPDATA") or home / "AppData" / "Roaming"
        gpt4all = [local / "nomic.ai" / "GPT4All"]
        jan = [roaming / "Jan" / "data", roaming / "jan"]
    else:
        data = named("XDG_DATA_HOME") or home / ".local" / "share"
        gpt4all = [data / "nomic.ai" / "GPT4All"]
        jan = [data / "Jan" / "data", (named("XDG_CONFIG_HOME") or home / ".config") / "Jan" / "data"]
    found += [("gpt4all", path) for path in (*gpt4all, home / ".cache" / "gpt4all")]
    jan.append(home / "jan")
    found += [("jan", path / part) for path in jan for part in ("models", "llamacpp/models")]
    return found


def _lm_studio(home: Path) -> list[Path]:
    """Its default places, and the folder that the user chose in it."""
    places = [home / ".lmstudio"]
    pointer = _text(home / ".lmstudio-home-pointer").strip()
    if pointer and Path(pointer).is_absolute():
        places.insert(0, Path(pointer))
    found = []
    for place in places:
        chosen = _json(place / "settings.json").get("downloadsFolder")
        if isinstance(chosen, str) and Path(chosen).is_absolute():
            found.append(Path(chosen))
        found.append(place / "models")
    return [*found, home / ".cache" / "lm-studio" / "models"]


# ------------------------------------------------------------------ Ollama


def ollama_models(folder: Path) -> tuple[list[OllamaModel], list[Path]]:
    """The models of Ollama's store, each blob once, and the folders that change when models come and go."""
    manifests = folder / "manifests"
    found: list[OllamaModel] = []
    seen: set[str] = set()
    watched: list[Path] = []
    for place, folders, files in os.walk(manifests):
        folders.sort()
        watched.append(Path(place))
        for file in sorted(files):
            if len(seen) >= _MAX_MANIFESTS:
                return found, watched
            model = _ollama_model(folder, manifests, Path(place) / file)
            if model and model.sha256 not in seen:
                seen.add(model.sha256)
                found.append(model)
    return found, watched


def _ollama_model(folder: Path, manifests: Path, path: Path) -> OllamaModel | None:
    layers = _json(path).get("layers")
    if not isinstance(layers, list):
        return None
    digests: dict[str, list[str]] = {_MODEL_LAYER: [], _PROJECTOR_LAYER: []}
    for layer in layers:
        kind, digest = (layer.get("mediaType"), layer.get("digest")) if isinstance(layer, dict) else (None, None)
        if isinstance(kind, str) and kind in digests and isinstance(digest, str):
            match = _DIGEST.match(digest)
            if match:  # anything else could lead out of the folder
                digests[kind].append(match[1])
    if not digests[_MODEL_LAYER]:
        return None
    host, *words = path.relative_to(manifests).parts
    tag = words.pop() if words else ""
    if words[:1] == ["library"] and host == "registry.ollama.ai":
        words = words[1:]
    elif host != "registry.ollama.ai":
        words.insert(0, host)
    blobs = folder / "blobs"
    first = digests[_MODEL_LAYER][0]
    parts = tuple(blobs / f"sha256-{digest}" for digest in digests[_PROJECTOR_LAYER])
    return OllamaModel(f"{'/'.join(words)}:{tag}", blobs / f"sha256-{first}", first, parts)


# ------------------------------------------------------------------ Hugging Face


def hub_snapshots(folder: Path) -> list[Path]:
    """Snapshot folders of all models in a Hugging Face cache; of each model the one of its main branch first."""
    found: list[Path] = []
    for repo in _subfolders(folder):
        if not repo.name.startswith("models--"):
            continue
        main = _text(repo / "refs" / "main").strip()
        found += sorted(_subfolders(repo / "snapshots"), key=lambda place: (place.name != main, place.name))
    return found


def hub_origin(path: Path, snapshot: Path) -> HubOrigin:
    """Where a file below a snapshot folder came from."""
    owner, sign, name = snapshot.parent.parent.name.removeprefix("models--").partition("--")
    repo = f"{owner}/{name}" if sign else owner
    revision = snapshot.name if _REVISION.match(snapshot.name) else ""
    try:
        blob = path.readlink().name if path.is_symlink() else ""
    except OSError:
        blob = ""
    return HubOrigin(repo, revision, blob if _HEX.match(blob) else "")


# ------------------------------------------------------------------ reading


def _subfolders(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError:
        return []


def _text(path: Path) -> str:
    try:
        if not path.is_file() or path.stat().st_size > _MAX_MANIFEST_BYTES:
            return ""
        return path.read_text(encoding="utf-8-sig", errors="replace")
    except (OSError, ValueError):
        return ""


def _json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(_text(path) or "{}")
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}
