"""Can a window open here? Qt ends the whole process when it cannot, so this is asked before Qt is started."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from pathlib import Path

from engine import frozen

#: platforms that need no screen
_SCREENLESS = ("offscreen", "minimal", "vnc", "eglfs", "linuxfb")
_XCB_HINT = (
    "On Debian or Ubuntu: sudo apt-get install libxcb-cursor0 libxcb-icccm4 libxcb-image0 libxcb-keysyms1 "
    "libxcb-render-util0 libxcb-shape0 libxcb-util1 libxcb-xkb1 libxkbcommon-x11-0 libegl1 libgl1."
)


def use_offscreen() -> None:
    """Let Qt draw into memory."""
    os.environ["QT_QPA_PLATFORM"] = "offscreen"


def problem() -> str:
    """One sentence about why no window can open; empty if one can."""
    found = importlib.util.find_spec("PySide6")
    if found is None or found.origin is None:
        if frozen.is_frozen():
            return "a part of Inglenook is missing (PySide6). Install it again."
        return "PySide6 is not installed. Run: python3 packaging/dev.py run"
    if not sys.platform.startswith("linux"):
        return _import_problem()
    platform = os.environ.get("QT_QPA_PLATFORM", "").split(";")[0].split(":")[0]
    _lend_libraries(Path(found.origin).parent / "Qt", platform)
    if platform not in _SCREENLESS:
        trouble = _screen_problem(Path(found.origin).parent, platform)
        if trouble:
            return trouble
    return _import_problem()


def _lend_libraries(qt: Path, platform: str) -> None:
    wanted = [qt / "lib" / "libQt6Widgets.so.6", qt / "lib" / "libQt6Network.so.6"]
    if platform not in _SCREENLESS:
        wanted += [qt / "plugins" / "platforms" / f"libq{name}.so" for name in _plugins(platform)]
    frozen.lend_libraries(wanted)


def _plugins(platform: str) -> tuple[str, ...]:
    """The plugins that Qt will take: what is named, else what the environment offers."""
    wayland = platform == "wayland" or (platform != "xcb" and bool(os.environ.get("WAYLAND_DISPLAY")))
    return ("wayland", "xcb") if wayland else ("xcb",)


def _import_problem() -> str:
    try:
        import PySide6.QtWidgets  # noqa: F401
    except ImportError as error:
        library = _library_of(error)
        hint = f" {_XCB_HINT}" if sys.platform.startswith("linux") else ""
        return f"a system library is missing ({library}).{hint}"
    return ""


def _library_of(error: BaseException) -> str:
    error = frozen.reason(error)
    return str(error).split(":", 1)[0].strip() or type(error).__name__


def _screen_problem(pyside: Path, platform: str) -> str:
    wayland = bool(os.environ.get("WAYLAND_DISPLAY"))
    x11 = bool(os.environ.get("DISPLAY"))
    if not wayland and not x11:
        return "there is no display (neither DISPLAY nor WAYLAND_DISPLAY is set)."
    if platform == "wayland" or (wayland and platform != "xcb"):
        return ""
    plugin = pyside / "Qt" / "plugins" / "platforms" / "libqxcb.so"
    if plugin.is_file():
        try:
            ctypes.CDLL(str(plugin))
        except OSError as error:
            return f"a system library is missing ({_library_of(error)}). {_XCB_HINT}"
    if not _x11_answers():
        return f"the display {os.environ.get('DISPLAY')} does not answer."
    return ""


def _x11_answers() -> bool:
    """Whether the X server of DISPLAY takes a connection; True if that cannot be found out."""
    try:
        xcb = ctypes.CDLL("libxcb.so.1")
        xcb.xcb_connect.restype = ctypes.c_void_p
        xcb.xcb_connect.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
        xcb.xcb_connection_has_error.argtypes = [ctypes.c_void_p]
        xcb.xcb_disconnect.argtypes = [ctypes.c_void_p]
    except (OSError, AttributeError):
        return True
    connection = xcb.xcb_connect(None, None)
    ok: bool = xcb.xcb_connection_has_error(connection) == 0
    xcb.xcb_disconnect(connection)
    return ok
