"""From a JSON Schema or a grammar to what a sampler needs: which tokens may come next.

The work is done by llguidance, a Rust library under the MIT licence (why this one: DECISIONS.md). It never sees
llama.cpp; all it gets is the bytes of each token. Its limits bound what any schema or grammar can cost.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, Protocol

from engine.errors import BackendMissing, InvalidRequest, ModelNotLoaded
from engine.formats.gbnf import refuse as refuse_grammar
from engine.formats.gbnf_lark import to_lark
from engine.formats.json_schema import PreparedSchema, prepare
from engine.formats.schema_text import refuse as refuse_schema
from engine.worker.candidates import Mask, pack

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLParserLimits, LLTokenizer

Kind = Literal["schema", "grammar"]
#: white space between the parts of a JSON text: none, a space, or a line break with an indent. Without a bound small
#: models lose themselves in it.
_WHITE_SPACE = r"( |\r?\n[ \t]{0,40})"
#: Lexer states take one to two kB each. One step may make this many parser items, about 20,000 a millisecond.
_LIMITS = {"max_lexer_states": 60_000, "step_max_items": 200_000, "max_items_in_row": 4000}
_KEPT = 8
#: schemas that are tried alone to find the part that the library refused
_TRIES = 200
#: role and turn markers that a vocabulary holds as if they were text
_MARKER = re.compile(r"<\|.*>|<.*\|>|\[\|.*\|\]", re.DOTALL)


class Vocab(Protocol):
    """What is needed of a model's vocabulary."""

    @property
    def n_tokens(self) -> int: ...
    @property
    def eog_tokens(self) -> tuple[int, ...]: ...
    def piece(self, token: int) -> bytes: ...
    def token_text(self, token: int) -> str: ...
    def is_text(self, token: int) -> bool: ...
    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]: ...


class TokenBytes:
    """The tokens of a model as the library wants them. Making it takes some 0.1 s for 50,000 tokens.

    Attributes:
        pieces: bytes of each token that is text; b"" for those that must not stand inside an answer.
        special_token_ids: control tokens, ends of generation and markers.
        closed: the vocabulary is gone.
    """

    closed = False

    def __init__(self, vocab: Vocab) -> None:
        if not vocab.eog_tokens:
            raise InvalidRequest("This model has no token that ends an answer, so no format can be enforced")
        self._vocab = vocab
        self._ends = ends = frozenset(vocab.eog_tokens)
        pieces, special, tokens = [], [], []
        for token in range(vocab.n_tokens):
            piece = vocab.piece(token) if token not in ends and vocab.is_text(token) else b""
            if piece and piece[:1] in b"<[" and _MARKER.fullmatch(piece.decode("utf-8", "replace")):
                piece = b""
            if not piece:
                special.append(token)
            pieces.append(piece)
            tokens.append(piece or vocab.token_text(token).encode() or b"?")
        self.pieces: Sequence[bytes] = pieces
        self.special_token_ids = special
        # asked for by the library
        self.tokens: Sequence[bytes] = tokens
        self.eos_token_id, self.bos_token_id = vocab.eog_tokens[0], None
        self._first = self._plain("\n")
        first = self._plain("x")
        self._puts_space = bool(first) and vocab.piece(first[0]).startswith(b" ")
        library = _library()
        wrapped = library.TokenizerWrapper(self)
        self.tokenizer: LLTokenizer = library.LLTokenizer(wrapped, eos_token=list(vocab.eog_tokens))
        self._found: dict[bytes, Mask] = {}

    def _plain(self, text: str) -> list[int]:
        return self._vocab.tokenize(text, add_special=False, parse_special=False)

    def __call__(self, text: bytes) -> list[int]:
        """Tokens of a text that the grammar leaves no choice about, as the model would write it."""
        said = text.decode("utf-8", "replace")
        if self.closed:
            return self.tokenizer.greedy_tokenize(said)
        if self._puts_space:  # tokenized behind a line break, of which no token reaches into the next character
            tokens = self._plain("\n" + said)
            tokens = tokens[len(self._first) :] if tokens[: len(self._first)] == self._first else self._plain(said)
        else:
            tokens = self._plain(said)
        if b"".join(self.pieces[token] for token in tokens) == text:
            return tokens
        return self.tokenizer.greedy_tokenize(said) if hasattr(self, "tokenizer") else tokens

    def like(self, text: bytes) -> Mask:
        """Tokens with which a text can begin that begins with this one."""
        return self._those(text, lambda piece: text.startswith(piece) or piece.startswith(text))

    def blanks(self, most: int) -> Mask:
        """Tokens of white space alone, of at most so many bytes."""
        return self._those(b" " * max(0, most), lambda piece: len(piece) <= most and not piece.strip())

    def thinking(self, before: bytes, closing: bytes) -> Mask:
        """Tokens that may come in thinking behind this text: no end, and no closing tag with more than blanks behind
        it."""
        begun = next((n for n in range(len(closing) - 1, 0, -1) if before.endswith(closing[:n])), 0)
        start = closing[:begun]

        def runs_on(piece: bytes) -> bool:
            _, found, rest = (start + piece).partition(closing)
            return bool(found and rest.strip())

        key = closing + b"\0" + start
        if key not in self._found:
            last = closing[-1:]
            allowed = (
                token not in self._ends and (last not in piece or not runs_on(piece))
                for token, piece in enumerate(self.pieces)
            )
            self._found[key] = pack(allowed, len(self.pieces))
        return self._found[key]

    def _those(self, key: bytes, wanted: Callable[[bytes], bool]) -> Mask:
        if key not in self._found:
            self._found[key] = pack((bool(piece) and wanted(piece) for piece in self.pieces), len(self.pieces))
        return self._found[key]


