"""llama.cpp for computers that we do not know: one wheel with a module for every kind of CPU, made once and kept."""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import door_backend
import door_env
from door_steps import Place, StepError, run_logged, say, write_atomic

FORMAT = 1
"""Part of the wheel's key; raise it when this file makes the wheel in another way."""

FIRST_DATE = 1_767_225_600
"""The date of all that is made here, so that the same sources give the same bytes: the beginning of 2026."""

_DATE = (2026, 1, 1, 0, 0, 0)

COMMON = ("-DGGML_NATIVE=OFF", "-DGGML_RPC=ON", "-DLLAVA_BUILD=OFF", "-DLLAMA_BUILD_TOOLS=OFF")
"""llama.cpp's library for pictures and sound is not used, and so is not made."""

MODULES = (
    *("-DGGML_BACKEND_DL=ON", "-DGGML_CPU_ALL_VARIANTS=ON", "-DGGML_METAL=OFF"),
    "-DCMAKE_INSTALL_BINDIR=llama_cpp/backends",
)

EDITS: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    "vendor/llama.cpp/ggml/src/CMakeLists.txt": (
        # Without AMX it would equal zen4, which those processors then get. GCC before 14 translates AMX wrongly.
        (r"^ *ggml_add_cpu_backend_variant\(sapphirerapids .*\n", "", "the module with AMX"),
    ),
    "CMakeLists.txt": (
        (r"LLAMA_BUILD_COMMON ON CACHE", "LLAMA_BUILD_COMMON OFF CACHE", "the helpers of llama.cpp's own programs"),
    ),
}
"""What is changed in the sources: file, then (what is looked for, what it becomes, what is left out)."""

LEFT_OUT = re.compile(r"(?:lib|include|bin|share)/.*|.*\.so\.\d+\.\d.*|.*\.(?:cmake|pc|lib|exp)")
"""Files of the wheel that nobody needs: a second copy of all libraries, headers, and copies in place of links."""


def flags(system: str = sys.platform) -> tuple[str, ...]:
    """What CMake is told. On macOS there are few kinds of processors, and Metal is inside."""
    if system == "darwin":
        return (*COMMON, "-DGGML_METAL=ON", "-DGGML_METAL_EMBED_LIBRARY=ON")
    if system == "win32":
        return (*COMMON, *MODULES)
    return (*COMMON, *MODULES, "-DCMAKE_INSTALL_RPATH='$ORIGIN/../lib'")


def portable_wheel(place: Place) -> Path:
    """The wheel, from the cache or made now (about ten minutes on two cores). Raises StepError."""
    version = door_env.read_constraints(place)[door_backend.PACKAGE]
    key = wheel_key(version)
    kept = door_backend.cached_wheel(place, key)
    if kept:
        say(f"llama.cpp for every computer: built before, taken from {kept.parent}")
        return kept
    say(f"building llama.cpp for every computer ({door_backend.PACKAGE} {version}); this takes about 10 minutes, once")
    source = sources(place, version)
    raw, fresh = place.root / "build" / "native" / "raw", place.cache / "wheels" / f".{key}.{os.getpid()}"
    shutil.rmtree(raw, ignore_errors=True)
    command: list[str | Path] = [tools(place) / _python(), "-m", "pip", "wheel", "--no-cache-dir", "--no-deps", "-v"]
    command += ["--no-input", "--disable-pip-version-check", "--build-constraint", place.constraints]
    command += ["-C", f"build-dir={place.root / 'build' / 'native' / 'obj'}", "--wheel-dir", raw, source]
    run_logged(place, "building llama.cpp", command, env=environment(source), advice="the compiler stopped")
    try:
        fresh.mkdir(parents=True, exist_ok=True)
        made = next(raw.glob("*.whl"))
        tidy(made, fresh / made.name)
        final = fresh.with_name(key)
        shutil.rmtree(final, ignore_errors=True)
        fresh.rename(final)
    except StopIteration:
        raise StepError(f"pip made no wheel of {door_backend.PACKAGE}: see the log ({place.log})") from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return final / made.name


def wheel_key(version: str, environ: Mapping[str, str] = os.environ) -> str:
    """Name of its folder in the cache. The processor that builds is no part of it: the wheel runs on all."""
    parts = [str(FORMAT), version, *flags(), environ.get("CMAKE_ARGS", ""), sys.platform, platform.machine()]
    parts += ["-".join(platform.libc_ver()), compiler(environ)]
    return f"{version}-portable-{hashlib.sha256(chr(10).join(parts).encode()).hexdigest()[:12]}"


