"""Other shapes of a conversation, for templates that refuse it as it is.

Some templates know no system role, want user and assistant to take turns, or want the user to speak first. Each
change keeps every word and is told to the user in one sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations

import msgspec

from engine.message import PromptMessage

Messages = tuple[PromptMessage, ...]

TOOL_NOTE = "This model's template has no place for tool results: they were sent as user messages."
SYSTEM_NOTE = (
    "This model's template has no system role: the system prompt was put at the start of the first user message."
)
MERGE_NOTE = "This model's template wants user and assistant to take turns: messages in a row were joined into one."
FIRST_NOTE = "This model's template wants the user to speak first: an empty user message was put at the start."


def tools_as_user(messages: Messages) -> Messages:
    return tuple(PromptMessage("user", f"Tool result:\n{m.content}") if m.role == "tool" else m for m in messages)


def system_into_user(messages: Messages) -> Messages:
    """Each system message goes before the text of the user message after it, or becomes one if there is none."""
    out: list[PromptMessage] = []
    waiting: list[str] = []
    for message in messages:
        if message.role == "system":
            if message.content.strip():
                waiting.append(message.content)
        elif message.role == "user" and waiting:
            out.append(PromptMessage("user", "\n\n".join([*waiting, message.content])))
            waiting = []
        else:
            out.append(message)
    if waiting:
        out.append(PromptMessage("user", "\n\n".join(waiting)))
    return tuple(out)


def merged(messages: Messages) -> Messages:
    out: list[PromptMessage] = []
    for message in messages:
        if out and out[-1].role == message.role:
            last = out[-1]
            out[-1] = msgspec.structs.replace(
                message,
                content="\n\n".join(filter(None, (last.content, message.content))),
                reasoning="\n\n".join(filter(None, (last.reasoning, message.reasoning))),
            )
        else:
            out.append(message)
    return tuple(out)


def user_first(messages: Messages) -> Messages:
    n_system = next((i for i, m in enumerate(messages) if m.role != "system"), len(messages))
    if n_system < len(messages) and messages[n_system].role == "assistant":
        return (*messages[:n_system], PromptMessage("user", ""), *messages[n_system:])
    return messages


_CHANGES: tuple[tuple[Callable[[Messages], Messages], str], ...] = (
    (tools_as_user, TOOL_NOTE),
    (system_into_user, SYSTEM_NOTE),
    (merged, MERGE_NOTE),
    (user_first, FIRST_NOTE),
)


def shapes(messages: Sequence[PromptMessage], supports_system: bool) -> Iterator[tuple[Messages, tuple[str, ...]]]:
    """The conversation as it is, then with one change, with two, ...; each with its notes.

    Where the template is known to have no system role, only shapes without one come.
    """
    seen: set[Messages] = set()
    start = tuple(messages)
    for n_changes in range(len(_CHANGES) + 1):
        for changes in combinations(_CHANGES, n_changes):
            shape = start
            notes: list[str] = []
            for change, note in changes:
                changed = change(shape)
                if changed != shape:
                    shape, notes = changed, [*notes, note]
            if not supports_system and any(m.role == "system" for m in shape):
                continue
            if shape not in seen:
                seen.add(shape)
                yield shape, tuple(notes)
