"""Packages for macOS, as far as another system can make them: layout, lists and recipes; the tools are stood in for."""

from __future__ import annotations

import os
import plistlib
import runpy
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import door_icons
import door_macos
import door_steps
import pytest

ROOT = Path(__file__).resolve().parents[2]
OWN = ROOT / "packaging" / "macos"
Fake = Callable[..., list[list[str]]]
CODE = bytes.fromhex("cffaedfe") + b"a library"
posix = pytest.mark.skipif(sys.platform == "win32", reason="links and scripts with a #! line")


@pytest.fixture
def frozen(tmp_path: Path) -> Path:
    folder = tmp_path / "frozen" / "inglenook"
    inside = folder / "_internal"
    files = {
        "llama_cpp/lib/libllama.dylib": CODE,
        "llama_cpp/py.typed": b"",
        "python3.11/lib-dynload/_ssl.cpython-311-darwin.so": CODE,
        "resources/icons/inglenook.svg": b"<svg/>",
        "share/inglenook/starter/model.gguf": b"GGUF",
        "msgspec-1.0.dist-info/METADATA": b"Name: msgspec",
        "PySide6/Qt/lib/QtCore.framework/Versions/A/QtCore": CODE,
        "PySide6/Qt/lib/QtCore.framework/Versions/A/Resources/Info.plist": b"<plist/>",
        "PySide6/Qt/plugins/platforms/libqcocoa.dylib": CODE,
        "base_library.zip": b"PK",
        "libpython3.11.dylib": bytes.fromhex("cafebabe") + b"for two processors",
    }
    for name, data in files.items():
        path = inside / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (inside / "PySide6/Qt/lib/QtCore.framework/Versions/Current").symlink_to("A")
    (inside / "PySide6/Qt/lib/QtCore.framework/QtCore").symlink_to("Versions/Current/QtCore")
    (inside / "QtCore").symlink_to("PySide6/Qt/lib/QtCore.framework/Versions/A/QtCore")
    (folder / "inglenook").write_bytes(CODE)
    (folder / "inglenook").chmod(0o755)
    return folder


# ------------------------------------------------------------------ layout


@posix
def test_code_and_data_are_parted_and_everything_is_found_where_it_was(
    checkout: door_steps.Place, frozen: Path
) -> None:
    app = door_macos.application(checkout, frozen)
    code, data = app / "Contents" / "Frameworks", app / "Contents" / "Resources"
    inside = frozen / "_internal"
    for path in inside.rglob("*"):
        if path.is_file():
            found = code / path.relative_to(inside)
            assert found.read_bytes() == path.read_bytes(), path
            assert app.resolve() in found.resolve().parents, "no link leads out of the application"
    real = [path for path in code.rglob("*") if path.is_file() and not path.is_symlink()]
    strangers = [path for path in real if not door_macos.is_code(path) and ".framework/" not in path.as_posix()]
    assert strangers == [], "codesign refuses data below Frameworks"
    assert not [path for path in data.rglob("*") if path.is_file() and door_macos.is_code(path)]
    dotted = [
        path
        for path in code.rglob("*")
        if path.is_dir() and not path.is_symlink() and "." in path.name and ".framework" not in path.as_posix()
    ]
    assert dotted == [], "codesign takes a folder with a dot in its name for a bundle"
    assert (code / "python3.11").readlink() == Path("python3__dot__11")
    assert os.access(app / "Contents" / "MacOS" / "inglenook", os.X_OK)
    assert not [path for path in app.rglob("*") if path.is_symlink() and not path.exists()]


def test_a_folder_without_a_program_is_refused(checkout: door_steps.Place, tmp_path: Path) -> None:
    with pytest.raises(door_steps.StepError, match="holds no program"):
        door_macos.application(checkout, tmp_path)


# ------------------------------------------------------------------ lists


def test_what_macos_reads_of_the_application(checkout: door_steps.Place) -> None:
    info = door_macos.info(checkout.root)
    assert info["CFBundleIdentifier"] == "app.inglenook.inglenook"
    assert info["CFBundleShortVersionString"] == door_macos.share.version(checkout.root)
    assert info["LSMinimumSystemVersion"] == "13.0"
    (kind,) = info["CFBundleDocumentTypes"]
    (declared,) = info["UTImportedTypeDeclarations"]
    assert kind["LSItemContentTypes"] == [declared["UTTypeIdentifier"]]
    assert declared["UTTypeTagSpecification"]["public.filename-extension"] == ["gguf"]
    assert info["CFBundleURLTypes"][0]["CFBundleURLSchemes"] == ["inglenook"]
    plistlib.dumps(info)


def test_the_identifier_is_the_one_of_linux() -> None:
    info = plistlib.loads((OWN / "Info.plist").read_bytes())
    assert info["CFBundleIdentifier"] == door_macos.share.ID


def test_entitlements_are_few() -> None:
    found = plistlib.loads((OWN / "entitlements.plist").read_bytes())
    assert found == {"com.apple.security.cs.allow-unsigned-executable-memory": True}


def test_the_icon() -> None:
    data = door_icons.icns(ROOT)
    assert data[:4] == b"icns" and struct.unpack(">I", data[4:8]) == (len(data),)
    at, kinds = 8, {}
    while at < len(data):
        (length,) = struct.unpack(">I", data[at + 4 : at + 8])
        kinds[data[at : at + 4]] = struct.unpack(">I", data[at + 8 + 16 : at + 8 + 20])[0]
        at += length
    assert kinds == dict(door_icons.ICNS_TYPES)


