#!/usr/bin/env python3
"""Install the Debian package into a fresh minimal system and use it there, as root on a machine with debootstrap.

    packaging/linux/try_in_root.py dist/inglenook_0.1.0_amd64.deb --suite bookworm --suite trixie

For each suite, in a layer over a root that debootstrap made (kept in --roots, so that the second run is quick):

1. `apt-get install ./PACKAGE` with nothing recommended, then the files of the package are compared with its list;
2. `inglenook --self-test` as an ordinary user: no network at all, no environment, a home with spaces and letters that
   are not ASCII, the program's folder mounted read-only;
3. the window opens on an X server outside of the root (so that none of its libraries can help), a question is typed,
   the answer is read from the profile; a picture is taken; the window's class is compared with the menu entry;
4. a file and a link are handed to the running window by second starts;
5. the menu, the file type and the links are known to a desktop's lists, and no more when it is gone;
6. with --older PACKAGE: that one is installed first and upgraded, and the profile must be the same afterwards;
7. with --archive ARCHIVE: it is installed for the user alone, where no library of a desktop is, tested and removed;
8. with --addon PACKAGE: that one is installed too, for NVIDIA GPUs; where there is none, the program must say so and go
   on with the processor;
9. `apt-get purge` and `autoremove`: nothing may be left but the profile.

Needs: debootstrap, Xvfb, xdotool, xprop, ImageMagick's import, overlayfs. Ends with 0 if all of it is so. Figures go to
--figures as JSON lines.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from fresh_root import HOME, USER, Failed, as_user, base_root, home_listing, in_root, layer, listing, run, say

QUESTION = "Say hello."
DESKTOP = ("desktop-file-utils", "shared-mime-info", "hicolor-icon-theme", "xdg-utils", "libglib2.0-bin")
"""What a desktop has installed: these keep the lists of menu entries and file types."""


# ------------------------------------------------------------------ the steps


def install(root: Path, package: Path, called: str = "inglenook") -> None:
    shutil.copy(package, root / "tmp")
    name = f"/tmp/{package.name}"
    in_root(root, "apt-get", "install", "-y", "--no-install-recommends", name, timeout=1800)
    wrong = in_root(root, "dpkg", "--verify", called, check=False).strip()
    if wrong:
        raise Failed(f"files differ from the package:\n{wrong}")


def add_user(root: Path) -> None:
    home = root / HOME.lstrip("/")
    home.mkdir(parents=True, exist_ok=True)
    os.chown(home, 1000, 1000)
    with (root / "etc/passwd").open("a") as file:
        file.write(f"{USER}:x:1000:1000::{HOME}:/bin/sh\n")


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    run(["mount", "--bind", folder, folder])
    try:
        run(["mount", "-o", "remount,bind,ro", folder])
        with contextlib.suppress(OSError):
            (folder / "x").touch()
            raise Failed(f"{folder} can be written to")
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


def missing_libraries(root: Path) -> list[str]:
    """What ldd calls "not found" in the program's folder, seen from the root."""
    script = r"""
export LD_LIBRARY_PATH=/usr/lib/inglenook/_internal
find /usr/lib/inglenook -type f \( -name '*.so*' -o -name inglenook \) | while IFS= read -r file; do
    ldd "$file" 2>/dev/null | grep "not found" | sed "s|^|$file:|"
done"""
    internal = root / "usr/lib/inglenook/_internal"
    extra = [
        f"/usr/lib/inglenook/_internal/{path}"
        for path in ("PySide6/Qt/lib", "PySide6", "shiboken6", "llama_cpp/lib", "numpy.libs")
        if (internal / path).is_dir()
    ]
    script = script.replace("_internal\n", "_internal:" + ":".join(extra) + "\n", 1)
    return [line for line in in_root(root, "sh", "-c", script, check=False).splitlines() if line.strip()]


