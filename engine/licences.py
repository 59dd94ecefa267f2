"""What Inglenook is made of, and under which licences.

A packaged program has a list that was gathered when it was made (`resources/licenses/parts.json`, the texts beside it).
From source the same is read from the packages that are installed.
"""

from __future__ import annotations

import json
import platform
import re
import sysconfig
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import engine
import resources

FOLDER = "licenses"
LIST = f"{FOLDER}/parts.json"
TEXTS = f"{FOLDER}/texts"
_LICENCE_FILE = re.compile(r"(?:licen[cs]e|copying|notice)[^/]*", re.IGNORECASE)
_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_FILE = re.compile(r"[\w./-]+\.(?:txt|md)")
_LONGEST_NAME = 90
#: distributions whose wheels hold no text: files in `resources/licenses`
_TEXTS_HERE = {
    "pyside6-essentials": ("LGPL-3.0.txt", "GPL-3.0.txt"),
    "shiboken6": ("LGPL-3.0.txt", "GPL-3.0.txt"),
}
#: distributions whose text is the beginning of a source file
_TEXTS_IN_SOURCE = {"nvidia-ml-py": "pynvml.py"}


@dataclass(frozen=True)
class Part:
    """One part of others, or Inglenook itself.

    Attributes:
        kind: "program", "model", "font", "library", "Python package" or "system library".
        licence: as its makers say it, mostly an SPDX expression; "" where they only give a text.
        texts: names of files with the licences' texts, below `resources/licenses`; or the texts themselves, in what
            `installed` gives.
    """

    name: str
    version: str
    kind: str
    licence: str
    texts: tuple[str, ...] = ()


def parts() -> list[Part]:
    """All parts, ours first, then by kind and name. Reads files: not for the GUI thread.

    Raises:
        OSError, ValueError: the list is damaged.
    """
    try:
        listed = json.loads(resources.text(LIST))
    except FileNotFoundError:
        return [*own_parts(), *installed("inglenook")]
    return [_part(entry) for entry in listed]


def text(part: Part) -> str:
    """The texts of a part's licences. Reads files: not for the GUI thread."""
    found = [resources.text(f"{FOLDER}/{name}") if _FILE.fullmatch(name) else name for name in part.texts]
    return "\n\n————\n\n".join(one.strip() for one in found)


def _part(entry: dict[str, Any]) -> Part:
    return Part(**{**entry, "texts": tuple(entry["texts"])})


def as_json(found: Iterable[Part]) -> str:
    """The list as `parts` reads it."""
    return json.dumps([asdict(part) for part in found], indent=1, ensure_ascii=False) + "\n"


# ------------------------------------------------------------------ what is not a Python package


def own_parts() -> list[Part]:
    """Inglenook, and what comes with it without being a package."""
    return [
        Part("Inglenook", engine.__version__, "program", "Apache-2.0", ("Apache-2.0.txt",)),
        Part("SmolLM2-135M-Instruct by Hugging Face, Q4_1", "", "model", "Apache-2.0", ("Apache-2.0.txt",)),
        Part("JetBrains Mono", "", "font", "OFL-1.1", ("JetBrainsMono-OFL.txt",)),
        Part("Phosphor icons", "1.3.0", "font", "MIT", ("Phosphor.txt",)),
        Part("llama.cpp and ggml", _version("llama_cpp_python"), "library", "MIT", ("llama.cpp.txt",)),
        Part(
            "Qt", _version("PySide6_Essentials"), "library", "LGPL-3.0-only",
            ("Qt-parts.md", "Qt-parts-texts.md", "LGPL-3.0.txt", "GPL-3.0.txt"),
        ),
        Part("Python", platform.python_version(), "program", "PSF-2.0", _pythons_text()),
    ]  # fmt: skip


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def _pythons_text() -> tuple[str, ...]:
    library = Path(sysconfig.get_path("stdlib"))
    for name in (library / "LICENSE.txt", library.parent.parent / "LICENSE.txt", library.parent / "LICENSE.txt"):
        try:
            return (name.read_text(encoding="utf-8", errors="replace"),)
        except OSError:
            continue
    return ()


# ------------------------------------------------------------------ Python packages


def installed(root: str) -> list[Part]:
    """The packages that a package needs, as they are installed here; not itself."""
    names = needed_by(root)
    return [of_distribution(metadata.distribution(name)) for name in sorted(names)]


def needed_by(root: str) -> set[str]:
    """Names of the installed packages that a package needs, directly or not; its extras are left out."""
    found: set[str] = set()
    left = [root]
    while left:
        try:
            requirements = metadata.requires(left.pop()) or []
        except metadata.PackageNotFoundError:
            continue
        for requirement in requirements:
            name, _, marker = requirement.partition(";")
            match = _REQUIREMENT.match(name)
            if match is None or "extra" in marker:
                continue
            plain = normal(match[0])
            if plain not in found and _version(plain):
                found.add(plain)
                left.append(plain)
    return found


def normal(name: str) -> str:
    """A package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def of_distribution(found: metadata.Distribution) -> Part:
    """What a package says of its licence, with the texts that lie beside it."""
    name = found.metadata["Name"]
    texts: list[str] = list(_TEXTS_HERE.get(normal(name), ()))
    for path in found.files or ():
        source = _TEXTS_IN_SOURCE.get(normal(name))
        inside = path.parts[0].endswith(".dist-info")
        if source == str(path):
            texts.append(_head(_read(found, path)))
        elif inside and _LICENCE_FILE.fullmatch(path.name) and path.suffix not in (".py", ".json"):
            texts.append(_read(found, path))
        elif inside and "sboms" in path.parts and path.suffix == ".json":
            texts += _compiled_in(_read(found, path))
    unique = tuple(dict.fromkeys(one.strip() for one in texts if one.strip()))
    return Part(name, found.version, "Python package", licence_of(found), unique)


def licence_of(found: metadata.Distribution) -> str:
    """The short name of a package's licence."""
    about = found.metadata
    for field in ("License-Expression", "License"):
        value = " ".join((about.get_all(field) or [""])[0].split())
        if value and value.upper() != "UNKNOWN" and len(value) <= _LONGEST_NAME:
            return value
    classes = [line.split(" :: ")[-1] for line in about.get_all("Classifier") or () if line.startswith("License :: ")]
    return ", ".join(one for one in classes if one != "OSI Approved")


def _read(found: metadata.Distribution, path: metadata.PackagePath) -> str:
    try:
        return Path(str(found.locate_file(path))).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _head(source: str) -> str:
    """The comment that a source file begins with."""
    lines = []
    for line in source.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("#").removeprefix(" "))
    return "\n".join(lines)


def _compiled_in(bill: str) -> list[str]:
    """The libraries that a package's own bill of materials names, a line for each."""
    try:
        components = json.loads(bill)["components"]
        lines = [f"{one['name']} {one.get('version', '')} — {_licences(one)}" for one in components]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []
    return ["Compiled into it:\n" + "\n".join(lines)] if lines else []


def _licences(component: dict[str, Any]) -> str:
    words = []
    for entry in component.get("licenses", ()):
        licence = entry.get("license", {})
        words.append(entry.get("expression") or licence.get("id") or licence.get("name") or "")
    return ", ".join(word for word in words if word) or "see its project"
