"""How `dev.py package` decides what goes into a package, without making one."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import door_elf
import door_env
import door_frozen
import door_frozen_parts as parts
import door_package
import door_steps
import door_verbs
import pytest
from door_elf import Elf

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="the fake interpreter is a script with a #! line")
OBJDUMP = """
libfoo.so:     file format elf64-x86-64

Dynamic Section:
  NEEDED               libbar.so.1
  NEEDED               libc.so.6
  SONAME               libfoo.so.2
  RUNPATH              $ORIGIN

Version References:
  required from libc.so.6:
    0x09691a75 0x00 03 GLIBC_2.2.5
    0x069691b6 0x00 02 GLIBC_2.36
    0x06969189 0x00 04 GLIBC_2.9
  required from libstdc++.so.6:
    0x056bafd3 0x00 05 GLIBCXX_3.4.99
"""


@pytest.fixture
def elf(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Makes files that pass for libraries: what they say of themselves stands in them as JSON."""

    def read(path: Path) -> Elf:
        about = json.loads(path.read_bytes()[4:])
        return Elf(about["soname"], tuple(about["needed"]), tuple(about["glibc"]))

    def make(path: Path, *needed: str, soname: str | None = None, glibc: tuple[int, ...] = (2, 17)) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        about = {"soname": path.name if soname is None else soname, "needed": needed, "glibc": glibc}
        path.write_bytes(door_elf.MAGIC + json.dumps(about).encode())
        return path

    monkeypatch.setattr(door_elf, "read", read)
    return make


# ------------------------------------------------------------------ libraries


def test_what_objdump_says() -> None:
    found = door_elf.parse(OBJDUMP)
    assert found == Elf("libfoo.so.2", ("libbar.so.1", "libc.so.6"), (2, 36))
    assert door_elf.parse("file format elf64-x86-64") == Elf("", (), (0, 0))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux")
def test_this_python_is_read() -> None:
    found = door_elf.read(Path(sys.executable).resolve())
    assert "libc.so.6" in found.needed
    assert found.glibc >= (2, 4)
    assert door_elf.not_found(Path(sys.executable).resolve(), []) == []


def test_what_is_needed_and_missing_is_named() -> None:
    found = {
        Path("a"): Elf("", ("libb.so.1", "libc.so.6", "libgone.so.3"), (2, 34)),
        Path("libb.so"): Elf("libb.so.1", (), (2, 39)),
        Path("libc.so"): Elf("libx.so.1", (), (2, 2)),
    }
    assert door_elf.reached([Path("a")], found) == {Path("a"), Path("libb.so")}
    assert list(door_elf.unmet(found)) == [(Path("a"), "libgone.so.3")]
    assert list(door_elf.unmet(found, ["libgone.so.3"])) == []
    assert door_elf.too_new(found, (2, 36)) == [(Path("libb.so"), (2, 39))]


def test_libraries_are_sorted_by_who_needs_them(tmp_path: Path, elf: Callable[..., Path]) -> None:
    qt = tmp_path / "PySide6" / "Qt"
    elf(tmp_path / "python3.11" / "lib-dynload" / "_ssl.so", "libssl.so.3", soname="")
    elf(tmp_path / "libssl.so.3", "libz.so.1", "libstdc++.so.6")
    elf(tmp_path / "libz.so.1")
    elf(tmp_path / "libstdc++.so.6")
    elf(tmp_path / "_cffi_backend.cpython-311-x86_64-linux-gnu.so", "libgomp.so.1", soname="")
    elf(tmp_path / parts.FALLBACK / "libgomp.so.1")
    elf(qt / "plugins" / "platforms" / "libqxcb.so", "libxcb.so.1", "libQt6Gui.so.6", "libz.so.1", soname="")
    elf(qt / "lib" / "libQt6Gui.so.6")
    elf(qt / "lib" / "libQt6Quick.so.6", "libgtk.so.3")
    elf(tmp_path / "libxcb.so.1")
    elf(tmp_path / "libgtk.so.3")
    (tmp_path / "libQt6Quick.so.6").symlink_to("PySide6/Qt/lib/libQt6Quick.so.6")
    assert parts.sort_libraries(tmp_path) == ["libstdc++.so.6", "libxcb.so.1"]
    assert sorted(path.name for path in tmp_path.glob("*.so*")) == [
        "_cffi_backend.cpython-311-x86_64-linux-gnu.so", "libgomp.so.1", "libssl.so.3", "libz.so.1",
    ]  # fmt: skip
    assert [path.name for path in (qt / "lib").iterdir()] == ["libQt6Gui.so.6"], "what nothing needs is not kept"


