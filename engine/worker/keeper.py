"""Which states of slots are kept outside the context: on disk for later, in memory for an answer that had to pause."""

from __future__ import annotations

import time
from collections.abc import Iterable

import psutil

from engine.worker import hooks
from engine.worker.checkpoints import SavedState
from engine.worker.kv_cache import KvCache
from engine.worker.kv_disk import KvDisk
from engine.worker.pace import Pace
from engine.worker.slots import Answer, Slot

_CLOSE_S = 1.2
_N_CHECKPOINTS = 2


class Keeper:
    """Decides what is worth keeping, and takes it out of the context and puts it back. Runs on the owner thread.

    Args:
        disk: None: nothing is kept on disk.
    """

    def __init__(self, cache: KvCache, pace: Pace, disk: KvDisk | None) -> None:
        self._cache, self._pace, self._disk = cache, pace, disk

    # ------------------------------------------------------------------ back

    def ready(self, answer: Answer) -> bool:
        """Whether what is on disk for the answer is here; if not, it is being read."""
        if self._disk is None or not answer.key:
            return True
        if answer.restoring is None:
            if not self._disk.has(answer.key):
                return True
            answer.restoring = self._disk.read(answer.key)
        return answer.restoring.done()

    @staticmethod
    def found(answer: Answer) -> SavedState | None:
        """What is here for the answer."""
        if answer.parked is not None:
            return answer.parked
        reading = answer.restoring
        return reading.result() if reading is not None and reading.done() and not reading.cancelled() else None

    def put_back(self, slot: Slot, answer: Answer, saved: SavedState) -> bool:
        """Into an empty slot, where there is room for it. False if llama.cpp refuses it."""
        from_disk = answer.parked is None and self._disk is not None
        if from_disk and self._disk is not None:
            with self._disk.trying(answer.key):
                done = self._cache.set_state(slot.id, saved.state, len(saved.tokens))
        else:
            done = self._cache.set_state(slot.id, saved.state, len(saved.tokens))
        if done:
            slot.tokens, slot.n_saved = list(saved.tokens), len(saved.tokens) if from_disk else 0
            for length, state in saved.checkpoints:
                self._cache.checkpoints.add(slot.id, length, state)
        return done

    # ------------------------------------------------------------------ out

    def parked(self, slot: Slot) -> SavedState | None:
        """What an answer that loses its slot can go on from, if that is worth the memory."""
        if self._pace.reading_s(slot.n_past) <= hooks.kv_worth_s():
            return None
        free: int = psutil.virtual_memory().available
        saved = self._state_of(slot)
        return saved if saved is not None and saved.n_bytes < free // 4 else None

    def keep(self, slot: Slot) -> None:
        """Have what is in the slot written to disk, if that is worth it."""
        if self._disk is not None and self._is_worth(slot):
            saved = self._state_of(slot)
            if saved is not None:
                self._disk.write(slot.key, saved)
            slot.n_saved = slot.n_past  # also where it is too large: it would be so again

    def rest(self, idle: Iterable[Slot]) -> float | None:
        """Keep what was not used for a while. Gives the seconds until the next is due."""
        due = []
        for slot in idle:
            if self._is_worth(slot):
                left = hooks.kv_idle_s() - (time.monotonic() - slot.last_used)
                if left <= 0:
                    self.keep(slot)
                else:
                    due.append(left)
        return min(due, default=None)

    def close(self, idle: Iterable[Slot]) -> None:
        """The end: what can be kept in about a second is kept."""
        if self._disk is None:
            return
        end = time.monotonic() + _CLOSE_S
        for slot in idle:
            if time.monotonic() < end:
                self.keep(slot)
        self._disk.close(max(0.1, end - time.monotonic()))

    def change(self, identity: str) -> None:
        """States have to be of another identity from now on."""
        if self._disk is not None and identity:
            self._disk.identity = identity

    def forget(self, key: str) -> None:
        if self._disk is not None:
            self._disk.forget(key)

    def keep_nothing(self) -> None:
        """Delete what is on disk, and write nothing more."""
        if self._disk is not None:
            self._disk.clear()
            self._disk.close(1.0)
            self._disk = None

    def _is_worth(self, slot: Slot) -> bool:
        new = slot.n_past - slot.n_saved
        return self._disk is not None and bool(slot.key) and self._pace.reading_s(new) > hooks.kv_worth_s()

    def _state_of(self, slot: Slot) -> SavedState | None:
        state = self._cache.state(slot.id)
        if state is None:
            return None
        checkpoints = self._cache.checkpoints.latest(slot.id, _N_CHECKPOINTS)
        return SavedState(slot.tokens[: slot.n_past], state, checkpoints)