class Compiled:
    """A schema or grammar for one model.

    Attributes:
        source: tokens it was made for.
    """

    def __init__(self, kind: Kind, source: TokenBytes, matcher: LLMatcher) -> None:
        self.kind, self.source, self._matcher = kind, source, matcher

    def matcher(self) -> LLMatcher:
        """A fresh one for an answer."""
        return self._matcher.deep_copy()


class GrammarCompiler:
    """Compiles for one model, and keeps the last few."""

    def __init__(self, vocab: Vocab) -> None:
        self._vocab = vocab
        self._source: TokenBytes | None = None
        self._asking = threading.Lock()
        self._closed = False
        self._kept = lru_cache(maxsize=_KEPT)(self._compile)

    def compile(self, kind: Kind, text: str) -> Compiled:
        """Raises: InvalidRequest: with the word and place of a schema, or the line of a grammar."""
        return self._kept(kind, text)

    def _compile(self, kind: Kind, text: str) -> Compiled:
        prepared = prepare(text) if kind == "schema" else None
        grammar = schema_grammar(prepared.schema) if prepared is not None else to_lark(text)
        source = self._tokens()
        matcher = _library().LLMatcher(source.tokenizer, grammar, log_level=0, limits=limits())
        problem = matcher.get_error() or _first_step(matcher.deep_copy(), source)
        if problem:
            raise _schema_error(prepared, problem) if prepared is not None else _grammar_error(problem)
        return Compiled(kind, source, matcher)

    def _tokens(self) -> TokenBytes:
        with self._asking:
            if self._closed:
                raise ModelNotLoaded("The model was unloaded", hint="Choose a model first.")
            if self._source is None:
                self._source = TokenBytes(self._vocab)
            return self._source

    def close(self) -> None:
        """The vocabulary must not be asked any more."""
        with self._asking:
            self._closed = True
            if self._source is not None:
                self._source.closed = True


def _library() -> Any:
    """llguidance, loaded when it is first needed: nobody else has to wait for it, or to do without a model."""
    try:
        import llguidance
    except ImportError as error:
        raise BackendMissing(
            "Answer formats cannot be used on this computer: llguidance cannot be loaded",
            details={"error": str(error)},
        ) from error
    return llguidance


