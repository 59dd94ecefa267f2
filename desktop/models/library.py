"""The models on this computer in words: rows for the list, facts for the page, the state and its next step."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING

from desktop import figures
from desktop.errors import describe
from desktop.models.hub_results import ModelRow
from desktop.widgets.fit_chip import Chip

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.events import VerifyProgress
    from engine.models.library import LibraryModel

SOURCES = {
    "inglenook": "Inglenook",
    "folder": "your folders",
    "lmstudio": "LM Studio",
    "huggingface": "Hugging Face cache",
    "ollama": "Ollama",
    "gpt4all": "GPT4All",
    "jan": "Jan",
}
_LICENCES = {
    "apache-2.0": "Apache 2.0",
    "mit": "MIT",
    "gemma": "Gemma terms",
    "llama3": "Llama 3",
    "llama3.1": "Llama 3.1",
    "llama3.2": "Llama 3.2",
    "llama3.3": "Llama 3.3",
    "llama4": "Llama 4",
    "cc-by-4.0": "CC BY 4.0",
    "cc-by-nc-4.0": "CC BY-NC 4.0",
    "other": "own licence",
}


def licence_words(licence: str) -> str:
    """A licence id as it is usually written."""
    return _LICENCES.get(licence.lower(), licence)


def source_words(source: str) -> str:
    return SOURCES.get(source, source)


def parameters(n_params: int) -> str:
    """ "8.19 B", "135 M"; a dash where it is not known."""
    if n_params <= 0:
        return figures.DASH
    if n_params >= 10**9:
        return f"{n_params / 10**9:.3g} B"
    return f"{n_params / 10**6:.3g} M"


def when(time_s: float | None, now: dt.datetime) -> str:
    """A day in words: "today", "yesterday", "3 days ago", "12 May 2026"; "never" for None."""
    if not time_s:
        return "never"
    moment = dt.datetime.fromtimestamp(time_s)
    days = (now.date() - moment.date()).days
    if days <= 0:
        return "today"
    if days == 1:
        return "yesterday"
    return f"{days} days ago" if days < 14 else f"{moment.day} {moment:%b %Y}"


def state_chip(model: LibraryModel, loaded_path: str = "", verifying: VerifyProgress | None = None) -> Chip | None:
    """What there is to say of a file's state; None: nothing, it is as it should be."""
    if verifying is not None and verifying.bytes_total:
        return Chip(f"{verifying.bytes_done / verifying.bytes_total:.0%}", "accent", "Its bytes are being read")
    if model.problem is not None:
        words = describe(model.problem)
        return Chip("damaged" if model.complete or model.size_bytes else "missing", "bad", words.text)
    if not model.complete:
        return Chip("incomplete", "bad", "Parts of it are missing")
    if loaded_path and loaded_path == model.path:
        return Chip("loaded", "good", "It is in memory now")
    if model.hash_state == "verified":
        return Chip("verified", "neutral", "Its bytes are those of the place it came from (SHA-256)")
    return None


def row_of(
    model: LibraryModel, now: dt.datetime, loaded_path: str = "", verifying: VerifyProgress | None = None
) -> ModelRow:
    """One row of the list."""
    used = f"used {when(model.last_used_s, now)}" if model.last_used_s else "never used"
    parts = [model.quantization, figures.size(model.size_bytes), source_words(model.source), used]
    line = " · ".join(part for part in parts if part)
    return ModelRow(model.name, model.path, line, state_chip(model, loaded_path, verifying), model.path)


@dataclass(frozen=True)
class NextStep:
    """What helps with a damaged model. action: "download", "delete" or "" where only the user can do something."""

    title: str
    text: str
    hint: str
    action: str = ""
    button: str = ""


def next_step(model: LibraryModel) -> NextStep | None:
    """None where nothing is wrong."""
    if model.problem is None and model.complete:
        return None
    if model.problem is not None:
        words = describe(model.problem)
        title, text, hint = words.title, words.text, words.hint
    else:
        title, text, hint = "This model is not complete", "Parts of it are missing.", "Download it again."
    if model.repo:
        return NextStep(title, text, hint, "download", "Download again")
    if model.removable:
        return NextStep(title, text, hint, "delete", "Delete it")
    return NextStep(title, text, hint)


def facts(model: LibraryModel) -> str:
    """The line under the name."""
    trained = f"trained to {model.n_ctx_train:,} tokens" if model.n_ctx_train else ""
    params = f"{parameters(model.n_params)} parameters" if model.n_params else ""
    parts = [params, model.quantization, figures.size(model.size_bytes), model.architecture, trained]
    return " · ".join(part for part in parts if part)


def details(model: LibraryModel, duplicates: Sequence[LibraryModel], now: dt.datetime) -> list[tuple[str, str]]:
    """Label and value of each fact on the page."""
    hashes = {
        "verified": "equal to that of the place it came from",
        "unverified": "not compared with anything yet" if model.sha256 is None else "measured, nothing to compare with",
        "wrong": "differs from what it should be",
    }
    known = model.complete or model.n_params > 0
    rows = [
        ("From", source_words(model.source) + (f", {model.repo}" if model.repo else "")),
        ("Licence", licence_words(model.licence) or "the file does not say"),
        ("Chat template", "its own" if model.has_template else "none in the file; one is chosen by its tokens"),
        ("SHA-256", f"{model.sha256[:16]}…, {hashes[model.hash_state]}" if model.sha256 else hashes[model.hash_state]),
        ("Last used", when(model.last_used_s, now)),
        ("Files", f"{len(model.files)} files" if len(model.files) > 1 else "one file"),
        ("Path", model.path),
    ]
    if not known:
        rows = [row for row in rows if row[0] not in ("Licence", "Chat template")]
    if model.mmproj:
        rows.insert(-1, ("Image part", ", ".join(_file_name(path) for path in model.mmproj)))
    if duplicates:
        rows.append(("Same file as", ", ".join(other.path for other in duplicates)))
    return rows


def _file_name(path: str) -> str:
    return path.replace("\\", "/").rpartition("/")[2]
