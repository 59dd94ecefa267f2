"""What the machine itself must bring: the venv module, a C++ compiler, the libraries that Qt loads.

Everything that lacks is gathered first, so that there is one command to run, not one after the other.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from door_steps import Place, StepError, run_logged, say

MANAGERS = ("apt-get", "dnf", "zypper", "pacman")
"""Package managers in the order they are looked for; the columns of `PACKAGES`."""

PACKAGES: Mapping[str, tuple[str, str, str, str]] = {
    "venv": ("python3-venv", "python3", "python3", "python"),
    "c++": ("build-essential", "gcc-c++ make", "gcc-c++ make", "base-devel"),
    "vulkan": (
        "libvulkan-dev glslc spirv-headers",
        "vulkan-devel glslc spirv-headers-devel",
        "vulkan-devel shaderc spirv-headers",
        "vulkan-headers vulkan-icd-loader shaderc spirv-headers",
    ),
    # Needed by QtGui whatever the platform plugin, so also without a display.
    "libEGL.so.1": ("libegl1", "libglvnd-egl", "libEGL1", "libglvnd"),
    "libGL.so.1": ("libgl1", "libglvnd-glx", "libGL1", "libglvnd"),
    "libxkbcommon.so.0": ("libxkbcommon0", "libxkbcommon", "libxkbcommon0", "libxkbcommon"),
    "libdbus-1.so.3": ("libdbus-1-3", "dbus-libs", "libdbus-1-3", "dbus"),
    "libfontconfig.so.1": ("libfontconfig1", "fontconfig", "fontconfig", "fontconfig"),
    "libfreetype.so.6": ("libfreetype6", "freetype", "libfreetype6", "freetype2"),
    "libglib-2.0.so.0": ("libglib2.0-0", "glib2", "libglib-2_0-0", "glib2"),
    "libgthread-2.0.so.0": ("libglib2.0-0", "glib2", "libgthread-2_0-0", "glib2"),
    "libX11.so.6": ("libx11-6", "libX11", "libX11-6", "libx11"),
    "libz.so.1": ("zlib1g", "zlib", "libz1", "zlib"),
    "libzstd.so.1": ("libzstd1", "libzstd", "libzstd1", "zstd"),
    # Needed by the X11 platform plugin.
    "libX11-xcb.so.1": ("libx11-xcb1", "libX11-xcb", "libX11-xcb1", "libx11"),
    "libxcb.so.1": ("libxcb1", "libxcb", "libxcb1", "libxcb"),
    "libxcb-cursor.so.0": ("libxcb-cursor0", "xcb-util-cursor", "libxcb-cursor0", "xcb-util-cursor"),
    "libxcb-icccm.so.4": ("libxcb-icccm4", "xcb-util-wm", "libxcb-icccm4", "xcb-util-wm"),
    "libxcb-image.so.0": ("libxcb-image0", "xcb-util-image", "libxcb-image0", "xcb-util-image"),
    "libxcb-keysyms.so.1": ("libxcb-keysyms1", "xcb-util-keysyms", "libxcb-keysyms1", "xcb-util-keysyms"),
    "libxcb-randr.so.0": ("libxcb-randr0", "libxcb", "libxcb-randr0", "libxcb"),
    "libxcb-render.so.0": ("libxcb-render0", "libxcb", "libxcb-render0", "libxcb"),
    "libxcb-render-util.so.0": (
        "libxcb-render-util0",
        "xcb-util-renderutil",
        "libxcb-render-util0",
        "xcb-util-renderutil",
    ),
    "libxcb-shape.so.0": ("libxcb-shape0", "libxcb", "libxcb-shape0", "libxcb"),
    "libxcb-shm.so.0": ("libxcb-shm0", "libxcb", "libxcb-shm0", "libxcb"),
    "libxcb-sync.so.1": ("libxcb-sync1", "libxcb", "libxcb-sync1", "libxcb"),
    "libxcb-util.so.1": ("libxcb-util1", "xcb-util", "libxcb-util1", "xcb-util"),
    "libxcb-xfixes.so.0": ("libxcb-xfixes0", "libxcb", "libxcb-xfixes0", "libxcb"),
    "libxcb-xkb.so.1": ("libxcb-xkb1", "libxcb", "libxcb-xkb1", "libxcb"),
    "libxkbcommon-x11.so.0": ("libxkbcommon-x11-0", "libxkbcommon-x11", "libxkbcommon-x11-0", "libxkbcommon-x11"),
    # Needed by the Wayland platform plugin.
    "libwayland-client.so.0": ("libwayland-client0", "libwayland-client", "libwayland-client0", "wayland"),
    "libwayland-cursor.so.0": ("libwayland-cursor0", "libwayland-cursor", "libwayland-cursor0", "wayland"),
}

X11_ONLY = frozenset(
    name
    for name in PACKAGES
    if name.startswith("libxcb")
    or name
    in {
        "libX11-xcb.so.1",
        "libxkbcommon-x11.so.0",
    }
)
WAYLAND_ONLY = frozenset({"libwayland-client.so.0", "libwayland-cursor.so.0"})
BASE = tuple(name for name in PACKAGES if name.startswith("lib") and name not in X11_ONLY and name not in WAYLAND_ONLY)


@dataclass(frozen=True)
class Display:
    """Whether a window can be shown; `platform` is what Qt will use: x11, wayland, native, named or none."""

    platform: str

    @property
    def exists(self) -> bool:
        return self.platform != "none"


def find_display(environ: Mapping[str, str], platform: str = sys.platform) -> Display:
    """Say where a window would go. A `QT_QPA_PLATFORM` in the environment is taken at its word."""
    named = environ.get("QT_QPA_PLATFORM", "")
    if platform in {"win32", "darwin"}:
        return Display("native")
    if named.startswith("xcb"):
        return Display("x11")
    if named.startswith("wayland"):
        return Display("wayland")
    if named:
        return Display("named")
    if environ.get("WAYLAND_DISPLAY"):
        return Display("wayland")
    return Display("x11" if environ.get("DISPLAY") else "none")


def loads(name: str) -> bool:
    """True if the dynamic loader finds a shared library."""
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def missing_libraries(
    display: Display, *, platform: str | None = None, present: Callable[[str], bool] | None = None
) -> list[str]:
    """Shared libraries that Qt needs for this display and the machine does not have; only Linux lacks any."""
    if not (platform or sys.platform).startswith("linux"):
        return []
    present = present or loads
    wanted = list(BASE)
    if display.platform == "x11":
        wanted += sorted(X11_ONLY)
    if display.platform == "wayland":
        wanted += sorted(WAYLAND_ONLY)
    return [name for name in wanted if not present(name)]


def has_venv() -> bool:
    """True if this Python can make an environment with pip in it (Debian splits that off)."""
    return all(importlib.util.find_spec(name) is not None for name in ("venv", "ensurepip"))


def has_compiler(environ: Mapping[str, str] = os.environ, platform: str = sys.platform) -> bool:
    """True if a C++ compiler is at hand."""
    named = environ.get("CXX", "").split()
    names = [named[0]] if named else ["c++", "g++", "clang++"]
    if platform == "win32":
        names += ["cl", "clang-cl"]
        programs = Path(environ.get("ProgramFiles(x86)", "C:/Program Files (x86)"))
        if (programs / "Microsoft Visual Studio" / "Installer" / "vswhere.exe").exists():
            return True
    if platform == "darwin":
        # /usr/bin/c++ is always there and may only be a stub that asks to install the tools.
        xcode = shutil.which("xcode-select")
        if xcode and subprocess.run([xcode, "-p"], capture_output=True, check=False).returncode:
            return False
    return any(shutil.which(name) for name in names)


def install_command(missing: Iterable[str], manager: str | None, platform: str = sys.platform) -> str:
    """The one command that installs what is missing, for a person to run."""
    if platform == "darwin":
        return "xcode-select --install"
    if platform == "win32":
        return (
            "winget install Microsoft.VisualStudio.2022.BuildTools --override "
            '"--passive --add Microsoft.VisualStudio.Workload.VCTools --includeRecommended"'
        )
    if manager is None:
        return f"your package manager, for: {' '.join(sorted(missing))}"
    names = package_names(missing, manager)
    verbs = {"apt-get": "install -y", "dnf": "install -y", "zypper": "install -y", "pacman": "-S --needed"}
    return f"sudo {manager} {verbs[manager]} {' '.join(names)}"


def package_names(missing: Iterable[str], manager: str) -> list[str]:
    """Names of a package manager's packages for what is missing, each once."""
    column = MANAGERS.index(manager)
    names: dict[str, None] = {}
    for item in missing:
        for name in PACKAGES[item][column].split():
            names[name] = None
    if manager == "apt-get" and "python3-venv" in names and sys.version_info[:2] != (3, 0):
        # A Python beside the distribution's default one has its venv module in a package of its own.
        own = f"python3.{sys.version_info[1]}-venv"
        names = {own if name == "python3-venv" else name: None for name in names}
    return list(names)


