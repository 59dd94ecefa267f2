"""Measuring the loaded model inside its process: the scheduler's own steps, without the pipe and without a chat.

First all prompts are read, each with an answer of one token. Then each is written on, by which time nothing but
answers is left to compute: every step writes one token of each. So a step of n answers is what llama.cpp's own
batched measurement calls one, and both figures can stand side by side.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from engine import events
from engine.chat.thinking import ThinkSplitter
from engine.errors import Cancelled, EngineError, InvalidRequest
from engine.message import error_from
from engine.sampling import SamplingParams
from engine.worker import protocol
from engine.worker.inbox import Job
from engine.worker.llama import LlamaModel, version
from engine.worker.prompt import BuiltPrompt
from engine.worker.scheduler import Scheduler
from engine.worker.slots import Answer

_REPORT_EVERY_S = 0.25
_BAN = -1e9


class Bench:
    """One measurement; runs on the owner thread, which does nothing else meanwhile.

    Args:
        job: of the `Bench` request; a stop that names it ends the answers as it ends those of a chat.
        step: one step of the scheduler.
        send: takes the events for the caller; `take` gets those of the answers.
    """

    def __init__(
        self,
        job: Job,
        model: LlamaModel,
        scheduler: Scheduler,
        *,
        step: Callable[[], None],
        send: Callable[[events.Event], None],
    ) -> None:
        assert isinstance(job.request, protocol.Bench)
        self._job, self._request = job, job.request
        self._model, self._scheduler, self._step, self._send = model, scheduler, step, send
        self._first: dict[str, int] = {}
        self._n_tokens = self._n_ended = 0
        self._error: EngineError | None = None
        self._reported_s = 0.0

    def take(self, event: events.Event) -> None:
        """An event of one of the answers."""
        if isinstance(event, events.Token) and event.token_id >= 0:
            self._first.setdefault(event.request_id, event.token_id)
            self._n_tokens += 1
        elif isinstance(event, events.Done):
            self._n_ended += 1
        elif isinstance(event, events.Error):
            self._error = self._error or error_from(event.error)

    def run(self) -> events.Benched:
        """Raises:
        InvalidRequest: the context or the slots do not hold that much.
        Cancelled: it was stopped.
        """
        request, draw = self._request, random.Random(1)
        self._check()
        prompts = [self._random_tokens(draw) for _ in range(request.n_parallel)]
        self._scheduler.drop_caches()
        try:
            prefill_s, firsts = self._read(prompts)
            decode_s, n_decoded = self._write([[*p, first] for p, first in zip(prompts, firsts, strict=True)])
        finally:
            self._scheduler.drop_caches()
        return events.Benched(
            request_id=request.id,
            n_prefilled=request.n_parallel * request.n_prompt,
            prefill_s=prefill_s,
            n_decoded=n_decoded,
            decode_s=decode_s,
            llama_cpp=version(),
        )

    def _check(self) -> None:
        request = self._request
        limits = {"n_parallel": (1, self._model.n_slots), "n_prompt": (1, 2**24), "n_generate": (2, 2**24)}
        for field, (low, high) in limits.items():
            value = getattr(request, field)
            if not low <= value <= high:
                raise InvalidRequest(f"{field} must be between {low} and {high}, not {value}", details={"field": field})
        cells = request.n_parallel * (request.n_prompt + request.n_generate + 2)
        if cells > self._model.n_ctx:
            what = f"{cells} tokens are to be in the context at once, and it holds {self._model.n_ctx}"
            raise InvalidRequest(what, details={"field": "n_prompt"})

    def _random_tokens(self, draw: random.Random) -> list[int]:
        """Any tokens do, as in llama.cpp's own measurement; what is read costs the same."""
        vocab = self._model.vocab
        tokens = [draw.randrange(vocab.n_tokens) for _ in range(self._request.n_prompt)]
        if vocab.adds_bos:
            tokens[0] = vocab.bos_token
        return tokens

    # ------------------------------------------------------------------ the two parts

    def _read(self, prompts: list[list[int]]) -> tuple[float, list[int]]:
        """Seconds for all prompts, and the token that each is answered with."""
        began = time.perf_counter()
        ids = [self._begin(f"read-{i}", tokens, 1) for i, tokens in enumerate(prompts)]
        total = sum(map(len, prompts))
        while self._scheduler.busy:
            self._step()
            self._report("prefill", min(total, self._scheduler.used_cells), total)
        took = time.perf_counter() - began
        self._refuse_if_ended()
        return took, [self._first[request_id] for request_id in ids]

    def _write(self, prompts: list[list[int]]) -> tuple[float, int]:
        """Seconds of the steps in which all answers were being written, and the tokens of those steps."""
        self._first, self._n_tokens, self._n_ended = {}, 0, 0
        for i, tokens in enumerate(prompts):
            self._begin(f"write-{i}", tokens, self._request.n_generate)
        total = len(prompts) * self._request.n_generate
        seconds, count = 0.0, 0
        while self._scheduler.busy:
            all_writing = len(self._first) == len(prompts) and not self._n_ended
            before, began = self._n_tokens, time.perf_counter()
            self._step()
            if all_writing:
                seconds += time.perf_counter() - began
                count += self._n_tokens - before
            self._report("decode", self._n_tokens, total)
        self._refuse_if_ended()
        return seconds, count

    def _begin(self, name: str, tokens: list[int], n_generate: int) -> str:
        bans = dict.fromkeys(self._model.vocab.eog_tokens, _BAN)
        params = SamplingParams(temperature=0.0, max_tokens=n_generate, seed=1, logit_bias=bans)
        request = protocol.Generate(
            id=f"{self._request.id}/{name}",
            prompt="",
            sampling=params,
            logprobs=self._request.logprobs,
            speculate=False,
        )
        splitter = ThinkSplitter("", opened=False, allow_late_close=False)
        answer = Answer(Job(request), BuiltPrompt(tokens, ""), params, self._model.sampler(params), splitter, 0.0, "")
        answer.job = self._job  # a stop of the whole is a stop of each
        self._scheduler.submit(answer)
        return request.id

    def _refuse_if_ended(self) -> None:
        if self._job.stopped:
            raise Cancelled("The measurement was stopped")
        if self._error is not None:
            raise self._error

    def _report(self, stage: str, n_done: int, n_total: int) -> None:
        now = time.perf_counter()
        if now - self._reported_s < _REPORT_EVERY_S:
            return
        self._reported_s = now
        self._send(
            events.BenchProgress(
                request_id=self._request.id,
                stage="prefill" if stage == "prefill" else "decode",
                n_done=n_done,
                n_total=n_total,
            )
        )
