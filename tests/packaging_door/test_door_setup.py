"""What the door decides: backend, libraries, display, cache keys; and that a second run does nothing."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import door_backend
import door_checks
import door_env
import door_steps
import door_system
import door_verbs
import pytest
from door_backend import Choice, Facts
from door_system import Display

Fake = Callable[..., list[list[str]]]
LINUX = Facts("linux", "x86_64")
posix = pytest.mark.skipif(sys.platform == "win32", reason="the fake interpreter is a script with a #! line")


@pytest.mark.parametrize(
    ("facts", "backend", "prebuilt", "reason"),
    [
        (LINUX, "cpu", False, "no NVIDIA driver"),
        (replace(LINUX, nvcc="/opt/nvcc"), "cpu", False, "no NVIDIA driver"),
        (replace(LINUX, gpu="H200", nvcc="/opt/nvcc"), "cuda", False, "H200 and CUDA's compiler (/opt/nvcc)"),
        (replace(LINUX, gpu="H200", wheel_index="file:///w"), "cuda", True, "INGLENOOK_WHEEL_INDEX"),
        (replace(LINUX, gpu="H200"), "cpu", False, "install the CUDA toolkit"),
        (Facts("darwin", "arm64"), "metal", False, "Apple silicon"),
        (Facts("darwin", "x86_64"), "cpu", False, "Intel"),
        (Facts("win32", "AMD64", gpu="RTX", nvcc="nvcc.exe"), "cuda", False, "RTX"),
    ],
)
def test_choice_of_a_backend(facts: Facts, backend: str, prebuilt: bool, reason: str) -> None:
    choice = door_backend.choose("auto", facts)
    assert (choice.backend, choice.prebuilt) == (backend, prebuilt)
    assert reason in choice.reason


def test_backend_asked_for() -> None:
    for wanted in ("cpu", "vulkan"):
        assert door_backend.choose(wanted, LINUX) == Choice(wanted, "asked for with --backend")
    assert door_backend.choose("cuda", replace(LINUX, wheel_index="file:///w")).prebuilt
    with pytest.raises(door_steps.StepError, match="needs macOS"):
        door_backend.choose("metal", LINUX)
    with pytest.raises(door_steps.StepError, match="install the CUDA toolkit"):
        door_backend.choose("cuda", LINUX)


def test_key_of_a_wheel_changes_with_all_that_makes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = Choice("cpu", "")
    keys = {
        door_backend.wheel_key("1", cpu, {}),
        door_backend.wheel_key("2", cpu, {}),
        door_backend.wheel_key("1", Choice("cuda", ""), {}),
        door_backend.wheel_key("1", Choice("cuda", "", prebuilt=True), {}),
        door_backend.wheel_key("1", cpu, {"CMAKE_ARGS": "-DGGML_BLAS=ON"}),
    }
    monkeypatch.setattr(door_backend, "cpu_features", lambda: "another processor")
    keys.add(door_backend.wheel_key("1", cpu, {}))
    assert len(keys) == 6


def test_rpc_is_always_built_in_and_the_user_has_the_last_word() -> None:
    for backend in door_backend.BACKENDS:
        words = door_backend.cmake_args(backend, {"CMAKE_ARGS": "-DX=1"}).split()
        assert words[0] == "-DGGML_RPC=ON"
        assert words[-1] == "-DX=1"


@pytest.mark.parametrize(
    ("environ", "platform", "kind"),
    [
        ({}, "linux", "none"),
        ({"DISPLAY": ":0"}, "linux", "x11"),
        ({"WAYLAND_DISPLAY": "wayland-0", "DISPLAY": ":0"}, "linux", "wayland"),
        ({"QT_QPA_PLATFORM": "offscreen"}, "linux", "named"),
        ({"QT_QPA_PLATFORM": "xcb", "DISPLAY": ":0"}, "linux", "x11"),
        ({}, "darwin", "native"),
        ({}, "win32", "native"),
    ],
)
def test_display(environ: dict[str, str], platform: str, kind: str) -> None:
    assert door_system.find_display(environ, platform).platform == kind


def test_libraries_by_display() -> None:
    def missing(kind: str, platform: str = "linux") -> set[str]:
        return set(door_system.missing_libraries(Display(kind), platform=platform, present=lambda name: False))

    assert {"libEGL.so.1", "libGL.so.1", "libxkbcommon.so.0"} <= missing("named")
    assert "libxcb-cursor.so.0" in missing("x11")
    assert "libxcb-cursor.so.0" not in missing("named")
    assert "libwayland-client.so.0" in missing("wayland")
    assert missing("native", "darwin") == missing("native", "win32") == set()


@pytest.mark.parametrize("manager", door_system.MANAGERS)
def test_every_package_manager_has_a_name_for_everything(manager: str) -> None:
    names = door_system.package_names(door_system.PACKAGES, manager)
    assert len(names) == len(set(names)) > 10
    assert all(name and " " not in name for name in names)
    assert door_system.install_command(["c++"], manager, "linux").startswith(f"sudo {manager} ")


def test_other_systems_have_their_command() -> None:
    assert door_system.install_command(["c++"], None, "darwin") == "xcode-select --install"
    assert door_system.install_command(["c++"], None, "win32").startswith("winget install ")


def test_constraints_of_this_checkout_name_all_that_is_asked_for(place: door_steps.Place) -> None:
    pins = door_env.read_constraints(place)
    for name in door_env.requirements(place, dev=True):
        assert door_env.normal(name) in pins
    for name in (door_backend.PACKAGE, door_env.STARTER_PACKAGE, "pip", "setuptools", "cmake", "ninja"):
        assert name in pins
    assert "torch" not in pins
    assert door_backend.PACKAGE not in door_env.requirements(place, dev=True)


@posix
def test_a_second_run_calls_the_program_alone(
    ready: door_steps.Place, fake_python: Fake, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a second run used the network")

    fake_python({"pip": (1, "pip was called")})
    monkeypatch.setattr(socket, "socket", refuse)
    assert door_verbs.main(["run", "--temp-home", "--max-tokens", "5"]) == 0
    assert fake_python() == [["-m", "engine", "chat", "--model", "starter", "--max-tokens", "5"]]
    assert "no display here" in capfd.readouterr().err
    monkeypatch.setenv("QT_QPA_PLATFORM", "offscreen")
    assert door_verbs.main(["run", "--temp-home"]) == 0
    assert fake_python()[1:] == [["-m", "desktop", "--temp-home"]]


@posix
@pytest.mark.parametrize("change", ["pins", "needs", "backend", "starter", "stamp", "cpu"])
def test_a_change_is_seen(
    ready: door_steps.Place, fake_python: Fake, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    fake_python({"pip": (1, "pip was called")})
    argv = ["run"]
    if change == "pins":
        ready.constraints.write_text(ready.constraints.read_text().replace("gguf==", "gguf==9"))
    elif change == "needs":
        project = ready.root / "pyproject.toml"
        project.write_text(project.read_text().replace('"gguf",', '"gguf",\n    "rich",'))
    elif change == "backend":
        monkeypatch.setattr(door_backend, "_nvcc", lambda environ: "/opt/cuda/bin/nvcc")
        argv = ["run", "--backend", "cuda"]
    elif change == "starter":
        ready.starter.write_bytes(b"cut")
    elif change == "stamp":
        ready.stamp.write_text("{ broken")
    else:
        monkeypatch.setattr(door_backend, "cpu_features", lambda: "another processor")
    assert door_verbs.main(argv) == 1
    assert fake_python()[0][:3] == ["-m", "pip", "install"]


@posix
def test_tests_run_alone_first_and_then_side_by_side(
    ready: door_steps.Place, fake_python: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_THREAD_LIMIT", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    fake_python({"-m serial": (5, "no tests ran")})
    assert door_verbs.main(["test", "-k", "x"]) == 0
    alone, beside = fake_python()
    assert alone[:6] == ["-m", "pytest", "-m", "serial", "-n", "0"]
    assert beside[2:5] == ["-m", "not serial", "-n"]
    assert alone[-2:] == beside[-2:] == ["-k", "x"]
    assert beside[5] == "6"
    assert (ready.root / "threads").read_text() == "2", (
        "a model process of a test gets more than its share of the cores"
    )
    fake_python({"-m serial": (1, "failed")})
    assert door_verbs.main(["test"]) == 1
    fake_python({"-n": (5, "no tests ran")})
    assert door_verbs.main(["test"]) == 5


@posix
def test_check_goes_on_after_a_failure_and_names_it(
    ready: door_steps.Place, fake_python: Fake, capfd: pytest.CaptureFixture[str]
) -> None:
    ready.script("lint-imports").symlink_to(ready.python)
    fake_python({"ruff format": (1, "would reformat")})
    assert door_verbs.main(["check"]) == 1
    assert [call[1:2] for call in fake_python()] == [["ruff"], ["ruff"], ["mypy"], ["mypy"], []]
    assert capfd.readouterr().err.splitlines()[-1] == "dev.py: check failed: formatting (ruff format), documents"


@posix
def test_ctrl_c_is_for_the_program(ready: door_steps.Place, tmp_path: Path) -> None:
    chat = """
