"""One chat is being written while 3,000 tokens are pasted into another: the longest gap between two of its tokens.

    python tests/bench/paste_gap.py [MODEL.gguf ...] [--rounds 3] [--paste 3000] [--threads N]

Gaps are those that the chat's reader sees, so the moment that tokens wait to be written together is in them.
"""

from __future__ import annotations

import statistics
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench_help import Session, Table, arguments, finish, session, text_of, timings, usage

N_BEFORE = 24


def gaps(times: list[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(times)]


def once(one: Session, n_words: int, seed: int) -> tuple[list[float], list[float], Any]:
    """Gaps of the writing chat in seconds: before the paste, while it was read; and the pasted chat's answer."""
    writing, pasting = one.chat(max_tokens=100_000), one.chat(max_tokens=8)
    answer = one.send(writing, f"{seed}: Tell a long story.")
    one.until(lambda: len(one.tokens.get(answer.id, [])) >= N_BEFORE)
    pasted = one.send(pasting, text_of(n_words, seed))
    began = one.progress[pasted.id][0][0] if pasted.id in one.progress else None
    one.wait(pasted)
    ended = one.tokens[pasted.id][0][0]
    one.engine.chats.stop(writing)
    one.wait(answer)
    times = [when for when, _ in one.tokens[answer.id]]
    began = began or one.progress[pasted.id][0][0]
    # the gap that the paste begins in belongs to it, and so does the one that it ends in
    first = max((i for i, when in enumerate(times) if when <= began), default=0)
    last = next((i for i, when in enumerate(times) if when >= ended), len(times) - 1)
    return gaps(times[: first + 1]), gaps(times[first : last + 1]), one.finished[pasted.id]


def main() -> None:
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--paste", type=int, default=3000)
    options = parser.parse_args()
    tables = []
    for model in options.models:
        table = Table(f"{Path(model).name}: a paste of {options.paste} tokens beside a chat, {options.threads} threads")
        with session() as one:
            load = {"n_threads": options.threads, "n_gpu_layers": 0}
            one.load(Path(model), n_ctx=3 * options.paste + 4096, n_slots=4, **load)
            share = len(one.engine.tokenize(text_of(200, 1)).result(30).tokens) / 200
            for number in range(options.rounds):
                before, during, pasted = once(one, round(options.paste / share), 10 + number)
                used, took = usage(pasted), timings(pasted)
                read = used.prompt_tokens - used.cached_tokens
                name = f"round {number + 1}: {read} read in {took.prefill_s:.1f} s, {len(during)} written meanwhile"
                table.row(name, f"{max(during) * 1000:.0f} ms", "< 250 ms", max(during) < 0.25)
                middle = statistics.median(during) * 1000
                table.row("   median gap meanwhile / longest before", f"{middle:.0f} / {max(before) * 1000:.0f} ms")
        tables.append(table)
    finish(*tables)


if __name__ == "__main__":
    main()
