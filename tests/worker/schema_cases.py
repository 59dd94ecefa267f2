"""Schemas as people write them, over the words that they use, each with right values and with wrong ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Case:
    name: str
    schema: Any
    right: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def _object(properties: dict[str, Any], *optional: str, **more: Any) -> dict[str, Any]:
    required = [name for name in properties if name not in optional]
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
        **more,
    }


_TEXT = {"type": "string", "maxLength": 12}
_WORD = {"type": "string", "pattern": "^[a-z]{1,8}$"}

CASES = [
    Case(
        "person",
        _object(
            {"name": _TEXT, "age": {"type": "integer", "minimum": 0, "maximum": 130}, "married": {"type": "boolean"}}
        ),
        ['{"name":"Ann","age":41,"married":true}', '{"name": "", "age": 0, "married": false}'],
        ['{"name":"Ann","age":131,"married":true}', '{"name":"Ann","age":41}', '{"name":1,"age":41,"married":true}'],
    ),
    Case(
        "enum and const",
        _object({"kind": {"const": "order"}, "size": {"enum": ["small", "large", 3, None]}}),
        ['{"kind":"order","size":"large"}', '{"kind":"order","size":3}', '{"kind":"order","size":null}'],
        ['{"kind":"offer","size":"large"}', '{"kind":"order","size":"huge"}', '{"kind":"order","size":true}'],
    ),
    Case(
        "optional properties",
        _object(
            {"a": {"type": "integer", "minimum": 0, "maximum": 9}, "b": _WORD, "c": {"type": "null"}}, "a", "b", "c"
        ),
        ["{}", '{"a":1}', '{"b":"x"}', '{"a":1,"c":null}', '{"a":1,"b":"x","c":null}'],
        ['{"d":1}', '{"a":"1"}', '{"c":0}'],
    ),
    Case(
        "list of numbers",
        {"type": "array", "items": {"type": "number", "minimum": -1, "maximum": 1}, "minItems": 2, "maxItems": 4},
        ["[0,1]", "[-1, 0.5, 0.25]", "[-0.125, 1, 0, 0]"],
        ["[]", "[0]", "[0,0,0,0,0]", "[0,2]", "[0,-1.5]"],
    ),
    Case(
        "tuple",
        {
            "type": "array",
            "prefixItems": [{"type": "string", "maxLength": 5}, {"type": "integer", "minimum": 1, "maximum": 9}],
            "items": False,
            "minItems": 2,
        },
        ['["a",1]', '["",9]'],
        ['["a"]', '["a","b"]', '["a",1,2]'],
    ),
    Case(
        "tuple of draft 7",
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "array",
            "items": [{"type": "boolean"}, {"type": "null"}],
            "additionalItems": {"type": "integer", "minimum": 0, "maximum": 5},
            "maxItems": 4,
        },
    ),
    Case(
        "nested objects",
        _object(
            {
                "user": _object({"id": {"type": "integer", "minimum": 1, "maximum": 99}}),
                "tags": {"type": "array", "items": _WORD, "maxItems": 3},
            }
        ),
        ['{"user":{"id":7},"tags":["a","b"]}', '{"user":{"id":99},"tags":[]}'],
        ['{"user":{},"tags":[]}', '{"user":{"id":0},"tags":[]}', '{"user":{"id":7},"tags":["A"]}'],
    ),
    Case(
        "references",
        {
            "$defs": {
                "point": _object(
                    {"x": {"type": "integer", "minimum": 0, "maximum": 99}, "y": {"$ref": "#/$defs/small"}}
                ),
                "small": {"type": "integer", "minimum": 0, "maximum": 9},
            },
            **_object({"from": {"$ref": "#/$defs/point"}, "to": {"$ref": "#/$defs/point"}}),
        },
        ['{"from":{"x":1,"y":2},"to":{"x":99,"y":0}}'],
        ['{"from":{"x":1,"y":2}}', '{"from":{"x":1,"y":12},"to":{"x":99,"y":0}}'],
    ),
    Case(
        "recursion",
        {
            "$defs": {
                "node": _object(
                    {
                        "value": {"type": "integer", "minimum": 0, "maximum": 9},
                        "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]},
                    }
                )
            },
            "$ref": "#/$defs/node",
        },
        ['{"value":1,"next":null}', '{"value":1,"next":{"value":2,"next":null}}'],
        ['{"value":1}', '{"value":1,"next":{}}', '{"value":1,"next":1}'],
    ),
    Case(
        "anyOf",
        {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 6}, {"type": "string", "enum": ["head", "tail"]}]},
        ["1", "6", '"head"'],
        ["0", "7", '"edge"', "null"],
    ),
    Case(
        "oneOf by a tag",
        {
            "oneOf": [
                _object({"kind": {"const": "circle"}, "radius": {"type": "integer", "minimum": 1, "maximum": 99}}),
                _object({"kind": {"const": "square"}, "side": {"type": "integer", "minimum": 1, "maximum": 99}}),
            ]
        },
        ['{"kind":"circle","radius":3}', '{"kind":"square","side":3}'],
        ['{"kind":"circle","side":3}', '{"kind":"oval","radius":3}', '{"radius":3}'],
    ),
    Case(
        "oneOf by references with a discriminator",
        {
            "$defs": {
                "Cat": _object({"pet": {"const": "cat"}, "lives": {"type": "integer", "minimum": 1, "maximum": 9}}),
                "Dog": _object({"pet": {"const": "dog"}, "loud": {"type": "boolean"}}),
            },
            "discriminator": {"propertyName": "pet"},
            "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}],
        },
    ),
    Case(
        "oneOf of types",
        {"oneOf": [{"type": "boolean"}, {"type": "string", "maxLength": 3}, {"type": "array", "maxItems": 0}]},
        ["true", '"abc"', "[]"],
        ["1", '"abcd"', "null"],
    ),
    Case(
        "allOf",
        {
            "allOf": [
                {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0}}, "required": ["a"]},
                {"properties": {"a": {"type": "integer", "maximum": 9}, "b": {"type": "boolean"}}, "required": ["b"]},
            ],
            "maxProperties": 2,
        },
        ['{"a":1,"b":true}'],
        ['{"a":10,"b":true}', '{"a":1}', '{"a":-1,"b":true}'],
    ),
    Case(
        "pattern and formats",
        _object(
            {
                "id": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"},
                "day": {"type": "string", "format": "date"},
                "key": {"type": "string", "format": "uuid"},
            }
        ),
        ['{"id":"AB-123","day":"2026-11-29","key":"123e4567-e89b-12d3-a456-426614174000"}'],
        [
            '{"id":"A-123","day":"2026-11-29","key":"123e4567-e89b-12d3-a456-426614174000"}',
            '{"id":"AB-123","day":"29.11.2026","key":"123e4567-e89b-12d3-a456-426614174000"}',
        ],
    ),
    Case(
        "more formats",
        _object(
            {
                "at": {"type": "string", "format": "date-time"},
                "host": {"type": "string", "format": "ipv4"},
                "mail": {"type": "string", "format": "email", "maxLength": 20},
            }
        ),
        ['{"at":"2026-11-29T10:00:00Z","host":"10.0.0.1","mail":"a@b.c"}'],
        [
            '{"at":"2026-11-29","host":"10.0.0.1","mail":"a@b.c"}',
            '{"at":"2026-11-29T10:00:00Z","host":"10.0.0","mail":"a@b.c"}',
        ],
    ),
    Case(
        "lengths",
        _object(
            {
                "code": {"type": "string", "minLength": 3, "maxLength": 5},
                "list": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 2},
            }
        ),
        ['{"code":"abc","list":[true]}', '{"code":"äöü€5","list":[true,false]}'],
        ['{"code":"ab","list":[true]}', '{"code":"abcdef","list":[true]}', '{"code":"abc","list":[]}'],
    ),
    Case(
        "bounds",
        _object(
            {
                "a": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
                "b": {"type": "integer", "multipleOf": 5, "minimum": 5, "maximum": 50},
            }
        ),
        ['{"a":0.5,"b":5}', '{"a":0.001,"b":50}'],
        ['{"a":0,"b":5}', '{"a":1,"b":5}', '{"a":0.5,"b":7}', '{"a":0.5,"b":55}'],
    ),
    Case(
        "map",
        {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0, "maximum": 9}, "maxProperties": 3},
        ["{}", '{"x":1}', '{"x":1,"yy":2,"zzz":3}'],
        ['{"x":10}', '{"x":"1"}', '{"a":1,"b":2,"c":3,"d":4}'],
    ),
    Case(
        "pattern properties",
        {
            "type": "object",
            "patternProperties": {
                "^n_[a-z]{1,3}$": {"type": "integer", "minimum": 0, "maximum": 9},
                "^b_[a-z]{1,3}$": {"type": "boolean"},
            },
            "additionalProperties": False,
            "minProperties": 1,
            "maxProperties": 3,
        },
        ['{"n_a":1}', '{"n_a":1,"b_x":true}'],
        ["{}", '{"n_a":true}', '{"x":1}', '{"n_abcd":1}'],
    ),
    Case(
        "several types",
        _object(
            {
                "v": {"type": ["string", "null", "boolean"], "maxLength": 4},
                "w": {"type": ["integer", "number"], "minimum": 0, "maximum": 3},
            }
        ),
        ['{"v":"abc","w":1}', '{"v":null,"w":0.5}', '{"v":true,"w":3}'],
        ['{"v":"abcde","w":1}', '{"v":1,"w":1}', '{"v":null,"w":4}'],
    ),
    Case(
        "any JSON",
        {"type": ["object", "array"]},
        ["{}", "[]", '{"a":[1,{"b":null}]}', "[[1.5e3]]"],
        ["1", '"a"', "{a:1}"],
    ),
    Case(
        "as a form writes it",
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "Order",
            "description": "What was bought",
            "type": "object",
            "properties": {
                "items": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": 2,
                    "items": _object(
                        {
                            "sku": {"type": "string", "pattern": "^[A-Z0-9]{4}$"},
                            "n": {"type": "integer", "minimum": 1, "maximum": 9},
                        }
                    ),
                },
                "note": {"type": ["string", "null"], "maxLength": 10, "default": None},
            },
            "required": ["items"],
            "additionalProperties": False,
            "x-order": 3,
        },
        ['{"items":[{"sku":"A1B2","n":3}]}', '{"items":[{"sku":"A1B2","n":3},{"sku":"ZZZZ","n":1}],"note":null}'],
        ['{"items":[]}', '{"items":[{"sku":"A1B","n":3}]}', '{"note":null}'],
    ),
]

#: what cannot be held, with the word and the place that the refusal has to name
REFUSED = [
    ({"type": "array", "uniqueItems": True}, "uniqueItems", "#"),
    ({"properties": {"a": {"type": "array", "contains": {"type": "null"}}}}, "contains", "#/properties/a"),
    ({"not": {"type": "null"}}, "not", "#"),
    ({"if": {}, "then": {}}, "if", "#"),
    ({"then": {}}, "then", "#"),
    ({"type": "object", "dependentRequired": {"a": ["b"]}}, "dependentRequired", "#"),
    ({"type": "object", "dependentSchemas": {}}, "dependentSchemas", "#"),
    ({"type": "object", "dependencies": {}}, "dependencies", "#"),
    ({"type": "object", "propertyNames": {"pattern": "^a"}}, "propertyNames", "#"),
    ({"type": "object", "unevaluatedProperties": False}, "unevaluatedProperties", "#"),
    ({"type": "array", "items": {"unevaluatedItems": False}}, "unevaluatedItems", "#/items"),
    ({"$dynamicRef": "#a"}, "$dynamicRef", "#"),
    ({"type": "string", "nullable": True}, "nullable", "#"),
    ({"properties": {"a/b": {"minLenght": 3}}}, "minLenght", "#/properties/a~1b"),
    ({"type": "string", "format": "iri"}, "format", "#/format"),
    ({"$ref": "https://example.org/schema.json"}, "$ref", "#/$ref"),
    ({"$ref": "#/$defs/none"}, "$ref", "#/$ref"),
    ({"$schema": "https://example.org/mine"}, "$schema", "#"),
    ({"properties": {"a": {"$id": "https://example.org/a"}}}, "$id", "#/properties/a"),
    ({"type": "object", "minProperties": 3, "additionalProperties": True}, "minProperties", "#"),
    ({"const": 9007199254740993}, "const", "#/const"),
    ({"maximum": "3"}, "maximum", "#/maximum"),
    ({"minLength": -1}, "minLength", "#/minLength"),
    ({"type": "text"}, "type", "#/type"),
    ({"enum": []}, "enum", "#/enum"),
    ({"required": "a"}, "required", "#/required"),
    ({"anyOf": {}}, "anyOf", "#/anyOf"),
    ({"properties": {"a": {"type": "string", "pattern": "a(?=b)"}}}, "pattern", "#/properties/a"),
    ({"type": "string", "pattern": "(a)\\1"}, "pattern", "#"),
    ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "oneOf", "#"),
    ({"type": "string", "enum": [1]}, "enum", "#"),
    (
        {"$defs": {"x": {"type": "string", "pattern": "(?<=a)b"}}, "items": {"$ref": "#/$defs/x"}},
        "pattern",
        "#/$defs/x",
    ),
]