import signal, sys, time
signal.signal(signal.SIGINT, lambda *_: sys.exit(7))
print("ready", flush=True)
time.sleep(30)
"""
    code = (  # a job in the background starts with Ctrl+C ignored
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
        f"import sys; sys.path.insert(0, {str(ready.root / 'packaging')!r}); import door_steps, door_verbs;"
        f"sys.exit(door_verbs.call(door_steps.find_place(), [sys.executable, '-c', {chat!r}]))"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True) as door:
        assert door.stdout is not None
        assert door.stdout.readline() == b"ready\n"
        os.killpg(door.pid, signal.SIGINT)
        assert door.wait(10) == 7


@posix
def test_long_steps_give_signs_of_life(place: door_steps.Place, capfd: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(0.5); print('made')"]
    assert door_steps.run_logged(place, "making", command, heartbeat_s=0.1) == "made\n"
    assert "dev.py:   ... making: 0:00" in capfd.readouterr().err


def test_cache_folder(tmp_path: Path) -> None:
    assert door_steps.cache_folder({"INGLENOOK_DEV_CACHE": str(tmp_path)}, "linux") == tmp_path
    assert door_steps.cache_folder({"XDG_CACHE_HOME": str(tmp_path)}, "linux") == tmp_path / "inglenook-dev"
    assert door_steps.cache_folder({"XDG_CACHE_HOME": "relative"}, "linux") == Path.home() / ".cache" / "inglenook-dev"
    assert door_steps.cache_folder({"LOCALAPPDATA": str(tmp_path)}, "win32") == tmp_path / "inglenook-dev"


def test_documents_with_dead_links_and_commands_are_named(tmp_path: Path) -> None:
    (tmp_path / "packaging").mkdir()
    (tmp_path / "packaging" / "dev.py").touch()
    text = """# A title
