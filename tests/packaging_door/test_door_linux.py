"""The packages for Linux, made of a small stand-in for the frozen folder; dpkg-deb, tar and the shell are real."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import door_deb
import door_linux
import door_linux_share
import door_steps
import door_system
import pytest

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="these are Linux's packages")

ROOT = Path(__file__).resolve().parents[2]
OWN = ROOT / "packaging" / "linux"
DATE = 1_780_000_000

PROGRAM = """#!/bin/sh
if [ "$1" = --help ]; then
    printf '%s\\n' "usage: inglenook [FILE ...]" "" "Chat, 'quoted' \\\\ and" ".dotted"
    exit 0
fi
[ "$2" = --help ] && { echo "usage: inglenook $1"; echo; echo "  words of $1"; exit 0; }
echo "started $0 $*"
"""


def needs(*programs: str) -> pytest.MarkDecorator:
    missing = [name for name in programs if shutil.which(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)} is not here")


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> door_steps.Place:
    """What the packages take of a checkout, with a frozen folder whose libraries are real."""
    root = tmp_path / "checkout"
    for name in ("packaging/linux", "resources/icons"):
        shutil.copytree(ROOT / name, root / name)
    (root / "engine").mkdir()
    for name in ("LICENSE", "CHANGELOG.md", "engine/__init__.py"):
        shutil.copy(ROOT / name, root / name)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(DATE))
    for name in ("INGLENOOK_MAINTAINER", door_linux.RUNTIME):
        monkeypatch.delenv(name, raising=False)
    frozen(root)
    return door_steps.Place(root=root, cache=tmp_path / "cache")


def frozen(root: Path) -> Path:
    folder = root / "build" / "frozen" / "inglenook"
    internal = folder / "_internal"
    (internal / "fallback").mkdir(parents=True)
    (folder / "inglenook").write_text(PROGRAM)
    (folder / "inglenook").chmod(0o755)
    (internal / "data.bin").write_bytes(bytes(range(256)) * 100)
    (internal / "link.bin").symlink_to("data.bin")
    library(internal / "libours.so.1")
    library(internal / "fallback" / "libstdc++.so.6")
    library(internal / "module.so", internal / "libours.so.1", internal / "fallback" / "libstdc++.so.6")
    return folder


def library(path: Path, *needed: Path) -> None:
    """A real shared library of this name that needs these and nothing else."""
    command = ["gcc", "-shared", "-nostdlib", "-x", "c", "/dev/null", "-o", path, f"-Wl,-soname,{path.name}"]
    subprocess.run([*command, "-x", "none", "-Wl,--no-as-needed", *needed], check=True)


def build(place: door_steps.Place, only: str, addons: list[Path] | None = None) -> list[Path]:
    return door_linux.build(place, place.root / "build" / "frozen" / "inglenook", addons or [], only)


def fields(package: Path) -> dict[str, str]:
    text = subprocess.run(["dpkg-deb", "-f", package], check=True, capture_output=True, text=True).stdout
    return dict(line.split(": ", 1) for line in text.splitlines() if not line.startswith(" "))


# ---- Debian


@needs("dpkg-deb", "gcc", "objdump")
def test_the_debian_package(checkout: door_steps.Place, tmp_path: Path) -> None:
    (package,) = build(checkout, "deb")
    said = fields(package)
    assert package.name == f"inglenook_{said['Version']}_{said['Architecture']}.deb"
    assert said["Depends"] == "libc6 (>= 2.17), libstdc++6 (>= 12)", "what is bundled is not asked of the system"
    tree = tmp_path / "tree"
    subprocess.run(["dpkg-deb", "-R", package, tree], check=True)
    assert sorted(path.name for path in (tree / "DEBIAN").iterdir()) == ["control", "md5sums"], "triggers do the rest"
    subprocess.run(["md5sum", "--check", "--quiet", "DEBIAN/md5sums"], cwd=tree, check=True)
    installed = {path.relative_to(tree).as_posix() for path in tree.rglob("*") if not path.is_dir()}
    listed = {line.split("  ", 1)[1] for line in (tree / "DEBIAN" / "md5sums").read_text().splitlines()}
    links = {path for path in installed if (tree / path).is_symlink()}
    assert listed == installed - links - {"DEBIAN/control", "DEBIAN/md5sums"}
    assert os.readlink(tree / "usr/bin/inglenook") == "../lib/inglenook/inglenook"
    assert (tree / "usr/bin/inglenook").resolve().is_file()
    assert not (tree / "usr/lib/inglenook/_internal/fallback").exists()
    assert 0 < int(said["Installed-Size"]) < 1000
    listing = subprocess.run(["dpkg-deb", "-c", package], check=True, capture_output=True, text=True).stdout
    for line in listing.splitlines():
        mode, owner = line.split()[:2]
        assert owner == "root/root" and mode in ("drwxr-xr-x", "-rw-r--r--", "lrwxrwxrwx", "-rwxr-xr-x"), line
        assert (mode == "-rwxr-xr-x") == line.endswith("/usr/lib/inglenook/inglenook"), line


@needs("dpkg-deb", "gcc", "objdump")
def test_the_same_input_gives_the_same_package(checkout: door_steps.Place, tmp_path: Path) -> None:
    addon = checkout.root / "build" / "addons" / "cuda"
    addon.mkdir(parents=True)
    library(addon / "libggml-cuda.so")
    first = [path.read_bytes() for path in [*build(checkout, "deb", [addon]), *build(checkout, "tar")]]
    again = tmp_path / "elsewhere" / "another name"
    shutil.copytree(checkout.root, again, symlinks=True)
    shutil.rmtree(again / "dist")
    for path in again.rglob("*"):
        if not path.is_symlink():
            os.utime(path, (DATE - 5000, DATE - 5000))
            path.chmod(path.stat().st_mode & ~0o077)
    before = os.umask(0o077)
    try:
        other = door_steps.Place(root=again, cache=checkout.cache)
        addon = again / "build" / "addons" / "cuda"
        second = [path.read_bytes() for path in [*build(other, "deb", [addon]), *build(other, "tar")]]
    finally:
        os.umask(before)
    assert [one == two for one, two in zip(first, second, strict=True)] == [True, True, True]


@needs("gcc", "objdump")
def test_an_archive_with_add_ons_says_so_in_its_name(checkout: door_steps.Place) -> None:
    addon = checkout.root / "build" / "addons" / "cuda"
    addon.mkdir(parents=True)
    (addon / "libggml-cuda.so").write_bytes(b"code")
    plain, large = build(checkout, "tar", [addon])
    assert large.name == plain.name.replace(".tar.gz", "-cuda.tar.gz")
    for archive, there in ((plain, False), (large, True)):
        with tarfile.open(archive) as opened:
            names = opened.getnames()
        assert any(name.endswith("/addons/cuda/libggml-cuda.so") for name in names) is there, archive


@needs("dpkg-deb", "gcc", "objdump")
def test_the_cuda_package_asks_for_its_own_program_and_for_no_driver(checkout: door_steps.Place) -> None:
    addon = checkout.root / "build" / "addons" / "cuda"
    addon.mkdir(parents=True)
    driver = checkout.root / "libcuda.so.1"
    library(driver)
    library(addon / "libcudart.so.13")
    ours = checkout.root / "build/frozen/inglenook/_internal/libours.so.1"
    library(addon / "libggml-cuda.so", driver, addon / "libcudart.so.13", ours)
    package, cuda = build(checkout, "deb", [addon])
    assert fields(cuda)["Package"] == "inglenook-cuda"
    assert fields(cuda)["Depends"] == f"inglenook (= {fields(package)['Version']}), libc6 (>= 2.17)"
    listing = subprocess.run(["dpkg-deb", "-c", cuda], check=True, capture_output=True, text=True).stdout
    assert "./usr/lib/inglenook/addons/cuda/libggml-cuda.so\n" in listing


@needs("dpkg-deb", "gcc", "objdump")
def test_a_library_that_no_package_is_known_for_stops_the_build(checkout: door_steps.Place) -> None:
    stranger = checkout.root / "libstranger.so.9"
    library(stranger)
    library(checkout.root / "build/frozen/inglenook/_internal/more.so", stranger)
    with pytest.raises(door_steps.StepError, match=r"libstranger\.so\.9"):
        build(checkout, "deb")


def test_packages_that_were_renamed_are_asked_for_by_both_names() -> None:
    assert door_deb.depends({"libglib-2.0.so.0", "libgthread-2.0.so.0"}, (2, 36)) == [
        "libc6 (>= 2.36)",
        "libglib2.0-0t64 | libglib2.0-0",
    ]


@needs("dpkg")
@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("0.1.0", "0.1.1"),
        ("0.9.0", "0.10.0"),
        ("1.0.0rc1", "1.0.0"),
        ("1.0.0.dev4", "1.0.0"),
        ("1.0.0b2", "1.0.0rc1"),
    ],
)
def test_dpkg_sorts_versions_as_python_does(older: str, newer: str) -> None:
    words = [door_deb.version_text(older), "lt", door_deb.version_text(newer)]
    assert subprocess.run(["dpkg", "--compare-versions", *words], check=False).returncode == 0


# ---- the archive


@pytest.fixture
def unpacked(checkout: door_steps.Place, tmp_path: Path) -> Path:
    (archive,) = build(checkout, "tar")
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path / "downloads", filter="data")
    (top,) = (tmp_path / "downloads").iterdir()
    return top


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    home = tmp_path / 'home of Zoë $x`"%\\ 用户'
    home.mkdir()

    def run(path: Path, *words: str) -> subprocess.CompletedProcess[str]:
        env = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
        return subprocess.run(["sh", path, *words], capture_output=True, text=True, env=env, cwd="/", check=False)

    run.home = home  # type: ignore[attr-defined]
    return run


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def entry_command(entry: Path) -> list[str]:
    """The words of `Exec`, as the specification has them read: the escapes of a string, then the quotes."""
    line = next(line for line in entry.read_text("utf-8").splitlines() if line.startswith("Exec="))
    value = line.removeprefix("Exec=").replace("\\\\", "\\")
    match = re.fullmatch(r'"((?:[^"`$\\]|\\["`$\\])*)"(.*)', value)
    assert match is not None, value
    return [re.sub(r'\\(["`$\\])', r"\1", match[1]).replace("%%", "%"), *match[2].split()]


@needs("gcc", "objdump")
def test_the_archive_installs_and_leaves_nothing(unpacked: Path, script) -> None:
    home: Path = script.home
    theirs = home / ".local" / "share" / "applications" / "theirs.desktop"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("[Desktop Entry]\n")
    profile = home / ".local" / "share" / "inglenook" / "chats.db"
    profile.parent.mkdir()
    profile.write_text("chats")
    before = files(home)
    done = script(unpacked / "install.sh")
    assert done.returncode == 0, done.stderr
    program = home / ".local" / "bin" / "inglenook"
    assert "started" in subprocess.run([program, "x"], capture_output=True, text=True, check=True).stdout
    entry = home / ".local/share/applications/inglenook.desktop"
    assert entry_command(entry) == [str(program), "%U"]
    if shutil.which("desktop-file-validate"):
        assert subprocess.run(["desktop-file-validate", entry], check=False).returncode == 0
    assert (home / ".local/share/icons/hicolor/scalable/apps/inglenook.svg").is_file()
    stale = home / ".local/lib/inglenook/_internal/of an older version"
    stale.write_text("x")
    again = script(unpacked / "install.sh")
    assert again.returncode == 0 and not stale.exists(), "an upgrade takes the older version away"
    gone = script(home / ".local/lib/inglenook/uninstall.sh")
    assert gone.returncode == 0, gone.stderr
    left = files(home) - before
    caches = {"mime.cache", "icon-theme.cache", "mimeinfo.cache"}
    left = {name for name in left if Path(name).name not in caches and not name.startswith(".local/share/mime")}
    assert left <= {".local/lib", ".local/bin", ".local/share/icons", ".local/share/icons/hicolor"}, left
    assert before <= files(home) and profile.read_text() == "chats"
    assert script(unpacked / "uninstall.sh").returncode == 1, "it removes only what install.sh made"


@needs("gcc", "objdump")
def test_the_archive_does_not_touch_a_folder_of_another(unpacked: Path, script) -> None:
    other = script.home / ".local" / "lib" / "inglenook" / "mine.txt"
    other.parent.mkdir(parents=True)
    other.write_text("mine")
    refused = script(unpacked / "install.sh")
    assert refused.returncode == 1 and "was not made by this script" in refused.stderr
    assert other.read_text() == "mine" and not (script.home / ".local" / "bin").exists()
    assert script(unpacked / "install.sh", "--prefix", "relative").returncode == 2


def test_other_kinds_and_a_missing_program_are_refused_with_words(checkout: door_steps.Place) -> None:
    with pytest.raises(door_steps.StepError, match="snap"):
        build(checkout, "snap")
    with pytest.raises(door_steps.StepError, match=door_linux.RUNTIME):
        build(checkout, "appimage")
    (checkout.root / "build/frozen/inglenook/inglenook").unlink()
    with pytest.raises(door_steps.StepError, match="holds no program"):
        build(checkout, "deb")


@needs("mksquashfs", "unsquashfs", "gcc", "objdump")
def test_an_appimage_is_its_runtime_and_the_folder(checkout: door_steps.Place, tmp_path: Path, monkeypatch) -> None:
    runtime = tmp_path / "runtime"
    runtime.write_bytes(b"\x7fELF" + b"r" * 4092)
    monkeypatch.setenv(door_linux.RUNTIME, str(runtime))
    (image,) = build(checkout, "appimage")
    assert image.read_bytes()[:4096] == runtime.read_bytes() and os.access(image, os.X_OK)
    out = tmp_path / "out"
    subprocess.run(["unsquashfs", "-q", "-n", "-o", "4096", "-d", out, image], check=True, stdout=subprocess.DEVNULL)
    assert (out / "AppRun").resolve() == out / "usr/lib/inglenook/inglenook"
    assert all((out / name).is_file() for name in ("inglenook.desktop", "inglenook.png", ".DirIcon"))
    started = subprocess.run([out / "AppRun", "x"], capture_output=True, text=True, check=True)
    assert started.stdout.startswith("started")


# ---- what the desktop reads


def test_the_menu_entry_is_that_of_the_window() -> None:
    """Docks find the icon of a Wayland window by this name, those of X11 by the class, which is the program's name."""
    lines = (OWN / "inglenook.desktop").read_text().splitlines()
    entry = dict(line.split("=", 1) for line in lines if "=" in line)
    assert 'setDesktopFileName(os.environ.get("FLATPAK_ID") or "inglenook")' in (ROOT / "desktop/app.py").read_text()
    assert entry["StartupWMClass"] == entry["Icon"] == "inglenook"
    assert entry["Exec"] == "inglenook %U"
    assert entry["MimeType"].split(";") == ["application/x-gguf", "x-scheme-handler/inglenook", ""]


