"""Put the packages of all systems together to one release; part of the workflow that makes it.

    gather_release.py PARTS RELEASE --tag v1.2.3 --page ADDRESS

It looks at the sums of every part, puts all files into one folder, and writes there the sums of all and the file that
tells the program of a new version.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import door_env
import door_frozen
import door_linux_share as share
from door_package import SUMS
from door_steps import StepError, find_place, say, write_atomic

BILL = "inglenook.cdx.json"
FEED = "latest.json"
PREFIX = "packages-"


def main(argv: Sequence[str]) -> int:
    """Run with these words; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", type=Path, help="folder with a folder for each system")
    parser.add_argument("release", type=Path, help="folder that is made")
    parser.add_argument("--tag", required=True)
    parser.add_argument("--page", required=True)
    options = parser.parse_args(list(argv))
    try:
        root = find_place().root
        made = gather(options.parts, options.release, share.version(root))
        check_tag(options.tag, share.version(root))
        write_feed(options.release / FEED, share.version(root), options.page, door_frozen.source_date(root))
        write_sums(options.release)
    except StepError as error:
        say(str(error))
        return 1
    say(f"{len(made)} files of {share.version(root)} are in {options.release}")
    return 0


def check_tag(tag: str, version: str) -> None:
    """A tag that names another version than the program says would be a release nobody can tell apart."""
    if tag != f"v{version}":
        raise StepError(f"the tag {tag!r} is not that of this version, v{version}: engine/__init__.py says it")


def gather(parts: Path, release: Path, version: str) -> list[Path]:
    """Copy the files of every part into one folder, after a look at their sums; the bills get names of their own."""
    release.mkdir(parents=True, exist_ok=True)
    made: list[Path] = []
    folders = sorted(path for path in parts.iterdir() if path.is_dir() and path.name.startswith(PREFIX))
    if not folders:
        raise StepError(f"{parts} holds no packages")
    for folder in folders:
        check_sums(folder)
        system = folder.name.removeprefix(PREFIX)
        for path in sorted(folder.iterdir()):
            if path.name == SUMS or path.is_dir():
                continue
            name = f"inglenook-{version}-{system}.cdx.json" if path.name == BILL else path.name
            if (release / name).exists():
                raise StepError(f"two systems have made a {name}")
            made.append(Path(shutil.copyfile(path, release / name)))
    return made


def check_sums(folder: Path) -> None:
    """See that the files are those that were made, and that none came along. The add-on's folder has no list."""
    listed = folder / SUMS
    if not listed.is_file():
        return
    said = {}
    for line in listed.read_text("utf-8").splitlines():
        match = re.fullmatch(r"([0-9a-f]{64})  ([^/\\]+)", line)
        if match is None:
            raise StepError(f"{listed} holds a line that is none: {line[:80]!r}")
        said[match[2]] = match[1]
    found = {path.name for path in folder.iterdir() if path.name != SUMS}
    if found != said.keys():
        odd = ", ".join(sorted(found ^ said.keys()))
        raise StepError(f"{folder.name}: the files and their sums do not agree ({odd})")
    for name, digest in said.items():
        if door_env.sha256(folder / name) != digest:
            raise StepError(f"{folder.name}: {name} is not the file that was made")


def write_feed(path: Path, version: str, page: str, date: int) -> None:
    """Write what tells the program of this version (engine/updates.py)."""
    if re.fullmatch(r"https://[\w./~%-]+", page) is None:
        raise StepError(f"{page!r} is no https address of a page")
    day = time.strftime("%Y-%m-%d", time.gmtime(date))
    write_atomic(path, json.dumps({"version": version, "page": page, "released": day}) + "\n")


def write_sums(release: Path) -> None:
    """Write the SHA-256 of all files of the release, as `sha256sum -c` reads it."""
    files = sorted(path for path in release.iterdir() if path.name != SUMS)
    write_atomic(release / SUMS, "".join(f"{door_env.sha256(path)}  {path.name}\n" for path in files))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