def test_what_pyinstaller_leaves_to_the_system_is_added(tmp_path: Path, elf: Callable[..., Path]) -> None:
    system = tmp_path / "system"
    elf(system / "libEGL.so.1", "libGLdispatch.so.0", "libc.so.6")
    elf(system / "libGLdispatch.so.0")
    inside = tmp_path / "inside"
    elf(inside / "libQt6Gui.so.6", "libEGL.so.1")
    parts.add_missing(inside, lambda name: system / name if (system / name).exists() else None)
    assert sorted(path.name for path in (inside / parts.FALLBACK).iterdir()) == ["libEGL.so.1", "libGLdispatch.so.0"]
    elf(inside / "libother.so.1", "libnowhere.so.9")
    with pytest.raises(door_steps.StepError, match=r"libnowhere\.so\.9 is not on this machine"):
        parts.add_missing(inside, lambda name: None)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux")
def test_an_unusable_bundle_is_refused(
    tmp_path: Path, elf: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door_elf, "not_found", lambda path, folders: [])
    internal = tmp_path / "_internal"
    elf(internal / "liba.so.1", "libc.so.6", glibc=(2, 36))
    assert "2.36" in door_frozen.check(internal)[1]
    elf(internal / "libb.so.1", glibc=(2, 38))
    with pytest.raises(door_steps.StepError, match=r"newer glibc than 2\.36: libb\.so\.1 \(2\.38\)"):
        door_frozen.check(internal)
    elf(internal / "libb.so.1", "libgone.so.1")
    with pytest.raises(door_steps.StepError, match=r"libb\.so\.1 needs libgone\.so\.1"):
        door_frozen.check(internal)


# ------------------------------------------------------------------ what is kept


@pytest.mark.parametrize(
    ("kind", "name", "kept"),
    [
        ("platforms", "libqxcb.so", True),
        ("platforms", "libqwayland.so", True),
        ("platforms", "qwindows.dll", True),
        ("platforms", "libqcocoa.dylib", True),
        ("platforms", "libqeglfs.so", False),
        ("platforms", "libqvnc.so", False),
        ("imageformats", "libqsvg.so", True),
        ("imageformats", "libqtiff.so", False),
        ("iconengines", "qsvgicon.dll", True),
        ("platforminputcontexts", "libibusplatforminputcontextplugin.so", True),
        ("platformthemes", "libqgtk3.so", False),
        ("styles", "qmodernwindowsstyle.dll", True),
        ("sqldrivers", "libqsqlite.so", False),
        ("tls", "libqopensslbackend.so", False),
        ("xcbglintegrations", "libqxcb-glx-integration.so", False),
    ],
)
def test_plugins_of_qt(kind: str, name: str, kept: bool) -> None:
    assert parts.plugin_is_kept(kind, name) is kept


@pytest.mark.parametrize("inner", ["PySide6/Qt", "PySide6"])
def test_qt_loses_its_translations_and_what_nothing_uses(tmp_path: Path, inner: str) -> None:
    for name in (
        "translations/qt_de.qm",
        "opengl32sw.dll",
        "plugins/platforms/libqxcb.so",
        "plugins/tls/libqopensslbackend.so",
    ):
        path = tmp_path / inner / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    parts.prune_qt(tmp_path)
    parts.remove_empty_folders(tmp_path)
    left = [path.relative_to(tmp_path / inner).as_posix() for path in tmp_path.rglob("*") if path.is_file()]
    assert left == ["plugins/platforms/libqxcb.so"]
    assert not (tmp_path / inner / "plugins" / "tls").exists()


def test_llama_of_a_wheel_for_all_processors(tmp_path: Path, elf: Callable[..., Path]) -> None:
    site, internal = tmp_path / "site", tmp_path / "internal"
    lib = site / "llama_cpp" / "lib"
    for suffix in (".so", ".so.0", ".so.0.5.0"):
        elf(lib / f"libllama{suffix}", "libggml.so.0", "libggml-base.so.0", "libc.so.6")
        elf(lib / f"libggml{suffix}", "libggml-base.so.0")
        elf(lib / f"libggml-base{suffix}", "libgomp.so.1")
        elf(lib / f"libmtmd{suffix}", "libllama.so.0")
    for name in ("libggml-cpu-x64.so", "libggml-cpu-zen4.so", "libggml-rpc.so"):
        elf(site / "llama_cpp" / "backends" / name, "libggml-base.so.0")
    elf(internal / "libggml.so.0")
    elf(internal / "libcrypto.so.3")
    assert parts.lay_out_llama(site, internal, "linux") == [
        "libggml-cpu-x64.so",
        "libggml-cpu-zen4.so",
        "libggml-rpc.so",
    ]
    made = sorted(path.name for path in (internal / "llama_cpp" / "lib").iterdir())
    assert made == ["libggml-base.so.0", "libggml.so.0", "libllama.so"], "each once, as it is asked for"
    assert sorted(path.name for path in internal.glob("*.so*")) == ["libcrypto.so.3"], "and no second copy"


