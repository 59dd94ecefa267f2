"""Who has which slot, what of a prompt is there already, and what gives way when the context is full."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Literal

from engine.message import Reread
from engine.worker.checkpoints import SavedState
from engine.worker.keeper import Keeper
from engine.worker.kv_cache import KvCache
from engine.worker.llama import LlamaModel
from engine.worker.reuse import SHORTEST, Past, common_prefix, gaps_between, why_reread
from engine.worker.slots import Answer, Slot

#: a state from disk is used if it has so many tokens more than what is in the context
_WORTH_TOKENS = 32
#: a state of a window or of recurrent layers is kept so many tokens after the one before
CHECKPOINT_EVERY = 64
_PASTS = 64


class Places:
    """The slots of one context. Everything runs on the owner thread."""

    def __init__(self, model: LlamaModel, keeper: Keeper) -> None:
        self._cache: KvCache = model.cache
        self._n_ctx, self._piece, self._keeper = model.n_ctx, model.vocab.piece, keeper
        self.slots = [Slot(i, self._cache) for i in range(model.n_slots)]
        self._pasts: OrderedDict[str, Past] = OrderedDict()

    @property
    def active(self) -> list[Slot]:
        return [s for s in self.slots if s.answer is not None]

    @property
    def _idle(self) -> list[Slot]:
        """Slots without an answer, the one unused for longest first."""
        return sorted((s for s in self.slots if s.answer is None), key=lambda s: (s.n_past > 0, s.last_used))

    # ------------------------------------------------------------------ coming

    def room_for(self, answer: Answer) -> bool:
        """Whether it can begin now without taking room that running answers need."""
        active = self.active
        if not active:
            return True
        if len(active) == len(self.slots):
            return False
        there = max(self._usable(s, answer) for s in active)
        promised = self._cache.cells.held(s.id for s in active) + sum(s.pending + 1 for s in active)
        return promised + len(answer.tokens) + 1 - there <= self._n_ctx

    def ready(self, answer: Answer) -> bool:
        """Whether all is here that it can begin with; if not, it is being read from disk."""
        return any(s.key == answer.key and s.n_past for s in self.slots) or self._keeper.ready(answer)

    def begin(self, answer: Answer) -> Slot:
        """Give it a slot, with as much of the cache as can be used. At least the last token of the prompt is computed
        again, because its logits are needed."""
        slot, related = self._choose(answer)
        past = self._pasts.get(answer.key) if answer.key else None
        if past is None and related:
            past = Past(slot.tokens[: slot.n_past], slot.thought, slot.stopped)
        here = any(s.key == answer.key and s.n_past for s in self.slots) if answer.key else True
        saved = self._keeper.found(answer)
        if saved is not None and past is None:
            past = Past(saved.tokens)
        gaps, n_moved = self._gaps(slot, answer) if related else ([], 0)
        n_own = n_moved if gaps else self._usable(slot, answer)
        other = max((s for s in self.slots if s is not slot), key=lambda s: self._usable(s, answer), default=slot)
        n_other = self._usable(other, answer)
        n_saved = common_prefix(saved.tokens, answer.tokens, len(answer.tokens) - 1) if saved is not None else 0
        n_restored = n_shifted = 0
        if saved is not None and n_saved > max(n_own, n_other) + _WORTH_TOKENS and self._restore(slot, answer, saved):
            slot.cut(n_saved)
            n_restored = slot.n_past
        elif n_other > n_own:
            self._give_up(slot)
            self._cache.copy_prefix(other.id, slot.id, n_other)
        elif gaps:
            n_shifted = n_moved - gaps[0][0]
            self._close(slot, gaps, n_moved)
        else:
            if slot.key != answer.key:
                self._keeper.keep(slot)
            slot.cut(n_own)
        n_cached = slot.n_past
        self._take_checkpoint(slot)
        slot.take(answer)
        answer.parked = answer.restoring = None
        reread = None if past is None else self._why(past, answer, n_cached, here or n_restored > 0)
        answer.start(n_cached, n_shifted=n_shifted, n_restored=n_restored, reread=reread)
        return slot

    def _choose(self, answer: Answer) -> tuple[Slot, bool]:
        """An idle slot, and whether it holds an earlier turn of the same chat: its own one, or, where nobody says whose
        it is, the one with the longest common beginning; else the one unused for longest."""
        idle = self._idle
        if answer.key:
            own = [s for s in idle if s.key == answer.key]
            return (max(own, key=lambda s: _common(s, answer)), True) if own else (idle[0], False)
        common = {s.id: _common(s, answer) for s in idle}
        best = max(idle, key=lambda s: common[s.id])
        if not best.key and 2 * common[best.id] >= min(len(answer.tokens), best.n_past) > 0:
            return best, True
        return idle[0], False

    def _usable(self, slot: Slot, answer: Answer) -> int:
        return self._cache.usable(slot.id, _common(slot, answer))

    def _restore(self, slot: Slot, answer: Answer, saved: SavedState) -> bool:
        """Put a state back into the slot. False if there is no room for it, or llama.cpp refuses it."""
        self._give_up(slot)
        room = self.make_room(len(saved.tokens))
        return room >= len(saved.tokens) and self._keeper.put_back(slot, answer, saved)

    def _why(self, past: Past, answer: Answer, n_cached: int, here: bool) -> Reread | None:
        limits: Literal["", "window", "state"] = "window" if self._cache.n_swa else ""
        return why_reread(
            past,
            answer.tokens[: answer.n_prompt],
            n_cached,
            dropped=answer.n_dropped > 0,
            limits="state" if self._cache.is_recurrent else limits,
            here=here,
            piece=self._piece,
        )

    def _take_checkpoint(self, slot: Slot) -> None:
        """Of the place where the new begins: an edit of it will go back there."""
        length = slot.n_past
        if length - self._cache.checkpoints.best(slot.id, length) >= CHECKPOINT_EVERY:
            self._cache.take_checkpoint(slot.id)

    # ------------------------------------------------------------------ moving

    def _gaps(self, slot: Slot, answer: Answer) -> tuple[list[tuple[int, int]], int]:
        """What to take out where old turns were dropped, and how much of the prompt the slot then begins with."""
        if not (answer.n_dropped and self._cache.can_shift and slot.n_past):
            return [], 0
        common = _common(slot, answer)
        gaps, length = gaps_between(slot.tokens[: slot.n_past], answer.tokens[:-1], common)
        if common < answer.n_keep or not self._may_move(slot, gaps):
            return [], 0
        return (gaps, length) if length - common >= SHORTEST else ([], 0)

    def _may_move(self, slot: Slot, gaps: Sequence[tuple[int, int]]) -> bool:
        """Whether what follows the first gap is the slot's own; idle slots that share it give it up."""
        if not gaps:
            return False
        shared = self._cache.cells.shared(slot.id)
        if shared <= gaps[0][1]:
            return True
        others = [self.slots[i] for i in self._cache.cells.sharers(slot.id, gaps[0][1])]
        if any(s.answer is not None for s in others):
            return False
        for other in others:
            self._give_up(other)
        return True

    def _close(self, slot: Slot, gaps: Sequence[tuple[int, int]], length: int) -> None:
        """Move what is kept, and keep `length` tokens of the result."""
        self._cache.close_gaps(slot.id, gaps)
        slot.n_saved = min(slot.n_saved, gaps[0][0])
        slot.cut(length)

    def roll(self, slot: Slot, gaps: Sequence[tuple[int, int]]) -> None:
        """The tokens of these places are no more in the slot's tokens: move the rest, or have it read again."""
        if self._cache.can_shift and self._may_move(slot, gaps):
            gone = sum(stop - start for start, stop in gaps)
            self._close(slot, gaps, slot.n_past - gone)
        else:
            slot.cut(gaps[0][0])

    # ------------------------------------------------------------------ giving way

    def make_room(self, wanted: int) -> int:
        """Free cells, after giving up caches that no answer uses until there are `wanted` of them or no such cache
        is left."""
        cells = self._cache.cells
        if cells.free < wanted:
            for slot in self._idle:
                if cells.free >= wanted:
                    break
                if slot.n_past:
                    self._give_up(slot)
        return cells.free

    def pause(self, slot: Slot) -> Answer:
        """Take the answer out of its slot, with what was computed for it if that is worth it."""
        answer = slot.answer
        assert answer is not None
        answer.parked = self._keeper.parked(slot)
        slot.answer = None
        slot.drop()
        return answer

    def release(self, slot: Slot) -> None:
        """The answer in it is over."""
        if slot.pending < 0:
            slot.cut(len(slot.tokens))  # right guesses behind a stop text
        slot.release()
        if slot.key:
            self._pasts[slot.key] = Past(slot.tokens[: slot.n_past], slot.thought, slot.stopped)
            self._pasts.move_to_end(slot.key)
            if len(self._pasts) > _PASTS:
                self._pasts.popitem(last=False)

    def _give_up(self, slot: Slot) -> None:
        self._keeper.keep(slot)
        slot.drop()

    def drop_idle(self) -> bool:
        """Forget what is in the cache of slots that have no answer. False if there was nothing."""
        found = [s for s in self._idle if s.n_past]
        for slot in found:
            slot.drop()
        return bool(found)

    def forget_all(self, identity: str) -> None:
        """What was computed so far is of no use any more."""
        self._pasts.clear()
        for slot in self.slots:
            slot.drop()
        self._keeper.change(identity)

    def forget(self, key: str) -> None:
        """Nothing of this chat may stay."""
        self._pasts.pop(key, None)
        for slot in self.slots:
            if slot.key != key:
                continue
            slot.key = ""
            if slot.answer is not None:
                slot.answer.key = ""
            else:
                slot.drop()
        self._keeper.forget(key)

    def keep_nothing(self) -> None:
        """No states on disk from now on, and none that are there."""
        self._keeper.keep_nothing()

    def rest(self) -> float | None:
        """Nothing is to be done: keep what was not used for a while. Gives the seconds until the next is due."""
        return self._keeper.rest(self._idle)

    def close(self) -> None:
        """The end: keep what can be kept quickly, the chats used last first."""
        self._keeper.close(reversed(self._idle))


def _common(slot: Slot, answer: Answer) -> int:
    """How many of the answer's first tokens are in the slot's cache; the last one is never counted."""
    return common_prefix(slot.tokens, answer.tokens, min(slot.n_past, len(answer.tokens) - 1))
