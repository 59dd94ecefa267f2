"""What of PyInstaller's folder is kept, and where it lies: Qt's parts, llama.cpp, the libraries of the system."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import door_elf
from door_steps import StepError, say

FALLBACK = "fallback"
"""Folder in `_internal` with libraries that a desktop has. They are taken from here only where the system lacks them:
graphics drivers are made for the system's own copies."""

QT_PLUGINS = {
    "platforms": ("xcb", "wayland", "offscreen", "windows", "cocoa"),
    "platforminputcontexts": ("composeplatforminputcontextplugin", "ibusplatforminputcontextplugin"),
    "platformthemes": ("xdgdesktopportal",),
    "imageformats": ("svg",),
    "iconengines": ("svgicon",),
    "wayland-shell-integration": ("xdg-shell",),
    "wayland-decoration-client": ("adwaita", "bradient"),
    "styles": ("modernwindowsstyle",),
}
"""Plugins that the window uses, without the `lib` and `q` before their names. None of those for OpenGL: nothing is
drawn with it, and they would load the graphics driver into the window's process."""

ALWAYS_THE_SYSTEMS = ("libstdc++.so.6", "libgcc_s.so.1", "libX", "libxcb", "libEGL", "libGL", "libwayland", "libdrm")

LLAMA_MODULE = re.compile(r"(?:lib)?ggml-(?:cpu|rpc|cuda|vulkan|metal|blas|opencl)(?:-[\w.]+?)?\.(?:so|dll|dylib)")
LLAMA_CORE = re.compile(
    r"(?:lib)?(?:llama|ggml|ggml-base|ggml-cpu|ggml-rpc|ggml-metal|ggml-blas)(?:\.\d+)?\.(?:dll|dylib)"
)


# ------------------------------------------------------------------ what is not used


def plugin_is_kept(kind: str, name: str) -> bool:
    """True for a file of a Qt plugin that the window uses."""
    stem = re.sub(r"^(?:lib)?", "", name.split(".")[0])
    return any(stem in (wanted, f"q{wanted}") for wanted in QT_PLUGINS.get(kind, ()))


def prune_qt(internal: Path) -> None:
    """Take away Qt's translations (the program speaks English), the plugins that nothing uses, and on Windows Mesa,
    which draws OpenGL without a GPU: nothing is drawn with OpenGL here."""
    for folder in _qt_folders(internal):
        (folder / "opengl32sw.dll").unlink(missing_ok=True)
        shutil.rmtree(folder / "translations", ignore_errors=True)
        for path in sorted((folder / "plugins").glob("*/*")):
            if not plugin_is_kept(path.parent.name, path.name):
                path.unlink()


def _qt_folders(internal: Path) -> list[Path]:
    return [folder for folder in (internal / "PySide6" / "Qt", internal / "PySide6") if (folder / "plugins").is_dir()]


def prune_python(internal: Path) -> None:
    """Take away what packages bring along for their developers."""
    for pattern in ("*/tests", "*/*/tests", "pyqtgraph/icons/peegee", "pyqtgraph/examples"):
        for path in sorted(internal.glob(pattern)):
            shutil.rmtree(path)
    for pattern in (
        "*.dist-info/RECORD",
        "*.dist-info/INSTALLER",
        "*.dist-info/REQUESTED",
        "*.dist-info/direct_url.json",
    ):
        for path in sorted(internal.glob(pattern)):
            path.unlink()
    for path in sorted(internal.rglob("*.pyi")):
        path.unlink()
    remove_empty_folders(internal)


def remove_empty_folders(top: Path) -> None:
    """Remove folders that hold nothing, also those that only held such."""
    for folder, _, _ in os.walk(top, topdown=False):
        path = Path(folder)
        if path != top and not any(path.iterdir()):
            path.rmdir()


# ------------------------------------------------------------------ llama.cpp


def llama_sources(site: Path) -> list[Path]:
    """Folders of an installed llama-cpp-python that hold libraries: its own first, then where modules are put."""
    folders = (site / "llama_cpp" / "lib", site / "llama_cpp" / "backends", site / "bin", site / "lib")
    return [folder for folder in folders if folder.is_dir()]


def lay_out_llama(site: Path, internal: Path, platform: str = sys.platform) -> list[str]:
    """Put llama.cpp's core libraries into `llama_cpp/lib` and its backend modules into `llama_cpp/backends`.

    Wheels hold no links, so each library lies in them three times; it is taken once, under the name by which it is
    needed. Returns the modules' names. Raises StepError where there is no llama.cpp.
    """
    core, backends = internal / "llama_cpp" / "lib", internal / "llama_cpp" / "backends"
    for folder in (core, backends):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    chosen = _linux_core(site) if platform.startswith("linux") else _other_core(site)
    for name, path in sorted(chosen.items()):
        shutil.copyfile(path, core / name)
    stems = {_stem(name) for name in chosen}
    modules: dict[str, Path] = {}
    for folder in llama_sources(site):
        for path in sorted(folder.iterdir()):
            if LLAMA_MODULE.fullmatch(path.name) and _stem(path.name) not in stems:
                modules.setdefault(path.name, path)
    for name, path in sorted(modules.items()):
        shutil.copyfile(path, backends / name)
    if not modules:
        backends.rmdir()
    for path in sorted(internal.glob("lib*")):  # links and copies that PyInstaller's search for dependencies left
        if _stem(path.name) in stems or LLAMA_MODULE.fullmatch(path.name):
            path.unlink()
    return sorted(modules)


