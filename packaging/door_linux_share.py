"""What stands beside the program on Linux: menu entry, icons, file type, AppStream data, manual page, licences."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from door_steps import StepError

ID = "app.inglenook.inglenook"
COMMANDS = ("chat", "models", "embed", "trace", "fit", "bench", "doctor")
"""Words of the command line whose help is in the manual page."""


def version(root: Path) -> str:
    """The program's version, such as "0.1.0". Raises StepError."""
    match = re.search(r'^__version__ = "([^"]+)"', (root / "engine" / "__init__.py").read_text("utf-8"), re.MULTILINE)
    if match is None:
        raise StepError("engine/__init__.py names no version")
    return match[1]


def put(target: Path, data: bytes | str, *, mode: int = 0o644) -> None:
    """Write a file and the folders above it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data.encode("utf-8") if isinstance(data, str) else data)
    target.chmod(mode)


def stage(root: Path, share: Path, manual: str, date: int) -> None:
    """Fill a `share` folder: everything by which a desktop knows the program."""
    own = root / "packaging" / "linux"
    put(share / "applications" / "inglenook.desktop", (own / "inglenook.desktop").read_bytes())
    put(share / "mime" / "packages" / "inglenook.xml", (own / "inglenook-mime.xml").read_bytes())
    put(share / "metainfo" / f"{ID}.metainfo.xml", metainfo(root, date))
    icons = share / "icons" / "hicolor"
    put(icons / "scalable" / "apps" / "inglenook.svg", (root / "resources" / "icons" / "inglenook.svg").read_bytes())
    for picture in sorted((own / "icons").glob("inglenook-*.png")):
        size = picture.stem.rpartition("-")[2]
        put(icons / f"{size}x{size}" / "apps" / "inglenook.png", picture.read_bytes())
    put(share / "man" / "man1" / "inglenook.1.gz", gzip.compress(manual.encode(), 9, mtime=0))


def metainfo(root: Path, date: int) -> str:
    """The AppStream data with this version and its date."""
    text = (root / "packaging" / "linux" / f"{ID}.metainfo.xml").read_text("utf-8")
    day = time.strftime("%Y-%m-%d", time.gmtime(date))
    return text.replace("@VERSION@", version(root)).replace("@DATE@", day)


def add_program(frozen: Path, target: Path, *, without: Sequence[str] = ()) -> None:
    """Copy the frozen folder, with the permissions that installed files have. `without`: names in `_internal`."""

    def left_out(folder: str, names: list[str]) -> list[str]:
        return [name for name in names if name in without] if Path(folder) == frozen / "_internal" else []

    shutil.copytree(frozen, target, symlinks=True, ignore=left_out)
    settle(target, programs=("inglenook",))


def settle(folder: Path, *, programs: Sequence[str] = ()) -> None:
    """Give everything below a folder the permissions of installed files; only `programs` at its top can be started."""
    for path in [folder, *folder.rglob("*")]:
        if not path.is_symlink():
            started = path.is_dir() or (path.parent == folder and path.name in programs)
            path.chmod(0o755 if started else 0o644)


def set_times(folder: Path, date: int) -> None:
    """Date everything below a folder the same."""
    for path in [*folder.rglob("*"), folder]:
        os.utime(path, (date, date), follow_symlinks=False)


# ------------------------------------------------------------------ manual page


def manual_page(program: Path, version_text: str, date: int) -> str:
    """The manual page, from what the program says of itself. Raises StepError where it does not answer."""
    day = time.strftime("%Y-%m-%d", time.gmtime(date))
    top = _help(program, [])
    lines = [
        f'.TH INGLENOOK 1 "{day}" "Inglenook {version_text}" "User Commands"',
        ".SH NAME",
        "inglenook \\- chat with language models on this computer, offline",
        ".SH SYNOPSIS",
        ".nf",
        *(_roff(line) for line in _usage(top)),
        ".fi",
        ".SH DESCRIPTION",
        "Without a word of the list below, the window opens.",
        ".PP",
        ".nf",
        *(_roff(line) for line in _body(top)),
        ".fi",
    ]
    for word in COMMANDS:
        text = _help(program, [word])
        lines += [f'.SH "INGLENOOK {word.upper()}"', ".nf", *(_roff(line) for line in text.splitlines()), ".fi"]
    lines += [
        ".SH LINKS",
        "A link inglenook://models/OWNER/REPO, with ?file=PATH or ?quant=LABEL after it where wanted, shows the",
        "page of a model of the Hugging Face Hub. It asks nothing of the network by itself.",
        ".SH FILES",
        "Chats, settings and models lie in the folders that",
        ".B inglenook doctor",
        "prints; INGLENOOK_HOME or \\-\\-home moves them all to another one. Removing the program leaves them.",
    ]
    return "\n".join(lines) + "\n"


def _help(program: Path, words: Sequence[str]) -> str:
    with tempfile.TemporaryDirectory(prefix="inglenook-man-") as home:
        env = {"HOME": home, "INGLENOOK_HOME": home, "PATH": "/usr/bin:/bin", "COLUMNS": "80", "LC_ALL": "C.UTF-8"}
        command = [str(program), *words, "--help"]
        try:
            answer = subprocess.run(command, capture_output=True, env=env, timeout=120, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise StepError(f"{program} does not say its help: {error}") from None
    if answer.returncode:
        raise StepError(f"{' '.join(command)} failed: {answer.stderr.decode('utf-8', 'replace')[-300:].strip()}")
    return answer.stdout.decode("utf-8")


def _usage(text: str) -> list[str]:
    return text.partition("\n\n")[0].removeprefix("usage: ").splitlines()


def _body(text: str) -> list[str]:
    return text.partition("\n\n")[2].splitlines()


def _roff(line: str) -> str:
    """One line as it is, however it begins."""
    escaped = line.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return f"\\&{escaped}" if escaped.startswith((".", "\\(aq")) else escaped
