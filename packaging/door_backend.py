"""Which llama.cpp this machine gets, and why; builds it or takes it from the cache."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from door_steps import Place, StepError, run_logged, say

BACKENDS = ("cpu", "cuda", "metal", "vulkan")
PACKAGE = "llama-cpp-python"

# RPC makes a device of type GPU out of any other process: offload is tested with it, and machines are joined with it.
ALWAYS = ("-DGGML_RPC=ON",)
FLAGS: Mapping[str, tuple[str, ...]] = {
    "cpu": ("-DGGML_METAL=OFF",),
    "cuda": ("-DGGML_CUDA=ON",),
    "metal": ("-DGGML_METAL=ON",),
    "vulkan": ("-DGGML_VULKAN=ON",),
}


@dataclass(frozen=True)
class Facts:
    """What was found on the machine; `choose` decides on these alone.

    Attributes:
        system: `sys.platform`.
        machine: processor architecture, such as x86_64 or arm64.
        gpu: name of the NVIDIA GPU that the driver reports; empty without one.
        nvcc: path of CUDA's compiler; empty without one.
        wheel_index: address of an index with prebuilt wheels, as the user gave it; empty without one.
    """

    system: str
    machine: str
    gpu: str = ""
    nvcc: str = ""
    wheel_index: str = ""


@dataclass(frozen=True)
class Choice:
    """A backend, why it was chosen, and whether it is built here or comes as a wheel."""

    backend: str
    reason: str
    prebuilt: bool = False


def probe(environ: Mapping[str, str] = os.environ) -> Facts:
    """Look at this machine; takes about a second where an NVIDIA driver is installed."""
    return Facts(
        system=sys.platform,
        machine=platform.machine(),
        gpu=_nvidia_gpu(),
        nvcc=_nvcc(environ),
        wheel_index=environ.get("INGLENOOK_WHEEL_INDEX", ""),
    )


def choose(wanted: str, facts: Facts) -> Choice:
    """Decide on a backend. Raises StepError if `wanted` names one that this machine cannot have."""
    if wanted == "auto":
        return _choose_for(facts)
    reason = "asked for with --backend"
    if wanted == "metal" and facts.system != "darwin":
        raise StepError("--backend metal needs macOS; leave --backend out to get what fits this machine")
    if wanted == "cuda" and not facts.nvcc:
        if facts.wheel_index:
            return Choice("cuda", f"{reason}; prebuilt, from INGLENOOK_WHEEL_INDEX", prebuilt=True)
        raise StepError(
            "--backend cuda needs CUDA's compiler: install the CUDA toolkit so that nvcc is on PATH, "
            "or set INGLENOOK_WHEEL_INDEX to an index with CUDA wheels"
        )
    return Choice(wanted, reason)


def _choose_for(facts: Facts) -> Choice:
    if facts.system == "darwin":
        if facts.machine == "arm64":
            return Choice("metal", "this is a Mac with Apple silicon")
        return Choice("cpu", "Macs with Intel processors are faster without Metal")
    if not facts.gpu:
        return Choice("cpu", "no NVIDIA driver answers (for other GPUs: --backend vulkan)")
    if facts.nvcc:
        return Choice("cuda", f"{facts.gpu} and CUDA's compiler ({facts.nvcc}) are here")
    if facts.wheel_index:
        return Choice("cuda", f"{facts.gpu} is here; prebuilt, from INGLENOOK_WHEEL_INDEX", prebuilt=True)
    return Choice(
        "cpu",
        f"{facts.gpu} is here, but CUDA's compiler is not: install the CUDA toolkit (nvcc) "
        "or set INGLENOOK_WHEEL_INDEX, then run this again",
    )


def _nvidia_gpu() -> str:
    program = shutil.which("nvidia-smi")
    if not program:
        return ""
    command = [program, "--query-gpu=name", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = answer.stdout.strip().splitlines()
    return lines[0].strip() if answer.returncode == 0 and lines else ""


def _nvcc(environ: Mapping[str, str]) -> str:
    found = shutil.which("nvcc")
    if found:
        return found
    name = "nvcc.exe" if sys.platform == "win32" else "nvcc"
    for folder in (environ.get("CUDA_PATH"), environ.get("CUDA_HOME"), "/usr/local/cuda"):
        if folder and (Path(folder) / "bin" / name).is_file():
            return str(Path(folder) / "bin" / name)
    return ""


def cpu_features() -> str:
    """What the compiler may use on this processor: llama.cpp is built for the machine that it is built on."""
    with contextlib.suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        found = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", text, re.MULTILINE)
        if found:
            kinds = r"(mmx|sse|ssse|avx|amx|fma|f16c|bmi|adx|aes|popcnt|abm|movbe|gfni|vaes|vpclmul|sha|xop|sve|sme"
            kinds += r"|asimd|fp|i8mm|bf16|neon|crc32|atomics|dotprod)"
            return " ".join(sorted(word for word in found[1].split() if re.match(kinds, word)))
    if sys.platform == "darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        return answer.stdout.strip()
    return os.environ.get("PROCESSOR_IDENTIFIER", platform.processor())


def compiler_flags(features: str) -> str:
    """More flags for the C and C++ compiler on a processor with these features.

    GCC before 14 translates ggml's AMX code wrongly: the first answer dies of an illegal instruction. Without AMX the
    AVX-512 kernels do the work, and repacked weights can be used.
    """
    return "-mno-amx-tile -mno-amx-int8 -mno-amx-bf16" if "amx_tile" in features.split() else ""


def cmake_args(backend: str, environ: Mapping[str, str] = os.environ) -> str:
    """Words for CMAKE_ARGS; what the user has put there comes last and so wins."""
    return " ".join([*ALWAYS, *FLAGS[backend], *environ.get("CMAKE_ARGS", "").split()])


def wheel_key(version: str, choice: Choice, environ: Mapping[str, str] = os.environ) -> str:
    """Name of a wheel's folder in the cache: equal only where the wheel would run and be the same.

    The wheel holds no Python-specific code, so the Python version is not part of it.
    """
    parts = [
        version,
        choice.backend,
        "prebuilt" if choice.prebuilt else cmake_args(choice.backend, environ),
        sys.platform,
        platform.machine(),
        "-".join(platform.libc_ver()),
        cpu_features(),
        compiler_flags(cpu_features()),
    ]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
    return f"{version}-{choice.backend}-{digest}"


def cached_wheel(place: Place, key: str) -> Path | None:
    """The wheel in the cache, or None."""
    return next(iter(sorted((place.cache / "wheels" / key).glob("*.whl"))), None)


def get_wheel(place: Place, choice: Choice, version: str, facts: Facts) -> Path:
    """Return the wheel for a choice, built or fetched if it is not in the cache yet. Raises StepError."""
    key = wheel_key(version, choice)
    kept = cached_wheel(place, key)
    if kept:
        say(f"llama.cpp for {choice.backend}: built before, taken from {kept.parent}")
        return kept
    fresh = place.cache / "wheels" / f".{key}.{os.getpid()}"
    try:
        fresh.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StepError(
            f"cannot write {place.cache} ({error.strerror}): set INGLENOOK_DEV_CACHE to a folder that can be written"
        ) from None
    try:
        if choice.prebuilt:
            _fetch(place, version, facts.wheel_index, fresh)
        else:
            _build(place, choice, version, facts, fresh)
        final = fresh.with_name(key)
        if final.exists():
            shutil.rmtree(final)
        fresh.rename(final)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    wheel = cached_wheel(place, key)
    if wheel is None:
        raise StepError(f"pip made no wheel of {PACKAGE}: see the log ({place.log}) and run this again")
    return wheel


def _fetch(place: Place, version: str, index: str, folder: Path) -> None:
    say(f"fetching a prebuilt {PACKAGE} {version}")
    command: list[str | Path] = [
        place.python,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--index-url",
        index,
    ]
    command += ["--no-input", "--disable-pip-version-check", "-d", folder, f"{PACKAGE}=={version}"]
    advice = "see that INGLENOOK_WHEEL_INDEX holds this version for this machine"
    run_logged(place, "fetching llama.cpp", command, advice=advice)


def _build(place: Place, choice: Choice, version: str, facts: Facts, folder: Path) -> None:
    took = "10 to 40 minutes" if choice.backend in {"cuda", "vulkan"} else "about 5 minutes on 2 cores"
    say(f"building llama.cpp for {choice.backend} ({PACKAGE} {version}); this takes {took}, once")
    env = {**os.environ, "CMAKE_ARGS": cmake_args(choice.backend)}
    for name in ("CFLAGS", "CXXFLAGS"):
        env[name] = f"{compiler_flags(cpu_features())} {env.get(name, '')}".strip()
    if choice.backend == "cuda":
        env["CUDACXX"] = env.get("CUDACXX", facts.nvcc)
        env["PATH"] = os.pathsep.join([str(Path(facts.nvcc).parent), env.get("PATH", "")])
    command: list[str | Path] = [
        place.python,
        "-m",
        "pip",
        "wheel",
        "--no-cache-dir",
        "--no-deps",
        "--no-binary",
        PACKAGE,
        "-v",
    ]
    command += ["--no-input", "--disable-pip-version-check", "--build-constraint", place.constraints]
    command += ["--wheel-dir", folder, f"{PACKAGE}=={version}"]
    advice = "the compiler stopped (its last lines are in the log); --backend cpu builds the plain one"
    run_logged(place, "building llama.cpp", command, env=env, advice=advice)


def forget_wheel(place: Place, key: str) -> None:
    """Throw a cached wheel away that turned out not to work here."""
    shutil.rmtree(place.cache / "wheels" / key, ignore_errors=True)
