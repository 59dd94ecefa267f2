"""Which requests a worker still owes an answer, and in words what it is at."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import PurePath

import msgspec

from engine import events
from engine.log import sized
from engine.worker import protocol

#: the event that ends a request of each type; `Error` ends any
_ENDS: dict[type[protocol.Request], type[events.Event]] = {
    protocol.Load: events.Loaded,
    protocol.Generate: events.Done,
    protocol.Tokenize: events.Tokenized,
    protocol.Ledger: events.ContextLedger,
    protocol.Bench: events.Benched,
    protocol.SetAdapters: events.AdaptersSet,
    protocol.Embed: events.Embedded,
    protocol.Unload: events.Unloaded,
    protocol.Ping: events.Pong,
}


def has_answer(request: protocol.Request) -> bool:
    """False for a request that nothing answers (`Stop`)."""
    return type(request) in _ENDS


def summary(request: protocol.Request) -> str:
    """A request as a log may show it: kind, id, sizes, a model's file name; never the words of a message."""
    head = f"{type(request).__name__.lower()} {request.id}"
    match request:
        case protocol.Load():
            return f"{head}: {_file_name(request.path)}, n_ctx {request.n_ctx}, gpu layers {request.n_gpu_layers}"
        case protocol.Generate() if request.prompt is not None:
            return f"{head}: a prompt of {sized(request.prompt)}"
        case protocol.Generate():
            size = sum(len(m.content) + len(m.reasoning) for m in request.messages)
            return f"{head}: {len(request.messages)} messages, {size} characters"
        case protocol.Stop():
            return f"{head}: {request.target}"
        case protocol.Ledger():
            size = sum(len(m.content) + len(m.reasoning) for m in request.messages)
            return f"{head}: {len(request.messages)} messages, {size} characters"
        case protocol.Tokenize():
            return f"{head}: {sized(request.text)}, {len(request.messages)} messages"
        case protocol.SetAdapters():
            return f"{head}: {len(request.adapters)} adapters"
        case protocol.Embed():
            return f"{head}: {len(request.texts)} texts, {sum(map(len, request.texts))} characters"
    return head


def for_wire(request: protocol.Request) -> protocol.Request:
    """The same request without what JSON cannot say: a logit bias of minus infinity (a ban) becomes -1e9."""
    if not isinstance(request, protocol.Generate):
        return request
    bias = request.sampling.logit_bias
    if all(math.isfinite(b) for b in bias.values()):
        return request
    bans = {token: b if math.isfinite(b) else -1e9 for token, b in bias.items()}
    return msgspec.structs.replace(request, sampling=msgspec.structs.replace(request.sampling, logit_bias=bans))


def _file_name(path: str) -> str:
    return PurePath(path.replace("\\", "/")).name


class OpenRequests:
    """Requests without their last event, in the order they were sent. Not thread-safe: the owner locks."""

    def __init__(self) -> None:
        self._open: dict[str, protocol.Request] = {}
        self._writing: set[str] = set()

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._open

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._open))

    def __len__(self) -> int:
        return len(self._open)

    def add(self, request: protocol.Request) -> None:
        """Raises: ValueError if a request of that id is open."""
        if request.id in self._open:
            raise ValueError(f"a request with the id {request.id!r} is open already")
        if has_answer(request):
            self._open[request.id] = request

    def see(self, event: events.Event) -> bool:
        """Take note of an event; True if it ends an open request."""
        request = self._open.get(event.request_id)
        if request is None:
            return False
        if isinstance(event, events.Error | _ENDS[type(request)]):
            self.drop(event.request_id)
            return True
        if isinstance(event, events.Token):
            self._writing.add(event.request_id)
        return False

    def drop(self, request_id: str) -> None:
        self._open.pop(request_id, None)
        self._writing.discard(request_id)

    @property
    def doing(self) -> str:
        """What the worker is at: "loading SmolLM2", "writing an answer", "reading the prompt"; empty when idle.

        Pings are named only when there is nothing else.
        """
        phrases: dict[str, None] = {}
        n_writing = 0
        for request in self._open.values():
            match request:
                case protocol.Load():
                    phrases[f"loading {PurePath(_file_name(request.path)).stem or 'a model'}"] = None
                case protocol.Generate():
                    if request.id in self._writing:
                        n_writing += 1
                    else:
                        phrases["reading the prompt"] = None
                case protocol.Tokenize() | protocol.Ledger():
                    phrases["counting tokens"] = None
                case protocol.Bench():
                    phrases["measuring its speed"] = None
                case protocol.SetAdapters():
                    phrases["changing adapters"] = None
                case protocol.Embed():
                    phrases["embedding texts"] = None
                case protocol.Unload():
                    phrases["unloading the model"] = None
        if n_writing:
            phrases = {("writing an answer" if n_writing == 1 else f"writing {n_writing} answers"): None} | phrases
        if not phrases and self._open:
            return "answering a ping"
        return " and ".join(phrases)
