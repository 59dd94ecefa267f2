"""The thread that owns the model: takes requests from the inbox and answers them."""

from __future__ import annotations

import sys
import time
import traceback

import psutil

from engine import engine_options, events, sampling
from engine.chat.thinking import ThinkSplitter
from engine.errors import Busy, ContextFull, EngineError, InvalidRequest, LoadFailed, ModelNotLoaded
from engine.worker import crumbs, devices, kv_disk, llama, loading, protocol
from engine.worker.bench import Bench
from engine.worker.channel import CALM_HOLD_S, HOLD_S, Channel
from engine.worker.format_desk import FormatDesk, constraint
from engine.worker.greeting import Native
from engine.worker.inbox import Inbox, Job
from engine.worker.kv_report import KvReport
from engine.worker.ledger_desk import LedgerDesk
from engine.worker.prompt import BuiltPrompt
from engine.worker.scheduler import Scheduler
from engine.worker.slots import Answer
from engine.worker.tracer import Moments

#: requests may take this long before a running answer gets its next step
_REQUESTS_S = 0.01
#: what the black box says while such a request is handled
_STAGES: dict[type[protocol.Request], str] = {
    protocol.Load: "weights",
    protocol.Generate: "prompt",
    protocol.Tokenize: "count",
    protocol.SetAdapters: "adapters",
    protocol.Embed: "embed",
    protocol.Unload: "unload",
}


