"""What the command line prints: answers and events to standard output, everything else to standard error."""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Mapping
from typing import Any, TextIO

import msgspec

from engine.errors import EngineError
from engine.events import Done, Event, LoadProgress, PromptProgress, Token

#: exit status by error code; 1 for the rest, 130 for an interrupt, 141 for a reader that went away
EXIT_STATUS: Mapping[str, int] = {
    "invalid_request": 2,
    "gone": 2,
    "model_not_found": 3,
    "not_a_model": 4,
    "model_damaged": 5,
    "model_unsupported": 6,
    "not_enough_memory": 7,
    "load_failed": 8,
    "context_full": 9,
    "template_failed": 10,
    "worker_died": 11,
    "worker_mismatch": 12,
    "backend_missing": 13,
    "storage_failed": 14,
    "disk_full": 15,
    "hub_unreachable": 16,
    "hub_not_found": 17,
    "hub_access_denied": 18,
    "download_failed": 19,
    "checksum_mismatch": 20,
    "adapter_mismatch": 21,
    "update_check_failed": 22,
    "cancelled": 130,
}
INTERRUPTED = 130
READER_GONE = 141


def exit_status(error: EngineError) -> int:
    return EXIT_STATUS.get(error.code, 1)


def force_utf8() -> None:
    """Output in UTF-8 whatever the locale; what cannot be written is replaced, never fatal. Where a stream is closed
    from the start, output goes nowhere."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 - for the whole run
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8", errors="replace")


def read_stdin() -> str:
    """All of standard input as UTF-8; a byte order mark and the last line break are dropped."""
    stream = getattr(sys.stdin, "buffer", None)
    raw = stream.read() if stream is not None else b""
    text = raw.decode("utf-8-sig", "replace")
    return text.removesuffix("\n").removesuffix("\r")


def for_terminal(text: str) -> str:
    """Text without control characters: what a model writes must not steer the terminal."""
    return "".join(c if c in "\n\t" or unicodedata.category(c) != "Cc" else "\ufffd" for c in text)


def _json_default(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return str(value)


def json_line(record: Any) -> str:
    """One line of JSON. Text that UTF-8 cannot hold (file names) is replaced."""
    encode = msgspec.json.Encoder(enc_hook=_json_default).encode
    try:
        return encode(record).decode()
    except UnicodeEncodeError:
        return encode(_without_surrogates(msgspec.to_builtins(record, enc_hook=_json_default))).decode()


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_surrogates(item) for item in value]
    return value


def error_record(error: EngineError) -> dict[str, Any]:
    return {
        "type": "error",
        "error": {
            "code": error.code,
            "message": error.message,
            "hint": error.hint,
            "details": error.details,
        },
    }


def write_error(error: EngineError, stream: TextIO | None = None) -> None:
    """Message, what the model's process was at if it died, and hint, in plain words."""
    stream = stream or sys.stderr
    stream.write(f"inglenook: {for_terminal(error.message)}\n")
    for line in (_at_the_end(error), error.hint):
        if line:
            stream.write(f"  {for_terminal(line)}\n")
    stream.flush()


def _at_the_end(error: EngineError) -> str:
    if error.code != "worker_died":
        return ""
    from engine import black_box  # only after a death: it brings the planner along

    return black_box.sentence(error)


class JsonOutput:
    """One event a line."""

    wants_tokens = True

    def event(self, event: Event) -> None:
        sys.stdout.write(json_line(event) + "\n")
        sys.stdout.flush()

    def note(self, text: str) -> None:
        """Things said besides are in the events already."""

    def expect(self, thinks: bool) -> None:
        """Nothing to prepare."""

    def error(self, error: EngineError) -> None:
        sys.stdout.write(json_line(error_record(error)) + "\n")
        sys.stdout.flush()


class PlainOutput:
    """The answer alone on standard output; progress, notes and errors on standard error.

    On a terminal the answer is streamed and thinking is shown dimmed. Into a pipe it is streamed too, unless the
    model thinks: a tag that closes late makes text thinking after the fact, and a pipe cannot take words back.
    """

    def __init__(self, figures: bool = False) -> None:
        self.terminal = sys.stdout.isatty()
        self.progress = sys.stderr.isatty()
        self.figures = figures and self.progress
        self._stream = True
        self._written = ""
        self._in_reasoning = False
        self._progress_shown = False

    def expect(self, thinks: bool) -> None:
        """Told once the model is loaded: does its template know thinking?"""
        self._stream = self.terminal or not thinks

    def event(self, event: Event) -> None:
        if isinstance(event, LoadProgress):
            self._show_progress(f"Loading the model {event.fraction:.0%}")
        elif isinstance(event, PromptProgress):
            if event.n_done < event.n_prompt and event.elapsed_s > 1:
                self._show_progress(f"Reading the prompt {event.n_done} of {event.n_prompt} tokens")
        elif isinstance(event, Token):
            self._clear_progress()
            self._token(event)
        elif isinstance(event, Done):
            self._clear_progress()
            self._done(event)
        else:
            self._clear_progress()

    def note(self, text: str) -> None:
        self._clear_progress()
        sys.stderr.write(f"inglenook: {for_terminal(text)}\n")
        sys.stderr.flush()

    def error(self, error: EngineError) -> None:
        self._clear_progress()
        self._end_line()
        write_error(error)

    # -------------------------------------------------------------- parts

    def _token(self, token: Token) -> None:
        if not token.text or not self._stream:
            return
        if token.channel == "reasoning":
            if self.terminal:
                self._dim(True)
                sys.stdout.write(for_terminal(token.text))
                sys.stdout.flush()
            return
        if self._in_reasoning:
            self._dim(False)
            sys.stdout.write("\n\n")
        text = token.text if self._written or not self.terminal else token.text.lstrip("\n")
        self._written += token.text
        sys.stdout.write(for_terminal(text) if self.terminal else text)
        sys.stdout.flush()

    def _dim(self, on: bool) -> None:
        if on != self._in_reasoning:
            sys.stdout.write("\x1b[2m" if on else "\x1b[0m")
        self._in_reasoning = on

    def _done(self, done: Done) -> None:
        self._dim(False)
        if done.text.startswith(self._written):
            rest = done.text[len(self._written) :]
            sys.stdout.write(for_terminal(rest) if self.terminal else rest)
            self._written = done.text
        elif self.terminal:  # words on screen turned out to be thinking
            sys.stdout.write("\n\n" + for_terminal(done.text))
            self._written = done.text
        self._end_line()
        for text in done.notes:
            self.note(text)
        if done.n_dropped:
            self.note(f"{done.n_dropped} earlier messages were left out: the context is full")
        if self.figures:
            sys.stderr.write(f"\x1b[2m{figures(done)}\x1b[0m\n")
            sys.stderr.flush()
        self._written = ""

    def _end_line(self) -> None:
        self._dim(False)
        if self._written and not self._written.endswith("\n"):
            sys.stdout.write("\n")
        sys.stdout.flush()

    def _show_progress(self, text: str) -> None:
        if self.progress:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
            self._progress_shown = True

    def _clear_progress(self) -> None:
        if self._progress_shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._progress_shown = False


Output = JsonOutput | PlainOutput


def figures(done: Done) -> str:
    """The measured figures of an answer in one line; a dash where there is nothing to measure."""
    timings, usage = done.timings, done.usage
    ttft = "–" if timings.ttft_s is None else f"{timings.ttft_s:.2f} s"
    speed = "–" if timings.decode_tps is None else f"{timings.decode_tps:.1f} tok/s"
    return f"{ttft} · {speed} · {usage.completion_tokens} tokens · {done.finish_reason}"
