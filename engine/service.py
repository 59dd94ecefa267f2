"""The Engine: the one object that a front end holds.

It owns the profile's settings, chats and the loaded model, starts and stops their threads and processes, and hands
every event to its subscribers. Front ends never see a worker.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from engine import events, log, newer
from engine.black_box import BlackBox
from engine.calibration import Calibrator
from engine.chat.conversations import Conversations
from engine.cores import Cores, here
from engine.embeddings import Embeddings
from engine.engine_options import Adapter
from engine.errors import DatabaseDamaged, EngineError, InvalidRequest
from engine.fit import measured, probe
from engine.fit.before_load import LoadPlanner
from engine.fit.calibrate import Calibration
from engine.fit.measured import Measurements
from engine.load_request import differences, embedding_request, load_request
from engine.metrics import Monitor
from engine.model_host import ModelHost, new_id
from engine.model_store import ModelStore
from engine.models import starter
from engine.paths import Paths
from engine.resume import Resume
from engine.settings import Settings
from engine.store import chats as chat_store
from engine.updates import Updates
from engine.worker import protocol
from engine.worker.client import error_from

_log = log.get("engine")


def _forms() -> dict[str, tuple[str, int]]:
    """Files in the data folder that have a form of their own: what they hold, and the latest form known here."""
    from engine import bench_history  # after the window is there: its start does without
    from engine.models import library_records

    return {
        "fit.json": ("what was measured of this computer", measured.SCHEMA),
        "bench.json": ("the measurements of models", bench_history.SCHEMA),
        "library.json": ("where models came from", library_records.SCHEMA),
    }


class Engine:
    """One profile, one loaded model, many chats.

    Attributes:
        settings: typed settings; change them through `change_settings` so that they reach the disk.
        measurements: what real loads and answers took on this computer.
        model: loads and unloads models (`ModelHost`).
        black_box: what its process was at if it ended by itself, a safer load, a report (`BlackBox`).
        monitor: what the processes and devices do, while somebody watches (`Monitor`).
        chats: everything about chats and messages (`Conversations`).
        traces: how answers came about, and going on from another token of one (`Traces`).
        embeddings: vectors of texts, from a model process of its own (`Embeddings`).
        library: the models on this computer, and downloading new ones (`ModelStore`).
        updates: asks for a newer version where the user wants it (`Updates`).
    """

    def __init__(self, paths: Paths, *, worker_command: Sequence[str] | None = None) -> None:
        self.paths = paths
        self.settings = Settings(paths.settings_file)
        self._subscribers: list[Callable[[events.Event], None]] = []
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="engine")
        self._store: chat_store.ChatStore | None = None
        self._stopped = False
        self.measurements = Measurements(paths.data / "fit.json")
        planner = LoadPlanner(self.measurements)
        self.model = ModelHost(self._emit, command=worker_command, planner=planner, kv_folder=paths.kv_folder)
        self.black_box = BlackBox(self.model, planner, self._thread)
        self.monitor = Monitor(self._emit, self.model.tell, lambda: self.model.pid)
        self.chats = Conversations(
            self._open_store, self._replace_damaged, self.model, self.settings, self._emit, self._thread, new_id
        )
        self.traces = self.chats.traces
        self.embeddings = Embeddings(
            self._embedding_request, command=worker_command, planner=LoadPlanner(self.measurements)
        )
        self.library = ModelStore(paths, self.settings, self._emit, loaded=self._path_in_use)
        self._calibrator = Calibrator(self.measurements, paths.models, self._at_work, worker_command)
        self.updates = Updates(self.settings)
        self._resume = Resume(self.model, self._emit)

    # -------------------------------------------------------------- life

    def start(self) -> Future[None]:
        """Open the profile in the background.

        The future raises what the user must decide on: `DatabaseTooNew`, `StorageFailed`, `DiskFull`. A damaged
        database is set aside and reported as a `Notice`.
        """

        def work() -> None:
            self.paths.ensure()
            notes = [*self.settings.notes, newer.words(self.paths, _forms())]
            if said := " ".join(note for note in notes if note):
                self._emit(events.Notice(level="warning", text=said))
            store = self._open_store()
            if n := store.mark_interrupted():
                _log.info("%d answers had been interrupted", n)
            self.library.start()

        self._resume.watch.start()
        return self._thread.submit(work)

    def stop(self, timeout_s: float = 5.0) -> None:
        """Keep all text, end the worker, close the profile. Waits; idempotent."""
        if self._stopped:
            return
        self._stopped = True
        self._resume.watch.stop()
        self.monitor.stop()
        try:
            self._thread.submit(self._close_chats).result(timeout_s)
        except (EngineError, TimeoutError) as error:
            _log.error("closing the chats: %s", error)
        self.embeddings.stop(min(timeout_s, 3.0))
        self.model.stop(min(timeout_s, 3.0))
        self.library.stop()
        probe.close()
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _close_chats(self) -> None:
        if self._store is not None:
            self.chats.close()
            self._store.close()
            self._store = None
        self.settings.save()

    def _open_store(self) -> chat_store.ChatStore:
        """The open database; runs on the engine thread."""
        if self._store is None:
            try:
                self._store = chat_store.ChatStore(self.paths.database)
            except DatabaseDamaged as error:
                self._replace_damaged(error)
                self._store = chat_store.ChatStore(self.paths.database)
        return self._store

    def _replace_damaged(self, error: DatabaseDamaged) -> None:
        """Set a damaged database aside and start a new one with what can still be read; runs on the engine thread."""
        if self._store is not None:
            self._store.close()
            self._store = None
        kept = chat_store.set_aside(self.paths.database)
        found = chat_store.recover(kept, self.paths.database)
        _log.error("chat database damaged, kept in %s, %d messages recovered", kept, found.n_messages)
        rest = "All could be read." if found.complete else "The rest could not be read."
        self._emit(
            events.Notice(
                level="error",
                text=f"The chat database was damaged. {found.n_messages} messages of {found.n_chats} chats were "
                f"carried over into a new one. {rest}",
                hint=f"The damaged file is kept in {kept}.",
            )
        )
        self._emit(events.ChatListChanged())

    # -------------------------------------------------------------- events

    def subscribe(self, callback: Callable[[events.Event], None]) -> Callable[[], None]:
        """Have `callback` called with every `EngineEvent`, from engine threads; it must be quick and thread-safe.

        Returns a function that ends it.
        """
        with self._lock:
            self._subscribers = [*self._subscribers, callback]

        def unsubscribe() -> None:
            with self._lock:
                self._subscribers = [s for s in self._subscribers if s is not callback]

        return unsubscribe

    def _emit(self, event: events.Event) -> None:
        if isinstance(event, events.ModelState) and event.status == "ready":
            self._remember(event.path)
        self.black_box.see(event)
        self.monitor.see(event)
        for subscriber in self._subscribers:
            subscriber(event)

    # -------------------------------------------------------------- settings

    def change_settings(self, **values: Any) -> Future[None]:
        """Set values and write them to disk in the background.

        Raises:
            InvalidRequest: a name or value is not allowed; nothing is changed then.
        """
        declared = self.settings.declared()
        for name, value in values.items():
            if name not in declared:
                raise InvalidRequest(f"No setting is named {name}", details={"field": name})
            declared[name].check(value)
        for name, value in values.items():
            setattr(self.settings, name, value)
        if values.get("kv_on_disk") is False:
            self.model.forget("")
        return self._thread.submit(self._save_settings)

    def _save_settings(self) -> None:
        self.settings.save()

    def _remember(self, path: str) -> None:
        self.settings.remember_model(path)
        if not self._stopped:
            self._thread.submit(self._save_settings)
            self.library.note_use(path)

    # -------------------------------------------------------------- model

    def _path_in_use(self) -> str:
        state = self.model.state
        return state.path if state.status in ("loading", "ready") else ""

    @property
    def model_state(self) -> events.ModelState:
        return self.model.state

    @property
    def worker_pid(self) -> int | None:
        return self.model.pid

    def load_model(self, model: str | Path, **options: Any) -> Future[events.ModelInfo]:
        """Load a model by path or name ("starter"); `options` are fields of `Load` and come before the settings.

        Raises:
            ModelNotFound: there is no such file.
            InvalidRequest: options that no load could have, or that exclude each other.
        """
        path = self._resolved(model)
        request, chosen = load_request(self.settings, new_id(), str(path), options)
        if self.settings.kv_on_disk:
            cap = int(self.settings.kv_disk_gib * 2**30)
            request = msgspec.structs.replace(request, kv_folder=str(self.paths.kv_folder), kv_cap_bytes=cap)
        name = starter.NAME if starter.is_starter(path, self.paths.models) else ""
        return self.model.load(request, name, chosen)

    def _resolved(self, model: str | Path) -> Path:
        places = replace(self.paths, models=self.library.folder)
        return starter.resolve_model(model, places, self.settings.recent_models)

    def _embedding_request(self, model: str | Path, options: Mapping[str, Any]) -> tuple[protocol.Load, frozenset[str]]:
        return embedding_request(self.settings, new_id(), str(self._resolved(model)), options)

    def needs_reload(self) -> tuple[str, ...]:
        """Options (fields of `Load`) that the settings want otherwise than the loaded model has them."""
        loaded = self.model.request if self.model.state.status == "ready" else None
        if loaded is None:
            return ()
        own = {"chat_template": loaded.chat_template, "devices": loaded.devices or None}
        try:
            wanted, _ = load_request(self.settings, loaded.id, loaded.path, own)
        except InvalidRequest:
            return ()  # it would be refused; what is wrong is said where it is set
        return differences(loaded, wanted)

    def set_adapters(self, adapters: Sequence[Adapter]) -> Future[tuple[Adapter, ...]]:
        """Change the scales of the loaded model's LoRA adapters, without loading it again; those not named get 0.

        The future gives all of them; it raises `InvalidRequest` for one that was not loaded with the model.
        """
        result: Future[tuple[Adapter, ...]] = Future()

        def on_event(event: events.Event) -> None:
            if isinstance(event, events.AdaptersSet):
                result.set_result(event.adapters)
            elif isinstance(event, events.Error):
                result.set_exception(error_from(event.error))

        self.model.submit(protocol.SetAdapters(id=new_id(), adapters=tuple(adapters)), on_event)
        return result

    def cores(self) -> Future[Cores]:
        """What there is to compute with; read from the system each time."""
        return self._thread.submit(here)

    # -------------------------------------------------------------- this machine

    def _at_work(self) -> bool:
        return self.model.state.status == "loading" or bool(self.chats.generating())

    def calibrate(self, progress: Callable[[str], None] = lambda text: None) -> Future[Calibration]:
        """Measure this machine for the speed estimates: ten seconds, all cores. Only by the user's wish.

        Args:
            progress: told what is going on, from another thread.

        Raises:
            Busy: a model is loading or writing, or this runs already.
        """
        return self._calibrator.begin(progress)

    def is_calibrated(self) -> Future[bool]:
        """Whether this machine was measured; the first answer reads a file."""
        return self._thread.submit(lambda: self.measurements.calibrated)

    def tokenize(self, text: str) -> Future[events.Tokenized]:
        """How the loaded model cuts a text, without anything before it; raises `ModelNotLoaded` through the future."""
        result: Future[events.Tokenized] = Future()

        def on_event(event: events.Event) -> None:
            if isinstance(event, events.Tokenized):
                result.set_result(event)
            elif isinstance(event, events.Error):
                result.set_exception(error_from(event.error))
            elif isinstance(event, events.Done):
                result.cancel()

        self.model.submit(protocol.Tokenize(id=new_id(), text=text), on_event)
        return result
