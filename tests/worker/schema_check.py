"""A validator of JSON Schema for tests: plain, slow, and written apart from what it checks.

Only what can be held is known to it; any other word is an error of the test. Numbers are compared exactly.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal, InvalidOperation
from typing import Any

FORMATS = {
    "date": r"\d{4}-\d\d-\d\d",
    "time": r"\d\d:\d\d:\d\d(\.\d+)?([zZ]|[+-]\d\d:\d\d)",
    "date-time": r"\d{4}-\d\d-\d\d[tT]\d\d:\d\d:\d\d(\.\d+)?([zZ]|[+-]\d\d:\d\d)",
    "duration": r"P(\d+W|(\d+Y)?(\d+M)?(\d+D)?(T(\d+H)?(\d+M)?(\d+S)?)?)",
    "email": r"\S+@\S+",
    "hostname": r"[A-Za-z0-9.-]{1,253}",
    "ipv4": r"(\d{1,3}\.){3}\d{1,3}",
    "ipv6": r"[0-9A-Fa-f:.]+",
    "uuid": r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
    "uri": r"[A-Za-z][A-Za-z0-9+.-]*:\S*",
}
_IGNORED = {"$schema", "$id", "$defs", "definitions", "title", "description", "default", "examples", "$comment"}


def loads(text: str) -> Any:
    """JSON with exact numbers."""
    return json.loads(text, parse_float=_decimal)


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:  # an exponent of more than 18 digits
        return Decimal("-Infinity" if text.startswith("-") else "Infinity")


def is_valid(value: Any, schema: Any, root: Any = None) -> bool:
    return not problem(value, schema, schema if root is None else root)


def problem(value: Any, schema: Any, root: Any) -> str:
    """What is wrong with a value, "" if it is right."""
    if isinstance(schema, bool):
        return "" if schema else "nothing is allowed here"
    for word, asked in schema.items():
        if word not in _IGNORED and not _holds(word, asked, value, schema, root):
            return f"{word} {asked!r} does not hold for {value!r}"
    return ""


def _holds(word: str, asked: Any, value: Any, schema: dict[str, Any], root: Any) -> bool:
    def fits(part: Any, inner: Any) -> bool:
        return not problem(part, inner, root)

    match word:
        case "type":
            return any(_is(value, name) for name in ([asked] if isinstance(asked, str) else asked))
        case "const":
            return _same(value, asked)
        case "enum":
            return any(_same(value, one) for one in asked)
        case "$ref":
            return fits(value, _find(asked, root))
        case "anyOf":
            return any(fits(value, one) for one in asked)
        case "oneOf":
            return sum(fits(value, one) for one in asked) == 1
        case "allOf":
            return all(fits(value, one) for one in asked)
    if isinstance(value, str):
        return _text(word, asked, value)
    if isinstance(value, list):
        return _list(word, asked, value, schema, fits)
    if isinstance(value, dict):
        return _object(word, asked, value, schema, fits)
    if _is(value, "number"):
        return _number(word, asked, value)
    return True


def _text(word: str, asked: Any, value: str) -> bool:
    match word:
        case "minLength":
            return len(value) >= asked
        case "maxLength":
            return len(value) <= asked
        case "pattern":
            return re.search(asked, value) is not None
        case "format":
            return re.fullmatch(FORMATS[asked], value) is not None
    return True


def _number(word: str, asked: Any, value: Any) -> bool:
    exact, limit = Decimal(value), Decimal(str(asked)) if not isinstance(asked, str | list | dict) else Decimal(0)
    match word:
        case "minimum":
            return exact >= limit
        case "maximum":
            return exact <= limit
        case "exclusiveMinimum":
            return exact > limit
        case "exclusiveMaximum":
            return exact < limit
        case "multipleOf":
            return exact % limit == 0
    return True


def _list(word: str, asked: Any, value: list[Any], schema: dict[str, Any], fits: Any) -> bool:
    match word:
        case "minItems":
            return len(value) >= asked
        case "maxItems":
            return len(value) <= asked
        case "prefixItems":
            return all(map(fits, value, asked))
        case "items" if isinstance(asked, list):  # until draft 2019-09
            return all(map(fits, value, asked))
        case "additionalItems":
            return all(fits(item, asked) for item in value[len(schema["items"]) :])
        case "items":
            return all(fits(item, asked) for item in value[len(schema.get("prefixItems", ())) :])
    return True


def _object(word: str, asked: Any, value: dict[str, Any], schema: dict[str, Any], fits: Any) -> bool:
    match word:
        case "required":
            return all(name in value for name in asked)
        case "minProperties":
            return len(value) >= asked
        case "maxProperties":
            return len(value) <= asked
        case "properties":
            return all(fits(value[name], inner) for name, inner in asked.items() if name in value)
        case "patternProperties":
            return all(fits(value[n], inner) for n in value for p, inner in asked.items() if re.search(p, n))
        case "additionalProperties":
            known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
            rest = [n for n in value if n not in known and not any(re.search(p, n) for p in patterns)]
            return all(fits(value[name], asked) for name in rest)
    return True


def _is(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if isinstance(value, int | Decimal | float):
        return name == "number" or (name == "integer" and Decimal(value) % 1 == 0)
    return {"null": type(None), "string": str, "array": list, "object": dict}.get(name) is type(value)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | Decimal | float) and isinstance(other, int | Decimal | float):
        return Decimal(str(one)) == Decimal(str(other))
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(part, other[name]) for name, part in one.items())
    return type(one) is type(other) and bool(one == other)


def _find(reference: str, root: Any) -> Any:
    for step in reference.removeprefix("#").split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        root = root[int(name)] if isinstance(root, list) else root[name]
    return root
