"""Which of llama.cpp's modules is loaded, and what is said of one that is not."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_ggml import libraries, module
from raw_worker import RawWorker

from engine.backend_words import AddOn, broken, summary
from engine.models import starter
from engine.paths import resolve

ROOT = Path(__file__).resolve().parents[2]
#: where the door keeps what it made; asked for before a test has another home
CACHE = Path(os.environ.get("INGLENOOK_DEV_CACHE") or Path.home() / ".cache" / "inglenook-dev")
Look = Callable[..., dict[str, Any]]
needs_gcc = pytest.mark.skipif(
    not sys.platform.startswith("linux") or not shutil.which("gcc"), reason="modules are compiled with gcc"
)

QEMU = shutil.which("qemu-x86_64-static") or shutil.which("qemu-x86_64") or ""
needs_x86 = pytest.mark.skipif(
    not (sys.platform.startswith("linux") and platform.machine() == "x86_64"), reason="needs Linux on x86-64"
)
needs_qemu = pytest.mark.skipif(not QEMU, reason="qemu-user is not installed (Debian: qemu-user-static)")

#: loads with the fake ggml in place of the real one
_CHILD = """
import ctypes, json, sys
from pathlib import Path
from engine.errors import BackendMissing
from engine.worker import backends, devices
folder = Path(sys.argv[1])
base, ggml = (ctypes.CDLL(str(folder / name), ctypes.RTLD_GLOBAL) for name in ("libggml-base.so.0", "libggml.so.0"))
devices.library_folder = lambda: folder
devices.backends = lambda: ()
devices.symbol = lambda name: getattr(base if hasattr(base, name) else ggml, name)
backends._PROBE_S = 3.0
try:
    loaded = backends.load(add_ons=len(sys.argv) < 3)
    answer = {"cpu": loaded.cpu_module, "problems": loaded.problems,
              "add_ons": [[a.name, a.state, a.reason] for a in loaded.add_ons]}
except BackendMissing as error:
    answer = {"missing": error.message, "problems": error.details["problems"]}
answer["mapped"] = sorted({line.split("/")[-1].strip() for line in open("/proc/self/maps")
                         if "libggml-" in line and str(Path.cwd()) in line})
