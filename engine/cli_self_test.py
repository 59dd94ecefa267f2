"""`inglenook --self-test`: does what is installed work here? For packagers, for support, and for the doubtful."""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from engine import backend_words, format_check
from engine import paths as places
from engine.cli_doctor import versions
from engine.cli_output import for_terminal
from engine.cli_worker import CliWorker
from engine.errors import EngineError, ModelNotFound, StorageFailed
from engine.events import Done, Hello, Loaded, ModelInfo
from engine.frozen import is_frozen
from engine.message import AnswerFormat, PromptMessage
from engine.models import starter
from engine.sampling import SamplingParams
from engine.worker import protocol

_WINDOW_TIMEOUT_S = 120
_TOKENS = 8
_AGAIN = "A part of Inglenook is missing or damaged: install it again."


def _write(text: str) -> None:
    sys.stdout.write(for_terminal(text) + "\n")
    sys.stdout.flush()


def run() -> int:
    """Loads llama.cpp and the starter model, generates, opens a window where Qt is installed. The exit status.

    Every step is tried, also after one has failed, and has its line.

    Raises:
        EngineError: the first step that failed, where the engine knows a name for it.
    """
    found = versions()
    _write(f"Inglenook {found['inglenook']}{', packaged' if is_frozen() else ''}")
    _write(f"Python {found['python']}, {_system()}")
    parts = ("llama_cpp_python", "pyside6_essentials", "numpy", "msgspec")
    _write(", ".join(f"{name} {found[name] or 'missing'}" for name in parts))
    failure: EngineError | None = None
    status = 0
    try:
        status = _model_test()
    except EngineError as error:
        failure = error
        _write(f"failed  {error.message}")
        _write_reason(error)
    status = _formats_test() or status
    status = _window_test() or status
    if failure is not None:
        raise failure
    _write("failed" if status else "all of it works")
    return status


def _system() -> str:
    library = " ".join(platform.libc_ver())
    return f"{platform.system()} {platform.release()} {platform.machine()}{f', {library}' if library.strip() else ''}"


def _write_reason(error: EngineError) -> None:
    reason = str(error.details.get("error") or error.details.get("reason") or "")
    if reason:
        _write(f"        {reason}")


# ------------------------------------------------------------------ llama.cpp and the model


def _model_test() -> int:
    models: Path | None = None
    try:
        models = places.resolve().models
    except StorageFailed as error:  # the test itself needs no home
        _write(f"--  {error.message} {error.hint}")
    path = starter.find(models)
    with CliWorker() as worker:
        hello = worker.hello
        assert isinstance(hello, Hello)
        _write(f"ok  llama.cpp {hello.llama_cpp}, backends {', '.join(hello.backends)}")
        _write(f"ok  computes on {backend_words.summary(hello.cpu_module, hello.add_ons)}")
        for device in hello.devices:
            _write(f"ok  device {device.name}: {device.description}")
        if path is None:
            raise ModelNotFound(
                "The starter model is not installed",
                hint=_AGAIN if is_frozen() else "Set INGLENOOK_STARTER to a GGUF file.",
                details={},
            )
        for event in worker.run(protocol.Load(id="load", path=str(path), n_ctx=512, n_slots=1)):
            if isinstance(event, Loaded):
                _write_loaded(event.model)
        done = _generate(worker)
    if done.usage.completion_tokens < 1:
        _write("failed  the model wrote nothing")
        return 1
    speed = f", {done.timings.decode_tps:.0f} tokens/s" if done.timings.decode_tps else ""
    _write(f"ok  wrote {done.usage.completion_tokens} tokens{speed}: {done.text!r}")
    return 0


def _write_loaded(model: ModelInfo) -> None:
    placed = Counter(model.layer_devices)
    where = ", ".join(f"{count} layers on {device}" for device, count in placed.items())
    _write(f"ok  loaded {starter.NAME} {model.quantization} in {model.load_s:.2f} s{f': {where}' if where else ''}")
    for warning in model.warnings:
        _write(f"--  {warning}")


def _generate(worker: CliWorker) -> Done:
    request = protocol.Generate(
        id="generate",
        messages=(PromptMessage(role="user", content="Say hello."),),
        sampling=SamplingParams(temperature=0.0, seed=1, max_tokens=_TOKENS),
    )
    *_, last = worker.run(request)
    assert isinstance(last, Done)
    return last


def _formats_test() -> int:
    """The library that holds answers to a schema, in a process of its own."""
    try:
        format_check.check(AnswerFormat(kind="schema", text='{"type": "object"}'))
    except (EngineError, OSError) as error:
        _write(f"failed  {error}")
        if isinstance(error, EngineError):
            _write_reason(error)
        return 1
    _write("ok  answers can be held to a JSON Schema")
    return 0


# ------------------------------------------------------------------ the window


def _window_test() -> int:
    if not is_frozen() and not all(map(importlib.util.find_spec, ("PySide6", "desktop"))):
        _write("--  no window: PySide6 is not installed")
        return 0
    command = [sys.executable, *([] if is_frozen() else ["-m", "desktop"]), "--self-test-window"]
    try:
        with tempfile.TemporaryDirectory(prefix="inglenook-", ignore_cleanup_errors=True) as home:
            env = {**os.environ, "QT_QPA_PLATFORM": "offscreen", places.HOME_VARIABLE: home}
            done = subprocess.run(command, env=env, capture_output=True, timeout=_WINDOW_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        _write(f"failed  the window did not open within {_WINDOW_TIMEOUT_S} s")
        return 1
    except OSError as error:
        trouble = StorageFailed("There is no folder for temporary files that can be written", hint="Set TMPDIR to one.")
        _write(f"failed  {trouble.message} ({error.strerror or error}). {trouble.hint}")
        return 1
    words = done.stdout.decode("utf-8", "replace").strip()
    if done.returncode == 0:
        _write(f"ok  window opened{': ' + words if words else ''}")
        return 0
    _write(f"failed  the window did not open (exit code {done.returncode})")
    _write((done.stderr.decode("utf-8", "replace").strip() or words)[-2000:])
    return 1
