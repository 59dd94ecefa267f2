"""Finding models on the Hub and downloading them into the library.

Nothing here reaches the network before a method is called by the user's wish; `list` and `stop` never do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from engine import events
from engine.errors import Cancelled, InvalidRequest
from engine.models.library_index import stamp
from engine.models.library_records import FileRecord, LibraryRecords

if TYPE_CHECKING:
    from engine.models.download import Downloads
    from engine.models.gguf_header import GgufHeader
    from engine.models.hub import Hub, RepoInfo, SearchPage, Sort
    from engine.models.hub_names import HubFile, ModelSet

T = TypeVar("T")
Infos = list[events.DownloadInfo]


class ModelDownloads:
    """The Hub's answers, and the queue. All methods return at once.

    Futures raise `HubUnreachable`, `HubAccessDenied`, `HubNotFound`, `DiskFull`, `InvalidRequest`; why a download fails
    later is in its `DownloadInfo.error`.
    """

    def __init__(
        self,
        folders: Callable[[], Sequence[Path]],
        records: Callable[[], LibraryRecords],
        emit: Callable[[events.Event], None],
        done: Callable[[dict[str, FileRecord]], None],
    ) -> None:
        """`folders` tells where models are kept, first of all where new ones go; `done` is given the records of the
        files of each finished download.
        """
        self._folders, self._records, self._emit, self._done = folders, records, emit, done
        self._lock = threading.RLock()
        self._threads: ThreadPoolExecutor | None = None
        self._hub: Hub | None = None
        self._queues: dict[Path, Downloads] = {}
        self._stopped = False

    def stop(self) -> None:
        """Pause all downloads with what they have on disk; waits for that. Idempotent."""
        with self._lock:
            self._stopped = True
            queues, threads = list(self._queues.values()), self._threads
        for queue in queues:
            queue.close()
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)

    # -------------------------------------------------------------- the Hub

    def search(
        self, query: str = "", *, sort: Sort = "trending", limit: int = 30, cursor: str = ""
    ) -> Future[SearchPage]:
        """One page of repositories with GGUF files; `cursor` is `SearchPage.next` of the page before."""
        return self._submit(lambda: self.hub.search(query, sort, limit, cursor))

    def info(self, repo: str, revision: str = "main") -> Future[RepoInfo]:
        """What a repository holds, with sizes and hashes."""
        return self._submit(lambda: self.hub.info(repo, revision))

    def card(self, repo: str, revision: str = "main") -> Future[str]:
        """The model card, Markdown; "" if there is none."""
        return self._submit(lambda: self.hub.card(repo, revision))

    def header(self, repo: str, revision: str, path: str, sha256: str | None = None) -> Future[GgufHeader]:
        """The header of a file that is not here, for the fit."""
        return self._submit(lambda: self.hub.header(repo, revision, path, sha256))

    @property
    def hub(self) -> Hub:
        """The hub itself, whose methods block. Made at the first use: HF_ENDPOINT and the token count as they are then.

        Raises:
            InvalidRequest: HF_ENDPOINT is no address.
        """
        from engine.models.hub import Hub

        with self._lock:
            if self._hub is None:
                self._hub = Hub()
            return self._hub

    # -------------------------------------------------------------- the queue

    def list(self) -> Future[Infos]:
        """The queue as it is, or as an earlier run left it (then all of it is paused)."""
        return self._submit(lambda: [info for queue in self._all() for info in queue.list()])

    def add(self, info: RepoInfo, item: ModelSet, extras: Sequence[HubFile] = ()) -> Future[events.DownloadInfo]:
        """Begin, or queue, the download of a model; the same one again goes on with what is there.

        Args:
            extras: files of `item.mmproj` or `item.draft` to bring with it.
        """

        def work() -> events.DownloadInfo:
            folder = self._folders()[0]
            self._note_expected(folder, info, [*item.files, *extras])
            return self._queue_of(folder).add(info.repo, info.revision_sha, item, extras=extras)

        return self._submit(work)

    def _note_expected(self, folder: Path, info: RepoInfo, files: Sequence[HubFile]) -> None:
        """Note what the files should be, for a program that ends before the download does."""
        from engine.models import safe_names

        expected = {}
        for file in files:
            path = folder.joinpath(*safe_names.repo_parts(info.repo), *safe_names.safe_parts(file.path))
            if self._records().expects(str(path), file.size_bytes) != (file.sha256 or ""):
                expected[str(path)] = FileRecord(
                    size_bytes=file.size_bytes,
                    expected=file.sha256 or "",
                    repo=info.repo,
                    revision=info.revision_sha,
                    licence=info.license,
                    own=True,
                )
        if expected:
            self._records().put_all(expected)

    def pause(self, download_id: str) -> Future[events.DownloadInfo]:
        return self._submit(lambda: self._holder(download_id).pause(download_id))

    def resume(self, download_id: str) -> Future[events.DownloadInfo]:
        return self._submit(lambda: self._holder(download_id).resume(download_id))

    def retry(self, download_id: str) -> Future[events.DownloadInfo]:
        return self._submit(lambda: self._holder(download_id).retry(download_id))

    def cancel(self, download_id: str) -> Future[None]:
        """Take it out of the queue and delete what has come of it; of a finished one the files stay."""
        return self._submit(lambda: self._holder(download_id).cancel(download_id))

    def _all(self) -> Sequence[Downloads]:
        """The queues of all folders that have one. Transfers begin only with `add`, `resume` and `retry`."""
        from engine.models.download_state import STAGING

        for number, folder in enumerate(self._folders()):
            if number == 0 or (folder / STAGING).is_dir():
                self._queue_of(folder)
        with self._lock:
            return [*self._queues.values()]

    def _queue_of(self, folder: Path) -> Downloads:
        from engine.models.download import Downloads

        with self._lock:
            if self._stopped:
                raise Cancelled("Inglenook is closing")
            if folder not in self._queues:
                self._queues[folder] = Downloads(folder, self.hub, on_event=self._on_event)
            return self._queues[folder]

    def _holder(self, download_id: str) -> Downloads:
        for queue in self._all():
            if any(info.id == download_id for info in queue.list()):
                return queue
        raise InvalidRequest("There is no such download", details={"field": "id"})

    def _on_event(self, event: events.DownloadChanged) -> None:
        if event.download.status == "done":
            self._done(self._checked(event.download))
        self._emit(event)

    def _checked(self, download: events.DownloadInfo) -> dict[str, FileRecord]:
        """Records of files whose hashes were compared while they came."""
        found: dict[str, FileRecord] = {}
        for path in download.paths:
            try:
                now = stamp(path)
            except OSError:
                continue
            known = self._records().find(now) or FileRecord(now.size_bytes, repo=download.repo, own=True)
            found[path] = msgspec.structs.replace(known, mtime_ns=now.mtime_ns, sha256=known.expected)
        return found

    def _submit(self, work: Callable[[], T]) -> Future[T]:
        with self._lock:
            if self._stopped:
                ended: Future[T] = Future()
                ended.set_exception(Cancelled("Inglenook is closing"))
                return ended
            if self._threads is None:
                self._threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="hub")
            return self._threads.submit(work)