sys.stdout.write("\\n" + json.dumps(answer))
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A llama.cpp with loadable backends and no module yet; gives the folder of the modules."""
    libraries(tmp_path / "package")
    folder = tmp_path / "package" / "llama_cpp" / "backends"
    folder.mkdir()
    return folder


@pytest.fixture
def look(package: Path, tmp_path: Path) -> Look:
    """Loads in a process of its own and tells what came of it."""

    def run(*words: str, **env: str) -> dict[str, Any]:
        folder = package.parent / "lib"
        done = subprocess.run(
            [sys.executable, "-c", _CHILD, folder, *words],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "INGLENOOK_HOME": str(tmp_path / "home"), **env},
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    return run


def add_on(home: Path, name: str = "cuda", made_for: str | None = "9.9 fake", **what: Any) -> Path:
    folder = home / "data" / "addons" / name
    folder.mkdir(parents=True)
    if made_for is not None:
        (folder / "addon.json").write_text(json.dumps({"ggml": made_for}))
    return module(folder / f"libggml-{name}.so", **what)


# ------------------------------------------------------------------ the CPU


@needs_gcc
def test_the_module_with_the_highest_score_is_loaded_and_no_other_stays(package: Path, look: Look) -> None:
    for name, score in (("x64", 1), ("zen4", 90), ("haswell", 40), ("sapphirerapids", 0)):
        module(package / f"libggml-cpu-{name}.so", score=score)
    found = look()
    assert found["cpu"] == "zen4" and not found["problems"]
    assert [name for name in found["mapped"] if "cpu" in name] == ["libggml-cpu-zen4.so"]


@needs_gcc
def test_a_module_that_cannot_be_loaded_is_named_and_the_next_one_taken(package: Path, look: Look) -> None:
    module(package / "libggml-cpu-x64.so", score=1)
    module(package / "libggml-cpu-haswell.so", score=40, ok=False)
    (package / "libggml-cpu-zen4.so").write_bytes(b"no library")
    found = look()
    assert found["cpu"] == "x64"
    assert any("cpu-zen4.so could not be loaded" in problem for problem in found["problems"])
    assert any("cpu-haswell.so fits this processor best" in problem for problem in found["problems"])


@needs_gcc
@pytest.mark.parametrize("empty", [True, False])
def test_no_module_for_this_processor_is_said(package: Path, look: Look, empty: bool) -> None:
    if not empty:
        module(package / "libggml-cpu-avx10.so", score=0)
    assert look()["missing"] == f"llama.cpp has no module for {'any' if empty else 'this'} processor"


@needs_gcc
def test_the_modules_of_a_wheel_as_others_make_it_are_found(package: Path, look: Look) -> None:
    module(package.parent.parent / "bin" / "libggml-cpu-haswell.so", score=40)
    assert look()["cpu"] == "haswell"


# ------------------------------------------------------------------ add-ons


@needs_gcc
def test_an_add_on_with_a_device_is_loaded(package: Path, look: Look, tmp_path: Path) -> None:
    module(package / "libggml-cpu-x64.so", score=1)
    add_on(tmp_path / "home", devices=2)
    found = look()
    assert found["add_ons"] == [["CUDA", "active", ""]] and "libggml-cuda.so" in found["mapped"]


@needs_gcc
@pytest.mark.parametrize(
    ("what", "state", "reason"),
    [
        ({"devices": 0}, "no_device", "no NVIDIA driver"),
        ({"does": "abort()"}, "failed", "its trial process died: SIGABRT"),
        ({"does": "raise(SIGSEGV)"}, "failed", "its trial process died: SIGSEGV"),
        ({"does": "raise(SIGILL)"}, "failed", "its trial process died: SIGILL"),
        ({"does": "exit(3)"}, "failed", "its trial process died: exit code 3"),
        ({"does": "_exit(0)"}, "failed", "its trial process gave no answer"),
        ({"does": "sleep(60)"}, "failed", "it did not answer within 3 s"),
        ({"made_for": "9.8 older"}, "refused", "it was made for another llama.cpp (ggml 9.8 older, here 9.9 fake)"),
        ({"made_for": None}, "refused", "it does not say which llama.cpp it was made for"),
    ],
)
def test_an_add_on_that_cannot_be_used_is_not_loaded_and_says_why(
    package: Path, look: Look, tmp_path: Path, what: dict[str, Any], state: str, reason: str
) -> None:
    module(package / "libggml-cpu-x64.so", score=1)
    add_on(tmp_path / "home", **what)
    found = look()
    assert found["cpu"] == "x64", "the processor still computes"
    [[name, is_state, is_reason]] = found["add_ons"]
    assert (name, is_state) == ("CUDA", state) and is_reason.startswith(reason)
    assert "libggml-cuda.so" not in found["mapped"]


@needs_gcc
def test_a_damaged_manifest_or_library_is_no_end(package: Path, look: Look, tmp_path: Path) -> None:
    module(package / "libggml-cpu-x64.so", score=1)
    library = add_on(tmp_path / "home", "vulkan")
    library.write_bytes(b"half a downl")
    (library.parent / "addon.json").write_text("[9]")
    other = tmp_path / "more" / "sycl"
    other.mkdir(parents=True)
    (other / "addon.json").write_text('{"ggml": "9.9 fake"}')
    (other / "libggml-sycl.so").write_bytes(b"half a downl")
    (tmp_path / "more" / "a file").touch()
    found = look(INGLENOOK_ADDONS=f"{tmp_path / 'more'}{os.pathsep}{tmp_path / 'nowhere'}")
    assert found["cpu"] == "x64"
    assert [(name, state) for name, state, _ in found["add_ons"]] == [("Vulkan", "refused"), ("SYCL", "failed")]
    assert "cannot be loaded" in found["add_ons"][1][2]


@needs_gcc
def test_a_module_in_the_package_itself_is_tried_out_too_and_the_second_of_a_kind_left(
    package: Path, look: Look, tmp_path: Path
) -> None:
    module(package / "libggml-cpu-x64.so", score=1)
    module(package / "libggml-cuda.so", devices=1)
    module(package / "libggml-vulkan.so", does="abort()")
    add_on(tmp_path / "home", does="abort()")
    found = look()
    assert sorted(found["add_ons"])[0] == ["CUDA", "active", ""] and len(found["add_ons"]) == 2
    assert sorted(found["add_ons"])[1][:2] == ["Vulkan", "failed"]


@needs_gcc
def test_what_only_plans_leaves_the_add_ons_alone(package: Path, look: Look, tmp_path: Path) -> None:
    module(package / "libggml-cpu-x64.so", score=1)
    module(package / "libggml-rpc.so", devices=0)
    add_on(tmp_path / "home", does="abort()")
    found = look("plan")
    assert not found["add_ons"] and "libggml-rpc.so" in found["mapped"]


def test_words() -> None:
    none = AddOn("CUDA", "no_device", "no NVIDIA driver")
    dead = AddOn("Vulkan", "failed", "its trial process died: SIGSEGV")
    assert summary("zen4", [none]) == "CPU (zen4) — CUDA add-on: no NVIDIA driver"
    assert summary("", [AddOn("CUDA", "active")]) == "CPU — CUDA add-on: active"
    assert broken([none, dead]) == [
        "The Vulkan add-on is not used: its trial process died: SIGSEGV. Without it the CPU computes, which is slower."
    ]


# ------------------------------------------------------------------ the real one


@pytest.fixture(scope="module")
def portable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The portable llama.cpp, unpacked; the packages of the environment serve the rest."""
    wheels = sorted((CACHE / "wheels").glob("*-portable-*/*.whl"))
    if not wheels:
        pytest.skip("the portable llama.cpp was not made on this machine (dev.py package makes it)")
    folder = tmp_path_factory.mktemp("portable")
    with zipfile.ZipFile(wheels[-1]) as wheel:
        wheel.extractall(folder)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def starter_path() -> str:
    path = starter.find(resolve().models)
    if path is None:
        pytest.skip("the starter model is not here")
    return str(path)


