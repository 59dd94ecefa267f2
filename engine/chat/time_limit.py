"""Run a function of ours on untrusted input for a limited time, on any thread and on every platform.

Signals work only on the main thread and not on Windows, so the work runs in a helper thread and is interrupted by
an asynchronous exception (`PyThreadState_SetAsyncExc`). That needs the work to be Python code; single calls into C
must be kept short by size limits, which is the job of `jinja_env`.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
#: how often an interrupt is repeated: an exception raised inside a finalizer is swallowed by Python
_REPEAT_S = 0.05
#: how long to wait for an interrupted thread before it is left behind
_PATIENCE_S = 0.5
#: on a machine so busy that the work got less than half of its time on a processor, it may take longer, up to this
_BUSY_FACTOR = 3


class TimeLimitError(Exception):
    """The work did not end in time."""


class _Interrupted(BaseException):
    """Raised inside the helper thread. Not an `Exception`, so that no handler of the work catches it."""


class _Work(Generic[T]):
    """One run in a helper thread. `finished` under `lock` decides whether an interrupt may still be sent."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self.lock = threading.Lock()
        self.ended = threading.Event()
        self.finished = False
        self.result: list[T] = []
        self.error: BaseException | None = None
        self._clock: int | None = None

    def run(self) -> None:
        try:
            if hasattr(time, "pthread_getcpuclockid"):  # not on Windows and macOS
                self._clock = time.pthread_getcpuclockid(threading.get_ident())
            try:
                self.result.append(self._function())
            except _Interrupted:
                raise
            except BaseException as error:
                self.error = error
            self._finish()
        except _Interrupted:
            self._finish()
        self.ended.set()

    def wait(self, seconds: float) -> bool:
        """Whether the work ended in time."""
        start = time.monotonic()
        left = seconds
        while not self.ended.wait(max(0.0, left)):
            waited = time.monotonic() - start
            left = min(seconds / 2 - self._processor_s(seconds), seconds * _BUSY_FACTOR - waited)
            if left <= 0:
                return False
            left = max(left, 0.01)
        return True

    def _processor_s(self, unknown: float) -> float:
        """Seconds the thread has run on a processor; `unknown` where the system does not tell."""
        try:
            return unknown if self._clock is None else time.clock_gettime(self._clock)
        except OSError:  # it has just ended
            return unknown

    def _finish(self) -> None:
        while not self.finished:
            try:
                with self.lock:
                    self.finished = True
            except _Interrupted:
                continue

    def interrupt(self, thread: threading.Thread) -> None:
        with self.lock:
            if not self.finished and thread.ident is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(_Interrupted))


def run_limited(function: Callable[[], T], seconds: float) -> T:
    """The function's result.

    Raises:
        TimeLimitError: it did not end within `seconds` (of wall time; longer if the machine is too busy to give it
            half of them). It has been interrupted; in the worst case (a long call
            into C) its thread goes on for a while and ends at its next Python instruction.
        BaseException: whatever the function raised.
    """
    work = _Work(function)
    thread = threading.Thread(target=work.run, name="time-limited", daemon=True)
    thread.start()
    if not work.wait(seconds):
        left = _PATIENCE_S
        while left > 0:
            work.interrupt(thread)
            if work.ended.wait(_REPEAT_S):
                break
            left -= _REPEAT_S
        else:
            work.interrupt(thread)
        if not work.result and work.error is None:
            raise TimeLimitError(f"not done after {seconds:g} s")
    thread.join(1)
    try:
        if work.error is not None:
            raise work.error
        if not work.result:
            raise TimeLimitError(f"not done after {seconds:g} s")
        return work.result[0]
    finally:
        # the error knows this frame: without this the two would keep each other, and all that the work made, alive
        del work
