"""A fake checkout with a fake interpreter in its `.venv`, so that the door's steps run without making anything real."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "packaging"))

import door_backend  # noqa: E402
import door_env  # noqa: E402
import door_steps  # noqa: E402
import door_system  # noqa: E402
import door_verbs  # noqa: E402

FAKE_PYTHON = """#!{python}
import json, os, pathlib, sys, zipfile
here = pathlib.Path(__file__).resolve().parents[2]
with open(here / "calls.jsonl", "a") as calls:
    calls.write(json.dumps(sys.argv[1:]) + "\\n")
(here / "threads").write_text(os.environ.get("OMP_THREAD_LIMIT", "any"))
words = " ".join(sys.argv[1:])
answers = json.loads((here / "answers.json").read_text())
for needle, (code, output) in answers.items():
    if needle in words:
        print(output)
        sys.exit(code)
if " download " in words or " wheel " in words:
    folder = pathlib.Path(sys.argv[sys.argv.index("-d" if "-d" in sys.argv else "--wheel-dir") + 1])
    with zipfile.ZipFile(folder / "made-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("made/model.gguf", b"not the real one")
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> door_steps.Place:
    """A checkout with the door in it and nothing made yet; the machine lacks nothing and has no GPU."""
    root = tmp_path / "checkout"
    shutil.copytree(ROOT / "packaging", root / "packaging", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", root)
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM", "CMAKE_ARGS", "INGLENOOK_WHEEL_INDEX", "CI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(door_backend, "_nvidia_gpu", lambda: "")
    monkeypatch.setattr(door_backend, "_nvcc", lambda environ: "")
    monkeypatch.setattr(door_system, "loads", lambda name: True)
    monkeypatch.setattr(door_system, "has_compiler", lambda: True)
    monkeypatch.setattr(door_system, "has_venv", lambda: True)
    monkeypatch.setattr(door_system, "may_install", lambda: None)
    monkeypatch.setattr(door_system, "find_manager", lambda: "apt-get")
    made = door_steps.Place(root=root, cache=tmp_path / "cache")
    monkeypatch.setattr(door_verbs, "find_place", lambda: made)
    return made


@pytest.fixture
def fake_python(place: door_steps.Place) -> Callable[..., list[list[str]]]:
    """Puts a fake interpreter into `.venv`; call with `{words: (exit status, output)}`, get its calls so far."""
    place.bin.mkdir(parents=True)
    place.python.write_text(FAKE_PYTHON.format(python=sys.executable))
    place.python.chmod(0o755)
    (place.venv / "pyvenv.cfg").write_text(f"version = {sys.version_info[0]}.{sys.version_info[1]}.0\n")
    (place.root / "answers.json").write_text("{}")

    def answer(answers: dict[str, tuple[int, str]] | None = None) -> list[list[str]]:
        if answers is not None:
            (place.root / "answers.json").write_text(json.dumps(answers))
        calls = place.root / "calls.jsonl"
        return [json.loads(line) for line in calls.read_text().splitlines()] if calls.exists() else []

    return answer


@pytest.fixture
def ready(place: door_steps.Place, fake_python: Callable[..., list[list[str]]]) -> door_steps.Place:
    """A checkout that is set up: stamp, starter model and environment are there."""
    place.starter.parent.mkdir(parents=True)
    with place.starter.open("wb") as file:
        file.truncate(door_env.STARTER_BYTES)
    choice = door_backend.Choice("cpu", "")
    key = door_backend.wheel_key(door_env.read_constraints(place)[door_backend.PACKAGE], choice)
    stamp = {kind: door_env.fingerprint(place, choice, key, dev=dev) for kind, dev in (("run", False), ("dev", True))}
    door_steps.write_atomic(place.stamp, json.dumps(stamp))
    return place


@pytest.fixture
def checkout(place: door_steps.Place) -> door_steps.Place:
    """The checkout with what the packages of other systems read from it."""
    (place.root / "engine").mkdir()
    shutil.copy(ROOT / "engine" / "__init__.py", place.root / "engine")
    shutil.copy(ROOT / "LICENSE", place.root)
    return place