def _stem(name: str) -> str:
    return re.sub(r"^lib", "", re.split(r"\.(?:so|dylib|dll|\d)", name, maxsplit=1)[0])


def _linux_core(site: Path) -> dict[str, Path]:
    lib = site / "llama_cpp" / "lib"
    top = lib / "libllama.so"
    if not top.is_file():
        raise StepError(f"{lib} holds no libllama.so: remove build/package-venv and run this again")
    chosen, left = {"libllama.so": top}, list(door_elf.read(top).needed)
    while left:
        name = left.pop()
        if name not in chosen and (lib / name).is_file():
            chosen[name] = lib / name
            left += door_elf.read(lib / name).needed
    return chosen


def _other_core(site: Path) -> dict[str, Path]:
    lib = site / "llama_cpp" / "lib"
    chosen = {path.name: path for path in sorted(lib.iterdir()) if LLAMA_CORE.fullmatch(path.name)}
    if not any("llama" in name for name in chosen):
        raise StepError(f"{lib} holds no llama library: remove build/package-venv and run this again")
    return chosen


# ------------------------------------------------------------------ libraries of the system (Linux)


def add_missing(internal: Path, find: Callable[[str], Path | None]) -> None:
    """Add what PyInstaller leaves to the system by habit, so that a system without a desktop can open a window too."""
    while True:
        found = door_elf.survey(internal)
        wanted = sorted({name for _, name in door_elf.unmet(found)})
        if not wanted:
            return
        for name in wanted:
            path = find(name)
            if path is None:
                raise StepError(f"the library {name} is not on this machine: install it and run this again")
            target = internal / FALLBACK / name
            target.parent.mkdir(exist_ok=True)
            shutil.copyfile(path, target)


def system_library(name: str) -> Path | None:
    """Where the dynamic loader of this machine has a library."""
    for program in ("/sbin/ldconfig", "/usr/sbin/ldconfig", "ldconfig"):
        try:
            answer = subprocess.run([program, "-p"], capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        machine = "x86-64" if os.uname().machine == "x86_64" else "AArch64"
        found = re.findall(rf"^\s*{re.escape(name)} \((.*)\) => (.+)$", answer.stdout, re.MULTILINE)
        for kind, path in found:
            if machine in kind:
                return Path(path)
    return None


def sort_libraries(internal: Path) -> list[str]:
    """Drop libraries that nothing needs any more, and move those that only the window needs to `fallback`.

    Returns the names in `fallback`: what an installed system is asked to have.
    """
    found = door_elf.survey(internal)
    folder, qt = internal / FALLBACK, internal / "PySide6" / "Qt" / "lib"
    gathered = {path for path in found if path.parent in (internal, folder, qt) and _is_library(path.name)}
    roots = [path for path in found if path not in gathered]
    kept = door_elf.reached(roots, found)
    window = [path for path in roots if path.is_relative_to(internal / "PySide6")]
    always = door_elf.reached([path for path in roots if path not in window], found)
    folder.mkdir(exist_ok=True)
    for path in sorted(gathered):
        if path not in kept:
            path.unlink()
        elif path.parent != qt:
            is_the_systems = path not in always or path.name.startswith(ALWAYS_THE_SYSTEMS)
            target = (folder if is_the_systems else internal) / path.name
            if target != path:
                path.rename(target)
    drop_dead_links(internal)
    return sorted(path.name for path in folder.iterdir())


def _is_library(name: str) -> bool:
    """True for what others need by its name: no module of Python, and not Python itself."""
    return ".so" in name and not name.startswith(("libpython", "_")) and not re.search(r"\.(?:cpython-|abi3\.so)", name)


def drop_dead_links(top: Path) -> None:
    """Remove links whose target is gone."""
    for path in sorted(top.rglob("*")):
        if path.is_symlink() and not path.exists():
            path.unlink()


def strip_debug(paths: Iterable[Path]) -> None:
    """Take debugging information away; what is left is the same for the same input."""
    for path in paths:
        if door_elf.is_elf(path):
            answer = subprocess.run(
                ["strip", "--strip-debug", "--enable-deterministic-archives", str(path)], check=False
            )
            if answer.returncode:
                say(f"  {path.name} keeps its debugging information")


def pythons_own(internal: Path) -> Iterator[Path]:
    """Python itself and its modules, which a Python built on the machine may have with debugging information."""
    yield from sorted(internal.glob("libpython*"))
    yield from sorted(internal.glob("python3.*/lib-dynload/*.so"))
    yield from sorted(internal.glob("llama_cpp/*/*.so*"))
