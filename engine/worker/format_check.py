"""A process that checks one answer format and ends: `python -m engine.worker.format_check`.

The format is on standard input, the verdict goes to standard output. The library that checks is native code, and a
format that brings it down takes only this process with it.
"""

from __future__ import annotations

import sys
import threading

import msgspec

from engine.errors import EngineError
from engine.format_check import FormatQuestion, FormatVerdict
from engine.message import ErrorInfo
from engine.worker import grammar
from engine.worker.process import tie_to_parent

_STACK_BYTES = 256 * 2**20


def main() -> int:
    """Read the question, write the verdict."""
    tie_to_parent()
    question = msgspec.json.decode(sys.stdin.buffer.read(), type=FormatQuestion)
    verdict = FormatVerdict()

    def work() -> None:
        nonlocal verdict
        try:
            grammar.check(question.kind, question.text)
        except EngineError as error:
            verdict = FormatVerdict(ErrorInfo(error.code, error.message, error.hint, error.details))

    threading.stack_size(_STACK_BYTES)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    sys.stdout.buffer.write(msgspec.json.encode(verdict))
    sys.stdout.buffer.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
