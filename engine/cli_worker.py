"""One worker for one run of the command line, as plain calls."""

from __future__ import annotations

import queue
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType

from engine.errors import WorkerDied
from engine.events import Done, Embedded, Error, Event, Hello, Loaded, ModelInfo, WorkerExited
from engine.worker import protocol
from engine.worker.client import WorkerClient, error_from

#: longest wait without a look at the keyboard: waiting for a queue cannot be interrupted on Windows
_POLL_S = 0.25


class CliWorker:
    """A started worker; a context manager that ends it, whatever happens."""

    def __init__(self) -> None:
        self._events: queue.SimpleQueue[Event | str] = queue.SimpleQueue()  # str: this request was interrupted
        self.client = WorkerClient(self._events.put)
        self.hello: Hello | None = None

    def __enter__(self) -> CliWorker:
        try:
            self.hello = self.client.start()
        except BaseException:
            self.client.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.stop()

    def run(self, request: protocol.Request) -> Iterator[Event]:
        """The events of one request, the one that ends it last.

        An interrupt (Ctrl+C) stops the request; its last event still comes. A second one raises KeyboardInterrupt.

        Raises:
            EngineError: the request failed, or the worker died.
        """
        with self._interrupts(request.id):
            self.client.send(request)
            while True:
                event = self._next()
                if isinstance(event, str):
                    self.client.stop_request(event)  # one that has ended meanwhile is left alone
                    continue
                if isinstance(event, WorkerExited):
                    if event.error is not None:
                        raise error_from(event.error)
                    raise WorkerDied("The worker ended before the answer was complete")
                if event.request_id not in ("", request.id):
                    continue
                if isinstance(event, Error) and event.request_id == request.id:
                    raise error_from(event.error)
                yield event
                if isinstance(event, Done | Loaded | Embedded) and event.request_id == request.id:
                    return

    @contextmanager
    def _interrupts(self, request_id: str) -> Iterator[None]:
        """Interrupts become a mark among the events: an exception could come anywhere and tear an output line."""
        interrupted = False

        def note(number: int, frame: FrameType | None) -> None:
            nonlocal interrupted
            if interrupted:
                raise KeyboardInterrupt
            interrupted = True
            self._events.put(
                request_id
            )  # SimpleQueue allows this inside a signal handler; the client's locks would not

        try:
            before = signal.signal(signal.SIGINT, note)
        except ValueError:  # not the main thread: no interrupts come here
            yield
            return
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _next(self) -> Event | str:
        while True:
            try:
                return self._events.get(timeout=_POLL_S)
            except queue.Empty:
                continue


def loaded_model(event: Event) -> ModelInfo:
    assert isinstance(event, Loaded)
    return event.model
