"""Decode speed of the worker beside a bare llama.cpp loop, in turns, on this machine, in this run.

    python tests/bench/decode.py MODEL.gguf [--tokens 128] [--rounds 5] [--threads N] [--no-logprobs]

Both write the same greedy answer to the same prompt. The bare loop is `tests/worker/bare_loop.py`: llama_decode,
llama_sampler_sample, nothing else. The worker decodes, samples, computes each token's probability, decodes UTF-8,
looks for stop texts and sends an event a token through the pipe. Rates are (tokens - 1) / (time from the first to
the last token), taken in the process that decodes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "worker"))

from bare_loop import Loop
from raw_worker import RawWorker

PROMPT = "Why did my Kubernetes pod restart? The container's last termination reason is OOMKilled."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--no-logprobs", action="store_true")
    options = parser.parse_args()
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")  # as the worker has it
    loop = Loop(options.model, n_threads=options.threads)
    bare, ours, wall = [], [], []
    with RawWorker() as worker:
        worker.load(options.model, n_ctx=2048, n_threads=options.threads)
        tokens = worker.tokens_of(messages=[{"role": "user", "content": PROMPT}])
        for _ in range(options.rounds):
            plain = loop.greedy(tokens, options.tokens)
            bare.append((len(plain["tokens"]) - 1) / plain["decode_s"])
            answer = worker.ask(
                PROMPT,
                temperature=0,
                max_tokens=options.tokens,
                logprobs=not options.no_logprobs,
                stop=["\nUser:", "###"],
                timeout=300,
            )
            ours.append(answer.done["timings"]["decode_tps"])
            seen = answer.tokens
            wall.append((len(seen) - 1) / (seen[-1]["_at"] - seen[0]["_at"]))
            print(f"bare {bare[-1]:7.1f}   worker {ours[-1]:7.1f}   events at the reader {wall[-1]:7.1f} tokens/s")
    plain_rate, rate, reader = (statistics.median(r) for r in (bare, ours, wall))
    print(f"{'':24}{'tokens/s (median)':>20}{'of bare':>10}")
    for name, value in (("bare loop", plain_rate), ("worker", rate), ("worker, at the reader", reader)):
        print(f"{name:24}{value:20.1f}{value / plain_rate:10.3f}")


if __name__ == "__main__":
    main()
