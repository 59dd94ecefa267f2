"""Our own time per step: what passes between two calls of `llama_decode` outside llama.cpp's functions.

    python tests/bench/step_time.py [MODEL.gguf ...] [--tokens 200] [--threads N] [--slots 1,8]

The worker runs with a clock at llama.cpp's door (`timed_worker.py`) under the engine, writing answers in stored chats:
planning the batch, probabilities, text, events and the pipe are all in the figure.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench_help import Table, arguments, finish, session, text_of

AIMS_MS = {1: 0.2, 8: 0.6}


def measure(model: str, n_slots: int, options: Any) -> dict[str, dict[str, list[float]]]:
    """The clock's figures by tokens in a batch."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "times.json"
        command = [sys.executable, str(Path(__file__).with_name("timed_worker.py")), str(out)]
        with session(command=command) as one:
            n_ctx = n_slots * (options.tokens + 512)
            one.load(Path(model), n_ctx=n_ctx, n_slots=n_slots, n_threads=options.threads, n_gpu_layers=0)
            chats = [one.chat(max_tokens=options.tokens) for _ in range(n_slots)]
            answers = [one.send(chat, text_of(20, seed)) for seed, chat in enumerate(chats)]
            for answer in answers:
                one.wait(answer)
        found: dict[str, dict[str, list[float]]] = json.loads(out.read_text())
        return found


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--slots", default="1,8")
    options = parser.parse_args()
    tables = []
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
    for model in options.models:
        table = Table(f"{Path(model).name}: our own time per step, {options.threads} threads")
        for n_slots in map(int, options.slots.split(",")):
            found = measure(model, n_slots, options).get(str(n_slots), {"own": [], "native": [], "row": []})
            own, native = sorted(found["own"]), found["native"]
            if len(own) < 20:
                table.row(f"{n_slots} at once", "too few steps", "", False)
                continue
            aim = AIMS_MS.get(n_slots)
            middle, late = statistics.median(own) * 1000, own[int(0.95 * len(own))] * 1000
            mean, share = statistics.mean(own) * 1000, sum(own) / (sum(own) + sum(native))
            reached = None if aim is None else middle < aim
            table.row(
                f"{n_slots} at once, median of {len(own)} steps",
                f"{middle:.3f} ms",
                f"< {aim} ms" if aim else "",
                reached,
            )
            table.row("   mean / 95th of a hundred", f"{mean:.3f} / {late:.3f} ms")
            table.row("   ggml's softmax and product of a row", f"{statistics.median(found['row']) * 1000:.3f} ms")
            table.row("   share of the whole time", f"{share:.1%}")
        tables.append(table)
    finish(*tables)


if __name__ == "__main__":
    main()
