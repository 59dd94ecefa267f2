"""The add-on for NVIDIA GPUs: llama.cpp's CUDA backend as a file of its own, with the parts of CUDA that it needs."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import door_backend
import door_env
import door_native
from door_steps import Place, StepError, run_logged, say

FORMAT = 1
"""Part of the add-on's key; raise it when this file makes it in another way."""

ARCHITECTURES = ("80-virtual",)
"""What is made unless INGLENOOK_CUDA_ARCHITECTURES says otherwise: code that the driver translates at the first start,
for every GPU from Ampere (2020) on. One architecture takes half an hour on two cores."""

RELEASE_ARCHITECTURES = ("75-virtual", "80-virtual", "86-real", "89-real", "90-virtual", "120a-real")
"""What a release has (INGLENOOK_CUDA_ARCHITECTURES=release): Turing (2018) and newer, ready for the usual GPUs."""

VARIABLE = "INGLENOOK_CUDA_ARCHITECTURES"

RUNTIME = {"nvidia-cublas": "13.1.0.3", "nvidia-cuda-runtime": "13.0.96"}
"""Packages with the parts of CUDA 13.0 that may be passed on, and their versions."""

LIBRARIES = ("libcudart.so.13", "libcublas.so.13", "libcublasLt.so.13")
MODULE = "libggml-cuda.so"
MANIFEST = "addon.json"
FOLDER = "cuda"

FLAGS = (
    *("-DCMAKE_BUILD_TYPE=Release", "-DBUILD_SHARED_LIBS=ON", "-DGGML_BACKEND_DL=ON", "-DGGML_NATIVE=OFF"),
    *("-DGGML_CPU=OFF", "-DGGML_CUDA=ON", "-DGGML_CUDA_GRAPHS=ON", "-DGGML_CUDA_NCCL=OFF"),
    # With it the module would be linked to the driver's own library, and could not be loaded without one.
    "-DGGML_CUDA_NO_VMM=ON",
    *("-DLLAMA_BUILD_COMMON=OFF", "-DLLAMA_BUILD_TOOLS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_BUILD_TESTS=OFF"),
    *("-DLLAMA_BUILD_SERVER=OFF", "-DLLAMA_CURL=OFF"),
    *("-DCMAKE_INSTALL_RPATH=$ORIGIN", "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON"),
)


def build(place: Place) -> Path:
    """Make the add-on in `build/addons/cuda`; returns that folder. Raises StepError."""
    nvcc = find_nvcc()
    version = door_env.read_constraints(place)[door_backend.PACKAGE]
    archs = architectures()
    target = place.root / "build" / "addons" / FOLDER
    kept = place.cache / "addons" / addon_key(version, nvcc, archs)
    if not (kept / MANIFEST).is_file():
        say(f"building llama.cpp's CUDA backend for {', '.join(archs)}; this takes half an hour for each, once")
        _make(place, version, nvcc, archs, kept)
    else:
        say(f"CUDA add-on: built before, taken from {kept}")
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(kept, target, copy_function=_link)
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    say(f"CUDA add-on: {target} ({size / 2**20:.0f} MiB)")
    return target


def find_nvcc(environ: Mapping[str, str] = os.environ) -> str:
    """CUDA's compiler. Raises StepError where there is none, or no add-on can be made on this system."""
    if not sys.platform.startswith("linux"):
        raise StepError("the CUDA add-on is made on Linux only")
    nvcc = door_backend._nvcc(environ)
    if not nvcc:
        raise StepError("--cuda needs CUDA's compiler: install the CUDA toolkit 13.0 so that nvcc is on PATH")
    return nvcc


