"""What each slot is fed in the next step: a token of every answer that is being written, then chunks of prompts."""

from __future__ import annotations

import msgspec

from engine.engine_options import GUESSED_TOKENS
from engine.worker.draft import DraftModel, Wanted
from engine.worker.llama import LlamaModel
from engine.worker.pace import Pace
from engine.worker.places import CHECKPOINT_EVERY, Places
from engine.worker.slots import Slot
from engine.worker.speculation import Speculation
from engine.worker.waiting import rank

#: of what may be read in a step this share goes to the prompt that has waited for longest, whatever its length
_OLDEST_SHARE = 4
#: the place before the end of a prompt whose state is kept: what begins the answer may be another the next time
_BEFORE_END = 8


class Feed(msgspec.Struct, frozen=True):
    """Tokens of one slot in a step.

    Attributes:
        count: how many of those that are missing.
        reads: it is a prompt, or an answer that is read again; else one token is written.
        checkpoint: keep the state behind them.
        guesses: tokens that may follow, to be checked in the same step.
        match: how many of the last tokens stood before where they were found (see `Lookup`).
    """

    slot: Slot
    count: int
    reads: bool = False
    checkpoint: bool = False
    guesses: tuple[int, ...] = ()
    match: int = 0


def entries_of(plan: list[Feed]) -> tuple[list[tuple[int, int, int, bool]], list[tuple[Feed, int]]]:
    """(what `LlamaModel.decode` takes, the first row of logits of each feed that has some)"""
    entries: list[tuple[int, int, int, bool]] = []
    rows: list[tuple[Feed, int]] = []
    for feed in plan:
        slot, tokens = feed.slot, feed.slot.tokens
        number, first = slot.id, slot.n_past
        end = first + feed.count
        if end < len(tokens):
            entries += [(tokens[i], i, number, False) for i in range(first, end)]
            continue
        entries += [(tokens[i], i, number, False) for i in range(first, end - 1)]
        rows.append((feed, len(entries)))
        entries.append((tokens[end - 1], end - 1, number, True))
        entries += [(token, end + i, number, True) for i, token in enumerate(feed.guesses)]
    return entries, rows


class Planner:
    """Makes the plan of each step. It gives up caches that no answer uses, but no answer.

    Attributes:
        drafting_s: seconds in which the draft model guessed for the last plan.
        speculates: an answer of the last plan wants that tokens are guessed.
    """

    def __init__(
        self, model: LlamaModel, places: Places, pace: Pace, speculation: Speculation, draft: DraftModel | None
    ) -> None:
        self._cache, self._n_ubatch, self._n_ctx = model.cache, model.n_ubatch, model.n_ctx
        self._places, self._pace, self._speculation, self._draft = places, pace, speculation, draft
        self.drafting_s = 0.0
        self.speculates = False

    def plan(self) -> tuple[list[Feed], Slot | None]:
        """(what to feed, None), or ([], a slot for whose next tokens there is no room)."""
        self.drafting_s = 0.0
        active = self._places.active
        self.speculates = any(s.answer.request.speculate for s in active if s.answer is not None)
        writing = [s for s in active if s.pending == 1]
        if writing and self._places.make_room(len(writing)) < len(writing):
            return [], writing[-1]
        plan = [Feed(s, 1, reads=self._is_reading(s)) for s in writing]
        reading = [s for s in active if s.pending > 1] if len(writing) < len(active) else []
        if not reading:
            if self.speculates and self._cache.goes_back and not self._cache.shift_pending:
                self._add_guesses(plan)
            return plan, None
        if self._cache.shift_pending:
            # keys are moved in this step, which cannot be interrupted: let it be a short one
            return plan or [Feed(reading[0], 1, reads=True)], None
        self._add_reading(plan, reading)
        return (plan, None) if plan else ([], reading[0])

    def _add_guesses(self, plan: list[Feed]) -> None:
        n_writing = rows = len(plan)
        for i, feed in enumerate(plan):
            answer = feed.slot.answer
            if answer is None or feed.reads or not answer.request.speculate:
                continue
            left = (answer.params.max_tokens or self._n_ctx) - answer.n_generated
            most = min(
                GUESSED_TOKENS - (rows - n_writing),
                left - 1,
                self._n_ctx - len(answer.tokens) - 1,
                self._n_ubatch - rows,
                self._cache.cells.free - rows,
            )
            guesses, match = answer.lookup.guess(answer.tokens, most)
            likely = min(len(guesses), self._speculation.ramp_of(match, answer.ramp))
            count = self._speculation.n_worth(match, likely, n_writing, rows) if guesses else 0
            if not count and self._draft is not None and most > 0:
                cost_s = self._draft.token_s
                wish = self._speculation.n_worth(0, min(most, answer.ramp), n_writing, rows, cost_s=cost_s)
                guesses, match = self._drafted(self._draft, feed.slot, answer.tokens, wish), 0
                count = len(guesses)
            if count:
                plan[i] = Feed(feed.slot, 1, guesses=tuple(guesses[:count]), match=match)
                rows += count

    def _drafted(self, draft: DraftModel, slot: Slot, tokens: list[int], count: int) -> list[int]:
        if not count:
            return []
        found = draft.guess([Wanted(slot.id, tokens, count)]).get(slot.id, [])
        self.drafting_s += draft.took_s
        return found

    @staticmethod
    def _is_reading(slot: Slot) -> bool:
        answer = slot.answer
        return answer is not None and slot.n_past < answer.prompt_end

    def _add_reading(self, plan: list[Feed], reading: list[Slot]) -> None:
        n_writing = len(plan)
        budget = self._n_ubatch - n_writing
        if n_writing:
            budget = min(budget, self._pace.chunk())
        oldest = min(reading, key=_rank)
        # short ones first, so that a question does not wait for another chat's book; but that one is read too
        reading.sort(key=lambda s: (_rank(s)[0], s.pending))
        planned, reserve = n_writing, budget // _OLDEST_SHARE
        for slot in reading:
            own = budget
            if slot is oldest:
                reserve = 0
            elif _rank(slot)[0] == _rank(oldest)[0]:
                own = budget - reserve
            room = self._places.make_room(n_writing + slot.pending) - planned
            feed = self._feed(slot, min(slot.pending, own, room))
            if feed is not None:
                plan.append(feed)
                planned += feed.count
                budget -= feed.count

    def _feed(self, slot: Slot, count: int) -> Feed | None:
        """So many tokens, or those up to the place whose state is worth keeping."""
        if count <= 0:
            return None
        if not self._cache.keeps_states or slot.answer is None:
            return Feed(slot, count, reads=True)
        first, mark = slot.n_past, slot.answer.prompt_end - _BEFORE_END
        kept = self._cache.checkpoints.best(slot.id, mark)
        if first < mark <= first + count and mark - kept >= CHECKPOINT_EVERY:
            return Feed(slot, mark - first, reads=True, checkpoint=True)
        return Feed(slot, count, reads=True)


def _rank(slot: Slot) -> tuple[int, float]:
    return rank(slot.answer) if slot.answer is not None else (0, 0.0)
