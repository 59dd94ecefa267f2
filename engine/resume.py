"""After a sleep of the computer: it is noticed, the devices are asked for again, and the model's process too.

Drivers may lose a device while the computer sleeps. llama.cpp says nothing of it until it computes there, so what
is really left is found out in a process that ends at once.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable

from engine import events, log
from engine.fit import machine
from engine.fit.before_load import measured_by_device
from engine.fit.placement import DeviceSpec
from engine.fit.plan_records import Machine
from engine.model_host import ModelHost, new_id
from engine.worker import protocol

TICK_S = 5.0
#: a wall clock that moved this many seconds more than the steady one between two checks: it slept, or was set
WALL_JUMP_S = 15.0
#: with the two clocks of Linux it is exact; less than this is no sleep that a driver would notice
_EXACT_JUMP_S = 1.0
PING_S = 5.0
#: seconds that a driver gets to bring a device back before it is called gone
CONFIRM_S = 5.0
_STOP_S = 1.0
_log = log.get("resume")


def _sleep_clock() -> tuple[Callable[[], float], float]:
    """A clock that moves on only while the computer sleeps, in seconds, and the step from which it is believed."""
    if sys.platform == "linux":
        return lambda: time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC), _EXACT_JUMP_S
    return lambda: time.time() - time.monotonic(), WALL_JUMP_S


class SleepWatch:
    """Notices that the computer has slept, by looking at a clock every few seconds.

    Args:
        on_resume: called with the seconds slept, on the watch's own thread. It may take its time: a sleep meanwhile
            is noticed after it. If it raises, that is logged and the watch goes on.
        clock: seconds slept so far, from any zero; None: the system's.
        jump_s: a step of the clock of more than this is a sleep. tick_s: seconds between two looks.
    """

    def __init__(
        self,
        on_resume: Callable[[float], None],
        *,
        clock: Callable[[], float] | None = None,
        jump_s: float | None = None,
        tick_s: float = TICK_S,
    ) -> None:
        system_clock, system_jump_s = _sleep_clock()
        self._on_resume = on_resume
        self._clock = clock or system_clock
        self._jump_s = system_jump_s if jump_s is None else jump_s
        self._tick_s = tick_s
        self._seen = self._clock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sleep-watch", daemon=True)

    def start(self) -> None:
        """Begin to watch. May be called again; after `stop` it does nothing."""
        if self._thread.ident is None and not self._ended.is_set():
            self._seen = self._clock()
            self._thread.start()

    def stop(self) -> None:
        """End the watch. Waits a second at most, because `on_resume` may hang in a driver; idempotent."""
        self._ended.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_STOP_S)

    @property
    def stopped(self) -> bool:
        return self._ended.is_set()

    def pause(self, seconds: float) -> bool:
        """Wait on the watch's thread; False if it was stopped meanwhile."""
        return not self._ended.wait(seconds)

    def check(self) -> None:
        """Look at the clock once."""
        now = self._clock()
        slept_s, self._seen = now - self._seen, now
        if slept_s <= self._jump_s:  # also a wall clock that was set back
            return
        _log.info("the computer slept for %.0f s", slept_s)
        try:
            self._on_resume(slept_s)
        except Exception:
            _log.exception("what follows a sleep failed")

    def _run(self) -> None:
        while self.pause(self._tick_s):
            self.check()


class Resume:
    """What is done after a sleep: the loaded model's process and devices are checked, and the user told what is gone.

    Args:
        emit: gets `Resumed` and `Notice` events, on the watch's thread.
        look: surveys the devices now. clock: of the watch.
        ping_s: seconds that the model's process may take to answer. confirm_s: see `CONFIRM_S`.

    Attributes:
        watch: the `SleepWatch` that calls `resumed`; start and stop it with the engine.
    """

    def __init__(
        self,
        model: ModelHost,
        emit: Callable[[events.Event], None],
        *,
        look: Callable[[], Machine] = machine.look,
        clock: Callable[[], float] | None = None,
        ping_s: float = PING_S,
        confirm_s: float = CONFIRM_S,
    ) -> None:
        self._model = model
        self._emit = emit
        self._look = look
        self._ping_s = ping_s
        self._confirm_s = confirm_s
        self.watch = SleepWatch(self.resumed, clock=clock)

    def resumed(self, slept_s: float) -> None:
        """Runs on the watch's thread; takes half a minute where a driver hangs."""
        self._tell(events.Resumed(slept_s=slept_s))
        self._ask_worker()
        self._ask_devices()

    def _tell(self, event: events.Event) -> None:
        if not self.watch.stopped:
            self._emit(event)

    def _ask_worker(self) -> None:
        """A ping is answered at once, also while the model writes. One that died is reported by its host."""
        pid = self._model.pid
        if pid is None or self._model.state.status != "ready":
            return
        answered = threading.Event()
        self._model.submit(protocol.Ping(id=new_id()), lambda event: answered.set())
        if not answered.wait(self._ping_s) and self._model.pid == pid and self._model.state.status == "ready":
            self._tell(
                events.Notice(
                    level="warning",
                    text="The model process does not answer since the computer slept.",
                    hint="Reload the model.",
                )
            )

    def _ask_devices(self) -> None:
        model = self._loaded()
        if model is None:
            return
        gone = self._gone(model)
        if gone and self.watch.pause(self._confirm_s):
            gone = self._gone(model)
        if self._loaded() is not model:  # another one since: that load has seen the devices as they are now
            return
        for name in gone:
            self._tell(
                events.Notice(
                    level="error",
                    text=f"The GPU {name} is gone since the computer slept.",
                    hint="Load the model again; it will use what is there now.",
                )
            )

    def _loaded(self) -> events.ModelInfo | None:
        state = self._model.state
        model = state.model if state.status == "ready" else None
        return model if model is not None and model.n_gpu_layers > 0 else None

    def _gone(self, model: events.ModelInfo) -> list[str]:
        """Names for people of the model's devices that are not listed now; none where no list could be had."""
        found = self._look()
        if not found.listed:
            _log.warning("after a sleep: %s", " ".join(found.notes))
            return []
        # llama.cpp counts its names anew where one is missing, so what people call it decides
        left = Counter(_identity(device) for device in found.devices)
        missing = []
        for device in used_devices(model):
            left[_identity(device)] -= 1
            if left[_identity(device)] < 0:
                missing.append(device.label)
        return missing


def _identity(device: DeviceSpec) -> tuple[str, str]:
    return device.backend, device.label


def used_devices(model: events.ModelInfo) -> tuple[DeviceSpec, ...]:
    """The devices that hold something of a model, by its buffers; its only one where they do not tell."""
    known = machine.specs(model.devices)
    sizes = measured_by_device(model.buffers, [device.name for device in known], model.devices)
    used = tuple(device for device in known if any(sizes[device.name].values()))
    return used or (known if len(known) == 1 else ())
