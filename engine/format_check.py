"""Whether an answer format can be held, found out without a model and outside this process."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from engine.errors import InvalidRequest, WorkerDied
from engine.formats.gbnf_lark import to_lark
from engine.formats.json_schema import ANY_JSON, prepare
from engine.message import AnswerFormat, ErrorInfo, error_from
from engine.worker import exit_words
from engine.worker.process import Process, default_command, is_frozen, write_all

#: a check that takes longer is ended
TIMEOUT_S = 15.0


class FormatQuestion(msgspec.Struct, frozen=True):
    kind: Literal["schema", "grammar"]
    text: str


class FormatVerdict(msgspec.Struct, frozen=True):
    """error: why the format cannot be held; None if it can."""

    error: ErrorInfo | None = None


def request_fields(answer_format: AnswerFormat) -> dict[str, Any]:
    """What `protocol.Generate` says for a format; empty for free text."""
    match answer_format.kind:
        case "json":
            return {"json_schema": ANY_JSON}
        case "schema":
            return {"json_schema": answer_format.text}
        case "grammar":
            return {"grammar": answer_format.text}
    return {}


def command() -> list[str]:
    """The command of the child: this interpreter, or this program itself where it is frozen."""
    worker = default_command()
    return [worker[0], "--check-format"] if is_frozen() else [*worker[:-1], "engine.worker.format_check"]


def check(answer_format: AnswerFormat, *, child: Sequence[str] | None = None, timeout_s: float = TIMEOUT_S) -> None:
    """Check a format. It takes some tenths of a second, so it is not for the thread of a window.

    Args:
        child: the command to run in place of the real one; for tests.

    Raises:
        InvalidRequest: names the word and place of a schema, the line of a grammar.
        WorkerDied: the checker ended without a verdict.
        OSError: it could not be started.
    """
    fields = request_fields(answer_format)
    if not fields or answer_format.kind == "json":
        return
    kind: Literal["schema", "grammar"] = "schema" if answer_format.kind == "schema" else "grammar"
    if kind == "schema":  # what is wrong in most cases is seen without a child
        prepare(answer_format.text)
    else:
        to_lark(answer_format.text)
    verdict = _ask(FormatQuestion(kind, answer_format.text), list(child or command()), timeout_s)
    if verdict.error is not None:
        raise error_from(verdict.error)


def _ask(question: FormatQuestion, words: list[str], timeout_s: float) -> FormatVerdict:
    process = Process(words)
    late = threading.Event()

    def end() -> None:
        late.set()
        process.kill()

    timer = threading.Timer(timeout_s, end)
    timer.start()
    errors: list[bytes] = []
    drain = threading.Thread(target=lambda: errors.append(process.stderr.read()), daemon=True)
    drain.start()
    try:
        try:
            write_all(process.stdin, msgspec.json.encode(question))
            process.stdin.close()
        except OSError:
            pass  # it has ended already; what it wrote says why
        answer = process.stdout.read()
        code = process.wait()
    finally:
        timer.cancel()
        process.kill()
        drain.join(1.0)
        for stream in (process.stdin, process.stdout, process.stderr):
            try:
                stream.close()
            except OSError:
                pass
    if late.is_set():
        raise InvalidRequest(f"Checking this took more than {timeout_s:g} s; a simpler schema or grammar may do")
    try:
        return msgspec.json.decode(answer, type=FormatVerdict)
    except msgspec.DecodeError:
        lines = b"".join(errors).decode("utf-8", "replace").splitlines()[-20:]
        words_of_it = exit_words.describe(code, lines)
        raise WorkerDied(words_of_it.what, hint=words_of_it.hint, details={"exit_code": code, "log": lines}) from None
