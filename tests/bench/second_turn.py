"""The second turn after a long history: what is read again, whether the text is the same, and after a restart.

    python tests/bench/second_turn.py [MODEL.gguf ...] [--rounds 5] [--history 3000] [--threads N]

"The same text" is judged by a bare loop that computes everything anew in the same pieces: the history, each token of
the first answer by itself, the new turn, then greedily on. After a restart the state on disk is used, or, in a copy of
the profile without it, everything is read again; both in turns.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bare_batch import BareBatch
from bench_help import Session, Table, arguments, finish, session, text_of, timings, usage

from engine import events
from engine.message import Message, PromptMessage, Role
from engine.model_host import new_id
from engine.worker import protocol

N_ANSWER = 24
SECOND = "Now say it in one sentence."
THIRD = "And what comes next?"


def rendered(one: Session, messages: list[PromptMessage]) -> list[int]:
    """Tokens of the prompt that these messages make."""
    found: list[int] = []
    ended: list[events.Event] = []

    def on_event(event: events.Event) -> None:
        if isinstance(event, events.Tokenized):
            found.extend(event.tokens)
        ended.append(event)

    one.engine.model.submit(protocol.Tokenize(id=new_id(), messages=tuple(messages)), on_event)
    one.until(lambda: bool(ended))
    return found


def same_as_bare(model: str, n_first: int, second: list[int], have: int, options: Any) -> list[int]:
    """Greedy tokens after the second prompt, computed anew in the worker's pieces: the first prompt, the tokens of the
    first answer one by one up to the `have` tokens that were not read again, the rest."""
    bare = BareBatch(model, n_seq=4, n_ctx=options.n_ctx, n_threads=options.threads, endless=False)
    bare.read([second[:n_first]], 512)
    for place in range(n_first, have):
        bare.feed([(second[place], place, 0, True)])
    rest = second[have:]
    for start in range(0, len(rest), 512):
        part = rest[start : start + 512]
        bare.feed([(t, have + start + i, 0, start + i == len(rest) - 1) for i, t in enumerate(part)])
    bare.next, bare._past = [bare._sample(0, len(part) - 1)], [len(second)]
    (tokens,) = bare.write(N_ANSWER - 1)[1]
    bare.close()
    return tokens


def two_turns(one: Session, model: str, options: Any, table: Table) -> int:
    """Ask twice; gives the chat."""
    share = len(one.engine.tokenize(text_of(200, 1)).result(30).tokens) / 200
    chat = one.chat(max_tokens=N_ANSWER, endless=False)
    question = text_of(round(options.history / share), 7)
    first = one.ask(chat, question)
    second = one.ask(chat, SECOND)
    was, now = usage(first), usage(second)
    new = now.prompt_tokens - was.prompt_tokens - was.completion_tokens
    read = now.prompt_tokens - now.cached_tokens
    name = f"history of {was.prompt_tokens} tokens, new turn of {new}: tokens read"
    table.row(name, f"{read}", f"<= {new + 1}", read <= new + 1)
    ttft = timings(first).ttft_s, timings(second).ttft_s
    table.row("   first token: first turn / second turn", f"{ttft[0]:.2f} / {ttft[1]:.3f} s")
    turns: tuple[tuple[Role, str], ...] = (("user", question), ("assistant", first.text), ("user", SECOND))
    whole = rendered(one, [PromptMessage(role, text) for role, text in turns])
    expected = same_as_bare(model, was.prompt_tokens, whole, max(was.prompt_tokens, now.cached_tokens), options)
    got = one.ids(second)
    common = next((i for i, (a, b) in enumerate(zip(got, expected, strict=False)) if a != b), len(got))
    name = f"   second answer as the bare loop's: equal tokens of {len(got)}"
    table.row(name, f"{common}", "all", common == len(got))
    return chat


def after_restart(home: Path, model: str, chat: int, options: Any) -> Message:
    with session(home) as one:
        one.load(Path(model), **load_options(options))
        one.shape(chat, max_tokens=N_ANSWER, endless=False)
        return one.ask(chat, THIRD)


def load_options(options: Any) -> dict[str, Any]:
    return {"n_ctx": options.n_ctx, "n_threads": options.threads, "n_gpu_layers": 0, "n_slots": 4}


def copied(home: Path, change: Callable[[Path], None]) -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory()
    shutil.copytree(home, Path(folder.name) / "home")
    change(Path(folder.name) / "home")
    return folder


def without_states(home: Path) -> None:
    for path in home.rglob("*.kv"):
        path.unlink()


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--history", type=int, default=3000)
    options = parser.parse_args()
    options.n_ctx = options.history + 2048
    tables = []
    for model in options.models:
        table = Table(f"{Path(model).name}: second turn, {options.threads} threads")
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder) / "profile"
            with session(home) as one:
                one.load(Path(model), **load_options(options))
                chat = two_turns(one, model, options, table)
            states = [path.stat().st_size for path in home.rglob("*.kv")]
            table.row("states on disk after the end", f"{len(states)}, {sum(states) / 2**20:.0f} MiB")
            restored, anew, texts = [], [], []
            for _ in range(options.rounds):
                pair = []
                for change, times in ((lambda home: None, restored), (without_states, anew)):
                    with copied(home, change) as place:
                        answer = after_restart(Path(place) / "home", model, chat, options)
                    times.append(timings(answer).ttft_s or 0.0)
                    pair.append(answer)
                texts.append(pair)
            ratio = statistics.median(b / a for a, b in zip(restored, anew, strict=True))
            middle = statistics.median(restored), statistics.median(anew)
            name = f"after a restart: first token {middle[0]:.3f} s, read anew {middle[1]:.2f} s"
            table.row(name, f"{ratio:.1f}", ">= 5", ratio >= 5)
            used = usage(texts[0][0])
            read = used.prompt_tokens - used.cached_tokens
            table.row("   tokens restored / read", f"{used.restored_tokens} / {read}")
            table.row("   texts equal to those read anew", f"{sum(a.text == b.text for a, b in texts)} of {len(texts)}")
        tables.append(table)
    finish(*tables)


if __name__ == "__main__":
    main()
