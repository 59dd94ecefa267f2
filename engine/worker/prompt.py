"""From messages to the tokens of a prompt.

Text of a message never becomes a control token. Before rendering, every character with which a control token begins
or ends is replaced in the messages by a character that occurs nowhere else; so whatever the template does (trim,
lower case, put two texts side by side), a control token in the rendered text can only come from the template. Its
places are noted, the characters are put back, and if the text then holds more control tokens than that, the parts
between the real ones are tokenized as plain text. A prompt without such forgeries is tokenized in one piece, exactly
as llama.cpp does it.

"Control token" here includes the role and turn markers that some vocabularies hold as USER_DEFINED. What no care on
our side can prevent: a template that writes a marker's first and last letters itself and a message between them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec

from engine.chat.context import Fitted, checked, fitting, run
from engine.chat.ledger import Layout, Prompt, TurnRange, layout, ledger
from engine.chat.marks import Marks, searched
from engine.chat.template import ChatTemplate
from engine.errors import InvalidRequest, TemplateFailed
from engine.events import ContextLedger
from engine.message import Overflow, PromptMessage
from engine.worker.control_texts import ControlTexts, markers_in
from engine.worker.fragments import Fragments, Piece, Vocab, token_ranges

#: half a surrogate pair is no text and has no UTF-8 form
_SURROGATES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class BuiltPrompt:
    """A prompt ready for the model.

    Attributes:
        text: the rendered text; BOS that was added to the tokens is not in it.
        n_dropped: messages left out.
        notes: what was changed in the conversation, in words.
        opened_thinking_tag: name of the tag if the prompt ends inside thinking, else "".
        n_keep: tokens at the beginning that belong to no turn (BOS, system prompt); they stay.
        owners, exact: of which message each token holds text, -1 for what the template wrote, and whether the borders
            are exact; empty unless it was asked for.
        turns: the turns from there to the end, side by side. What is left when whole ones that need not stay are taken
            away is a sound prompt. Empty unless messages were dropped or may be while the answer is written ("roll").
    """

    tokens: list[int]
    text: str
    n_dropped: int = 0
    notes: tuple[str, ...] = ()
    opened_thinking_tag: str = ""
    n_keep: int = 0
    turns: tuple[TurnRange, ...] = ()
    owners: tuple[int, ...] = ()
    exact: bool = True


@dataclass
class _Made:
    """A prompt with all that is needed to find its parts.

    Attributes:
        messages: the conversation with its control tokens disguised; disguised: what became of it.
        parts: what was found, once it was looked for.
    """

    built: BuiltPrompt
    pieces: list[Piece]
    messages: tuple[PromptMessage, ...]
    disguised: str
    back: dict[int, str]
    continue_last: bool
    moment: datetime
    parts: Layout | None = None


class PromptBuilder:
    """Builds prompts for one loaded model. n_ctx: tokens the context really holds."""

    def __init__(self, template: ChatTemplate, vocab: Vocab, n_ctx: int) -> None:
        self._template = template
        self._vocab = vocab
        self._n_ctx = n_ctx
        markers = ControlTexts(markers_in(getattr(vocab, "user_defined_texts", ()), template.source))
        self._guard = ControlTexts([*vocab.control_texts, *markers.texts])
        self._fragments = Fragments(vocab, self._guard, markers)

    def build(
        self,
        messages: Sequence[PromptMessage],
        *,
        continue_last: bool = False,
        overflow: Overflow = "error",
        max_tokens: int | None = None,
        now: datetime | None = None,
        owners: bool = False,
    ) -> BuiltPrompt:
        """The prompt for a conversation. owners: find out which message each token belongs to.

        Raises:
            ContextFull: it does not fit; unless "error" is wanted, not even what must stay does.
            TemplateFailed: see `ChatTemplate.render`.
            InvalidRequest: see `ChatTemplate.render`.
        """
        moment = now or datetime.now()
        if overflow == "error":
            made = run(self._made(messages, continue_last, moment))
            built = checked(made.built, len(made.built.tokens), self._n_ctx)
            return self._owned(built, made, range(len(messages))) if owners else built

        def build(some: Sequence[PromptMessage]) -> _Made:
            return run(self._made(some, continue_last, moment))

        fitted = run(self._fitted(messages, max_tokens, build))
        built = checked(fitted.sent.built, len(fitted.sent.built.tokens), self._n_ctx)
        if owners:
            built = self._owned(built, fitted.sent, sorted(set(range(len(messages))).difference(fitted.dropped)))
        if not fitted.dropped and overflow != "roll":
            return built
        parts = run(self._layout(fitted.sent))
        return replace(built, n_dropped=len(fitted.dropped), n_keep=parts.n_keep, turns=parts.turns)

    def build_text(self, prompt: str) -> BuiltPrompt:
        """The prompt for a plain continuation. The text is the caller's own prompt, so control tokens in it count.

        Raises:
            ContextFull: it does not fit.
        """
        text = _SURROGATES.sub("\ufffd", prompt)
        tokens = _tokens(run(self._fragments.pieces(text, self._guard.find(text))))
        return checked(BuiltPrompt(tokens, text), len(tokens), self._n_ctx)

    def count(
        self, messages: Sequence[PromptMessage], *, continue_last: bool = False, now: datetime | None = None
    ) -> BuiltPrompt:
        """The prompt for a conversation whatever its length. Raises as `build`, but never `ContextFull`."""
        return run(self._made(messages, continue_last, now or datetime.now())).built

    def ledger(
        self,
        request_id: str,
        messages: Sequence[PromptMessage],
        *,
        overflow: Overflow = "error",
        max_tokens: int | None = None,
        now: datetime | None = None,
    ) -> Generator[None, None, ContextLedger]:
        """What would occupy which tokens. Yields after each bit of work, so that it can be spread.

        Raises:
            TemplateFailed, InvalidRequest: see `ChatTemplate.render`. A conversation that does not fit raises nothing.
        """
        moment = now or datetime.now()
        whole = yield from self._made(messages, False, moment)
        all_of_it = yield from self._prompt(whole, range(len(messages)))
        fitted = Fitted(whole, whole)
        if overflow != "error":

            def build(some: Sequence[PromptMessage]) -> _Made:
                return whole if some is messages else run(self._made(some, False, moment))

            fitted = yield from self._fitted(messages, max_tokens, build)
        dropped = set(fitted.dropped)
        left = [index for index in range(len(messages)) if index not in dropped]
        sent = (yield from self._prompt(fitted.sent, left)) if fitted.dropped else all_of_it
        return ledger(
            request_id,
            messages,
            all_of_it,
            sent,
            n_ctx=self._n_ctx,
            overflow=overflow,
            max_tokens=max_tokens,
            notes=fitted.sent.built.notes,
        )

    # -------------------------------------------------- making

    def _made(
        self, messages: Sequence[PromptMessage], continue_last: bool, moment: datetime
    ) -> Generator[None, None, _Made]:
        clean = [_clean(message) for message in messages]
        away, back = self._guard.disguise(self._template.source, clean)
        hidden = tuple(_translated(message, away) for message in clean)
        try:
            rendered = self._template.render(hidden, continue_last=continue_last, now=moment)
        except TemplateFailed as error:
            details = {k: v.translate(back) if isinstance(v, str) else v for k, v in error.details.items()}
            raise TemplateFailed(error.message.translate(back), hint=error.hint, details=details) from None
        disguised = _unescaped(rendered.text, back)
        text = disguised.translate(back) if back else disguised
        pieces = yield from self._fragments.pieces(text, self._guard.find(disguised))
        built = BuiltPrompt(
            tokens=_tokens(pieces),
            text=text,
            notes=rendered.notes,
            opened_thinking_tag=rendered.opened_thinking_tag,
        )
        return _Made(built, pieces, hidden, disguised, back, continue_last, moment)

    def _fitted(
        self,
        messages: Sequence[PromptMessage],
        max_tokens: int | None,
        build: Callable[[Sequence[PromptMessage]], _Made],
    ) -> Generator[None, None, Fitted[_Made]]:
        return fitting(
            messages,
            n_ctx=self._n_ctx,
            max_tokens=max_tokens,
            build=build,
            count=lambda made: len(made.built.tokens),
            guess=self._n_turns,
        )

    def _n_turns(self, whole: _Made, excess: int) -> int:
        """How many turns hold so many tokens, the oldest first."""
        for number, turn in enumerate((t for t in run(self._layout(whole)).turns if not t.stays), 1):
            excess -= turn.end - turn.start
            if excess <= 0:
                return number
        return len(whole.messages)

    # -------------------------------------------------- finding the parts

    def _layout(self, made: _Made) -> Generator[None, None, Layout]:
        """Which tokens hold which message and which turn."""
        if made.parts is not None:
            return made.parts
        yield
        try:
            marks = Marks(made.messages, self._template.source)
            marked = self._template.render(marks.messages, continue_last=made.continue_last, now=made.moment).text
            yield
            ranges, exact = marks.find(_unescaped(marked, made.back), made.disguised)
        except (TemplateFailed, InvalidRequest):
            ranges, exact = searched(made.messages, made.disguised), False
        yield
        texts, borders = token_ranges(made.pieces, ranges)
        made.parts = layout(made.messages, made.built.tokens, texts, exact=exact and borders)
        return made.parts

    def _owned(self, built: BuiltPrompt, made: _Made, indices: Sequence[int]) -> BuiltPrompt:
        """indices: which messages of the conversation were sent."""
        parts = run(self._layout(made))
        owners = [-1] * len(built.tokens)
        for text in parts.texts:
            owners[text.start : text.end] = [indices[text.message]] * (text.end - text.start)
        return replace(built, owners=tuple(owners), exact=parts.exact)

    def _prompt(self, made: _Made, indices: Sequence[int]) -> Generator[None, None, Prompt]:
        parts = yield from self._layout(made)
        return Prompt(len(made.built.tokens), parts, tuple(indices))


def _tokens(pieces: Sequence[Piece]) -> list[int]:
    return [token for piece in pieces for token in piece.fragment.tokens]


def _clean(message: PromptMessage) -> PromptMessage:
    if _SURROGATES.search(message.content) or _SURROGATES.search(message.reasoning):
        return msgspec.structs.replace(
            message,
            content=_SURROGATES.sub("\ufffd", message.content),
            reasoning=_SURROGATES.sub("\ufffd", message.reasoning),
        )
    return message


def _translated(message: PromptMessage, table: dict[int, str]) -> PromptMessage:
    if not table:
        return message
    return msgspec.structs.replace(
        message, content=message.content.translate(table), reasoning=message.reasoning.translate(table)
    )


def _unescaped(text: str, back: dict[int, str]) -> str:
    r"""A template may write a text as JSON with \uXXXX escapes; a stand-in must not stay in that form."""
    for code in back:
        escape = f"\\u{code:04x}"
        if escape in text:
            text = text.replace(escape, chr(code))
    return text
