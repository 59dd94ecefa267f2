"""Tiny model files and whole folders of them, as other programs lay them out."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path

from gguf_maker import STR, U16, U32, Maker, small_model, tensor

from engine.models.library import LibraryModel, Places, Scan, scan
from engine.models.library_index import LibraryIndex
from engine.models.library_records import LibraryRecords
from engine.models.other_apps import app_folders


def model_bytes(name: str = "Tiny", *, salt: int = 0, architecture: str = "llama", template: bool = True) -> bytes:
    """A sound file in form: 3 tensors, F16 by its label, with what a list shows. `salt` changes the weights only."""
    maker = small_model(architecture=architecture)
    maker.add("general.name", STR, name).add("general.file_type", U32, 15).add("general.license", STR, "mit")
    maker.add(f"{architecture}.context_length", U32, 4096).add(f"{architecture}.embedding_length", U32, 64)
    for key, value in {"block_count": 1, "attention.head_count": 4, "feed_forward_length": 64}.items():
        maker.add(f"{architecture}.{key}", U32, value)
    if template:
        maker.add("tokenizer.chat_template", STR, "{{ messages }}")
    maker.data = struct.pack("<I", salt) + maker.data[4:]
    return maker.bytes()


def write_model(path: Path, name: str = "Tiny", **more: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model_bytes(name, **more))  # type: ignore[arg-type]
    return path


def write_set(folder: Path, stem: str, count: int = 3) -> list[Path]:
    """A split model: one tensor a part."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number in range(count):
        maker = Maker()
        if number == 0:
            maker.add("general.architecture", STR, "llama").add("general.name", STR, stem)
        maker.add("split.no", U16, number).add("split.count", U16, count).add("split.tensors.count", U32, count)
        maker.tensors.append(tensor(f"blk.{number}.weight", (8, 4), 0, 0))
        maker.data = bytes(128)
        path = folder / f"{stem}-{number + 1:05d}-of-{count:05d}.gguf"
        path.write_bytes(maker.bytes())
        paths.append(path)
    return paths


def write_mmproj(path: Path, width: int = 64) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    maker = small_model(architecture="clip").add("general.type", STR, "mmproj")
    maker.add("clip.vision.projection_dim", U32, width)
    return maker.write(path)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def write_hub_cache(hub: Path, repo: str, files: dict[str, bytes], revision: str = "a" * 40, main: bool = True) -> Path:
    """Files of one repository as huggingface_hub stores them; returns the snapshot."""
    folder = hub / f"models--{repo.replace('/', '--')}"
    snapshot = folder / "snapshots" / revision
    for name, data in files.items():
        blob = folder / "blobs" / sha256(data)
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(data)
        link = snapshot / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(Path(*[".."] * (len(link.relative_to(folder).parts) - 1)) / "blobs" / blob.name)
    if main:
        (folder / "refs").mkdir(exist_ok=True)
        (folder / "refs" / "main").write_text(revision)
    return snapshot


def write_ollama(folder: Path, name: str, data: bytes, *, mmproj: bytes = b"", digest: str = "") -> Path:
    """A model in Ollama's store; `name` like "library/qwen3:8b"."""
    layers = [_blob(folder, data, "application/vnd.ollama.image.model", digest)]
    layers.append(_blob(folder, b"a licence", "application/vnd.ollama.image.license"))
    if mmproj:
        layers.append(_blob(folder, mmproj, "application/vnd.ollama.image.projector"))
    words, _, tag = name.partition(":")
    manifest = folder / "manifests" / "registry.ollama.ai" / words / tag
    manifest.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_text(json.dumps({"schemaVersion": 2, "layers": layers}))
    return folder / "blobs" / f"sha256-{sha256(data)}"


def _blob(folder: Path, data: bytes, kind: str, digest: str = "") -> dict[str, object]:
    path = folder / "blobs" / f"sha256-{sha256(data)}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return {"mediaType": kind, "digest": digest or f"sha256:{sha256(data)}", "size": len(data)}


def look(root: Path, models: Path, *, home: Path | None = None, platform: str = "linux", **more: object) -> Scan:
    """A scan with an index and records below `root`; `home` is where other programs are looked for."""
    apps = tuple(app_folders(home, {}, platform)) if home is not None else ()
    places = Places(models=models, apps=apps, **more)  # type: ignore[arg-type]
    return scan(places, LibraryIndex(root / "index.json"), LibraryRecords(root / "records.json"))


def by_name(found: Scan) -> dict[str, LibraryModel]:
    return {Path(model.path).name: model for model in found.models}
