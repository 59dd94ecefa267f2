"""The one loaded model: its worker process from start to death, and the requests that wait for it.

Each load gets a fresh process, so that the memory of the model before is really given back and no fault of one
model reaches the next.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import msgspec

from engine import events, kv_files, log
from engine.errors import Cancelled, EngineError, ModelNotLoaded, NotEnoughMemory
from engine.fit import load_checks
from engine.fit.before_load import LoadPlanner, PlannedLoad, summary
from engine.submitted import Handler, RequestBook, Submitted, cancelled
from engine.submitted import error_info as error_info
from engine.submitted import new_id as new_id
from engine.worker import protocol
from engine.worker.client import WorkerClient, error_from

_log = log.get("model")


class ModelHost:
    """Loads, unloads and talks to the model's worker.

    All public methods return at once; slow work runs on the host's own thread. `emit` is called from the host's and
    the client's threads with `ModelState`, `WorkerExited`, `Memory` and `Log` events.

    Args:
        kv_folder: where the model's process keeps states of chats on disk; None: nowhere.

    Attributes:
        request: what the load in progress, or the last one, was asked for, without what the planner filled in.
        planned: the same with its plan, None where there is none. hello: what the model's process said of itself.
    """

    def __init__(
        self,
        emit: Handler,
        *,
        command: Sequence[str] | None = None,
        planner: LoadPlanner | None = None,
        kv_folder: Path | None = None,
    ) -> None:
        self._emit, self._kv_folder = emit, kv_folder
        self._planner = planner or LoadPlanner()
        self.planned: PlannedLoad | None = None
        self.hello: events.Hello | None = None
        self._chosen: frozenset[str] = frozenset()
        self._command = list(command) if command else None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="model")
        self._lock = threading.RLock()
        self._client: WorkerClient | None = None
        self._load: protocol.Load | None = None
        self.request: protocol.Load | None = None
        self._name = ""
        self._is_named = False
        self._loaded: Future[events.ModelInfo] | None = None
        self._book = RequestBook()
        self._cancelled: set[str] = set()
        self._state = events.ModelState(status="none")

    @property
    def state(self) -> events.ModelState:
        return self._state

    @property
    def pid(self) -> int | None:
        client = self._client
        return client.pid if client is not None and client.alive else None

    # -------------------------------------------------------------- load and unload

    def load(
        self, request: protocol.Load, name: str = "", chosen: Collection[str] = (), plan: PlannedLoad | None = None
    ) -> Future[events.ModelInfo]:
        """Load a model in a new worker; the one before ends first. `name` is what it is called; empty: what its
        file says. `chosen` names the fields of the request that are the user's choice; the planner decides the rest,
        unless there is a `plan` for this model already.

        The future raises what kept the model from loading (an `EngineError`), `Cancelled` after `cancel_load` or when
        another load came first. A file that is no sound model does not cost a loaded one its place.
        """
        result: Future[events.ModelInfo] = Future()
        if self._state.status == "ready":
            self._thread.submit(self._check_then_begin, request, name, chosen, result, plan)
        else:
            self._begin(request, name, chosen, result, plan)
        return result

    def _check_then_begin(
        self,
        request: protocol.Load,
        name: str,
        chosen: Collection[str],
        result: Future[events.ModelInfo],
        plan: PlannedLoad | None,
    ) -> None:
        try:
            load_checks.check(request)
        except EngineError as error:
            result.set_exception(error)
            return
        self._begin(request, name, chosen, result, plan)

    def _begin(
        self,
        request: protocol.Load,
        name: str,
        chosen: Collection[str],
        result: Future[events.ModelInfo],
        plan: PlannedLoad | None,
    ) -> None:
        with self._lock:
            self._is_named = bool(name)
            self._supersede()
            self._load = self.request = request
            self.planned, self._chosen = None, frozenset(chosen)
            self._name = name or Path(request.path).name
            self._loaded = result
            self._set(events.ModelState(status="loading", path=request.path, name=self._name))
        if plan is not None:
            again = msgspec.structs.replace(plan.request, id=request.id, adapters=request.adapters)
            plan = replace(plan, request=again)
        self._thread.submit(self._start_worker, request, result, plan)

    def reload(self, plan: PlannedLoad | None = None) -> Future[events.ModelInfo]:
        """Load the last model again with the same options, or by this plan for it.

        Raises:
            ModelNotLoaded: nothing was loaded yet.
        """
        last = self.request
        if last is None:
            raise ModelNotLoaded("No model was loaded before", hint="Choose a model first.")
        request = protocol.Load(**{f: getattr(last, f) for f in last.__struct_fields__ if f != "id"}, id=new_id())
        return self.load(request, self._name if self._is_named else "", self._chosen, plan)

    def cancel_load(self) -> None:
        with self._lock:
            request = self._load
            if request is None or self._state.status != "loading":
                return
            self._cancelled.add(request.id)
            client = self._client
            self._fail_load(Cancelled("Loading was stopped"))
        if client is not None:
            self._thread.submit(client.stop, 1.0)

    def unload(self) -> Future[None]:
        with self._lock:
            self._supersede()
            self._load = None
            self._set(events.ModelState(status="none"))
        return self._thread.submit(self._drop_client)

    def stop(self, timeout_s: float = 3.0) -> None:
        """End the worker; waits for it. Nothing can be loaded afterwards."""
        with self._lock:
            self._supersede()
            self._load = None
            client = self._client
        if client is not None:
            client.stop(timeout_s)
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _supersede(self) -> None:
        """What runs on the model before ends as cancelled, a load in progress too."""
        if self._load is not None and self._state.status == "loading":
            self._cancelled.add(self._load.id)
        if self._loaded is not None and not self._loaded.done():
            self._loaded.set_exception(Cancelled("Another model was chosen"))
        for request in self._book.take_waiting():
            self._book.deliver(cancelled(request.id))

    def _start_worker(
        self, request: protocol.Load, result: Future[events.ModelInfo], again: PlannedLoad | None = None
    ) -> None:
        """Runs on the host's thread. `again`: the plan is there already, for a load with less than before."""
        self._drop_client()
        with self._lock:
            if request.id in self._cancelled or self._load is not request:
                return
            client = WorkerClient(lambda event: self._on_event(client, event), command=self._command)
            self._client = client
        try:
            hello = self.hello = client.start()
            planned = again or self._planner.prepare(request, self._chosen, hello.devices)
            with self._lock:
                if request.id not in self._cancelled and self._load is request:
                    self.planned = planned
                    if planned is not None:
                        self._set(msgspec.structs.replace(self._state, fit=summary(planned)))
            if request.id in self._cancelled:
                client.stop(1.0)
                return
            client.send(planned.request if planned is not None else request)
        except EngineError as error:
            with self._lock:
                if self._load is request:
                    self._fail_load(error)

    def _drop_client(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.stop()
            self._book.end_sent()

    def _fail_load(self, error: EngineError) -> None:
        """Called with the lock held: the load in progress ends with `error`, and with it all who waited for it."""
        path = self._load.path if self._load else ""
        if isinstance(error, Cancelled):
            self._set(events.ModelState(status="none", path=path, name=self._name))
        else:
            self._set(
                events.ModelState(status="failed", path=path, name=self._name, error=error_info(error)),
            )
        if self._loaded is not None and not self._loaded.done():
            self._loaded.set_exception(error)
        for request in self._book.take_waiting():
            self._book.fail(request.id, error)

    def _set(self, state: events.ModelState) -> None:
        self._state = state
        self._emit(state)

    # -------------------------------------------------------------- requests

    def submit(self, request: Submitted, handler: Handler) -> None:
        """Send a request; its events go to `handler`, the last one is what ends it (`Done`, `Tokenized`, `Pong`,
        `Error`).

        While a model loads the request waits for it. Without one it ends at once with `ModelNotLoaded`.
        """
        with self._lock:
            self._book.add(request, handler)
            status = self._state.status
            if status == "loading":
                self._book.hold(request)
                return
            client = self._client
        if status == "ready" and client is not None:
            self._book.send(client, request)
            return
        self._book.fail(request.id, ModelNotLoaded("No model is loaded", hint="Choose a model above, then try again."))

    def prioritize(self, request_id: str, priority: int) -> None:
        """Give a request that was submitted another priority."""
        request = protocol.Prioritize(id=new_id(), target=request_id, priority=priority)
        with self._lock:
            if self._book.holds(request_id):
                self._book.hold(request)
                return
        self.tell(request)

    def forget(self, cache_key: str) -> None:
        """Nothing that was kept under this key may stay, in the model's process or on disk (see `protocol.Forget`)."""
        self.tell(protocol.Forget(id=new_id(), cache_key=cache_key))
        if (folder := self._kv_folder) is not None:
            with contextlib.suppress(RuntimeError):  # the host has been stopped
                self._thread.submit(lambda: kv_files.forget(folder, cache_key) if cache_key else kv_files.clear(folder))

    def tell(self, request: protocol.Request) -> None:
        """Send what nothing answers; without a worker there is nobody to be told."""
        client = self._client
        if client is not None:
            with contextlib.suppress(EngineError):
                client.send(request)

    def stop_request(self, request_id: str) -> None:
        """Stop a request wherever it is. A worker that does not react is ended, so the caller can always go on."""
        with self._lock:
            waited = self._book.let_go(request_id)
            client = self._client
        if waited:
            self._book.deliver(cancelled(request_id))
        elif client is not None:
            client.stop_request(request_id)

    # -------------------------------------------------------------- events of the worker

    def _on_event(self, client: WorkerClient, event: events.Event) -> None:
        """Runs on the client's reader thread."""
        with self._lock:
            current = client is self._client
            load = self._load
        match event:
            case events.WorkerExited():
                self._on_exit(client, event)
            case events.LoadProgress() if current and load is not None and event.request_id == load.id:
                with self._lock:
                    if self._state.status == "loading":
                        self._set(msgspec.structs.replace(self._state, fraction=event.fraction))
            case events.Loaded() if current and load is not None and event.request_id == load.id:
                self._on_loaded(client, event)
            case events.Error() if load is not None and event.request_id == load.id:
                with self._lock:
                    if current and self._state.status == "loading":
                        self._load_failed(load, error_from(event.error))
            case events.AdaptersSet() if current:
                with self._lock:
                    if self._state.model is not None and self.request is not None:
                        self.request = msgspec.structs.replace(self.request, adapters=event.adapters)
                        model = msgspec.structs.replace(self._state.model, adapters=event.adapters)
                        self._set(msgspec.structs.replace(self._state, model=model))
                self._book.deliver(event)
            case events.Memory() | events.Log() | events.KvMap():
                if current:
                    self._emit(event)
            case _:
                if isinstance(event, events.Done) and current:
                    self._learn(event)
                self._book.deliver(event)

    def _learn(self, done: events.Done) -> None:
        """Speeds of answers that were written alone go to the planner, on the host's thread."""
        with self._lock:
            planned, alone = self.planned, len(self._book) == 1
        if planned is not None and alone and self._state.status == "ready":
            with contextlib.suppress(RuntimeError):  # the host has been stopped
                self._thread.submit(self._planner.answered, planned, done)

    def _load_failed(self, load: protocol.Load, error: EngineError) -> None:
        """Called with the lock held. Too little memory is tried once more with less; then the rest is offered."""
        planned = self.planned
        if planned is not None and isinstance(error, NotEnoughMemory):
            smaller = self._planner.smaller(planned)
            if smaller is not None and self._loaded is not None:
                self._emit(
                    events.Notice(
                        level="warning",
                        text=f"There is too little memory for {self._name}; trying with less.",
                        hint=f"Given up: {', '.join(smaller.gave_up)}.",
                    )
                )
                self._thread.submit(self._start_worker, load, self._loaded, smaller)
                return
            rest = self._planner.offers(planned)
            error.hint = f"What can still be tried: {', '.join(rest)}."
            error.details = {**error.details, "offers": list(rest)}
        self._fail_load(error)

    def _on_loaded(self, client: WorkerClient, event: events.Loaded) -> None:
        planned = self.planned
        model = event.model if planned is None else self._planner.loaded(planned, event.model)
        with self._lock:
            if self._load is None or self._state.status != "loading":
                return
            if not self._is_named:
                self._name = model.name or self._name
            path = self._load.path
            self._set(events.ModelState(status="ready", path=path, name=self._name, model=model, fit=model.fit))
            waiting = self._book.take_waiting()
            result = self._loaded
        if result is not None and not result.done():
            result.set_result(model)
        for request in waiting:
            self._book.send(client, request)

    def _on_exit(self, client: WorkerClient, event: events.WorkerExited) -> None:
        with self._lock:
            if client is not self._client:
                return
            self._client = None
            if not event.expected and event.error is not None:
                _log.error("worker ended: %s", event.error.message)
                if self._state.status == "loading":
                    self._fail_load(error_from(event.error))
                elif self._load is not None:
                    path = self._load.path
                    self._set(events.ModelState(status="failed", path=path, name=self._name, error=event.error))
        self._book.end_sent()
        self._emit(event)
