"""Loads the parts of llama.cpp that are files of their own: a module for each kind of CPU, and add-ons for GPUs.

A llama.cpp for many computers (GGML_BACKEND_DL) comes without any backend inside. One that was built for this computer
has them in it, and then there is nothing to do here.

Of the CPU modules the one is taken that llama.cpp itself gives the highest score on this processor. A GPU add-on is
tried in a throw-away process first (`backend_probe`); what came of it is kept in words, so that the CPU is never used
in its place silently.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine import cpu_flags, paths
from engine.backend_words import AddOn
from engine.errors import BackendMissing, StorageFailed
from engine.worker import devices, exit_words
from engine.worker.process import child_env, default_command, is_frozen

#: more folders with add-ons, each in a folder of its own inside; parted as in PATH
ADD_ONS_VARIABLE = "INGLENOOK_ADDONS"
#: beside the library of an add-on: which llama.cpp it was made for
MANIFEST = "addon.json"
_PROBE_S = 60.0
_MODULE = re.compile(r"(?:lib)?ggml-([a-z0-9]+)(?:-(.+))?\.(?:so|dll|dylib)")
_NAMES = {"cuda": "CUDA", "vulkan": "Vulkan", "metal": "Metal", "hip": "ROCm", "sycl": "SYCL", "opencl": "OpenCL"}
#: kinds of modules that are no add-ons
_PLAIN = ("cpu", "rpc", "base", "blas")
#: llama.cpp's names of what its compiler was allowed to use (ggml-cpu.h, ggml_cpu_has_...)
_COMPILED = (
    *("sse3", "ssse3", "avx", "avx_vnni", "avx2", "f16c", "fma", "bmi2", "avx512", "avx512_vbmi"),
    *("avx512_vnni", "avx512_bf16"),
)


@dataclass(frozen=True)
class Module:
    """A file with a backend in it: kind "cpu" with variant "zen4", kind "cuda" without one."""

    path: Path
    kind: str
    variant: str = ""


@dataclass
class Loaded:
    """What was loaded, and why something was not.

    Attributes:
        cpu_module: variant of the CPU module ("zen4"), "" where the CPU is built in.
        add_ons: all that were found.
        problems: sentences about modules that should have been loadable.
    """

    cpu_module: str = ""
    add_ons: list[AddOn] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


_current = Loaded()


def current() -> Loaded:
    """What this process has loaded."""
    return _current


def load(*, add_ons: bool = True) -> Loaded:
    """Load what belongs to this llama.cpp and fits this computer. Does nothing in a build that has its backends inside.

    Args:
        add_ons: GPUs too; what only plans or checks does without.

    Raises:
        BackendMissing: none of the modules for CPUs can be used.
    """
    global _current
    loaded = _current = Loaded()
    if devices.backends():
        return loaded
    own = list(
        {module.path.name: module for folder in reversed(package_folders()) for module in modules_in(folder)}.values()
    )
    if add_ons:
        loaded.add_ons = _load_add_ons([m for m in own if m.kind not in _PLAIN], loaded.problems)
    for module in own:
        if module.kind in ("rpc", "blas") and not _load(module.path):
            loaded.problems.append(f"{module.path.name} could not be loaded")
    loaded.cpu_module = _load_cpu([module for module in own if module.kind == "cpu"], loaded.problems)
    return loaded


# ------------------------------------------------------------------ what is there


def package_folders() -> list[Path]:
    """Folders beside llama.cpp that its own modules are in: of a package of ours, or of a wheel as others make it."""
    libraries = devices.library_folder()
    found = (libraries.parent / "backends", libraries, libraries.parent.parent / "bin")
    return [folder for folder in found if folder.is_dir()]


def modules_in(folder: Path) -> list[Module]:
    """Modules in a folder, by name; of files that differ only in a version behind the name, the one without it."""
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208 (names, no paths)
    except OSError:
        return []
    found = ((name, _MODULE.fullmatch(name)) for name in names)
    return [
        Module(folder / name, match[1], match[2] or "")
        for name, match in found
        if match is not None and match[1] != "base"
    ]


def add_on_folders(environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Folders of add-ons: of the program, of this user, of the environment."""
    places = []
    with suppress(StorageFailed):  # no home folder, so nothing in it
        places.append(paths.resolve().data / "addons")
    if is_frozen():
        places.insert(0, Path(sys.executable).resolve().parent / "addons")
    places += [Path(place) for place in environ.get(ADD_ONS_VARIABLE, "").split(os.pathsep) if place]
    found: list[Path] = []
    for place in places:
        try:
            found += sorted(folder for folder in place.iterdir() if folder.is_dir())
        except OSError:
            continue
    return found