def test_the_settings_of_the_disk_image() -> None:
    found = runpy.run_path(str(OWN / "dmg_settings.py"), {"defines": {"app": "/b/Inglenook.app", "icon": "/b/x.icns"}})
    assert found["files"] == ["/b/Inglenook.app"]
    assert found["symlinks"] == {"Applications": "/Applications"}
    assert set(found["icon_locations"]) == {"Inglenook.app", "Applications"}
    (left, top), (width, height) = found["window_rect"]
    assert min(left, top) >= 0
    for x, y in found["icon_locations"].values():
        assert 0 < x < width and 0 < y < height


@posix
@pytest.mark.parametrize("name", ["sign.sh", "notarize.sh"])
def test_the_scripts_are_sound(name: str) -> None:
    path = OWN / name
    assert os.access(path, os.X_OK)
    assert subprocess.run(["bash", "-n", str(path)], check=False).returncode == 0
    if shutil.which("shellcheck"):
        done = subprocess.run(["shellcheck", str(path)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


# ------------------------------------------------------------------ with stand-ins for Apple's tools


def tool(folder: Path, name: str, body: str) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


@pytest.fixture
def apple(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`codesign`, `file` and `xcrun` of a kind; gives the file with what was asked of them."""
    log, tools = tmp_path / "asked", tmp_path / "tools"
    tool(tools, "codesign", f'echo "codesign $*" >> "{log}"')
    tool(tools, "xcrun", f'echo "xcrun $*" >> "{log}"')
    tool(tools, "file", 'case "$2" in *.dylib|*.so|*/inglenook) echo "Mach-O 64-bit";; *) echo data;; esac')
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("INGLENOOK_MAC_IDENTITY", raising=False)
    monkeypatch.delenv("INGLENOOK_NOTARY_PROFILE", raising=False)
    return log


@pytest.fixture
def packing(checkout: door_steps.Place, fake_python: Fake, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """The environment that packages are made from, with an interpreter that writes down what it is asked."""
    venv = checkout.root / "build" / "package-venv"
    venv.parent.mkdir(parents=True)
    shutil.copytree(checkout.venv, venv)
    text = (venv / "bin" / "python").read_text()
    text += 'if "dmgbuild" in words and "install" not in words:\n    pathlib.Path(sys.argv[-1]).write_bytes(b"image")\n'
    (venv / "bin" / "python").write_text(text.replace("parents[2]", "parents[3]"))
    monkeypatch.setattr(door_macos.platform, "machine", lambda: "arm64")
    return fake_python


@posix
def test_the_whole_way_to_a_disk_image(
    checkout: door_steps.Place, frozen: Path, apple: Path, packing: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INGLENOOK_MAC_IDENTITY", "Developer ID Application: Somebody (AB12)")
    monkeypatch.setenv("INGLENOOK_NOTARY_PROFILE", "release")
    (made,) = door_macos.build(checkout, frozen, [])
    version = door_macos.share.version(checkout.root)
    assert made == checkout.root / "dist" / f"inglenook-{version}-macos-arm64.dmg"
    lines = apple.read_text().splitlines()
    signed = [line.split()[-1].rpartition("/")[2] for line in lines if line.startswith("codesign --force")]
    assert sorted(signed[:-3]) == sorted(
        ["_ssl.cpython-311-darwin.so", "libllama.dylib", "libpython3.11.dylib", "libqcocoa.dylib"]
    )
    assert signed[-3:] == ["QtCore.framework", "inglenook", "Inglenook.app"]
    assert all("--options runtime" in line and "--timestamp " in line for line in lines if "--force" in line)
    assert "--entitlements" in lines[-5] and "--verify --deep --strict" in "\n".join(lines)
    assert [line.split()[:3] for line in lines[-3:]] == [
        ["xcrun", "notarytool", "submit"],
        ["xcrun", "stapler", "staple"],
        ["xcrun", "stapler", "validate"],
    ]
    installs, image = packing()
    assert installs[-3:] == list(door_macos.TOOLS)
    assert image[:2] == ["-m", "dmgbuild"] and image[-2:] == ["Inglenook", str(made)]


@posix
def test_without_a_certificate_it_is_signed_ad_hoc_and_not_notarized(
    checkout: door_steps.Place, frozen: Path, apple: Path, packing: Fake, capsys: pytest.CaptureFixture[str]
) -> None:
    door_macos.build(checkout, frozen, [])
    lines = apple.read_text()
    assert "--sign - " in lines and "--timestamp=none" in lines and "xcrun" not in lines
    assert "not notarized" in capsys.readouterr().err
    assert door_macos.build(checkout, frozen, [], only="app") == []


@posix
def test_a_tool_that_fails_stops_it(
    checkout: door_steps.Place, frozen: Path, apple: Path, packing: Fake, tmp_path: Path
) -> None:
    packing({"dmgbuild -s": (1, "hdiutil: create failed")})
    with pytest.raises(door_steps.StepError, match="making the disk image failed"):
        door_macos.build(checkout, frozen, [])
    tool(tmp_path / "tools", "codesign", "echo refused >&2; exit 1")
    with pytest.raises(door_steps.StepError, match="signing the application failed: codesign refused it"):
        door_macos.build(checkout, frozen, [])


def test_what_is_not_made_on_macos(checkout: door_steps.Place, frozen: Path, tmp_path: Path) -> None:
    with pytest.raises(door_steps.StepError, match="no CUDA on macOS"):
        door_macos.build(checkout, frozen, [tmp_path])
    with pytest.raises(door_steps.StepError, match="no package of the kind 'deb' on macOS"):
        door_macos.build(checkout, frozen, [], only="deb")
