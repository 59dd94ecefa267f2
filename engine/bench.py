"""Measuring how fast a model reads and writes on this computer: `inglenook bench` and the window's benchmark.

A measurement has an engine of its own on a throw-away profile, with a model process of its own: chats, settings and the
loaded model of the user are not touched. Each row is measured in the model process alone and, in the same minute and
in the same process, through protocol and chat; a row's figures are medians of its runs.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from engine import events
from engine.bench_chats import BenchChats
from engine.bench_history import BenchResult, BenchRow, Spread
from engine.errors import Cancelled, InvalidRequest
from engine.message import error_from
from engine.model_host import new_id
from engine.paths import resolve, temp_home
from engine.service import Engine
from engine.settings import Settings
from engine.worker import protocol

T = TypeVar("T")
MOST_PARALLEL = 64
_LIMITS = {"n_prompt": (1, 2**20), "n_generate": (2, 2**20), "n_runs": (1, 100)}
#: cells kept free for each chat: a template may take more room than a very short prompt is to have
_SPARE = 128
#: an answer's token takes about so many times as long as one of a prompt; only for the progress
_DECODE_WEIGHT = 4
#: settings that have nothing to do with speed, or would add to the prompt
_NOT_TAKEN = ("system_prompt", "sampling", "overflow", "models_folder", "extra_folders", "last_model", "recent_models")


@dataclass(frozen=True)
class BenchSpec:
    """What is to be measured.

    Attributes:
        path: the model's file.
        n_prompt, n_generate: tokens of each prompt and of each answer.
        parallel: numbers of answers at once, one row each.
        n_runs: how often each row is measured.
        load: fields of `Load` that the user has chosen (n_threads, n_gpu_layers, ...).
    """

    path: str
    n_prompt: int = 512
    n_generate: int = 128
    parallel: tuple[int, ...] = (1, 2, 4, 8)
    n_runs: int = 3
    load: Mapping[str, Any] = field(default_factory=dict)

    def checked(self) -> BenchSpec:
        """Itself.

        Raises:
            InvalidRequest: `details["field"]` names what is out of range.
        """
        for name, (low, high) in _LIMITS.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise InvalidRequest(f"{name} must be between {low} and {high}, not {value}", details={"field": name})
        if not self.parallel or len(set(self.parallel)) != len(self.parallel):
            raise InvalidRequest("parallel must be different numbers", details={"field": "parallel"})
        for number in self.parallel:
            if not 1 <= number <= MOST_PARALLEL:
                what = f"parallel must be between 1 and {MOST_PARALLEL}, not {number}"
                raise InvalidRequest(what, details={"field": "parallel"})
        return self

    @property
    def n_ctx(self) -> int:
        """The context that holds all of it at once."""
        return max(self.parallel) * (self.n_prompt + self.n_generate + _SPARE)

    def cost(self, n_parallel: int) -> int:
        """How long one of the two parts of a run takes, in no unit."""
        return n_parallel * self.n_prompt + _DECODE_WEIGHT * self.n_generate


@dataclass(frozen=True)
class BenchSample:
    """One run of one row, tokens a second of all answers together."""

    parallel: int
    run: int
    prefill_tps: float
    decode_tps: float
    session_decode_tps: float | None


@dataclass(frozen=True)
class Progress:
    """Where a measurement is.

    Attributes:
        stage: "load", "model" (in its process alone), "chat" (through protocol and chat).
        fraction: of the whole, 0 to 1; of the load alone while it loads.
        run: from 1. sample: filled when a run of a row is over.
    """

    stage: Literal["load", "model", "chat"]
    fraction: float
    parallel: int = 0
    run: int = 0
    sample: BenchSample | None = None


class Benchmark:
    """One measurement. `run` works and waits, `stop` may be called from any thread.

    Args:
        progress: called from several threads; should be quick.
        settings: the user's; those that change how a model is loaded hold for the measurement too.
        command: the worker to run; for tests.
    """

    def __init__(
        self,
        spec: BenchSpec,
        *,
        progress: Callable[[Progress], None] = lambda _: None,
        settings: Settings | None = None,
        command: Sequence[str] | None = None,
    ) -> None:
        self._spec = spec.checked()
        self._progress, self._settings, self._command = progress, settings, command
        self._stopped = threading.Event()
        self._engine: Engine | None = None
        self._llama_cpp = ""
        self._done_cost = 0
        self._samples: list[BenchSample] = []
        runs = spec.n_runs
        self._whole_cost = sum(2 * runs * spec.cost(n) for n in spec.parallel)

    @property
    def samples(self) -> list[BenchSample]:
        """What has been measured so far; all of it also after a stop."""
        return [*self._samples]

    def stop(self) -> None:
        """End it soon: `run` raises `Cancelled`."""
        self._stopped.set()

    def run(self) -> BenchResult:
        """Measure.

        Raises:
            Cancelled: it was stopped.
            EngineError: the model could not be loaded, or its process died.
        """
        with temp_home() as home:
            engine = self._engine = Engine(resolve(home), worker_command=self._command)
            self._take_settings(engine)
            ended = engine.subscribe(self._on_event)
            try:
                self._result(engine.start())
                return self._measure(engine)
            finally:
                ended()
                engine.stop()

    def _take_settings(self, engine: Engine) -> None:
        if self._settings is not None:
            for name in engine.settings.declared():
                if name not in _NOT_TAKEN:
                    setattr(engine.settings, name, getattr(self._settings, name))
        engine.settings.kv_on_disk = engine.settings.trace = False
        engine.settings.speculate = False  # what guessing gains depends on the text, and no text is meant here

    def _measure(self, engine: Engine) -> BenchResult:
        spec = self._spec
        options = {**spec.load, "n_ctx": spec.n_ctx, "n_slots": max(spec.parallel)}
        model = self._result(engine.load_model(Path(spec.path), **options))
        chats = BenchChats(
            engine,
            model,
            n_prompt=spec.n_prompt,
            n_generate=spec.n_generate,
            result=self._result,
            check=self._check,
        )
        # Rising, and all runs of a row together: a chat that waits keeps its part of the cache, and llama.cpp looks at
        # all of that part with every token of the others.
        for n_parallel in sorted(spec.parallel):
            for run in range(1, spec.n_runs + 1):
                self._run_once(engine, chats, n_parallel, run)
        return self._summary(engine, model)

    def _run_once(self, engine: Engine, chats: BenchChats, n_parallel: int, run: int) -> None:
        self._report("model", n_parallel, run)
        alone = self._bench(engine, n_parallel, run)
        self._llama_cpp = alone.llama_cpp
        self._done_cost += self._spec.cost(n_parallel)
        self._report("chat", n_parallel, run)
        session = chats.measure(n_parallel)
        self._done_cost += self._spec.cost(n_parallel)
        sample = BenchSample(
            n_parallel,
            run,
            prefill_tps=_rate(alone.n_prefilled, alone.prefill_s),
            decode_tps=_rate(alone.n_decoded, alone.decode_s),
            session_decode_tps=session,
        )
        self._samples.append(sample)
        self._report("chat", n_parallel, run, sample)

    def _bench(self, engine: Engine, n_parallel: int, run: int) -> events.Benched:
        spec, found = self._spec, Future[events.Benched]()
        request = protocol.Bench(id=new_id(), n_parallel=n_parallel, n_prompt=spec.n_prompt, n_generate=spec.n_generate)

        def on_event(event: events.Event) -> None:
            if isinstance(event, events.Benched):
                found.set_result(event)
            elif isinstance(event, events.Error):
                found.set_exception(error_from(event.error))
            elif isinstance(event, events.BenchProgress):
                share = event.n_done / max(1, event.n_total)
                read = n_parallel * spec.n_prompt
                done = share * read if event.stage == "prefill" else read + share * (spec.cost(n_parallel) - read)
                self._report("model", n_parallel, run, more=done)

        engine.model.submit(request, on_event)
        return self._result(found)

    def _summary(self, engine: Engine, model: events.ModelInfo) -> BenchResult:
        spec = self._spec
        rows = []
        for n_parallel in sorted(spec.parallel):
            mine = [sample for sample in self._samples if sample.parallel == n_parallel]
            sessions = [s.session_decode_tps for s in mine if s.session_decode_tps is not None]
            prefill, decode = spread([s.prefill_tps for s in mine]), spread([s.decode_tps for s in mine])
            rows.append(BenchRow(n_parallel, prefill, decode, spread(sessions) if sessions else None))
        return BenchResult(
            model=engine.model_state.name or model.name,
            path=spec.path,
            quantization=model.quantization,
            n_prompt=spec.n_prompt,
            n_generate=spec.n_generate,
            n_runs=spec.n_runs,
            llama_cpp=self._llama_cpp,
            n_threads=model.n_threads,
            n_gpu_layers=model.n_gpu_layers,
            flash_attention=model.flash_attention,
            rows=tuple(rows),
            load=dict(spec.load),
            time_s=time.time(),
        )

    # ------------------------------------------------------------------ waiting and telling

    def _check(self) -> None:
        if self._stopped.is_set():
            raise Cancelled("The measurement was stopped")

    def _result(self, future: Future[T]) -> T:
        while not future.done():
            wait([future], timeout=0.1)
            self._check()
        return future.result()

    def _on_event(self, event: events.Event) -> None:
        if isinstance(event, events.ModelState) and event.status == "loading" and event.fraction is not None:
            self._progress(Progress("load", event.fraction))

    def _report(
        self,
        stage: Literal["model", "chat"],
        n_parallel: int,
        run: int,
        sample: BenchSample | None = None,
        *,
        more: float = 0.0,
    ) -> None:
        fraction = min(1.0, (self._done_cost + more) / self._whole_cost)
        self._progress(Progress(stage, fraction, n_parallel, run, sample))


def spread(values: Sequence[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values))


def _rate(count: int, seconds: float) -> float:
    return count / seconds if seconds > 0 else 0.0
