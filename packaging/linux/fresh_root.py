"""A fresh minimal system in a layer over what debootstrap made, and ways to run programs in it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

HOME = "/home/Zoë Müller 用户"
USER = "zoe"
CHANGING = ("/var/lib/apt", "/var/lib/dpkg", "/var/cache", "/var/log", "/tmp", "/run", "/root", "/proc", "/sys", "/dev")
"""Folders that every installation of anything changes."""
NOT_OURS = ("/etc/ld.so.cache", "/etc/passwd-", "/etc/shadow-", "/etc/group-", "/etc/gshadow-", "/etc/subuid-")


class Failed(Exception):
    """Something is not as it has to be; the text says what."""


def run(command: Sequence[str | Path], *, check: bool = True, timeout: float = 900, **options: object) -> str:
    """Run a program and give its output; raises Failed with the end of it."""
    words = [str(word) for word in command]
    answer = subprocess.run(  # type: ignore[call-overload]
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout, check=False, **options
    )
    text: str = answer.stdout.decode("utf-8", "replace")
    if check and answer.returncode:
        raise Failed(f"{' '.join(words)[:300]} ended with {answer.returncode}:\n{text[-3000:]}")
    return text


def say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)


# ------------------------------------------------------------------ the root


def base_root(roots: Path, suite: str) -> Path:
    """The minimal system of a suite; made at the first call."""
    root = roots / suite
    if not (root / "usr/bin/apt-get").exists():
        say(f"debootstrap {suite}")
        roots.mkdir(parents=True, exist_ok=True)
        run(["debootstrap", "--variant=minbase", suite, root], timeout=3600)
    return root


@contextlib.contextmanager
def layer(base: Path, roots: Path) -> Iterator[Path]:
    """A writable copy of a root that is gone afterwards."""
    work = roots / f"layer-{base.name}-{os.getpid()}"
    top = work / "root"
    for name in ("upper", "work", "root"):
        (work / name).mkdir(parents=True)
    mounts: list[Path] = []

    def mount(*words: str | Path) -> None:
        run(["mount", *words])
        mounts.append(Path(words[-1]))

    try:
        mount("-t", "overlay", "overlay", "-o", f"lowerdir={base},upperdir={work}/upper,workdir={work}/work", top)
        mount("-t", "proc", "proc", top / "proc")
        mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", top / "dev")
        for name in ("null", "zero", "random", "urandom", "full"):
            (top / "dev" / name).touch()
            mount("--bind", f"/dev/{name}", top / "dev" / name)
        (top / "dev/shm").mkdir()
        mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", top / "dev/shm")
        shutil.copyfile("/etc/resolv.conf", top / "etc/resolv.conf")
        for proxy in Path("/etc/apt/apt.conf.d").glob("*proxy*"):
            shutil.copy(proxy, top / "etc/apt/apt.conf.d")
        (top / "usr/sbin/policy-rc.d").write_text("#!/bin/sh\nexit 101\n")
        (top / "usr/sbin/policy-rc.d").chmod(0o755)
        yield top
    finally:
        for place in reversed(mounts):
            subprocess.run(["umount", "-l", str(place)], check=False)
        shutil.rmtree(work, ignore_errors=True)


def in_root(root: Path, *words: str, check: bool = True, timeout: float = 900) -> str:
    """Run a program in the root as its administrator."""
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    for name in ("http_proxy", "https_proxy"):
        if os.environ.get(name):
            env[name] = os.environ[name]
    return run(["chroot", root, *words], env=env, check=check, timeout=timeout)


def as_user(root: Path, *words: str, display: bool = False) -> list[str]:
    """The command that runs a program in the root as the user: no network, nothing in the environment but this."""
    given = [f"HOME={HOME}", "PATH=/usr/bin:/bin"]
    given += [f"DISPLAY={os.environ['DISPLAY']}"] if display else []
    user = ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", "env", "-i", "-C", "/", *given, *words]
    return ["unshare", "-n", "chroot", str(root), *user]


def listing(root: Path) -> set[str]:
    """Every path in the root, without what any installation changes and without the user's home."""
    left_out = (*CHANGING, "/home", *NOT_OURS)
    found: set[str] = set()
    for folder, folders, files in os.walk(root):
        inside = "/" + str(Path(folder).relative_to(root)).removeprefix(".").lstrip("/")
        folders[:] = [name for name in folders if f"{inside.rstrip('/')}/{name}" not in left_out]
        found |= {f"{inside.rstrip('/')}/{name}" for name in (*folders, *files)}
    return {path for path in found if path not in left_out}


def home_listing(root: Path) -> dict[str, int]:
    """Files of the profile with their sizes."""
    home = root / HOME.lstrip("/")
    return {str(path.relative_to(home)): path.stat().st_size for path in home.rglob("*") if path.is_file()}
