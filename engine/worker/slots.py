"""One answer on its way, and the slot (sequence of the context) in which it is computed."""

from __future__ import annotations

import time
from concurrent.futures import Future
from dataclasses import replace
from typing import Literal, Protocol

from engine import events
from engine.chat.thinking import ThinkSplitter
from engine.message import FinishReason, Reread, Timings, Usage
from engine.sampling import SamplingParams
from engine.worker.cells import Cells
from engine.worker.checkpoints import SavedState
from engine.worker.inbox import Job
from engine.worker.lookup import Lookup
from engine.worker.prompt import BuiltPrompt
from engine.worker.protocol import Generate
from engine.worker.sampling_chain import SamplerChain
from engine.worker.speculation import FIRST_GUESSES
from engine.worker.text import StopMatcher, Utf8Stream
from engine.worker.tracer import Chosen, Moments

Channel = Literal["text", "reasoning"]
#: `events.Token.token_id` of the closing event that only carries text which had been held back
NO_TOKEN = -1


class Answer:
    """The state of one `Generate`, from its prompt to its `Done`.

    Attributes:
        tokens: prompt, forced and generated tokens. How many of them are in the cache is the slot's business.
        prompt_end: where the generated ones begin.
        n_prompt, n_cached: prompt tokens, and how many of them did not have to be computed.
        key, priority: as in the request; a later request may change the priority.
        n_drafted, n_accepted: tokens that were guessed, and how many of them were right.
        parked: what was in the cache when it had to make room for others.
        restoring: what is on disk for its chat, once it is read.
        n_forced: how many of the generated tokens were not chosen.
        moments: when what happened.
        lookup, ramp: finds guesses of the next tokens; at most so many are checked in the next step.
    """

    def __init__(
        self,
        job: Job,
        prompt: BuiltPrompt,
        params: SamplingParams,
        sampler: SamplerChain,
        splitter: ThinkSplitter,
        template_s: float,
        template_source: str,
        moments: Moments | None = None,
    ) -> None:
        request = job.request
        assert isinstance(request, Generate)
        self.job, self.request, self.params, self.sampler = job, request, params, sampler
        self.id, self.arrived_s = request.id, job.arrived_s
        self.key, self.priority = request.cache_key, request.priority
        self.tokens = list(prompt.tokens)
        self.n_prompt = self.prompt_end = len(self.tokens)
        self.tokens += request.forced
        self.n_forced, self.moments = 0, moments or Moments()
        self.n_cached = 0
        self.n_drafted = self.n_accepted = 0
        self.parked: SavedState | None = None
        self.restoring: Future[SavedState | None] | None = None
        self.lookup, self.ramp = Lookup(), FIRST_GUESSES
        self.n_generated = 0
        self.stop_string = ""
        self.prefill_s = 0.0
        self.n_prefilled = 0
        self._prompt, self._template_s, self._template_source = prompt, template_s, template_source
        self._turns = list(prompt.turns)
        self._n_rolled = self._n_shifted = self._n_restored = 0
        self._reread: Reread | None = None
        self._utf8, self._stops, self._splitter = Utf8Stream(), StopMatcher(params.stop), splitter
        self._segments: list[tuple[Channel, str]] = []
        self._started_s: float | None = None
        self._first_s: float | None = None
        self._last_s = 0.0
        self._n_reasoning, self._was_late = 0, False
        self._reasoning_from_s = self._reasoning_to_s = 0.0

    # ------------------------------------------------------------------ time

    def start(self, n_cached: int, *, n_shifted: int = 0, n_restored: int = 0, reread: Reread | None = None) -> None:
        """Work begins; `n_cached` tokens of the prompt are there already. Called again after a pause."""
        if self._started_s is None:
            self._started_s = self.moments.cached = time.perf_counter()
            # of tokens that were forced, and are there too, nothing is told
            counts = tuple(min(count, self.n_prompt) for count in (n_cached, n_shifted, n_restored))
            self.n_cached, self._n_shifted, self._n_restored = counts
            self._reread = reread
            self.moments.found(counts, reread)

    def prompt_progress(
        self, n_done: int, *, first: int = 0, n_chunk: int = 0, began_s: float = 0.0, took_s: float = 0.0
    ) -> events.PromptProgress:
        """began_s: by `time.perf_counter`; the rest as in the event."""
        return events.PromptProgress(
            request_id=self.id,
            n_prompt=self.n_prompt,
            n_cached=self.n_cached,
            n_done=min(n_done, self.n_prompt),
            elapsed_s=time.perf_counter() - self.arrived_s,
            first=first,
            n_chunk=n_chunk,
            began_s=began_s - self.arrived_s if n_chunk else 0.0,
            took_s=took_s,
        )

    # ------------------------------------------------------------------ tokens

    def add(
        self,
        token: int,
        piece: bytes,
        logprob: float | None,
        *,
        is_last: bool,
        chosen: Chosen | None = None,
        detail: events.TokenDetail | None = None,
    ) -> events.Token:
        """Take a generated token (not an end token). `is_last`: nothing will follow, so nothing needs to be held
        back. chosen: None for one that was forced."""
        now = time.perf_counter()
        if chosen is None:  # it stands in the tokens from the beginning
            self.n_forced += 1
        else:
            self._first_s = self._first_s or now
            self._last_s = now
            self.tokens.append(token)
        index, self.n_generated = self.n_generated, self.n_generated + 1
        inside = not self._splitter.closed
        self._feed(self._stops.feed(self._utf8.feed(piece)))
        self._count_reasoning(inside, now)
        if is_last:
            self._flush()
        channel, text = self._release()
        return events.Token(
            request_id=self.id,
            index=index,
            token_id=token,
            piece=piece,
            text=text,
            channel=channel,
            logprob=logprob,
            time_s=now - self.arrived_s,
            drafted=chosen is not None and chosen.drafted,
            n_rejected=chosen.n_rejected if chosen is not None else 0,
            forced=chosen is None,
            detail=detail,
        )

    # ------------------------------------------------------------------ room in the context

    @property
    def n_dropped(self) -> int:
        """Messages that were left out when the prompt was made."""
        return self._prompt.n_dropped

    @property
    def n_keep(self) -> int:
        """Tokens at the beginning that stay whatever is left out."""
        return self._prompt.n_keep

    @property
    def can_roll(self) -> bool:
        return self.request.overflow == "roll" and any(not turn.stays for turn in self._turns)

    def roll(self, wanted: int) -> list[tuple[int, int]]:
        """Take the oldest whole turns out of the tokens, until `wanted` of them are gone or only what stays is left.

        Returns:
            The stretches that were taken out (start, end excluded), in order, as they were before.
        """
        gaps: list[tuple[int, int]] = []
        for turn in [t for t in self._turns if not t.stays]:
            if sum(stop - start for start, stop in gaps) >= wanted:
                break
            self._turns.remove(turn)
            self._n_rolled += 1
            if gaps and gaps[-1][1] == turn.start:
                gaps[-1] = (gaps[-1][0], turn.end)
            else:
                gaps.append((turn.start, turn.end))
        self.lookup.reset()
        for start, stop in reversed(gaps):
            del self.tokens[start:stop]
            self.prompt_end -= stop - start
            gone = stop - start
            self._turns = [
                replace(t, start=t.start - gone, end=t.end - gone) if t.start >= stop else t for t in self._turns
            ]
        return gaps

    @property
    def thought(self) -> tuple[int, int]:
        """Where in the tokens its thinking stands, (0, 0) if it did not think."""
        return (self.prompt_end, self.prompt_end + self._n_reasoning) if self._n_reasoning else (0, 0)

    @property
    def stopped_by_text(self) -> bool:
        return bool(self._stops.matched)

    def rest(self) -> list[events.Token]:
        """Text that had been held back and is shown after all, as events without a token."""
        self._flush()
        now = time.perf_counter() - self.arrived_s
        merged: list[tuple[Channel, str]] = []
        while self._segments:
            merged.append(self._release())
        return [
            events.Token(
                request_id=self.id,
                index=self.n_generated,
                token_id=NO_TOKEN,
                piece=b"",
                text=text,
                channel=channel,
                time_s=now,
            )
            for channel, text in merged
            if text
        ]

    def _feed(self, text: str) -> None:
        if text:
            self._segments.extend(self._splitter.feed(text))

    def _flush(self) -> None:
        self._feed(self._stops.feed(self._utf8.flush()))
        self._feed(self._stops.flush())
        self._segments.extend(self._splitter.finish())

    def _count_reasoning(self, was_inside: bool, now: float) -> None:
        """Tokens of the thinking, tags included: all up to here when a tag has just shown that it was thinking."""
        inside, late = not self._splitter.closed, self._splitter.late
        if (late and not self._was_late) or (inside and not was_inside):
            self._was_late = late
            self._n_reasoning = self.n_generated
            self._reasoning_from_s = self._reasoning_from_s or self._first_s or now
        elif inside or was_inside:
            self._n_reasoning += 1
            self._reasoning_from_s = self._reasoning_from_s or now
        else:
            return
        self._reasoning_to_s = now

    def _release(self) -> tuple[Channel, str]:
        """Text of one channel for the next event. A token that ends the thinking and begins the answer has text of
        both:
        the second part then waits for the next event."""
        if not self._segments:
            return "text" if self._splitter.closed else "reasoning", ""
        if len(self._segments) == 1:
            return self._segments.pop()
        channel, count = self._segments[0][0], 0
        while count < len(self._segments) and self._segments[count][0] == channel:
            count += 1
        text = "".join(part for _, part in self._segments[:count])
        del self._segments[:count]
        return channel, text

    # ------------------------------------------------------------------ the end

    def done(self, reason: FinishReason) -> events.Done:
        """The closing event. Call `rest` before."""
        final = self._splitter
        started = self._started_s if self._started_s is not None else time.perf_counter()
        decode_s = self._last_s - self._first_s if self._first_s is not None else 0.0
        count, n_chosen = self.n_generated, self.n_generated - self.n_forced
        timings = Timings(
            queue_s=max(0.0, started - self.arrived_s - self._template_s),
            template_s=self._template_s,
            prefill_s=self.prefill_s,
            ttft_s=self._first_s - self.arrived_s if self._first_s is not None else None,
            decode_s=decode_s,
            prefill_tps=self.n_prefilled / self.prefill_s if self.n_prefilled and self.prefill_s > 0 else None,
            decode_tps=(n_chosen - 1) / decode_s if n_chosen > 1 and decode_s > 0 else None,
        )
        return events.Done(
            request_id=self.id,
            text=final.text,
            finish_reason=reason,
            usage=Usage(
                self.n_prompt,
                count,
                self.n_cached,
                self._n_shifted,
                self._n_restored,
                self.n_drafted,
                self.n_accepted,
            ),
            timings=timings,
            reasoning=final.reasoning,
            reasoning_tag=final.tag,
            reasoning_closed=final.closed,
            reasoning_tokens=self._n_reasoning,
            reasoning_s=self._reasoning_to_s - self._reasoning_from_s,
            stop_string=self._stops.matched,
            seed=self.params.seed or 0,
            n_dropped=self._prompt.n_dropped,
            notes=(*self._prompt.notes, *self._own_notes(final.note, reason)),
            template_source=self._template_source,
            reread=self._reread,
            marks=self.moments.marks(self.arrived_s, self._first_s, self._last_s) if self.request.trace else None,
            end=self.moments.end,
        )

    def _own_notes(self, of_thinking: str, reason: FinishReason) -> list[str]:
        notes = [of_thinking] if of_thinking else []
        if self.sampler.constraint is not None and (unfinished := self.sampler.constraint.note(reason)):
            notes.append(unfinished)
        if self._n_rolled:
            turns = "turn was" if self._n_rolled == 1 else f"{self._n_rolled} turns were"
            notes.append(f"The context was full: the oldest {turns} left out while the answer was written.")
        return notes


