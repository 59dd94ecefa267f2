"""What is submitted to a model's process, who waits for the answers, and what ends them."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable

from engine import events
from engine.errors import Cancelled, EngineError
from engine.message import ErrorInfo
from engine.worker import protocol
from engine.worker.client import WorkerClient

Handler = Callable[[events.Event], None]
Submitted = (
    protocol.Generate
    | protocol.Tokenize
    | protocol.Ledger
    | protocol.Ping
    | protocol.Bench
    | protocol.SetAdapters
    | protocol.Embed
    | protocol.Prioritize
)
#: the events that end a request
LAST = (
    events.Done,
    events.Error,
    events.Tokenized,
    events.ContextLedger,
    events.Pong,
    events.Benched,
    events.AdaptersSet,
    events.Embedded,
)


def error_info(error: BaseException) -> ErrorInfo:
    """An exception as data; one that is not an `EngineError` is a bug and says so."""
    if isinstance(error, EngineError):
        return ErrorInfo(error.code, error.message, error.hint, error.details)
    return ErrorInfo("bug", f"{type(error).__name__}: {error}", "This is a fault in Inglenook; please report it.")


def new_id() -> str:
    """A request id that no other request of this program has."""
    return uuid.uuid4().hex[:16]


def cancelled(request_id: str) -> events.Error:
    return events.Error(request_id=request_id, error=error_info(Cancelled("Stopped")))


class RequestBook:
    """Who is to be told of which request, and which requests wait for a model that is being loaded.

    Safe from any thread. Handlers are called without the lock held.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._handlers: dict[str, Handler] = {}
        self._waiting: list[Submitted] = []

    def __len__(self) -> int:
        """Requests that have not ended."""
        return len(self._handlers)

    def add(self, request: Submitted, handler: Handler) -> None:
        with self._lock:
            self._handlers[request.id] = handler

    def hold(self, request: Submitted) -> None:
        """Let it wait until `take_waiting`."""
        with self._lock:
            self._waiting.append(request)

    def holds(self, request_id: str) -> bool:
        with self._lock:
            return any(request.id == request_id for request in self._waiting)

    def let_go(self, request_id: str) -> bool:
        """It waits no longer; False if it did not wait."""
        with self._lock:
            before = len(self._waiting)
            self._waiting = [request for request in self._waiting if request.id != request_id]
            return len(self._waiting) < before

    def take_waiting(self) -> list[Submitted]:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        return waiting

    def end_sent(self) -> None:
        """What had been sent to a worker that is gone now ends as cancelled, with the text that came."""
        with self._lock:
            waiting = {request.id for request in self._waiting}
            sent = [request_id for request_id in self._handlers if request_id not in waiting]
        for request_id in sent:
            self.deliver(cancelled(request_id))

    def send(self, client: WorkerClient, request: protocol.Request) -> None:
        """Send it; where that is not possible, the request ends with the reason."""
        try:
            client.send(request)
        except EngineError as error:
            self.fail(request.id, error)

    def fail(self, request_id: str, error: EngineError) -> None:
        self.deliver(events.Error(request_id=request_id, error=error_info(error)))

    def deliver(self, event: events.Event) -> None:
        last = isinstance(event, LAST)
        with self._lock:
            handler = self._handlers.pop(event.request_id, None) if last else self._handlers.get(event.request_id)
        if handler is not None:
            handler(event)
