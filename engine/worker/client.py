"""The parent's side of a worker process: greeting, requests and their ends, events, death.

No request stays without an end: whatever happens to the process, each gets its answer or an `Error`.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

from engine import events, log
from engine.errors import (
    BackendMissing,
    Busy,
    Cancelled,
    EngineError,
    InvalidRequest,
    WorkerDied,
    WorkerMismatch,
)
from engine.message import ErrorInfo, error_from
from engine.worker import exit_words, protocol
from engine.worker.pipes import Pipes
from engine.worker.process import default_command
from engine.worker.tracking import OpenRequests, for_wire, has_answer, summary

__all__ = ["STOP_DEADLINE_S", "WorkerClient", "default_command", "error_from"]

#: a worker that has not ended a request this long after Stop is ended itself
STOP_DEADLINE_S = 5.0
_log = log.get("worker")


def _info(error: EngineError) -> ErrorInfo:
    return ErrorInfo(code=error.code, message=error.message, hint=error.hint, details=error.details)


def _start_failure(info: ErrorInfo, code: int, expected: bool) -> EngineError:
    if expected:
        return Cancelled("The worker was stopped before it started")
    if exit_words.describe(code).illegal_instruction:
        return BackendMissing(info.message, hint=info.hint, details=info.details)
    return error_from(info)


class _Waiter:
    """One blocked `request()`."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.event: events.Event | None = None

    def end(self, event: events.Event) -> None:
        self.event = event
        self.ended.set()


