"""The packages for Windows: an installer for one user, an archive to unpack, and the add-on for NVIDIA GPUs.

The installer is compiled by NSIS, which runs on Linux too; so all but the frozen program itself can be tried there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import door_frozen
import door_icons
import door_linux_share as share
import door_pe
from door_steps import Place, StepError, run_logged, say, write_atomic

KINDS = ("installer", "zip")
PROGRAMS = {"inglenook.exe": 2, "inglenook-cli.exe": 3}
"""The programs and their subsystems: one with windows, one with a console for terminals and the model process."""

SIGN = "INGLENOOK_SIGN"
"""Names a command that signs the file which is its last argument; without it nothing is signed."""

RUNTIME = re.compile(r"(?:msvcp140(?:_\w+)?|vcruntime140(?:_\w+)?|concrt140|vcomp140)\.dll", re.IGNORECASE)
"""Libraries of the C++ compiler that Windows lacks and that may be passed on with a program."""

SYSTEM = re.compile(
    r"(?:api-ms-win-|ext-ms-)[\w-]+\.dll|ucrtbase\.dll|(?:"
    r"advapi32|authz|bcrypt|bcryptprimitives|cfgmgr32|combase|comctl32|comdlg32|crypt32|cryptsp|d2d1|d3d9|d3d11|d3d12|"
    r"dbghelp|dcomp|dnsapi|dwmapi|dwrite|dxgi|gdi32|imm32|iphlpapi|kernel32|kernelbase|mpr|msvcrt|ncrypt|netapi32|"
    r"normaliz|ntdll|ole32|oleacc|oleaut32|opengl32|pdh|powrprof|propsys|psapi|rpcrt4|secur32|setupapi|shcore|shell32|"
    r"shlwapi|uiautomationcore|urlmon|user32|userenv|usp10|uxtheme|version|wer|windowscodecs|winhttp|winmm|winspool|"
    r"wintrust|wldap32|ws2_32|wsock32|wtsapi32|nvcuda|vulkan-1|nvml"
    r")\.(?:dll|drv)",
    re.IGNORECASE,
)
"""Libraries of Windows itself, and of drivers: a package neither has nor needs them."""


def build(place: Place, frozen: Path, addons: Sequence[Path], only: str = "") -> list[Path]:
    """Make the packages of `frozen` and of the add-ons in `dist/`; returns their paths. Raises StepError.

    `only`: one of `KINDS`.
    """
    if only and only not in KINDS:
        raise StepError(f"there is no package of the kind {only!r} on Windows, but these: {', '.join(KINDS)}")
    check_programs(frozen)
    for line in complete(frozen, runtime_folders(os.environ)):
        say(f"  {line}")
    for name in PROGRAMS:
        sign(place, frozen / name)
    made: list[Path] = []
    if only in ("", "installer"):
        made.append(installer(place, frozen))
        made += [addon_installer(place, addon) for addon in addons]
    if only in ("", "zip"):
        made.append(archive(place, frozen, door_frozen.source_date(place.root)))
    return made


# ------------------------------------------------------------------ the programs


def exe_options(root: Path) -> dict[str, str]:
    """What PyInstaller gives both programs: icon, manifest, version. Called by app.spec; files go to build/windows."""
    folder = root / "build" / "windows"
    folder.mkdir(parents=True, exist_ok=True)
    icon, words = folder / "inglenook.ico", folder / "version.txt"
    icon.write_bytes(door_icons.ico(root))
    write_atomic(words, version_resource(share.version(root)))
    manifest = root / "packaging" / "windows" / "inglenook.manifest"
    return {"icon": str(icon), "manifest": manifest.read_text("utf-8"), "version": str(words)}


def version4(version: str) -> str:
    """A version as Windows has it, four numbers: "0.2.0rc1" becomes "0.2.0.0"."""
    numbers = re.match(r"\d+(?:\.\d+){0,3}", version)
    if numbers is None:
        raise StepError(f"{version!r} is no version")
    parts = numbers[0].split(".")
    return ".".join([*parts, *["0"] * (4 - len(parts))])


def version_resource(version: str) -> str:
    """The file with version words that PyInstaller reads."""
    four = ", ".join(version4(version).split("."))
    strings = {
        "CompanyName": "The Inglenook authors",
        "FileDescription": "Inglenook",
        "FileVersion": version,
        "InternalName": "inglenook",
        "LegalCopyright": "The Inglenook authors, Apache License 2.0",
        "ProductName": "Inglenook",
        "ProductVersion": version,
    }
    rows = ", ".join(f"StringStruct({name!r}, {words!r})" for name, words in strings.items())
    return (
        "VSVersionInfo(\n"
        f"  ffi=FixedFileInfo(filevers=({four}), prodvers=({four}), mask=0x3F, flags=0, OS=0x40004, fileType=1),\n"
        f"  kids=[StringFileInfo([StringTable('040904B0', [{rows}])]),\n"
        "        VarFileInfo([VarStruct('Translation', [1033, 1200])])],\n"
        ")\n"
    )


def check_programs(frozen: Path) -> None:
    """See that both programs are there, of the right kind, and aware of long paths. Raises StepError."""
    for name, subsystem in PROGRAMS.items():
        path = frozen / name
        try:
            found = door_pe.read(path)
        except (OSError, door_pe.NotPe) as error:
            raise StepError(f"{path} is no program of Windows ({error}): freeze it again") from None
        if found.subsystem != subsystem:
            kind = "a program with windows" if subsystem == 2 else "a program with a console"
            raise StepError(f"{name} has to be {kind}: see the EXE parts of packaging/app.spec")
        if b"longPathAware" not in path.read_bytes():
            raise StepError(f"{name} lacks the manifest for long paths: see packaging/windows/inglenook.manifest")


# ------------------------------------------------------------------ libraries


def unmet(frozen: Path) -> dict[str, list[str]]:
    """Libraries that are needed, and neither in the folder nor part of Windows: name, and by whom."""
    images = [path for path in sorted(frozen.rglob("*")) if path.suffix.lower() in (".exe", ".dll", ".pyd")]
    have = {path.name.lower() for path in images}
    missing: dict[str, list[str]] = {}
    for path in images:
        try:
            needs = door_pe.read(path).needs
        except door_pe.NotPe as error:
            raise StepError(f"{path.relative_to(frozen)} cannot be read: {error}") from None
        for name in needs:
            if name.lower() not in have and SYSTEM.fullmatch(name) is None:
                missing.setdefault(name.lower(), []).append(path.relative_to(frozen).as_posix())
    return missing


def complete(frozen: Path, folders: Sequence[Path]) -> list[str]:
    """Add the libraries of the C++ compiler that the program needs; returns lines for people. Raises StepError."""
    lines = []
    for name, users in unmet(frozen).items():
        source = next((folder / name for folder in folders if (folder / name).is_file()), None)
        if RUNTIME.fullmatch(name) is None or source is None:
            raise StepError(f"libraries are missing from the frozen program: {users[0]} needs {name}")
        shutil.copyfile(source, frozen / "_internal" / name)
        lines.append(f"{name} comes from {source.parent}")
    rest = unmet(frozen)
    if rest:
        return [*lines, *complete(frozen, folders)]
    return lines


def runtime_folders(environ: Mapping[str, str]) -> list[Path]:
    """Where the compiler's libraries lie that may be passed on: of the active Visual Studio, or the newest one."""
    redist = Path(environ.get("VCToolsRedistDir", "")) if environ.get("VCToolsRedistDir") else None
    found = sorted((redist / "x64").glob("Microsoft.VC*")) if redist else []
    for variable in ("ProgramFiles", "ProgramFiles(x86)"):
        if environ.get(variable):
            studio = Path(environ[variable]) / "Microsoft Visual Studio"
            found += sorted(studio.glob("*/*/VC/Redist/MSVC/*/x64/Microsoft.VC*"), reverse=True)
    if environ.get("SystemRoot"):
        found.append(Path(environ["SystemRoot"]) / "System32")
    return found


