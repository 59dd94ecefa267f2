"""Names that come from a server, before they become names of files.

One rule for all systems: a name that any of them could take for something else (another folder, a drive, a device) is
refused everywhere, so that a models folder can be moved between them.
"""

from __future__ import annotations

import re
from pathlib import Path

from engine.errors import StorageFailed, UnsafeName
from engine.models.not_gguf import shown

MAX_NAME_BYTES = 255
MAX_DEPTH = 8
#: the verdict on names such as ".gitattributes", which are in every repository and no news
HIDDEN = "is a hidden name"
_REPO_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,95}\Z")
_COMMIT = re.compile(r"[0-9a-f]{40}\Z|[0-9a-f]{64}\Z")
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
#: names that Windows takes for devices, with any ending
_DEVICES = re.compile(
    r"(?:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9\u00b9\u00b2\u00b3])\s*(?:\.|\Z)", re.IGNORECASE
)
_FORBIDDEN = re.compile(r'[\x00-\x1f\x7f-\x9f<>:"|?*\\]')


def why_unsafe(name: str) -> str:
    """Why a path relative to a repository cannot be used, as the end of a sentence; "" if it can."""
    if not name:
        return "is empty"
    try:
        name.encode()
    except UnicodeEncodeError:
        return "is no valid text"
    if name.startswith(("/", "\\")):
        return "is an absolute path"
    if re.match(r"[A-Za-z]:", name):
        return "names a drive"
    parts = name.split("/")
    if len(parts) > MAX_DEPTH:
        return "has too many folders"
    return next((why for part in parts if (why := _why_unsafe_part(part))), "")


def _why_unsafe_part(part: str) -> str:
    if part in ("", ".", ".."):
        return "leads to another folder"
    if _FORBIDDEN.search(part):
        return "holds characters that file names may not have"
    if part.startswith("."):
        return HIDDEN
    if part[-1] in ". " or part[0] == " ":
        return "ends in a dot or a space, or begins with a space"
    if _DEVICES.match(part):
        return "is the name of a device"
    if len(part.encode()) > MAX_NAME_BYTES:
        return f"is longer than {MAX_NAME_BYTES} bytes"
    return ""


def safe_parts(name: str) -> tuple[str, ...]:
    """The parts of a path that a server gave, if all of them are plain names.

    Raises:
        UnsafeName
    """
    why = why_unsafe(name)
    if why:
        raise UnsafeName(
            f"The hub lists a file whose name cannot be used: {shown(name, 120)} {why}",
            hint="The file was not downloaded. Choose another repository.",
            details={"name": shown(name, 300)},
        )
    return tuple(name.split("/"))


def repo_parts(repo: str) -> tuple[str, ...]:
    """Owner and name of a repository id ("owner/name", or the old form "name").

    Raises:
        UnsafeName
    """
    parts = tuple(repo.split("/"))
    if len(parts) > 2 or not all(_REPO_PART.match(p) and ".." not in p and "--" not in p for p in parts):
        raise UnsafeName(f"{shown(repo, 120)} is no name of a repository", details={"name": shown(repo, 300)})
    for part in parts:
        if why := _why_unsafe_part(part):
            raise UnsafeName(f"The repository {shown(repo, 120)} {why}", details={"name": shown(repo, 300)})
    return parts


def is_commit(text: str) -> bool:
    return bool(_COMMIT.match(text))


def is_sha256(text: str) -> bool:
    return bool(_SHA256.match(text))


def place_inside(root: Path, parts: tuple[str, ...]) -> Path:
    """The path of a file under `root`, after making sure that no link on the way leads out of it.

    Raises:
        UnsafeName: a folder on the way is a link, or the real path lies outside.
        StorageFailed: a folder on the way is a file.
    """
    path = root
    for part in parts[:-1]:
        path = path / part
        if path.is_symlink():
            raise UnsafeName(
                f"{shown(path)} is a link; downloads are not written through links",
                hint="Replace the link by a folder, or choose another models folder.",
                details={"name": str(path)},
            )
        if path.exists() and not path.is_dir():
            raise StorageFailed(f"{shown(path)} is a file where a folder is needed", details={"path": str(path)})
    target = path / parts[-1]
    if not target.parent.resolve().is_relative_to(root.resolve()):
        raise UnsafeName(f"{shown(target)} lies outside the models folder", details={"name": str(target)})
    return target
