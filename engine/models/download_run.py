"""One download from its first byte to its place in the library."""

from __future__ import annotations

import hashlib
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from engine import log
from engine.errors import ChecksumMismatch, DiskFull, EngineError, StorageFailed
from engine.events import DownloadInfo
from engine.message import ErrorInfo
from engine.models import download_state, safe_names
from engine.models.download_parts import FileTransfer, Policy
from engine.models.download_rate import Rate
from engine.models.download_source import FileOnHub, Source
from engine.models.download_state import FolderLock, SavedDownload, SavedFile, damaged_path, part_path
from engine.models.http import Fault, new_client
from engine.models.not_gguf import name_the_kind, shown
from engine.paths import make_private_folder, storage_error, sync_folder

if TYPE_CHECKING:
    import httpx

    from engine.models.hub import Hub

_log = log.get("download")
_BLOCK = 1024 * 1024


def error_info(error: EngineError) -> ErrorInfo:
    return ErrorInfo(error.code, error.message, error.hint, error.details)


class DownloadRun:
    """A download, working or at rest. `start` and `stop` are called by the queue; `info` by anyone.

    Args:
        others_need: bytes that other running downloads still need on the same disk.
        ended: called from the working thread as its last act.
    """

    def __init__(
        self,
        models: Path,
        folder: Path,
        saved: SavedDownload,
        hub: Hub,
        policy: Policy,
        *,
        changed: Callable[[DownloadRun], None],
        ended: Callable[[DownloadRun], None],
        others_need: Callable[[DownloadRun], int],
    ) -> None:
        self.models, self.folder, self.saved, self.hub, self.policy = models, folder, saved, hub, policy
        self._changed, self._ended, self._others_need = changed, ended, others_need
        self.status = saved.status
        self.error = saved.error
        self.rate = Rate(policy.quiet_s)
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._transfer: FileTransfer | None = None
        self._waiting: tuple[ErrorInfo, int] | None = None
        self._verifying = False
        self._save_lock = threading.Lock()
        self.broken = False  # its state on disk cannot be read

    # ------------------------------------------------------------------ what the queue asks

    @property
    def working(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        self._stopped.clear()
        self.rate.restart()
        self.error, self._waiting = None, None
        self.status = "running"
        self._thread = threading.Thread(target=self._run, name=f"download-{self.saved.id}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the work soon; what is there stays. Does not wait."""
        self._stopped.set()

    def join(self, timeout_s: float | None = None) -> bool:
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
        return not self.working

    def rest(self, status: str, error: EngineError | None = None) -> None:
        """Notes a state in which nothing works; where it cannot be stored the one before stays on disk."""
        self.status = status
        self.error = error_info(error) if error else None
        self._save()

    @property
    def bytes_done(self) -> int:
        transfer, done = self._transfer, 0
        for file in self.saved.files:
            if file.status in ("ready", "placed"):
                done += file.size_bytes
            elif transfer is not None and transfer.source_path == file.path and file.status == "part":
                done += transfer.bytes_done
            elif file.status == "part":
                done += download_state.Intervals(file.done).total
        return min(done, self.saved.bytes_total)

    def targets(self) -> tuple[Path, ...]:
        """Where the files will be; no check of the disk."""
        parts = safe_names.repo_parts(self.saved.repo)
        return tuple(self.models.joinpath(*parts, *safe_names.safe_parts(file.path)) for file in self.saved.files)

    def info(self) -> DownloadInfo:
        done, total = self.bytes_done, self.saved.bytes_total
        status, error, speed, eta = self.status, self.error, None, None
        if status == "running":
            self.rate.feed(done)
            waiting = self._waiting
            speed, eta = self.rate.speed_bps(), self.rate.eta_s(total - done)
            if self._verifying or (done >= total and not self._waiting):
                status = "verifying"
            elif waiting and waiting[1] >= done:
                status, error, speed, eta = "stalled", waiting[0], None, None
            elif self.rate.quiet:
                status = "stalled"
        return DownloadInfo(
            id=self.saved.id,
            repo=self.saved.repo,
            label=self.saved.label,
            status=status,  # type: ignore[arg-type]
            bytes_done=done,
            bytes_total=total,
            speed_bps=speed,
            eta_s=eta,
            error=error,
            paths=() if self.broken else tuple(map(str, self.targets())),
        )

    # ------------------------------------------------------------------ the work

    def _run(self) -> None:
        try:
            self._work()
        except DiskFull as error:
            self.rest("paused", self._with_space(error))
        except EngineError as error:
            if not self._stopped.is_set():
                _log.warning("download %s failed: %s", self.saved.id, error.message)
                self.rest("failed", error)
        except Exception as error:  # a bug: it is logged and shown, and the queue goes on
            _log.exception("download %s", self.saved.id)
            self.rest("failed", StorageFailed(f"The download failed ({type(error).__name__})"))
        finally:
            self._transfer, self._verifying = None, False
            self._ended(self)

    def _work(self) -> None:
        lock = FolderLock(self.folder)
        try:
            places = self._places()
            if any(file.status in ("part", "damaged") for file in self.saved.files):
                self.hub.check_online()
                self._check_space()
                self._save()
                with new_client(self.policy.stall_s, self.policy.connections) as client:
                    for number, file in enumerate(self.saved.files):
                        if file.status in ("part", "damaged") and not self._one_file(
                            client, number, file, places[number]
                        ):
                            return
            self._place(places)
        finally:
            lock.release()
        download_state.remove(self.folder)
        self.status, self.error = "done", None
        _log.info("download %s is done: %d files", self.saved.id, len(places))

    def _places(self) -> list[Path]:
        """Where the files go, with links on the way refused. Made again at each start: folders may have changed."""
        parts = safe_names.repo_parts(self.saved.repo)
        places = []
        for file in self.saved.files:
            place = safe_names.place_inside(self.models, (*parts, *safe_names.safe_parts(file.path)))
            make_private_folder(place.parent)
            places.append(safe_names.place_inside(self.models, (*parts, *safe_names.safe_parts(file.path))))
        return places

    def _check_space(self) -> None:
        need = self.saved.bytes_total - self.bytes_done + self.policy.margin_bytes + self._others_need(self)
        free = shutil.disk_usage(self.folder).free
        if free < need:
            raise DiskFull(
                "There is not enough space for this model", details={"needed_bytes": need, "free_bytes": free}
            )

    def _with_space(self, error: DiskFull) -> DiskFull:
        """The error with what is needed and what is free, in numbers and words."""
        need = error.details.get("needed_bytes") or (
            self.saved.bytes_total - self.bytes_done + self.policy.margin_bytes
        )
        free = error.details.get("free_bytes")
        if free is None:
            with suppress(OSError):
                free = shutil.disk_usage(self.folder).free
        words = f"{(free or 0) / 2**30:.1f} of {need / 2**30:.1f} GiB are free"
        return DiskFull(
            f"There is not enough space for this model: {words}.",
            hint="Free some space, then resume the download. What is there is kept.",
            details={**error.details, "needed_bytes": need, "free_bytes": free},
        )

    def _one_file(self, client: httpx.Client, number: int, file: SavedFile, place: Path) -> bool:
        """True when the file is all there and right; False if it was stopped."""
        part = part_path(self.folder, number)
        with suppress(OSError):
            damaged_path(self.folder, number).unlink()
        file.status = "part"
        if not file.done and self._there_already(file, place):
            file.status = "placed"
            self._save()
            return not self._stopped.is_set()
        if self._stopped.is_set():
            return False
        digest = self._fetch(client, file, part)
        if digest is None:
            return False
        self._check(number, file, part, digest)
        file.status = "ready"
        self._save()
        return True

    def _fetch(self, client: httpx.Client, file: SavedFile, part: Path) -> str | None:
        on_hub = FileOnHub(
            url=self.hub.resolve_url(self.saved.repo, self.saved.revision, file.path),
            name=shown(file.path, 120),
            revision=self.saved.revision,
            size_bytes=file.size_bytes,
            sha256=file.sha256,
        )
        source = Source(client, self.hub.access, on_hub, etag=file.etag, stall_s=self.policy.stall_s)

        def checkpoint(ranges: list[tuple[int, int]]) -> None:
            file.done, file.etag = ranges, source.etag
            self._save(strict=True)

        transfer = FileTransfer(
            source,
            part,
            file.done,
            self.policy,
            self._stopped,
            repo=self.saved.repo,
            on_wait=self._wait,
            on_checkpoint=checkpoint,
        )
        transfer.source_path = file.path
        self._transfer = transfer
        self._changed(self)
        return transfer.run()

    def _wait(self, fault: Fault, wait_s: float) -> None:
        asked = fault.retry_after_s
        text = f"{fault.text[:1].upper()}{fault.text[1:]}; next try in {max(1, round(wait_s))} s"
        if asked and asked > wait_s + 1:
            text += f" (it asks for {round(asked)} s)"
        details = {"retry_in_s": round(wait_s, 1), "retry_after_s": asked, "kind": fault.kind, "at": time.time()}
        self._waiting = (ErrorInfo("hub_unreachable", f"{text}.", details=details), self.bytes_done)
        self._changed(self)

    def _check(self, number: int, file: SavedFile, part: Path, digest: str) -> None:
        """Raises ChecksumMismatch or NotAModel; the part is then kept aside as damaged."""
        with part.open("rb") as opened:
            head = opened.read(4096)
        wrong: EngineError | None = name_the_kind(file.path, head, file.size_bytes)
        if file.sha256 is not None:
            wrong = None
            if digest != file.sha256:
                wrong = ChecksumMismatch(
                    f"{shown(file.path, 120)} is damaged: its checksum differs from the hub's",
                    hint="Retry to download this file again. The damaged one is kept aside until then.",
                    details={"expected": file.sha256, "found": digest, "file": shown(file.path)},
                )
        if wrong is None:
            return
        part.replace(damaged_path(self.folder, number))
        file.status, file.done, file.etag = "damaged", [], ""
        raise wrong

    def _there_already(self, file: SavedFile, place: Path) -> bool:
        """The very file lies in the library (an image part that another quantization brought)."""
        if file.sha256 is None or place.is_symlink() or not place.is_file() or place.stat().st_size != file.size_bytes:
            return False
        self._verifying = True
        self._changed(self)
        sha = hashlib.sha256()
        try:
            with place.open("rb", buffering=0) as opened:
                while (block := opened.read(_BLOCK)) and not self._stopped.is_set():
                    sha.update(block)
        except OSError as error:
            raise storage_error(error, f"{shown(place)} cannot be read") from error
        finally:
            self._verifying = False
        return sha.hexdigest() == file.sha256

    def _place(self, places: list[Path]) -> None:
        """Gives all files their names, the first shard last: whoever finds it finds the whole set."""
        for number in reversed(range(len(places))):
            file, part, place = self.saved.files[number], part_path(self.folder, number), places[number]
            if file.status == "placed":
                continue
            try:
                if part.exists():
                    if part.stat().st_size != file.size_bytes:
                        raise OSError("the part has another size than it had")
                    part.replace(place)
                    sync_folder(place.parent)
                elif not place.is_file() or place.stat().st_size != file.size_bytes:
                    raise OSError("the part is gone")
            except OSError as error:
                file.status = "part"
                raise storage_error(error, f"{shown(place)} cannot be put in its place") from error
            file.status = "placed"
        sync_folder(self.folder)

    def _save(self, *, strict: bool = False) -> None:
        with self._save_lock:
            self.saved.status, self.saved.error = self.status, self.error
            try:
                if not self.broken and self.folder.is_dir():
                    download_state.save(self.folder, self.saved)
            except EngineError as error:
                if strict:
                    raise
                _log.warning("the state of a download cannot be stored: %s", error.message)
