"""The frozen program (`dev.py package --only frozen`) as a stranger's computer would run it.

Freezing takes minutes, so nothing here makes it: without `build/frozen` these tests are skipped. What can be tried
without it is in `test_package.py`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "packaging"))

import door_elf  # noqa: E402
import door_frozen  # noqa: E402
import door_frozen_parts  # noqa: E402

FROZEN = ROOT / "build" / "frozen" / "inglenook"
INTERNAL = FROZEN / "_internal"
LINUX = sys.platform.startswith("linux")
pytestmark = [
    pytest.mark.skipif(
        not (FROZEN / "inglenook").is_file(), reason="not frozen: python3 packaging/dev.py package --only frozen"
    ),
    pytest.mark.skipif(not LINUX, reason="Linux"),
    pytest.mark.xdist_group("frozen"),
    pytest.mark.timeout(600),
]


def run(
    *words: str, program: Path = FROZEN / "inglenook", cwd: Path | str = "/", timeout: float = 180, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run it with this environment and no other variable."""
    return subprocess.run(
        [str(program), *words], capture_output=True, text=True, env=env, cwd=cwd, timeout=timeout, check=False
    )


@pytest.fixture
def copy(tmp_path: Path) -> Iterator[Path]:
    """The program in a folder of its own, out of which parts can be taken: links to the same files."""
    target = tmp_path / "copy of it"
    shutil.copytree(FROZEN, target, copy_function=os.link, symlinks=True)
    yield target
    shutil.rmtree(target, ignore_errors=True)


@pytest.fixture
def strange_home(tmp_path: Path) -> Path:
    folder = tmp_path / "mein Heim — äß 山"
    folder.mkdir()
    return folder


def test_it_works_without_any_variable_in_a_home_with_strange_letters(strange_home: Path) -> None:
    done = run("--self-test", cwd=strange_home, HOME=str(strange_home))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    for words in (
        "packaged",
        "computes on CPU",
        "wrote 8 tokens",
        "JSON Schema",
        "ok  window opened",
        "all of it works",
    ):
        assert words in done.stdout
    assert list(strange_home.iterdir()) == [], "a self-test leaves nothing behind"


def test_it_works_where_nothing_may_be_written(copy: Path, strange_home: Path) -> None:
    """As root every folder can be written; then the rights alone are looked at, and that nothing was added."""
    before = sorted(path.relative_to(copy) for path in copy.rglob("*"))
    folders = [path for path in (copy, *copy.rglob("*")) if path.is_dir() and not path.is_symlink()]
    for folder in folders:
        folder.chmod(0o555)
    try:
        done = run("--self-test", program=copy / "inglenook", HOME=str(strange_home))
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(path.relative_to(copy) for path in copy.rglob("*")) == before


def test_a_folder_named_engine_in_the_working_directory_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "__init__.py").write_text("raise SystemExit('not ours')")
    done = run("--version", cwd=tmp_path, HOME=str(tmp_path), PYTHONPATH=str(tmp_path), PYTHONHOME="/nowhere")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("inglenook ")


@pytest.mark.parametrize(
    ("library", "words"),
    [("libllama.so", "'llama' not found"), ("libggml-base.so.0", "libggml-base.so.0: cannot open shared object file")],
)
def test_without_a_library_it_says_so(copy: Path, library: str, words: str, tmp_path: Path) -> None:
    (copy / "_internal" / "llama_cpp" / "lib" / library).unlink()
    done = run("--self-test", program=copy / "inglenook", HOME=str(tmp_path))
    assert done.returncode == 13, done.stdout + done.stderr
    assert "failed  llama.cpp cannot be loaded on this computer" in done.stdout
    assert words in done.stdout, "which one"
    assert "install it again" in done.stderr
    assert "dev.py" not in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert "ok  window opened" in done.stdout, "the window lives without it"


def test_without_modules_for_processors_it_says_so(copy: Path, tmp_path: Path) -> None:
    modules = copy / "_internal" / "llama_cpp" / "backends"
    if not modules.is_dir():
        pytest.skip("this llama.cpp was built for this computer alone")
    shutil.rmtree(modules)
    done = run("--self-test", program=copy / "inglenook", HOME=str(tmp_path))
    assert done.returncode == 13, done.stdout + done.stderr
    assert "module" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_without_the_starter_model_it_says_so(copy: Path, tmp_path: Path) -> None:
    shutil.rmtree(copy / "_internal" / "share")
    done = run("--self-test", program=copy / "inglenook", HOME=str(tmp_path))
    assert done.returncode == 3, done.stdout + done.stderr
    assert "The starter model is not installed" in done.stderr
    assert "install it again" in done.stderr


def test_without_a_library_of_qt_it_says_so(copy: Path, tmp_path: Path) -> None:
    (copy / "_internal" / "PySide6" / "Qt" / "lib" / "libQt6Widgets.so.6").unlink()
    (copy / "_internal" / "libQt6Widgets.so.6").unlink(missing_ok=True)
    done = run("--self-test", program=copy / "inglenook", HOME=str(tmp_path))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "ok  wrote 8 tokens" in done.stdout, "answers come without a window"
    assert "libQt6Widgets.so.6" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize("role", ["--worker", "--dry-run", "--check-format"])
