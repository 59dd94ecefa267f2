"""Prefill and decode beside a bare llama.cpp loop: one sequence and several, in the worker and through a chat.

    python tests/bench/engine_speed.py [MODEL.gguf ...] [--rounds 5] [--pp 512] [--tg 128] [--parallel 1,2,4,8]

The bare loop (`bare_batch.py`) has the same threads, batches and options of the context, feeds the same random tokens
and samples greedily. "own streams" is the same loop with a part of the cache for each sequence, for information.
Last, the greedy texts: where llama.cpp's own batched run says what its serial run says, the worker's must too.
"""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Any

from bare_batch import BareBatch
from bench_help import Session, Table, arguments, finish, session

from engine import events
from engine.bench_chats import BenchChats
from engine.message import error_from
from engine.model_host import new_id
from engine.sampling import SamplingParams
from engine.worker import protocol

QUESTIONS = (
    "What is the capital of France?",
    "Write a haiku about rain.",
    "List three colours.",
    "Explain gravity to a child in two sentences.",
    "Who wrote Hamlet?",
    "Tell me a joke about computers.",
    "What is the difference between TCP and UDP?",
    "Write one line of C that prints hello.",
)
N_TEXT = 48


def in_worker(one: Session, n_parallel: int, options: Any) -> events.Benched:
    found: Future[events.Benched] = Future()

    def on_event(event: events.Event) -> None:
        if isinstance(event, events.Benched):
            found.set_result(event)
        elif isinstance(event, events.Error):
            found.set_exception(error_from(event.error))

    request = protocol.Bench(id=new_id(), n_parallel=n_parallel, n_prompt=options.pp, n_generate=options.tg)
    one.engine.model.submit(request, on_event)
    return found.result(900)


def speeds(model: str, options: Any) -> Table:
    parallel = [int(n) for n in options.parallel.split(",")]
    most = max(parallel)
    n_ctx = most * (options.pp + options.tg + 128)
    table = Table(f"{Path(model).name}: speed, {options.threads} threads, pp {options.pp}, tg {options.tg}")
    bare = BareBatch(model, n_seq=most, n_ctx=n_ctx, n_threads=options.threads)
    streams = BareBatch(model, n_seq=most, n_ctx=n_ctx, n_threads=options.threads, unified=False)
    with session() as one:
        load = {"n_threads": options.threads, "n_threads_batch": options.threads, "n_gpu_layers": 0}
        loaded = one.load(Path(model), n_ctx=n_ctx, n_slots=most, **load)
        chats = BenchChats(
            one.engine,
            loaded,
            n_prompt=options.pp,
            n_generate=options.tg,
            result=lambda future: future.result(900),
            check=lambda: None,
        )
        for n in parallel:
            prefill, decode, chat, own = [], [], [], []
            for _ in range(options.rounds):
                prompts = bare.random_prompts(n, options.pp)
                read_s = bare.read(prompts)
                write_s, _ = bare.write(options.tg)
                bare_read, bare_write = n * options.pp / read_s, n * options.tg / write_s
                found = in_worker(one, n, options)
                in_chat = chats.measure(n) or 0.0
                streams.read(prompts)
                own.append((n * options.tg / streams.write(options.tg)[0], bare_write))
                prefill.append((found.n_prefilled / found.prefill_s, bare_read))
                decode.append((found.n_decoded / found.decode_s, bare_write))
                chat.append((in_chat, bare_write))
            table.ratio(f"prefill of {n}, worker / bare", prefill, 0.98 if n == 1 else None)
            table.ratio(f"decode of {n}, worker / bare", decode, 0.98 if n == 1 else 0.95)
            table.ratio(f"decode of {n}, chats / bare", chat, 0.95 if n == 1 else None)
            if n > 1:
                table.ratio(f"decode of {n}, bare with own streams / bare", own)
    bare.close()
    streams.close()
    return table


# ------------------------------------------------------------------ texts


def worker_texts(one: Session, prompts: list[str], *, together: bool) -> list[list[int]]:
    """Greedy tokens of each prompt, one after the other or all at once, each time in a new worker's cache."""
    answers: list[Future[list[int]]] = []
    for prompt in prompts:
        tokens: list[int] = []
        done: Future[list[int]] = Future()

        def on_event(event: events.Event, tokens: list[int] = tokens, done: Future[list[int]] = done) -> None:
            if isinstance(event, events.Token) and event.token_id >= 0:
                tokens.append(event.token_id)
            elif isinstance(event, events.Done):
                done.set_result(tokens)
            elif isinstance(event, events.Error):
                done.set_exception(error_from(event.error))

        sampling = SamplingParams(temperature=0.0, seed=1, max_tokens=N_TEXT)
        request = protocol.Generate(id=new_id(), prompt=prompt, sampling=sampling, logprobs=False, speculate=False)
        one.engine.model.submit(request, on_event)
        answers.append(done)
        if not together:
            done.result(300)
    return [answer.result(300) for answer in answers]


