"""Compiling a chat template, and running one so that whatever it does wrong is said in plain words."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import jinja2
from jinja2.exceptions import SecurityError, TemplateSyntaxError, UndefinedError

from engine.chat.jinja_env import ChatEnvironment, RefusedByTemplate
from engine.chat.jinja_guards import TemplateLimit
from engine.chat.time_limit import TimeLimitError, run_limited
from engine.errors import EngineError, TemplateFailed

TIME_LIMIT_S = 1.8
MAX_SOURCE_CHARS = 1024 * 1024
#: brackets or blocks inside each other; the compilers of Jinja and Python recurse over them
MAX_NESTING = 100
#: marks and names; the time a compiler needs cannot be cut off, so its input must be
MAX_LEXEMES = 40_000
MAX_WORDS = 500

T = TypeVar("T")


def compile_template(source: str) -> jinja2.Template:
    """Raises: TemplateLimit, jinja2.TemplateSyntaxError and whatever the compilers raise on absurd input."""
    if len(source) > MAX_SOURCE_CHARS:
        raise TemplateLimit("more than 1 MiB of template text")
    environment = ChatEnvironment()
    _check_nesting(environment.lex(source))
    return environment.from_string(source)


_BLOCKS = frozenset({"for", "if", "macro", "call", "filter", "block", "with", "autoescape", "generation"})


def _check_nesting(lexemes: Iterable[tuple[int, str, str]]) -> None:
    brackets = blocks = count = 0
    at_block_start = False
    for _, kind, text in lexemes:
        if kind in ("whitespace", "data", "comment"):
            continue
        count += 1
        if count > MAX_LEXEMES:
            raise TemplateLimit(f"a template of more than {MAX_LEXEMES:,} words and signs")
        if kind == "operator":
            brackets += (text in ("(", "[", "{")) - (text in (")", "]", "}"))
        elif at_block_start and kind == "name":
            blocks += (text in _BLOCKS) - text.startswith("end")
        at_block_start = kind == "block_begin"
        if brackets > MAX_NESTING or blocks > MAX_NESTING:
            raise TemplateLimit(f"brackets or blocks nested more than {MAX_NESTING} deep")


def in_words(work: Callable[[], T], seconds: float = TIME_LIMIT_S) -> T:
    """Runs the work under the time limit; whatever the template does wrong becomes a `TemplateFailed`."""
    try:
        return run_limited(work, seconds)
    except EngineError:
        raise
    except Exception as error:
        failure = _explained(error)
    # raised out here, so that it does not carry the template's frames with all they hold
    raise failure


def _explained(error: Exception) -> TemplateFailed:
    words = _short(str(error))
    if isinstance(error, TimeLimitError):
        return _failed("limit", "The chat template did not end within 2 seconds")
    if isinstance(error, TemplateLimit):
        return _failed("limit", f"The chat template asked for {error}")
    if isinstance(error, RecursionError | MemoryError):
        return _failed("limit", "The chat template is nested too deep or calls itself without end")
    if isinstance(error, RefusedByTemplate):
        return _failed("refused", f"The chat template refused this conversation: {words}", words)
    if isinstance(error, TemplateSyntaxError):
        words = _short(f"{error.message} (line {error.lineno})")
        return _failed("broken", f"The chat template has a syntax error: {words}", words)
    if isinstance(error, SecurityError):
        return _failed("unsafe", f"The chat template tried something that it may not do: {words}", words)
    if isinstance(error, UndefinedError):
        return _failed("broken", f"The chat template uses something that does not exist: {words}", words)
    words = _short(f"{type(error).__name__}: {error}")
    return _failed("broken", f"The chat template failed: {words}", words)


def _short(words: str) -> str:
    return words if len(words) <= MAX_WORDS else words[:MAX_WORDS] + " ..."


def _failed(kind: str, message: str, words: str = "") -> TemplateFailed:
    return TemplateFailed(
        message,
        hint="Choose another chat template for this model.",
        details={"kind": kind, "template_words": words},
    )
