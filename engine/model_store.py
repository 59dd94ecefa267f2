"""The library of a profile: the models on this computer, and what is done with them.

Everything that waits for a disk or the network runs on threads of its own; the methods return futures at once.
Nothing here connects anywhere unless a method of the hub or of the downloads is called.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from engine import events, log
from engine.errors import Busy, EngineError, InvalidRequest, ModelNotFound
from engine.library_desk import LibraryDesk
from engine.model_downloads import ModelDownloads
from engine.models import catalog, import_file, other_apps, trash
from engine.models.hashing import Meter
from engine.models.library import LibraryModel
from engine.models.library_records import FileRecord
from engine.models.library_work import check_hashes, find_duplicates, trash_root
from engine.models.not_gguf import shown
from engine.paths import Paths
from engine.settings import Settings

T = TypeVar("T")
Models = list[LibraryModel]
Groups = list[tuple[LibraryModel, ...]]
_log = log.get("library")


class ModelStore:
    """Lists, imports, checks and deletes models; finds and downloads new ones.

    Attributes:
        downloads: searching the Hub, and the queue of downloads (`ModelDownloads`).
    """

    def __init__(
        self,
        paths: Paths,
        settings: Settings,
        emit: Callable[[events.Event], None],
        *,
        loaded: Callable[[], str] = lambda: "",
        home: Path | None = None,
        env: Mapping[str, str] | None = None,
        send_to_trash: Callable[[Path], None] = trash.to_system_trash,
    ) -> None:
        """Touches no disk. `loaded` tells the path of the loaded model; `home` and `env` are where other programs'
        folders are looked for.
        """
        self._settings, self._emit = settings, emit
        self._loaded, self._send = loaded, send_to_trash
        self._desk = LibraryDesk(paths, settings, emit, home, env)
        self._work = ThreadPoolExecutor(max_workers=1, thread_name_prefix="library-work")
        self._lock = threading.Lock()
        self._jobs: dict[str, threading.Event] = {}
        self._trashed: dict[str, trash.Trashed] = {}
        self._stopped = False
        self.downloads = ModelDownloads(
            lambda: self._desk.folders, lambda: self._desk.records, emit, self.note_downloaded
        )

    # -------------------------------------------------------------- life

    def start(self) -> Future[None]:
        """Clean up after an earlier run: unfinished copies, and what was deleted but not yet in the system's trash."""

        def work() -> None:
            n = import_file.remove_leftovers(self.folder)
            if n:
                _log.info("%d unfinished copies removed", n)
            emptied.result()

        # at once and where models are deleted, so that nothing deleted from now on is taken with it
        emptied = self._desk.submit(self._empty_trash)
        return self._work.submit(work)

    def stop(self) -> None:
        """Pause the downloads, stop hashing and copying, empty the trash into the system's. Waits; idempotent."""
        if self._stopped:
            return
        self._stopped = True
        with self._lock:
            for job in self._jobs.values():
                job.set()
        self.downloads.stop()
        self._work.shutdown(wait=True, cancel_futures=True)
        self._desk.stop()
        if self._trashed:
            self._empty_trash()

    def _empty_trash(self) -> None:
        with self._lock:
            known, self._trashed = list(self._trashed.values()), {}
        found = trash.waiting(self._desk.folders)
        folders = {trashed.folder for trashed in found}
        # on another disk than the library's folders they lie elsewhere
        for trashed in (*found, *(one for one in known if one.folder not in folders)):
            error = trash.flush(trashed, self._send)
            if error is not None:
                _log.warning("%s", error.message)
                self._emit(events.Notice(level="warning", text=error.message, hint=error.hint))

    # -------------------------------------------------------------- the list

    @property
    def folder(self) -> Path:
        """Where downloads and copies go: the setting `models_folder`, else the profile's own."""
        return self._desk.folder

    def use_folder(self, folder: Path) -> Future[None]:
        """Make this the models folder. The one before stays in the library as another folder; no file is moved.

        The future raises `StorageFailed`, `DiskFull` (it cannot be made or written to).
        """
        return self._desk.submit(lambda: self._desk.do_use_folder(folder))

    def list(self) -> Future[Models]:
        """All models. Looks at the disk: a few milliseconds where nothing has changed."""
        return self._desk.submit(lambda: [*self._desk.do_current().models])

    def scan(self) -> Future[Models]:
        """The same, but looks into every folder again whatever its time of change says."""
        return self._desk.submit(lambda: [*self._desk.do_rescan().models])

    def find(self, name_or_path: str) -> Future[LibraryModel]:
        """The model that a user means: a path (any shard), a name, a file name with or without its ending, `owner/name`
        of where it is from, or the begin of its hash. The future raises `ModelNotFound`, `InvalidRequest` (several).
        """
        return self._desk.submit(lambda: self._desk.do_find(name_or_path))

    def watch(self) -> Callable[[], None]:
        """Have changes on disk noticed (`LibraryChanged`) until the returned function is called."""
        return self._desk.watch()

    # -------------------------------------------------------------- work on models

    def import_file(self, path: str | Path, copy: bool = True) -> Future[Models]:
        """Take a file (any shard of a set) or all models of a folder into the library; progress as `VerifyProgress`.

        Args:
            copy: copy into the models folder; False: use them where they are.

        The future raises what is wrong with the file, `DiskFull`, `StorageFailed`, `Cancelled` (see `cancel`).
        """
        source = Path(path).absolute()

        def work(stop: threading.Event) -> Models:
            sets = import_file.sets_at(source)
            if copy:
                meter = Meter(import_file.total_bytes(sets), self._reporter(str(source), "copy"), stop)
                done = import_file.copy_in(sets, source, self.folder, meter)
                for item in done:
                    if item.copied:
                        status = item.path.stat()
                        record = FileRecord(status.st_size, status.st_mtime_ns, item.sha256, own=True)
                        self._desk.records.put(str(item.path), record)
                wanted = {str(item.path) for item in done}
            else:
                wanted = {item.first for item in sets}
                if source.is_dir():
                    self._desk.add_folder(source)
                else:
                    self._desk.records.add_imported(sorted(wanted))
            models = self._desk.submit(self._desk.do_rescan).result().models
            return [model for model in models if wanted.intersection(model.files)]

        return self._job(str(source), work)

    def verify(self, path: str) -> Future[LibraryModel]:
        """Compute the SHA-256 of all files of a model, and compare. The result says so in `hash_state`."""

        def work(stop: threading.Event) -> LibraryModel:
            model = self.find(path).result()
            meter = Meter(model.size_bytes, self._reporter(path, "hash"), stop)
            check_hashes(model, self._desk.records, meter)
            self._desk.submit(self._desk.do_rescan).result()
            return self.find(model.path).result()

        return self._job(path, work)

    def duplicates(self) -> Future[Groups]:
        """Groups of models with the same bytes. Hashes only files whose sizes and samples are equal."""

        def work(stop: threading.Event) -> Groups:
            models = self._desk.submit(self._desk.do_current).result().models
            groups = find_duplicates(models, self._desk.records, self._reporter("", "hash"), stop)
            self._desk.submit(self._desk.do_rescan).result()
            return groups

        return self._job("", work)

    def cancel(self, path: str | Path = "") -> None:
        """Stop the import or check that was begun with this path ("" for `duplicates`)."""
        with self._lock:
            for name in {str(path), str(Path(path).absolute()) if path else ""}:
                if name in self._jobs:
                    self._jobs[name].set()

    def trash(self, path: str) -> Future[LibraryModel]:
        """Take a model out of the library: its files go to the trash if they are this program's or the user's, and a
        file that was only noted where it is leaves the list.

        The future raises `Busy` (it is loaded), `InvalidRequest` (it belongs to another program or comes with this
        one), `ModelNotFound`, `StorageFailed`.
        """
        return self._desk.submit(lambda: self._trash(path))

    def _trash(self, path: str) -> LibraryModel:
        models = self._desk.do_current().models
        model = self._desk.do_find(path)
        loaded = self._loaded()
        if loaded and loaded in model.files:
            raise Busy(f"{model.name} is loaded", hint="Unload it first.")
        if model.removable:
            shared = {other for m in models if m.path != model.path for other in (*m.mmproj, *m.drafts)}
            attached = [Path(other) for other in (*model.mmproj, *model.drafts) if other not in shared]
            files = [Path(file) for file in model.files]
            root = trash_root(files[0], self._desk.folders)
            self._trashed[model.path] = trash.put([*files, *(a for a in attached if a.is_relative_to(root))], root)
        else:
            self._take_off_list(model)
        self._desk.do_rescan()
        return model

    def _take_off_list(self, model: LibraryModel) -> None:
        recent = self._settings.recent_models
        noted = set(model.files) & {*self._desk.records.imported, *recent}
        if not noted or model.source not in ("folder", "inglenook"):
            owner = other_apps.APP_NAMES.get(model.source)
            raise InvalidRequest(
                f"{model.name} belongs to {owner}" if owner else f"{model.name} comes with the program",
                hint=f"Delete it in {owner}." if owner else "",
                details={"field": "path", "path": model.path},
            )
        self._desk.records.drop_imported(noted)
        self._settings.recent_models = [path for path in recent if path not in noted]
        self._settings.save()

    def restore(self, path: str) -> Future[LibraryModel]:
        """Take `trash` back, with the path of the model as it was. The future raises `ModelNotFound` where there is
        nothing to take back, `StorageFailed` where another file is in its place.
        """

        def work() -> LibraryModel:
            trashed = self._trashed.get(path)
            if trashed is not None:
                trash.restore(trashed)
                del self._trashed[path]
            elif Path(path).is_file():
                self._desk.records.add_imported([path])
            else:
                raise ModelNotFound(f"{shown(path)} is not in the trash any more", hint="Look in the system's trash.")
            self._desk.do_rescan()
            return self._desk.do_find(path)

        return self._desk.submit(work)

    def empty_trash(self) -> Future[None]:
        """Hand what was deleted on to the system's trash now instead of at the end."""
        return self._desk.submit(self._empty_trash)

    def _job(self, name: str, work: Callable[[threading.Event], T]) -> Future[T]:
        stop = threading.Event()
        with self._lock:
            self._jobs[name] = stop

        def run() -> T:
            try:
                return work(stop)
            finally:
                with self._lock:
                    if self._jobs.get(name) is stop:
                        del self._jobs[name]

        return self._work.submit(run)

    def _reporter(self, path: str, stage: Any) -> Callable[[int, int], None]:
        def report(done: int, total: int) -> None:
            self._emit(events.VerifyProgress(path=path, bytes_done=done, bytes_total=total, stage=stage))

        return report

    # -------------------------------------------------------------- told by others

    def note_use(self, path: str) -> None:
        """The model was loaded: it is the one used last."""

        def work() -> None:
            try:
                self._desk.do_note_use(path)
            except EngineError as error:
                _log.warning("%s", error.message)

        if not self._stopped:
            self._desk.submit(work)

    def note_downloaded(self, records: Mapping[str, FileRecord]) -> None:
        """Files of a finished download, with their hashes and where they are from: they are in the library now."""

        def work() -> None:
            try:
                self._desk.records.put_all(dict(records))
            except EngineError as error:
                _log.warning("%s", error.message)
            self._desk.do_rescan()
            self._emit(events.LibraryChanged())

        try:
            self._desk.submit(work)
        except RuntimeError:  # at the very end; the next scan finds the files, and their origin is asked for again
            _log.warning("a download ended while the library was closed")

    def catalog(self) -> catalog.Catalog:
        """The curated list that ships with the program; needs no network."""
        return catalog.load()
