"""Every part that comes with Inglenook is listed, with the text of its licence."""

from __future__ import annotations

import json
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import resources
from engine import licences
from engine.licences import Part

ROOT = Path(__file__).resolve().parents[2]


def test_every_part_has_a_text() -> None:
    found = licences.parts()
    assert found[0].name == "Inglenook"
    without = [part.name for part in found if len(licences.text(part)) < 300]
    assert without == []


def test_every_dependency_is_listed() -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    names = {licences.normal(part.name) for part in licences.parts()}
    assert {licences.normal(name) for name in wanted} <= names
    assert {"jeepney", "markupsafe"} <= names, "what they need in turn is listed too"
    assert not {"pytest", "ruff", "mypy"} & names


def test_our_own_licence_is_that_of_the_repository() -> None:
    assert resources.text("licenses/Apache-2.0.txt") == (ROOT / "LICENSE").read_text(encoding="utf-8")


def test_a_text_that_wheels_lack_is_added() -> None:
    qt = licences.of_distribution(metadata.distribution("PySide6_Essentials"))
    assert "GNU LESSER GENERAL PUBLIC LICENSE" in licences.text(qt)
    nvml = licences.of_distribution(metadata.distribution("nvidia-ml-py"))
    assert "Redistributions in binary form" in licences.text(nvml)
    assert "import" not in licences.text(nvml)


def test_what_is_compiled_into_a_package_is_named() -> None:
    words = licences.text(licences.of_distribution(metadata.distribution("cryptography")))
    assert "Compiled into it:" in words
    assert "pyo3 " in words


def test_the_list_of_a_packaged_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "licenses"
    folder.mkdir()
    (folder / "one.txt").write_text("the text of one\n", encoding="utf-8")
    (folder / "two.txt").write_text("und nöch einer\n", encoding="utf-8")
    listed = [Part("Öne", "1.0", "library", "MIT", ("one.txt", "two.txt"))]
    (folder / "parts.json").write_text(licences.as_json(listed), encoding="utf-8")
    monkeypatch.setattr(resources, "text", lambda name: (tmp_path / name).read_text(encoding="utf-8"))
    assert licences.parts() == listed
    assert licences.text(listed[0]).split("————") == ["the text of one\n\n", "\n\nund nöch einer"]
    (folder / "parts.json").write_text(json.dumps({"no": "list"})[:-3], encoding="utf-8")
    with pytest.raises(ValueError):
        licences.parts()
