"""What a packaged program does to its own process before anything else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from engine import frozen

PROGRAM = """
import ctypes, sys
from pathlib import Path
sys.frozen, sys._MEIPASS = True, sys.argv[1]
from engine import frozen
frozen.lend_libraries([Path(sys.argv[2])])
try:
    print(ctypes.CDLL(sys.argv[2]).top())
except OSError as error:
    print(error)
"""


def test_nothing_happens_from_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/of/the/user")
    frozen.settle()
    assert os.environ["LD_LIBRARY_PATH"] == "/of/the/user"
    assert frozen.internal() is None


@pytest.mark.parametrize("original", [None, "", "/of/the/user"])
def test_children_do_not_inherit_our_libraries(original: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    environ = {"LD_LIBRARY_PATH": "/opt/inglenook/_internal", "_PYI_ARCHIVE_FILE": "/opt/inglenook/inglenook", "A": "b"}
    if original is not None:
        environ["LD_LIBRARY_PATH_ORIG"] = original
    frozen.clean_environment(environ)
    assert environ == ({"A": "b"} if original is None else {"A": "b", "LD_LIBRARY_PATH": original})


def test_the_loaders_own_words_are_kept() -> None:
    try:
        try:
            raise OSError("libgomp.so.1: cannot open shared object file")
        except OSError as inner:
            raise RuntimeError("cannot load llama") from inner
    except RuntimeError as error:
        assert str(frozen.reason(error)) == "libgomp.so.1: cannot open shared object file"
    plain = ImportError("no module")
    assert frozen.reason(plain) is plain


@pytest.fixture
def libraries(tmp_path: Path) -> tuple[Path, Path]:
    """A package whose library `top` needs `middle`, and that one `bottom`; both of them only in `fallback`."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("needs Linux and a C compiler")
    lent = tmp_path / frozen.FALLBACK
    lent.mkdir()
    sources = {
        "zbottom": ("int bottom(void){return 40;}", []),
        "middle": ("int bottom(void);int middle(void){return bottom()+1;}", ["zbottom"]),
        "top": ("int middle(void);int top(void){return middle()+1;}", ["middle"]),
    }
    for name, (source, needs) in sources.items():
        text = tmp_path / f"{name}.c"
        text.write_text(source)
        target = (tmp_path if name == "top" else lent) / f"lib{name}_inglenook.so.1"
        words = [compiler, "-shared", "-fPIC", str(text), "-o", str(target), f"-Wl,-soname,{target.name}"]
        words += [str(lent / f"lib{need}_inglenook.so.1") for need in needs]
        subprocess.run([*words, "-Wl,--allow-shlib-undefined"], check=True)
    return tmp_path, tmp_path / "libtop_inglenook.so.1"


def ask(folder: Path, library: Path, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), str(library)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **env},
    )
    return done.stdout.strip()


def test_what_the_system_lacks_is_lent_whatever_the_order(libraries: tuple[Path, Path]) -> None:
    assert ask(*libraries) == "42"


def test_the_systems_own_copy_comes_first(libraries: tuple[Path, Path], tmp_path: Path) -> None:
    system = tmp_path / "system"
    system.mkdir()
    text = tmp_path / "other.c"
    text.write_text("int bottom(void){return 50;}")
    name = "libzbottom_inglenook.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", str(text), "-o", str(system / name), f"-Wl,-soname,{name}"], check=True)
    assert ask(*libraries, LD_LIBRARY_PATH=str(system)) == "52"


def test_what_nobody_has_is_named_in_the_end(libraries: tuple[Path, Path]) -> None:
    (libraries[0] / frozen.FALLBACK / "libzbottom_inglenook.so.1").unlink()
    assert "cannot open shared object file" in ask(*libraries)