@needs_x86
def test_the_portable_llama_cpp_takes_the_module_for_this_processor_and_answers(portable: Path) -> None:
    with RawWorker(env={"PYTHONPATH": f"{portable}{os.pathsep}{ROOT}"}) as worker:
        hello = worker.wait("hello")
        module_name = f"libggml-cpu-{hello['cpu_module']}.so"
        mapped = Path(f"/proc/{worker.process.pid}/maps").read_text()
        names = {line.split("/")[-1] for line in mapped.splitlines() if "ggml" in line}
        assert names == {"libggml.so.0", "libggml-base.so.0", "libggml-rpc.so", module_name}, "each once, no other"
        assert str(portable) in mapped and {"CPU", "RPC"} <= set(hello["backends"])
        info = worker.load(starter_path(), n_ctx=256, n_slots=1)
        assert info["cpu_module"] == hello["cpu_module"]
        answer = worker.ask("The capital of France?", temperature=0, max_tokens=8, seed=1)
        assert len(answer.tokens) == 8 and "France" in answer.end["text"]


@needs_x86
@needs_qemu
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("cpu", "chosen"), [("Westmere", "sse42"), ("Haswell", "haswell")])
def test_the_portable_llama_cpp_answers_on_an_older_processor(
    portable: Path, scripted_model: Callable[..., dict[str, Any]], cpu: str, chosen: str
) -> None:
    path = scripted_model(["Hello", " world", {"tok": "</s>"}], tail="[reply]")["path"]
    with RawWorker(env={"PYTHONPATH": f"{portable}{os.pathsep}{ROOT}"}, emulator=(QEMU, "-cpu", cpu)) as worker:
        assert worker.wait("hello", timeout=300)["cpu_module"] == chosen
        worker.send("load", path=str(path), n_ctx=256, n_slots=1, n_batch=32, n_ubatch=32, n_threads=1)
        assert worker.wait("loaded", "error", timeout=300)["type"] == "loaded"
        answer = worker.ask("Hi", temperature=0, max_tokens=8, seed=1, timeout=600)
        assert answer.end["text"].strip() == "Hello world"


@needs_x86
@needs_qemu
@pytest.mark.timeout(300)
def test_a_llama_cpp_built_for_this_processor_names_what_an_older_one_lacks() -> None:
    with RawWorker(emulator=(QEMU, "-cpu", "Westmere")) as worker:
        error = worker.wait("error", timeout=200)["error"]
        assert error["code"] == "backend_missing" and "lacks AVX" in error["message"]
        assert worker.process.wait(30) == 3, "it ended by itself, not by SIGILL"


@needs_x86
@needs_qemu
@pytest.mark.timeout(300)
def test_a_processor_below_the_floor_is_told_so_before_any_native_library_is_loaded() -> None:
    with RawWorker(emulator=(QEMU, "-cpu", "core2duo")) as worker:
        error = worker.wait("error", timeout=200)["error"]
        assert error["code"] == "backend_missing" and "SSE4.2" in error["message"]
        assert worker.process.wait(30) == 3
