"""A child process with a thread at each of its pipes.

Threads, all of them daemons: *process* starts the child, waits for it and reports its end; *reader* hands its lines
on; *stderr* keeps its last native lines; *writer* feeds its input, so that a child that does not read never blocks
the caller.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue

from engine import log
from engine.worker.crumb_record import BlackBoxFile, LastSeen
from engine.worker.process import Process, read_lines, write_all

#: native log lines kept for a report
LOG_TAIL_LINES = 200
_MAX_STDERR_LINE = 64 * 1024
_MAX_TAIL_CHARS = 2_000
#: a child that closed its output but still runs is killed after this time
_CLOSED_OUTPUT_S = 2.0
#: patience with a pipe that brings nothing after its process has ended (another process may hold it open)
_DRAIN_S = 1.0

_log = log.get("worker")
_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


class Pipes:
    """Args:
    command, env: see `Process`.
    max_line_bytes: longer lines of the child are dropped, `on_line` gets None for each.
    on_line: called by the reader thread with each line.
    on_end: called once, by the process thread, with the return code or the reason why there is no process. All lines
        have been handed on by then.
    """

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        *,
        max_line_bytes: int,
        on_line: Callable[[bytes | None], None],
        on_end: Callable[[int | OSError], None],
    ) -> None:
        self._command = command
        self._env = env
        #: what it was at last, once it has ended
        self.last_seen: LastSeen | None = None
        self._max_line_bytes = max_line_bytes
        self._on_line = on_line
        self._on_end = on_end
        self._outbox: SimpleQueue[bytes | None] = SimpleQueue()
        self._closing = False
        self._killed = False
        self._process: Process | None = None
        self._spawned = threading.Event()  # or could not be
        self._tail: deque[str] = deque(maxlen=LOG_TAIL_LINES)
        self._tail_lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._n_lines = 0
        self._in_line = False
        #: the process is gone
        self.exited = threading.Event()
        #: why we killed it, in words, empty if we did not
        self.why = ""

    def start(self) -> None:
        self._thread("process", self._run)

    @property
    def pid(self) -> int | None:
        """Process id while the process lives."""
        return self._process.pid if self._process is not None and self.alive else None

    @property
    def alive(self) -> bool:
        return self._process is not None and not self.exited.is_set()

    @property
    def tail(self) -> list[str]:
        """The last native log lines, oldest first."""
        with self._tail_lock:
            return list(self._tail)

    def keep(self, text: str, level: str = "info") -> None:
        """Take a native log line into the tail and the log."""
        with self._tail_lock:
            self._tail.append(text[:_MAX_TAIL_CHARS])
        _log.log(_LEVELS.get(level, 20), "%s", text[:_MAX_TAIL_CHARS])

    def in_own_thread(self) -> bool:
        return threading.current_thread() in self._threads

    def put(self, line: bytes) -> None:
        """Queue a line for the child's input. Returns at once."""
        self._outbox.put(line)

    def close_input(self) -> None:
        """Close the child's input; lines still queued are dropped."""
        self._closing = True
        self._outbox.put(None)

    def kill(self, why: str = "") -> None:
        """End the process at once."""
        if self.exited.is_set():
            return
        self._killed = True
        self.why = self.why or why
        if why:
            _log.warning("killing the worker: it %s", why)
        if self._process is not None:
            self._process.kill()

    def end(self, timeout_s: float, finished: threading.Event) -> None:
        """Close the input, wait, terminate, kill; then wait until `finished`. Takes at most `timeout_s` seconds.

        In one of our own threads it returns at once and the work goes on in another.
        """
        self.close_input()
        if self.in_own_thread():
            threading.Thread(target=self._end, args=(timeout_s, finished), name="worker-end", daemon=True).start()
        else:
            self._end(timeout_s, finished)

    def _end(self, timeout_s: float, finished: threading.Event) -> None:
        deadline = time.monotonic() + timeout_s
        self._spawned.wait(timeout_s)
        if self._process is not None and not self.exited.wait(timeout_s * 0.6):
            _log.warning("the worker did not end when its input closed; terminating it")
            self._process.terminate()
            if not self.exited.wait(timeout_s * 0.15):
                self._process.kill()
        if not finished.wait(max(0.0, deadline - time.monotonic())):
            _log.error("the worker could not be ended within %g s", timeout_s)

    # ------------------------------------------------------------------ threads

    def _thread(self, name: str, target: Callable[..., None], *args: object) -> threading.Thread:
        thread = threading.Thread(target=target, args=args, name=f"worker-{name}", daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def _run(self) -> None:
        """The process thread. It starts the child, too: see `Process` for why the same thread must."""
        box = BlackBoxFile()
        try:
            self._process = process = Process(self._command, {**self._env, **box.env})
        except OSError as error:
            box.close()
            self.exited.set()
            self._spawned.set()
            self._on_end(error)
            return
        self._spawned.set()
        if self._killed:  # asked for before there was a process
            process.kill()
        _log.debug("started process %d", process.pid)
        stderr = self._thread("stderr", self._read_stderr, process)
        reader = self._thread("reader", self._read, process)
        self._thread("writer", self._write, process)
        code = process.wait()
        self.last_seen = box.last_seen()
        box.close()
        self.exited.set()
        self.close_input()
        stderr.join(_DRAIN_S / 2)
        while reader.is_alive():
            seen = self._n_lines
            reader.join(_DRAIN_S)
            if seen == self._n_lines and not self._in_line:
                break
        self._on_end(code)

    def _write(self, process: Process) -> None:
        try:
            while (line := self._outbox.get()) is not None and not self._closing:
                write_all(process.stdin, line)
        except (OSError, ValueError):
            pass  # the process is going; its thread reports it
        finally:
            try:
                process.stdin.close()
            except OSError:
                pass

    def _read_stderr(self, process: Process) -> None:
        with process.stderr as stream:
            for line in read_lines(stream, _MAX_STDERR_LINE):
                text = "(a line that is too long)" if line is None else line.decode("utf-8", "replace").rstrip()
                if text:
                    self.keep(text)

    def _read(self, process: Process) -> None:
        with process.stdout as stream:
            for line in read_lines(stream, self._max_line_bytes):
                self._n_lines += 1
                self._in_line = True
                self._on_line(line)
                self._in_line = False
        if not self.exited.wait(_CLOSED_OUTPUT_S):
            self.kill("closed its output")
