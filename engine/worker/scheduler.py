"""Continuous batching: who computes what in the next `llama_decode`.

A slot has a list of tokens and the number of them that are in the cache. What is missing is fed: one token for an
answer that is being written, a chunk for a prompt that is being read. So an aborted step, a dropped cache or a
paused answer need no cases of their own: less is in the cache, and more is fed again.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from engine import events
from engine.errors import EngineError, LoadFailed
from engine.message import FinishReason
from engine.worker import crumbs, hooks
from engine.worker.channel import info
from engine.worker.draft import DraftModel
from engine.worker.forcing import force
from engine.worker.keeper import Keeper
from engine.worker.kv_disk import KvDisk
from engine.worker.kv_report import KvReport
from engine.worker.llama import DECODE_ABORTED, DECODE_NO_ROOM, DECODE_OK, Interrupt, LlamaModel
from engine.worker.pace import Pace
from engine.worker.places import Places
from engine.worker.planning import Feed, Planner, entries_of
from engine.worker.probes import Drawn
from engine.worker.slots import Answer, Slot
from engine.worker.speculation import Speculation
from engine.worker.tracer import Chosen
from engine.worker.tracer import detail as trace_detail
from engine.worker.waiting import Waiting, rank

#: a step that will take no longer than this is not interrupted where that would cost what recurrent layers hold
_SHORT_S = 0.25
#: the loop looks again after this long when all that is to be done is waiting for a disk
_DISK_WAIT_S = 0.005
#: an answer that rolls gives up turns of at least this share of the context
_ROLL_SHARE = 8


class Scheduler:
    """Works on answers with one model. Everything runs on the owner thread.

    Args:
        send: takes the events.
        finished: called with each answer when it is over, before its last event is sent.
        disk: where states of chats are kept; None: nowhere.
        draft: a small model that guesses ahead.
    """

    def __init__(
        self,
        model: LlamaModel,
        interrupt: Interrupt,
        send: Callable[[events.Event], None],
        finished: Callable[[Answer], None],
        disk: KvDisk | None = None,
        draft: DraftModel | None = None,
    ) -> None:
        self._model, self._interrupt, self._send, self._finished = model, interrupt, send, finished
        self._pace = Pace()
        self._places = Places(model, Keeper(model.cache, self._pace, disk))
        self._speculation = Speculation(self._pace)
        self._planner = Planner(model, self._places, self._pace, self._speculation, draft)
        self.waiting = Waiting()
        self._look = False  # somebody may be able to begin now
        self._eog = frozenset(model.vocab.eog_tokens)

    @property
    def busy(self) -> bool:
        return bool(self.waiting) or bool(self._places.active)

    @property
    def used_cells(self) -> int:
        return self._model.cache.cells.used

    def show(self, report: KvReport) -> float | None:
        """Let it say what the cache holds; see `KvReport.look` for what it gives."""
        return report.look(self._places.slots, self._model.cache.cells)

    def submit(self, answer: Answer) -> None:
        self.waiting.add(answer)
        self._look = True

    def prioritize(self, target: str, priority: int) -> None:
        for answer in [*self.waiting, *(s.answer for s in self._places.active if s.answer)]:
            if answer.id == target:
                answer.priority = priority
        self.waiting.sort()
        self._look = True

    def forget(self, key: str) -> None:
        """Nothing of this chat may stay, in the context or on disk; "": nothing of any chat on disk, from now on."""
        if not key:
            self._places.keep_nothing()
            return
        for answer in self.waiting:
            if answer.key == key:
                answer.key, answer.restoring = "", None
        self._places.forget(key)

    def drop_caches(self) -> None:
        """Forget what is in the cache of slots that have no answer."""
        self._places.drop_idle()

    def forget_all(self, identity: str = "") -> None:
        """Drop every cache: what is in it holds no longer. Answers at work are read again and then go on.

        `identity`: what states on disk have to be of from now on (see `KvDisk`).
        """
        for answer in self.waiting:
            answer.parked = answer.restoring = None
        self._places.forget_all(identity)

    def cancel_all(self) -> None:
        """End everything as cancelled."""
        for answer in [*self.waiting, *(s.answer for s in self._places.active if s.answer)]:
            answer.job.stopped = True
        self._end_stopped()

    def rest(self) -> float | None:
        """To be called when nothing is to be done. Gives the seconds after which it should be called again."""
        return self._places.rest()

    def close(self) -> None:
        """The last call: keep what can be kept for the next time."""
        self.cancel_all()
        self._places.close()

    def step(self) -> None:
        """End what was stopped, let waiting ones in, and do one decode."""
        # whoever stops an answer sets the flag; one that comes later than this sets it again, for the next step
        if self._interrupt.clear() or self._look:
            self._end_stopped()
        if self.waiting:
            self._admit()
        plan = self._plan()
        if plan:
            self._decode(plan)
        elif self.waiting:
            time.sleep(_DISK_WAIT_S)

    # ------------------------------------------------------------------ coming and going

    def _end_stopped(self) -> None:
        for answer in self.waiting:
            if answer.job.stopped:
                self.waiting.remove(answer)
                self._finish(answer, "cancelled")
        for slot in self._places.slots:
            if slot.answer and slot.answer.job.stopped:
                self._end(slot, "cancelled")

    def _end(self, slot: Slot, reason: FinishReason) -> None:
        answer = slot.answer
        assert answer is not None
        self._places.release(slot)
        self._look = True
        self._finish(answer, reason)

    def _finish(self, answer: Answer, reason: FinishReason) -> None:
        answer.sampler.free()
        rest = answer.rest()
        done = answer.done("stop" if answer.stopped_by_text else reason)
        self._finished(answer)
        for event in (*rest, done):
            self._send(event)

    def _fail(self, slot: Slot, error: EngineError) -> None:
        answer = slot.answer
        assert answer is not None
        self._places.release(slot)
        self._look = True
        answer.sampler.free()
        self._finished(answer)
        self._send(events.Error(request_id=answer.id, error=info(error)))

    def _admit(self) -> None:
        """Let answers begin, in order, as far as there are slots and cells. One whose state is still on its way from
        the disk is passed by."""
        if not self._look:
            return
        self._look = False
        for answer in self.waiting:
            while not self._places.room_for(answer):
                less = [s for s in self._places.active if s.answer and s.answer.priority > answer.priority]
                if not less:
                    return
                self._pause(less)
            if not self._places.ready(answer):
                self._look = True
                continue
            self.waiting.remove(answer)
            self._begin(answer)

    def _begin(self, answer: Answer) -> None:
        """Give it a place. What it was made to begin with is said at once."""
        first = answer.moments.started is None
        if first:
            answer.moments.started = time.perf_counter()
        slot = self._places.begin(answer)
        if first and answer.request.trace:
            tokens = answer.tokens[: answer.n_prompt]
            pieces = map(self._model.vocab.name, tokens)
            n_forced = len(answer.request.forced)
            self._send(answer.moments.prompt(answer.id, tokens, pieces, n_forced=n_forced))
        self._send(answer.prompt_progress(slot.n_past))
        if not (first and answer.request.forced):
            return
        try:
            reason = force(answer, self._model.vocab, self._send)
        except EngineError as error:
            self._fail(slot, error)
            return
        if reason is not None:
            self._end(slot, reason)

    def _pause(self, slots: list[Slot]) -> None:
        """Put the answer whose turn would come last back into the queue."""
        slot = max(slots, key=lambda s: rank(s.answer) if s.answer else (0, 0.0))
        self.waiting.add(self._places.pause(slot))
        self._look = True

    # ------------------------------------------------------------------ one step

    def _plan(self) -> list[Feed]:
        """What to feed. Where there is no room, an answer gives way, and the last one ends."""
        while True:
            plan, stuck = self._planner.plan()
            if stuck is None:
                return plan
            active = self._places.active
            if len(active) < 2:
                self._end(stuck, "length")
            else:
                self._pause(active)

    def _decode(self, plan: list[Feed]) -> None:
        cache = self._model.cache
        entries, rows = entries_of(plan)
        n_reading = sum(feed.count for feed in plan if feed.reads)
        crumbs.step(plan, len(entries), cache.cells.used)
        began = time.perf_counter()
        code = DECODE_ABORTED
        if not any(_slowed(feed, self._interrupt) for feed in plan if feed.reads):
            short = self._pace.step_s + self._pace.reading_s(n_reading) < _SHORT_S
            # keys that are moved must not be moved twice, and what recurrent layers hold is lost with a step
            whole = cache.shift_pending or (cache.is_recurrent and short)
            if whole:
                with self._interrupt.held():
                    code = self._model.decode(entries)
            else:
                code = self._model.decode(entries)
        took = time.perf_counter() - began
        crumbs.sample()
        cache.shift_pending = False
        if code != DECODE_OK:
            self._recover(plan, code)
            return
        for feed in plan:
            cache.cells.grow(feed.slot.id, feed.count + len(feed.guesses))
        if len(entries) == len(plan) or n_reading:
            self._pace.note(len(plan) - sum(f.reads for f in plan), n_reading, took)
        for feed in plan:
            if feed.reads:
                if feed.checkpoint:
                    cache.take_checkpoint(feed.slot.id)
                if (progress := _progress(feed, began, took)) is not None:
                    self._send(progress)
        for feed, _ in rows:
            if feed.slot.answer is not None and feed.slot.answer.moments.prefilled is None:
                feed.slot.answer.moments.prefilled = began + took
        guesses = [(feed.match, len(feed.guesses), self._sample(feed, row)) for feed, row in rows]
        if not n_reading and self._planner.speculates:
            tried = [guess for guess in guesses if guess[1]]
            drafting_s = self._planner.drafting_s
            self._speculation.note(len(plan), tried, time.perf_counter() - began + drafting_s, drafting_s)

    def _recover(self, plan: list[Feed], code: int) -> None:
        """After a step that did not end well: find out what is in the cache, and go on or give up."""
        cache = self._model.cache
        for feed in plan:
            slot, before = feed.slot, feed.slot.n_past
            slot.cut(min(before, cache.computed(slot.id)))
            slot.stopped = slot.stopped or slot.n_past < before
        if code == DECODE_ABORTED:
            return  # a stop: whoever it named ends now, the others go on from what is there
        if code == DECODE_NO_ROOM and self._places.drop_idle():
            return  # cells of a window are not counted here: try again without what nobody uses
        for slot in [feed.slot for feed in plan]:
            slot.cut(0)
            if code == DECODE_NO_ROOM and slot.answer and slot.answer.n_generated:
                self._end(slot, "length")
            else:
                self._fail(slot, LoadFailed(f"llama.cpp failed to compute the next step (code {code})"))

    def _sample(self, feed: Feed, row: int) -> int:
        """Choose the next token by the logits of a row, and one more by each row behind it, as long as the guesses were
        right. Gives how many were."""
        slot, answer, guesses = feed.slot, feed.slot.answer, feed.guesses
        if answer is None:
            return 0
        tokens: list[int] = []
        drawn: list[Drawn | None] = []
        try:
            while not tokens or (
                tokens[-1:] == list(guesses[len(tokens) - 1 : len(tokens)])
                and tokens[-1] not in self._eog
                and not answer.sampler.complete
            ):
                tokens.append(answer.sampler.sample(self._model.context, row + len(tokens)))
                drawn.append(answer.sampler.drawn())
        except EngineError as error:
            self._fail(slot, error)
            return 0
        n_right = len(tokens) - 1
        if guesses:
            slot.cut(slot.n_past - len(guesses) + n_right)
            answer.n_drafted += len(guesses)
            answer.n_accepted += n_right
            answer.ramp = self._speculation.next_ramp(len(guesses), n_right)
        for i, token in enumerate(tokens):
            n_wrong = len(guesses) - n_right if i == n_right else 0
            chosen = Chosen(token, row + i, drawn[i], drafted=i < n_right, n_rejected=n_wrong)
            if not self._take(slot, answer, chosen):
                break
        return n_right

    def _take(self, slot: Slot, answer: Answer, chosen: Chosen) -> bool:
        """Write a token. False if it was the last one."""
        model, token = self._model, chosen.token
        logprob = detail = None
        if answer.request.trace:
            raw = model.look(chosen.row, token)
            logprob, detail = raw.logprob, trace_detail(raw, chosen, model.vocab.name)
        if token in self._eog:
            if detail is not None and logprob is not None:
                answer.moments.ended_by(answer.id, answer.arrived_s, model.vocab.name(token), detail, logprob)
            self._end(slot, "stop")
            return False
        if logprob is None and answer.request.logprobs:
            logprob = model.logprob(chosen.row, token)
        count = answer.n_generated + 1
        full = len(answer.tokens) + 1 >= model.n_ctx
        is_last = count == answer.params.max_tokens or (full and not answer.can_roll)
        self._send(answer.add(token, model.vocab.piece(token), logprob, is_last=is_last, chosen=chosen, detail=detail))
        hooks.token_written(count)
        if answer.stopped_by_text or (answer.sampler.complete and not chosen.drafted):
            self._end(slot, "stop")
        elif is_last:
            self._end(slot, "length")
        elif full:
            self._places.roll(slot, answer.roll(model.n_ctx // _ROLL_SHARE))
        return slot.answer is answer


def _slowed(feed: Feed, interrupt: Interrupt) -> bool:
    """For tests: take longer. True: the wait was interrupted, do not decode."""
    answer = feed.slot.answer
    assert answer is not None
    todo = max(1, answer.n_prompt - answer.n_cached)
    return hooks.prefilling(feed.count / todo, interrupt.is_set)


def _progress(feed: Feed, began: float, took: float) -> events.PromptProgress | None:
    """Count what was read in a step; None where it was read again, after others had its place."""
    slot, answer = feed.slot, feed.slot.answer
    assert answer is not None
    if answer.n_generated > answer.n_forced:
        return None
    answer.prefill_s += took
    answer.n_prefilled += feed.count
    first = slot.n_past - feed.count
    return answer.prompt_progress(slot.n_past, first=first, n_chunk=feed.count, began_s=began, took_s=took)
