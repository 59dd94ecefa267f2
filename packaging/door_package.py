"""`dev.py package`: what this operating system installs, made step by step in `dist/`."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import door_env
import door_frozen
from door_steps import Place, StepError, say, write_atomic

SYSTEMS = {"linux": "linux", "win32": "windows", "darwin": "macos"}
SUMS = "SHA256SUMS"


def add_options(verb: argparse.ArgumentParser) -> None:
    """Add the options of `dev.py package` to its parser."""
    verb.add_argument("--cuda", action="store_true", help="make the add-on for NVIDIA GPUs too (needs nvcc)")
    verb.add_argument(
        "--only",
        metavar="PART",
        default="",
        help="make one part only: frozen (the folder of the program), or a kind of package, such as deb or tar",
    )
    verb.add_argument(
        "--keep-frozen",
        action="store_true",
        help="take build/frozen as it is, where it is whole; for work on what comes after it",
    )


def step(module: str, name: str) -> Callable[..., Any]:
    """A step's function. Raises StepError where this checkout has none of that name."""
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        raise StepError(f"this checkout cannot do that: {module}.{name} is missing") from None
    return found


def package(place: Place, options: argparse.Namespace) -> int:
    """Make the packages of this system. Raises StepError."""
    system = SYSTEMS.get(sys.platform)
    if system is None:
        raise StepError(f"there are no packages for {sys.platform}: they are made on Linux, Windows and macOS")
    frozen = frozen_program(place, keep=options.keep_frozen)
    if options.only == "frozen":
        return 0
    addons: list[Path] = []
    if options.cuda:
        addons.append(step("door_cuda", "build")(place))
    wanted = {"only": options.only} if options.only else {}
    made: list[Path] = step(f"door_{system}", "build")(place, frozen, addons, **wanted)
    made += bills(place)
    dist = place.root / "dist"
    sums = write_sums(dist, made)
    for path in [*made, sums]:
        say(f"made {path.relative_to(place.root)} ({path.stat().st_size / 2**20:.1f} MiB)")
    return 0


def frozen_program(place: Place, *, keep: bool) -> Path:
    """The frozen program, tested; made unless `keep` is set and it is whole."""
    made = door_frozen.package_place(place)
    if keep and door_frozen.is_whole(made.frozen):
        say(f"taking {made.frozen} as it is")
        return made.frozen
    frozen = door_frozen.build(place, step("door_native", "portable_wheel")(place))
    door_frozen.self_test(frozen)
    return frozen


def bills(place: Place) -> list[Path]:
    """The list of all parts (CycloneDX), copied beside the packages."""
    source = place.root / "build" / "frozen" / door_frozen.BILL
    target = place.root / "dist" / source.name
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(source.read_bytes())
    return [target]


def write_sums(dist: Path, made: Sequence[Path]) -> Path:
    """Write the SHA-256 of what was made, as `sha256sum -c` reads it."""
    lines = [f"{door_env.sha256(path)}  {path.relative_to(dist).as_posix()}\n" for path in sorted(made)]
    write_atomic(dist / SUMS, "".join(lines))
    return dist / SUMS
