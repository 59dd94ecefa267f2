"""What Linux's programs and libraries say of themselves: name, what they need, from which glibc on they run."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from door_steps import StepError

MAGIC = b"\x7fELF"

GLIBC = frozenset(
    {
        "ld-linux-x86-64.so.2",
        "ld-linux-aarch64.so.1",
        "libc.so.6",
        "libm.so.6",
        "libdl.so.2",
        "libpthread.so.0",
        "librt.so.1",
        "libresolv.so.2",
        "libutil.so.1",
    }
)
"""Parts of glibc, which is never bundled: the kernel's side and the name service have to fit it."""


@dataclass(frozen=True)
class Elf:
    """One program or library.

    Attributes:
        soname: name under which others need it; empty for programs and most modules.
        needed: names of the libraries that it needs.
        glibc: newest version of glibc's symbols that it needs, such as (2, 34); (0, 0) without any.
    """

    soname: str
    needed: tuple[str, ...]
    glibc: tuple[int, ...]


def is_elf(path: Path) -> bool:
    """True for a program or library of Linux that is no link."""
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == MAGIC


def parse(text: str) -> Elf:
    """Read what `objdump -p` printed."""
    versions = [version(found) for found in re.findall(r"\bGLIBC_([0-9.]+)", text)]
    soname = re.search(r"^\s*SONAME\s+(\S+)", text, re.MULTILINE)
    return Elf(
        soname=soname[1] if soname else "",
        needed=tuple(re.findall(r"^\s*NEEDED\s+(\S+)", text, re.MULTILINE)),
        glibc=max(versions, default=(0, 0)),
    )


def version(text: str) -> tuple[int, ...]:
    """A version as numbers, to compare it."""
    return tuple(int(part) for part in text.split(".") if part)


def read(path: Path) -> Elf:
    """What a file says of itself. Raises StepError without `objdump`, or where the file is damaged."""
    try:
        answer = subprocess.run(["objdump", "-p", str(path)], capture_output=True, text=True, check=False)
    except OSError:
        raise StepError("objdump is missing: install binutils and run this again") from None
    if answer.returncode:
        raise StepError(f"{path} cannot be read by objdump: remove build/ and run this again")
    return parse(answer.stdout)


def survey(folder: Path) -> dict[Path, Elf]:
    """Every program and library below a folder, without links."""
    return {path: read(path) for path in sorted(folder.rglob("*")) if is_elf(path)}


def by_name(found: Mapping[Path, Elf]) -> dict[str, Path]:
    """Paths by the names under which others need them."""
    names: dict[str, Path] = {}
    for path, elf in found.items():
        names.setdefault(path.name, path)
        if elf.soname:
            names[elf.soname] = path
    return names


def reached(roots: Iterable[Path], found: Mapping[Path, Elf]) -> set[Path]:
    """The files of `found` that `roots` need, directly or not; with the roots themselves."""
    names = by_name(found)
    done: set[Path] = set()
    left = list(roots)
    while left:
        path = left.pop()
        if path in done or path not in found:
            continue
        done.add(path)
        left += [names[name] for name in found[path].needed if name in names]
    return done


def unmet(found: Mapping[Path, Elf], given: Iterable[str] = ()) -> Iterator[tuple[Path, str]]:
    """Names that something needs and that neither `found` nor glibc nor `given` has."""
    have = {*by_name(found), *GLIBC, *given}
    for path, elf in found.items():
        for name in elf.needed:
            if name not in have:
                yield path, name


def too_new(found: Mapping[Path, Elf], newest: tuple[int, ...]) -> list[tuple[Path, tuple[int, ...]]]:
    """Files that need a newer glibc than `newest`."""
    return [(path, elf.glibc) for path, elf in found.items() if elf.glibc > newest]


def not_found(path: Path, folders: Iterable[Path]) -> list[str]:
    """What `ldd` calls "not found" for one file, where the loader looks into `folders` too."""
    env = {"LD_LIBRARY_PATH": ":".join(str(folder) for folder in folders), "PATH": "/usr/bin:/bin", "LC_ALL": "C"}
    answer = subprocess.run(["ldd", str(path)], capture_output=True, text=True, check=False, env=env)
    return re.findall(r"^\s*(\S+) => not found", answer.stdout, re.MULTILINE)
