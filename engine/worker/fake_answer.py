"""How the scripted worker writes one answer, and measures it."""

from __future__ import annotations

import codecs
import os
import threading
import time
from collections.abc import Callable

from engine import events
from engine.message import FinishReason, Timings, Usage
from engine.sampling import with_seed
from engine.worker import crumbs, protocol
from engine.worker.fake_script import Answer, Fault, cut


class StopAsked(Exception):
    """The request was stopped."""


class Output:
    """Lines to the parent from any thread. Each is written whole and at once."""

    def __init__(self) -> None:
        self._fd = os.dup(1)
        os.dup2(2, 1)  # what anything else prints goes to standard error
        self._lock = threading.Lock()
        self.hung = False

    def raw(self, data: bytes) -> None:
        with self._lock:
            while data and not self.hung:
                data = data[os.write(self._fd, data) :]

    def send(self, event: events.Event) -> None:
        self.raw(protocol.encode(event))

    def close(self) -> None:
        self.hung = True
        os.close(self._fd)


class Job:
    """One request at work in its own thread."""

    def __init__(self, request: protocol.Request, *, stoppable: bool = True) -> None:
        self.request = request
        self.stoppable = stoppable
        self.arrival = time.monotonic()
        self._stop = threading.Event()

    def stop(self) -> None:
        if self.stoppable:
            self._stop.set()

    def sleep_until(self, when: float) -> None:
        """Raises: StopAsked as soon as the request is stopped."""
        if self._stop.wait(max(0.0, when - time.monotonic())):
            raise StopAsked


class Generation:
    """One scripted answer, measured as it is written."""

    def __init__(
        self,
        out: Output,
        job: Job,
        request: protocol.Generate,
        answer: Answer,
        *,
        n_ctx: int,
        fail: Callable[[Fault], None],
    ) -> None:
        self.out = out
        self.n_ctx = n_ctx
        self.fail = fail
        self.job = job
        self.request = request
        self.answer = answer
        length = sum(len(m.content) for m in request.messages) + len(request.prompt or "")
        self.n_prompt = answer.n_prompt if answer.n_prompt is not None else max(1, length // 4)
        thinking = [(p.encode(), "reasoning") for p in cut(answer.reasoning)]
        visible = [*answer.pieces, *(t.encode() for t in answer.tokens)] or [p.encode() for p in cut(answer.text)]
        self.tokens = thinking + [(p, "text") for p in visible] * answer.repeat
        self.seed = with_seed(request.sampling).seed or 0
        self.texts = {"text": "", "reasoning": ""}
        self.n_done = 0
        self.n_thinking = 0
        self.start = time.monotonic()
        self.first = self.last = self.prefilled = 0.0
        self.thought_s = 0.0

    def run(self) -> events.Done | events.Error:
        reason: FinishReason = "stop"
        try:
            self.prefill()
            if self.answer.error is not None:
                return events.Error(request_id=self.request.id, error=self.answer.error)
            reason = self.write()
        except StopAsked:
            reason = "cancelled"
        return self.done(reason)

    def prefill(self) -> None:
        answer = self.answer
        n_steps = max(1, round(answer.prefill_s / 0.1))
        for step in range(n_steps + 1):
            self.job.sleep_until(self.start + answer.prefill_s * step / n_steps)
            n_done = answer.n_cached + (self.n_prompt - answer.n_cached) * step // n_steps
            n_reading = (self.n_prompt - answer.n_cached) // n_steps
            crumbs.computing(n_reading, n_reading, 1, n_done, self.n_prompt, 0, n_done)
            self.out.send(
                events.PromptProgress(
                    request_id=self.request.id,
                    n_prompt=self.n_prompt,
                    n_cached=answer.n_cached,
                    n_done=n_done,
                    elapsed_s=time.monotonic() - self.start,
                )
            )
        self.prefilled = time.monotonic()

    def write(self) -> FinishReason:
        answer = self.answer
        limit = self.request.sampling.max_tokens
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        begin = time.monotonic()
        for index, (piece, channel) in enumerate(self.tokens):
            if limit is not None and index >= limit:
                return "length"
            if self.n_prompt + index >= self.n_ctx:
                return "length"
            self.job.sleep_until(begin + index * answer.delay_s)
            crumbs.computing(1, 0, 1, 0, 0, index, self.n_prompt + index)
            if answer.fault is not None and index >= answer.fault.at:
                self.fail(answer.fault)
            text = decoder.decode(piece, final=index == len(self.tokens) - 1)
            self.note(channel, text)
            self.out.send(
                events.Token(
                    request_id=self.request.id,
                    index=index,
                    token_id=100 + index % 1_000,
                    piece=piece,
                    text=text,
                    channel="reasoning" if channel == "reasoning" else "text",
                    time_s=self.last - self.job.arrival,
                )
            )
            if answer.garbage_every and (index + 1) % answer.garbage_every == 0:
                self.out.raw(answer.garbage.encode() + b"\n")
        return "stop"

    def note(self, channel: str, text: str) -> None:
        self.last = time.monotonic()
        self.first = self.first or self.last
        self.texts[channel] += text
        self.n_done += 1
        if channel == "reasoning":
            self.n_thinking += 1
            self.thought_s = self.last - self.first

    def done(self, reason: FinishReason) -> events.Done:
        prefill_s = (self.prefilled or time.monotonic()) - self.start
        n_prefilled = self.n_prompt - self.answer.n_cached
        decode_s = self.last - self.first
        thinking = self.texts["reasoning"]
        return events.Done(
            request_id=self.request.id,
            text=self.texts["text"],
            finish_reason=reason,
            usage=Usage(self.n_prompt, self.n_done, self.answer.n_cached),
            timings=Timings(
                queue_s=self.start - self.job.arrival,
                prefill_s=prefill_s,
                ttft_s=self.first - self.job.arrival if self.n_done else None,
                decode_s=decode_s,
                prefill_tps=n_prefilled / prefill_s if self.prefilled and n_prefilled and prefill_s > 0 else None,
                decode_tps=(self.n_done - 1) / decode_s if self.n_done > 1 and decode_s > 0 else None,
            ),
            reasoning=thinking,
            reasoning_tag="think" if thinking else "",
            reasoning_closed=not thinking or self.n_done > self.n_thinking,
            reasoning_tokens=self.n_thinking,
            reasoning_s=self.thought_s,
            seed=self.seed,
            template_source="file",
        )


def rss_bytes() -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return 0
