"""Requests with an answer format are prepared beside the owner thread, so that nobody's answer waits for them."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable

from engine.errors import EngineError, InvalidRequest, LoadFailed
from engine.worker.constraint import Constraint
from engine.worker.grammar import Compiled, GrammarCompiler, Kind, Vocab
from engine.worker.inbox import Inbox, Job
from engine.worker.prompt import BuiltPrompt
from engine.worker.protocol import Generate

#: a format that takes longer is refused
DEADLINE_S = 10.0
#: deep schemas need a deep stack; only what is used of it takes memory
_STACK_BYTES = 256 * 2**20
Outcome = Compiled | EngineError


class FormatDesk:
    """Compiles for one model, one format after the other, each on a thread of its own.

    A request goes back to the inbox when its format is ready. A thread that does not end in time is left behind, and
    what it makes is dropped; the library's limits see to it that it does end.
    """

    def __init__(self, vocab: Vocab, inbox: Inbox) -> None:
        self._compiler, self._inbox = GrammarCompiler(vocab), inbox
        self._turn = threading.Lock()
        self._made: dict[Job, Outcome] = {}

    def close(self) -> None:
        """The model goes: no thread may ask its vocabulary any more."""
        self._compiler.close()

    # ------------------------------------------------------------------ on the owner thread

    def puts_aside(self, job: Job, request: Generate) -> bool:
        """Whether the request has a format that is not ready; it will come back.

        Raises:
            InvalidRequest: it has two.
        """
        if request.json_schema is not None and request.grammar is not None:
            raise InvalidRequest("give either a JSON Schema or a grammar", details={"field": "grammar"})
        if (request.json_schema is None and request.grammar is None) or job in self._made:
            return False
        self._inbox.put_aside(job)
        if request.json_schema is not None:
            self._prepare("schema", request.json_schema, job)
        else:
            self._prepare("grammar", request.grammar or "", job)
        return True

    def take(self, job: Job) -> Compiled | None:
        """The format of a request that came back; None if it has none.

        Raises:
            EngineError: why it cannot be held.
        """
        made = self._made.pop(job, None)
        if isinstance(made, EngineError):
            raise made
        return made

    # ------------------------------------------------------------------ beside it

    def _prepare(self, kind: Kind, text: str, job: Job) -> None:
        waiting = _Waiting(lambda outcome: self._done(job, outcome))
        timer = threading.Timer(DEADLINE_S, self._too_late, (kind, waiting))
        timer.daemon = True
        timer.start()

        def work() -> None:
            with self._turn:
                if not waiting.over:
                    waiting.end(self._compile(kind, text))
            timer.cancel()

        size = threading.stack_size(_STACK_BYTES)
        try:
            threading.Thread(target=work, name="format", daemon=True).start()
        finally:
            threading.stack_size(size)

    def _done(self, job: Job, outcome: Outcome) -> None:
        self._made[job] = outcome
        if not self._inbox.again(job):
            self._made.pop(job, None)  # stopped in the meantime

    def _compile(self, kind: Kind, text: str) -> Outcome:
        try:
            return self._compiler.compile(kind, text)
        except EngineError as error:
            return error
        except Exception as error:  # a fault of ours or of the library ends this request only
            traceback.print_exc(file=sys.stderr)
            return LoadFailed("The answer format could not be prepared", details={"error": repr(error)})

    def _too_late(self, kind: Kind, waiting: _Waiting) -> None:
        what, field = ("JSON Schema", "json_schema") if kind == "schema" else ("grammar", "grammar")
        error = InvalidRequest(
            f"The {what} takes more than {DEADLINE_S:g} s to prepare",
            hint="A simpler one may do.",
            details={"field": field},
        )
        if waiting.end(error):
            self._turn = threading.Lock()  # whoever comes next does not wait for the one that hangs


def constraint(compiled: Compiled | None, request: Generate, prompt: BuiltPrompt, tag: str) -> Constraint | None:
    """What holds for an answer. tag: in which the model thinks, "" for none.

    Raises:
        InvalidRequest: an answer that is to be continued does not keep to its format.
    """
    if compiled is None:
        return None
    made = Constraint(compiled, prompt.opened_thinking_tag or tag, opened=bool(prompt.opened_thinking_tag))
    if request.continue_last and not prompt.opened_thinking_tag:
        last = request.messages[-1]
        if last.content or last.reasoning:
            made.go_on_from(last.content)
    return made


class _Waiting:
    """One who waits for an outcome, and takes the first."""

    def __init__(self, done: Callable[[Outcome], None]) -> None:
        self._done, self._lock = done, threading.Lock()
        self.over = False

    def end(self, outcome: Outcome) -> bool:
        """False if it was over already."""
        with self._lock:
            if self.over:
                return False
            self.over = True
        self._done(outcome)
        return True
