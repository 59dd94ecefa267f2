"""The packages for Debian and Ubuntu: `inglenook`, and `inglenook-cuda` with the part for NVIDIA GPUs."""

from __future__ import annotations

import gzip
import hashlib
import os
import platform
import re
import shutil
from collections.abc import Iterable, Mapping
from email.utils import formatdate
from pathlib import Path

import door_elf
import door_linux_share as share
import door_system
from door_frozen_parts import FALLBACK
from door_steps import Place, StepError, run_logged

LIB = Path("usr/lib/inglenook")
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
MAINTAINER = "The Inglenook authors <inglenook@inglenook.invalid>"
"""Who builds packages to give away puts an address of theirs into INGLENOOK_MAINTAINER."""

SYSTEM: Mapping[str, str] = {
    **{name: columns[0] for name, columns in door_system.PACKAGES.items() if name.startswith("lib")},
    "libstdc++.so.6": "libstdc++6 (>= 12)",
    "libgcc_s.so.1": "libgcc-s1",
    "libgomp.so.1": "libgomp1",
    "libbrotlicommon.so.1": "libbrotli1",
    "libbrotlidec.so.1": "libbrotli1",
    "libgssapi_krb5.so.2": "libgssapi-krb5-2",
    "libxcb-glx.so.0": "libxcb-glx0",
    "libxcb-xinput.so.0": "libxcb-xinput0",
    "libwayland-egl.so.1": "libwayland-egl1",
}
"""Which package has a library, in Debian 12 and 13 alike; its name of the older one where they differ."""

RENAMED = {"libglib2.0-0": "libglib2.0-0t64"}
"""Packages that got another name when time became 64 bits wide. Both names are written."""

DESCRIPTION = """\
chat with language models on this computer, offline
 Inglenook loads open-weight language models (GGUF files) with llama.cpp,
 streams the answer and shows what was measured on the way: time to the first
 token, tokens per second, how full the context is, how much memory it took.
 Nothing that is typed leaves the computer.
 .
 A small model is inside. Others are found, judged for this computer and
 downloaded when asked."""

CUDA_DESCRIPTION = """\
chat with language models offline - NVIDIA GPUs
 The part of llama.cpp that computes on NVIDIA GPUs, with the parts of the
 CUDA runtime that it needs. It is used where the driver of the system allows
 it (release 580 or newer); where it does not, Inglenook says why and computes
 on the processor.
 .
 The NVIDIA driver itself is not in this package."""


def architecture() -> str:
    """Debian's word for this machine. Raises StepError for one that there are no packages for."""
    machine = platform.machine()
    if machine not in ARCHITECTURES:
        raise StepError(f"there are no Debian packages for {machine}")
    return ARCHITECTURES[machine]


def version_text(text: str) -> str:
    """A version as Debian sorts it: 1.0rc1 and 1.0.dev3 come before 1.0."""
    return re.sub(r"\.?(a|b|rc|dev)(\d+)", r"~\1\2", text)


def needed(folders: Iterable[Path], given: Iterable[Path] = ()) -> tuple[set[str], tuple[int, ...]]:
    """Names of libraries that these folders need of the system, and the newest glibc among them.

    `given`: folders that are installed too. The libraries that the frozen folder has for systems without a desktop
    do not count: a package can ask for the system's own, which fit its graphics driver and get its security updates.
    """

    def survey(folder: Path) -> dict[Path, door_elf.Elf]:
        return {path: elf for path, elf in door_elf.survey(folder).items() if path.parent.name != FALLBACK}

    found = {path: elf for folder in folders for path, elf in survey(folder).items()}
    have = [name for folder in given for name in door_elf.by_name(survey(folder))]
    names = {name for _, name in door_elf.unmet(found, have)}
    return names, max((elf.glibc for elf in found.values()), default=(0, 0))


def depends(names: Iterable[str], glibc: tuple[int, ...]) -> list[str]:
    """Debian's dependencies for library names. Raises StepError for one that no package is known for."""
    unknown = sorted(name for name in names if name not in SYSTEM)
    if unknown:
        raise StepError(f"no Debian package is known for {', '.join(unknown)}: bundle it, or add it to door_deb.SYSTEM")
    packages = {SYSTEM[name] for name in names}
    written = [f"{RENAMED[name]} | {name}" if name in RENAMED else name for name in sorted(packages)]
    return [f"libc6 (>= {'.'.join(map(str, max(glibc, (2, 17))))})", *written]


# ------------------------------------------------------------------ the two packages