def compiler(environ: Mapping[str, str] = os.environ) -> str:
    """Name and version of the C++ compiler, as it says itself; its name alone where it does not answer so."""
    name = environ.get("CXX") or ("cl" if sys.platform == "win32" else "c++")
    try:
        answer = subprocess.run([name, "--version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return name
    return answer.stdout.strip().partition("\n")[0] or name


def environment(source: Path, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Environment of the build: what CMake is told, and no paths of this machine in what it makes."""
    env = {**environ, "CMAKE_ARGS": " ".join([*flags(), *environ.get("CMAKE_ARGS", "").split()])}
    env.setdefault("SOURCE_DATE_EPOCH", str(FIRST_DATE))
    # llama.cpp notes the commit of its own sources, never that of a checkout that they lie in
    env["GIT_CEILING_DIRECTORIES"] = str(source.parent)
    if sys.platform != "win32":
        for name in ("CFLAGS", "CXXFLAGS"):
            env[name] = f"{path_map(source)} {environ.get(name, '')}".strip()
    return env


def path_map(source: Path) -> str:
    """Compiler's flag that writes "llama" where the folder of the sources would be named."""
    return f"-ffile-prefix-map={source}=llama"


def _python() -> str:
    return "Scripts/python.exe" if os.name == "nt" else "bin/python"


def tools(place: Place, packages: Sequence[str] = ()) -> Path:
    """An environment with pip at the pinned version, and these packages. Raises StepError."""
    folder = place.root / "build" / "native" / "tools"
    pins = door_env.read_constraints(place)
    wanted = [f"{name}=={pins[name]}" for name in ("pip", *packages)]
    stamp = folder / "inglenook-tools.txt"
    have = stamp.read_text(encoding="utf-8").split() if stamp.is_file() else []
    if set(wanted) <= set(have):
        return folder
    if not (folder / _python()).exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        base = getattr(sys, "_base_executable", sys.executable) or sys.executable
        run_logged(place, "making build/native/tools", [base, "-m", "venv", "--clear", folder])
    command: list[str | Path] = [folder / _python(), "-m", "pip", "install", "--no-input"]
    command += ["--disable-pip-version-check", "--progress-bar", "off", *wanted]
    run_logged(place, "installing the tools of the build", command)
    write_atomic(stamp, "\n".join(sorted({*have, *wanted})))
    return folder


# ------------------------------------------------------------------ sources


def sources(place: Place, version: str) -> Path:
    """The sources with our edits, unpacked in `build/native`. Raises StepError."""
    folder = place.root / "build" / "native" / f"llama-{version}"
    mark = folder / f".edited-{FORMAT}"
    if mark.exists():
        return folder
    archive = _archive(place, version)
    shutil.rmtree(folder, ignore_errors=True)
    part = folder.with_name(f"{folder.name}.{os.getpid()}.part")
    try:
        with tarfile.open(archive) as packed:
            packed.extractall(part, filter="data")
        inner = next(path for path in part.iterdir() if path.is_dir())
        edit(inner)
        (inner / mark.name).touch()
        inner.rename(folder)
    except (tarfile.TarError, StopIteration, EOFError):
        archive.unlink(missing_ok=True)
        raise StepError(f"the sources of {door_backend.PACKAGE} came damaged: run this again") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


def _archive(place: Place, version: str) -> Path:
    """The source archive, kept in the cache."""
    kept = place.cache / "sdist"
    found = next(iter(sorted(kept.glob(f"llama_cpp_python-{version}.tar.gz"))), None)
    if found:
        return found
    say(f"fetching the sources of {door_backend.PACKAGE} {version} (77 MB)")
    part = kept.with_name(f".sdist.{os.getpid()}")
    part.mkdir(parents=True, exist_ok=True)
    kept.mkdir(parents=True, exist_ok=True)
    command: list[str | Path] = [tools(place) / _python(), "-m", "pip", "download", "--no-deps", "--no-input"]
    command += ["--no-binary", ":all:", "--disable-pip-version-check", "--progress-bar", "off", "-d", part]
    try:
        run_logged(place, "fetching llama.cpp", [*command, f"{door_backend.PACKAGE}=={version}"])
        fetched = next(part.glob("*.tar.gz"))
        return fetched.replace(kept / f"llama_cpp_python-{version}.tar.gz")
    except StopIteration:
        raise StepError(f"pip fetched no sources of {door_backend.PACKAGE}: see the log ({place.log})") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)


def edit(source: Path) -> None:
    """Make our edits. Raises StepError where the sources are not those that they were written for."""
    for name, edits in EDITS.items():
        path = source / name
        try:
            text = path.read_text(encoding="utf-8")
        except OSError:
            raise StepError(f"the sources of llama.cpp have no {name}: see EDITS in door_native.py") from None
        for pattern, fresh, what in edits:
            text, count = re.subn(pattern, fresh, text, flags=re.MULTILINE)
            if not count:
                raise StepError(f"{name} has changed: {what} cannot be left out; see EDITS in door_native.py")
        path.write_text(text, encoding="utf-8")


# ------------------------------------------------------------------ the wheel


def tidy(raw: Path, target: Path) -> None:
    """Write the wheel again without what nobody needs, its entries in order and all of one date."""
    with zipfile.ZipFile(raw) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as new:
        rows: list[str] = []
        record = ""
        for info in sorted(old.infolist(), key=lambda info: info.filename):
            if info.filename.endswith(".dist-info/RECORD"):
                record = info.filename
            elif not info.is_dir() and not LEFT_OUT.fullmatch(info.filename):
                data = old.read(info)
                rows.append(f"{info.filename},{_digest(data)},{len(data)}")
                new.writestr(_entry(info.filename), data)
        if not record:
            raise StepError(f"{raw.name} has no list of its files: see LEFT_OUT in door_native.py")
        new.writestr(_entry(record), "\n".join([*rows, f"{record},,", ""]))


def _entry(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _DATE)
    info.compress_type = zipfile.ZIP_DEFLATED
    library = re.search(r"\.(?:so|dylib|dll)(?:\.\d+)?$", name)
    info.external_attr = (0o755 if library else 0o644) << 16
    return info


def _digest(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def modules(wheel: Path) -> Iterator[str]:
    """Names of the modules in a wheel: "cpu-zen4", "rpc"."""
    with zipfile.ZipFile(wheel) as packed:
        for name in packed.namelist():
            found = re.fullmatch(r"llama_cpp/backends/(?:lib)?ggml-([\w.-]+?)\.(?:so|dll)", name)
            if found:
                yield found[1]
