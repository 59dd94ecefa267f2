"""What the measuring scripts share: an engine to ask, and a table with the aim beside each figure.

Ratios are medians over rounds; in each round all that is compared is measured one after the other, so that what else
goes on at this computer meets all alike.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "worker")]
os.environ["PYTHONPATH"] = str(ROOT)
os.environ.setdefault("GOMP_SPINCOUNT", "2000")  # as the worker has it; read when llama.cpp is loaded

from engine import events  # noqa: E402
from engine.message import ChatSettings, Message  # noqa: E402
from engine.models import starter  # noqa: E402
from engine.paths import resolve  # noqa: E402
from engine.sampling import SamplingParams  # noqa: E402
from engine.service import Engine  # noqa: E402

_WORDS = (
    "harbour copper meadow lantern gravel orchard signal winter pepper marble anchor valley ribbon saddle timber "
    "engine bottle candle desert forest garden hammer island jacket kettle ladder magnet needle oyster pocket quarry"
)
WORDS = _WORDS.split()


def arguments(doc: str | None, *, rounds: int = 5) -> argparse.ArgumentParser:
    """A parser with what all scripts take. The default model is the starter."""
    parser = argparse.ArgumentParser(description=(doc or "").split("\n")[0])
    found = starter.find()
    parser.add_argument("models", nargs="*", metavar="MODEL.gguf", default=[str(found)] if found else [])
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    return parser


class Table:
    """Rows of figures; each says whether it reaches its aim."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.missed: list[str] = []
        load = os.getloadavg()[0]
        print(f"\n{title}   (load of this computer before: {load:.1f})")
        print(f"  {'':62}{'figure':>16}   aim")

    def row(self, name: str, figure: str, aim: str = "", reached: bool | None = None) -> None:
        mark = {None: "", True: "ok", False: "MISSED"}[reached]
        print(f"  {name:62}{figure:>16}   {aim:<14}{mark}", flush=True)
        if reached is False:
            self.missed.append(name)

    def ratio(self, name: str, pairs: Sequence[tuple[float, float]], aim: float | None = None) -> float:
        """The median of ours / theirs over the rounds."""
        ratios = [ours / theirs for ours, theirs in pairs]
        middle = statistics.median(ratios)
        ours = statistics.median(pair[0] for pair in pairs)
        words = f"{name}  ({ours:.1f}/s; {min(ratios):.3f}–{max(ratios):.3f})"
        reached = None if aim is None else middle >= aim
        self.row(words, f"{middle:.3f}", "" if aim is None else f">= {aim:g}", reached)
        return middle


def text_of(n_words: int, seed: int) -> str:
    """Words that say nothing, other ones for each seed."""
    import random

    draw = random.Random(seed)
    return f"{seed}: " + " ".join(draw.choices(WORDS, k=n_words))


class Session:
    """An engine on a profile, and plain calls that wait."""

    def __init__(
        self, home: Path, *, command: Sequence[str] | None = None, speculate: bool = False, trace: bool = False
    ) -> None:
        self.engine = Engine(resolve(home).ensure(), worker_command=command)
        self.tokens: dict[int, list[tuple[float, events.Token]]] = {}
        self.progress: dict[int, list[tuple[float, events.PromptProgress]]] = {}
        self.finished: dict[int, Message] = {}
        self._news = threading.Condition()
        self.engine.subscribe(self._take)
        self.engine.settings.speculate, self.engine.settings.trace = speculate, trace
        self.engine.start().result(30)

    def _take(self, event: events.Event) -> None:
        now = time.perf_counter()
        if isinstance(event, events.GenerationStep):
            if isinstance(event.step, events.Token):
                if event.step.token_id >= 0:
                    self.tokens.setdefault(event.message_id, []).append((now, event.step))
            else:
                self.progress.setdefault(event.message_id, []).append((now, event.step))
        elif isinstance(event, events.GenerationFinished):
            with self._news:
                self.finished[event.message.id] = event.message
                self._news.notify_all()

    def load(self, model: str | Path, **options: Any) -> events.ModelInfo:
        self.model = self.engine.load_model(model, **options).result(300)
        return self.model

    def chat(self, *, max_tokens: int, endless: bool = True, **sampling: Any) -> int:
        """A new chat; greedy, and past any end token unless `endless` is False."""
        chat = self.engine.chats.create().result(30)
        self.shape(chat.id, max_tokens=max_tokens, endless=endless, **sampling)
        return chat.id

    def shape(self, chat_id: int, *, max_tokens: int, endless: bool = True, **sampling: Any) -> None:
        bans = dict.fromkeys(self.model.eog_tokens, -1e9) if endless else {}
        params = SamplingParams(**{"temperature": 0.0, "seed": 1, **sampling}, max_tokens=max_tokens, logit_bias=bans)
        self.engine.chats.set_settings(chat_id, ChatSettings(sampling=params)).result(30)

    def send(self, chat_id: int, text: str) -> Message:
        """Ask; gives the answer that is being written now."""
        self.engine.chats.send(chat_id, text).result(30)
        _, branch = self.engine.chats.open(chat_id).result(30)
        return branch[-1]

    def wait(self, answer: Message, timeout_s: float = 600) -> Message:
        end = time.monotonic() + timeout_s
        with self._news:
            while answer.id not in self.finished:
                left = end - time.monotonic()
                if left <= 0:
                    raise SystemExit("an answer does not end")
                self._news.wait(left)
        found = self.finished[answer.id]
        if found.status == "failed":
            raise SystemExit(f"an answer failed: {found.generation and found.generation.error}")
        return found

    def ask(self, chat_id: int, text: str) -> Message:
        return self.wait(self.send(chat_id, text))

    def ids(self, answer: Message) -> list[int]:
        """Token ids of an answer that was written while this session watched."""
        return [token.token_id for _, token in self.tokens.get(answer.id, [])]

    def until(self, done: Callable[[], bool], timeout_s: float = 120) -> None:
        end = time.monotonic() + timeout_s
        while not done():
            if time.monotonic() > end:
                raise SystemExit("timed out")
            time.sleep(0.002)

    def close(self) -> None:
        self.engine.stop(30)


@contextmanager
def session(
    home: Path | None = None, *, command: Sequence[str] | None = None, speculate: bool = False, trace: bool = False
) -> Iterator[Session]:
    """A session on this profile, or on a throw-away one. speculate: tokens may be guessed ahead. trace: each answer is
    traced."""
    with tempfile.TemporaryDirectory() as folder:
        one = Session(home or Path(folder), command=command, speculate=speculate, trace=trace)
        try:
            yield one
        finally:
            one.close()


def usage(message: Message) -> Any:
    assert message.generation is not None
    return message.generation.usage


def timings(message: Message) -> Any:
    assert message.generation is not None
    return message.generation.timings


def finish(*tables: Table) -> None:
    """Say what was missed; the exit status tells it too."""
    missed = [f"{table.title}: {name}" for table in tables for name in table.missed]
    for line in missed:
        print(f"missed: {line}")
    sys.exit(1 if missed else 0)
