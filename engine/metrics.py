"""Looks at processes, processor, main memory and devices, on a thread that runs only while somebody watches.

What it finds goes out as `events.Sampled`. While somebody watches, the model's process reports its KV cache, too
(`events.KvMap`).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from engine import events, hardware, log
from engine.gpu_watch import GpuWatch
from engine.submitted import new_id
from engine.worker import protocol

#: seconds between two looks, and between two reports of the KV cache
INTERVAL_S, CACHE_S = 1.0, 0.25
_log = log.get("metrics")


class ProcessWatch:
    """Memory and processor time of one process, look after look."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._process: psutil.Process | None = None
        self._cpu: tuple[float, float] | None = None  # (when, seconds of processor time)

    def look(self) -> events.ProcessFigures | None:
        """None: there is no such process, or it may not be looked at."""
        try:
            if self._process is None:
                self._process = psutil.Process(self.pid)
            resident = int(self._process.memory_info().rss)
            times = self._process.cpu_times()
        except (psutil.Error, OSError, ValueError):
            return None
        now, spent = time.monotonic(), float(times.user + times.system)
        before, self._cpu = self._cpu, (now, spent)
        percent = None
        if before is not None and now > before[0]:
            percent = max(0.0, (spent - before[1]) / (now - before[0]) * 100)
        private, mapped = self._parts(resident)
        return events.ProcessFigures(resident, private, mapped, percent)

    def _parts(self, resident: int) -> tuple[int | None, int | None]:
        """(private, mapped) bytes of what is resident."""
        kinds: dict[str, int] = {}
        try:
            for line in Path(f"/proc/{self.pid}/status").read_text(encoding="ascii", errors="replace").splitlines():
                name, _, rest = line.partition(":")
                if name in ("RssAnon", "RssFile", "RssShmem"):
                    kinds[name] = int(rest.split()[0]) * 1024
        except (OSError, ValueError, IndexError):
            kinds = {}
        if "RssAnon" in kinds:
            return kinds["RssAnon"], kinds.get("RssFile", 0) + kinds.get("RssShmem", 0)
        _, private = hardware.process_memory(self.pid)
        return (private, max(0, resident - private)) if private else (None, None)


class Sampler:
    """One look at everything. Not for the window's thread: it reads from the system."""

    def __init__(self, gpus: GpuWatch | None = None) -> None:
        self.gpus = gpus or GpuWatch()
        self._window = ProcessWatch(os.getpid())
        self._worker: ProcessWatch | None = None
        self._times: tuple[float, float] | None = None  # processor time of the machine: (all, idle)

    def look(self, worker_pid: int | None) -> events.Sampled:
        if worker_pid is None or (self._worker is not None and self._worker.pid != worker_pid):
            self._worker = None
        if worker_pid is not None and self._worker is None:
            self._worker = ProcessWatch(worker_pid)
        ram = hardware.ram()
        known = ram.total_bytes > 0
        return events.Sampled(
            time_s=time.monotonic(),
            window=self._window.look(),
            worker=self._worker.look() if self._worker is not None else None,
            cpu_percent=self._cpu_percent(),
            n_cores=os.cpu_count() or 1,
            ram_total_bytes=ram.total_bytes if known else None,
            ram_available_bytes=ram.available_bytes if known else None,
            ram_limited_by=ram.limited_by,
            gpus=self.gpus.look(worker_pid),
        )

    def _cpu_percent(self) -> float | None:
        try:
            times: Any = psutil.cpu_times()
        except Exception:  # unreadable /proc in a sandbox: psutil raises OSError, ValueError or its own kinds
            return None
        # guest time is counted in user time already
        parts = {name: getattr(times, name) for name in times._fields if not name.startswith("guest")}
        now = (float(sum(parts.values())), float(parts.get("idle", 0.0) + parts.get("iowait", 0.0)))
        before, self._times = self._times, now
        if before is None or now[0] <= before[0]:
            return None
        return min(100.0, max(0.0, 100.0 * (1.0 - (now[1] - before[1]) / (now[0] - before[0]))))


class Monitor:
    """Who watches is told once a second what `Sampler` finds.

    Args:
        emit: takes the events; called from the monitor's thread.
        tell: sends a request to the model's process that nothing answers; does nothing without one.
        worker_pid: gives the process id of the model's process, None without one.
        sampler: what looks; made when somebody watches for the first time where None is given.
    """

    def __init__(
        self,
        emit: Callable[[events.Event], None],
        tell: Callable[[protocol.Request], None],
        worker_pid: Callable[[], int | None],
        sampler: Callable[[], Sampler] = Sampler,
    ) -> None:
        self._emit, self._tell, self._worker_pid = emit, tell, worker_pid
        self._make = sampler
        self._sampler: Sampler | None = None
        self._lock = threading.Lock()
        self._watchers = 0
        self._ended = threading.Event()

    @property
    def watched(self) -> bool:
        return self._watchers > 0

    def watch(self) -> Callable[[], None]:
        """Begin to look, until the function that is returned is called. Several may watch at once. Any thread."""
        with self._lock:
            self._watchers += 1
            if self._watchers == 1:
                self._ended = threading.Event()
                threading.Thread(target=self._run, args=(self._ended,), name="metrics", daemon=True).start()
                self._ask_cache(CACHE_S)
        done = threading.Event()

        def end() -> None:
            with self._lock:
                if done.is_set():
                    return
                done.set()
                self._watchers -= 1
                if self._watchers == 0:
                    self._ended.set()
                    self._ask_cache(0)

        return end

    def see(self, event: events.Event) -> None:
        """To be called with every event of the engine: a new process has to be told that it is watched."""
        if not self._watchers:
            return
        if isinstance(event, events.ModelState) and event.status == "ready":
            self._ask_cache(CACHE_S)
        elif isinstance(event, events.Resumed) and self._sampler is not None:
            self._sampler.gpus.renew()

    def stop(self) -> None:
        """Look no more. Idempotent."""
        with self._lock:
            self._ended.set()

    def _ask_cache(self, interval_s: float) -> None:
        self._tell(protocol.Watch(id=new_id(), interval_s=interval_s))

    def _run(self, ended: threading.Event) -> None:
        sampler = self._sampler = self._sampler or self._make()
        while not ended.is_set():
            try:
                self._emit(sampler.look(self._worker_pid()))
            except Exception:  # whatever a system comes up with: what is shown gets old, and is shown so
                _log.exception("a look at the computer failed")
            ended.wait(INTERVAL_S)
        sampler.gpus.close()
