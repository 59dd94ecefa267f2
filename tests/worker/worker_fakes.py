"""Clients of scripted workers for the tests of this folder."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from engine import events
from engine.message import PromptMessage
from engine.sampling import SamplingParams
from engine.worker import protocol
from engine.worker.client import WorkerClient

E = TypeVar("E", bound=events.Event)
TIMEOUT_S = 20.0


class Recorder:
    """Keeps all events, and waits for one."""

    def __init__(self) -> None:
        self.events: list[events.Event] = []
        self._news = threading.Condition()

    def __call__(self, event: events.Event) -> None:
        with self._news:
            self.events.append(event)
            self._news.notify_all()

    def of(self, kind: type[E], request_id: str | None = None) -> list[E]:
        with self._news:
            found = [e for e in self.events if isinstance(e, kind)]
        return [e for e in found if request_id is None or e.request_id == request_id]

    def wait(self, kind: type[E], request_id: str | None = None, *, n: int = 1, timeout_s: float = TIMEOUT_S) -> E:
        """The n-th event of a kind."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = self.of(kind, request_id)
            if len(found) >= n:
                return found[n - 1]
            with self._news:
                if not self._news.wait(min(0.05, max(0.0, deadline - time.monotonic()))):
                    assert time.monotonic() < deadline, f"no {kind.__name__} within {timeout_s} s: {self.events[-5:]}"

    def text(self, request_id: str) -> str:
        return "".join(t.text for t in self.of(events.Token, request_id) if t.channel == "text")


def command(script: dict[str, Any] | str | None = None) -> list[str]:
    text = script if isinstance(script, str) else json.dumps(script or {})
    return [sys.executable, "-m", "engine.worker.fake", "--script", text]


# The least that speaks the protocol: it starts in a fifth of the time of the scripted worker, so many can be started.
# It dies by a signal in the middle of a load, or of an answer of which it has written all words it was given.
_QUICK = r"""
import os, sys
signal, when, stderr, words = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:]
def say(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
def die():
    sys.stderr.write(stderr + "\n")
    sys.stderr.flush()
    os.kill(os.getpid(), signal)
say('{"type":"hello","protocol":VERSION,"engine":"quick","pid":%d}' % os.getpid())
for line in sys.stdin:
    request = line.split('"id":"')[1].split('"')[0]
    if '"load"' in line:
        say('{"type":"load_progress","request_id":"%s","fraction":0.5}' % request)
        if when == "loading":
            die()
    elif '"generate"' in line:
        for i, word in enumerate(words):
            head = '{"type":"token","token_id":7,"piece":"","request_id":"%s",' % request
            say(head + '"index":%d,"text":"%s"}' % (i, word))
        die()
""".replace("VERSION", str(protocol.PROTOCOL_VERSION))


def quick(number: int, when: str, stderr: str, words: Sequence[str] = ()) -> tuple[WorkerClient, Recorder]:
    recorder = Recorder()
    program = [sys.executable, "-I", "-S", "-c", _QUICK, str(number), when, stderr, *words]
    return WorkerClient(recorder, command=program), recorder


def make(script: dict[str, Any] | str | None = None) -> tuple[WorkerClient, Recorder]:
    recorder = Recorder()
    return WorkerClient(recorder, command=command(script)), recorder


@contextmanager
def running(
    script: dict[str, Any] | str | None = None, *, load: bool = False
) -> Iterator[tuple[WorkerClient, Recorder]]:
    client, recorder = make(script)
    try:
        client.start(TIMEOUT_S)
        if load:
            client.request(load_request(client), TIMEOUT_S)
        yield client, recorder
    finally:
        client.stop(2.0)


def load_request(client: WorkerClient, path: str = "/models/SmolLM2-135M.gguf") -> protocol.Load:
    return protocol.Load(id=client.new_id(), path=path)


def generate(client: WorkerClient, content: str = "Hello", **sampling: Any) -> protocol.Generate:
    return protocol.Generate(
        id=client.new_id(), messages=(PromptMessage("user", content),), sampling=SamplingParams(**sampling)
    )


def until(condition: Callable[[], bool], timeout_s: float = 5.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def pid_runs(pid: int) -> bool:
    """True if the process exists and is no zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False