def test_the_recipes_speak_of_the_same_program() -> None:
    spec = (OWN / "inglenook.spec").read_text()
    asked = set(re.findall(r"^Requires: +(lib\S+\.so\.\d+)%\{bits\}$", spec, re.MULTILINE))
    qt = {name for name in door_system.PACKAGES if name.startswith("lib")} - {"libz.so.1", "libzstd.so.1"}
    assert asked == (qt - {"libgthread-2.0.so.0"}) | {"libstdc++.so.6", "libgcc_s.so.1"}
    assert f"{{!?app_version: %global app_version {door_linux_share.version(ROOT)}}}" in spec
    assert f"{door_linux_share.ID}.metainfo.xml" in spec
    flatpak = json.loads((OWN / f"{door_linux_share.ID}.json").read_text())
    assert flatpak["id"] == door_linux_share.ID and flatpak["command"] == "inglenook"


@needs("desktop-file-validate")
def test_the_menu_entry_is_valid() -> None:
    done = subprocess.run(
        ["desktop-file-validate", OWN / "inglenook.desktop"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


@needs("appstreamcli")
def test_the_appstream_data_is_valid(tmp_path: Path) -> None:
    file = tmp_path / f"{door_linux_share.ID}.metainfo.xml"
    file.write_text(door_linux_share.metainfo(ROOT, DATE))
    done = subprocess.run(["appstreamcli", "validate", "--no-net", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "@" not in file.read_text()


@needs("update-mime-database")
def test_gguf_files_are_known_by_name_and_first_bytes(tmp_path: Path) -> None:
    (tmp_path / "packages").mkdir()
    shutil.copy(OWN / "inglenook-mime.xml", tmp_path / "packages" / "inglenook.xml")
    env = {**os.environ, "XDG_DATA_HOME": str(tmp_path.parent), "XDG_DATA_DIRS": str(tmp_path.parent)}
    subprocess.run(["update-mime-database", tmp_path], check=True, capture_output=True, env=env)
    assert "50:application/x-gguf:*.gguf" in (tmp_path / "globs2").read_text()
    assert b"[60:application/x-gguf]\n>0=\x00\x04GGUF" in (tmp_path / "magic").read_bytes()
    assert ElementTree.parse(tmp_path / "application" / "x-gguf.xml").getroot() is not None


def test_the_manual_page_is_what_the_program_says(checkout: door_steps.Place) -> None:
    program = checkout.root / "build/frozen/inglenook/inglenook"
    page = door_linux_share.manual_page(program, "1.2.3", DATE)
    assert '.TH INGLENOOK 1 "2026-05-28" "Inglenook 1.2.3"' in page
    assert "\\&.dotted" in page and "\\(aqquoted\\(aq \\e and" in page
    assert all(f"words of {word}" in page for word in door_linux_share.COMMANDS)
    program.write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
    with pytest.raises(door_steps.StepError, match="broken"):
        door_linux_share.manual_page(program, "1.2.3", DATE)
