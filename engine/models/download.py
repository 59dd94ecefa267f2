"""The queue of downloads: what is wanted, what runs, what waits for the user.

Nothing here reaches the network by itself: downloads that were under way when the program ended come back as paused,
and go on with `resume` from the byte where they were.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from engine import log
from engine.errors import Cancelled, EngineError, InvalidRequest
from engine.events import DownloadChanged, DownloadInfo
from engine.message import ErrorInfo
from engine.models import download_state, safe_names
from engine.models.download_parts import Policy
from engine.models.download_run import DownloadRun
from engine.models.download_state import FolderLock, SavedDownload, SavedFile
from engine.models.hub_names import HubFile, ModelSet, is_gguf
from engine.models.not_gguf import shown
from engine.paths import make_private_folder

if TYPE_CHECKING:
    from engine.models.hub import Hub

__all__ = ["DownloadInfo", "Downloads", "Policy"]

#: downloads that run at once; each has several connections of its own
MAX_RUNNING = 2
_log = log.get("download")


class Downloads:
    """Downloads into one models folder. All methods return at once and may be called from any thread.

    A finished model lies at `<folder>/<owner>/<repository>/<path in it>`. Unfinished ones lie in
    `<folder>/.incomplete/` under names that no list of models takes for one.

    Args:
        on_event: gets `DownloadChanged`, from threads of this class. The last one of a download that was cancelled has
            the status "failed" and an error with the code "cancelled".
    """

    def __init__(
        self,
        folder: Path,
        hub: Hub,
        *,
        on_event: Callable[[DownloadChanged], None] | None = None,
        policy: Policy | None = None,
        max_running: int = MAX_RUNNING,
    ) -> None:
        self.folder, self.hub, self.policy, self.max_running = folder, hub, policy or Policy(), max_running
        self._on_event = on_event
        self._lock = threading.RLock()
        self._runs: dict[str, DownloadRun] = {}
        self._cancelled: set[str] = set()
        self._discarding: set[str] = set()
        self._told: dict[str, DownloadInfo] = {}
        self._closed = False
        self._ticker: threading.Thread | None = None
        self._tick = threading.Event()
        self._load()

    # ------------------------------------------------------------------ what front ends call

    def add(self, repo: str, revision_sha: str, model: ModelSet, *, extras: Sequence[HubFile] = ()) -> DownloadInfo:
        """Puts a model into the queue. The same model again gives (and resumes) the download that is there.

        Args:
            revision_sha: the commit that the files were listed at.
            extras: files of `model.mmproj` or `model.draft` to bring with it.

        Raises:
            UnsafeName: of a file or the repository, before anything is written.
            InvalidRequest: no commit, an incomplete set, a file that is no GGUF.
            StorageFailed, DiskFull
        """
        files = _checked_files(repo, revision_sha, model, extras)
        with self._lock:
            self._check_open()
            same = next((run for run in self._runs.values() if _same(run.saved, repo, revision_sha, files)), None)
            if same is not None and same.status != "done":
                return self.resume(same.saved.id) if same.status in ("paused", "failed") else same.info()
            if same is not None:
                del self._runs[same.saved.id]
            taken = {
                target for run in self._runs.values() if run.status != "done" for target in _target_names(run.saved)
            }
            saved = SavedDownload(
                id=secrets.token_hex(6),
                repo=repo,
                revision=revision_sha,
                label=model.label,
                endpoint=self.hub.endpoint,
                files=files,
                added=time.time(),
            )
            if clash := taken & _target_names(saved):
                raise InvalidRequest(
                    f"Another download brings {shown(min(clash))} already",
                    hint="Wait until it is done, or cancel it.",
                    details={"field": "model"},
                )
            make_private_folder(self.folder)
            run = self._run(download_state.create(self.folder, saved), saved)
            self._start_next()
        self._report(run)
        return run.info()

    def pause(self, download_id: str) -> DownloadInfo:
        """Stops it; what is there is kept. Raises InvalidRequest (unknown id)."""
        with self._lock:
            run = self._find(download_id)
            if run.status in ("queued", "running"):
                run.stop()
                run.rest("paused")
                self._start_next()
        self._report(run)
        return run.info()

    def resume(self, download_id: str) -> DownloadInfo:
        """Puts it back into the queue, at the byte where it was. Raises InvalidRequest (unknown id)."""
        with self._lock:
            self._check_open()
            run = self._find(download_id)
            if run.broken:
                return run.info()
            if run.status in ("paused", "failed"):
                run.rest("queued")
                self._start_next()
        self._report(run)
        return run.info()

    def retry(self, download_id: str) -> DownloadInfo:
        """`resume` after a failure: a damaged file is fetched anew, all others stay. Raises InvalidRequest."""
        return self.resume(download_id)

    def resume_all(self) -> None:
        """Resumes what was interrupted or paused; failed ones stay as they are."""
        for info in self.list():
            if info.status == "paused":
                self.resume(info.id)

    def cancel(self, download_id: str) -> None:
        """Stops it and deletes its parts; a finished one only leaves the list. Raises InvalidRequest (unknown id)."""
        with self._lock:
            run = self._find(download_id)
            run.stop()
            if run.status != "done":
                self._cancelled.add(download_id)
                run.status = "paused"  # nothing starts it any more
                if not run.working:
                    threading.Thread(target=self._discard, args=(run,), name="download-cancel", daemon=True).start()
                return
            del self._runs[download_id]
            self._told.pop(download_id, None)

    def list(self) -> list[DownloadInfo]:
        """All downloads, in the order they were added; finished ones until the program ends."""
        with self._lock:
            runs = [run for key, run in self._runs.items() if key not in self._cancelled]
        return [run.info() for run in runs]

    def close(self, timeout_s: float = 3.0) -> None:
        """Stops all work; what runs comes back as paused the next time. Idempotent."""
        with self._lock:
            self._closed = True
            runs = list(self._runs.values())
            for run in runs:
                run.stop()
        self._tick.set()
        deadline = time.monotonic() + timeout_s
        for run in runs:
            run.join(max(0.0, deadline - time.monotonic()))
        if self._ticker is not None and self._ticker is not threading.current_thread():
            self._ticker.join(max(0.1, deadline - time.monotonic()))

    # ------------------------------------------------------------------ the queue

    def _load(self) -> None:
        for folder, saved in download_state.load_all(self.folder):
            broken = saved is None
            if saved is None:
                saved = SavedDownload(
                    id=folder.name, repo="", revision="", label=shown(folder.name), endpoint="", files=[]
                )
                saved.status = "failed"
                saved.error = download_state.why_unusable(folder)
            elif saved.status != "failed":
                # also what was running: the network waits for the user
                saved.status = "paused"
            run = self._run(folder, saved)
            run.broken = broken

    def _run(self, folder: Path, saved: SavedDownload) -> DownloadRun:
        run = DownloadRun(
            self.folder,
            folder,
            saved,
            self.hub,
            self.policy,
            changed=self._report,
            ended=self._ended,
            others_need=self._others_need,
        )
        self._runs[saved.id] = run
        return run

    def _check_open(self) -> None:
        if self._closed:
            raise Cancelled("The downloads are closed")

    def _find(self, download_id: str) -> DownloadRun:
        run = self._runs.get(download_id)
        if run is None or download_id in self._cancelled:
            raise InvalidRequest("There is no such download", details={"field": "id"})
        return run

    def _start_next(self) -> None:
        """Call with the lock held."""
        if self._closed:
            return
        running = sum(run.working for run in self._runs.values())
        for run in self._runs.values():
            if running >= self.max_running:
                break
            if run.status == "queued" and not run.working:
                if run.saved.endpoint != self.hub.endpoint:
                    run.rest("failed", _other_hub(run.saved.endpoint))
                    continue
                run.start()
                running += 1
        if running and (self._ticker is None or not self._ticker.is_alive()):
            self._ticker = threading.Thread(target=self._report_often, name="download-report", daemon=True)
            self._ticker.start()

    def _ended(self, run: DownloadRun) -> None:
        """From the run's own thread, as its last act."""
        self._report(run)
        threading.Thread(target=self._after, args=(run,), name="download-next", daemon=True).start()

    def _after(self, run: DownloadRun) -> None:
        run.join()
        if run.saved.id in self._cancelled:  # also when that came with the very last report
            self._discard(run)
        with self._lock:
            self._start_next()

    def _discard(self, run: DownloadRun) -> None:
        """Deletes a cancelled download; one that cannot be deleted stays in the list and says why."""
        with self._lock:
            if run.saved.id in self._discarding or run.saved.id not in self._runs:
                return
            self._discarding.add(run.saved.id)
        error: EngineError | None = None
        try:
            if not run.broken and run.folder.is_dir():
                FolderLock(run.folder).release()  # another program may be at it
            download_state.remove(run.folder)
        except EngineError as caught:
            error = caught
        with self._lock:
            self._discarding.discard(run.saved.id)
            self._cancelled.discard(run.saved.id)
            if error is None:
                del self._runs[run.saved.id]
                self._told.pop(run.saved.id, None)
        if error is not None:
            run.rest("failed", error)
            self._report(run)
            return
        if run.status != "done":  # done all the same if the word came too late
            run.status, run.error = "failed", ErrorInfo("cancelled", "The download was cancelled.")
        self._emit(run.info())

    def _others_need(self, run: DownloadRun) -> int:
        with self._lock:
            others = [other for other in self._runs.values() if other is not run and other.working]
        return sum(other.saved.bytes_total - other.bytes_done for other in others)

    # ------------------------------------------------------------------ reports

    def _report_often(self) -> None:
        while not self._closed:
            with self._lock:
                runs = [run for run in self._runs.values() if run.working]
                if not runs:
                    self._ticker = None
                    return
            for run in runs:
                if run.working and run.saved.id not in self._cancelled:
                    self._report(run)
            self._tick.wait(self.policy.report_s)

    def _report(self, run: DownloadRun) -> None:
        info = run.info()
        with self._lock:
            if run.saved.id in self._cancelled or run.saved.id not in self._runs or self._told.get(info.id) == info:
                return
            self._told[info.id] = info
        self._emit(info)

    def _emit(self, info: DownloadInfo) -> None:
        if self._on_event is None:
            return
        try:
            self._on_event(DownloadChanged(download=info))
        except Exception:  # a listener's trouble must not end a download
            _log.exception("a listener of the downloads failed")


