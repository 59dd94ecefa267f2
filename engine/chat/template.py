"""Chat templates: which one to use, and rendering a conversation with it.

The template of a model file is foreign code. It runs in the sandbox of `jinja_env`, in a helper thread, for at most
`TIME_LIMIT_S`; whatever it does wrong becomes a `TemplateFailed` in plain words and never stops a model from loading.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from typing import Any

import jinja2
import msgspec

from engine.chat import builtin_templates
from engine.chat.builtin_templates import COMPLETION, BuiltinTemplate
from engine.chat.folding import shapes
from engine.chat.jinja_env import ChatEnvironment, RefusedByTemplate, strftime_now
from engine.chat.jinja_guards import Meter, TemplateLimit
from engine.chat.template_source import TIME_LIMIT_S, compile_template, in_words
from engine.chat.thinking import KNOWN_TAGS, tag_pair
from engine.errors import InvalidRequest, TemplateFailed
from engine.events import TemplateInfo
from engine.message import PromptMessage

ROLES = frozenset({"system", "user", "assistant", "tool"})
OMITTED_NOTE = "This model's template leaves out a part of the conversation."

_NO_TOOLS: Mapping[str, Any] = {"tools": None, "documents": None}
_EMPTY_TOOLS: Mapping[str, Any] = {"tools": [], "documents": [], "functions": "[]"}


@dataclass(frozen=True)
class Rendered:
    """A prompt text.

    Attributes:
        notes: what had to be changed in the conversation, in words.
        opened_thinking_tag: name of the tag if the text ends inside thinking, else "".
    """

    text: str
    notes: tuple[str, ...] = ()
    opened_thinking_tag: str = ""


@dataclass(frozen=True)
class ChatTemplate:
    """A compiled template with what is known about it. Made by `choose`.

    Attributes:
        source: the template's text.
        bos_text, eos_text: texts of the tokens that the template may use; "" where the vocabulary has none.
    """

    source: str
    info: TemplateInfo
    bos_text: str = ""
    eos_text: str = ""
    unk_text: str = ""
    pad_text: str = ""
    #: what the template finds where tools and documents would be; some fail unless they are empty lists
    _absent: Mapping[str, Any] = field(default_factory=lambda: dict(_NO_TOOLS), repr=False, kw_only=True)
    _compiled: jinja2.Template = field(repr=False, kw_only=True)

    def render(
        self,
        messages: Sequence[PromptMessage],
        *,
        add_generation_prompt: bool = True,
        continue_last: bool = False,
        now: datetime | None = None,
    ) -> Rendered:
        """The prompt for a conversation, in the first shape that the template takes without losing text.

        Arguments:
            continue_last: leave the last message, which must be the assistant's, open so that it is written on.
            now: clock for templates that print the date; default: the computer's.

        Raises:
            TemplateFailed: the template refused every shape, is broken, or went over a limit.
            InvalidRequest: an unknown role, no message, or `continue_last` without an assistant message at the end.
        """
        _check(messages, continue_last)
        moment = now or datetime.now()

        def work() -> Rendered:
            if continue_last:
                return self._continued(tuple(messages), moment)
            text, notes = self._folded(tuple(messages), add_generation_prompt, moment)
            return Rendered(text, notes, self._opened(text))

        return in_words(work)

    def _folded(
        self, messages: Sequence[PromptMessage], add_generation_prompt: bool, now: datetime
    ) -> tuple[str, tuple[str, ...]]:
        """Text and notes of the first shape that renders and shows every message."""
        refusal: Exception | None = None
        incomplete: tuple[str, tuple[str, ...]] | None = None
        for shape, notes in shapes(messages, self.info.supports_system):
            try:
                text = self._once(shape, add_generation_prompt, now)
            except TemplateLimit:
                raise
            except Exception as error:
                refusal = refusal or error
                continue
            if all(m.content.strip() in text for m in shape if m.role != "assistant"):
                return text, notes
            incomplete = incomplete or (text, (*notes, OMITTED_NOTE))
        if incomplete is not None:
            return incomplete
        raise refusal or RefusedByTemplate("no shape of the conversation fits")

    def _once(self, messages: Sequence[PromptMessage], add_generation_prompt: bool, now: datetime) -> str:
        environment = self._compiled.environment
        assert isinstance(environment, ChatEnvironment)
        size = sum(len(m.content) + len(m.reasoning) for m in messages)
        environment.meter = meter = Meter(size, len(messages))
        pieces: list[str] = []
        total = 0
        for piece in self._compiled.generate(
            messages=[_as_dict(m) for m in messages],
            add_generation_prompt=add_generation_prompt,
            strftime_now=strftime_now(now),
            **({} if self._absent == _NO_TOOLS else {"datetime": now.strftime("%d %B %Y")}),
            **self._absent,
            **self._token_texts(),
        ):
            total += len(piece)
            meter.check_size(total)
            pieces.append(piece)
        return "".join(pieces)

    def _token_texts(self) -> dict[str, str]:
        texts = {"bos_token": self.bos_text, "eos_token": self.eos_text}
        texts.update({"unk_token": self.unk_text} if self.unk_text else {})
        texts.update({"pad_token": self.pad_text} if self.pad_text else {})
        return texts

    def _opened(self, text: str) -> str:
        """Name of the thinking tag that the text ends with, "" if it ends with none."""
        tail = text[-64:].rstrip()
        names = dict.fromkeys([self.info.thinking_tag, *KNOWN_TAGS])
        return next((name for name in names if name and tail.endswith(tag_pair(name)[0])), "")

    # -------------------------------------------------- writing on an answer

    def _continued(self, messages: tuple[PromptMessage, ...], now: datetime) -> Rendered:
        last = messages[-1]
        if not last.reasoning:
            # a mark at each end keeps the template from trimming the text, and shows where it stands
            start, end = tuple(unused_characters(2, self.source, *(m.content + m.reasoning for m in messages)))
            marked = (*messages[:-1], msgspec.structs.replace(last, content=start + last.content + end))
            try:
                text, notes = self._folded(marked, False, now)
            except TemplateLimit:
                raise
            except Exception:  # the second way may still work, and tells why if it does not
                text, notes = "", ()
            if text.count(start) == text.count(end) == 1:
                before, _, rest = text.partition(start)
                if rest.partition(end)[0] == last.content:
                    return Rendered(before + last.content, notes)
        return self._after_generation_prompt(messages, now)

    def _after_generation_prompt(self, messages: tuple[PromptMessage, ...], now: datetime) -> Rendered:
        """The prompt that began the answer, then what the model wrote: exactly what it had before its eyes."""
        last = messages[-1]
        text, notes = self._folded(messages[:-1], True, now)
        opened = self._opened(text)
        name = opened or last.reasoning_tag or self.info.thinking_tag or KNOWN_TAGS[0]
        opening, closing = tag_pair(name)
        if last.reasoning:
            text += last.reasoning if opened else f"{opening}\n{last.reasoning}"
            if not last.reasoning_closed and not last.content:
                return Rendered(text, notes, name)
            text += f"\n{closing}\n\n"
        elif opened:
            if not last.content:
                return Rendered(text, notes, name)
            text += f"{closing}\n\n"
        return Rendered(text + last.content, notes)


def _check(messages: Sequence[PromptMessage], continue_last: bool) -> None:
    for message in messages:
        if message.role not in ROLES:
            raise InvalidRequest(f"There is no role {message.role!r}", details={"field": "messages"})
    if not messages:
        raise InvalidRequest("A conversation needs at least one message", details={"field": "messages"})
    if continue_last and messages[-1].role != "assistant":
        raise InvalidRequest("Only an answer can be continued", details={"field": "continue_last"})


def _as_dict(message: PromptMessage) -> dict[str, Any]:
    record = {"role": str(message.role), "content": message.content}
    if message.reasoning and message.role == "assistant":
        record["reasoning_content"] = message.reasoning
    return record


def unused_characters(count: int, *texts: str) -> str:
    """Characters that occur in none of the texts and that no template can mistake for anything.

    They are Unicode's noncharacters (U+FDD0 to U+FDEF), then private-use ones.
    """
    used = set[str]().union(*(text for text in texts if not text.isascii()))
    candidates = (chr(code) for code in (*range(0xFDD0, 0xFDF0), *range(0x100000, 0x10FFFE)))
    found = "".join(islice((c for c in candidates if c not in used), count))
    if len(found) < count:
        raise InvalidRequest("The conversation uses every private character there is")
    return found


# ------------------------------------------------------------------ choosing


def choose(
    template: str | Mapping[str, str] | None,
    *,
    user_template: str | None = None,
    special_tokens: Collection[str] = (),
    bos: str = "",
    eos: str = "",
    unk: str = "",
    pad: str = "",
    name: str = "",
) -> ChatTemplate:
    """The template to use for a model. Never fails: a broken template is replaced, and its info says so.

    Arguments:
        template: the file's own; of a mapping of named ones "default" is taken.
        user_template: given by the user in place of the file's own.
        special_tokens: texts of all special tokens of the vocabulary.
        bos, eos, unk, pad: texts of those tokens, "" where there is none.
        name: name or architecture of the model; a weak hint, used only if the special tokens say nothing.
    """
    if isinstance(template, Mapping):
        template = template.get("default") or next(iter(template.values()), None)
    texts = (bos, eos, unk, pad)
    problems: list[str] = []
    if user_template:
        try:
            note = "Your own chat template is used in place of the model's."
            return _probed(user_template, TemplateInfo(source="user", note=note), texts)
        except TemplateFailed as error:
            problems.append(f"Your chat template cannot be used. {error.message}.")
    if template and template.strip():
        try:
            made = _probed(template, TemplateInfo(source="file"), texts)
        except TemplateFailed as error:
            problems.append(f"The model's own chat template cannot be used. {error.message}.")
        else:
            info = msgspec.structs.replace(made.info, note=" ".join(problems), error=" ".join(problems))
            return replace(made, info=info)
    guessed = builtin_templates.guess(special_tokens, name)
    return _probed((guessed or COMPLETION).source, _guess_info(guessed, problems), texts)


def _guess_info(guessed: BuiltinTemplate | None, problems: list[str]) -> TemplateInfo:
    why = problems or ["The model's file has no chat template."]
    if guessed is None:
        how = (
            "Nothing in it tells its chat format: messages are sent as plain text and the model writes on, "
            "as suits a base model."
        )
    elif guessed.markers:
        how = f"Its special tokens ({', '.join(guessed.markers[:2])}) point to the {guessed.title} format, used here."
    else:
        how = f"Its name points to the {guessed.title} format, used here."
    return TemplateInfo(
        source="fallback" if problems or guessed is None else "guess",
        name=(guessed or COMPLETION).name,
        note=" ".join([*why, how]),
        error=" ".join(problems),
    )


def _probed(source: str, info: TemplateInfo, texts: tuple[str, str, str, str]) -> ChatTemplate:
    """Compiles a template and tries it.

    Raises:
        TemplateFailed: it does not compile, or not even one user message can be rendered with it.
    """
    made = ChatTemplate(source, info, *texts, _compiled=in_words(lambda: compile_template(source)))
    user, system = PromptMessage("user", "a question 7261"), PromptMessage("system", "a rule 5038")
    now = datetime.now()
    deadline = time.monotonic() + TIME_LIMIT_S

    def tried(template: ChatTemplate, *messages: PromptMessage) -> str:
        left = max(0.5, deadline - time.monotonic())
        return in_words(lambda: template._once(messages, messages[-1].role == "user", now), left)

    try:
        prompt = tried(made, user)
    except TemplateFailed as error:
        if error.details["kind"] == "limit":
            raise
        try:
            made = replace(made, _absent=_EMPTY_TOOLS)
            prompt = tried(made, user)
        except TemplateFailed:
            raise error from None
    try:
        shown = tried(made, system, user)
        supports_system = system.content in shown and user.content in shown
    except TemplateFailed as error:
        if error.details["kind"] == "limit":
            raise
        supports_system = False
    tag = made._opened(prompt) or thinking_tag(source)
    if not tag:
        try:
            tag = _tag_before(_THOUGHT, tried(made, user, PromptMessage("assistant", "so", reasoning=_THOUGHT)))
        except TemplateFailed:
            tag = ""
    return replace(made, info=msgspec.structs.replace(info, supports_system=supports_system, thinking_tag=tag))


_THOUGHT = "a thought 9146"


def _tag_before(text: str, rendered: str) -> str:
    """Name of the <tag>...</tag> directly around a text, "" if it stands in none."""
    around = re.search(rf"<([A-Za-z][\w:]*)>\s*{re.escape(text)}\s*</\1>", rendered)
    return around.group(1) if around else ""


def thinking_tag(source: str) -> str:
    """Name of the tag in which the template's model thinks, judged by the closing tags in the template's text."""
    return next((name for name in KNOWN_TAGS if tag_pair(name)[1] in source), "")
