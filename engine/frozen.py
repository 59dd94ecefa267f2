"""What a packaged program does before anything else, and where the parts lie that come with it.

The starter of the package lets the loader look into its own folder, by a variable of the environment that every child
would inherit: a browser or file manager would then be started with our libraries. So the variable is taken back; a
child that is this program again sets it for itself.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable
from pathlib import Path

#: folder with libraries that are used only where the system has none of that name
FALLBACK = "fallback"
_LOADER = "LD_LIBRARY_PATH"
_ORIGINAL = "LD_LIBRARY_PATH_ORIG"
_STARTERS = ("_PYI_ARCHIVE_FILE", "_PYI_APPLICATION_HOME_DIR", "_PYI_PARENT_PROCESS_LEVEL", "_PYI_LINUX_PROCESS_NAME")
#: what nearly all native code needs; where a system has none, ours is loaded before it is asked for
_COMMON = ("libgcc_s.so.1", "libstdc++.so.6")


def is_frozen() -> bool:
    return bool(getattr(sys, "frozen", False))


def internal() -> Path | None:
    """The folder with the parts of a packaged program; None from source."""
    folder = getattr(sys, "_MEIPASS", None)
    return Path(folder) if folder and is_frozen() else None


def settle() -> None:
    """Take back what the starter did to the environment, and have the libraries at hand that everything needs."""
    folder = internal()
    if folder is None:
        return
    clean_environment(os.environ)
    if sys.platform.startswith("linux"):
        for name in _COMMON:
            if not _loads(name) and (folder / FALLBACK / name).exists():
                _loads(str(folder / FALLBACK / name))


def clean_environment(environ: os._Environ[str] | dict[str, str]) -> None:
    """Give the variables back their values from before the start."""
    original = environ.pop(_ORIGINAL, None)
    if original is not None:
        environ[_LOADER] = original
    elif is_frozen():
        environ.pop(_LOADER, None)
    for name in _STARTERS:
        environ.pop(name, None)


def lend_libraries(wanted: Iterable[Path]) -> None:
    """See that these libraries of the package can be loaded: what they need and the system lacks is lent to them.

    A system's own copies come first, because its graphics driver is made for them. On a system with a desktop this
    only loads what would be loaded a moment later.
    """
    folder = internal()
    if folder is None or not sys.platform.startswith("linux"):
        return
    if all(_loads(str(path)) for path in wanted if path.exists()):
        return
    left = sorted((folder / FALLBACK).glob("*.so*"))
    while left:
        # one may need another that comes later
        later = [path for path in left if not _loads(path.name) and not _loads(str(path))]
        if len(later) == len(left):
            return
        left = later


def reason(error: BaseException) -> BaseException:
    """The loader's own words about a library that cannot be loaded: others are put around them on the way."""
    found = error
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, OSError):
            found = inner
        inner = inner.__cause__ or inner.__context__
    return found


def _loads(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True
