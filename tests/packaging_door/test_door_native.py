"""The portable llama.cpp and the CUDA add-on: what is told to the compiler, what is left out, what is refused."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import door_backend
import door_cuda
import door_native
import pytest
from door_steps import Place, StepError, find_place

ROOT = Path(__file__).resolve().parents[2]
CACHE = find_place().cache  # asked for before a test has another home
VARIANTS = "vendor/llama.cpp/ggml/src/CMakeLists.txt"
SOURCES = {
    VARIANTS: "        ggml_add_cpu_backend_variant(zen4 AVX512)\n"
    "        ggml_add_cpu_backend_variant(sapphirerapids SSE42 AMX_TILE AMX_INT8)\n",
    "CMakeLists.txt": 'set(LLAMA_BUILD_COMMON ON CACHE BOOL "x" FORCE)\n',
    "vendor/llama.cpp/LICENSE": "MIT\n",
}


def sdist(place: Place, sources: dict[str, str]) -> None:
    archive = place.cache / "sdist" / "llama_cpp_python-0.3.36.tar.gz"
    archive.parent.mkdir(parents=True)
    with tarfile.open(archive, "w:gz") as packed:
        for name, text in sources.items():
            info = tarfile.TarInfo(f"llama_cpp_python-0.3.36/{name}")
            info.size = len(text.encode())
            packed.addfile(info, io.BytesIO(text.encode()))


def test_the_module_with_amx_is_left_out(place: Place) -> None:
    sdist(place, SOURCES)
    folder = door_native.sources(place, "0.3.36")
    variants = (folder / VARIANTS).read_text()
    assert "zen4" in variants and "AMX" not in variants
    assert "LLAMA_BUILD_COMMON OFF" in (folder / "CMakeLists.txt").read_text()
    (folder / "CMakeLists.txt").write_text("kept")
    assert door_native.sources(place, "0.3.36") == folder
    assert (folder / "CMakeLists.txt").read_text() == "kept", "edited sources are not unpacked again"


def test_sources_that_changed_are_refused_and_not_kept(place: Place) -> None:
    sdist(place, {**SOURCES, VARIANTS: "ggml_add_cpu_backend_variant(zen4 AVX512)\n"})
    for _ in range(2):
        with pytest.raises(StepError, match="the module with AMX cannot be left out"):
            door_native.sources(place, "0.3.36")
    assert not (place.root / "build" / "native" / "llama-0.3.36").exists()


def test_damaged_sources_are_fetched_anew(place: Place) -> None:
    archive = place.cache / "sdist" / "llama_cpp_python-0.3.36.tar.gz"
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"no archive")
    with pytest.raises(StepError, match="came damaged: run this again"):
        door_native.sources(place, "0.3.36")
    assert not archive.exists()


def test_what_the_build_is_told(tmp_path: Path) -> None:
    env = door_native.environment(tmp_path / "llama", {"CFLAGS": "-O2", "CMAKE_ARGS": "-DX=1"})
    words = env["CMAKE_ARGS"].split()
    assert {"-DGGML_NATIVE=OFF", "-DGGML_RPC=ON"} <= set(words) and words[-1] == "-DX=1", "the user's words come last"
    assert ("-DGGML_CPU_ALL_VARIANTS=ON" in words) == (sys.platform != "darwin")
    assert env["GIT_CEILING_DIRECTORIES"] == str(tmp_path), "the commit of a checkout around it is not llama.cpp's"
    if sys.platform != "win32":
        assert env["CFLAGS"] == f"-ffile-prefix-map={tmp_path / 'llama'}=llama -O2"
    assert "-DGGML_METAL=ON" in door_native.flags("darwin")
    assert not any("RPATH" in flag for flag in door_native.flags("win32"))


def test_the_key_changes_with_what_the_wheel_is_made_of_and_not_with_the_processor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(door_native, "compiler", lambda environ=None: "g++ 12")
    one = door_native.wheel_key("0.3.36", {})
    monkeypatch.setattr(door_backend, "cpu_features", lambda: "sse2")
    assert door_native.wheel_key("0.3.36", {}) == one
    others = {door_native.wheel_key("0.3.37", {}), door_native.wheel_key("0.3.36", {"CMAKE_ARGS": "-DX=1"})}
    monkeypatch.setattr(door_native, "compiler", lambda environ=None: "g++ 14")
    others.add(door_native.wheel_key("0.3.36", {}))
    assert one not in others and len(others) == 3


def raw_wheel(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as wheel:
        for name in (
            "llama_cpp/lib/libllama.so", "llama_cpp/lib/libllama.so.0", "llama_cpp/lib/libllama.so.0.5.0",
            "llama_cpp/lib/libggml-base.so.0", "llama_cpp/backends/libggml-cpu-zen4.so",
            "llama_cpp/backends/libggml-rpc.so", "llama_cpp/__init__.py", "lib/libllama.so",
            "lib/cmake/llama/llama-config.cmake", "include/llama.h", "x-1.dist-info/METADATA", "x-1.dist-info/RECORD",
        ):  # fmt: skip
            wheel.writestr(name, f"text of {name}")
    return path


def test_the_wheel_keeps_what_is_needed_and_lists_it(tmp_path: Path) -> None:
    raw = raw_wheel(tmp_path / "raw.whl")
    door_native.tidy(raw, tmp_path / "one.whl")
    raw.touch()
    door_native.tidy(raw, tmp_path / "two.whl")
    assert (tmp_path / "one.whl").read_bytes() == (tmp_path / "two.whl").read_bytes()
    with zipfile.ZipFile(tmp_path / "one.whl") as wheel:
        names = wheel.namelist()
        record = list(csv.reader(io.StringIO(wheel.read("x-1.dist-info/RECORD").decode())))
    assert "llama_cpp/lib/libllama.so" in names and "llama_cpp/lib/libggml-base.so.0" in names
    assert not any(name.startswith(("lib/", "include/")) or name.endswith(".5.0") for name in names)
    assert sorted(row[0] for row in record) == sorted(names)
    assert sorted(door_native.modules(tmp_path / "one.whl")) == ["cpu-zen4", "rpc"]


def test_a_kept_wheel_is_taken_without_building(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door_native, "sources", lambda *_: pytest.fail("nothing is to be built"))
    folder = place.cache / "wheels" / door_native.wheel_key("0.3.36")
    folder.mkdir(parents=True)
    (folder / "llama_cpp_python-0.3.36-py3-none-linux_x86_64.whl").touch()
    assert door_native.portable_wheel(place).parent == folder


# ------------------------------------------------------------------ the real one, where it was made


def made_wheel() -> Path:
    kept = sorted((CACHE / "wheels").glob("*-portable-*/*.whl"))
    if not kept:
        pytest.skip("the portable llama.cpp was not made on this machine (dev.py package makes it)")
    return kept[-1]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at Linux libraries")
def test_no_module_of_the_real_wheel_uses_amx(tmp_path: Path) -> None:
    names = list(door_native.modules(made_wheel()))
    assert {"cpu-x64", "cpu-haswell", "cpu-zen4", "rpc"} <= set(names) and "cpu-sapphirerapids" not in names
    with zipfile.ZipFile(made_wheel()) as wheel:
        for name in names:
            if name in ("cpu-zen4", "cpu-cooperlake"):
                file = wheel.extract(f"llama_cpp/backends/libggml-{name}.so", tmp_path)
                code = subprocess.run(["objdump", "-d", "--no-show-raw-insn", file], capture_output=True, text=True)
                assert code.returncode == 0 and "vpdpbusd" in code.stdout, "it is the right file"
                assert not any(word in code.stdout for word in ("ldtilecfg", "tdpbssd", "tileloadd"))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at Linux libraries")
def test_the_real_wheel_names_no_folder_of_the_machine_that_made_it(tmp_path: Path) -> None:
    with zipfile.ZipFile(made_wheel()) as wheel:
        for name in wheel.namelist():
            assert str(ROOT).encode() not in wheel.read(name), name


# ------------------------------------------------------------------ CUDA


def test_without_nvcc_cuda_is_refused_in_one_line(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    with pytest.raises(StepError, match="--cuda needs CUDA's compiler") as refused:
        door_cuda.build(place)
    assert "\n" not in str(refused.value)
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(StepError, match="on Linux only"):
        door_cuda.find_nvcc()


@pytest.mark.parametrize(
    ("value", "archs"),
    [
        ("", door_cuda.ARCHITECTURES),
        ("release", door_cuda.RELEASE_ARCHITECTURES),
        ("86-real;90", ("86-real", "90")),
        ("120a-real, 75-virtual", ("120a-real", "75-virtual")),
    ],
)
def test_architectures(value: str, archs: tuple[str, ...]) -> None:
    assert door_cuda.architectures({door_cuda.VARIABLE: value}) == archs


@pytest.mark.parametrize("value", ["native", "86;rm -rf", "sm_86", "releases"])
def test_words_that_are_no_architecture_are_refused(value: str) -> None:
    with pytest.raises(StepError, match="is no architecture"):
        door_cuda.architectures({door_cuda.VARIABLE: value})


@pytest.mark.skipif(os.name == "nt", reason="a shell script stands in for nvcc")
@pytest.mark.parametrize(
    ("says", "result"),
    [("release 13.0, V13.0.88", "13.0"), ("release 12.9, V12.9.1", "is of CUDA 12.9"), ("no", "does not tell")],
)
def test_only_cuda_13_fits_its_runtime(tmp_path: Path, says: str, result: str) -> None:
    nvcc = tmp_path / "nvcc"
    nvcc.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, {says}'\n")
    nvcc.chmod(0o755)
    if result == "13.0":
        assert door_cuda.nvcc_version(str(nvcc)) == result
    else:
        with pytest.raises(StepError, match=result):
            door_cuda.nvcc_version(str(nvcc))


def test_of_nvidias_packages_only_what_may_be_passed_on_is_taken(tmp_path: Path) -> None:
    wheel = tmp_path / "nvidia_cublas-13-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        for name in (
            "nvidia/cu13/lib/libcublas.so.13", "nvidia/cu13/lib/libnvblas.so.13", "nvidia/cu13/include/cublas.h",
            "nvidia/cu13/lib/libcudart_static.a", "nvidia_cublas-13.dist-info/licenses/License.txt",
            "nvidia/__init__.py", "../out.txt",
        ):  # fmt: skip
            packed.writestr(name, name)
    door_cuda.unpack(wheel, tmp_path / "to")
    found = sorted(path.relative_to(tmp_path / "to").as_posix() for path in (tmp_path / "to").rglob("*.*"))
    assert found == ["include/cublas.h", "lib/libcublas.so.13", "licences/nvidia_cublas.txt"]
    assert not (tmp_path / "out.txt").exists()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the add-on is made on Linux")
def test_the_add_on_says_which_llama_cpp_it_was_made_for(tmp_path: Path) -> None:
    made, runtime, source = tmp_path / "made", tmp_path / "runtime", tmp_path / "source"
    for folder in (made, runtime / "lib", runtime / "licences", source / "vendor" / "llama.cpp", tmp_path / "to"):
        folder.mkdir(parents=True)
    code = 'const char * ggml_version(void) { return "1.2"; } const char * ggml_commit(void) { return "abc"; }'
    (tmp_path / "base.c").write_text(code)
    command = ["gcc", "-shared", "-fPIC", "-o", made / "libggml-base.so.0", tmp_path / "base.c"]
    subprocess.run(command, check=True)
    (made / "libggml-cuda.so").write_bytes((made / "libggml-base.so.0").read_bytes())
    for library in door_cuda.LIBRARIES:
        (runtime / "lib" / library).write_text(library)
    (runtime / "licences" / "nvidia_cublas.txt").write_text("terms")
    (source / "vendor" / "llama.cpp" / "LICENSE").write_text("MIT")
    door_cuda.assemble(made, runtime, source, tmp_path / "to", ("80-virtual",), "13.0")
    manifest = json.loads((tmp_path / "to" / "addon.json").read_text())
    assert manifest["ggml"] == "1.2 abc" and manifest["architectures"] == ["80-virtual"]
    names = {path.relative_to(tmp_path / "to").as_posix() for path in (tmp_path / "to").rglob("*") if path.is_file()}
    assert names == {
        *("addon.json", "libggml-cuda.so", *door_cuda.LIBRARIES),
        *("licences/llama.cpp.txt", "licences/nvidia_cublas.txt"),
    }
    assert all(os.access(tmp_path / "to" / library, os.X_OK) for library in door_cuda.LIBRARIES)
