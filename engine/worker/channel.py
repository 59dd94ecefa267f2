"""The worker's end of the pipe: events out, and the standard streams kept away from it."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import BinaryIO

from engine import events
from engine.errors import EngineError
from engine.message import ErrorInfo
from engine.worker import protocol

#: seconds a token may wait for the next ones, to be written with them; where the processor computes the window looks
#: at them no more often than `CALM_HOLD_S`
HOLD_S, CALM_HOLD_S = 0.05, 0.1


class Channel:
    """Writes events as lines. Any thread may call `send`. A reader that is gone ends the process: nobody is left to
    work for.

    Tokens of a fast model are held and written together, at most `hold_s` late; the first of an answer never is. Every
    write wakes the window's process, and where llama.cpp computes on all cores that stops one of its threads and makes
    the others wait: at 110 tokens a second a write for each costs a tenth of the speed, and no eye sees the difference.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._held = bytearray()
        self._held_since = 0.0
        self.hold_s = HOLD_S

    def send(self, event: events.Event) -> None:
        """Write an event, after the tokens that are held. A token but the first is held until `pace`, or until another
        event."""
        with self._lock:
            if not self._held:
                self._held_since = time.perf_counter()
            protocol.encode_into(event, self._held)
            if not isinstance(event, events.Token) or event.index == 0:
                self._write()

    def pace(self, next_s: float) -> None:
        """Write the held tokens, unless they can wait: for the next ones, that come in about `next_s` seconds."""
        if self._held and time.perf_counter() + next_s - self._held_since > self.hold_s:
            with self._lock:
                self._write()

    def _write(self) -> None:
        rest = memoryview(bytes(self._held))
        self._held.clear()
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            os._exit(0)

    def fail(self, request_id: str, error: EngineError) -> None:
        self.send(events.Error(request_id=request_id, error=info(error)))


def info(error: EngineError) -> ErrorInfo:
    return ErrorInfo(error.code, error.message, error.hint, error.details)


def take_standard_streams() -> tuple[BinaryIO, Channel]:
    """Requests come from a copy of descriptor 0 and events go to a copy of descriptor 1.

    Afterwards descriptor 0 is empty and descriptor 1 is stderr, so that a print of native code or of a library can
    neither corrupt the protocol nor eat requests.
    """
    requests, replies = os.dup(0), os.dup(1)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    os.dup2(2, 1)
    if sys.platform == "win32":
        import msvcrt

        msvcrt.setmode(requests, os.O_BINARY)
        msvcrt.setmode(replies, os.O_BINARY)
    sys.stdout = sys.stderr
    return os.fdopen(requests, "rb", buffering=1024 * 1024), Channel(replies)
