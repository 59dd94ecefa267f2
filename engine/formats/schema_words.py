"""The words of JSON Schema: which can be held while an answer is written, which only describe, which are refused."""

from __future__ import annotations

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")

#: forms of text that can be held; others are refused by name
FORMATS = ("date-time", "date", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri")
#: OpenAPI writes these beside numbers, where JSON Schema gives `format` no meaning
NUMBER_FORMATS = ("int32", "int64", "float", "double")

#: keywords whose value is a whole number from 0 up
COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
#: keywords whose value is a list of schemas
LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
#: keywords whose value holds schemas by name
MAPS = ("properties", "patternProperties")

HELD = (
    *COUNTS,
    *NUMBERS,
    *LISTS,
    *MAPS,
    *("type", "enum", "const", "$ref", "items", "additionalItems", "additionalProperties", "required"),
    *("pattern", "format"),
)

#: keywords that say nothing about which values are right
NOTES = frozenset(
    {
        *("$schema", "$id", "id", "$comment", "$anchor", "$dynamicAnchor", "$vocabulary", "$defs", "definitions"),
        *("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"),
        *("contentMediaType", "contentEncoding", "contentSchema"),
        # what OpenAPI adds to describe a schema
        *("discriminator", "example", "externalDocs", "xml"),
    }
)

#: keywords of JSON Schema that cannot be held, with what to write in their place where there is something
REFUSED = {
    "uniqueItems": "",
    "contains": "",
    "minContains": "",
    "maxContains": "",
    "not": "",
    "if": "Write the cases as anyOf.",
    "then": "Write the cases as anyOf.",
    "else": "Write the cases as anyOf.",
    "dependentRequired": "Write the cases as anyOf.",
    "dependentSchemas": "Write the cases as anyOf.",
    "dependencies": "Write the cases as anyOf.",
    "propertyNames": "patternProperties with additionalProperties false says the same.",
    "unevaluatedProperties": "Use additionalProperties.",
    "unevaluatedItems": "Use items.",
    "$dynamicRef": "Use $ref.",
    "$recursiveRef": "Use $ref.",
    "$recursiveAnchor": "Use $ref.",
    "nullable": 'Write "type": ["...", "null"].',
    "divisibleBy": "Use multipleOf.",
    "disallow": "",
    "extends": "Use allOf.",
}

#: values with which such a word says nothing
HARMLESS = {"uniqueItems": False, "nullable": False, "unevaluatedProperties": True, "unevaluatedItems": True}

#: dialects by the end of their address
DIALECTS = (
    "json-schema.org/draft-04/schema",
    "json-schema.org/draft-06/schema",
    "json-schema.org/draft-07/schema",
    "json-schema.org/draft/2019-09/schema",
    "json-schema.org/draft/2020-12/schema",
)