class Cache(Protocol):
    """What a slot needs of the model's memory."""

    @property
    def cells(self) -> Cells: ...
    def keep_prefix(self, sequence: int, length: int) -> int: ...


class Slot:
    """One sequence of the context.

    Attributes:
        tokens: the tokens of its answer, or of the last one; the first `n_past` of them are in the cache.
        key: names the chat that they belong to; empty if that is not known.
        last_used: for choosing which cache to give up; 0 if never used.
        n_saved: how many of the tokens are on disk too.
        thought: (start, end) of the thinking in the tokens of the last answer, (0, 0) for none.
        stopped: something of its cache was lost when a step was interrupted.
    """

    def __init__(self, number: int, cache: Cache) -> None:
        self.id, self._cache = number, cache
        self.tokens: list[int] = []
        self.answer: Answer | None = None
        self.key = ""
        self.last_used = 0.0
        self.n_saved = 0
        self.thought = (0, 0)
        self.stopped = False

    @property
    def n_past(self) -> int:
        return self._cache.cells.length(self.id)

    @property
    def pending(self) -> int:
        """Tokens that are not in the cache yet."""
        return len(self.tokens) - self.n_past

    def take(self, answer: Answer) -> None:
        """Work on an answer from now on; the cache holds a beginning of its tokens."""
        self.tokens, self.answer, self.key = answer.tokens, answer, answer.key
        self.n_saved = min(self.n_saved, self.n_past)
        self.thought, self.stopped = (0, 0), False

    def release(self) -> None:
        """The answer is over; the cache stays for the next one."""
        if self.answer is not None:
            self.thought = self.answer.thought
        self.answer = None
        self.last_used = time.monotonic()

    def cut(self, length: int) -> None:
        """Keep so many tokens of the cache, or less if its memory cannot go back there."""
        self.n_saved = min(self.n_saved, self._cache.keep_prefix(self.id, length))

    def drop(self) -> None:
        """Give the cache up."""
        self.cut(0)
        if self.answer is None:
            self.tokens, self.key = [], ""