# ------------------------------------------------------------------ the CPU


def check_compiled_for() -> None:
    """See that this processor has what a llama.cpp that was built for one computer was compiled for.

    The functions asked only give a number back. The first other one may use an instruction that is not there.

    Raises:
        BackendMissing: a feature is missing, by name.
    """
    lacks = cpu_flags.missing(compiled_for(devices.symbol), cpu_flags.active())
    if lacks:
        raise BackendMissing(
            f"This processor lacks {', '.join(lacks)}, which this build of llama.cpp uses",
            hint="Use a package of Inglenook, which has llama.cpp for every processor, or build it on this computer.",
            details={"missing": ", ".join(lacks)},
        )


def compiled_for(symbol: Callable[[str], Any]) -> list[str]:
    """Features that the CPU backend inside llama.cpp was compiled for; none where its backends are modules."""
    found = []
    for name in _COMPILED if cpu_flags.is_x86() else ():
        try:
            function = symbol(f"ggml_cpu_has_{name}")
        except AttributeError:
            continue
        function.argtypes, function.restype = [], ctypes.c_int
        if function():
            found.append(name)
    return found


def _load_cpu(modules: Sequence[Module], problems: list[str]) -> str:
    scores = {module: score for module in modules if (score := _score(module, problems)) > 0}
    for module in sorted(scores, key=lambda module: scores[module], reverse=True):
        if _load(module.path):
            return module.variant
        problems.append(f"{module.path.name} fits this processor best and could not be loaded")
    raise BackendMissing(
        "llama.cpp has no module for this processor" if modules else "llama.cpp has no module for any processor",
        hint="Install Inglenook again.",
        details={"modules": [module.path.name for module in modules], "problems": list(problems)},
    )


def _score(module: Module, problems: list[str]) -> int:
    """llama.cpp's own judgement of a module on this processor; 0: it cannot be used."""
    try:
        library = ctypes.CDLL(str(module.path))
        function = library.ggml_backend_score
    except (OSError, AttributeError) as error:
        problems.append(f"{module.path.name} could not be loaded: {error}")
        return 0
    function.argtypes, function.restype = [], ctypes.c_int
    score = int(function())
    _close(library)
    return score


def _close(library: ctypes.CDLL) -> None:
    """Unload a library: fourteen modules in memory would be thirteen too many."""
    import _ctypes

    close = getattr(_ctypes, "dlclose", None) or _ctypes.FreeLibrary  # type: ignore[attr-defined, unused-ignore]
    close(library._handle)


def _load(path: Path) -> bool:
    """Load a module into llama.cpp's registry."""
    function = devices.symbol("ggml_backend_load")
    function.argtypes, function.restype = [ctypes.c_char_p], ctypes.c_void_p
    return bool(function(os.fsencode(path)))


# ------------------------------------------------------------------ add-ons for GPUs


def _load_add_ons(own: Sequence[Module], problems: list[str]) -> list[AddOn]:
    found: list[AddOn] = []
    for module, refusal in _candidates(own):
        name = _NAMES.get(module.kind, module.kind.upper())
        if any(one.name == name and one.state == "active" for one in found):
            continue
        state, reason = ("refused", refusal) if refusal else try_out(module)
        if state == "active" and not _load(module.path):
            state, reason = "failed", "it worked in its trial and could not be loaded afterwards"
        found.append(AddOn(name, state, reason, str(module.path)))
    return found


