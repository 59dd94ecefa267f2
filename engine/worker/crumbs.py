"""The worker's side of its black box (`crumb_record`): it notes what it is about to do. A note takes about 2 µs.

Like `hooks`, one for the process, so that whoever does something dangerous can say so with one line. Without a file in
the environment nothing is noted.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from engine.worker import crumb_record
from engine.worker.crumb_record import MAX_DEVICES

if TYPE_CHECKING:
    from engine.worker.planning import Feed

#: memory is looked at again after this long
_MEMORY_EVERY_S = 1.0
_NUMBERS = {name: number for number, name in enumerate(crumb_record.STAGES)}
_IDLE, _STEP, _SAMPLE = (_NUMBERS[name] for name in ("idle", "step", "sample"))


class _Box:
    def __init__(self) -> None:
        self.view: memoryview | None = None
        self.number = self.stage = 0
        self.n_ctx = 0
        self.counts: tuple[int, ...] = (0,) * 7
        self.memory: tuple[int, ...] = (-1,) * (4 + MAX_DEVICES)
        self.looked_s = -_MEMORY_EVERY_S
        self.devices: Callable[[], Sequence[int]] = tuple

    def put(self, stage: int, fraction: float = 0.0) -> None:
        view = self.view
        if view is None:
            return
        now = time.monotonic()
        if stage and now - self.looked_s >= _MEMORY_EVERY_S:  # not before the greeting
            self.look(now)
        self.stage = stage
        self.number += 1
        crumb_record.write(view, self.number, stage, now, fraction, *self.counts, self.n_ctx, *self.memory)

    def look(self, now: float) -> None:
        """Memory as it is now."""
        from engine import hardware  # as above

        self.looked_s = now
        ram = hardware.ram()
        rss = hardware.process_memory(os.getpid())[0] or -1
        free = [*self.devices()][:MAX_DEVICES]
        free += [-1] * (MAX_DEVICES - len(free))
        total = ram.total_bytes or -1
        self.memory = (rss, ram.available_bytes if total > 0 else -1, total, crumb_record.oom_kills(), *free)


_box = _Box()


def open_box() -> None:
    """Map the file that the parent has made. Once, when the process begins."""
    path = os.environ.pop(crumb_record.ENV, "")
    if not path or _box.view is not None:
        return
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        return
    with contextlib.suppress(OSError, ValueError):
        _box.view = memoryview(mmap.mmap(descriptor, crumb_record.SIZE))
    os.close(descriptor)
    if os.name == "posix":  # both sides have it; so nothing is left, whoever is ended how
        with contextlib.suppress(OSError):
            os.unlink(path)  # noqa: PTH108
    _box.put(_NUMBERS["start"])


def watch_devices(free: Callable[[], Sequence[int]]) -> None:
    """`free` gives the free bytes of the devices that can be asked quickly, from now on."""
    _box.devices = free


def note(stage: str, fraction: float = 0.0) -> None:
    """A stage begins. `fraction`: of the weights that are read."""
    _box.counts = (0,) * 7
    _box.put(_NUMBERS[stage], fraction)


def loaded(n_ctx: int) -> None:
    """A model is there; 0: none."""
    _box.n_ctx = n_ctx


def idle(used_cells: int) -> None:
    """There is nothing to do."""
    if _box.stage != _IDLE:
        _box.counts = (0, 0, 0, 0, 0, 0, used_cells)
        _box.put(_IDLE)


def step(plan: Sequence[Feed], n_batch: int, used_cells: int) -> None:
    """`llama_decode` is about to be called."""
    if _box.view is None:
        return
    n_reading = n_read = n_prompt = n_written = 0
    for feed in plan:
        answer = feed.slot.answer
        if answer is None:
            continue
        n_written += answer.n_generated
        if feed.reads:
            n_reading += feed.count
            n_read += feed.slot.n_past
            n_prompt += answer.prompt_end
    computing(n_batch, n_reading, len(plan), n_read, n_prompt, n_written, used_cells)


def computing(*counts: int) -> None:
    """A step begins; `counts` as in `Crumb`, from `n_batch` to `used_cells`."""
    _box.counts = counts
    _box.put(_STEP)


def sample() -> None:
    """Tokens are about to be chosen from what the step has computed. In every step, so in the quickest way."""
    if _box.view is not None:
        _box.stage = _SAMPLE
        crumb_record.change_stage(_box.view, _box.number, _SAMPLE)


@contextlib.contextmanager
def during(stage: str) -> Iterator[None]:
    """Inside it is this stage; then again what it was before."""
    before = _box.stage
    _box.put(_NUMBERS[stage])
    try:
        yield
    finally:
        _box.put(before)