def _checked_files(repo: str, revision: str, model: ModelSet, extras: Sequence[HubFile]) -> list[SavedFile]:
    safe_names.repo_parts(repo)
    if not safe_names.is_commit(revision):
        raise InvalidRequest("A download is bound to a commit", details={"field": "revision_sha"})
    if not model.files or not model.complete:
        raise InvalidRequest(
            f"{shown(model.name, 120)} lacks some of its parts on the hub",
            hint="Choose another quantization.",
            details={"field": "model"},
        )
    files = [*model.files, *extras]
    for file in files:
        safe_names.safe_parts(file.path)
        if not is_gguf(file.path) or file.size_bytes <= 0:
            raise InvalidRequest(f"{shown(file.path, 120)} is no GGUF file", details={"field": "model"})
    names = [file.path.casefold() for file in files]
    if len(set(names)) != len(names):
        raise InvalidRequest("Two files of this model have one name", details={"field": "model"})
    return [
        SavedFile(file.path, file.size_bytes, file.sha256 if safe_names.is_sha256(file.sha256 or "") else None)
        for file in files
    ]


def _same(saved: SavedDownload, repo: str, revision: str, files: Sequence[SavedFile]) -> bool:
    return (saved.repo, saved.revision) == (repo, revision) and [f.path for f in saved.files] == [f.path for f in files]


def _target_names(saved: SavedDownload) -> set[str]:
    return {f"{saved.repo}/{file.path}".casefold() for file in saved.files}


def _other_hub(endpoint: str) -> EngineError:
    return InvalidRequest(
        f"This download came from another hub ({shown(endpoint, 100)})",
        hint="Choose that hub again, or cancel the download.",
        details={"field": "endpoint"},
    )