def architectures(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Which GPUs it is made for, as CMake names them. Raises StepError."""
    words = environ.get(VARIABLE, "").replace(",", " ").replace(";", " ").split()
    if words == ["release"]:
        return RELEASE_ARCHITECTURES
    wrong = [word for word in words if not re.fullmatch(r"\d{2,3}[af]?(?:-real|-virtual)?", word)]
    if wrong:
        raise StepError(f"{VARIABLE}: {wrong[0]!r} is no architecture; write release, or names such as 86-real")
    return tuple(words) or ARCHITECTURES


def addon_key(version: str, nvcc: str, archs: tuple[str, ...]) -> str:
    """Name of its folder in the cache."""
    parts = [str(FORMAT), version, *FLAGS, *archs, nvcc_version(nvcc), door_native.compiler(), platform.machine()]
    parts += [f"{name}=={number}" for name, number in RUNTIME.items()]
    parts += ["-".join(platform.libc_ver()), str(door_native.FORMAT)]
    return f"{version}-cuda-{hashlib.sha256(chr(10).join(parts).encode()).hexdigest()[:12]}"


def nvcc_version(nvcc: str) -> str:
    """Such as "13.0". Raises StepError where its libraries and ours would not fit together."""
    try:
        answer = subprocess.run([nvcc, "--version"], capture_output=True, text=True, timeout=60, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        answer = ""
    found = re.search(r"release (\d+)\.(\d+)", answer)
    if not found:
        raise StepError(f"{nvcc} does not tell its version: install the CUDA toolkit 13.0 again")
    if found[1] != "13":
        raise StepError(f"{nvcc} is of CUDA {found[1]}.{found[2]}: the add-on is made with CUDA 13.0")
    return f"{found[1]}.{found[2]}"


def _make(place: Place, version: str, nvcc: str, archs: tuple[str, ...], kept: Path) -> None:
    source = door_native.sources(place, version)
    tools = door_native.tools(place, ("cmake", "ninja"))
    runtime = fetch_runtime(place)
    made = place.root / "build" / "native" / "cuda"
    fresh = kept.with_name(f".{kept.name}.{os.getpid()}")
    path = os.environ.get("PATH", "").split(os.pathsep)
    env = {
        **door_native.environment(source),
        "PATH": os.pathsep.join([str(tools / "bin"), str(Path(nvcc).parent), *path]),
    }
    env.pop("CMAKE_ARGS")
    command: list[str | Path] = ["cmake", "-S", source / "vendor" / "llama.cpp", "-B", made, "-G", "Ninja"]
    run_logged(place, "configuring the CUDA backend", [*command, *cmake_flags(source, runtime, nvcc, archs)], env=env)
    jobs = str(os.cpu_count() or 1)
    command = ["cmake", "--build", made, "--target", "ggml-cuda", "-j", jobs]
    run_logged(place, "building the CUDA backend", command, env=env, advice="nvcc stopped; its last lines are there")
    try:
        fresh.mkdir(parents=True, exist_ok=True)
        assemble(made, runtime, source, fresh, archs, nvcc_version(nvcc))
        shutil.rmtree(kept, ignore_errors=True)
        fresh.rename(kept)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def cmake_flags(source: Path, runtime: Path, nvcc: str, archs: tuple[str, ...]) -> list[str]:
    """All that CMake is told."""
    include, mapped = f"-I{runtime / 'include'}", door_native.path_map(source)
    return [
        *FLAGS,
        f"-DCMAKE_CUDA_ARCHITECTURES={';'.join(archs)}",
        f"-DCMAKE_CUDA_COMPILER={nvcc}",
        *(f"-DCUDA_{name}_LIBRARY={runtime / 'lib' / f'lib{name}.so'}" for name in ("cublas", "cublasLt")),
        f"-DCMAKE_CUDA_FLAGS={include} -Xcompiler={mapped}",
        f"-DCMAKE_CXX_FLAGS={include} {mapped}",
        f"-DCMAKE_C_FLAGS={mapped}",
    ]


def fetch_runtime(place: Place) -> Path:
    """The parts of CUDA from their packages: `include`, `lib` and `licences` in one folder of the cache."""
    name = "-".join(f"{number}" for number in RUNTIME.values())
    folder = place.cache / "cuda" / name
    if (folder / "lib" / "libcublas.so").exists():
        return folder
    say("fetching cuBLAS and CUDA's runtime (425 MB)")
    part = folder.with_name(f".{name}.{os.getpid()}")
    part.mkdir(parents=True, exist_ok=True)
    python = door_native.tools(place) / "bin" / "python"
    command: list[str | Path] = [python, "-m", "pip", "download", "--no-deps", "--no-input", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--progress-bar", "off", "-d", part]
    try:
        run_logged(place, "fetching CUDA's parts", [*command, *(f"{n}=={v}" for n, v in RUNTIME.items())])
        for wheel in sorted(part.glob("*.whl")):
            unpack(wheel, part)
            wheel.unlink()
        missing = [library for library in LIBRARIES if not (part / "lib" / library).is_file()]
        if missing:
            raise StepError(f"the packages of CUDA's parts have no {missing[0]}: see RUNTIME in door_cuda.py")
        for library in ("libcublas.so", "libcublasLt.so"):  # the names that a linker looks for
            (part / "lib" / library).symlink_to(f"{library}.13")
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


def unpack(wheel: Path, folder: Path) -> None:
    """Take headers, the libraries that are passed on, and the licence out of one of NVIDIA's packages."""
    with zipfile.ZipFile(wheel) as packed:
        for info in packed.infolist():
            found = re.fullmatch(r"nvidia/cu13/(include/.+|lib/[^/]+)", info.filename)
            name = found[1] if found else ""
            if name.startswith("lib/") and Path(name).name not in LIBRARIES:
                continue
            if re.fullmatch(r"[^/]+\.dist-info/(?:licenses/)?License\.txt", info.filename):
                name = f"licences/{wheel.name.split('-')[0]}.txt"
            if name and not info.is_dir():
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                with packed.open(info) as source, target.open("wb") as file:
                    shutil.copyfileobj(source, file, 1 << 20)


def assemble(made: Path, runtime: Path, source: Path, target: Path, archs: tuple[str, ...], cuda: str) -> None:
    """Put the add-on together in `target`. Raises StepError."""
    module = next(iter(sorted(made.rglob(MODULE))), None)
    if module is None:
        raise StepError(f"the compiler made no {MODULE}: remove build/native/cuda and run this again")
    shutil.copyfile(module, target / MODULE)
    for library in LIBRARIES:
        shutil.copyfile(runtime / "lib" / library, target / library)
    for path in target.glob("*.so*"):
        path.chmod(0o755)
    strip = shutil.which("strip")
    if strip:
        subprocess.run([strip, "--strip-unneeded", str(target / MODULE)], check=False)
    licences = target / "licences"
    licences.mkdir()
    for text in sorted((runtime / "licences").iterdir()):
        shutil.copyfile(text, licences / text.name)
    shutil.copyfile(source / "vendor" / "llama.cpp" / "LICENSE", licences / "llama.cpp.txt")
    manifest = {
        "name": "CUDA",
        "ggml": built_from(made),
        "architectures": list(archs),
        "cuda": cuda,
        "parts": RUNTIME,
    }
    (target / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")


def built_from(made: Path) -> str:
    """Which llama.cpp it belongs to, in the words of the library that it was linked to."""
    base = next(iter(sorted(made.rglob("libggml-base.so.0"))), None)
    if base is None:
        raise StepError("the compiler made no libggml-base.so.0: remove build/native/cuda and run this again")
    library = ctypes.CDLL(str(base))
    words: list[str] = []
    for name in ("ggml_version", "ggml_commit"):
        function = getattr(library, name)
        function.argtypes, function.restype = [], ctypes.c_char_p
        words.append(function().decode())
    return " ".join(words)


def _link(source: str, target: str) -> None:
    """A second name for a file, or a copy on another disk: the libraries are large."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
