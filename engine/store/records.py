"""Between our records and the JSON in the database.

Writing never fails for what a text holds: a lone surrogate (Qt and file names can give one) has no UTF-8 form and
becomes U+FFFD. Reading never fails either: a part or record that this version does not know must not make a chat
unreadable.
"""

from __future__ import annotations

import logging
from typing import Any, TypeVar

import msgspec

from engine.message import ChatSettings, GenerationRecord, Part, TextPart
from engine.sampling import SamplingParams

log = logging.getLogger("inglenook.store")
T = TypeVar("T")
_parts_decoder = msgspec.json.Decoder(tuple[Part, ...])
_generation_decoder = msgspec.json.Decoder(GenerationRecord)
_settings_decoder = msgspec.json.Decoder(ChatSettings)
UNKNOWN_PART = "[A {kind} part that this version of Inglenook cannot show]"


def clean_text(text: str) -> str:
    """The text with surrogate pairs joined and lone surrogates replaced by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def dump(record: Any) -> str:
    """JSON of parts, a generation record or chat settings."""
    try:
        return msgspec.json.encode(_finite(record), enc_hook=str).decode()
    except UnicodeEncodeError:
        return msgspec.json.encode(_clean(msgspec.to_builtins(_finite(record), enc_hook=str))).decode()


def load_parts(text: str) -> tuple[Part, ...]:
    try:
        return _parts_decoder.decode(text)
    except (msgspec.DecodeError, ValueError):
        return _load_parts_one_by_one(text)


def load_generation(text: str | None) -> GenerationRecord | None:
    return None if text is None else _load(_generation_decoder, text, None)


def load_settings(text: str) -> ChatSettings:
    return _load(_settings_decoder, text, ChatSettings())


def visible_text(parts: tuple[Part, ...]) -> str:
    """What search finds: text parts without thinking."""
    return "".join(p.text for p in parts if isinstance(p, TextPart))


def _load(decoder: msgspec.json.Decoder[T], text: str, default: Any) -> T:
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, ValueError) as error:
        log.warning("a stored record cannot be read and is left out: %s", error)
        result: T = default
        return result


def _load_parts_one_by_one(text: str) -> tuple[Part, ...]:
    try:
        items = msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError):
        return (TextPart(text),)  # damaged JSON: its raw text is better than nothing
    parts: list[Part] = []
    for item in items if isinstance(items, list) else [items]:
        try:
            parts.append(msgspec.convert(item, Part))
        except msgspec.ValidationError:
            kind = item.get("type", "unknown") if isinstance(item, dict) else "unknown"
            parts.append(TextPart(UNKNOWN_PART.format(kind=kind)))
    return tuple(parts)


def _finite(record: Any) -> Any:
    """JSON has no infinity: a ban (-inf) in logit_bias is written as -1e9, which means the same."""
    sampling = getattr(record, "sampling", None)
    if not isinstance(sampling, SamplingParams) or not sampling.logit_bias:
        return record
    bias = {token: max(value, -1e9) for token, value in sampling.logit_bias.items()}
    return msgspec.structs.replace(record, sampling=msgspec.structs.replace(sampling, logit_bias=bias))


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    return value