class WorkerClient:
    """A worker process and the conversation with it. One client is one process; a new worker needs a new client.

    All methods may be called from any thread, also from inside `on_event` (there, `stop` does not wait and `request`
    is refused).

    Args:
        on_event: called with every event, one at a time and in order, from threads of the client. `Hello` is the first,
            `WorkerExited` the last. If `start` raises, it is never called. It should return quickly; if it raises, that
            is logged and the stream goes on.
        command: the process to run; None: a real worker (`default_command`).
        env: variables added to this process's own.
    """

    def __init__(
        self,
        on_event: Callable[[events.Event], None],
        *,
        command: Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._on_event = on_event
        self._pipes = Pipes(
            list(command) if command is not None else default_command(),
            dict(env or {}),
            max_line_bytes=protocol.MAX_LINE_BYTES,
            on_line=self._take_line,
            on_end=self._finish,
        )
        self._ids = itertools.count(1)
        self._lock = threading.Lock()  # guards what follows
        self._phase: Literal["new", "starting", "running", "failed", "ended"] = "new"
        self._open = OpenRequests()
        self._waiters: dict[str, _Waiter] = {}
        self._deadlines: dict[str, threading.Timer] = {}
        self._stopping = False
        self._failure: EngineError | None = None  # what start() raises
        self._end: ErrorInfo | None = None  # how it died, for late calls

        self._deliver_lock = threading.Lock()  # one event at a time
        self._hello: events.Hello | None = None
        self._greeted = threading.Event()  # Hello accepted, or start failed
        self._finished = threading.Event()  # the end has been reported

    # ------------------------------------------------------------------ state

    @property
    def pid(self) -> int | None:
        """Process id while the process lives."""
        return self._pipes.pid

    @property
    def alive(self) -> bool:
        return self._pipes.alive

    @property
    def log_tail(self) -> list[str]:
        """The last native log lines, oldest first."""
        return self._pipes.tail

    @property
    def doing(self) -> str:
        """What the worker is at, in words; empty when idle."""
        with self._lock:
            return self._open.doing

    @property
    def hello(self) -> events.Hello | None:
        return self._hello

    def new_id(self) -> str:
        return str(next(self._ids))

    # ------------------------------------------------------------------ start

    def start(self, timeout_s: float = 30.0) -> events.Hello:
        """Start the process and wait for its greeting.

        Raises:
            WorkerMismatch: it speaks another protocol version.
            BackendMissing: it says that llama.cpp cannot be loaded, or died of an illegal instruction.
            WorkerDied: it could not be started, ended, or did not greet within `timeout_s` seconds.
            Cancelled: `stop` was called meanwhile.
        """
        with self._lock:
            if self._phase != "new":
                raise RuntimeError("a client starts only once")
            if self._stopping:
                raise Cancelled("The worker was stopped before it started")
            self._phase = "starting"
        self._pipes.start()
        if not self._greeted.wait(timeout_s):
            message = f"The worker did not start within {timeout_s:g} s"
            self._fail(WorkerDied(message, details={"log": self.log_tail[-exit_words.REPORT_LINES :]}))
        with self._lock:
            failure = self._failure
        if failure is not None:
            self._pipes.kill()
            self._finished.wait(2.0)
            raise failure
        assert self._hello is not None
        return self._hello

    def _fail(self, error: EngineError) -> None:
        """End the start with an error, unless it has ended already."""
        with self._lock:
            if self._phase != "starting":
                return
            self._phase = "failed"
            self._failure = error
        _log.warning("start failed: %s", error.message)
        self._greeted.set()

    # ------------------------------------------------------------------ sending

    def send(self, request: protocol.Request) -> None:
        """Queue a request. Returns at once.

        Raises:
            WorkerDied: there is no process, or it is being stopped.
            InvalidRequest: the request is longer than a line may be, or holds half a character (a lone surrogate).
            ValueError: a request of the same id is open.
        """
        try:
            line = protocol.encode(for_wire(request))
        except UnicodeEncodeError as error:
            raise InvalidRequest("The text or path holds characters that are not valid Unicode") from error
        if len(line) > protocol.MAX_LINE_BYTES:
            raise InvalidRequest("The text is too long to be sent to the model", details={"bytes": len(line)})
        with self._lock:
            if self._end is not None:
                raise error_from(self._end)
            if self._phase != "running" or self._stopping:
                raise WorkerDied("The worker is not running")
            self._open.add(request)
            self._pipes.put(line)
        _log.debug("-> %s", summary(request))

    def request(self, request: protocol.Request, timeout_s: float) -> events.Event:
        """Send a request and wait for the event that ends it; `on_event` has seen that event by then.

        Raises:
            EngineError: of the class named by the `Error` event, `WorkerDied` if the process ended.
            Busy: no answer within `timeout_s`; the request stays open and its answer still goes to `on_event`.
        """
        if self._pipes.in_own_thread():
            raise RuntimeError("request() would wait for the thread it is called from; use send()")
        if not has_answer(request):
            raise ValueError(f"nothing answers {type(request).__name__}")
        waiter = _Waiter()
        with self._lock:
            self._waiters.setdefault(request.id, waiter)
        try:
            self.send(request)
            if not waiter.ended.wait(timeout_s):
                raise Busy(f"The worker did not answer within {timeout_s:g} s", details={"doing": self.doing})
        finally:
            with self._lock:
                if self._waiters.get(request.id) is waiter:
                    del self._waiters[request.id]
        event = waiter.event
        assert event is not None
        if isinstance(event, events.Error):
            raise error_from(event.error)
        return event

    def ping(self, timeout_s: float = 5.0) -> float | None:
        """Seconds to the answer, None if there was none in time: the worker hangs (its caller decides what follows).

        Raises:
            WorkerDied: there is no process.
        """
        start = time.monotonic()
        try:
            self.request(protocol.Ping(id=self.new_id()), timeout_s)
        except Busy:
            return None
        return time.monotonic() - start

    def stop_request(self, target_id: str, deadline_s: float = STOP_DEADLINE_S) -> None:
        """Stop a request, and end the worker if the request has not ended within `deadline_s` seconds.

        So every request ends. Asking again sends Stop again and leaves the first deadline. Returns at once.
        """
        with self._lock:
            if target_id not in self._open:
                return
            if target_id not in self._deadlines:
                timer = threading.Timer(deadline_s, self._stop_overdue, (target_id, deadline_s))
                timer.daemon = True
                self._deadlines[target_id] = timer
                timer.start()
        try:
            self.send(protocol.Stop(id=self.new_id(), target=target_id))
        except WorkerDied:
            pass  # then the request ends by that

    def _stop_overdue(self, target_id: str, deadline_s: float) -> None:
        with self._lock:
            overdue = target_id in self._open
        if overdue:
            self.kill(f"did not react to Stop within {deadline_s:g} s")

    # ------------------------------------------------------------------ the end

    def kill(self, why: str = "did not answer") -> None:
        """End the process at once. It is reported as a death: "The worker {why} while ... and was ended"."""
        self._pipes.kill(why)

    def stop(self, timeout_s: float = 3.0) -> None:
        """End the process: close its input, wait, terminate, kill. Takes at most `timeout_s` seconds; idempotent.

        Open requests end with an `Error` of code "cancelled", then comes `WorkerExited(expected=True)`. If that could
        not be delivered in time (a process stuck in the kernel), it comes later.
        """
        with self._lock:
            if not self._pipes.exited.is_set():
                self._stopping = True
            if self._phase == "new":
                return
        self._pipes.end(timeout_s, self._finished)

    # ------------------------------------------------------------------ what comes from the process

    def _take_line(self, line: bytes | None) -> None:
        if line is None:
            _log.warning("dropped a line of more than %d bytes", protocol.MAX_LINE_BYTES)
            return
        try:
            event = protocol.decode_event(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            if self._phase != "starting" or not self._greet_stranger(line):
                self._drop(line, error)
            return
        if self._phase == "starting":
            self._greet(event)
        else:
            self._deliver(event)

    def _drop(self, line: bytes, error: Exception) -> None:
        # a damaged record may hold words of an answer, so only its size is logged; native prints are no JSON objects
        if line.lstrip().startswith(b"{"):
            _log.warning("dropped an unreadable record (%s, %s)", log.sized(line), type(error).__name__)
        elif text := line.decode("utf-8", "replace").strip():
            self._pipes.keep(text)

    def _greet(self, event: events.WorkerEvent) -> None:
        """Take the first events of a worker, up to its `Hello`."""
        if isinstance(event, events.Log):
            self._pipes.keep(event.text, event.level)
        elif isinstance(event, events.Error):
            self._fail(error_from(event.error))
        elif not isinstance(event, events.Hello):
            _log.warning("dropped a %s before hello", type(event).__name__)
        elif event.protocol != protocol.PROTOCOL_VERSION:
            self._mismatch(event.protocol)
        else:
            with self._lock:
                if self._phase != "starting":
                    return
                self._phase = "running"
                self._hello = event
            self._deliver(event)
            self._greeted.set()

    def _greet_stranger(self, line: bytes) -> bool:
        """True if the line is a `hello` of another protocol version, which need not have our fields."""
        try:
            record = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        if not isinstance(record, dict) or record.get("type") != "hello":
            return False
        self._mismatch(record.get("protocol"))
        return True

    def _mismatch(self, theirs: object) -> None:
        ours = protocol.PROTOCOL_VERSION
        message = f"The worker speaks protocol version {theirs!r}, this program speaks {ours}"
        hint = "Two versions of Inglenook are mixed. Install it again."
        self._fail(WorkerMismatch(message, hint=hint, details={"ours": ours, "theirs": theirs}))

    def _deliver(self, event: events.Event) -> None:
        """Hand an event on, and wake who waits for it. Nothing comes after the end."""
        if isinstance(event, events.Log):
            self._pipes.keep(event.text, event.level)
        with self._deliver_lock:
            with self._lock:
                if self._phase != "running":
                    return
                waiter = timer = None
                if self._open.see(event):
                    waiter = self._waiters.pop(event.request_id, None)
                    timer = self._deadlines.pop(event.request_id, None)
            if timer is not None:
                timer.cancel()
            self._call(event)
        if waiter is not None:
            waiter.end(event)

    def _call(self, event: events.Event) -> None:
        try:
            self._on_event(event)
        except Exception:
            _log.exception("a reader of worker events raised on %s", type(event).__name__)

    def _finish(self, result: int | OSError) -> None:
        """Report the end of the process: an `Error` for each open request, then `WorkerExited`."""
        if isinstance(result, OSError):
            words = result.strerror or type(result).__name__
            self._fail(WorkerDied(f"The worker could not be started: {words}", details={"error": str(result)}))
            self._finished.set()
            return
        with self._lock:
            expected = self._stopping
            doing, pipes = self._open.doing, self._pipes
            info = exit_words.died(result, doing=doing, log=pipes.tail, why=pipes.why, last=pipes.last_seen)
            starting = self._phase == "starting"
            self._end = info
        if starting:
            self._fail(_start_failure(info, result, expected))
        if expected:
            _log.log(20 if result == 0 else 30, "the worker ended as asked (exit code %d)", result)
            ending = _info(Cancelled("The worker was stopped"))
        else:
            _log.error("%s", info.message)
            ending = info
        for request_id in tuple(self._open):  # send() adds none since _end is set
            self._deliver(events.Error(request_id=request_id, error=ending))
        with self._deliver_lock:
            with self._lock:
                failed, self._phase = self._phase == "failed", "ended"
            if not failed:
                self._call(events.WorkerExited(expected=expected, error=None if expected else info))
        self._finished.set()
