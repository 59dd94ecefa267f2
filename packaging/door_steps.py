"""What every step of the door shares: where things are, how to run a program, how to fail in one line."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HEARTBEAT_S = 15.0
"""Seconds between two signs of life of a step that says nothing itself."""


MAX_LOG_BYTES = 16 << 20
"""A log longer than this is begun anew."""


class StepError(Exception):
    """A step could not be done; the text is one line that says what to do next."""


def say(text: str) -> None:
    """Print one line about what is being done. Goes to stderr, so that `run` leaves stdout to the program."""
    print(f"dev.py: {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Place:
    """Where a checkout keeps what the door makes.

    Attributes:
        root: top of the checkout.
        cache: folder of this user that outlives checkouts (built wheels, the starter model, logs).
    """

    root: Path
    cache: Path

    @property
    def venv(self) -> Path:
        return self.root / ".venv"

    @property
    def bin(self) -> Path:
        return self.venv / ("Scripts" if os.name == "nt" else "bin")

    @property
    def python(self) -> Path:
        return self.bin / ("python.exe" if os.name == "nt" else "python")

    def script(self, name: str) -> Path:
        """Path of a console script in the environment."""
        return self.bin / (f"{name}.exe" if os.name == "nt" else name)

    @property
    def constraints(self) -> Path:
        return self.root / "packaging" / "constraints.txt"

    @property
    def stamp(self) -> Path:
        return self.venv / "inglenook-dev.json"

    @property
    def starter(self) -> Path:
        return self.venv / "share" / "inglenook" / "starter" / "SmolLM2-135M-Instruct.Q4_1.gguf"

    @property
    def log(self) -> Path:
        """File that gets the output of every program a step runs; in the temporary folder if the cache is read-only."""
        folder = self.cache / "logs"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK):
                return folder / f"{self.root.name}.log"
        except OSError:
            pass
        return Path(tempfile.gettempdir()) / f"inglenook-dev-{self.root.name}.log"


def cache_folder(environ: Mapping[str, str], platform: str = sys.platform) -> Path:
    """This user's folder for what may be made again: `INGLENOOK_DEV_CACHE`, else the platform's cache folder."""
    if environ.get("INGLENOOK_DEV_CACHE"):
        return Path(environ["INGLENOOK_DEV_CACHE"]).expanduser()
    if platform == "win32" and environ.get("LOCALAPPDATA"):
        return Path(environ["LOCALAPPDATA"]) / "inglenook-dev"
    if platform == "darwin":
        return Path.home() / "Library" / "Caches" / "inglenook-dev"
    base = environ.get("XDG_CACHE_HOME") or ""
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "inglenook-dev"


def find_place(environ: Mapping[str, str] = os.environ) -> Place:
    """The place of the checkout that this file belongs to."""
    return Place(root=Path(__file__).resolve().parent.parent, cache=cache_folder(environ))


KNOWN_CAUSES = (
    ("No space left on device", "the disk is full: free some space and run this again"),
    ("There is not enough space on the disk", "the disk is full: free some space and run this again"),
    ("Permission denied", "a file or folder may not be written: make it yours (see the log for its name)"),
    ("Read-only file system", "the disk is read-only: put the checkout on one that can be written"),
    ("getaddrinfo failed", "no network: connect this computer and run this again"),
    ("name resolution", "no network: connect this computer and run this again"),
    ("Name or service not known", "no network: connect this computer and run this again"),
    ("nodename nor servname", "no network: connect this computer and run this again"),
    ("NewConnectionError", "no network: connect this computer and run this again"),
    ("Network is unreachable", "no network: connect this computer and run this again"),
    ("Failed to establish a new connection", "no network: connect this computer and run this again"),
    ("ReadTimeoutError", "the network is too slow or was cut: run this again"),
    ("CERTIFICATE_VERIFY_FAILED", "the network's certificate is not trusted: set PIP_CERT to your proxy's certificate"),
    ("No CMAKE_CXX_COMPILER could be found", "no C++ compiler was found: install one and run this again"),
    ("Killed signal terminated", "memory ran out while compiling: set CMAKE_BUILD_PARALLEL_LEVEL=1 and run this again"),
    ("No matching distribution found", "the package index does not have a pinned package: check pip's index settings"),
)


def cause(output: str) -> str:
    """Put the reason of a failed program into words; empty if the output holds no known one."""
    for needle, words in KNOWN_CAUSES:
        if needle in output:
            return words
    return ""


def run_logged(
    place: Place,
    what: str,
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    advice: str = "",
    heartbeat_s: float = HEARTBEAT_S,
) -> str:
    """Run a program with its output in the log and a line of progress every `heartbeat_s` seconds.

    Returns its output. Raises StepError with `what`, the cause in words (else `advice`) and the log's path.
    """
    log = place.log
    words = [str(part) for part in command]
    started = time.monotonic()
    try:
        with log.open("ab") as out:
            if out.tell() > MAX_LOG_BYTES:
                out.truncate(0)
            out.write(f"\n$ {' '.join(words)}\n".encode())
            out.flush()
            start = log.stat().st_size
            child = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=place.root, env=dict(env or os.environ)
            )
            with _heartbeat(what, started, heartbeat_s):
                code = _wait(child)
    except OSError as error:
        raise StepError(f"{what} failed: {words[0]} could not be started ({error.strerror or error})") from None
    with log.open("rb") as text:
        text.seek(start)
        output = text.read().decode("utf-8", "replace")
    if code:
        reason = cause(output) or advice or "see the log"
        raise StepError(f"{what} failed: {reason} (log: {log})")
    return output


def _wait(child: subprocess.Popen[bytes]) -> int:
    try:
        return child.wait()
    except BaseException:
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(5)
        raise


@contextlib.contextmanager
def _heartbeat(what: str, started: float, every_s: float) -> Iterator[None]:
    done = threading.Event()

    def beat() -> None:
        while not done.wait(every_s):
            minutes, seconds = divmod(int(time.monotonic() - started), 60)
            say(f"  ... {what}: {minutes}:{seconds:02d}")

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def write_atomic(path: Path, text: str) -> None:
    """Write a small file so that it is whole or not there; raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}.part")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)
