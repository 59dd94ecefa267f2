"""A look at this computer's devices that is begun before the planner's modules are imported.

Both take a third of a second and more; one after the other, an answer would take over a second on an old laptop.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future

from engine import events
from engine.worker.client import WorkerClient

_START_S = 30.0


class EarlyLook:
    """A worker that is started for its greeting only, in a thread."""

    def __init__(self) -> None:
        self._hello: Future[events.Hello] = Future()
        threading.Thread(target=self._ask, name="fit-early-look", daemon=True).start()

    def _ask(self) -> None:
        client = WorkerClient(lambda event: None)
        try:
            self._hello.set_result(client.start(_START_S))
        except BaseException as error:
            self._hello.set_exception(error)
        client.stop(1.0)  # it may hang in a driver, but nobody waits for this thread

    def greeting(self) -> events.Hello:
        """What the worker said. Raises what `WorkerClient.start` raises."""
        return self._hello.result()
