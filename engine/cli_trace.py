"""`inglenook trace`: how a stored answer came about, as a table or as JSON."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator

from engine import paths as places
from engine.cli_output import for_terminal
from engine.errors import InvalidRequest
from engine.store.chats import ChatStore
from engine.trace import Step, Trace, text_of

_N_OTHERS = 3
_WIDTH = 18


def run(options: argparse.Namespace) -> int:
    """The exit status.

    Raises:
        InvalidRequest: there is no such message, or no trace of it.
        EngineError: the chats cannot be read.
    """
    trace = _found(options.message)
    if options.json:
        sys.stdout.write(trace.to_json() + "\n")
    else:
        for line in _lines(trace):
            sys.stdout.write(for_terminal(line) + "\n")
    return 0


def _found(message: str) -> Trace:
    database = places.resolve().database
    nothing = InvalidRequest(
        f"There is no trace of the message {message}" if message != "last" else "There is no trace yet",
        hint="Traces are kept of answers in the window, while that is switched on in the settings.",
        details={"field": "message"},
    )
    if not places.is_file(database):
        raise nothing
    store = ChatStore(database)
    try:
        number = store.traces.latest() if message == "last" else _number(message)
        data = store.traces.get(number) if number is not None else None
    finally:
        store.close()
    if data is None:
        raise nothing
    try:
        return Trace.unpacked(data)
    except ValueError as error:
        raise InvalidRequest(
            "This trace was written by another version of Inglenook", details={"error": str(error)}
        ) from error


def _number(message: str) -> int:
    if not message.isdecimal() or len(message) > 18:
        raise InvalidRequest(f'"{message}" is no message: give its number, or "last"', details={"field": "message"})
    return int(message)


def _lines(trace: Trace) -> Iterator[str]:
    yield f"message   {trace.message_id}, written by {trace.model_name or 'a model'}, seed {trace.seed}"
    yield f"prompt    {trace.n_prompt} tokens: {_reading(trace)}"
    if trace.reread is not None:
        yield (
            f"          {trace.reread.n_tokens} read again from token {trace.reread.index} on ({trace.reread.cause}): "
            f"{trace.reread.old!r} stood there, now {trace.reread.new!r}"
        )
    for chunk in trace.chunks:
        yield f"          {chunk.count} tokens from {chunk.first} on in {_time(chunk.took_s)}"
    for part in trace.parts():
        yield f"{part.name:<10}{_time(part.took_s)}"
    yield ""
    yield f"{'':>5}  {'token':<{_WIDTH}} {'p':>7}  {'bits':>5}  {'kept':>6}  others"
    for index, step in enumerate(trace.steps):
        yield _step(f"{index}", step)
    if trace.end is not None:
        yield _step("end", trace.end)


def _reading(trace: Trace) -> str:
    kinds = ((trace.n_cached, "cached"), (trace.n_shifted, "of them moved"), (trace.n_restored, "of them from disk"))
    words = [f"{count} {kind}" for count, kind in kinds if count]
    n_read = sum(chunk.count for chunk in trace.chunks)
    n_unread = trace.n_prompt - trace.n_known
    return ", ".join([*words, f"{n_read} read", *([f"{n_unread} not read"] if n_unread else [])])


def _step(label: str, step: Step) -> str:
    detail = step.detail
    mark = "=" if step.forced else "+" if step.drafted else " "
    word = repr(text_of(step.piece))[1:-1][:_WIDTH]
    if detail is None:
        return f"{label:>5} {mark}{word}"
    p = _percent(step.logprob) if step.logprob is not None else ""
    kept = f"{detail.stages[-1].n_left}" if detail.stages else "-"
    others = [c for c in detail.candidates if c.token_id != step.token_id][:_N_OTHERS]
    rest = "  ".join(f"{text_of(c.piece)!r} {_percent(c.logprob)}" for c in others)
    return f"{label:>5} {mark}{word:<{_WIDTH}} {p:>7}  {detail.entropy_bits:>5.2f}  {kept:>6}  {rest}"


def _percent(logprob: float) -> str:
    return f"{100 * math.exp(logprob):.1f} %"


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.1f} ms"
