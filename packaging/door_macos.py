"""The packages for macOS: an application that is ready to be signed, and a disk image to drag it from.

An application may hold code only below Contents/Frameworks and Contents/MacOS, and data only below Contents/Resources;
with anything else the signature is refused. The frozen folder mixes both, so it is parted here, and links lead from
the places where the program looks to those where the files are.
"""

from __future__ import annotations

import os
import platform
import plistlib
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import door_env
import door_frozen
import door_icons
import door_linux_share as share
from door_steps import Place, StepError, run_logged, say

KINDS = ("app", "dmg")
TOOLS = ("dmgbuild==1.6.7", "ds_store==1.3.3", "mac_alias==2.2.3")
"""What makes the disk image; installed beside PyInstaller, on macOS only."""

NOTARY = "INGLENOOK_NOTARY_PROFILE"
MACHINES = {"arm64": "arm64", "aarch64": "arm64", "x86_64": "x64", "AMD64": "x64"}

_MACHO = {bytes.fromhex(magic) for magic in ("feedface", "feedfacf", "cefaedfe", "cffaedfe", "cafebabe", "cafebabf")}


def build(place: Place, frozen: Path, addons: Sequence[Path], only: str = "") -> list[Path]:
    """Make the application in `build/macos` and its disk image in `dist/`; returns what lies there. Raises StepError.

    `only`: one of `KINDS`. There are no add-ons on macOS: Metal is part of every Mac.
    """
    if only and only not in KINDS:
        raise StepError(f"there is no package of the kind {only!r} on macOS, but these: {', '.join(KINDS)}")
    if addons:
        raise StepError("there is no CUDA on macOS: leave --cuda out")
    app = application(place, frozen)
    own = place.root / "packaging" / "macos"
    run_logged(place, "signing the application", ["bash", own / "sign.sh", app], advice="codesign refused it")
    if only == "app":
        return []
    image = disk_image(place, app)
    if os.environ.get(NOTARY):
        run_logged(place, "notarizing", ["bash", own / "notarize.sh", image], advice="Apple's answer is in the log")
    else:
        say(f"not notarized: {NOTARY} names no profile (see packaging/release.md)")
    return [image]


# ------------------------------------------------------------------ the application


def application(place: Place, frozen: Path) -> Path:
    """Lay out `build/macos/Inglenook.app`. Raises StepError."""
    program = frozen / "inglenook"
    if not program.is_file() or not (frozen / "_internal").is_dir():
        raise StepError(f"{frozen} holds no program: run `dev.py package --only frozen` first")
    app = place.root / "build" / "macos" / "Inglenook.app"
    shutil.rmtree(app, ignore_errors=True)
    contents = app / "Contents"
    for name in ("MacOS", "Frameworks", "Resources"):
        (contents / name).mkdir(parents=True)
    shutil.copy2(program, contents / "MacOS" / "inglenook")
    part(frozen / "_internal", contents / "Frameworks", contents / "Resources")
    (contents / "Resources" / "inglenook.icns").write_bytes(door_icons.icns(place.root))
    shutil.copyfile(place.root / "LICENSE", contents / "Resources" / "LICENSE.txt")
    with (contents / "Info.plist").open("wb") as file:
        plistlib.dump(info(place.root), file)
    n_files, n_bytes = door_frozen.size(app)
    say(f"application: {app} ({n_files} files, {n_bytes / 2**20:.0f} MiB)")
    return app


def info(root: Path) -> dict[str, Any]:
    """What macOS reads of the application: the parts in packaging/macos, with this version."""
    with (root / "packaging" / "macos" / "Info.plist").open("rb") as file:
        found: dict[str, Any] = plistlib.load(file)
    version = share.version(root)
    return {**found, "CFBundleShortVersionString": version, "CFBundleVersion": version}


def part(source: Path, code: Path, data: Path) -> None:
    """Put the code of a folder into one place and all else into another, with links in the first to the second."""
    for entry in sorted(source.iterdir()):
        there = code / entry.name
        if entry.is_symlink():
            there.symlink_to(entry.readlink())
        elif entry.is_dir() and entry.suffix == ".framework":
            shutil.copytree(entry, there, symlinks=True)
        elif entry.is_dir() and holds_code(entry):
            # a folder with a dot in its name would be taken for a bundle
            real = code / entry.name.replace(".", "__dot__")
            real.mkdir()
            (data / entry.name).mkdir(exist_ok=True)
            part(entry, real, data / entry.name)
            if real != there:
                there.symlink_to(real.name)
            if not any((data / entry.name).iterdir()):
                (data / entry.name).rmdir()
        elif entry.is_dir():
            shutil.copytree(entry, data / entry.name, symlinks=True)
            there.symlink_to(os.path.relpath(data / entry.name, code))
        elif is_code(entry):
            shutil.copy2(entry, there)
        else:
            shutil.copy2(entry, data / entry.name)
            there.symlink_to(os.path.relpath(data / entry.name, code))


def is_code(path: Path) -> bool:
    """True for programs and libraries of macOS."""
    with path.open("rb") as file:
        return file.read(4) in _MACHO


def holds_code(folder: Path) -> bool:
    """True if code lies somewhere in a folder, or a link to such."""
    paths = [path for path in folder.rglob("*") if path.is_file() or path.is_symlink()]
    return any(path.is_symlink() or is_code(path) for path in paths)


# ------------------------------------------------------------------ the disk image


def disk_image(place: Place, app: Path) -> Path:
    """Make `inglenook-VERSION-macos-MACHINE.dmg`. Raises StepError."""
    machine = MACHINES.get(platform.machine(), platform.machine())
    target = place.root / "dist" / f"inglenook-{share.version(place.root)}-macos-{machine}.dmg"
    target.parent.mkdir(exist_ok=True)
    target.unlink(missing_ok=True)
    made = door_frozen.package_place(place)
    door_env.pip(made, "installing dmgbuild", ["--no-deps", *TOOLS])
    settings = place.root / "packaging" / "macos" / "dmg_settings.py"
    command: list[str | Path] = [made.python, "-m", "dmgbuild", "-s", settings]
    command += ["-D", f"app={app}", "-D", f"icon={app / 'Contents' / 'Resources' / 'inglenook.icns'}"]
    run_logged(place, "making the disk image", [*command, "Inglenook", target], advice="dmgbuild stopped")
    if not target.is_file():
        raise StepError("dmgbuild made no disk image: see the log")
    return target
