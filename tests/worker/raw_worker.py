"""Drives the worker process with plain JSON lines, without the client: what it says is checked as it is on the wire."""

from __future__ import annotations

import base64
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
Event = dict[str, Any]


class RawWorker:
    """A worker and everything it has said. Use as a context manager: no test leaves one behind."""

    def __init__(
        self,
        *,
        hooks: dict[str, str] | None = None,
        env: dict[str, str] | None = None,
        emulator: tuple[str, ...] = (),
    ) -> None:
        settings = {f"INGLENOOK_TEST_{k}": v for k, v in (hooks or {}).items()}
        if hooks:
            settings["INGLENOOK_TEST_HOOKS"] = "1"
        self.process = subprocess.Popen(
            [*emulator, sys.executable, "-m", "engine.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **settings, **(env or {})},
        )
        self.events: list[Event] = []
        self.bad_lines: list[bytes] = []
        self._queue: queue.Queue[Event | None] = queue.Queue()
        self._stderr: list[bytes] = []
        self._count = 0
        self._threads = [threading.Thread(target=self._read), threading.Thread(target=self._read_stderr)]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> RawWorker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self.process.stdin and self.process.stdout and self.process.stderr
        try:
            self.process.stdin.close()
        except OSError:
            pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for thread in self._threads:
            thread.join(10)
        self.process.stdout.close()
        self.process.stderr.close()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                self.bad_lines.append(line)
                continue
            event["_at"] = time.monotonic()
            self._queue.put(event)
        self._queue.put(None)

    def _read_stderr(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            self._stderr.append(line)

    @property
    def stderr(self) -> str:
        return b"".join(self._stderr).decode("utf-8", "replace")

    # ------------------------------------------------------------------ requests

    def send_line(self, line: bytes) -> None:
        assert self.process.stdin
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def send(self, kind: str, **fields: Any) -> str:
        """Send a request; returns its id."""
        self._count += 1
        request = {"type": kind, "id": fields.pop("id", f"r{self._count}"), **fields}
        self.send_line(json.dumps(request).encode() + b"\n")
        return str(request["id"])

    def next_event(self, timeout: float = 60) -> Event:
        event = self._queue.get(timeout=timeout)
        if event is None:
            raise EOFError(f"the worker ended with {self.process.wait(10)}: {self.stderr[-2000:]}")
        self.events.append(event)
        return event

    def wait(self, *kinds: str, id: str | None = None, timeout: float = 60) -> Event:
        """The next event of one of these kinds (of this request); what comes before it is kept in `events`."""
        end = time.monotonic() + timeout
        while True:
            event = self.next_event(max(0.01, end - time.monotonic()))
            if event["type"] in kinds and id in (None, event.get("request_id")):
                return event

    # ------------------------------------------------------------------ whole exchanges

    def load(self, path: str | Path, **options: Any) -> Event:
        """Load a model; returns its ModelInfo."""
        request = self.send("load", path=str(path), **options)
        event = self.wait("loaded", "error", id=request)
        assert event["type"] == "loaded", event
        info: Event = event["model"]
        return info

    def generate(self, text: str | None = None, **fields: Any) -> str:
        """Send a request for an answer to one user message (or to `messages`, or to `prompt`)."""
        if text is not None:
            fields["messages"] = [{"role": "user", "content": text}]
        return self.send("generate", **fields)

    def ask(self, text: str | None = None, *, timeout: float = 60, **fields: Any) -> Answer:
        """An answer, complete. Keywords that are no field of the request are sampling parameters."""
        own = ("messages", "prompt", "continue_last", "overflow", "logprobs", "priority", "id")
        own += ("cache_key", "speculate", "json_schema", "grammar")
        request = {k: fields.pop(k) for k in own if k in fields}
        return self.answer(self.generate(text, sampling=fields, **request), timeout=timeout)

    def answer(self, request: str, *, timeout: float = 60) -> Answer:
        """Wait for the end of a request."""
        if not any(e["type"] in ("done", "error") and e.get("request_id") == request for e in self.events):
            self.wait("done", "error", id=request, timeout=timeout)
        return Answer([e for e in self.events if e.get("request_id") == request])

    def tokens_of(self, **fields: Any) -> list[int]:
        event = self.wait("tokenized", "error", id=self.send("tokenize", **fields))
        assert event["type"] == "tokenized", event
        return list(event["tokens"])

    def stop(self, target: str) -> None:
        self.send("stop", target=target)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)


class Answer:
    """All events of one request, taken apart."""

    def __init__(self, events: list[Event]) -> None:
        self.events = events
        self.end = events[-1]
        self.steps = [e for e in events if e["type"] == "token"]
        self.tokens = [e for e in self.steps if e["token_id"] >= 0]

    @property
    def error(self) -> Event:
        assert self.end["type"] == "error", self.end
        found: Event = self.end["error"]
        return found

    @property
    def done(self) -> Event:
        assert self.end["type"] == "done", self.end
        return self.end

    @property
    def text(self) -> str:
        return str(self.done["text"])

    @property
    def ids(self) -> list[int]:
        return [e["token_id"] for e in self.tokens]

    @property
    def streamed(self) -> str:
        return "".join(e.get("text", "") for e in self.steps if e.get("channel", "text") == "text")

    @property
    def raw(self) -> bytes:
        return b"".join(base64.b64decode(e["piece"]) for e in self.tokens)

    @property
    def reason(self) -> str:
        return str(self.done["finish_reason"])