def spoken(missing: Iterable[str]) -> str:
    """What is missing, in words."""
    words = {"venv": "Python's venv module", "c++": "a C++ compiler", "vulkan": "Vulkan's development files"}
    return ", ".join(words.get(name, name) for name in missing)


def find_manager() -> str | None:
    """The package manager of this Linux machine, if it is one that we know."""
    return next((name for name in MANAGERS if shutil.which(name)), None)


def may_install(environ: Mapping[str, str] = os.environ) -> list[str] | None:
    """Words to put before a package manager's command if we may use it unasked: none as root, sudo in CI; else None."""
    if not sys.platform.startswith("linux"):
        return None
    if os.geteuid() == 0:
        return []
    if environ.get("CI") and shutil.which("sudo"):
        free = subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False, stdin=subprocess.DEVNULL)
        return None if free.returncode else ["sudo", "-n"]
    return None


def provide(place: Place, missing: list[str], still_missing: Callable[[], list[str]]) -> None:
    """Install what the machine lacks where we may; else raise StepError with the one command for it."""
    if not missing:
        return
    manager = find_manager() if sys.platform.startswith("linux") else None
    command = install_command(missing, manager)
    before = may_install()
    if manager is None or before is None:
        raise StepError(f"missing on this machine: {spoken(missing)}; run: {command}")
    names = package_names(missing, manager)
    say(f"installing system packages with {manager}: {' '.join(names)}")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    steps = {
        "apt-get": [["update", "-q"], ["install", "-y", "-q", "--no-install-recommends", *names]],
        "dnf": [["install", "-y", *names]],
        "zypper": [["--non-interactive", "install", *names]],
        "pacman": [["-Sy", "--noconfirm", "--needed", *names]],
    }[manager]
    for step in steps:
        advice = f"run it yourself to see why: {command}"
        run_logged(place, f"{manager} {step[0]}", [*before, manager, *step], env=env, advice=advice)
    left = still_missing()
    if left:
        raise StepError(f"still missing after installing {' '.join(names)}: {spoken(left)}; run: {command}")
