"""Whether two schemas can have no value in common. "No" here only means: it could not be shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from engine.formats.schema_words import TYPES

Lookup = Callable[[str], Any]
_DEPTH = 8


def all_disjoint(schemas: list[Any], lookup: Lookup) -> bool:
    """Whether no two of them share a value. `lookup` gives the schema that a `$ref` names."""
    return all(
        disjoint(one, other, lookup, _DEPTH) for place, one in enumerate(schemas) for other in schemas[place + 1 :]
    )


def disjoint(one: Any, other: Any, lookup: Lookup, depth: int = _DEPTH) -> bool:
    one, other = _followed(one, lookup), _followed(other, lookup)
    if one is False or other is False:
        return True
    if not isinstance(one, dict) or not isinstance(other, dict) or depth == 0:
        return False
    if not _types(one) & _types(other):
        return True
    mine, theirs = _values(one), _values(other)
    if mine is not None and theirs is not None and not any(same(a, b) for a in mine for b in theirs):
        return True
    for left, right in ((one, other), (other, one)):
        if any(disjoint(part, right, lookup, depth - 1) for part in _list(left, "allOf")):
            return True
        for word in ("anyOf", "oneOf"):
            options = _list(left, word)
            if options and all(disjoint(option, right, lookup, depth - 1) for option in options):
                return True
    only_objects = _types(one) & _types(other) == {"object"}
    return only_objects and _objects_disjoint(one, other, lookup, depth)


def _objects_disjoint(one: dict[str, Any], other: dict[str, Any], lookup: Lookup, depth: int) -> bool:
    for left, right in ((one, other), (other, one)):
        for name in _list(left, "required"):
            mine, theirs = _property(left, name), _property(right, name)
            if theirs is False:
                return True
            if name in _list(right, "required") and disjoint(mine, theirs, lookup, depth - 1):
                return True
    return False


def _property(schema: dict[str, Any], name: str) -> Any:
    """What is said of a property; True where nothing certain is said."""
    properties = schema.get("properties")
    if isinstance(properties, dict) and name in properties:
        return properties[name]
    return bool(schema.get("additionalProperties") is not False or schema.get("patternProperties"))


def _followed(schema: Any, lookup: Lookup) -> Any:
    """The schema that a bare reference names. With words beside it the reference is one more condition, and leaving
    it out can only make fewer pairs disjoint."""
    for _ in range(_DEPTH):
        if not isinstance(schema, dict) or set(schema) != {"$ref"} or not isinstance(schema["$ref"], str):
            return schema
        schema = lookup(schema["$ref"])
    return True


def _types(schema: dict[str, Any]) -> set[str]:
    """JSON types that its values can have; whole numbers are numbers."""
    named = schema.get("type", TYPES)
    types = {"number" if name == "integer" else name for name in ([named] if isinstance(named, str) else named)}
    values = _values(schema)
    return types if values is None else types & {kind_of(value) for value in values}


def _values(schema: dict[str, Any]) -> list[Any] | None:
    """The values it allows, where it lists them."""
    if "const" in schema:
        return [schema["const"]]
    listed = schema.get("enum")
    return listed if isinstance(listed, list) else None


def _list(schema: dict[str, Any], word: str) -> Iterable[Any]:
    value = schema.get(word)
    return value if isinstance(value, list) else ()


def kind_of(value: Any) -> str:
    """The JSON type of a value; "number" for all numbers."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal as JSON: 1 is 1.0 but not true."""
    if kind_of(one) != kind_of(other):
        return False
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(value, other[name]) for name, value in one.items())
    return bool(one == other)
