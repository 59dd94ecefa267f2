"""Requests on their way from the reader thread to the thread that owns the model."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Literal

from engine.worker.protocol import AnyRequest


class Job:
    """A request with what the worker knows about it.

    Attributes:
        arrived_s: `time.perf_counter()` when its line was read.
        stopped: a `Stop` named it; set by the reader thread at once, read by the owner.
        state: "inbox" until the owner takes it, then "taken", then "done" (answered). "aside": taken, but something has
            to be made for it before the owner can go on.
    """

    def __init__(self, request: AnyRequest) -> None:
        self.request = request
        self.arrived_s = time.perf_counter()
        self.stopped = False
        self.state: Literal["inbox", "taken", "aside", "done"] = "inbox"


class Inbox:
    """First in, first out, with stop flags that act at once.

    Args:
        interrupt: called (on the reader thread) when something that the owner may be busy with has to end.
    """

    def __init__(self, interrupt: Callable[[], None]) -> None:
        self._interrupt = interrupt
        self._changed = threading.Condition()
        self._waiting: deque[Job] = deque()
        self._live: dict[str, Job] = {}
        self.closed = False

    def put(self, request: AnyRequest) -> bool:
        """False if a request with this id is still unanswered."""
        with self._changed:
            if request.id in self._live:
                return False
            job = Job(request)
            self._live[request.id] = job
            self._waiting.append(job)
            self._changed.notify()
            return True

    def stop(self, target: str) -> Job | None:
        """Flag a request. Returns the job if nobody works on it yet; it is then the caller's to answer."""
        with self._changed:
            job = self._live.get(target)
            if job is None:
                return None
            job.stopped = True
            if job.state == "inbox":
                self._waiting.remove(job)
                self._finish(job)
                return job
            if job.state == "aside":
                self._finish(job)
                return job
            self._interrupt()
            return None

    def close(self) -> None:
        """No more requests will come: stop all."""
        with self._changed:
            self.closed = True
            for job in self._live.values():
                job.stopped = True
            self._interrupt()
            self._changed.notify()

    def take(self, *, wait: bool, timeout_s: float | None = None) -> Job | None:
        """The next request; None if there is none (with `wait`: only when the inbox is closed, or nothing came within
        `timeout_s` seconds)."""
        if not wait and not self._waiting:
            return None  # between two steps, nearly always
        with self._changed:
            while wait and not self._waiting and not self.closed:
                if not self._changed.wait(timeout_s):
                    break
            if not self._waiting or self.closed:
                return None
            job = self._waiting.popleft()
            job.state = "taken"
            return job

    def put_aside(self, job: Job) -> None:
        """The owner goes on with others until `again`."""
        with self._changed:
            if job.state == "taken":
                job.state = "aside"

    def again(self, job: Job) -> bool:
        """A request that was put aside can be worked on. False if it was stopped in the meantime."""
        with self._changed:
            if job.state != "aside":
                return False
            job.state = "inbox"
            self._waiting.appendleft(job)
            self._changed.notify()
            return True

    def done(self, job: Job) -> None:
        """The request has been answered. Call it before the answer is sent: its id may be used again after that."""
        with self._changed:
            self._finish(job)

    def _finish(self, job: Job) -> None:
        job.state = "done"
        if self._live.get(job.request.id) is job:
            del self._live[job.request.id]