def use_add_on(root: Path, package: Path) -> None:
    """With the add-on for NVIDIA GPUs the program says why it is not used here, and answers all the same."""
    install(root, package, "inglenook-cuda")
    if missing := [line for line in missing_libraries(root) if "libcuda.so" not in line]:
        raise Failed("libraries not found:\n" + "\n".join(missing))
    for words in (("doctor",), ("--self-test",)):
        text = run(as_user(root, "/usr/bin/inglenook", *words), timeout=600)
        said = [line.strip() for line in text.splitlines() if "CUDA add-on" in line]
        print("\n".join(said), flush=True)
        if not any("no NVIDIA driver" in line for line in said):
            raise Failed(f"inglenook {words[0]} does not say why the add-on is not used:\n{text}")


def self_test(root: Path) -> tuple[str, float]:
    started = time.monotonic()
    text = run(as_user(root, "/usr/bin/inglenook", "--self-test"), timeout=600)
    return text, time.monotonic() - started


@contextlib.contextmanager
def screen(root: Path) -> Iterator[None]:
    """An X server outside of the root, its socket inside; DISPLAY names it."""
    ours, theirs = os.pipe()
    command = ["Xvfb", "-displayfd", str(theirs), "-screen", "0", "1280x860x24", "-nolisten", "tcp", "-ac"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=(theirs,))
    os.close(theirs)
    inside = root / "tmp/.X11-unix"
    inside.mkdir(exist_ok=True)
    try:
        with os.fdopen(ours) as pipe:
            os.environ["DISPLAY"] = f":{int(pipe.readline())}"
        run(["mount", "--bind", "/tmp/.X11-unix", inside])
        tool("xdotool", "getdisplaygeometry")
        yield
        if server.poll() is not None:
            raise Failed("Xvfb ended in the middle")
    finally:
        subprocess.run(["umount", "-l", str(inside)], check=False, stderr=subprocess.DEVNULL)
        server.terminate()
        server.wait()


def tool(*words: str, check: bool = True) -> str:
    return run(words, check=check, timeout=60).strip()


def find_window(child: subprocess.Popen[bytes], seconds: float = 120) -> str:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if child.poll() is not None:
            text = child.stdout.read().decode("utf-8", "replace") if child.stdout else ""
            raise Failed(f"the window ended with {child.returncode}:\n{text[-3000:]}")
        found = tool("xdotool", "search", "--onlyvisible", "--class", "inglenook", check=False).split()
        if found and found[0].isdigit():
            return found[0]
        time.sleep(0.1)
    raise Failed("no window after two minutes")


def answers(root: Path) -> list[str]:
    """Finished answers in the profile."""
    found: list[str] = []
    for file in (root / HOME.lstrip("/")).rglob("*.db"):
        with (
            contextlib.suppress(sqlite3.Error),
            contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db,
        ):
            rows = db.execute("select * from messages where role = 'assistant'")
            names = [column[0] for column in rows.description]
            for row in rows:
                item = dict(zip(names, row, strict=True))
                if item.get("status") not in ("streaming", None):
                    found.append(str(item))
    return found


