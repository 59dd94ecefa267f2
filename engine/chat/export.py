"""Chats to files and back: Markdown to read, JSON to keep, and OpenAI's `messages` as input."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from engine.errors import InvalidRequest
from engine.message import Chat, Message, PromptMessage, Role, TextPart
from engine.paths import shown
from engine.store.records import clean_text

FORMAT = "inglenook-chat"
VERSION = 1
_NAMES = {"system": "System", "user": "You", "assistant": "Assistant", "tool": "Tool"}
# OpenAI's newer name for the system role
_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}


class ExportedChat(msgspec.Struct, frozen=True, kw_only=True):
    """A chat as a JSON file.

    Attributes:
        messages: the branch on screen in OpenAI's form, for other programs.
        chat, tree: all that is stored, every branch included.
    """

    format: Literal["inglenook-chat"] = "inglenook-chat"
    version: int = VERSION
    messages: list[dict[str, str]]
    chat: Chat
    tree: list[Message]


class _Form(msgspec.Struct):
    format: Literal["inglenook-chat"]
    version: int = VERSION


def to_markdown(chat: Chat, branch: Sequence[Message]) -> str:
    """The branch as one Markdown text: a heading per message, thinking as a quote, the model's name and date."""
    blocks = [f"# {chat.title or 'Chat'}"]
    for message in branch:
        name = _NAMES[message.role]
        if message.role == "assistant" and message.generation and message.generation.model_name:
            name = message.generation.model_name
        when = datetime.fromtimestamp(message.created_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
        ended = "" if message.status == "complete" else f", {message.status}"
        blocks.append(f"## {name}\n\n*{when}{ended}*")
        for part in message.parts:
            if isinstance(part, TextPart):
                blocks.append(part.text.strip("\n"))
            else:
                thought = part.text.strip().split("\n")
                blocks.append("\n".join(["> *Thinking*", ">", *(f"> {line}".rstrip() for line in thought)]))
    return clean_text("\n\n".join(block for block in blocks if block)) + "\n"


def to_json(chat: Chat, branch: Sequence[Message], tree: Sequence[Message] | None = None) -> str:
    """The chat as JSON text: `messages` in OpenAI's form and all that is stored (`tree`; the branch if not given)."""
    exported = ExportedChat(messages=openai_messages(branch), chat=chat, tree=list(branch if tree is None else tree))
    return msgspec.json.format(msgspec.json.encode(exported), indent=2).decode() + "\n"


def from_json(raw: bytes | str) -> ExportedChat:
    """What `to_json` wrote.

    Raises:
        InvalidRequest: not such a file, or one of a newer version.
    """
    try:
        form = msgspec.json.decode(raw, type=_Form)  # by itself: the rest may look otherwise in a later version
        if form.version > VERSION:
            raise InvalidRequest("This chat was exported by a newer Inglenook.", hint="Update Inglenook.")
        return msgspec.json.decode(raw, type=ExportedChat)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"This is not a chat exported by Inglenook: {error}") from error


def openai_messages(messages: Sequence[Message]) -> list[dict[str, str]]:
    """Messages in OpenAI's form. Thinking goes along as `reasoning_content`, as other local servers name it."""
    result = []
    for message in messages:
        item = {"role": str(message.role), "content": message.text}
        if message.reasoning:
            item["reasoning_content"] = message.reasoning
        result.append(item)
    return result


def read_messages(path: Path) -> list[PromptMessage]:
    """The conversation in a JSON file; see `messages_from_openai`.

    Raises:
        InvalidRequest: the file cannot be read, or what it holds cannot be used.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InvalidRequest(
            f"{shown(path)} cannot be read: {error.strerror}.", details={"field": "messages"}
        ) from error
    try:
        # json finds out about UTF-16 and a byte order mark by itself: shells on Windows write them
        data = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise _bad("messages", f"in {shown(path)} is not JSON: {error}") from error
    return messages_from_openai(data)


def messages_from_openai(data: Any) -> list[PromptMessage]:
    """Messages in OpenAI's form, as a list or as an object with the key `messages` (a whole request, an export).

    The content of every role may be a text or a list of text parts, which are joined. Keys that do not change the
    conversation (`name`, `id`) are ignored; what would (images, tool calls) is refused.

    Raises:
        InvalidRequest: `details["field"]` names the bad place, for instance `messages[2].content[1]`.
    """
    if isinstance(data, dict):
        data = data.get("messages")
    if not isinstance(data, list):
        raise _bad("messages", "must be a list of messages")
    if not data:
        raise _bad("messages", "is empty")
    return [_message(item, f"messages[{number}]") for number, item in enumerate(data)]


def _message(item: Any, where: str) -> PromptMessage:
    if not isinstance(item, dict):
        raise _bad(where, "must be an object with role and content")
    role = item.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise _bad(f"{where}.role", f"must be one of {', '.join(_ROLES)}, not {_short(role)}")
    for key in ("tool_calls", "function_call", "audio"):
        if item.get(key):
            raise _bad(f"{where}.{key}", "cannot be used yet; only text can")
    if "content" not in item:
        raise _bad(f"{where}.content", "is missing")
    reasoning = item.get("reasoning_content") or ""
    if not isinstance(reasoning, str):
        raise _bad(f"{where}.reasoning_content", f"must be a text, not {_short(reasoning)}")
    return PromptMessage(
        role=_ROLES[role],
        content=_content(item["content"], f"{where}.content"),
        reasoning=clean_text(reasoning),
    )


def _content(content: Any, where: str) -> str:
    if isinstance(content, str):
        return clean_text(content)
    if not isinstance(content, list):
        raise _bad(where, f"must be a text or a list of text parts, not {_short(content)}")
    texts = []
    for number, part in enumerate(content):
        at = f"{where}[{number}]"
        if not isinstance(part, dict):
            raise _bad(at, f'must be a part such as {{"type": "text", "text": "..."}}, not {_short(part)}')
        kind = part.get("type")
        if kind != "text":
            raise _bad(at, f"is a part of type {_short(kind)}; only text parts can be used")
        if not isinstance(part.get("text"), str):
            raise _bad(f"{at}.text", f"must be a text, not {_short(part.get('text'))}")
        texts.append(part["text"])
    return clean_text("".join(texts))


def _bad(field: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"{field} {why}.", details={"field": field})


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "..."