def test_qt_is_not_in_the_processes_beside_the_window(role: str, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [str(FROZEN / "inglenook"), role],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={"HOME": str(tmp_path)},
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    try:
        if role != "--check-format":
            assert json.loads(process.stdout.readline())
        maps = Path(f"/proc/{process.pid}/maps").read_text(encoding="utf-8")
    finally:
        process.stdin.close()
        process.wait(30)
        process.stdout.close()
        process.stderr.close()
    if role != "--check-format":
        assert "libllama" in maps
    assert [line for line in maps.splitlines() if "Qt6" in line or "PySide6" in line or "shiboken" in line] == []


def test_children_do_not_inherit_the_packages_libraries(tmp_path: Path) -> None:
    """A browser that the window opens has to get its own libraries."""
    process = subprocess.Popen(
        [str(FROZEN / "inglenook"), "chat", "--model", "starter"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={"HOME": str(tmp_path), "LD_LIBRARY_PATH": "/of/the/user"},
    )  # fmt: skip
    try:
        tasks, found, end = Path(f"/proc/{process.pid}/task"), [], time.monotonic() + 60
        while not found and time.monotonic() < end:
            time.sleep(0.05)
            found = [word for task in tasks.iterdir() for word in (task / "children").read_text().split()]
        environ = Path(f"/proc/{found[0]}/environ").read_bytes().split(b"\0")
    finally:
        process.kill()
        process.communicate()
    values = {name: value for name, _, value in (entry.partition(b"=") for entry in environ)}
    # the worker is this program again, whose starter has set the variable anew; what the user had is kept beside it
    assert values.get(b"LD_LIBRARY_PATH_ORIG", b"/of/the/user") == b"/of/the/user"


def test_every_library_finds_what_it_needs() -> None:
    lines = door_frozen.check(INTERNAL)
    assert "none without what it needs" in lines[0]
    folders = [INTERNAL, INTERNAL / door_frozen_parts.FALLBACK, INTERNAL / "llama_cpp" / "lib"]
    assert door_elf.not_found(INTERNAL / "PySide6" / "Qt" / "plugins" / "platforms" / "libqxcb.so", folders) == []


def test_every_part_has_its_licence() -> None:
    listed = json.loads((INTERNAL / "resources" / "licenses" / "parts.json").read_text(encoding="utf-8"))
    names = {part["name"] for part in listed}
    assert {"Inglenook", "llama.cpp and ggml", "Qt", "Python", "PySide6_Essentials", "numpy", "pyinstaller"} <= names
    for part in listed:
        for text in part["texts"]:
            assert (INTERNAL / "resources" / "licenses" / text).stat().st_size > 20, (part["name"], text)
    bill = json.loads((FROZEN.parent / door_frozen.BILL).read_text(encoding="utf-8"))
    assert bill["bomFormat"] == "CycloneDX"
    assert len(bill["components"]) == len(listed) - 1
    assert bill["metadata"]["component"]["name"] == "Inglenook"


def test_nothing_under_the_gpl_came_along_unseen() -> None:
    names = [path.name for path in INTERNAL.rglob("*") if path.is_file()]
    assert [name for name in names if "readline" in name or "gdbm" in name or name.startswith("libdb-")] == []


def test_no_path_of_the_building_machine_is_in_it() -> None:
    """The folder of the checkout says where it was built, and would make two builds differ."""
    needle = str(ROOT).encode()
    found = [
        path.relative_to(FROZEN).as_posix()
        for path in FROZEN.rglob("*")
        if path.is_file() and not path.is_symlink() and path.stat().st_size < 64 << 20 and needle in path.read_bytes()
    ]
    assert found == []


def test_the_manifest_is_of_this_folder() -> None:
    assert door_frozen.is_whole(FROZEN)


def test_the_window_does_its_work(strange_home: Path) -> None:
    done = run("--self-test-window", "--home", str(strange_home), HOME=str(strange_home), QT_QPA_PLATFORM="offscreen")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    log = (strange_home / "logs" / "inglenook.log").read_text(encoding="utf-8")
    assert "window usable after" in log
    assert [line for line in log.splitlines() if "ERROR" in line or "inglenook.qt" in line] == []


def test_it_works_in_a_system_with_nothing_but_glibc(tmp_path: Path) -> None:
    """No desktop, no C++ runtime, no home, no network: all else is in the package."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "-mn", "true"], check=False, capture_output=True).returncode:
        pytest.skip("needs root, and namespaces of its own")
    root = tmp_path / "root"
    for name in ("proc", "dev", "tmp", "opt/inglenook", "lib64", "lib"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for name in (*door_elf.GLIBC, "libz.so.1"):  # the program's first piece of code needs zlib
        path = door_frozen_parts.system_library(name)
        if path is not None:
            shutil.copy(path, root / ("lib64" if name.startswith("ld-") else "lib") / name)
    script = (
        f"mount --bind '{FROZEN}' '{root}/opt/inglenook' && mount -o remount,ro,bind '{root}/opt/inglenook' && "
        f"mount -t proc proc '{root}/proc' && mount --rbind /dev '{root}/dev' && "
        f"exec env -i /usr/sbin/chroot '{root}' /opt/inglenook/inglenook --self-test"
    )
    done = subprocess.run(
        ["unshare", "-mn", "sh", "-c", script], capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "has no home folder" in done.stdout
    assert "wrote 8 tokens" in done.stdout and "ok  window opened" in done.stdout
    assert not list((root / "tmp").iterdir()), "nothing is left behind"
