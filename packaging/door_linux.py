"""The packages for Linux: Debian packages, an archive that installs for one user, and an AppImage where possible."""

from __future__ import annotations

import gzip
import os
import platform
import shutil
import tarfile
from collections.abc import Sequence
from pathlib import Path

import door_deb
import door_frozen
import door_linux_share as share
from door_steps import Place, StepError, run_logged, say

KINDS = ("deb", "tar", "appimage")
RUNTIME = "INGLENOOK_APPIMAGE_RUNTIME"
"""Names the file that starts an AppImage (type 2), for this machine's processor."""


def build(place: Place, frozen: Path, addons: Sequence[Path], only: str = "") -> list[Path]:
    """Make the packages of `frozen` and of the add-ons in `dist/`; returns their paths. Raises StepError.

    `only`: one of `KINDS`.
    """
    if only and only not in KINDS:
        raise StepError(f"there is no package of the kind {only!r} on Linux, but these: {', '.join(KINDS)}")
    if not (frozen / "inglenook").is_file():
        raise StepError(f"{frozen} holds no program: run `dev.py package --only frozen` first")
    date = door_frozen.source_date(place.root)
    manual = share.manual_page(frozen / "inglenook", share.version(place.root), date)
    made: list[Path] = []
    if only in ("", "deb"):
        made.append(door_deb.program(place, frozen, manual, date))
        made += [door_deb.cuda(place, frozen, addon, date) for addon in addons if addon.name == "cuda"]
    if only in ("", "tar"):
        made.append(archive(place, frozen, (), manual, date))
        if addons:
            made.append(archive(place, frozen, addons, manual, date))
    if only == "appimage" or (not only and os.environ.get(RUNTIME)):
        made.append(appimage(place, frozen, manual, date))
    elif not only:
        say(f"no AppImage: name the file with its runtime in {RUNTIME} (see packaging/release.md)")
    return made


# ------------------------------------------------------------------ archive


def archive(place: Place, frozen: Path, addons: Sequence[Path], manual: str, date: int) -> Path:
    """Make `inglenook-VERSION-linux-MACHINE.tar.gz`: the program and two scripts that install and remove it.

    With add-ons they stand in its name, `…-MACHINE-cuda.tar.gz`: nobody should take four times the bytes by mistake.
    """
    name = f"inglenook-{share.version(place.root)}-linux-{platform.machine()}"
    name += "".join(f"-{addon.name}" for addon in addons)
    top = place.root / "build" / "linux" / "tar" / name
    shutil.rmtree(top.parent, ignore_errors=True)
    share.add_program(frozen, top / "inglenook")
    for addon in addons:
        shutil.copytree(addon, top / "inglenook" / "addons" / addon.name, symlinks=True)
        share.settle(top / "inglenook" / "addons")
    share.stage(place.root, top / "share", manual, date)
    own = place.root / "packaging" / "linux"
    for script in ("install.sh", "uninstall.sh"):
        share.put(top / script, (own / script).read_bytes(), mode=0o755)
    share.put(top / "LICENSE", (place.root / "LICENSE").read_bytes())
    share.put(top / "README.txt", (own / "README.txt").read_bytes())
    target = place.root / "dist" / f"{name}.tar.gz"
    target.parent.mkdir(exist_ok=True)
    say(f"packing {target.name}")
    pack(top, target, date)
    return target


def pack(top: Path, target: Path, date: int) -> None:
    """Write a folder as .tar.gz, so that the same files give the same bytes."""

    def plain(item: tarfile.TarInfo) -> tarfile.TarInfo:
        item.uid = item.gid = 0
        item.uname = item.gname = "root"
        item.mtime = date
        if not item.issym():
            item.mode = 0o755 if item.isdir() or item.mode & 0o100 else 0o644
        return item

    fresh = target.with_name(f"{target.name}.part")
    with fresh.open("wb") as file:
        with gzip.GzipFile("", "wb", 6, file, mtime=date) as packed:
            with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
                for path in [top, *sorted(top.rglob("*"))]:
                    tar.add(path, path.relative_to(top.parent).as_posix(), recursive=False, filter=plain)
    fresh.replace(target)


# ------------------------------------------------------------------ AppImage


def appimage(place: Place, frozen: Path, manual: str, date: int) -> Path:
    """Make `Inglenook-VERSION-MACHINE.AppImage` from a runtime and a packed folder. Raises StepError without them."""
    runtime = Path(os.environ.get(RUNTIME) or "/nonexistent")
    if not runtime.is_file():
        raise StepError(f"no runtime for AppImages here: name its file in {RUNTIME}")
    folder = app_dir(place, frozen, manual, date)
    image = folder.with_name("image.squashfs")
    image.unlink(missing_ok=True)
    command = ["mksquashfs", str(folder), str(image), "-root-owned", "-noappend", "-no-progress", "-comp", "zstd"]
    env = {**os.environ, "SOURCE_DATE_EPOCH": str(date)}
    run_logged(place, "packing the AppImage", command, env=env, advice="install squashfs-tools and run this again")
    target = place.root / "dist" / f"Inglenook-{share.version(place.root)}-{platform.machine()}.AppImage"
    target.parent.mkdir(exist_ok=True)
    with target.open("wb") as out:
        for part in (runtime, image):
            with part.open("rb") as file:
                shutil.copyfileobj(file, out)
    target.chmod(0o755)
    return target


def app_dir(place: Place, frozen: Path, manual: str, date: int) -> Path:
    """Lay out the folder that an AppImage holds; it can be started as it is with its `AppRun`."""
    folder = place.root / "build" / "linux" / "Inglenook.AppDir"
    shutil.rmtree(folder, ignore_errors=True)
    share.add_program(frozen, folder / "usr" / "lib" / "inglenook")
    share.stage(place.root, folder / "usr" / "share", manual, date)
    links: dict[str, str] = {
        "AppRun": "usr/lib/inglenook/inglenook",
        "inglenook.desktop": "usr/share/applications/inglenook.desktop",
        "inglenook.png": "usr/share/icons/hicolor/256x256/apps/inglenook.png",
        ".DirIcon": "inglenook.png",
    }
    for name, target in links.items():
        (folder / name).symlink_to(target)
    share.set_times(folder, date)
    return folder