def first_difference(left: list[int], right: list[int]) -> int | None:
    """The place of the first token that is another one; None where one text is the other, or its beginning."""
    return next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), None)


def noise_at(
    serial: BareBatch, batched: BareBatch, prompts: list[list[int]], which: int, place: int
) -> tuple[float, float]:
    """(gap, noise) of one token of a prompt's greedy text: how far the best logit is above the second in the serial
    run, and how much batches alone move a logit there: the same tokens, once alone and once among the others."""
    serial.read([prompts[which]], 512)
    _, (text,) = serial.write(place)
    serial.read([prompts[which]], 512)
    entries = [(token, len(prompts[which]) + i, 0, True) for i, token in enumerate(text[:place])]
    for entry in entries:
        serial.feed([entry])
    alone = serial.logits(0)
    texts = []
    for prompt in prompts:
        serial.read([prompt], 512)
        texts.append(serial.write(place)[1][0])
    batched.read(prompts, 512)
    for i in range(place):
        feeding = [s for s in range(len(prompts)) if i < len(texts[s])]
        batched.feed([(texts[s][i], len(prompts[s]) + i, s, True) for s in feeding])
    together = batched.logits(feeding.index(which)) if place else alone
    second, best = sorted(alone)[-2:]
    return float(best - second), float(abs(alone - together).max())


def texts(model: str, options: Any) -> Table:
    table = Table(f"{Path(model).name}: greedy texts of {len(QUESTIONS)} at once, {N_TEXT} tokens")
    bare = BareBatch(model, n_seq=8, n_ctx=4096, n_threads=options.threads, endless=False)
    serial = BareBatch(model, n_seq=1, n_ctx=4096, n_threads=options.threads, endless=False)
    with session() as one:
        load = {"n_threads": options.threads, "n_threads_batch": options.threads, "n_gpu_layers": 0}
        loaded = one.load(Path(model), n_ctx=4096, n_slots=8, **load)
        bos = bare.lib.llama_vocab_get_add_bos(bare.vocab)
        plain = [f"Question: {question}\nAnswer:" for question in QUESTIONS]
        prompts = [bare.tokens_of(text) for text in plain]
        assert not bos or all(prompt[0] == loaded.bos_token for prompt in prompts)
        alone = []
        for prompt in prompts:
            serial.read([prompt], 512)
            alone.append(serial.write(N_TEXT - 1)[1][0])
        bare.read(prompts, 512)
        batched = bare.write(N_TEXT - 1)[1]
        ours_alone = worker_texts(one, plain, together=False)
    with session() as one:
        one.load(Path(model), n_ctx=4096, n_slots=8, **load)
        ours = worker_texts(one, plain, together=True)
    stable = [i for i in range(len(plain)) if alone[i] == batched[i]]
    broken = [i for i in stable if ours[i] != ours_alone[i]]
    same_serial = sum(a == b for a, b in zip(ours_alone, alone, strict=True))
    same_batched = sum(a == b for a, b in zip(ours, batched, strict=True))
    table.row("bare: batched text equals the serial one", f"{len(stable)} of {len(plain)}")
    kept = f"{len(stable) - len(broken)} of {len(stable)}"
    table.row("worker: batched equals serial, of these", kept, "all", not broken)
    table.row("worker serial equals bare serial", f"{same_serial} of {len(plain)}")
    table.row("worker batched equals bare batched", f"{same_batched} of {len(plain)}")
    for i in broken:
        place = first_difference(ours[i], ours_alone[i])
        if place is not None:
            gap, noise = noise_at(serial, bare, prompts, i, place)
            table.row(f"  text {i}, token {place}: gap to the second / noise of batches", f"{gap:.3f} / {noise:.3f}")
    bare.close()
    serial.close()
    return table


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--pp", type=int, default=512)
    parser.add_argument("--tg", type=int, default=128)
    parser.add_argument("--parallel", default="1,2,4,8")
    parser.add_argument("--only", choices=("speed", "texts"))
    options = parser.parse_args()
    tables = []
    for model in options.models:
        if options.only != "texts":
            tables.append(speeds(model, options))
        if options.only != "speed":
            tables.append(texts(model, options))
    finish(*tables)


if __name__ == "__main__":
    main()
