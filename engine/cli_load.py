"""A load of the command line in the hands of the planner, as the window does it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from engine import paths as places
from engine.cli_worker import CliWorker
from engine.errors import EngineError, NotEnoughMemory
from engine.events import Done, Event, Loaded
from engine.fit.before_load import LoadPlanner, PlannedLoad
from engine.fit.measured import Measurements
from engine.worker import protocol


class CliLoad:
    """One load, and the answers after it, from which the next plan learns.

    Where the user has chosen the context or the layers, the load goes as it was asked for. A plan that cannot be made
    never keeps a model from loading.
    """

    def __init__(self, worker: CliWorker, request: protocol.Load, note: Callable[[str], None]) -> None:
        """`note` is told in words what is given up where there is too little memory."""
        self._worker, self._request, self._note = worker, request, note
        self._planner = LoadPlanner(Measurements(places.resolve().data / "fit.json"))
        self._planned: PlannedLoad | None = None

    def events(self) -> Iterator[Event]:
        """The events of the load; the `Loaded` at its end holds the plan beside what the load took.

        Raises:
            EngineError: why it failed, after a second try with less where there was too little memory.
        """
        hello = self._worker.hello
        if hello is not None and self._request.n_ctx is None and self._request.n_gpu_layers is None:
            self._planned = self._planner.prepare(self._request, (), hello.devices)
        while True:
            try:
                yield from self._run()
                return
            except NotEnoughMemory as error:
                self._smaller(error)

    def _run(self) -> Iterator[Event]:
        planned = self._planned
        for event in self._worker.run(self._request if planned is None else planned.request):
            if isinstance(event, Loaded) and planned is not None:
                yield msgspec.structs.replace(event, model=self._planner.loaded(planned, event.model))
            else:
                yield event

    def _smaller(self, error: EngineError) -> None:
        """Plan with less. Raises the error, with what can still be tried, where there is nothing left to give up."""
        planned = self._planned
        if planned is None:
            raise error
        smaller = self._planner.smaller(planned)
        if smaller is None:
            rest = self._planner.offers(planned)
            if rest:
                error.hint = f"What can still be tried: {', '.join(rest)}."
                error.details = {**error.details, "offers": list(rest)}
            raise error
        self._planned = smaller
        self._note(f"There is too little memory; trying with less. Given up: {', '.join(smaller.gave_up)}.")

    def answered(self, done: Done) -> None:
        """Keep the speed of an answer; with threads of the user's choice it says nothing about other loads."""
        if self._planned is not None and self._request.n_threads is None:
            self._planner.answered(self._planned, done)
