"""Backends and devices as ggml's registry knows them, and remote devices over llama.cpp's RPC.

The registry is asked through the very library that llama.cpp uses. A second copy of ggml would have a registry of
its own, and it would be empty (wheels carry no links, so `libggml.so` and `libggml.so.0` are different files).
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as _llama

from engine.events import Device

_L: Any = _llama
#: ggml-backend.h, enum ggml_backend_dev_type
_KINDS = ("cpu", "gpu", "igpu", "accel", "meta")
RPC_SERVERS_VARIABLE = "INGLENOOK_RPC_SERVERS"
_CONNECT_S = 3.0
_added: set[str] = set()


class _Ggml:
    """The functions of ggml-backend.h that are used here, with their types."""

    def __init__(self) -> None:
        handle, text, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
        signatures: dict[str, tuple[list[Any], Any]] = {
            "ggml_backend_dev_count": ([], size),
            "ggml_backend_dev_get": ([size], handle),
            "ggml_backend_dev_name": ([handle], text),
            "ggml_backend_dev_description": ([handle], text),
            "ggml_backend_dev_type": ([handle], ctypes.c_int),
            "ggml_backend_dev_memory": ([handle, ctypes.POINTER(size), ctypes.POINTER(size)], None),
            "ggml_backend_dev_backend_reg": ([handle], handle),
            "ggml_backend_reg_name": ([handle], text),
            "ggml_backend_reg_count": ([], size),
            "ggml_backend_reg_get": ([size], handle),
            "ggml_backend_register": ([handle], None),
        }
        for name, (arguments, result) in signatures.items():
            function = symbol(name)
            function.argtypes, function.restype = arguments, result
            setattr(self, name.removeprefix("ggml_backend_"), function)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


def library_folder() -> Path:
    """Folder of the llama.cpp libraries in use."""
    return Path(_L._base_path)


def symbol(name: str) -> Any:
    """A ggml function. On Linux and macOS a look-up in libllama also searches what it is linked to, which is the copy
    in use; on Windows the module itself has to be asked."""
    try:
        return getattr(_L._lib, name)
    except AttributeError:
        for library in ("ggml-base", "ggml"):
            for pattern in (f"{library}.dll", f"lib{library}.dll", f"lib{library}.so.0", f"lib{library}.dylib"):
                path = library_folder() / pattern
                if path.exists():
                    try:
                        return getattr(ctypes.CDLL(str(path)), name)
                    except (AttributeError, OSError):
                        continue
        raise


_ggml: _Ggml | None = None


def _api() -> _Ggml:
    global _ggml
    if _ggml is None:
        _ggml = _Ggml()
    return _ggml


def devices() -> tuple[Device, ...]:
    """Every device in the registry, in llama.cpp's own order. Memory is free and total bytes now."""
    api, found = _api(), []
    for index in range(api.dev_count()):
        device = api.dev_get(index)
        free, total = ctypes.c_size_t(0), ctypes.c_size_t(0)
        api.dev_memory(device, ctypes.byref(free), ctypes.byref(total))
        kind = api.dev_type(device)
        registry = api.dev_backend_reg(device)
        found.append(
            Device(
                name=_text(api.dev_name(device)),
                description=_text(api.dev_description(device)),
                kind=_KINDS[kind] if 0 <= kind < len(_KINDS) else "other",
                backend=_text(api.reg_name(registry)) if registry else "",
                memory_free_bytes=free.value,
                memory_total_bytes=total.value,
            )
        )
    return tuple(found)


def local_free_bytes() -> tuple[int, ...]:
    """Free bytes of the devices that are not the CPU, now; those of other computers are left out, asking takes time."""
    api, found = _api(), []
    for device in map(api.dev_get, range(api.dev_count())):
        registry = api.dev_backend_reg(device)
        if api.dev_type(device) == 0 or (registry and _text(api.reg_name(registry)).startswith("RPC")):
            continue
        free, total = ctypes.c_size_t(0), ctypes.c_size_t(0)
        api.dev_memory(device, ctypes.byref(free), ctypes.byref(total))
        found.append(free.value)
    return tuple(found)


def handles() -> dict[str, int]:
    """llama.cpp's own handle of each device, by name."""
    api = _api()
    found = (api.dev_get(index) for index in range(api.dev_count()))
    return {_text(api.dev_name(device)): device for device in found}


def host_buffer_type() -> int:
    """ggml's handle of ordinary main memory."""
    function = symbol("ggml_backend_cpu_buffer_type")
    function.argtypes, function.restype = [], ctypes.c_void_p
    handle: int = function()
    return handle


def backends() -> tuple[str, ...]:
    """Names of the registered backends, with or without devices ("CPU", "CUDA", "RPC")."""
    api = _api()
    return tuple(_text(api.reg_name(api.reg_get(i))) for i in range(api.reg_count()))


def gpu_names(found: tuple[Device, ...]) -> frozenset[str]:
    """Names of the devices that layers can be offloaded to."""
    return frozenset(d.name for d in found if d.kind in ("gpu", "igpu"))


def add_rpc_servers(servers: str | None = None) -> list[str]:
    """Add the devices of llama.cpp RPC servers, given as "host:port,host:port"; None: from the environment.

    A server that was added before is not added again.

    Returns:
        A sentence for each server that could not be added.
    """
    wanted = os.environ.get(RPC_SERVERS_VARIABLE, "") if servers is None else servers
    endpoints = [e for part in wanted.split(",") if (e := part.strip()) and e not in _added]
    if not endpoints:
        return []
    library = _rpc_library()
    if library is None:
        return ["this build of llama.cpp has no RPC backend"]
    add = library.ggml_backend_rpc_add_server
    add.argtypes, add.restype = [ctypes.c_char_p], ctypes.c_void_p
    problems = []
    for endpoint in endpoints:
        # ggml aborts the process if nobody answers
        registry = add(endpoint.encode()) if _answers(endpoint) else None
        if registry:
            _api().register(registry)
            _added.add(endpoint)
        else:
            problems.append(f"no llama.cpp RPC server answers at {endpoint}")
    return problems


def _answers(endpoint: str) -> bool:
    host, _, port = endpoint.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
    except (OSError, ValueError, OverflowError):
        return False
    return True


def _rpc_library() -> Any | None:
    suffix = {"win32": "dll", "darwin": "dylib"}.get(sys.platform, "so")
    package = library_folder().parent
    for folder in (package / "backends", library_folder(), package.parent / "bin", package.parent / "lib"):
        for name in (f"libggml-rpc.{suffix}.0", f"libggml-rpc.{suffix}", f"ggml-rpc.{suffix}"):
            path = folder / name
            if path.exists():
                try:
                    return ctypes.CDLL(str(path))
                except OSError:
                    continue
    return None


def _text(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", "replace")
