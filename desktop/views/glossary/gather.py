"""Gathers what live sentences are made of, while the glossary is on screen, off the GUI thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from desktop.bridge import EngineBridge
from desktop.model_control import ModelControl
from desktop.tasks import Tasks
from desktop.views.glossary.facts import EXAMPLE, Facts, Known, facts_of

if TYPE_CHECKING:
    from engine.cores import Cores
    from engine.events import Memory, Tokenized
    from engine.hardware import Ram
    from engine.message import GenerationRecord
    from engine.models.gguf_header import GgufHeader
    from engine.service import Engine


class Gatherer(QObject):
    """Signals:
    changed: more is known now, or something else.
    """

    changed = Signal()

    def __init__(
        self,
        engine: Engine,
        bridge: EngineBridge,
        tasks: Tasks,
        control: ModelControl,
        last: Callable[[], tuple[GenerationRecord | None, Memory | None]],
        parent: QObject | None = None,
    ) -> None:
        """`last`: record of the last answer on screen, and what the model's process last said of its memory."""
        super().__init__(parent)
        self._engine, self._bridge, self._tasks = engine, bridge, tasks
        self._control, self._last = control, last
        self._known = Known()
        self._path = ""
        self._number = 0
        self._on = False
        for signal in (bridge.model_state_changed, bridge.memory_changed, bridge.generation_finished):
            signal.connect(self._on_event)

    def set_on(self, on: bool) -> None:
        """Look at everything now and at each change, or at nothing."""
        self._on = on
        if on:
            self.renew()

    @property
    def known(self) -> Known:
        """All that is known now."""
        return self._known

    def facts(self) -> Facts:
        """The same as words and figures."""
        return facts_of(self._known)

    def _on_event(self, _: object) -> None:
        if self._on:
            self.renew()

    def renew(self) -> None:
        """Take what is at hand, and ask for the rest."""
        state = self._control.state
        record, memory = self._last()
        ready = state.status == "ready" and state.model is not None
        path = state.path if ready else ""
        if path != self._path:
            self._path = path
            self._number += 1
            self._known = Known(ram=self._known.ram, cores=self._known.cores)
            if path:
                self._ask_model(path, self._number)
        self._known = replace(
            self._known,
            model=state.model if ready else None,
            name=self._control.name_of(state) if ready else "",
            memory=memory if ready else None,
            record=record,
            settings=self._engine.settings,
        )
        pid = self._engine.worker_pid if ready else None
        self._tasks.run(lambda: self._look(pid), self._on_look, lambda error: None, owner=self)
        self.changed.emit()

    def _look(self, pid: int | None) -> tuple[Ram, Cores, tuple[int, int] | None]:
        from engine import cores, hardware

        return hardware.ram(), self._known.cores or cores.here(), process_bytes(pid)

    def _on_look(self, found: tuple[Ram, Cores, tuple[int, int] | None]) -> None:
        ram, cores, worker = found
        self._known = replace(self._known, ram=ram, cores=cores, worker=worker)
        self.changed.emit()

    def _ask_model(self, path: str, number: int) -> None:
        """The header of its file, and how it cuts the example."""

        def read() -> tuple[GgufHeader, ...]:
            from engine.models import gguf

            return tuple(gguf.read_header(part, max_array=4096) for part in gguf.shard_paths(path))

        def on_headers(headers: tuple[GgufHeader, ...]) -> None:
            if number == self._number:
                self._known = replace(self._known, headers=headers)
                self.changed.emit()

        def on_tokens(example: Tokenized) -> None:
            if number == self._number:
                self._known = replace(self._known, example=example)
                self.changed.emit()

        # a model that cannot be asked has fewer live sentences; nothing else is lost
        self._tasks.run(read, on_headers, lambda error: None, owner=self)
        self._bridge.run(self._engine.tokenize(EXAMPLE), on_tokens, lambda error: None, owner=self)


def process_bytes(pid: int | None) -> tuple[int, int] | None:
    """Resident and private bytes of a process; None if there is none, 0 private where the system does not tell."""
    import psutil

    if pid is None:
        return None
    try:
        memory = psutil.Process(pid).memory_info()
    except (psutil.Error, OSError):
        return None
    shared = getattr(memory, "shared", None)
    private = memory.rss - shared if shared is not None else getattr(memory, "private", 0)
    return int(memory.rss), int(private)
