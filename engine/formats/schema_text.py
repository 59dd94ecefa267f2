"""From the text of a JSON Schema to plain data, with limits that no text can get around."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

from engine.errors import InvalidRequest

MAX_BYTES = 1024 * 1024
#: brackets inside brackets in the text of a schema
MAX_TEXT_DEPTH = 256


def refuse(why: str, *, keyword: str = "", path: str = "", hint: str = "") -> InvalidRequest:
    """The error for a schema; `keyword` and `path` are also in its details."""
    details = {"field": "json_schema"}
    if keyword:
        details["keyword"] = keyword
    if path:
        details["path"] = path
    return InvalidRequest(f"The JSON Schema {why}", hint=hint, details=details)


def loads(text: str) -> Any:
    """The schema as plain data.

    Raises:
        InvalidRequest: too long, too deep, no JSON (with line and column), a name twice in one object, a number that
            JSON does not have, half a character.
    """
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise refuse("holds half a character (a lone surrogate)") from None
    if size > MAX_BYTES:
        raise refuse(f"has {size / 2**20:.1f} MiB; at most {MAX_BYTES // 2**20} MiB can be used")
    if not text.strip():
        raise refuse("is empty")
    if _depth(text) > MAX_TEXT_DEPTH:
        raise refuse(f"is nested more than {MAX_TEXT_DEPTH} levels deep")
    try:
        data = json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
        json.dumps(data, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise refuse(
            f"is no JSON: {error.msg} (line {error.lineno}, column {error.colno})",
        ) from None
    except UnicodeEncodeError:
        raise refuse("holds half a character (a lone surrogate)") from None
    except (ValueError, RecursionError) as error:
        raise refuse(f"cannot be read: {error}") from None
    return data


#: a string, also one that never ends, or a bracket
_PARTS = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)


def _depth(text: str) -> int:
    """How deep brackets are nested, in a broken text too."""
    deepest = depth = 0
    for part in _PARTS.finditer(text):
        mark = text[part.start()]
        if mark in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif mark in "]}":
            depth -= 1
    return deepest


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the name {twice!r} stands twice in one object")
    return made


def _constant(name: str) -> Any:
    raise ValueError(f"JSON has no {name}")
