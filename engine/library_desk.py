"""Where the library's list is made: one thread that scans, and what it needs for that."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from engine import events, log
from engine.errors import EngineError
from engine.models import library, other_apps, starter
from engine.models.library import LibraryModel, Scan
from engine.models.library_index import LibraryIndex
from engine.models.library_records import LibraryRecords
from engine.models.library_work import Snapshot, pick
from engine.models.not_gguf import shown
from engine.paths import Paths, make_private_folder, storage_error
from engine.settings import Settings

T = TypeVar("T")
#: seconds between two looks at the folders while someone watches
POLL_S = 3.0
_log = log.get("library")


class LibraryDesk:
    """Scans the library on its own thread, keeps the last result, and notices what changes on disk.

    Methods whose names begin with `do_` run on that thread only: pass them to `submit`.
    """

    def __init__(
        self,
        paths: Paths,
        settings: Settings,
        emit: Callable[[events.Event], None],
        home: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._paths, self._settings, self._emit = paths, settings, emit
        self._home, self._env = home, env
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="library")
        self._lock = threading.Lock()
        self._index: LibraryIndex | None = None
        self._records: LibraryRecords | None = None
        self._last: Snapshot | None = None
        self._told: set[str] = set()
        self._watchers = 0
        self._poller: threading.Thread | None = None
        self._wake = threading.Event()
        self._stopped = False

    def submit(self, work: Callable[[], T]) -> Future[T]:
        return self._thread.submit(work)

    def stop(self) -> None:
        """Waits for the work that was begun; idempotent."""
        with self._lock:
            self._stopped = True
        self._wake.set()
        self._thread.shutdown(wait=True, cancel_futures=True)

    # -------------------------------------------------------------- where

    @property
    def folder(self) -> Path:
        """Where downloads and copies go."""
        chosen = self._settings.models_folder
        return Path(chosen) if chosen else self._paths.models

    @property
    def folders(self) -> list[Path]:
        """The models folder and the user's other ones."""
        return [self.folder, *map(Path, self._settings.extra_folders)]

    def add_folder(self, folder: Path) -> None:
        """Use the models of a folder where they are.

        Raises:
            StorageFailed, DiskFull: the settings cannot be written.
        """
        if not any(folder.is_relative_to(known) for known in self.folders):
            self._settings.extra_folders = [*self._settings.extra_folders, str(folder)]
            self._settings.save()

    def do_use_folder(self, folder: Path) -> None:
        """Make this the models folder; the one before stays as another folder.

        Raises:
            StorageFailed, DiskFull: it cannot be made or written to.
        """
        make_private_folder(folder)
        probe = folder / ".inglenook-probe"
        try:
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise storage_error(error, f"{shown(folder)} cannot be written to") from error
        before = self.folder
        others = [path for path in self._settings.extra_folders if path != str(folder)]
        if before != folder and str(before) not in others and before.is_dir():
            others.append(str(before))
        self._settings.models_folder = "" if folder == self._paths.models else str(folder)
        self._settings.extra_folders = others
        self._settings.save()
        self.do_rescan()

    @property
    def records(self) -> LibraryRecords:
        with self._lock:
            if self._records is None:
                self._records = LibraryRecords(self._paths.data / "library.json")
            return self._records

    def _places(self) -> library.Places:
        singles = [*self.records.imported, *self._settings.recent_models]
        return library.Places(
            models=self.folder,
            extra=tuple(map(Path, self._settings.extra_folders)),
            apps=tuple(other_apps.app_folders(self._home, self._env)),
            files=tuple(path for path in singles if Path(path).is_absolute()),
            starter=starter.find(self._paths.models),
        )

    # -------------------------------------------------------------- what

    def do_current(self) -> Scan:
        """What the last scan found if that still holds, else a new scan."""
        self.records.refresh()
        if self._last is not None and self._last.still_holds(self._places(), self.records):
            return self._last.scan
        return self.do_rescan()

    def do_rescan(self) -> Scan:
        if self._index is None:
            self._index = LibraryIndex(self._paths.cache / "library-index.json")
        places = self._places()
        found = library.scan(places, self._index, self.records)
        before, self._last = self._last, Snapshot(found, places, self.records)
        for note in found.notes:
            if note not in self._told:
                self._told.add(note)
                self._emit(events.Notice(level="warning", text=note))
        if before is not None and before.scan.models != found.models:
            self._emit(events.LibraryChanged())
        return found

    def do_note_use(self, path: str) -> None:
        """Raises:
        StorageFailed, DiskFull
        """
        self.records.remember_use(path)
        if self._last is not None:  # nobody has asked for the list otherwise
            self.do_current()

    def do_find(self, name_or_path: str) -> LibraryModel:
        """Raises:
        ModelNotFound, InvalidRequest: none or several are called so.
        """
        models = self.do_current().models
        own = starter.find(self._paths.models) if name_or_path in starter.ALIASES else None
        return pick(models, str(own) if own else name_or_path)

    # -------------------------------------------------------------- changes on disk

    def watch(self) -> Callable[[], None]:
        """Look every few seconds until the returned function is called."""
        with self._lock:
            self._watchers += 1
            if self._poller is None and not self._stopped:
                self._wake.clear()
                self._poller = threading.Thread(target=self._poll, name="library-watch", daemon=True)
                self._poller.start()
        ended = False

        def end() -> None:
            nonlocal ended
            with self._lock:
                if not ended:
                    ended = True
                    self._watchers -= 1
            self._wake.set()

        return end

    def _poll(self) -> None:
        while True:
            self._wake.wait(POLL_S)
            with self._lock:
                self._wake.clear()
                if self._stopped or not self._watchers:
                    self._poller = None
                    return
            try:
                self.submit(self.do_current).result()
            except (EngineError, OSError) as error:
                _log.warning("looking for changed models: %s", error)
            except RuntimeError:  # the thread was ended meanwhile
                return