class Owner:
    """Everything but the pipes. Made and run on the main thread."""

    def __init__(self, channel: Channel, native: Native) -> None:
        self._channel = channel
        self._native, self._log = native, native.log
        self._interrupt = llama.Interrupt()
        self.inbox = Inbox(self._interrupt_decode)
        self._loaded: loading.LoadedModel | None = None
        self._request = protocol.Load(id="", path="")
        self._scheduler: Scheduler | None = None
        self._bench: Bench | None = None
        self._formats: FormatDesk | None = None
        self._ledgers = LedgerDesk(self._answer, self._fail)
        self._kv_report = KvReport(self._channel.send)
        self._process = psutil.Process()
        crumbs.watch_devices(devices.local_free_bytes)

    def run(self) -> None:
        """Work until the inbox is closed."""
        stepped_s = 0.0
        while not self.inbox.closed:
            scheduler = self._scheduler
            busy = scheduler is not None and scheduler.busy
            idle = not busy and not self._ledgers.busy
            rest_s = scheduler.rest() if idle and scheduler is not None else None
            if scheduler is not None and self._kv_report.watched:
                due_s = scheduler.show(self._kv_report)
                rest_s = min((s for s in (rest_s, due_s) if s is not None), default=None)
            if idle:
                crumbs.idle(scheduler.used_cells if scheduler is not None else 0)
            job = self.inbox.take(wait=idle, timeout_s=rest_s)
            if job is not None:
                self._handle(job)
                if not busy or time.perf_counter() - stepped_s < _REQUESTS_S:
                    continue
            began_s = time.perf_counter()
            if busy and self._scheduler is not None:
                self._step(self._scheduler)
                stepped_s = time.perf_counter()
            if job is None and self._ledgers.busy:
                self._ledgers.work((time.perf_counter() - began_s) / 10)
        self._unload()

    def _step(self, scheduler: Scheduler) -> None:
        began = time.perf_counter()
        try:
            scheduler.step()
        finally:
            self._log.expected_abort = False
            self._channel.pace(time.perf_counter() - began)

    def _interrupt_decode(self) -> None:
        self._log.expected_abort = True
        self._interrupt.set()

    # ------------------------------------------------------------------ requests

    def _handle(self, job: Job) -> None:
        request = job.request
        if stage := _STAGES.get(type(request)):
            crumbs.note(stage)
        try:
            if isinstance(request, protocol.Load):
                self._load(job, request)
            elif isinstance(request, protocol.Generate):
                self._generate(job, request)
            elif isinstance(request, protocol.Tokenize):
                self._answer(job, self._tokenize(request))
            elif isinstance(request, protocol.Ledger):
                self._ledgers.take(job, request, self._model()[0].prompts)
            elif isinstance(request, protocol.Bench):
                self._answer(job, self._measure(job))
            elif isinstance(request, protocol.SetAdapters):
                self._answer(job, self._set_adapters(request))
            elif isinstance(request, protocol.Embed):
                self._answer(job, self._embed(job, request))
            elif isinstance(request, protocol.Prioritize | protocol.Forget | protocol.Watch):
                self._note(job, request)
            else:
                self._unload()
                self._answer(job, events.Unloaded(request_id=request.id))
        except EngineError as error:
            self._fail(job, error)
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            what = f"{type(error).__name__}: {error}"
            self._fail(job, LoadFailed("The worker failed on this request", details={"error": what}))

    def _note(self, job: Job, request: protocol.Prioritize | protocol.Forget | protocol.Watch) -> None:
        """What nothing answers."""
        self.inbox.done(job)
        if isinstance(request, protocol.Watch):
            self._kv_report.watch(request.interval_s)
        elif self._scheduler is not None and isinstance(request, protocol.Prioritize):
            self._scheduler.prioritize(request.target, request.priority)
        elif self._scheduler is not None and isinstance(request, protocol.Forget):
            self._scheduler.forget(request.cache_key)

    def _answer(self, job: Job, event: events.Event) -> None:
        self.inbox.done(job)
        self._channel.send(event)

    def _fail(self, job: Job, error: EngineError) -> None:
        self.inbox.done(job)
        self._channel.fail(job.request.id, error)

    def _load(self, job: Job, request: protocol.Load) -> None:
        self._unload()
        try:
            loaded = loading.load(
                request,
                log=self._log,
                interrupt=self._interrupt,
                stopped=lambda: job.stopped,
                send=self._channel.send,
            )
        finally:
            self._interrupt.clear()
            self._log.expected_abort = False
        self._loaded, self._request = loaded, request
        crumbs.loaded(loaded.llama.n_ctx)
        if loaded.embedder is None:
            disk = kv_disk.of_load(request, loaded.llama, loaded.info, self._cache_line)
            self._scheduler = Scheduler(loaded.llama, self._interrupt, self._emit, self._finished, disk, loaded.draft)
        on_cpu = loaded.info.n_gpu_layers < loaded.info.n_layer
        self._channel.hold_s = CALM_HOLD_S if on_cpu else HOLD_S
        self._send_memory(request.id)
        self._answer(job, events.Loaded(request_id=request.id, model=loaded.info))

    def _unload(self) -> None:
        """Running answers end as cancelled; then the model goes."""
        self._ledgers.cancel_all()
        if self._scheduler is not None:
            self._scheduler.close()
        loaded, self._loaded, self._scheduler = self._loaded, None, None
        crumbs.loaded(0)
        if self._formats is not None:
            self._formats.close()
            self._formats = None
        if loaded is not None:
            loaded.close()

    def _generate(self, job: Job, request: protocol.Generate) -> None:
        loaded, scheduler = self._model()
        scheduler.waiting.refuse_if_full()
        if self._formats is None:
            self._formats = FormatDesk(loaded.llama.vocab, self.inbox)
        if self._formats.puts_aside(job, request):
            return
        compiled = self._formats.take(job)
        _check_forced(request.forced, loaded.llama)
        params = sampling.with_seed(sampling.validate(request.sampling, loaded.llama.vocab.n_tokens))
        began = time.perf_counter()
        prompt = self._prompt(loaded, request)
        template_s = time.perf_counter() - began
        n_prompt, n_ctx = len(prompt.tokens) + len(request.forced), loaded.llama.n_ctx
        if n_prompt >= n_ctx:
            raise ContextFull(
                f"The prompt has {n_prompt} tokens, and the context of {n_ctx} leaves no room for an answer",
                hint="Shorten the message, start a new chat, or load the model with a larger context.",
                details={"n_prompt": n_prompt, "n_ctx": n_ctx},
            )
        plain = request.prompt is not None
        known_tag = "" if plain else loaded.info.template.thinking_tag
        held = constraint(compiled, request, prompt, known_tag)
        sampler = loaded.llama.sampler(params, held, trace=request.trace)
        sampler.accept_prompt(prompt.tokens)
        sampler.pass_draws(request.n_draws, request.n_xtc_draws)
        sampler.learn(request.surprises)
        splitter = ThinkSplitter(
            prompt.opened_thinking_tag or known_tag,
            opened=bool(prompt.opened_thinking_tag),
            allow_late_close=bool(known_tag),
        )
        source = "" if plain else loaded.info.template.source
        moments = Moments(began, time.perf_counter(), prompt.owners, prompt.exact)
        scheduler.submit(Answer(job, prompt, params, sampler, splitter, template_s, source, moments))

    @staticmethod
    def _prompt(loaded: loading.LoadedModel, request: protocol.Generate) -> BuiltPrompt:
        if (request.prompt is None) == (not request.messages):
            raise InvalidRequest("give either messages or a prompt", details={"field": "messages"})
        if request.prompt is not None:
            prompt = loaded.prompts.build_text(request.prompt)
        else:
            prompt = loaded.prompts.build(
                request.messages,
                continue_last=request.continue_last,
                overflow=request.overflow,
                max_tokens=request.sampling.max_tokens,
                owners=request.trace,
            )
        if not prompt.tokens:
            raise InvalidRequest("the prompt is empty", details={"field": "prompt"})
        return prompt

    def _tokenize(self, request: protocol.Tokenize) -> events.Tokenized:
        loaded = self._any_model()
        vocab = loaded.llama.vocab
        if (request.text is None) == (not request.messages):
            raise InvalidRequest("give either messages or a text", details={"field": "text"})
        if request.text is not None:
            tokens, text = (
                vocab.tokenize(request.text, add_special=request.add_special, parse_special=request.special),
                "",
            )
        else:
            built = loaded.prompts.count(request.messages)
            tokens, text = built.tokens, built.text
        pieces = tuple(vocab.piece(t) for t in tokens)
        return events.Tokenized(request_id=request.id, tokens=tuple(tokens), pieces=pieces, prompt=text)

    def _measure(self, job: Job) -> events.Benched:
        loaded, scheduler = self._model()
        if scheduler.busy:
            raise Busy("Answers are being written, so nothing can be measured now", hint="Wait for their end.")
        self._bench = Bench(job, loaded.llama, scheduler, step=lambda: self._step(scheduler), send=self._channel.send)
        try:
            return self._bench.run()
        finally:
            self._bench = None

    def _set_adapters(self, request: protocol.SetAdapters) -> events.AdaptersSet:
        loaded = self._any_model()
        engine_options.check_adapters(request.adapters)
        if loaded.llama.adapters.set(request.adapters) and self._scheduler is not None:
            self._scheduler.forget_all(kv_disk.identity_of(self._request, loaded.llama, loaded.info))
        return events.AdaptersSet(request_id=request.id, adapters=loaded.llama.adapters.current)

    def _embed(self, job: Job, request: protocol.Embed) -> events.Embedded:
        embedder = self._any_model().embedder
        if embedder is None:
            raise InvalidRequest("This model was loaded for chat", hint="Load it for embeddings, beside the chat.")
        self._interrupt.clear()
        try:
            return embedder.embed(request, lambda: job.stopped)
        finally:
            self._interrupt.clear()
            self._log.expected_abort = False

    def _any_model(self) -> loading.LoadedModel:
        if self._loaded is None:
            raise ModelNotLoaded("No model is loaded", hint="Choose a model first.")
        return self._loaded

    def _model(self) -> tuple[loading.LoadedModel, Scheduler]:
        loaded = self._any_model()
        if self._scheduler is None:
            raise InvalidRequest("This model was loaded for embeddings; it writes no text")
        return loaded, self._scheduler

    # ------------------------------------------------------------------ reports

    def _emit(self, event: events.Event) -> None:
        """Where the scheduler's events go: out, or to the measurement that asked for the answers."""
        (self._channel.send if self._bench is None else self._bench.take)(event)

    def _finished(self, answer: Answer) -> None:
        if self._bench is not None:
            return
        self.inbox.done(answer.job)
        self._send_memory(answer.id)

    def _send_memory(self, request_id: str) -> None:
        memory = self._process.memory_info()
        shared = getattr(memory, "shared", None)
        private = memory.rss - shared if shared is not None else getattr(memory, "private", 0)
        scheduler, loaded = self._scheduler, self._loaded
        self._channel.send(
            events.Memory(
                request_id=request_id,
                rss_bytes=memory.rss,
                private_bytes=private,
                kv_used_cells=scheduler.used_cells if scheduler else 0,
                kv_total_cells=loaded.llama.n_ctx if loaded else 0,
            )
        )

    def _cache_line(self, line: str) -> None:
        """Called from any thread."""
        sys.stderr.write(line + "\n")
        self._channel.send(events.Log(level="info", text=line, source="cache"))


def _check_forced(tokens: tuple[int, ...], model: llama.LlamaModel) -> None:
    """Raises: InvalidRequest: no answer of this model can begin so."""
    ends = set(model.vocab.eog_tokens)
    if any(not 0 <= token < model.vocab.n_tokens for token in tokens) or ends.intersection(tokens[:-1]):
        raise InvalidRequest("an answer of this model cannot begin with these tokens", details={"field": "forced"})
