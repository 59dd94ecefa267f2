"""What the monitor shows, gathered once for all its panels, and only while one of them can be seen."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QObject, QTimer, Signal
from PySide6.QtWidgets import QWidget

from desktop.bridge import EngineBridge
from desktop.speeds import Speeds
from desktop.views.monitor.runs import N_STEPS, Run, total_now
from engine import events
from engine.message import GenerationRecord, Message
from engine.trace import Trace

if TYPE_CHECKING:
    from engine.service import Engine

#: parts of a trace's time line that stand before the first token
FIRST_PARTS = ("queue", "template", "wait", "cache", "prefill", "sample")
#: panels are told of changes at most so often
_REFRESH_MS = 200
_CLOCK_MS, _OLD_MS = 500, 4000
#: of the plots: half an hour of answers, a quarter of an hour of looks at the computer
_N_SPEEDS, _N_LOOKS = 3600, 900


@dataclass(frozen=True)
class Look:
    """A look at the computer, with the speed and the cache at that time."""

    sample: events.Sampled
    decode: float | None
    prefill: float | None
    kv_used: int | None
    n_ctx: int | None


class MonitorFeed(QObject):
    """Signals:
    changed: there is something new; at most five times a second, and never while nobody watches or it is paused.

    Attributes:
        model: what is loaded, None if nothing is; name: what it is called.
        kv: who holds what of the cache, None where it is not known.
        sample: the last look at the computer. last: how the last answer was made.
        parts: (name, seconds) of its way to the first token, as its trace has them; empty without a trace.
        wants_parts: somebody shows them.
        speeds: (time, tokens a second) while answers were written, None in a gap; reads: the same of each step that
            read a part of a prompt. looks, steps: what was. All oldest first and bounded; times of `time.monotonic`.
        paused: what is shown stays as it is.
    """

    changed = Signal()

    def __init__(
        self,
        engine: Engine,
        bridge: EngineBridge,
        window: QWidget,
        last_answer: Callable[[], Message | None],
        on_screen: Callable[[], int | None],
        live: Callable[[], Mapping[int, Speeds]],
    ) -> None:
        """live: figures of the answers being written, by message, as far as the window has followed them."""
        super().__init__(window)
        self._engine, self._bridge, self._window = engine, bridge, window
        self._last_answer, self.on_screen, self._live = last_answer, on_screen, live
        self._last_id = 0
        self.wants_parts = False
        self.parts: tuple[tuple[str, float], ...] = ()
        self._watchers: set[QObject] = set()
        self._end: Callable[[], None] | None = None
        self._connected = False
        self._stopped = False
        self.paused = False
        self.model: events.ModelInfo | None = None
        self.name = ""
        self.kv: events.KvMap | None = None
        self.sample: events.Sampled | None = None
        self.last: GenerationRecord | None = None
        self.runs: dict[int, Run] = {}
        self.speeds: deque[tuple[float, float | None]] = deque(maxlen=_N_SPEEDS)
        self.reads: deque[tuple[float, float]] = deque(maxlen=_N_SPEEDS)
        self.looks: deque[Look] = deque(maxlen=_N_LOOKS)
        self.steps: deque[float] = deque(maxlen=N_STEPS)
        self._refresh = QTimer(self)
        self._refresh.setSingleShot(True)
        self._refresh.setInterval(_REFRESH_MS)
        self._refresh.timeout.connect(self._tell)
        self._old = QTimer(self)  # looks at this computer have stopped coming: what is shown of it gets old
        self._old.setInterval(_OLD_MS)
        self._old.timeout.connect(self._touch)
        self._clock = QTimer(self)
        self._clock.setInterval(_CLOCK_MS)
        self._clock.timeout.connect(self._on_clock)
        self._signals = (
            (bridge.model_state_changed, self._on_state),
            (bridge.kv_map_changed, self._on_kv),
            (bridge.memory_changed, self._on_memory),
            (bridge.sampled, self._on_sample),
            (bridge.generation_step, self._on_step),
            (bridge.generation_finished, self._on_finished),
        )
        window.installEventFilter(self)

    # ---- who watches

    def watch(self, panel: QObject) -> None:
        """A panel is seen from now on."""
        self._watchers.add(panel)
        self._follow()

    def unwatch(self, panel: QObject) -> None:
        """A panel is hidden. Another one may be shown in its place, which goes on with what is known."""
        self._watchers.discard(panel)
        QTimer.singleShot(0, self, self._follow)

    def stop(self) -> None:
        """Ask for nothing any more."""
        self._stopped = True
        self._follow()

    def set_paused(self, paused: bool) -> None:
        """Hold what is shown; what comes meanwhile is kept and shown afterwards."""
        self.paused = paused
        self.changed.emit()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.WindowStateChange:
            self._follow()
        return super().eventFilter(watched, event)

    def _follow(self) -> None:
        wanted = bool(self._watchers) and not self._stopped and not self._window.isMinimized()
        if wanted == self._connected:
            return
        self._connected = wanted
        if wanted:
            self._begin()
            return
        for signal, slot in self._signals:
            signal.disconnect(slot)
        for timer in (self._refresh, self._clock, self._old):
            timer.stop()
        if self._end is not None:
            self._end()
            self._end = None

    def _begin(self) -> None:
        # what the computer did while nobody looked is not known, so nothing of it may be shown as if it were now;
        # of the answers the window knows how far they are
        self.runs = {number: Run.joined(number, speeds, time.monotonic()) for number, speeds in self._live().items()}
        self.sample, self.kv = None, None
        state = self._engine.model_state
        self.model = state.model if state.status == "ready" else None
        self.name = state.name
        self.find_last()
        for signal, slot in self._signals:
            signal.connect(slot)
        self._end = self._engine.monitor.watch()
        self._old.start()
        if self.runs:
            self._clock.start()
        self._tell()

    # ---- what comes

    def _on_state(self, state: events.ModelState) -> None:
        model = state.model if state.status == "ready" else None
        if model is None or self.model is None or model.path != self.model.path:
            self.kv = None
            self.steps.clear()
        if model is None:
            self.runs.clear()
        self.model, self.name = model, state.name
        self._touch()

    def _on_kv(self, kv: events.KvMap) -> None:
        self.kv = kv
        self._touch()

    def _on_memory(self, memory: events.Memory) -> None:
        if self.kv is None and memory.kv_total_cells:
            self.kv = events.KvMap(n_ctx=memory.kv_total_cells, n_used=memory.kv_used_cells)
            self._touch()

    def _on_sample(self, sample: events.Sampled) -> None:
        self.sample = sample
        kv = self.kv
        used, total = (kv.n_used, kv.n_ctx) if kv is not None else (None, None)
        self._old.start()
        self.looks.append(Look(sample, self.decode_now, self.prefill_now, used, total))
        self._touch()

    def _on_step(self, event: events.GenerationStep) -> None:
        run = self.runs.get(event.message_id)
        if run is None:
            run = self.runs[event.message_id] = Run(event.message_id)
            if not self._clock.isActive():
                self._clock.start()
        now = time.monotonic()
        took = run.add(event.step, now)
        if run.prefill_now is not None:
            self.reads.append((now, run.prefill_now))
        if took is not None:
            self.steps.append(took)
        self._touch()

    def _on_finished(self, event: events.GenerationFinished) -> None:
        self.runs.pop(event.message.id, None)
        self._take_last(event.message)
        if not self.runs:
            self._point()
            self._clock.stop()
            self._point(idle=True)
        self._touch()

    def _take_last(self, answer: Message) -> None:
        if answer.generation is None:
            return
        self.last, self._last_id, self.parts = answer.generation, answer.id, ()
        if self.wants_parts:
            self.ask_parts()

    def find_last(self) -> None:
        """Take the last answer on screen, where it is newer than what was seen: it ended while nobody watched."""
        answer = self._last_answer() if self._connected else None
        if answer is not None and answer.id >= self._last_id and answer.generation != self.last:
            self._take_last(answer)
            self._touch()

    def ask_parts(self) -> None:
        """Have the parts of the last answer's way to the first token read from its trace, where there is one."""
        number = self._last_id
        if not number or self.parts:
            return

        def known(trace: Trace | None) -> None:
            if trace is not None and number == self._last_id:
                self.parts = tuple((p.name, p.took_s) for p in trace.parts() if p.name in FIRST_PARTS)
                self._touch()

        self._bridge.run(self._engine.traces.get(number), known, lambda _: None, owner=self)

    def _on_clock(self) -> None:
        self._point()
        self._touch()

    def _point(self, *, idle: bool = False) -> None:
        """Take down what is written now; a gap in the line where nothing is."""
        rate = None if idle else self.decode_now
        if rate is not None or (self.speeds and self.speeds[-1][1] is not None):
            self.speeds.append((time.monotonic(), rate))

    def _touch(self) -> None:
        if not self.paused and not self._refresh.isActive():
            self._refresh.start()

    def _tell(self) -> None:
        if not self.paused:
            self.changed.emit()

    # ---- what is known

    @property
    def decode_now(self) -> float | None:
        """Tokens a second that all answers together are written with now."""
        return total_now(self.runs.values(), time.monotonic())

    @property
    def prefill_now(self) -> float | None:
        """Tokens a second that prompts are read with now."""
        rates = [run.prefill_now for run in self.runs.values() if run.prefill_now is not None]
        return sum(rates) if rates else None

    @property
    def current(self) -> Run | None:
        """The answer that began last of those being written."""
        return next(reversed(self.runs.values()), None)

    @property
    def sample_age_s(self) -> float | None:
        """How old the last look at the computer is."""
        return None if self.sample is None else max(0.0, time.monotonic() - self.sample.time_s)
