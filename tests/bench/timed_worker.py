"""The worker itself, with a clock at llama.cpp's door: what lies between two calls is our own time.

    python tests/bench/timed_worker.py OUT.json

speaks the worker's protocol; when its input ends it writes for each number of tokens in a batch the times in seconds
from the end of one `llama_decode` to the begin of the next, without those spent in functions of llama.cpp:
`llama_sampler_sample`, and ggml's softmax and product of a row, by which a token's probability and the entropy are
found ("row" in the file). Only two steps of equal batches in a row count: such are answers being written. Two readings
of the clock a call are all that it adds.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))


class Clock:
    def __init__(self) -> None:
        self.own: dict[int, list[float]] = defaultdict(list)
        self.native: dict[int, list[float]] = defaultdict(list)
        self.row: dict[int, list[float]] = defaultdict(list)
        self._ended = self._sampling = self._row = 0.0
        self._size = 0

    def watch(self, lib: Any) -> None:
        decode, sample, now = lib.llama_decode, lib.llama_sampler_sample, time.perf_counter

        def timed_decode(context: Any, batch: Any) -> int:
            began, size = now(), batch.n_tokens
            again = size == self._size
            if again:
                self.own[size].append(began - self._ended - self._sampling - self._row)
                self.row[size].append(self._row)
            code: int = decode(context, batch)
            ended = now()
            if again:
                self.native[size].append(self._sampling + ended - began)
            self._ended, self._size = ended, size
            self._sampling = self._row = 0.0
            return code

        def timed_sample(sampler: Any, context: Any, row: int) -> int:
            began = now()
            token: int = sample(sampler, context, row)
            self._sampling += now() - began
            return token

        lib.llama_decode, lib.llama_sampler_sample = timed_decode, timed_sample

    def watch_rows(self, module: Any, name: str) -> None:
        """Time one of ggml's functions for rows, where the library shows it. `module.name()` gives it."""
        find, now = getattr(module, name), time.perf_counter

        def timed() -> Any:
            if (function := find()) is None:
                return None

            def call(*arguments: Any) -> float:
                began = now()
                total: float = function(*arguments)
                self._row += now() - began
                return total

            return call

        setattr(module, name, timed)

    def write(self, path: str) -> None:
        found = {size: {"own": self.own[size], "native": self.native[size], "row": self.row[size]} for size in self.own}
        Path(path).write_text(json.dumps(found))


def main() -> None:
    import llama_cpp.llama_cpp as lib

    from engine.worker import probability, tracer
    from engine.worker.__main__ import main as worker

    clock = Clock()
    clock.watch(lib)
    clock.watch_rows(probability, "soft_max")
    tracer.soft_max = probability.soft_max
    clock.watch_rows(tracer, "_dot")
    code = worker()
    clock.write(sys.argv[1])
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
