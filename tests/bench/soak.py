"""Two thousand requests, many of them stopped at any moment: each ends once, memory stays flat, every cell comes back.

    python tests/bench/soak.py [MODEL.gguf ...] [--requests 2000] [--threads N]

Eight requests are always open on four slots, so that some wait, some are read and some are written when their stop
comes. At the end a prompt that takes the whole context must still find its place.
"""

from __future__ import annotations

import queue
import random
import statistics
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench_help import Table, arguments, finish, text_of

from engine import events
from engine.sampling import SamplingParams
from engine.worker import protocol
from engine.worker.client import WorkerClient

N_CTX, N_SLOTS, N_OPEN = 4096, 4, 8


@dataclass
class One:
    """A request on its way."""

    stop_at: str = ""
    phase: str = "queued"
    n_tokens: int = 0
    stopped_s: float = 0.0
    stopped_in: str = ""


@dataclass
class Soak:
    options: Any
    model: str
    open: dict[str, One] = field(default_factory=dict)
    ends: Counter[str] = field(default_factory=Counter)
    latencies: dict[str, list[float]] = field(default_factory=dict)
    private: list[tuple[int, int]] = field(default_factory=list)
    cells: int = -1
    strange: list[str] = field(default_factory=list)
    lost_text: int = 0

    def __post_init__(self) -> None:
        self.events: queue.SimpleQueue[tuple[float, events.Event]] = queue.SimpleQueue()
        self.client = WorkerClient(lambda event: self.events.put((time.perf_counter(), event)))
        self.draw = random.Random(5)
        self.n_sent = self.n_ended = 0
        self.text: dict[str, str] = {}

    def run(self) -> None:
        self.client.start()
        load = protocol.Load(
            id="load", path=self.model, n_ctx=N_CTX, n_slots=N_SLOTS, n_threads=self.options.threads, n_gpu_layers=0
        )
        self.client.request(load, 120)
        while self.n_ended < self.options.requests:
            while len(self.open) < N_OPEN and self.n_sent < self.options.requests:
                self.send()
            self.take(*self.events.get(timeout=120))
            if self.n_ended and self.n_ended % 500 == 0 and not self.open:
                print(f"    {self.n_ended} requests", flush=True)

    def send(self) -> None:
        draw = self.draw
        self.n_sent += 1
        request_id = f"r{self.n_sent}"
        phase = draw.choice(("", "", "queued", "prefill", "decode"))
        self.open[request_id] = One(stop_at=phase)
        self.text[request_id] = ""
        # a third of the prompts go on where an earlier one began, so that caches are reused, cut and given up
        seed = draw.randrange(6) if draw.random() < 0.33 else 1000 + self.n_sent
        n_words = draw.choice((3, 20, 60, 150, 400))
        sampling = SamplingParams(temperature=0.8, seed=self.n_sent, max_tokens=draw.randint(1, 24))
        request = protocol.Generate(id=request_id, prompt=text_of(n_words, seed), sampling=sampling)
        self.client.send(request)
        if phase == "queued":
            self.stop(request_id)

    def stop(self, request_id: str) -> None:
        one = self.open[request_id]
        if not one.stopped_s:
            one.stopped_s, one.stopped_in = time.perf_counter(), one.phase
            self.client.stop_request(request_id)

    def take(self, when: float, event: events.Event) -> None:
        if isinstance(event, events.Memory):
            self.private.append((self.n_ended, event.private_bytes or event.rss_bytes))
            self.cells = event.kv_used_cells
            return
        if isinstance(event, events.WorkerExited):
            raise SystemExit(f"the worker ended: {event.error}")
        one = self.open.get(event.request_id)
        if one is None:
            if isinstance(event, events.Done | events.Error | events.Token):
                self.strange.append(f"{type(event).__name__} after the end of {event.request_id}")
            return
        if isinstance(event, events.PromptProgress):
            one.phase = "prefill"
            if one.stop_at == "prefill":
                self.stop(event.request_id)
        elif isinstance(event, events.Token):
            one.phase = "decode"
            one.n_tokens += 1
            self.text[event.request_id] += event.text
            if one.stop_at == "decode" and one.n_tokens >= 2:
                self.stop(event.request_id)
        elif isinstance(event, events.Done | events.Error):
            self.end(when, event, one)

    def end(self, when: float, event: events.Done | events.Error, one: One) -> None:
        del self.open[event.request_id]
        shown = self.text.pop(event.request_id)
        self.n_ended += 1
        self.ends[event.finish_reason if isinstance(event, events.Done) else f"error {event.error.code}"] += 1
        if isinstance(event, events.Done) and not (event.reasoning + event.text).startswith(shown.strip()[:8]):
            self.lost_text += 1
        if one.stopped_s:
            self.latencies.setdefault(one.stopped_in, []).append(when - one.stopped_s)

    # ------------------------------------------------------------------ the end

    def whole_context(self) -> str:
        """How a prompt ends that leaves room for a few tokens only."""
        text, count = text_of(3 * N_CTX, 77), 0
        words = text.split()
        while True:
            counted = self.client.request(protocol.Tokenize(id=f"t{count}", text=" ".join(words)), 60)
            assert isinstance(counted, events.Tokenized)
            over = len(counted.tokens) + 16 - N_CTX
            if -8 <= over <= 0 or count > 40:
                break
            words = words[: len(words) - over] if over > 0 else words + text.split()[:-over]
            count += 1
        request = protocol.Generate(
            id="whole", prompt=" ".join(words), sampling=SamplingParams(temperature=0.0, max_tokens=4, seed=1)
        )
        done = self.client.request(request, 300)
        assert isinstance(done, events.Done), done
        return f"{done.finish_reason}, {done.usage.completion_tokens} tokens"

    def all_cells(self) -> int:
        """Cells in use after everything was given up: what one small answer takes."""
        bench = protocol.Bench(id="bench", n_parallel=N_SLOTS, n_prompt=N_CTX // N_SLOTS - 16, n_generate=8)
        assert isinstance(self.client.request(bench, 300), events.Benched)
        small = protocol.Generate(id="small", prompt="Hi", sampling=SamplingParams(temperature=0, max_tokens=2, seed=1))
        done = self.client.request(small, 60)
        assert isinstance(done, events.Done)
        time.sleep(0.3)
        while not self.events.empty():
            _, event = self.events.get()
            if isinstance(event, events.Memory):
                self.cells = event.kv_used_cells
        return self.cells - done.usage.prompt_tokens - done.usage.completion_tokens


def stopped_loads(model: str, options: Any) -> list[float]:
    """Seconds from a stop of a load to its end."""
    found = []
    for number in range(5):
        seen, ended = threading.Event(), threading.Event()

        def on_event(event: events.Event, seen: threading.Event = seen, ended: threading.Event = ended) -> None:
            if isinstance(event, events.LoadProgress):
                seen.set()
            elif isinstance(event, events.Error | events.Loaded):
                ended.set()

        client = WorkerClient(on_event, env={"INGLENOOK_TEST_HOOKS": "1", "INGLENOOK_TEST_SLOW_LOAD_S": "5"})
        client.start()
        client.send(protocol.Load(id="load", path=model, n_ctx=512, n_gpu_layers=0))
        seen.wait(30)
        time.sleep(0.1 * number)
        began = time.perf_counter()
        client.stop_request("load")
        ended.wait(30)
        found.append(time.perf_counter() - began)
        client.stop()
    return found


def report(table: Table, soak: Soak) -> None:
    table.row("requests that ended, by how", ", ".join(f"{n} {how}" for how, n in sorted(soak.ends.items())))
    table.row("ended twice, or said something after the end", f"{len(soak.strange)}", "0", not soak.strange)
    errors = [how for how in soak.ends if how.startswith("error")]
    table.row("errors", ", ".join(errors) or "0", "0", not errors)
    for phase in ("queued", "prefill", "decode"):
        times = soak.latencies.get(phase, [])
        if times:
            name = f"stop while {phase}: longest of {len(times)}, median {statistics.median(times) * 1000:.0f} ms"
            table.row(name, f"{max(times) * 1000:.0f} ms", "< 1000 ms", max(times) < 1)
    quarter = [size for n, size in soak.private if soak.n_ended // 4 <= n < soak.n_ended // 2]
    last = [size for n, size in soak.private if n >= 3 * soak.n_ended // 4]
    grown = (statistics.median(last) - statistics.median(quarter)) / 2**20
    name = f"private memory, second quarter {statistics.median(quarter) / 2**20:.0f} MiB, grown by the last"
    table.row(name, f"{grown:+.1f} MiB", "< 4 MiB", grown < 4)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--requests", type=int, default=2000)
    options = parser.parse_args()
    tables = []
    for model in options.models:
        table = Table(f"{Path(model).name}: {options.requests} requests, {options.threads} threads")
        loads = stopped_loads(model, options)
        table.row("stop while loading: longest", f"{max(loads) * 1000:.0f} ms", "< 1000 ms", max(loads) < 1)
        soak = Soak(options, model)
        try:
            soak.run()
            report(table, soak)
            whole = soak.whole_context()
            table.row("a prompt of the whole context afterwards", whole, "4 tokens", "4 tokens" in whole)
            left = soak.all_cells()
            table.row("cells in use that belong to nobody", f"{left}", "<= 0", left <= 0)
        finally:
            soak.client.stop()
        tables.append(table)
    finish(*tables)


if __name__ == "__main__":
    main()