# ------------------------------------------------------------------ packages


def find_makensis(environ: Mapping[str, str] = os.environ, which: Callable[[str], str | None] = shutil.which) -> str:
    """The compiler of installers. Raises StepError."""
    found = which("makensis")
    if found:
        return found
    for variable in ("ProgramFiles(x86)", "ProgramFiles"):
        path = Path(environ.get(variable) or "nowhere") / "NSIS" / "makensis.exe"
        if path.is_file():
            return str(path)
    hint = "choco install nsis" if sys.platform == "win32" else "sudo apt install nsis"
    raise StepError(f"NSIS is not installed, which makes the installer: {hint}")


def installer(place: Place, frozen: Path, *, trial: bool = False) -> Path:
    """Compile `inglenook-VERSION-windows-x64.exe`. Raises StepError.

    `trial`: one that also runs where there is no real Windows, and no 32-bit one.
    """
    version = share.version(place.root)
    target = place.root / "dist" / f"inglenook-{version}-windows-x64.exe"
    size_kib = -(-door_frozen.size(frozen)[1] // 1024)
    extra = {"FROZEN": frozen.as_posix(), "SIZE_KIB": str(size_kib), "LICENSE": (place.root / "LICENSE").as_posix()}
    if trial:
        extra |= {"CHECK_SYSTEM": "0", "TARGET": "amd64-unicode"}
    if os.environ.get(SIGN):
        extra["SIGN"] = os.environ[SIGN]
    return compile_script(place, "installer.nsi", target, version, extra)


def addon_installer(place: Place, addon: Path) -> Path:
    """Compile the installer of an add-on. Raises StepError."""
    version = share.version(place.root)
    target = place.root / "dist" / f"inglenook-{addon.name}-{version}-windows-x64.exe"
    return compile_script(place, "addon.nsi", target, version, {"ADDON": addon.as_posix(), "FOLDER": addon.name})


def compile_script(place: Place, script: str, target: Path, version: str, extra: Mapping[str, str]) -> Path:
    """Run NSIS with these definitions, and sign what it makes. Raises StepError."""
    icon = place.root / "build" / "windows" / "inglenook.ico"
    icon.parent.mkdir(parents=True, exist_ok=True)
    icon.write_bytes(door_icons.ico(place.root))
    target.parent.mkdir(exist_ok=True)
    defined = {
        "VERSION": version,
        "VERSION4": version4(version),
        "ICON": icon.as_posix(),
        "OUT": target.as_posix(),
        **extra,
    }
    command = [find_makensis(), "-V3", "-WX", "-NOCD", "-INPUTCHARSET", "UTF8"]
    command += [f"-D{name}={value}" for name, value in defined.items()]
    command.append(str(place.root / "packaging" / "windows" / script))
    env = {**os.environ, "SOURCE_DATE_EPOCH": str(door_frozen.source_date(place.root))}
    run_logged(place, f"packing {target.name}", command, env=env, advice="NSIS stopped; its last lines are in the log")
    sign(place, target)
    return target


def archive(place: Place, frozen: Path, date: int) -> Path:
    """Pack the folder as it is, for those who may install nothing; the same files give the same bytes."""
    name = f"inglenook-{share.version(place.root)}-windows-x64"
    target = place.root / "dist" / f"{name}.zip"
    target.parent.mkdir(exist_ok=True)
    when = time.gmtime(max(date, 315_532_800))[:6]
    fresh = target.with_name(f"{target.name}.part")
    with zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        files = [path for path in frozen.rglob("*") if path.is_file()]
        pairs = [(path.relative_to(frozen).as_posix(), path) for path in files]
        for inside, path in sorted([*pairs, ("LICENSE.txt", place.root / "LICENSE")]):
            item = zipfile.ZipInfo(f"{name}/{inside}", when)
            item.compress_type, item.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            with path.open("rb") as source, packed.open(item, "w", force_zip64=True) as sink:
                shutil.copyfileobj(source, sink, 1 << 20)
    fresh.replace(target)
    return target


def sign(place: Place, path: Path) -> None:
    """Sign a file where `INGLENOOK_SIGN` says how. Raises StepError."""
    command = os.environ.get(SIGN, "")
    if not command:
        return
    words = f'{command} "{path}"'
    say(f"signing {path.name}")
    done = subprocess.run(words, shell=True, cwd=place.root, check=False)
    if done.returncode:
        raise StepError(f"signing {path.name} failed ({done.returncode}): look at {SIGN}")
