"""Prompt lookup: how much faster a task is that copies, that nothing else gets slower, and that the text is the same.

    python tests/bench/lookup.py [MODEL.gguf ...] [--rounds 5] [--tokens 160] [--threads N]

Each task is answered greedily with guessing and without, in turns, in the same worker and the same cache.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench_help import Table, arguments, finish

from engine import events
from engine.sampling import SamplingParams
from engine.worker import protocol
from engine.worker.client import WorkerClient

_CODE = """def mean(values):
    total = 0.0
    for value in values:
        total = total + value
    return total / len(values)


def variance(values):
    middle = mean(values)
    total = 0.0
    for value in values:
        total = total + (value - middle) * (value - middle)
    return total / len(values)


def deviation(values):
    return variance(values) ** 0.5
"""
_PROSE = (
    "The ship left the harbour at dawn and met a storm before noon. Its captain, an old woman from the north, had seen "
    "worse. She ordered the sails down, tied herself to the wheel and waited. By night the sea was calm again, and the "
    "crew sang until the stars came out."
)
#: (name, prompt, whether it copies)
TASKS = (
    ("code, said again", f"Here is a file:\n\n{_CODE}\n\nHere is the same file again, unchanged:\n\ndef mean(", True),
    ("prose, said again", f"Text: {_PROSE}\n\nThe same text once more, word for word: The ship left", True),
    ("a story", "Once upon a time there was a lighthouse keeper who", False),
    ("an explanation", "Question: What is the difference between TCP and UDP?\nAnswer:", False),
    ("a list", "Ten animals that live in the forest and what they eat:\n1.", False),
)


class Worker:
    """A loaded model."""

    def __init__(self, model: str, options: Any) -> None:
        self.tokens: dict[str, list[int]] = {}
        self.client = WorkerClient(self._take)
        self.client.start()
        load = protocol.Load(id="load", path=model, n_ctx=2048, n_slots=1, n_threads=options.threads, n_gpu_layers=0)
        self.client.request(load, 120)
        self.options = options
        self.count = 0

    def _take(self, event: events.Event) -> None:
        if isinstance(event, events.Token) and event.token_id >= 0:
            self.tokens.setdefault(event.request_id, []).append(event.token_id)

    def answer(self, prompt: str, speculate: bool) -> tuple[float, list[int], events.Done]:
        """Seconds of writing, tokens, the end."""
        self.count += 1
        request = protocol.Generate(
            id=f"a{self.count}",
            prompt=prompt,
            sampling=SamplingParams(temperature=0.0, seed=1, max_tokens=self.options.tokens),
            speculate=speculate,
        )
        done = self.client.request(request, 600)
        assert isinstance(done, events.Done), done
        deadline = time.monotonic() + 1
        while len(self.tokens.get(request.id, [])) < done.usage.completion_tokens and time.monotonic() < deadline:
            time.sleep(0.005)
        return done.timings.decode_s, self.tokens.pop(request.id, []), done


def same_beginning(left: Sequence[int], right: Sequence[int]) -> int:
    return next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))


def task(worker: Worker, name: str, prompt: str, copies: bool, table: Table, rounds: int) -> None:
    pairs, last = [], None
    for _ in range(rounds):
        plain_s, plain, _ = worker.answer(prompt, False)
        guessed_s, guessed, last = worker.answer(prompt, True)
        pairs.append((len(guessed) / max(guessed_s, 1e-9), len(plain) / max(plain_s, 1e-9)))
    assert last is not None
    table.ratio(f"{name}, guessing / plain", pairs, 1.2 if copies else 0.97)
    used = last.usage
    common = same_beginning(plain, guessed)
    table.row("   tokens guessed / right", f"{used.drafted_tokens} / {used.accepted_tokens}")
    table.row(f"   equal tokens of {len(plain)}", f"{common}", "all", common == len(plain) == len(guessed))


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--tokens", type=int, default=160)
    options = parser.parse_args()
    tables = []
    for model in options.models:
        table = Table(f"{Path(model).name}: prompt lookup, {options.threads} threads")
        worker = Worker(model, options)
        try:
            for name, prompt, copies in TASKS:
                task(worker, name, prompt, copies, table, options.rounds)
        finally:
            worker.client.stop()
        tables.append(table)
    finish(*tables)


if __name__ == "__main__":
    main()
