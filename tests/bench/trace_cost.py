"""What a trace of every token costs: decode speed with it beside that without, in turns, on this machine.

    python tests/bench/trace_cost.py [MODEL.gguf ...] [--tokens 128] [--rounds 9] [--penalties]

Each round writes the same answer four times, without, with, with, without a trace, so that a drift of the machine's
speed meets both alike. Two figures for each model: in the model process alone (read by a small script), and through the
engine with its recorder and the chats on disk. Rates are (tokens - 1) / decode_s as the worker measured it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import bench_help
from raw_worker import RawWorker

from engine import events
from engine.paths import resolve
from engine.sampling import SamplingParams
from engine.service import Engine

PROMPT = "Tell me a long story about the sea, and what lives in it."
ENDS = {str(token): -1e9 for token in (0, 1, 2, 4, 106)}
AIM = 0.95


def sampling(options: argparse.Namespace) -> dict[str, Any]:
    fields: dict[str, Any] = {"seed": 3, "max_tokens": options.tokens}
    if options.penalties:
        fields |= {"repeat_penalty": 1.1, "dry_multiplier": 0.8}
    return fields


def in_worker(model: str, options: argparse.Namespace) -> list[float]:
    """Speed with a trace as a share of that without, for each round."""
    shares: list[float] = []
    with RawWorker() as worker:
        worker.load(model, n_ctx=2048, n_threads=options.threads)

        def rate(trace: bool) -> float:
            messages = [{"role": "user", "content": PROMPT}]
            request = worker.generate(messages=messages, sampling=sampling(options), trace=trace)
            done = worker.answer(request, timeout=300).done
            worker.events.clear()
            return float(done["timings"]["decode_tps"])

        rate(True)
        shares += [_share(rate) for _ in range(options.rounds)]
    return shares


def in_engine(model: str, options: argparse.Namespace) -> list[float]:
    shares: list[float] = []
    with tempfile.TemporaryDirectory() as home:
        engine = Engine(resolve(Path(home)))
        done: list[events.GenerationFinished] = []
        ended = threading.Event()

        def see(event: events.Event) -> None:
            if isinstance(event, events.GenerationFinished):
                done.append(event)
                ended.set()

        engine.subscribe(see)
        try:
            engine.start().result(30)
            engine.load_model(model, n_ctx=2048, n_threads=options.threads).result(120)
            params = SamplingParams(**sampling(options))

            def rate(trace: bool) -> float:
                engine.change_settings(trace=trace, sampling=params, speculate=False).result(10)
                ended.clear()
                engine.chats.send(None, PROMPT).result(10)
                if not ended.wait(300):
                    raise TimeoutError
                record = done[-1].message.generation
                assert record is not None and record.timings.decode_tps is not None
                return record.timings.decode_tps

            rate(True)
            shares += [_share(rate) for _ in range(options.rounds)]
            n, n_bytes = engine.traces.usage().result(10)
            print(f"  {n} traces of {options.tokens} tokens take {n_bytes / max(1, n) / 1024:.0f} KiB each on disk")
        finally:
            engine.stop()
    return shares


def _share(rate: Any) -> float:
    off, on, on_again, off_again = rate(False), rate(True), rate(True), rate(False)
    return float((on + on_again) / (off + off_again))


def main() -> int:
    parser = bench_help.arguments(__doc__, rounds=9)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--penalties", action="store_true", help="with samplers that change logits, too")
    options = parser.parse_args()
    missed = []
    for model in options.models:
        table = bench_help.Table(f"cost of a trace, {Path(model).name}")
        for name, measure in (("model process", in_worker), ("through the engine", in_engine)):
            shares = measure(model, options)
            middle = statistics.median(shares)
            spread = f"{min(shares):.3f} to {max(shares):.3f}"
            table.row(f"{name}: with a trace / without ({spread})", f"{middle:.3f}", f">= {AIM}", middle >= AIM)
        missed += table.missed
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