def limits() -> LLParserLimits:
    made: LLParserLimits = _library().LLParserLimits(verbose_errors=False, **_LIMITS)
    return made


def schema_grammar(schema: dict[str, Any]) -> str:
    """A prepared schema as a grammar of the library."""
    options = {"whitespace_pattern": _WHITE_SPACE, "lenient": False, "coerce_one_of": False}
    made: str = _library().LLMatcher.grammar_from_json_schema({**schema, "x-guidance": options})
    return made


def check(kind: Kind, text: str) -> None:
    """All that can be checked without a model.

    Raises:
        InvalidRequest: as `GrammarCompiler.compile`.
    """
    prepared = prepare(text) if kind == "schema" else None
    problem = _problem(schema_grammar(prepared.schema) if prepared is not None else to_lark(text))
    if problem:
        raise _schema_error(prepared, problem) if prepared is not None else _grammar_error(problem)


def _first_step(matcher: LLMatcher, source: TokenBytes) -> str:
    """What keeps an answer from beginning, "" if nothing does."""
    mask = matcher.compute_bitmask()
    return matcher.get_error() or ("" if any(mask) else "no token of this model can begin such an answer")


def _problem(grammar: str) -> str:
    made: str = _library().LLMatcher.validate_grammar(grammar, limits=limits())
    return made


# ---------------------------------------------------------------------- what the library says, in our words


def _first_line(problem: str) -> str:
    lines = [line.strip() for line in problem.splitlines() if line.strip()]
    if len(lines) > 1 and lines[-1].startswith("error: "):  # of a regular expression, which is shown before
        lines = [lines[-1].removeprefix("error: ")]
    return lines[0].rstrip(".:")[:300] if lines else "it was refused"


def _grammar_error(problem: str) -> InvalidRequest:
    return refuse_grammar(f"cannot be enforced: {_first_line(problem)}")


def _schema_error(prepared: PreparedSchema, problem: str) -> InvalidRequest:
    """The error with the place in the user's schema: the innermost part that is refused alone too, whatever the
    references in it lead to."""
    definitions = prepared.schema.get("$defs", {})
    anything: dict[str, dict[str, Any]] = {name: {} for name in definitions}
    path, node = "#", {word: value for word, value in prepared.schema.items() if word != "$defs"}
    waiting = [("#", node), *((prepared.origins[name], part) for name, part in definitions.items())]
    for _ in range(_TRIES):
        if not waiting:
            break
        place, part = waiting.pop(0)
        found = _problem(schema_grammar({**part, "$defs": anything}))
        if found:
            path, node, problem = place, part, found
            waiting = _parts(part, place)
    word = _word_in(problem, node)
    what = f'"{word}" ' if word else ""
    return refuse_schema(
        f"has {what}at {path}, which cannot be enforced: {_first_line(problem)}", keyword=word, path=path
    )


def _parts(node: dict[str, Any], path: str) -> list[tuple[str, dict[str, Any]]]:
    """Schemas inside a schema, with their places."""
    found: list[tuple[str, Any]] = []
    for word, value in node.items():
        if word in ("properties", "patternProperties"):
            found += [(f"{path}/{word}/{name}", part) for name, part in value.items()]
        elif word in ("anyOf", "oneOf", "allOf", "prefixItems"):
            found += [(f"{path}/{word}/{place}", part) for place, part in enumerate(value)]
        elif word in ("items", "additionalProperties"):
            found.append((f"{path}/{word}", value))
    return [(place, part) for place, part in found if isinstance(part, dict)]


def _word_in(problem: str, node: dict[str, Any]) -> str:
    """The word of the schema that the message is about, or the only one that it can be about."""
    named = [word for word in node if re.search(rf"\b{re.escape(word)}\b", problem)]
    if "regex" in problem.lower():
        named = [word for word in ("pattern", "patternProperties") if word in node] or named
    if len(named) == 1:
        return named[0]
    rest = [word for word in node if word not in ("type", "title")]
    return rest[0] if len(rest) == 1 else ""
