"""The transfer of one file: ranges over several connections, retries, progress that survives a crash, and the hash.

Ranges are handed out from the front, so that the part without gaps grows all the time and its hash with it.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from engine import log
from engine.errors import DownloadFailed, EngineError
from engine.models.download_hash import FollowingHash
from engine.models.download_source import BUFFER_BYTES, Body, Source
from engine.models.download_state import Intervals
from engine.models.http import Fault
from engine.models.hub_errors import fault_error
from engine.paths import storage_error

MIB = 1024 * 1024
_MAX_RESETS = 4
_log = log.get("download")


@dataclass(frozen=True)
class Policy:
    """How downloads behave; times in seconds, sizes in bytes.

    Attributes:
        connections: for files from `parallel_from_bytes` on; smaller ones take one.
        range_s: a range is as long as a connection takes this time for.
        stall_s: a connection that brings less than `drip_bytes` in this time is given up.
        attempts: failures in a row, without `progress_bytes` between them, until a download fails.
        first_wait_s, max_wait_s: back-off, doubling.
        retry_after_cap_s: longest wait that a server can ask for.
        checkpoint_s: how often the progress is made safe on disk.
        margin_bytes: space that a download leaves free.
        quiet_s: with no bytes for this long a download is shown as stalled.
    """

    connections: int = 4
    parallel_from_bytes: int = 64 * MIB
    first_range_bytes: int = 16 * MIB
    max_range_bytes: int = 256 * MIB
    least_range_bytes: int = 4 * MIB
    range_s: float = 10.0
    stall_s: float = 30.0
    drip_bytes: int = 1024
    attempts: int = 8
    first_wait_s: float = 1.0
    max_wait_s: float = 60.0
    retry_after_cap_s: float = 300.0
    progress_bytes: int = 256 * 1024
    checkpoint_s: float = 2.0
    margin_bytes: int = 256 * MIB
    quiet_s: float = 5.0
    report_s: float = 0.25


@dataclass
class Claim:
    """A range that one connection works on: bytes up to `at` are written."""

    at: int
    end: int


class PartMap:
    """Which bytes are there and which are being fetched."""

    def __init__(self, size: int, done: Intervals) -> None:
        self.size, self._done = size, done
        self._claims: list[Claim] = []
        self._lock = threading.Lock()
        self.total, self.prefix = done.total, done.prefix

    def take(self, length: int, share: int, least: int) -> Claim | None:
        """The first range that is neither there nor claimed; near the end small enough for all to share the rest."""
        with self._lock:
            held = Intervals([*self._done.items, *((c.at, c.end) for c in self._claims)])
            gaps = held.missing(self.size)
            if not gaps:
                return None
            left = sum(end - start for start, end in gaps)
            start, end = gaps[0]
            claim = Claim(start, min(end, start + max(least, min(length, -(-left // share)))))
            self._claims.append(claim)
            return claim

    def wrote(self, claim: Claim, n: int) -> None:
        with self._lock:
            self._done.add(claim.at, claim.at + n)
            claim.at += n
            self.total += n
            self.prefix = self._done.prefix

    def release(self, claim: Claim) -> None:
        with self._lock:
            self._claims.remove(claim)

    def snapshot(self) -> list[tuple[int, int]]:
        with self._lock:
            return list(self._done.items)

    @property
    def finished(self) -> bool:
        return self.total >= self.size


class FileTransfer:
    """Fetches one file into its part. `run` blocks; `progress` and `bytes_done` may be read from any thread.

    Args:
        stopped: set from outside to end it; what is there stays.
        on_wait: told of a fault and the seconds until the next try.
        on_checkpoint: ranges that are on disk for certain.
    """

    def __init__(
        self,
        source: Source,
        path: Path,
        done: list[tuple[int, int]],
        policy: Policy,
        stopped: threading.Event,
        *,
        repo: str,
        on_wait: Callable[[Fault, float], None],
        on_checkpoint: Callable[[list[tuple[int, int]]], None],
    ) -> None:
        self.source, self.path, self.policy, self.stopped, self.repo = source, path, policy, stopped, repo
        self.size = source.file.size_bytes
        self.map = PartMap(self.size, Intervals(done))
        self._on_wait, self._on_checkpoint = on_wait, on_checkpoint
        self._hash: FollowingHash | None = None
        self._lock = threading.Lock()
        self._bodies: set[Body] = set()
        self._round_over = threading.Event()
        self._error: BaseException | None = None
        self._reset = False
        self._resets = self._failures = self._range_faults = 0
        self._bytes_seen = self._mark = 0
        self._not_before = 0.0
        self._range_bytes = policy.first_range_bytes
        self.source_path = ""  # name of the file in its download

    @property
    def bytes_done(self) -> int:
        return self.map.total

    def run(self) -> str | None:
        """The file's SHA-256 once all of it is in the part and on disk; None if it was stopped.

        Raises:
            HubUnreachable, HubAccessDenied, HubNotFound, DownloadFailed, DiskFull, StorageFailed
        """
        try:
            self._open_part()
            while True:
                self._hash = FollowingHash(self.path, self.size, lambda: self.map.prefix)
                self._round()
                if self._error is not None:
                    with suppress(EngineError, OSError):  # the first error is the one to tell
                        self._checkpoint()
                    raise self._error
                if self._reset and not self.stopped.is_set():
                    self._hash.stop()
                    self._start_over()
                    continue
                self._checkpoint()
                if not self.map.finished:
                    return None
                return self._hash.digest(self.stopped.is_set)
        except OSError as error:
            raise storage_error(error, "The download cannot be written") from error
        finally:
            if self._hash is not None:
                self._hash.stop()

    # ------------------------------------------------------------------ rounds

    def _open_part(self) -> None:
        with self.path.open("ab"):
            pass
        have = self.path.stat().st_size
        if have > self.size:
            os.truncate(self.path, self.size)

    def _start_over(self) -> None:
        """What is there may belong to another file: fetch it from the beginning."""
        _log.info("a part is fetched from its beginning again")
        self._reset = False
        os.truncate(self.path, 0)
        self.map = PartMap(self.size, Intervals())
        self.source.forget()
        self._on_checkpoint([])

    def _round(self) -> None:
        """Runs connections until the file is complete, or something stops them all."""
        self._round_over.clear()
        several = self.source.ranges and self.size >= self.policy.parallel_from_bytes
        n = self.policy.connections if several else 1
        threads = [threading.Thread(target=self._work, args=(n,), name=f"download-{i}", daemon=True) for i in range(n)]
        for thread in threads:
            thread.start()
        due = time.monotonic() + min(0.5, self.policy.checkpoint_s)
        while any(thread.is_alive() for thread in threads):
            next((thread for thread in threads if thread.is_alive()), threads[0]).join(0.05)
            if self._ending():
                self._interrupt()
            elif time.monotonic() >= due:
                try:
                    self._checkpoint()
                except (EngineError, OSError) as error:
                    self._fail(error)
                due = time.monotonic() + self.policy.checkpoint_s

    def _checkpoint(self) -> None:
        """First the bytes, then the note that they are there."""
        ranges = self.map.snapshot()
        with self.path.open("r+b") as file:
            os.fsync(file.fileno())
        self._on_checkpoint(ranges)

    def _ending(self) -> bool:
        return self.stopped.is_set() or self._round_over.is_set()

    def _interrupt(self) -> None:
        with self._lock:
            bodies = list(self._bodies)
        for body in bodies:
            body.interrupt()

    # ------------------------------------------------------------------ one connection

    def _work(self, n_workers: int) -> None:
        buffer = bytearray(BUFFER_BYTES)
        try:
            with self.path.open("r+b", buffering=0) as file:
                while not self._ending() and not self.map.finished:
                    if not self._turn():
                        continue
                    claim = self._claim(n_workers)
                    if claim is None:  # others have the rest, and may still give some back
                        self.stopped.wait(0.05)
                        continue
                    try:
                        self._fetch(claim, file, buffer)
                    except Fault as fault:
                        if not self._ending():
                            self._failed(fault)
                    finally:
                        self.map.release(claim)
        except OSError as error:
            self._fail(storage_error(error, "The download cannot be written"))
        except BaseException as error:
            self._fail(error)

    def _claim(self, n_workers: int) -> Claim | None:
        if not self.source.ranges or self.size < self.policy.parallel_from_bytes:
            return self.map.take(self.size, 1, self.size)
        return self.map.take(self._range_bytes, n_workers, self.policy.least_range_bytes)

    def _turn(self) -> bool:
        """False while nobody should ask the server."""
        wait_s = self._not_before - time.monotonic()
        if wait_s <= 0:
            return True
        self.stopped.wait(min(wait_s, 0.2))
        return False

    def _fetch(self, claim: Claim, file: BinaryIO, buffer: bytearray) -> None:
        started, first = time.monotonic(), claim.at
        body = self.source.open(claim.at, claim.end)
        with self._lock:
            self._bodies.add(body)
        try:
            end = min(claim.end, claim.at + body.length)
            self._read(body, claim, end, file, buffer)
        finally:
            with self._lock:
                self._bodies.discard(body)
            body.close()
        if claim.at < end and not self._ending():
            raise Fault("cut", f"the server {body.opened.url.host} sent less than it announced")
        took = max(time.monotonic() - started, 0.001)
        wanted = int((claim.at - first) / took * self.policy.range_s)
        self._range_bytes = max(self.policy.first_range_bytes, min(wanted, self.policy.max_range_bytes))

    def _read(self, body: Body, claim: Claim, end: int, file: BinaryIO, buffer: bytearray) -> None:
        file.seek(claim.at)
        window_from, window_bytes = time.monotonic(), 0
        for piece in body.chunks(buffer):
            if self._ending():
                return
            view = memoryview(piece)[: end - claim.at]
            written = 0
            while written < len(view):
                written += file.write(view[written:]) or 0
            self.map.wrote(claim, len(view))
            self._came(len(view))
            if claim.at >= end:
                return
            window_bytes += len(view)
            now = time.monotonic()
            if now - window_from >= self.policy.stall_s:
                if window_bytes < self.policy.drip_bytes:
                    raise Fault("stalled", f"the server {body.opened.url.host} hardly sends anything")
                window_from, window_bytes = now, 0

    def _came(self, n: int) -> None:
        self._bytes_seen += n
        if self._hash is not None:
            self._hash.grown()

    # ------------------------------------------------------------------ what went wrong

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            if self._error is None:
                self._error = error
        self._round_over.set()

    def _failed(self, fault: Fault) -> None:
        """Decides between another try, a fresh start and the end."""
        with self._lock:
            now = time.monotonic()
            if now < self._not_before and fault.retry and fault.kind not in ("whole", "changed", "range"):
                return None  # another connection met the same trouble a moment ago
            if self.source.ranges and self._bytes_seen - self._mark >= self.policy.progress_bytes:
                self._failures = 0
            self._mark = self._bytes_seen
            self._failures += 1
            _log.info("a try failed (%s, %d): %s", fault.kind, self._failures, fault.text)
            wait_s = self._wait_for(fault)
        if not fault.retry or self._failures > self.policy.attempts:
            return self._fail(_final(fault, self.repo))
        if fault.kind == "range":
            self._range_faults += 1
            self.source.drop_link(None)
        if fault.kind in ("whole", "changed") or self._range_faults > 1:
            self._resets += 1
            self._range_faults = 0
            self.source.ranges = self.source.ranges and fault.kind == "changed"
            if self._resets > _MAX_RESETS:
                return self._fail(_final(fault, self.repo))
            wait_s = 0.0 if self._resets == 1 else wait_s
            return self._wait_and(fault, wait_s, reset=True)
        # without ranges every try begins at the first byte
        return self._wait_and(fault, wait_s, reset=not self.source.ranges)

    def _wait_for(self, fault: Fault) -> float:
        if fault.kind == "expired" and self._failures == 1:
            return 0.0
        doubled = self.policy.first_wait_s * 2.0 ** min(self._failures - 1, 20)
        wait_s: float = min(doubled, self.policy.max_wait_s) * random.uniform(0.75, 1.0)
        if fault.retry_after_s is not None:
            wait_s = max(wait_s, min(fault.retry_after_s, self.policy.retry_after_cap_s))
        return wait_s

    def _wait_and(self, fault: Fault, wait_s: float, *, reset: bool) -> None:
        if wait_s:
            self._not_before = time.monotonic() + wait_s
            self._on_wait(fault, wait_s)
        if reset:
            self._reset = True
            self._round_over.set()


def _final(fault: Fault, repo: str) -> EngineError:
    if fault.kind in ("lie", "whole", "changed", "range", "other", "encoded", "redirect", "refused"):
        return DownloadFailed(
            f"The download cannot go on: {fault.text}",
            hint="Try again later. If it stays so, the hub or something on the way to it is broken.",
            details={"kind": fault.kind, "status": fault.status, "repo": repo},
        )
    return fault_error(fault, repo)