def _candidates(own: Sequence[Module]) -> Iterator[tuple[Module, str]]:
    """Each module with why it must not be loaded; "" where nothing speaks against it."""
    for module in own:
        yield module, ""
    for folder in add_on_folders():
        for module in modules_in(folder):
            if module.kind not in _PLAIN:
                yield module, refusal(folder / MANIFEST, built_from())


def built_from() -> str:
    """Which llama.cpp this is, as add-ons name it. Modules may only be mixed with the very sources they come from."""
    words = []
    for name in ("ggml_version", "ggml_commit"):
        function = devices.symbol(name)
        function.argtypes, function.restype = [], ctypes.c_char_p
        words.append(function().decode("utf-8", "replace"))
    return " ".join(words)


def refusal(manifest: Path, this: str) -> str:
    """Why an add-on does not belong to this llama.cpp; "" if it does."""
    try:
        made_for = json.loads(manifest.read_text(encoding="utf-8"))["ggml"]
    except (OSError, ValueError, KeyError, TypeError):
        return f"it does not say which llama.cpp it was made for ({MANIFEST})"
    if made_for != this:
        return f"it was made for another llama.cpp (ggml {made_for}, here {this}): install the one of this version"
    return ""


def try_out(module: Module) -> tuple[str, str]:
    """State and reason of a module, found out in a process of its own."""
    command = [*probe_command(), str(devices.library_folder()), str(module.path)]
    flags = getattr(subprocess, "CREATE_NO_WINDOW", 0)
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_S,
            check=False,
            env=child_env(),
            creationflags=flags,
        )
    except subprocess.TimeoutExpired:
        return "failed", f"it did not answer within {_PROBE_S:g} s"
    except OSError as error:
        return "failed", f"its trial process could not be started ({error.strerror or error})"
    if done.returncode:
        words = exit_words.describe(done.returncode, done.stderr.decode("utf-8", "replace").splitlines())
        return "failed", f"its trial process died: {words.signal or f'exit code {done.returncode}'}"
    try:
        found = json.loads(done.stdout.decode("utf-8", "replace").splitlines()[-1])
        return judge(module.kind, found)
    except (ValueError, IndexError, KeyError, TypeError):
        return "failed", "its trial process gave no answer"


def probe_command() -> list[str]:
    """The command of the trial process: this interpreter, or this program itself where it is frozen."""
    worker = default_command()
    return [worker[0], "--probe-backend"] if is_frozen() else [*worker[:-1], "engine.worker.backend_probe"]


def judge(kind: str, found: Mapping[str, Any]) -> tuple[str, str]:
    """State and reason from what a trial process said."""
    log = [str(line) for line in found["log"]]
    text = "\n".join(log).lower()
    if found["devices"]:
        return "active", ""
    if found["driver"] is False:
        return "no_device", {"cuda": "no NVIDIA driver", "vulkan": "no Vulkan driver"}[kind]
    if not found["ok"]:
        if "incompatible api version" in text:
            return "refused", "it was made for another llama.cpp"
        return "failed", f"it cannot be loaded ({_last(log)})" if log else "it cannot be loaded"
    if kind == "cuda" and "driver version is insufficient" in text:
        return "no_device", "the NVIDIA driver is older than this add-on needs"
    if kind == "cuda" and ("no cuda-capable device" in text or not text):
        return "no_device", "no NVIDIA GPU"
    if kind == "vulkan":
        return "no_device", "no GPU with a Vulkan driver"
    return "no_device", f"no device ({_last(log)})" if log else "no device"


def _last(log: Sequence[str]) -> str:
    """The last line that says more than where it comes from."""
    return re.sub(r"^\w+: ", "", log[-1])[:200]
