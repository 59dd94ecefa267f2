"""Plans for the window: will it fit, and how. Nothing is computed on the GUI thread.

One thread answers by formula, in the order of asking; of what one asker wants several times in a row only the last is
worked out. Another thread asks llama.cpp itself, when the hand rests.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from PySide6.QtCore import QObject, Signal

from desktop.bridge import EngineBridge
from engine.errors import EngineError

if TYPE_CHECKING:
    from engine.fit.plan_records import FitPlan, Machine, Wishes
    from engine.models.gguf_header import GgufHeader

T = TypeVar("T")
_log = logging.getLogger("inglenook.desktop")


@dataclass(frozen=True, eq=False)
class Subject:
    """A model that a plan is made for.

    Attributes:
        header: of its first file. more: of the other parts of a set.
        quantization: label; size_bytes: of all its files.
        path: the file where it is on this computer; empty: it is not here yet.
        adapters: headers of LoRA adapters that are loaded with it.
    """

    header: GgufHeader
    quantization: str = ""
    size_bytes: int = 0
    more: tuple[GgufHeader, ...] = ()
    path: str = ""
    adapters: tuple[GgufHeader, ...] = ()


class Fitter(Protocol):
    """What the desk asks; the engine's own is `EngineFitter`. All of it may take its time."""

    def machine(self) -> Machine: ...
    def plan(self, subject: Subject, machine: Machine, wishes: Wishes) -> FitPlan: ...
    def probe(self, subject: Subject, machine: Machine, wishes: Wishes) -> FitPlan: ...


@dataclass
class _Asker:
    """What one asker has asked: the question at work, the one that waits, and the oldest that still interests."""

    running: bool = False
    waiting: Callable[[], None] | None = None
    number: int = 0
    oldest: int = 0


class FitDesk(QObject):
    """Signals:
    machine_changed: `machine` is another now.
    """

    machine_changed = Signal()

    def __init__(self, bridge: EngineBridge, fitter: Fitter, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._bridge = bridge
        self._fitter = fitter
        self._formula = ThreadPoolExecutor(max_workers=1, thread_name_prefix="fit")
        self._oracle = ThreadPoolExecutor(max_workers=1, thread_name_prefix="fit-probe")
        self._askers: dict[str, _Asker] = {}
        self._closed = False
        self._looking = False
        self._outdated = False  # the survey under way began before `renew`
        self.machine: Machine | None = None

    def close(self) -> None:
        """Answer nothing more."""
        self._closed = True
        for pool in (self._formula, self._oracle):
            pool.shutdown(wait=False, cancel_futures=True)

    # ---- the machine

    def look(self) -> None:
        """Survey the devices anew; `machine_changed` follows where something is different."""
        if self._closed or self._looking:
            return
        self._looking = True
        self._bridge.run(self._oracle.submit(self._fitter.machine), self._on_machine, self._on_no_machine, owner=self)

    def renew(self) -> None:
        """Forget what is known of the devices and survey them anew; nothing where nobody has asked for them yet."""
        if self._looking:
            self._outdated = True
        elif self.machine is not None:
            self.machine = None
            self.look()

    def _look_is_over(self) -> None:
        self._looking = False
        outdated, self._outdated = self._outdated, False
        if outdated:
            self.machine = None
            self.look()

    def _on_machine(self, machine: Machine) -> None:
        self._look_is_over()
        if self._looking:
            return
        if machine != self.machine:
            self.machine = machine
            self.machine_changed.emit()

    def _on_no_machine(self, error: BaseException) -> None:
        self._look_is_over()
        _log.warning("the devices cannot be surveyed: %s", error)

    # ---- plans

    def plan(
        self,
        asker: str,
        subject: Subject,
        wishes: Wishes,
        done: Callable[[FitPlan], None],
        failed: Callable[[BaseException], None] | None = None,
    ) -> bool:
        """Plan by formula. A later question of the same asker replaces one that has not been begun.

        Returns False where the machine is not known yet: ask again after `machine_changed`.
        """
        machine = self.machine
        if machine is None or self._closed:
            return False
        self._ask(self._formula, asker, lambda: self._fitter.plan(subject, machine, wishes), done, failed)
        return True

    def probe(
        self,
        asker: str,
        subject: Subject,
        wishes: Wishes,
        done: Callable[[FitPlan], None],
        failed: Callable[[BaseException], None] | None = None,
    ) -> bool:
        """The same in llama.cpp's own figures; tenths of a second."""
        machine = self.machine
        if machine is None or self._closed:
            return False
        self._ask(self._oracle, f"probe {asker}", lambda: self._fitter.probe(subject, machine, wishes), done, failed)
        return True

    def plan_each(
        self, subjects: Sequence[Subject], wishes: Wishes, done: Callable[[int, FitPlan | None], None]
    ) -> None:
        """Plan many; `done(place, plan)` comes for each, None where it cannot be judged."""
        machine = self.machine
        if machine is None or self._closed:
            return
        for place, subject in enumerate(subjects):

            def work(subject: Subject = subject) -> FitPlan:
                return self._fitter.plan(subject, machine, wishes)

            def found(plan: FitPlan, place: int = place) -> None:
                done(place, plan)

            def failed(error: BaseException, place: int = place) -> None:
                _note(error)
                done(place, None)

            self._bridge.run(self._formula.submit(work), found, failed, owner=self)

    def forget(self, asker: str) -> None:
        """Drop what an asker still waits for."""
        for name in (asker, f"probe {asker}"):
            if name in self._askers:
                state = self._askers[name]
                state.waiting = None
                state.oldest = state.number + 1

    def run(
        self,
        work: Callable[[], T],
        done: Callable[[T], None],
        failed: Callable[[BaseException], None] | None = None,
        *,
        owner: QObject | None = None,
    ) -> None:
        """Run something small that belongs to plans (reading a header) on the formula's thread."""
        if not self._closed:
            self._bridge.run(self._formula.submit(work), done, failed or _note, owner=owner or self)

    def _ask(
        self,
        pool: ThreadPoolExecutor,
        name: str,
        work: Callable[[], T],
        done: Callable[[T], None],
        failed: Callable[[BaseException], None] | None,
    ) -> None:
        asker = self._askers.setdefault(name, _Asker())
        asker.number += 1
        number = asker.number
        newest_only = pool is self._oracle  # by formula, each answer is shown while the hand still moves

        def start() -> None:
            asker.running = True
            future: Future[T] = pool.submit(work)
            self._bridge.run(future, lambda plan: finish(plan, None), lambda error: finish(None, error), owner=self)

        def finish(plan: T | None, error: BaseException | None) -> None:
            asker.running = False
            follow, asker.waiting = asker.waiting, None
            if follow is not None and not self._closed:
                follow()
            if number < asker.oldest or (newest_only and number != asker.number):
                return
            if error is not None:
                (failed or _note)(error)
            elif plan is not None:
                done(plan)

        if asker.running:
            asker.waiting = start
        else:
            start()


def _note(error: BaseException) -> None:
    if isinstance(error, EngineError):
        _log.info("no plan: %s", error)
    else:
        _log.warning("no plan", exc_info=error)


def read_subject(path: str | Path) -> Subject:
    """The subject of a model on this computer. Reads headers only.

    Raises:
        the errors of `engine.models.gguf.check_file`.
    """
    from engine.models import gguf

    first = gguf.shard_paths(path)[0]
    header = gguf.check_file(first)
    rest = tuple(gguf.read_header(part, max_array=4096) for part in gguf.shard_paths(first)[1:])
    summary = gguf.summarize(header)
    return Subject(header, summary.quantization, summary.size_bytes, rest, str(first))