[a](gone.md) [b](#a-title) [c](#nowhere) [d](https://example.org/x) <img src="shot.png">
`python3 packaging/dev.py fly` and `python3 packaging/dev.py run` and `python3 packaging/gone.py`
`engine/gone.py` and `packaging/dev.py`
"""
    assert door_checks.document(tmp_path, text) == [
        "the link gone.md leads nowhere",
        "the link #nowhere names no heading",
        "the link shot.png leads nowhere",
        "dev.py has no verb fly",
        "the command names packaging/gone.py, which does not exist",
        "engine/gone.py does not exist",
    ]


def test_amx_is_left_out_where_the_processor_has_it() -> None:
    import door_backend

    assert "-mno-amx-tile" in door_backend.compiler_flags("amx_bf16 amx_int8 amx_tile avx2")
    assert door_backend.compiler_flags("avx avx2 avx512f") == ""


FAILING = """
import json, pathlib, sys
if "pytest" in sys.argv:
    record = pathlib.Path.cwd() / ".pytest_cache" / "v" / "cache" / "lastfailed"
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text(json.dumps({{f"tests/test_{{n}}.py::test": True for n in range({count})}}))
import json"""


@posix
@pytest.mark.parametrize(
    "count, again, status", [(1, 0, 0), (5, 0, 0), (1, 1, 1), (6, 0, 1)], ids=["one", "five", "stays", "too many"]
)
def test_a_few_that_failed_in_a_whole_run_are_looked_at_again(
    ready: door_steps.Place, fake_python: Fake, capfd: pytest.CaptureFixture[str], count: int, again: int, status: int
) -> None:
    ready.python.write_text(ready.python.read_text().replace("import json", FAILING.format(count=count), 1))
    fake_python({"--last-failed": (again, "looked again"), "-m not serial": (1, "failed")})
    assert door_verbs.main(["test"]) == status
    calls = [call for call in fake_python() if "pytest" in call]
    assert len(calls) == (3 if count <= 5 else 2)
    if count <= 5:
        assert calls[2][2:] == ["-n", "0", "--last-failed", "--last-failed-no-failures", "none"]
    named = capfd.readouterr().err.count("FLICKERS: tests/test_")
    assert named == (count if status == 0 else 0)


@posix
def test_a_part_of_the_tests_is_never_looked_at_again(ready: door_steps.Place, fake_python: Fake) -> None:
    ready.python.write_text(ready.python.read_text().replace("import json", FAILING.format(count=1), 1))
    fake_python({"-m not serial": (1, "failed")})
    assert door_verbs.main(["test", "-k", "x"]) == 1
    assert len([call for call in fake_python() if "pytest" in call]) == 2
