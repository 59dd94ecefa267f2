"""A throw-away process that loads one backend module and says what came of it.

    python -m engine.worker.backend_probe LIBRARIES MODULE

LIBRARIES is the folder of llama.cpp's core libraries, MODULE the file. A driver that hangs or crashes takes only this
process with it. Nothing but ggml itself is loaded, so that it takes little time.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any

from engine.worker.process import tie_to_parent

_handle, _text, _size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
_LogCallback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
#: what a driver of each backend's devices brings along
_DRIVERS = {"cuda": ("libcuda.so.1", "nvcuda.dll"), "vulkan": ("libvulkan.so.1", "vulkan-1.dll")}


def core_library(folder: Path, name: str) -> Path | None:
    """File of one of llama.cpp's core libraries ("ggml", "ggml-base").

    The name with the version comes first: it is the one that the others are linked to. A wheel keeps no links, so the
    name without it is another file, and a second copy would have a registry of its own, which stays empty.
    """
    patterns = (f"lib{name}.so.0", f"lib{name}.0.dylib", f"lib{name}.dylib", f"{name}.dll", f"lib{name}.so")
    return next((folder / pattern for pattern in patterns if (folder / pattern).exists()), None)


def _load(path: Path | None) -> Any:
    if path is None:
        raise OSError("llama.cpp's core libraries are not there")
    return ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


def probe(libraries: Path, module: Path) -> dict[str, Any]:
    """Load the module and ask it for its devices.

    Returns:
        ok: it was loaded. name, devices: as it says. driver: whether the library of the driver is on this computer;
        None where no such thing is known. log: what llama.cpp said.
    """
    lines: list[str] = []

    @_LogCallback  # type: ignore[untyped-decorator]
    def receive(_level: int, text: bytes | None, _data: Any) -> None:
        lines.extend((text or b"").decode("utf-8", "replace").splitlines())

    base, ggml = (_load(core_library(libraries, name)) for name in ("ggml-base", "ggml"))
    base.ggml_log_set.argtypes = [_LogCallback, _handle]
    base.ggml_log_set(receive, None)
    functions: list[tuple[Any, str, list[Any], Any]] = [
        (ggml, "ggml_backend_load", [_text], _handle),
        (base, "ggml_backend_reg_name", [_handle], _text),
        (base, "ggml_backend_reg_dev_count", [_handle], _size),
        (base, "ggml_backend_reg_dev_get", [_handle, _size], _handle),
        (base, "ggml_backend_dev_description", [_handle], _text),
    ]
    for library, name, arguments, result in functions:
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, result
    registry = ggml.ggml_backend_load(os.fsencode(module))
    found: dict[str, Any] = {"ok": bool(registry), "name": "", "devices": [], "driver": _has_driver(module)}
    if registry:
        found["name"] = base.ggml_backend_reg_name(registry).decode("utf-8", "replace")
        for index in range(base.ggml_backend_reg_dev_count(registry)):
            device = base.ggml_backend_reg_dev_get(registry, index)
            found["devices"].append(base.ggml_backend_dev_description(device).decode("utf-8", "replace"))
    found["log"] = [line.strip() for line in lines if line.strip()]
    return found


def _has_driver(module: Path) -> bool | None:
    for kind, names in _DRIVERS.items():
        if f"ggml-{kind}" in module.name:
            return any(map(_opens, names))
    return None


def _opens(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def main(arguments: list[str]) -> int:
    """Print what was found as one line of JSON. A module may write to standard output itself: ours is the last line."""
    tie_to_parent()
    libraries, module = map(Path, arguments)
    try:
        found = probe(libraries, module)
    except (OSError, AttributeError) as error:
        found = {"ok": False, "name": "", "devices": [], "driver": None, "log": [str(error)]}
    sys.stdout.write("\n" + json.dumps(found) + "\n")
    sys.stdout.flush()
    os._exit(0)  # no destructors of native libraries: some hang or crash at exit


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
