"""Starting a worker process and reading its pipes; how a worker is tied to the life of its parent."""

from __future__ import annotations

import ctypes
import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, cast

from engine.frozen import is_frozen as is_frozen
from engine.worker import windows_job

#: folder that holds the `engine` package
ROOT = Path(__file__).resolve().parents[2]
#: a packaged program's other half on Windows: it has a console, and so standard streams that work
CONSOLE_PROGRAM = "inglenook-cli.exe"
#: for `subprocess` on Windows: a program with a console shows none when the window starts it
NO_WINDOW = 0x08000000 if sys.platform == "win32" else 0  # CREATE_NO_WINDOW
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def own_program() -> str:
    """What starts a process of our own without a window: this interpreter, or a packaged program itself."""
    if is_frozen() and sys.platform == "win32":
        console = Path(sys.executable).with_name(CONSOLE_PROGRAM)
        if console.is_file():
            return str(console)
    return sys.executable


def default_command() -> list[str]:
    """The command of a real worker: this interpreter, or this program itself where it is frozen."""
    return [own_program(), "--worker"] if is_frozen() else [sys.executable, "-m", "engine.worker"]


def child_env(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Environment of a worker: ours, `extra` over it, and what finds `engine` from any working directory.

    `-m` would put the working directory first on the path, and a folder named "engine" in it would be run in place
    of ours; PYTHONSAFEPATH switches that off. The working directory itself stays, so relative paths keep their meaning.

    GLIBC_TUNABLES: large blocks of memory come in huge pages where the system allows it (glibc 2.35, `madvise`): the
    KV cache and the compute buffers are then read with fewer misses of the TLB (measured: steps 1 to 2 % shorter). It
    is read when a process starts, so the worker cannot set it for itself.
    """
    env = dict(os.environ)
    if sys.platform == "linux":
        env.setdefault("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")
    env.update(extra or {})
    if not is_frozen():
        inherited = env.get("PYTHONPATH", "")
        env["PYTHONPATH"] = f"{ROOT}{os.pathsep}{inherited}" if inherited else str(ROOT)
        env["PYTHONSAFEPATH"] = "1"
    env["PYTHONUTF8"] = "1"
    return env


class Process:
    """A child with three pipes. On Windows it is put into a Job Object and shows no console window.

    It gets its own session (POSIX) or process group (Windows): Ctrl+C in a terminal reaches the parent alone, which
    then decides what becomes of the worker.

    Linux sends the parent-death signal when the *thread* that started the child ends. So the thread that makes this
    object must live as long as the child.

    Raises:
        OSError: the command cannot be started.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        flags = 0
        if sys.platform == "win32":
            flags = NO_WINDOW | subprocess.CREATE_NEW_PROCESS_GROUP
        self._popen = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=child_env(env),
            start_new_session=os.name == "posix",
            creationflags=flags,
        )
        self._job = windows_job.tie(int(getattr(self._popen, "_handle", 0)))
        self.pid = self._popen.pid
        self.stdin = cast(io.RawIOBase, self._popen.stdin)
        self.stdout = io.BufferedReader(cast(io.RawIOBase, self._popen.stdout), 1 << 16)
        self.stderr = io.BufferedReader(cast(io.RawIOBase, self._popen.stderr), 1 << 13)

    def wait(self) -> int:
        """Wait for the end and take the return code (no zombie stays)."""
        code = self._popen.wait()
        if self._job is not None:
            windows_job.close(self._job)
            self._job = None
        return code

    def terminate(self) -> None:
        try:
            self._popen.terminate()
        except OSError:
            pass

    def kill(self) -> None:
        try:
            self._popen.kill()
        except OSError:
            pass


def read_lines(stream: IO[bytes], limit: int) -> Iterator[bytes | None]:
    """Lines of a pipe until its end, the last one possibly without its line break.

    A line of more than `limit` bytes is read away in pieces, never held whole, and None is yielded for it.
    """
    try:
        while line := stream.readline(limit + 1):
            if len(line) <= limit or line.endswith(b"\n"):
                yield line
                continue
            while line and not line.endswith(b"\n"):
                line = stream.readline(1 << 16)
            yield None
    except (OSError, ValueError):  # closed under us: the same as its end
        return


def write_all(stream: io.RawIOBase, data: bytes) -> None:
    """Write all of `data` to an unbuffered pipe. Raises: OSError when the other end is gone."""
    view = memoryview(data)
    while view:
        view = view[stream.write(view) or 0 :]


def tie_to_parent() -> None:
    """In the child, on Linux: be killed when the parent ends. The end of standard input says it everywhere else.

    SIGKILL, because a worker stuck in a driver does not react to less and would keep the GPU's memory.
    """
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
