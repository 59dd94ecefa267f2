"""What every test gets: a throw-away home, no network beyond loopback, real models, and silence as a rule.

Qt runs on the offscreen platform. A Python warning, a Qt warning and an unexpected socket fail the test.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # a job in the background starts with Ctrl+C ignored, and every process that a test starts would inherit that
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the same after `nohup`
sys.path.insert(0, str(Path(__file__).parent / "scripted"))

ROOT = Path(__file__).resolve().parent.parent
USUAL_WORK_S = 0.015
"""What `_fixed_work_s` takes on the machine that the limits were set on."""
LOOPBACK = ("127.0.0.1", "::1", "localhost")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A throw-away home: nothing a test does can reach a real profile."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("INGLENOOK_HOME", str(folder))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(folder / name.lower()))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return folder


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Connections to anything but loopback and local sockets raise; so does looking up a name."""
    real_connect = socket.socket.connect

    def connect(self: socket.socket, address: Any) -> None:
        if isinstance(address, tuple) and address[0] not in LOOPBACK:
            raise AssertionError(f"a test tried to reach the network: {address!r}")
        real_connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", connect)
    yield


def _fixed_work_s() -> float:
    """Processor time of the same work each time: names, dictionaries, numbers."""
    begun = time.process_time()
    kept: dict[str, int] = {}
    for number in range(40_000):
        kept[f"name {number}"] = number * number % 7
    assert sum(kept.values()) > 0
    return time.process_time() - begun


@pytest.fixture
def slower() -> Callable[[], float]:
    """How many times slower than usual this machine is now; at least 1. Limits of time are multiplied by it: they are
    there to find code that is slower by a multiple, not slow machines."""
    return lambda: max(1.0, min(_fixed_work_s() for _ in range(3)) / USUAL_WORK_S)


@pytest.fixture(scope="session")
def starter_model() -> Path:
    """The real starter model (SmolLM2 135M Instruct, Q4_1), as the application finds it."""
    from engine.models import starter

    path = starter.find()
    if path is None:
        pytest.fail("the starter model is missing: run `python3 packaging/dev.py test`, which fetches it")
    return path


@pytest.fixture(scope="session")
def scripted_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    """Builds a tiny real GGUF that says an exact text through llama.cpp; see `tests/scripted/scripted.py`.

    Call with the script's items and the keywords of `scripted.build`; returns its answer, "path" first of all.
    A template given must end with `tail`, whose tokens are then kept out of the script.
    """
    from scripted import build

    folder = tmp_path_factory.mktemp("scripted")
    count = 0

    def make(script: Any, **options: Any) -> dict[str, Any]:
        nonlocal count
        count += 1
        made: dict[str, Any] = build(folder / f"scripted-{count}.gguf", script, **options)
        return made

    return make
