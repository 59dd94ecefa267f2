"""`inglenook doctor`: what is here, and in which state."""

from __future__ import annotations

import platform
import sqlite3
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec

import engine
from engine import backend_words, hardware
from engine import paths as places
from engine.cli_output import error_record, exit_status, for_terminal, json_line
from engine.cli_worker import CliWorker
from engine.errors import EngineError
from engine.models import gguf, starter
from engine.store.migrations import SCHEMA

_PACKAGES = ("llama_cpp_python", "PySide6_Essentials", "msgspec", "Jinja2", "psutil", "nvidia-ml-py", "numpy")


def _write(text: str = "") -> None:
    sys.stdout.write(for_terminal(text) + "\n")
    sys.stdout.flush()


# ------------------------------------------------------------------ doctor


def doctor(as_json: bool) -> int:
    """Prints the report. The exit status is 0 if llama.cpp can be used on this computer."""
    paths = places.resolve()
    worker, status = _ask_worker()
    report: dict[str, Any] = {
        "versions": versions(),
        "llama_cpp": worker,
        "hardware": msgspec.to_builtins(hardware.survey()),
        "paths": _paths_report(paths),
        "starter": _starter_report(paths),
        "database": database_state(paths.database),
    }
    if as_json:
        sys.stdout.write(json_line(report) + "\n")
        sys.stdout.flush()
    else:
        for line in _lines(report):
            _write(line)
    return status


def versions() -> dict[str, str]:
    found = {"inglenook": engine.__version__, "python": platform.python_version(), "system": platform.platform()}
    for package in _PACKAGES:
        try:
            found[package.lower().replace("-", "_")] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package.lower().replace("-", "_")] = ""
    return found


def _ask_worker() -> tuple[dict[str, Any], int]:
    """llama.cpp's own words about its backends and devices, asked in a worker that ends at once."""
    try:
        with CliWorker() as worker:
            hello = worker.hello
            assert hello is not None
    except EngineError as error:
        return {"ok": False, **error_record(error)}, exit_status(error)
    return {
        "ok": True,
        "version": hello.llama_cpp,
        "system_info": hello.system_info,
        "backends": list(hello.backends),
        "cpu_module": hello.cpu_module,
        "add_ons": [msgspec.to_builtins(add_on) for add_on in hello.add_ons],
        "computes_on": backend_words.summary(hello.cpu_module, hello.add_ons),
        "devices": [msgspec.to_builtins(device) for device in hello.devices],
    }, 0


def _paths_report(paths: places.Paths) -> dict[str, Any]:
    names = ("home", "data", "config", "cache", "logs", "models", "database", "settings_file")
    return {name: places.shown(getattr(paths, name)) for name in names}


def _starter_report(paths: places.Paths) -> dict[str, Any]:
    path = starter.find(paths.models)
    if path is None:
        return {"ok": False, "path": "", "text": "not installed"}
    try:
        header = gguf.check_file(path)
    except EngineError as error:
        return {"ok": False, "path": places.shown(path), "text": error.message}
    return {"ok": True, "path": places.shown(path), "text": starter.NAME, "size_bytes": header.file_size}


def database_state(path: Path) -> dict[str, Any]:
    """State of the chats' database, looked at without changing it.

    state: "none", "ok", "old" (it is brought up to date when the window opens), "too_new", "damaged", "unreadable".
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return {"state": "none", "text": "no chats yet"}
    except OSError as error:  # a folder that may not be entered, a name that is too long
        return {"state": "unreadable", "text": error.strerror or str(error)}
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=2)
        try:
            (schema,) = connection.execute("PRAGMA user_version").fetchone()
            if schema > SCHEMA:
                return {"state": "too_new", "text": "written by a newer Inglenook", "schema": schema}
            (sound,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if sound != "ok":
                return {"state": "damaged", "text": str(sound), "schema": schema}
            if schema < SCHEMA:
                return {"state": "old", "text": "is updated at the next start", "schema": schema}
            (chats,) = connection.execute("SELECT count(*) FROM chats WHERE deleted_s IS NULL").fetchone()
            return {"state": "ok", "text": f"{chats} chats", "schema": schema, "chats": chats}
        finally:
            connection.close()
    except sqlite3.OperationalError as error:
        return {"state": "unreadable", "text": str(error)}
    except sqlite3.DatabaseError as error:
        return {"state": "damaged", "text": str(error)}


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 2**30:.1f} GiB" if n_bytes >= 2**30 else f"{n_bytes / 2**20:.0f} MiB"


def _lines(report: dict[str, Any]) -> Iterator[str]:
    found, machine, native = report["versions"], report["hardware"], report["llama_cpp"]
    cpu, ram, gpus = machine["cpu"], machine["ram"], machine["gpus"]
    yield f"Inglenook      {found['inglenook']}, Python {found['python']}, {found['system']}"
    if native["ok"]:
        yield f"llama.cpp      {native['version']}, backends {', '.join(native['backends']) or 'none'}"
        yield f"  computes on  {native['computes_on']}"
        for device in native["devices"]:
            memory = ""
            if device["memory_total_bytes"]:
                free, total = device["memory_free_bytes"], device["memory_total_bytes"]
                memory = f", {_size(free)} of {_size(total)} free"
            yield f"  device       {device['name']} ({device['kind']}): {device['description']}{memory}"
    else:
        error = native["error"]
        yield f"llama.cpp      cannot be used: {error['message']}"
        if error["hint"]:
            yield f"               {error['hint']}"
    yield f"Qt             {found['pyside6_essentials'] or 'PySide6 is not installed: no window'}"
    yield (
        f"Processor      {cpu['name']}, {cpu['physical_cores']} cores, {cpu['logical_cores']} threads, "
        f"{cpu['usable_cores']:g} usable"
    )
    limit = f" (limited by its {ram['limited_by']})" if ram["limited_by"] else ""
    yield f"Memory         {_size(ram['available_bytes'])} of {_size(ram['total_bytes'])} available{limit}"
    yield f"NVIDIA         {gpus['text']}"
    yield f"Starter model  {report['starter']['text']} {report['starter']['path']}".rstrip()
    yield f"Database       {report['database']['state']}: {report['database']['text']}"
    for name, path in report["paths"].items():
        yield f"  {name:<12} {path}"
