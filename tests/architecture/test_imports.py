"""The engine without Qt and without llama.cpp, at run time; and that the import rules speak of every module."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOREIGN = ("PySide6", "shiboken6", "llama_cpp")


def contract(name: str) -> dict[str, Any]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return next(item for item in settings["tool"]["importlinter"]["contracts"] if item["id"] == name)


def layers() -> list[list[str]]:
    """The engine's layers, high to low, each a list of modules."""
    return [re.findall(r"engine[\w.]*", layer) for layer in contract("engine-layers")["layers"]]


def child_side() -> set[str]:
    """Modules of the model process: the layer that holds its `__main__`."""
    return set(next(layer for layer in layers() if "engine.worker.__main__" in layer))


def engine_modules() -> list[str]:
    names = []
    for path in sorted((ROOT / "engine").rglob("*.py")):
        parts = list(path.relative_to(ROOT).with_suffix("").parts)
        names.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return names


def loaded_after_importing(modules: list[str]) -> dict[str, list[str]]:
    """Import modules one by one in a fresh interpreter; returns which module first brought in something foreign."""
    code = f"""
import importlib, json, sys
seen, brought = set(), {{}}
for name in {modules!r}:
    importlib.import_module(name)
    new = {{m.partition(".")[0] for m in sys.modules}} & set({FOREIGN!r}) - seen
    seen |= new
    if new:
        brought[name] = sorted(new)
print(json.dumps(brought))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, list[str]] = json.loads(done.stdout)
    return answer


def test_importing_the_engine_loads_no_qt_and_no_llama_cpp() -> None:
    child = child_side()
    modules = [name for name in engine_modules() if name not in child and not name.endswith("__main__")]
    assert len(modules) > 10
    assert loaded_after_importing(modules) == {}


def test_the_check_above_sees_llama_cpp() -> None:
    assert loaded_after_importing(["engine.errors", "engine.worker.devices"]) == {
        "engine.worker.devices": ["llama_cpp"]
    }


def test_every_module_of_the_engine_has_its_layer() -> None:
    placed = {name for layer in layers() for name in layer}
    packages = {name for name in engine_modules() if (ROOT / name.replace(".", "/")).is_dir()}
    lost = [
        name
        for name in engine_modules()
        if name not in packages and not any(name == place or name.startswith(f"{place}.") for place in placed)
    ]
    assert lost == [], "give these modules their place in the contract engine-layers of pyproject.toml"


def test_modules_of_the_model_process_are_protected() -> None:
    there = child_side() & set(engine_modules())
    rule = contract("child-alone")
    assert set(rule["protected_modules"]) == there, "make the contract child-alone of pyproject.toml name these"
    assert set(rule["allowed_importers"]) == there