def picture(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    tool("import", "-window", "root", str(file))


def use_window(root: Path, shots: Path, name: str) -> dict[str, object]:
    """Open the window, ask, read the answer, hand over a file and a link."""
    started = time.monotonic()
    child = subprocess.Popen(
        as_user(root, "/usr/bin/inglenook", display=True), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        window = find_window(child)
        to_window = time.monotonic() - started
        time.sleep(8)
        kind = tool("xprop", "-id", window, "WM_CLASS", "_NET_WM_ICON")
        if '"inglenook"' not in kind.splitlines()[0] or "Icon (" not in kind:
            raise Failed(f"the window's class is not that of the menu entry, or it has no icon: {kind[:200]}")
        tool("xdotool", "windowfocus", window)
        tool("xdotool", "key", "ctrl+1")
        time.sleep(2)
        tool("xdotool", "type", "--delay", "60", QUESTION)
        time.sleep(1)
        tool("xdotool", "key", "Return")
        end = time.monotonic() + 180
        while not answers(root) and time.monotonic() < end:
            time.sleep(0.5)
        time.sleep(1.5)
        picture(shots / f"{name}-answer.png")
        if not answers(root):
            raise Failed(f"no answer after three minutes, see {shots / f'{name}-answer.png'}")
        link = "inglenook://models/tiny/Some-Model-GGUF?quant=Q4_K_M"
        run(as_user(root, "/usr/bin/inglenook", link, display=True), timeout=60)
        time.sleep(4)
        picture(shots / f"{name}-link.png")
        starter = next((root / "usr/lib/inglenook").rglob("*.gguf"))
        shutil.copy(starter, root / HOME.lstrip("/") / "дом модель.gguf")
        run(as_user(root, "/usr/bin/inglenook", f"{HOME}/дом модель.gguf", display=True), timeout=60)
        time.sleep(6)
        picture(shots / f"{name}-file.png")
    finally:
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)  # unshare, chroot, setpriv and env all have become the program
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(20)
        if child.poll() is None:
            child.kill()
    return {
        "to_window_s": round(to_window, 2),
        "window_class": kind.splitlines()[0],
        "exit_code": child.returncode,
        "answer": answers(root)[0][:400],
    }


def join_desktop(root: Path) -> None:
    """The menu and the file types of a desktop know the program as soon as it is installed."""
    in_root(root, "apt-get", "install", "-y", "--no-install-recommends", *DESKTOP)
    in_root(root, "dpkg", "--remove", "--force-depends", "inglenook")
    if found := _known(root):
        raise Failed(f"still known after it was removed: {found}")
    package = next((root / "tmp").glob("inglenook_*.deb"))
    in_root(root, "dpkg", "--install", f"/tmp/{package.name}")
    if len(found := _known(root)) != 3:
        raise Failed(f"a desktop does not know it: {found}")
    model = f"{HOME}/an inglenook of models without an ending"
    (root / model.lstrip("/")).write_bytes(b"GGUF\3\0\0\0")
    kind = run(as_user(root, "gio", "info", "-a", "standard::content-type", model)).split()[-1]
    handler = run(as_user(root, "xdg-mime", "query", "default", "x-scheme-handler/inglenook")).strip()
    opener = run(as_user(root, "xdg-mime", "query", "default", "application/x-gguf")).strip()
    if (kind, handler, opener) != ("application/x-gguf", "inglenook.desktop", "inglenook.desktop"):
        raise Failed(f"a GGUF file is {kind!r}, opened by {opener!r}; links by {handler!r}")
    (root / model.lstrip("/")).unlink()


def _known(root: Path) -> list[str]:
    """Lines of a desktop's lists that name the program."""
    lists = ("usr/share/applications/mimeinfo.cache", "usr/share/mime/globs2")
    texts = [(root / name).read_text() for name in lists if (root / name).exists()]
    return [line for text in texts for line in text.splitlines() if "inglenook" in line or "x-gguf" in line]


def remove(root: Path, before: set[str], profile: dict[str, int]) -> None:
    in_root(root, "apt-get", "purge", "-y", "inglenook*")
    after_purge = [path for path in listing(root) if "inglenook" in path]
    after_purge += _known(root)
    in_root(root, "apt-get", "autoremove", "--purge", "-y", *DESKTOP)
    left = sorted(listing(root) - before)
    if after_purge or left:
        raise Failed("left behind: " + ", ".join([*after_purge, *left][:20]))
    if lost := [name for name in profile if name not in home_listing(root)]:
        raise Failed(f"of the profile is gone: {lost}")


def try_suite(options: argparse.Namespace, suite: str) -> dict[str, object]:
    """All steps in one suite; gives the figures."""
    figures: dict[str, object] = {"suite": suite, "package": options.package.name}
    with layer(base_root(options.roots, suite), options.roots) as root:
        add_user(root)
        in_root(root, "apt-get", "update")
        before = listing(root)
        profile: dict[str, int] = {}
        if options.older:
            install(root, options.older)
            self_test(root)
            with screen(root):
                use_window(root, options.shots, f"{suite}-older")
            profile = home_listing(root)
            figures["older"] = options.older.name
        say(f"{suite}: installing")
        started = time.monotonic()
        install(root, options.package)
        figures["install_s"] = round(time.monotonic() - started, 1)
        figures["download_bytes"] = options.package.stat().st_size
        figures["installed_kib"] = int(in_root(root, "dpkg-query", "-W", "-f", "${Installed-Size}", "inglenook"))
        n_new = in_root(root, "sh", "-c", "dpkg-query -W | wc -l").strip()
        figures["packages_in_root"] = int(n_new)
        if options.older and (lost := [name for name in profile if home_listing(root).get(name) != profile[name]]):
            raise Failed(f"the upgrade changed the profile: {lost}")
        if missing := missing_libraries(root):
            raise Failed("libraries not found:\n" + "\n".join(missing))
        with read_only(root / "usr/lib/inglenook"):
            say(f"{suite}: self-test")
            text, seconds = self_test(root)
            print(text, flush=True)
            figures["self_test_s"] = round(seconds, 1)
            say(f"{suite}: the window")
            with screen(root):
                figures.update(use_window(root, options.shots, suite))
        if options.addon:
            say(f"{suite}: the add-on")
            use_add_on(root, options.addon)
            figures["addon"] = options.addon.name
        say(f"{suite}: menu and file types")
        join_desktop(root)
        profile = home_listing(root)
        say(f"{suite}: removing")
        remove(root, before, profile)
        figures["profile_files_kept"] = len(profile)
    return figures


def try_archive(options: argparse.Namespace, suite: str) -> dict[str, object]:
    """Install the archive for one user where not a single library of a desktop is; gives the figures."""
    with layer(base_root(options.roots, suite), options.roots) as root:
        add_user(root)
        before = listing(root)
        shutil.copy(options.archive, root / "tmp/archive.tar.gz")
        script = "cd /tmp && tar xf archive.tar.gz && sh inglenook-*/install.sh"
        say(f"{suite}: the archive")
        run(as_user(root, "sh", "-c", script))
        started = time.monotonic()
        text = run(as_user(root, f"{HOME}/.local/bin/inglenook", "--self-test"), timeout=600)
        seconds = time.monotonic() - started
        print(text, flush=True)
        run(as_user(root, "sh", f"{HOME}/.local/lib/inglenook/uninstall.sh"))
        left = sorted(name for name in home_listing(root) if name.startswith((".local/lib", ".local/bin")))
        left += sorted(path for path in listing(root) - before)
        if left := left + [name for name in home_listing(root) if name.endswith((".desktop", ".svg", ".png"))]:
            raise Failed(f"left behind: {left[:20]}")
    return {"suite": suite, "package": options.archive.name, "self_test_s": round(seconds, 1)}


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Install the package into fresh minimal roots and use it there.")
    parser.add_argument("package", type=Path)
    parser.add_argument("--older", type=Path, help="a package of an older version that is installed first")
    parser.add_argument("--archive", type=Path, help="the .tar.gz, to be tried for one user as well")
    parser.add_argument("--addon", type=Path, help="the package for NVIDIA GPUs, installed beside it")
    parser.add_argument("--suite", action="append", default=[], help="bookworm, trixie (default: both)")
    parser.add_argument("--roots", type=Path, default=Path("/var/tmp/inglenook-roots"))
    parser.add_argument("--shots", type=Path, default=Path("build/linux/shots"))
    parser.add_argument("--figures", type=Path, default=Path("build/linux/try_in_root.jsonl"))
    options = parser.parse_args(argv)
    if os.geteuid():
        print("try_in_root.py: only root may mount and chroot", file=sys.stderr)
        return 2
    failed = 0
    for suite in options.suite or ["bookworm", "trixie"]:
        try:
            made = [try_archive(options, suite)] if options.archive else []
            made.append(try_suite(options, suite))
        except (Failed, subprocess.TimeoutExpired) as error:
            say(f"{suite}: FAILED: {error}")
            failed = 1
            continue
        options.figures.parent.mkdir(parents=True, exist_ok=True)
        with options.figures.open("a", encoding="utf-8") as file:
            for figures in made:
                say(f"{suite}: passed: {json.dumps(figures, ensure_ascii=False)}")
                file.write(json.dumps(figures, ensure_ascii=False) + "\n")
    return failed


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
