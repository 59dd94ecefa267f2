"""Vectors of texts, from a model in a process of its own: the chat model stays where it is and is not held up."""

from __future__ import annotations

import sys
import threading
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from engine import events
from engine.errors import EngineError, InvalidRequest
from engine.fit.before_load import LoadPlanner
from engine.model_host import ModelHost, new_id
from engine.worker import protocol
from engine.worker.client import error_from

#: texts that are asked for at once; a stop takes effect between two such groups at the latest
GROUP = 64


def rows(answer: events.Embedded) -> Iterator[list[array[float]]]:
    """The vectors of each text: one, or with the pooling "none" one for each of its tokens."""
    numbers = array("f")
    numbers.frombytes(answer.vectors)
    if sys.byteorder == "big":
        numbers.byteswap()
    at, width = 0, answer.n_embd
    for n_tokens in answer.n_tokens:
        count = n_tokens if answer.pooling == "none" else 1
        yield [numbers[at + i * width : at + (i + 1) * width] for i in range(count)]
        at += count * width


class Embeddings:
    """One embedding model at a time. All methods return at once and may be called from any thread.

    Args:
        request: makes the `Load` of a model, given by path or name.
    """

    def __init__(
        self,
        request: Callable[[str | Path, Mapping[str, Any]], tuple[protocol.Load, frozenset[str]]],
        *,
        command: Sequence[str] | None = None,
        planner: LoadPlanner | None = None,
    ) -> None:
        self._request = request
        self._host = ModelHost(lambda event: None, command=command, planner=planner)

    @property
    def state(self) -> events.ModelState:
        """What became of the last load; "none" before the first."""
        return self._host.state

    @property
    def pid(self) -> int | None:
        return self._host.pid

    def load(self, model: str | Path, **options: Any) -> Future[events.ModelInfo]:
        """Load a model for embeddings; the one before goes. An embedding model, or any chat model.

        Raises:
            ModelNotFound, InvalidRequest: as `Engine.load_model`.
        """
        request, chosen = self._request(model, options)
        return self._host.load(request, "", chosen)

    def unload(self) -> Future[None]:
        return self._host.unload()

    def stop(self, timeout_s: float = 3.0) -> None:
        """End the process; waits for it."""
        self._host.stop(timeout_s)

    def embed(
        self, texts: Sequence[str], *, pooling: protocol.Pooling = "own", normalize: bool = True
    ) -> Future[events.Embedded]:
        """Vectors of texts, however many; `rows` takes the answer apart. While a model loads this waits for it.

        The future can be cancelled at any time. It raises `ModelNotLoaded`, `InvalidRequest` (an empty text),
        `ContextFull` (a text that is longer than the model can read), `WorkerDied`.
        """
        work = _Work(self._host, list(texts), pooling, normalize)
        work.next()
        return work.result


class _Work:
    """The texts of one call, sent group by group."""

    def __init__(self, host: ModelHost, texts: list[str], pooling: protocol.Pooling, normalize: bool) -> None:
        self._host, self._texts, self._pooling, self._normalize = host, texts, pooling, normalize
        self._answers: list[events.Embedded] = []
        self._lock = threading.Lock()
        self._sent = ""
        self.result: Future[events.Embedded] = Future()
        self.result.add_done_callback(self._on_end)

    def next(self) -> None:
        start = GROUP * len(self._answers)
        if start >= len(self._texts):
            self._finish()
            return
        request = protocol.Embed(
            id=new_id(),
            texts=tuple(self._texts[start : start + GROUP]),
            pooling=self._pooling,
            normalize=self._normalize,
        )
        with self._lock:
            self._sent = request.id
        if not self.result.cancelled():
            self._host.submit(request, self._on_event)

    def _on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Embedded):
            self._answers.append(event)
            self.next()
        elif isinstance(event, events.Error):
            self._fail(error_from(event.error))

    def _fail(self, error: EngineError) -> None:
        with suppress(InvalidStateError):  # cancelled
            self.result.set_exception(error)

    def _finish(self) -> None:
        if not self._answers:
            self._fail(InvalidRequest("There is no text to embed", details={"field": "texts"}))
            return
        whole = msgspec.structs.replace(
            self._answers[0],
            vectors=b"".join(answer.vectors for answer in self._answers),
            n_tokens=tuple(n for answer in self._answers for n in answer.n_tokens),
        )
        with suppress(InvalidStateError):  # cancelled
            self.result.set_result(whole)

    def _on_end(self, future: Future[events.Embedded]) -> None:
        if future.cancelled():
            with self._lock:
                sent = self._sent
            self._host.stop_request(sent)