def test_llama_that_was_built_for_one_computer(tmp_path: Path, elf: Callable[..., Path]) -> None:
    lib = tmp_path / "site" / "llama_cpp" / "lib"
    elf(lib / "libllama.so", "libggml.so.0")
    elf(lib / "libggml.so.0", "libggml-cpu.so.0")
    for name in ("libggml-cpu.so.0", "libggml-cpu.so"):
        elf(lib / name)
    assert parts.lay_out_llama(tmp_path / "site", tmp_path / "internal", "linux") == []
    assert not (tmp_path / "internal" / "llama_cpp" / "backends").exists()
    assert (tmp_path / "internal" / "llama_cpp" / "lib" / "libggml-cpu.so.0").exists()


def test_llama_on_windows(tmp_path: Path) -> None:
    site = tmp_path / "site"
    for name in ("llama.dll", "ggml.dll", "ggml-base.dll", "mtmd.dll", "llama-common.dll"):
        (site / "llama_cpp" / "lib" / name).parent.mkdir(parents=True, exist_ok=True)
        (site / "llama_cpp" / "lib" / name).write_bytes(b"MZ")
    (site / "llama_cpp" / "backends").mkdir()
    for name in ("ggml-cpu-haswell.dll", "ggml-rpc.dll"):
        (site / "llama_cpp" / "backends" / name).write_bytes(b"MZ")
    found = parts.lay_out_llama(site, tmp_path / "internal", "win32")
    assert found == ["ggml-cpu-haswell.dll", "ggml-rpc.dll"]
    made = sorted(path.name for path in (tmp_path / "internal" / "llama_cpp" / "lib").iterdir())
    assert made == ["ggml-base.dll", "ggml.dll", "llama.dll"]


def test_no_llama_at_all(tmp_path: Path) -> None:
    (tmp_path / "llama_cpp" / "lib").mkdir(parents=True)
    for platform in ("linux", "win32", "darwin"):
        with pytest.raises(door_steps.StepError, match="holds no"):
            parts.lay_out_llama(tmp_path, tmp_path / "internal", platform)


# ------------------------------------------------------------------ manifest


def test_the_same_files_are_the_same_whenever_they_were_written(tmp_path: Path) -> None:
    listings = []
    for number, name in enumerate(("one", "two")):
        folder = tmp_path / name / "inglenook"
        (folder / "_internal").mkdir(parents=True)
        (folder / "inglenook").write_bytes(b"program")
        (folder / "_internal" / "a").write_bytes(b"a")
        os.utime(folder / "inglenook", (number, number))
        (folder / "_internal" / "link").symlink_to("a")
        manifest = door_frozen.write_manifest(folder, 1_700_000_000)
        assert door_frozen.is_whole(folder)
        listings.append(json.loads(manifest.read_text(encoding="utf-8")))
        times = {path.lstat().st_mtime for path in (folder, *folder.rglob("*"))}
        assert times == {1_700_000_000}
    assert door_frozen.differences(*listings) == []
    assert listings[0]["_internal/link"] == "-> a"
    if os.name == "posix":
        assert oct((tmp_path / "one" / "inglenook" / "inglenook").stat().st_mode)[-3:] == "755"
        assert oct((tmp_path / "one" / "inglenook" / "_internal" / "a").stat().st_mode)[-3:] == "644"
    (folder / "_internal" / "a").write_bytes(b"b")
    assert not door_frozen.is_whole(folder)
    assert door_frozen.differences(listings[0], door_frozen.listing(folder)) == ["differs: _internal/a"]


def test_the_date_of_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1234567890")
    assert door_frozen.source_date(tmp_path) == 1_234_567_890
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "")
    assert door_frozen.source_date(tmp_path) == door_frozen.FIRST_DATE, "no checkout of git"


# ------------------------------------------------------------------ environment


@POSIX
def test_the_environment_is_pinned_and_made_once(place: door_steps.Place, monkeypatch: pytest.MonkeyPatch) -> None:
    made = door_frozen.package_place(place)
    assert made.venv != place.venv and made.venv.is_relative_to(place.root / "build")
    wheel = place.root / "llama.whl"
    wheel.write_bytes(b"wheel")
    calls: list[str] = []

    def note(at: door_steps.Place, what: str, command: list[Any], **more: Any) -> str:
        calls.append(" ".join(map(str, command)))
        if "venv" in command:
            made.python.parent.mkdir(parents=True)
            made.python.touch()
        return ""

    def starter(at: door_steps.Place, version: str) -> None:
        at.starter.parent.mkdir(parents=True, exist_ok=True)
        at.starter.touch()

    monkeypatch.setattr(door_frozen, "run_logged", note)
    monkeypatch.setattr(door_env, "run_logged", note)
    monkeypatch.setattr(door_env, "install_starter", starter)
    door_frozen.prepare(made, wheel)
    pins = door_env.read_constraints(place)
    assert any(f"pyinstaller=={pins['pyinstaller']}" in call for call in calls)
    assert any("PySide6-Essentials" in call and f"-c {place.constraints}" in call for call in calls)
    assert not any("pytest-qt" in call for call in calls), "no tools for tests"
    assert any(call.endswith(f"--force-reinstall --no-deps {wheel}") for call in calls)
    calls.clear()
    door_frozen.prepare(made, wheel)
    assert calls == []
    wheel.write_bytes(b"another wheel")
    door_frozen.prepare(made, wheel)
    assert calls and all(str(wheel) in call for call in calls), "only llama.cpp is installed anew"