def program(place: Place, frozen: Path, manual: str, date: int) -> Path:
    """Make `inglenook_VERSION_ARCH.deb`; returns its path."""
    tree = _fresh(place.root / "build" / "linux" / "deb")
    share.add_program(frozen, tree / LIB, without=(FALLBACK,))
    share.stage(place.root, tree / "usr" / "share", manual, date)
    (tree / "usr" / "bin").mkdir(parents=True)
    (tree / "usr" / "bin" / "inglenook").symlink_to("../lib/inglenook/inglenook")
    doc = tree / "usr" / "share" / "doc" / "inglenook"
    share.put(doc / "copyright", (place.root / "packaging" / "linux" / "copyright").read_bytes())
    share.put(doc / "NEWS.gz", gzip.compress((place.root / "CHANGELOG.md").read_bytes(), 9, mtime=0))
    overrides = place.root / "packaging" / "linux" / "lintian-overrides"
    share.put(tree / "usr" / "share" / "lintian" / "overrides" / "inglenook", overrides.read_bytes())
    fields = {
        "Package": "inglenook",
        "Depends": ", ".join(depends(*needed([tree / LIB]))),
        "Recommends": "fonts-noto-color-emoji, xdg-utils",
        "Suggests": "inglenook-cuda",
        "Description": DESCRIPTION,
    }
    return _finish(place, tree, fields, date)


def cuda(place: Place, frozen: Path, addon: Path, date: int) -> Path:
    """Make `inglenook-cuda_VERSION_ARCH.deb` from the folder with the module; returns its path."""
    tree = _fresh(place.root / "build" / "linux" / "deb-cuda")
    target = tree / LIB / "addons" / "cuda"
    shutil.copytree(addon, target, symlinks=True)
    share.settle(target)
    doc = tree / "usr" / "share" / "doc" / "inglenook-cuda"
    share.put(doc / "copyright", (place.root / "packaging" / "linux" / "copyright-cuda").read_bytes())
    names, glibc = needed([target], given=[frozen])
    own = f"inglenook (= {version_text(share.version(place.root))})"
    fields = {
        "Package": "inglenook-cuda",
        "Depends": ", ".join([own, *depends(names - {"libcuda.so.1"}, glibc)]),
        "Suggests": "nvidia-driver",
        "Description": CUDA_DESCRIPTION,
    }
    return _finish(place, tree, fields, date)


def _fresh(tree: Path) -> Path:
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    return tree


def _finish(place: Place, tree: Path, fields: Mapping[str, str], date: int) -> Path:
    """Write the control files and have dpkg-deb pack it all, so that the same input gives the same bytes."""
    name, number = fields["Package"], version_text(share.version(place.root))
    share.put(tree / "usr/share/doc" / name / "changelog.gz", gzip.compress(_changelog(name, number, date), 9, mtime=0))
    files = sorted(path for path in tree.rglob("*") if path.is_file() and not path.is_symlink())
    sums = "".join(f"{_md5(path)}  {path.relative_to(tree).as_posix()}\n" for path in files)
    whole = {
        "Package": name,
        "Version": number,
        "Architecture": architecture(),
        "Maintainer": os.environ.get("INGLENOOK_MAINTAINER") or MAINTAINER,
        "Installed-Size": str(installed_kib(tree)),
        **{key: value for key, value in fields.items() if key not in {"Package", "Description"}},
        "Section": "science",
        "Priority": "optional",
        "Description": fields["Description"],
    }
    control = tree / "DEBIAN"
    share.put(control / "md5sums", sums)
    share.put(control / "control", "".join(f"{key}: {value}\n" for key, value in whole.items()))
    for folder in [tree, *(path for path in tree.rglob("*") if path.is_dir())]:
        folder.chmod(0o755)
    share.set_times(tree, date)
    target = place.root / "dist" / f"{name}_{number}_{architecture()}.deb"
    target.parent.mkdir(exist_ok=True)
    fresh = target.with_name(f"{target.name}.part")
    # xz gives the same bytes however many cores pack (zstd does not), and a twelfth less than zstd in its quick levels
    command = ["dpkg-deb", "--root-owner-group", "-Zxz", "-z6", "--build", str(tree), str(fresh)]
    env = {**os.environ, "SOURCE_DATE_EPOCH": str(date)}
    run_logged(place, f"packing {target.name}", command, env=env, advice="install dpkg and run this again")
    fresh.replace(target)
    return target


def _changelog(name: str, number: str, date: int) -> bytes:
    lines = [
        f"{name} ({number}) stable; urgency=medium",
        "",
        "  * What changed is in /usr/share/doc/inglenook/NEWS.gz.",
        "",
        f" -- {os.environ.get('INGLENOOK_MAINTAINER') or MAINTAINER}  {formatdate(date)}",
    ]
    return "\n".join([*lines, ""]).encode()


def _md5(path: Path) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def installed_kib(tree: Path) -> int:
    """What the files take once installed, counted as Debian does: in whole KiB each, 1 for everything else."""
    plain = (path.stat().st_size for path in tree.rglob("*") if path.is_file() and not path.is_symlink())
    others = sum(1 for path in tree.rglob("*") if path.is_dir() or path.is_symlink())
    return sum(-(-size // 1024) for size in plain) + others
