"""ggml's own reader as the judge: what it refuses, we refuse; what we pass, it reads. In a child: it may abort."""

from __future__ import annotations

import importlib.util
import random
import subprocess
import sys
from pathlib import Path

import pytest
from gguf_maker import ARR, I32, STR, small_model
from test_gguf_hostile import DEFECTS, SOUND

from engine.errors import EngineError
from engine.models.gguf import read_header

#: only in the data, which ggml's reader of headers does not look at
DATA_ONLY = {"last byte missing", "no data"}
CHILD = """
import ctypes, sys
class Params(ctypes.Structure):
    _fields_ = [("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p)]
lib = ctypes.CDLL(sys.argv[1])
lib.gguf_init_from_file.restype = ctypes.c_void_p
lib.gguf_init_from_file.argtypes = [ctypes.c_char_p, Params]
lib.gguf_free.argtypes = [ctypes.c_void_p]
for line in sys.stdin:
    context = lib.gguf_init_from_file(line.rstrip("\\n").encode(), Params(True, None))
    print("ok" if context else "refused", flush=True)
    if context:
        lib.gguf_free(context)
"""


def ggml_library() -> Path:
    spec = importlib.util.find_spec("llama_cpp")
    assert spec is not None
    assert spec.origin is not None
    site = Path(spec.origin).parent
    for pattern in ("libggml-base.so.0", "libggml-base*.dylib", "ggml-base*.dll", "libggml-base*.so*"):
        for folder in (site / "lib", site.parent / "bin", site.parent / "lib"):
            found = sorted(folder.glob(pattern))
            if found:
                return found[0]
    pytest.fail("libggml-base is not beside llama_cpp")


def verdicts(paths: list[Path]) -> list[str]:
    """ "ok", "refused" or "died" for each file; a child that dies is started again behind the file that killed it."""
    result: list[str] = []
    while len(result) < len(paths):
        todo = paths[len(result) :]
        done = subprocess.run(
            [sys.executable, "-c", CHILD, str(ggml_library())],
            input="".join(f"{path}\n" for path in todo),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        answers = done.stdout.split()
        result += answers
        if len(answers) < len(todo):
            result.append("died")
    return result


def ours(path: Path) -> str:
    try:
        read_header(path)
    except EngineError as error:
        return error.message
    return "ok"


def test_same_verdict_on_defects_and_oddities(tmp_path: Path) -> None:
    names = [*DEFECTS, *SOUND]
    makers = [*(make for make, _ in DEFECTS.values()), *SOUND.values()]
    paths = [make().write(tmp_path / f"{index}.gguf") for index, make in enumerate(makers)]
    for name, path, theirs in zip(names, paths, verdicts(paths), strict=True):
        if ours(path) == "ok":
            assert theirs == "ok", f"we pass what ggml does not read: {name} ({theirs})"
        if name in SOUND or name in DATA_ONLY:
            assert ours(path) == theirs == "ok", name


def test_same_verdict_on_random_damage(tmp_path: Path) -> None:
    maker = small_model(6).add("words", ARR, (STR, ["a", "bc"])).add("numbers", ARR, (I32, [1, 2, 3]))
    whole, n_header = maker.bytes(), len(maker.header())
    rng = random.Random(7)
    paths = []
    for index in range(800):
        raw = bytearray(whole)
        raw[rng.randrange(4, n_header)] = rng.choice([0, 1, 2, 255, rng.randrange(256)])
        path = tmp_path / f"{index}.gguf"
        path.write_bytes(raw)
        paths.append(path)
    theirs = verdicts(paths)
    for path, verdict in zip(paths, theirs, strict=True):
        if verdict != "ok":
            assert ours(path) != "ok"
        elif ours(path) != "ok":  # the one point where we are stricter: ggml cuts such a name at the NUL
            assert "NUL" in ours(path)
