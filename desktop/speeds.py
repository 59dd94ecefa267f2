"""Speeds from the steps of one answer: three separate numbers, from token counts, or nothing where undefined."""

from __future__ import annotations

from dataclasses import dataclass

from engine.events import PromptProgress, Token
from engine.message import GenerationRecord


@dataclass
class Speeds:
    """What is known so far of the answer being written, or all of one that is done.

    Attributes:
        n_prompt, n_cached, n_read: tokens of the prompt, those reused from the KV cache, those in it by now.
        n_written: tokens of the answer; n_given of them were not chosen: a branch was made to begin so.
        ttft_s: time to first token in seconds; prefill_tps: prompt tokens per second, cached ones left out;
        decode_tps: (tokens - 1) / time after the first, those left out that were not chosen.
    """

    n_prompt: int = 0
    n_cached: int = 0
    n_read: int = 0
    n_written: int = 0
    ttft_s: float | None = None
    prefill_tps: float | None = None
    decode_tps: float | None = None
    n_given: int = 0
    _last_s: float = 0.0

    @property
    def reading(self) -> bool:
        """The prompt is being read: no token has been chosen yet."""
        return self.n_prompt > 0 and self.n_written == self.n_given

    @property
    def n_used(self) -> int:
        """Tokens in the context."""
        return (max(self.n_read, self.n_cached) if self.reading else self.n_prompt) + self.n_written

    def add(self, step: Token | PromptProgress) -> None:
        """Take the next step."""
        if isinstance(step, PromptProgress):
            self.n_prompt, self.n_cached, self.n_read = step.n_prompt, step.n_cached, step.n_done
            fresh = step.n_done - step.n_cached
            self.prefill_tps = fresh / step.elapsed_s if fresh > 0 and step.elapsed_s > 0 else None
            return
        self.n_written += 1
        if step.forced:
            self.n_given += 1
            return
        if self.ttft_s is None:
            self.ttft_s = step.time_s
        self._last_s = step.time_s
        n, after_first_s = self.n_written - self.n_given, self._last_s - self.ttft_s
        self.decode_tps = (n - 1) / after_first_s if n > 1 and after_first_s > 0 else None


def of_record(record: GenerationRecord | None) -> Speeds:
    """The measured speeds of a stored answer."""
    if record is None:
        return Speeds()
    usage, timings = record.usage, record.timings
    return Speeds(
        n_prompt=usage.prompt_tokens,
        n_cached=usage.cached_tokens,
        n_read=usage.prompt_tokens,
        n_written=usage.completion_tokens,
        ttft_s=timings.ttft_s,
        prefill_tps=timings.prefill_tps,
        decode_tps=timings.decode_tps,
    )
