"""Packages for Windows, made on this system: NSIS is the real one, the program a stand-in with real PE files."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import struct
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
import zipfile
from pathlib import Path

import door_icons
import door_pe
import door_steps
import door_windows
import pytest

ROOT = Path(__file__).resolve().parents[2]
needs_nsis = pytest.mark.skipif(shutil.which("makensis") is None, reason="NSIS is not installed (makensis)")
needs_wine = pytest.mark.skipif(
    shutil.which("wine") is None or shutil.which("makensis") is None, reason="wine or NSIS is not installed"
)
posix = pytest.mark.skipif(sys.platform == "win32", reason="tools are stood in for by scripts with a #! line")


def launcher(kind: str) -> Path:
    """A real program for Windows that every pip carries: "t64" has a console, "w64" has none."""
    found = importlib.util.find_spec("pip")
    assert found is not None and found.origin
    path = Path(found.origin).parent / "_vendor" / "distlib" / f"{kind}.exe"
    if not path.is_file():
        pytest.skip("this pip carries no programs for Windows")
    return path


@pytest.fixture
def frozen(tmp_path: Path) -> Path:
    """A folder as PyInstaller leaves it, with letters that Windows knows and old tools do not."""
    folder = tmp_path / "frozen" / "inglenook"
    inside = folder / "_internal" / "llama_cpp" / "backends"
    inside.mkdir(parents=True)
    manifest = (ROOT / "packaging" / "windows" / "inglenook.manifest").read_bytes()
    (folder / "inglenook.exe").write_bytes(launcher("w64").read_bytes() + manifest)
    (folder / "inglenook-cli.exe").write_bytes(launcher("t64").read_bytes() + manifest)
    (inside / "ggml-cpu-zen4.dll").write_bytes(launcher("t64").read_bytes())
    (folder / "_internal" / "ein Ordner mit ü").mkdir()
    (folder / "_internal" / "ein Ordner mit ü" / "ä 模型.txt").write_text("data")
    return folder


# ------------------------------------------------------------------ reading programs


def test_what_a_program_needs_is_read_from_it() -> None:
    console, windowed = door_pe.read(launcher("t64")), door_pe.read(launcher("w64"))
    assert (console.machine, console.subsystem, windowed.subsystem) == ("x64", 3, 2)
    assert "kernel32.dll" in {name.lower() for name in console.needs}
    assert door_pe.read(launcher("t32")).machine == "x86"


@pytest.mark.parametrize("cut", [0, 1, 60, 200, 300, 500])
def test_a_damaged_program_is_said_to_be_one(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "x.dll"
    path.write_bytes(launcher("t64").read_bytes()[:cut])
    with pytest.raises(door_pe.NotPe):
        door_pe.read(path)
    path.write_bytes(b"\x7fELF" + bytes(2000))
    with pytest.raises(door_pe.NotPe, match="does not begin"):
        door_pe.read(path)


def test_programs_of_the_wrong_kind_are_refused(frozen: Path) -> None:
    door_windows.check_programs(frozen)
    (frozen / "inglenook.exe").write_bytes((frozen / "inglenook-cli.exe").read_bytes())
    with pytest.raises(door_steps.StepError, match=r"inglenook\.exe has to be a program with windows"):
        door_windows.check_programs(frozen)
    (frozen / "inglenook.exe").write_bytes(launcher("w64").read_bytes())
    with pytest.raises(door_steps.StepError, match="manifest for long paths"):
        door_windows.check_programs(frozen)
    (frozen / "inglenook-cli.exe").unlink()
    (frozen / "inglenook.exe").write_bytes(b"MZ")
    with pytest.raises(door_steps.StepError, match="no program of Windows"):
        door_windows.check_programs(frozen)


# ------------------------------------------------------------------ libraries


def needing(path: Path, *names: str) -> None:
    """A library that needs others: a PE file with nothing but a table of imports."""
    section, address = 0x200, 0x1000
    at = address + 20 * (len(names) + 1)
    table, texts = b"", b""
    for name in names:
        table += struct.pack("<IIIII", 0, 0, 0, at + len(texts), 0)
        texts += name.encode() + b"\0"
    body = table + bytes(20) + texts
    head = bytearray(section)
    head[0:2], head[0x3C:0x40] = b"MZ", struct.pack("<I", 0x40)
    head[0x40:0x58] = b"PE\0\0" + struct.pack("<HHIIIHH", 0x8664, 1, 0, 0, 0, 112 + 128, 0x2022)
    optional = 0x58
    struct.pack_into("<H", head, optional, 0x20B)
    struct.pack_into("<H", head, optional + 68, 2)
    struct.pack_into("<I", head, optional + 108, 16)
    struct.pack_into("<II", head, optional + 112 + 8, address if names else 0, len(table))
    struct.pack_into("<8sIIII", head, optional + 240, b".idata", len(body), address, len(body), section)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(head) + body)


def test_the_compilers_libraries_are_added(frozen: Path, tmp_path: Path) -> None:
    redist = tmp_path / "redist"
    needing(redist / "vcomp140.dll", "KERNEL32.dll", "vcruntime140.dll")
    needing(redist / "vcruntime140.dll", "api-ms-win-crt-heap-l1-1-0.dll")
    needing(frozen / "_internal" / "llama.dll", "VCOMP140.DLL", "ggml-cpu-zen4.dll", "ucrtbase.dll")
    assert list(door_windows.unmet(frozen)) == ["vcomp140.dll"]
    lines = door_windows.complete(frozen, [tmp_path / "nowhere", redist])
    assert [line.split()[0] for line in lines] == ["vcomp140.dll", "vcruntime140.dll"]
    assert door_windows.unmet(frozen) == {}
    assert (frozen / "_internal" / "vcomp140.dll").is_file()


def test_a_library_that_is_nowhere_stops_it(frozen: Path, tmp_path: Path) -> None:
    needing(frozen / "_internal" / "ggml-cuda.dll", "cublas64_13.dll", "nvcuda.dll")
    with pytest.raises(door_steps.StepError, match=r"ggml-cuda\.dll needs cublas64_13\.dll"):
        door_windows.complete(frozen, [tmp_path])
    needing(frozen / "_internal" / "ggml-cuda.dll", "msvcp140.dll")
    with pytest.raises(door_steps.StepError, match=r"needs msvcp140\.dll"):
        door_windows.complete(frozen, [tmp_path])


def test_a_package_is_not_made_of_a_program_that_lacks_something(
    checkout: door_steps.Place, frozen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door_windows, "runtime_folders", lambda environ: [])
    needing(frozen / "_internal" / "llama.dll", "vcomp140.dll")
    with pytest.raises(door_steps.StepError, match=r"llama\.dll needs vcomp140\.dll"):
        door_windows.build(checkout, frozen, [], only="zip")
    assert not list((checkout.root / "dist").glob("*"))


def test_where_the_compilers_libraries_are_looked_for(tmp_path: Path) -> None:
    active = tmp_path / "active" / "x64" / "Microsoft.VC143.CRT"
    newest = tmp_path / "Microsoft Visual Studio" / "2022" / "BuildTools" / "VC" / "Redist" / "MSVC" / "14.44" / "x64"
    for folder in (active, newest / "Microsoft.VC143.CRT", newest / "Microsoft.VC143.OpenMP"):
        folder.mkdir(parents=True)
    environ = {"VCToolsRedistDir": str(tmp_path / "active"), "ProgramFiles": str(tmp_path), "SystemRoot": "C:/Windows"}
    found = door_windows.runtime_folders(environ)
    assert found[0] == active
    assert {path.name for path in found[1:3]} == {"Microsoft.VC143.CRT", "Microsoft.VC143.OpenMP"}
    assert found[-1] == Path("C:/Windows/System32")
    assert door_windows.runtime_folders({}) == []


# ------------------------------------------------------------------ icon, manifest, version


def test_the_icon_has_every_size_and_the_drawn_pixels() -> None:
    data = door_icons.ico(ROOT)
    _, kind, count = struct.unpack_from("<HHH", data)
    assert (kind, count) == (1, len(door_icons.ICO_SIZES))
    for number, size in enumerate(door_icons.ICO_SIZES):
        width, _, _, _, planes, bits, length, at = struct.unpack_from("<BBBBHHII", data, 6 + 16 * number)
        assert (width or 256, planes, bits) == (size, 1, 32)
        picture = data[at : at + length]
        png = door_icons.png_of(ROOT, size)
        if size > door_icons.LARGEST_BITMAP:
            assert picture == png
            continue
        head, w, h = struct.unpack_from("<Iii", picture)
        assert (head, w, h) == (40, size, 2 * size)
        assert len(picture) == 40 + 4 * size * size + size * ((size + 31) // 32 * 4)
        _, _, rgba = door_icons.pixels(png)
        for x, y in ((size // 2, size // 2), (0, 0), (size // 3, size - 1)):  # blue first, from the last row up
            red, green, blue, alpha = rgba[4 * (size * y + x) :][:4]
            assert tuple(picture[40 + 4 * (size * (size - 1 - y) + x) :][:4]) == (blue, green, red, alpha)
        bottom = picture[40 + 4 * size * size :][: (size + 31) // 32 * 4]
        assert [bool(bottom[x // 8] >> (7 - x % 8) & 1) for x in range(size)] == [
            rgba[4 * (size * (size - 1) + x) + 3] == 0 for x in range(size)
        ]
    assert at + length == len(data)


def test_pixels_agree_with_qt() -> None:
    from PySide6.QtGui import QImage

    for size in (16, 48, 64):
        png = door_icons.png_of(ROOT, size)
        width, height, rgba = door_icons.pixels(png)
        image = QImage.fromData(png).convertToFormat(QImage.Format.Format_RGBA8888)
        assert (width, height) == (image.width(), image.height())
        assert rgba == bytes(image.constBits())


def test_qt_reads_the_icon_back(tmp_path: Path) -> None:
    from PySide6.QtGui import QImageReader

    path = tmp_path / "x.ico"
    path.write_bytes(door_icons.ico(ROOT))
    reader = QImageReader(str(path))
    if not reader.canRead():
        pytest.skip("this Qt has no plugin for .ico")
    assert reader.imageCount() == len(door_icons.ICO_SIZES)
    image = reader.read()
    assert not image.isNull()


def test_the_manifest() -> None:
    text = (ROOT / "packaging" / "windows" / "inglenook.manifest").read_text("utf-8")
    tree = ElementTree.fromstring(text)
    values = {element.tag.rpartition("}")[2]: (element.text or "").strip() for element in tree.iter()}
    assert values["longPathAware"] == "true"
    assert values["activeCodePage"] == "UTF-8"
    assert 'level="asInvoker"' in text


def test_what_pyinstaller_is_given(checkout: door_steps.Place) -> None:
    options = door_windows.exe_options(checkout.root)
    assert Path(options["icon"]).read_bytes()[:4] == b"\0\0\1\0"
    assert "longPathAware" in options["manifest"]
    words = Path(options["version"]).read_text("utf-8")
    version = re.search(r'"(.+)"', (ROOT / "engine" / "__init__.py").read_text("utf-8").split("__version__")[1])
    assert version is not None and f"'{version[1]}'" in words


@pytest.mark.parametrize(
    ("version", "four"), [("0.1.0", "0.1.0.0"), ("0.2.0rc1", "0.2.0.0"), ("1.2.3.4", "1.2.3.4"), ("3", "3.0.0.0")]
)
def test_versions_of_windows(version: str, four: str) -> None:
    assert door_windows.version4(version) == four


def test_the_version_words_are_python_that_says_what_it_should() -> None:
    made: list[tuple[str, tuple[object, ...], dict[str, object]]] = []

    def record(name: str) -> object:
        return lambda *words, **named: made.append((name, words, named)) or (name, words, named)

    names = (
        "VSVersionInfo",
        "FixedFileInfo",
        "StringFileInfo",
        "StringTable",
        "StringStruct",
        "VarFileInfo",
        "VarStruct",
    )
    eval(door_windows.version_resource("0.2.1"), {name: record(name) for name in names})
    assert ("FixedFileInfo", (), {**made[0][2]}) == made[0]
    assert made[0][2]["filevers"] == (0, 2, 1, 0)
    assert ("StringStruct", ("ProductVersion", "0.2.1"), {}) in made


# ------------------------------------------------------------------ the spec


def test_app_spec_makes_two_programs_on_windows() -> None:
    text = (ROOT / "packaging" / "app.spec").read_text("utf-8")
    assert 'name="inglenook-cli"' in text
    assert text.count("**options") == 2
    assert 'console=sys.platform != "win32"' in text


# ------------------------------------------------------------------ the installer


def test_the_installer_asks_for_no_administrator_and_touches_only_this_user() -> None:
    for name in ("installer.nsi", "addon.nsi"):
        text = (ROOT / "packaging" / "windows" / name).read_text("utf-8")
        code = "\n".join(line for line in text.splitlines() if not line.strip().startswith(";"))
        assert "RequestExecutionLevel user" in code
        assert "ManifestLongPathAware true" in code
        assert not re.search(
            r"\bHKLM\b|\bHKEY_LOCAL_MACHINE\b|SetShellVarContext all|RequestExecutionLevel admin", code
        )
        assert not re.findall(r"Write\w+ (?!HKCU)HK", code)
        assert not re.search(r'RMDir /r "\$INSTDIR"', code), "somebody may have chosen a folder with other things in it"
        assert "inetc" not in code and "NSISdl" not in code


def test_what_the_installer_writes_the_uninstaller_removes() -> None:
    text = (ROOT / "packaging" / "windows" / "installer.nsi").read_text("utf-8")
    before, _, after = text.partition("; ---------------------------------------------------------------- removing")
    written = set(re.findall(r'WriteReg(?:Str|DWORD) HKCU "([^"]+)"', before))
    removed = re.findall(r'DeleteReg(?:Key|Value)(?: /ifempty)? HKCU "([^"]+)"', after)
    left = {key for key in written if not any(key == gone or key.startswith(f"{gone}\\") for gone in removed)}
    assert left == set()
    assert "Section /o" in after  # what deletes the user's data is not chosen by itself
    assert re.search(r'Section /o [^\n]+DATA\n +RMDir /r "\$LOCALAPPDATA\\inglenook"', after)
    assert after.count('"$LOCALAPPDATA') == 1


def test_the_data_folder_of_the_uninstaller_is_the_one_that_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """platformdirs, asked as on Windows: everything lies in %LOCALAPPDATA%\\inglenook, the program does not."""
    from platformdirs import windows

    from engine.paths import APP

    monkeypatch.setattr(windows, "get_win_folder", lambda name: {"CSIDL_LOCAL_APPDATA": "/local"}[name])
    dirs = windows.Windows(APP, appauthor=False)
    for folder in (dirs.user_data_dir, dirs.user_config_dir, dirs.user_cache_dir, dirs.user_log_dir):
        assert Path(folder).as_posix().replace("\\", "/").startswith("/local/inglenook")


@needs_nsis
def test_the_installer_compiles_and_is_the_same_each_time(
    checkout: door_steps.Place, frozen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1767225600")
    made = door_windows.installer(checkout, frozen)
    first = made.read_bytes()
    found = door_pe.read(made)
    assert found.subsystem == 2
    assert b"longPathAware" in first
    assert b'requestedExecutionLevel level="asInvoker"' in first or b"asInvoker" in first
    for path in frozen.rglob("*"):
        os.utime(path, (1_800_000_000, 1_800_000_000))
    assert door_windows.installer(checkout, frozen).read_bytes() == first


@needs_nsis
def test_all_packages_of_a_stand_in(checkout: door_steps.Place, frozen: Path, tmp_path: Path) -> None:
    addon = tmp_path / "cuda"
    addon.mkdir()
    (addon / "ggml-cuda.dll").write_bytes(b"cuda")
    made = door_windows.build(checkout, frozen, [addon])
    version = door_windows.share.version(checkout.root)
    assert [path.name for path in made] == [
        f"inglenook-{version}-windows-x64.exe",
        f"inglenook-cuda-{version}-windows-x64.exe",
        f"inglenook-{version}-windows-x64.zip",
    ]
    with zipfile.ZipFile(made[2]) as packed:
        names = packed.namelist()
        assert packed.testzip() is None
    assert f"inglenook-{version}-windows-x64/_internal/ein Ordner mit ü/ä 模型.txt" in names
    assert f"inglenook-{version}-windows-x64/inglenook-cli.exe" in names
    before = made[2].read_bytes()
    assert door_windows.build(checkout, frozen, [], only="zip")[0].read_bytes() == before
    with pytest.raises(door_steps.StepError, match="no package of the kind 'deb' on Windows"):
        door_windows.build(checkout, frozen, [], only="deb")


def test_without_nsis_it_says_what_to_install() -> None:
    with pytest.raises(door_steps.StepError, match="NSIS is not installed"):
        door_windows.find_makensis({}, lambda name: None)


def test_nsis_in_its_usual_folder(tmp_path: Path) -> None:
    program = tmp_path / "NSIS" / "makensis.exe"
    program.parent.mkdir()
    program.touch()
    assert door_windows.find_makensis({"ProgramFiles(x86)": str(tmp_path)}, lambda name: None) == str(program)


@posix
def test_signing(checkout: door_steps.Place, frozen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "signed"
    tool = tmp_path / "sign tool"
    tool.write_text(f'#!/bin/sh\nfor last; do :; done\nbasename "$last" >> "{log}"\n')
    tool.chmod(0o755)
    monkeypatch.setenv(door_windows.SIGN, f'"{tool}" /fd sha256')
    door_windows.build(checkout, frozen, [], only="zip")
    assert log.read_text().split() == ["inglenook.exe", "inglenook-cli.exe"]
    monkeypatch.setenv(door_windows.SIGN, "false")
    with pytest.raises(door_steps.StepError, match=r"signing inglenook\.exe failed"):
        door_windows.build(checkout, frozen, [], only="zip")


# ------------------------------------------------------------------ run under wine


class Wine:
    """A Windows of its own in a folder."""

    def __init__(self, folder: Path) -> None:
        self.env = {**os.environ, "WINEPREFIX": str(folder), "WINEDEBUG": "-all", "WINEDLLOVERRIDES": "mscoree,mshtml="}
        self.env.pop("DISPLAY", None)
        self.run("wineboot", "-i")

    def run(self, *command: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(["wine", *command], env=self.env, capture_output=True, timeout=300, check=False)

    def query(self, key: str) -> str:
        return self.run("reg", "query", key, "/s").stdout.decode("utf-8", "replace")

    @property
    def local(self) -> Path:
        (folder,) = (Path(self.env["WINEPREFIX"]) / "drive_c" / "users").glob("*/AppData/Local")
        return folder

    def end(self) -> None:
        subprocess.run(["wineserver", "-k"], env=self.env, check=False, capture_output=True, timeout=60)


@needs_wine
@needs_nsis
@pytest.mark.timeout(900)
def test_installing_upgrading_and_removing_under_wine(checkout: door_steps.Place, frozen: Path, tmp_path: Path) -> None:
    (tmp_path / "wine").mkdir()
    wine = Wine(tmp_path / "wine")
    try:
        probe = wine.run("cmd", "/c", "echo works")
        if b"works" not in probe.stdout:
            pytest.skip("this wine runs no programs here")
        _install_and_remove(wine, checkout, frozen)
    finally:
        wine.end()


def _install_and_remove(wine: Wine, checkout: door_steps.Place, frozen: Path) -> None:
    made = door_windows.installer(checkout, frozen, trial=True)
    data = wine.local / "inglenook"
    data.mkdir(parents=True)
    (data / "chats.db").write_text("chats")
    assert wine.run(str(made), "/S").returncode == 0
    program = wine.local / "Programs" / "Inglenook"
    assert (program / "inglenook-cli.exe").read_bytes() == (frozen / "inglenook-cli.exe").read_bytes()
    assert (program / "_internal" / "ein Ordner mit ü" / "ä 模型.txt").read_text() == "data"
    classes = "HKCU\\Software\\Classes"
    assert 'inglenook.exe" "%1"' in wine.query(f"{classes}\\inglenook\\shell\\open\\command")
    assert "Inglenook.gguf" in wine.query(f"{classes}\\.gguf")
    uninstall = "HKCU\\Software\\Microsoft\\Windows\\CurrentVersion\\Uninstall\\Inglenook"
    assert "uninstall.exe" in wine.query(uninstall)
    # an upgrade leaves nothing old behind, and what is not its own as it was
    (program / "_internal" / "old.dll").write_text("of the version before")
    (program / "addons" / "cuda").mkdir(parents=True)
    (program / "addons" / "cuda" / "ggml-cuda.dll").write_text("add-on")
    (program / "mine.txt").write_text("put there by somebody")
    assert wine.run(str(made), "/S").returncode == 0
    assert not (program / "_internal" / "old.dll").exists()
    assert (program / "addons" / "cuda" / "ggml-cuda.dll").exists()
    # a downgrade is refused
    wine.run("reg", "add", "HKCU\\Software\\Inglenook", "/v", "Version", "/d", "99.0.0", "/f")
    assert wine.run(str(made), "/S").returncode == 2
    # removing leaves the user's data, and files that are not ours
    assert wine.run(str(program / "uninstall.exe"), "/S", f"_?=Z:{program}".replace("/", "\\")).returncode == 0
    left = sorted(path.name for path in program.rglob("*"))
    assert left in (["mine.txt"], ["mine.txt", "uninstall.exe"])  # with _?= it runs from its own place
    assert (data / "chats.db").read_text() == "chats"
    for key in (uninstall, f"{classes}\\Inglenook.gguf", f"{classes}\\inglenook", "HKCU\\Software\\Inglenook"):
        assert "REG_SZ" not in wine.query(key), key
    # unless asked
    assert wine.run(str(made), "/S").returncode == 0
    asked = wine.run(str(program / "uninstall.exe"), "/S", "/DELETEDATA", f"_?=Z:{program}".replace("/", "\\"))
    assert asked.returncode == 0
    assert not data.exists()
