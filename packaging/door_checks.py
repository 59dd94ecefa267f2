"""What `check` runs: tools, and the documents against the tree that they speak of."""

from __future__ import annotations

import re
from pathlib import Path

from door_steps import Place

DOCUMENTS = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "DECISIONS.md", "LICENSE")
VERBS = ("run", "test", "check", "fix", "package")


def commands(place: Place) -> list[tuple[str, list[str | Path]]]:
    """The tools, each with its name and its command."""
    python = place.python
    return [
        ("formatting (ruff format)", [python, "-m", "ruff", "format", "--check", "."]),
        ("lint (ruff check)", [python, "-m", "ruff", "check", "."]),
        ("types (mypy)", [python, "-m", "mypy"]),
        (
            "types of the door (mypy)",
            [python, "-m", "mypy", "--strict", *sorted((place.root / "packaging").glob("door_*.py"))],
        ),
        ("imports (lint-imports)", [place.script("lint-imports")]),
    ]


def documents(root: Path) -> list[str]:
    """Say what is wrong with the documents: missing ones, dead links, commands and paths that do not exist."""
    troubles: list[str] = []
    for name in DOCUMENTS:
        path = root / name
        if not path.is_file():
            troubles.append(f"{name}: missing")
        elif path.suffix == ".md":
            troubles += [f"{name}: {trouble}" for trouble in document(root, path.read_text(encoding="utf-8"))]
    return troubles


def document(root: Path, text: str) -> list[str]:
    """Troubles of one Markdown text whose links and paths are relative to `root`."""
    troubles: list[str] = []
    anchors = {anchor(title) for title in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}
    for target in re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r"(?:src|href)=\"([^\"]+)\"", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, part = target.partition("#")
        if path and not (root / path).exists():
            troubles.append(f"the link {target} leads nowhere")
        elif not path and part not in anchors:
            troubles.append(f"the link #{part} names no heading")
    for script, verb in re.findall(r"python3? (packaging/\S+\.py)(?: ([a-z]+))?", text):
        if not (root / script).is_file():
            troubles.append(f"the command names {script}, which does not exist")
        elif script == "packaging/dev.py" and verb and verb not in VERBS:
            troubles.append(f"dev.py has no verb {verb}")
    paths = re.findall(r"`((?:desktop|engine|resources|tests|packaging)/[\w./-]*)`", text)
    return troubles + [f"{path} does not exist" for path in paths if not (root / path).exists()]


def anchor(title: str) -> str:
    """The name that a heading is linked by."""
    kept = re.sub(r"[^\w\- ]", "", title.strip().lower())
    return kept.replace(" ", "-")