def test_every_tool_is_pinned(place: door_steps.Place) -> None:
    pins = door_env.read_constraints(place)
    for name in (*door_frozen.TOOLS, "pyinstaller-hooks-contrib", "altgraph", "packageurl-python"):
        assert door_env.normal(name) in pins


# ------------------------------------------------------------------ the verb


@pytest.fixture
def steps(place: door_steps.Place, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The steps that were taken; none of them does anything."""
    taken: list[str] = []
    frozen = door_frozen.package_place(place).frozen

    def build(at: door_steps.Place, wheel: Path) -> Path:
        taken.append(f"freeze with {wheel.name}")
        (frozen / "_internal").mkdir(parents=True)
        (frozen / "inglenook").write_bytes(b"program")
        (frozen.parent / door_frozen.BILL).write_text("{}")
        door_frozen.write_manifest(frozen, 0)
        return frozen

    def step(module: str, name: str) -> Callable[..., Any]:
        def run(*words: Any, **more: Any) -> Any:
            taken.append(f"{module}.{name} {more}".rstrip(" {}"))
            if name == "portable_wheel":
                return Path("portable.whl")
            if module == "door_cuda":
                return place.root / "build" / "cuda"
            assert words[1] == frozen
            target = place.root / "dist" / "inglenook.deb"
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(b"package")
            return [target]

        return run

    monkeypatch.setattr(door_frozen, "build", build)
    monkeypatch.setattr(door_frozen, "self_test", lambda folder: taken.append("self-test"))
    monkeypatch.setattr(door_package, "step", step)
    monkeypatch.setattr(door_package, "SYSTEMS", {sys.platform: "linux"})
    return taken


def test_packages_are_made_in_order(place: door_steps.Place, steps: list[str]) -> None:
    assert door_verbs.main(["package"]) == 0
    assert steps == ["door_native.portable_wheel", "freeze with portable.whl", "self-test", "door_linux.build"]
    sums = (place.root / "dist" / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    assert [line.split("  ")[1] for line in sums] == ["inglenook.cdx.json", "inglenook.deb"]
    assert sums[1].split("  ")[0] == door_env.sha256(place.root / "dist" / "inglenook.deb")


def test_one_part_only(place: door_steps.Place, steps: list[str]) -> None:
    assert door_verbs.main(["package", "--only", "frozen"]) == 0
    assert steps[-1] == "self-test"
    assert not (place.root / "dist").exists()
    assert door_verbs.main(["package", "--only", "deb", "--keep-frozen"]) == 0
    assert steps[3:] == ["door_linux.build {'only': 'deb'}".rstrip(" {}")]


def test_the_add_on_for_gpus(steps: list[str]) -> None:
    assert door_verbs.main(["package", "--cuda"]) == 0
    assert steps[3:] == ["door_cuda.build", "door_linux.build"]


def test_a_changed_frozen_folder_is_made_anew(place: door_steps.Place, steps: list[str]) -> None:
    assert door_verbs.main(["package", "--only", "frozen"]) == 0
    (door_frozen.package_place(place).frozen / "inglenook").write_bytes(b"changed")
    assert not door_frozen.is_whole(door_frozen.package_place(place).frozen)


def test_a_step_that_is_not_there(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(door_steps.StepError, match=r"door_nowhere\.build is missing"):
        door_package.step("door_nowhere", "build")
    with pytest.raises(door_steps.StepError, match=r"door_steps\.nothing is missing"):
        door_package.step("door_steps", "nothing")


def test_every_system_has_its_step() -> None:
    for system in door_package.SYSTEMS.values():
        assert callable(door_package.step(f"door_{system}", "build"))
    assert callable(door_package.step("door_native", "portable_wheel"))


def test_options() -> None:
    parser = argparse.ArgumentParser()
    door_package.add_options(parser)
    found = parser.parse_args(["--cuda", "--only", "tar"])
    assert (found.cuda, found.only, found.keep_frozen) == (True, "tar", False)
