"""JSON Schema, checked word by word and brought into the one form that the grammar engine takes.

A schema is never followed halfway: a word that cannot be held while an answer is written is refused with its name and
place. The form is that of draft 2020-12, with every `$ref` leading to `$defs` by a plain name.
"""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass
from typing import Any

from engine.errors import InvalidRequest
from engine.formats import schema_words as words
from engine.formats.schema_disjoint import all_disjoint
from engine.formats.schema_pattern import BadPattern, portable
from engine.formats.schema_refs import Document, step_of
from engine.formats.schema_text import loads, refuse

#: any JSON text: an object or a list
ANY_JSON = '{"type": ["object", "array"]}'
MAX_DEPTH = 48
MAX_SCHEMAS = 20_000
_COMPARED = 64


@dataclass(frozen=True)
class PreparedSchema:
    """A schema in the form described above.

    Attributes:
        origins: place in the user's schema of each entry of `$defs`.
    """

    schema: dict[str, Any]
    origins: dict[str, str]


def prepare(text: str) -> PreparedSchema:
    """Check a schema.

    Raises:
        InvalidRequest: names the word and its place.
    """
    root = loads(text)
    if root is False:
        raise refuse("allows no answer at all")
    if not isinstance(root, dict | bool):
        raise refuse(f"must be an object, not {_short(root)}")
    return _Preparer(Document(root)).run()


class _Preparer:
    def __init__(self, document: Document) -> None:
        self._document = document
        self._names: dict[str, str] = {"#": "#"}
        self._waiting: list[tuple[str, str, Any]] = []
        self._count = 0

    def run(self) -> PreparedSchema:
        made = self._schema(self._document.root, "#", 0)
        definitions: dict[str, Any] = {}
        origins: dict[str, str] = {}
        while self._waiting:
            name, pointer, value = self._waiting.pop()
            definitions[name] = self._schema(value, pointer, 0)
            origins[name] = pointer
        result = made if isinstance(made, dict) else {}
        if definitions:
            result = {**result, "$defs": definitions}
        return PreparedSchema(result, origins)

    def _schema(self, node: Any, path: str, depth: int) -> Any:
        self._count += 1
        if depth > MAX_DEPTH or self._count > MAX_SCHEMAS:
            what = f"{MAX_DEPTH} levels deep" if depth > MAX_DEPTH else f"in {MAX_SCHEMAS} parts"
            raise refuse(f"describes values more than {what} (at {path[:200]})", path=path)
        if isinstance(node, bool):
            return node
        if not isinstance(node, dict):
            raise refuse(f"has {_short(node)} at {path}, where a schema must stand", path=path)
        for word in node:
            self._known(word, node, path)
        out: dict[str, Any] = {}
        for word, value in node.items():
            if word in words.HELD:
                self._word(word, value, node, out, f"{path}/{step_of(word)}", depth)
        self._bounds(node, out)
        if out.get("minProperties", 0) > 1:
            raise refuse(
                f"asks for minProperties {out['minProperties']} at {path}, which cannot be enforced",
                keyword="minProperties",
                path=path,
                hint="Name the properties under required.",
            )
        return out

    # ------------------------------------------------------------------ words

    def _known(self, word: str, node: dict[str, Any], path: str) -> None:
        if word in words.HELD or word.startswith("x-"):
            return
        if word in words.HARMLESS and node[word] is words.HARMLESS[word]:
            return
        if word in words.REFUSED:
            raise refuse(
                f'uses "{word}" at {path}, which cannot be enforced', keyword=word, path=path, hint=words.REFUSED[word]
            )
        if word == "$schema" and str(node[word]).rstrip("#").partition("://")[2] not in words.DIALECTS:
            raise refuse(
                f'is written in a dialect that is not known here ("$schema" at {path})', keyword=word, path=path
            )
        if word in ("$id", "id") and path != "#" and isinstance(node[word], str):
            raise refuse(f'has an address of its own ("{word}") at {path}; only the root may', keyword=word, path=path)
        if word not in words.NOTES:
            near = difflib.get_close_matches(word, (*words.HELD, *words.REFUSED), 1)
            raise refuse(
                f'uses "{word[:100]}" at {path}, which is no word of JSON Schema',
                keyword=word,
                path=path,
                hint=f'Is "{near[0]}" meant?' if near else 'Names of your own begin with "x-".',
            )

    def _word(self, word: str, value: Any, node: dict[str, Any], out: dict[str, Any], path: str, depth: int) -> None:
        if word in words.COUNTS:
            self._count_word(word, value, node, out, path)
        elif word in words.NUMBERS:
            if not (word.startswith("exclusive") and isinstance(value, bool)):
                out[word] = _number(word, value, path)
        elif word in words.LISTS:
            self._list_word(word, value, out, path, depth)
        elif word in words.MAPS:
            if not isinstance(value, dict):
                raise _wrong(word, "an object of schemas", value, path)
            made = {k: self._schema(v, f"{path}/{step_of(k)}", depth + 1) for k, v in value.items()}
            out[word] = {_portable(word, k, path): v for k, v in made.items()} if word == "patternProperties" else made
        elif word == "items":
            self._items(value, node, out, path, depth)
        elif word == "additionalProperties":
            out[word] = self._schema(value, path, depth + 1)
        elif word == "$ref":
            out[word] = self._reference(value, path)
        elif word == "additionalItems":
            return  # means something only beside a list of items, and is taken with it
        else:
            out[word] = _CHECKS[word](word, value, node, path)
            if out[word] is None:
                del out[word]

    @staticmethod
    def _count_word(word: str, value: Any, node: dict[str, Any], out: dict[str, Any], path: str) -> None:
        whole = isinstance(value, int | float) and not isinstance(value, bool) and float(value).is_integer()
        if not whole or not 0 <= value <= 2**31:
            raise _wrong(word, "a whole number from 0 up", value, path)
        required = node.get("required")
        if word == "minProperties" and isinstance(required, list) and value <= len(set(map(str, required))):
            return  # holds by itself
        if value or word.startswith("max"):
            out[word] = int(value)

    def _list_word(self, word: str, value: Any, out: dict[str, Any], path: str, depth: int) -> None:
        if not isinstance(value, list) or not value:
            raise _wrong(word, "a list of schemas", value, path)
        made = [self._schema(item, f"{path}/{place}", depth + 1) for place, item in enumerate(value)]
        if word == "oneOf" and len(value) <= _COMPARED and all_disjoint(value, self._lookup):
            word = "anyOf"  # the same where no two can hold at once
        if word in out:
            made, word = [{word: made}], "allOf"
        out[word] = [*out[word], *made] if word in out else made

    def _lookup(self, reference: str) -> Any:
        return self._document.find(reference, "#")[1]

    def _items(self, value: Any, node: dict[str, Any], out: dict[str, Any], path: str, depth: int) -> None:
        if not isinstance(value, list):
            out["items"] = self._schema(value, path, depth + 1)
            return
        if "prefixItems" in node:
            raise _wrong("items", "a schema beside prefixItems", value, path)
        out["prefixItems"] = [self._schema(item, f"{path}/{place}", depth + 1) for place, item in enumerate(value)]
        if "additionalItems" in node:
            beside = f"{path.removesuffix('/items')}/additionalItems"
            out["items"] = self._schema(node["additionalItems"], beside, depth + 1)

    def _reference(self, value: Any, path: str) -> str:
        if not isinstance(value, str):
            raise _wrong("$ref", "a text", value, path)
        pointer, target = self._document.find(value, path)
        if pointer not in self._names:
            self._names[pointer] = str(len(self._names))
            self._waiting.append((self._names[pointer], pointer, target))
        name = self._names[pointer]
        return "#" if name == "#" else f"#/$defs/{name}"

    @staticmethod
    def _bounds(node: dict[str, Any], out: dict[str, Any]) -> None:
        """Draft 4 says with true that minimum and maximum are exclusive."""
        for word, plain in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            if node.get(word) is True and plain in out:
                out[word] = out.pop(plain)


# ---------------------------------------------------------------------- values of words


def _wrong(word: str, wanted: str, value: Any, path: str) -> InvalidRequest:
    return refuse(f'has {_short(value)} for "{word}" at {path}; it must be {wanted}', keyword=word, path=path)


def _short(value: Any) -> str:
    text = repr(value) if not isinstance(value, dict | list) else ("an object" if isinstance(value, dict) else "a list")
    return text if len(text) <= 60 else text[:57] + "..."


def _number(word: str, value: Any, path: str) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(word, "a number", value, path)
    if word == "multipleOf" and value <= 0:
        raise _wrong(word, "a number above 0", value, path)
    _exact(word, value, path)
    return value


def _exact(word: str, value: Any, path: str) -> None:
    """Numbers are compared as 64-bit floats; one that does not fit would be another number."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            _exact(word, item, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        try:
            ok = math.isfinite(value) and (isinstance(value, float) or int(float(value)) == value)
        except OverflowError:
            ok = False
        if not ok:
            raise refuse(
                f'has a number under "{word}" at {path} that a 64-bit float cannot hold exactly',
                keyword=word,
                path=path,
            )


def _type(word: str, value: Any, node: dict[str, Any], path: str) -> Any:
    named = value if isinstance(value, list) else [value]
    if not named or not all(isinstance(name, str) and name in words.TYPES for name in named):
        raise _wrong(word, f"one of {', '.join(words.TYPES)}, or a list of them", value, path)
    if "number" in named:
        named = [name for name in named if name != "integer"]
    named = list(dict.fromkeys(named))
    return named if len(named) > 1 else named[0]


def _enum(word: str, value: Any, node: dict[str, Any], path: str) -> Any:
    if not isinstance(value, list) or not value:
        raise _wrong(word, "a list with at least one value", value, path)
    _exact(word, value, path)
    return value


def _const(word: str, value: Any, node: dict[str, Any], path: str) -> Any:
    _exact(word, value, path)
    return value


def _required(word: str, value: Any, node: dict[str, Any], path: str) -> Any:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise _wrong(word, "a list of names", value, path)
    return list(dict.fromkeys(value))


def _pattern(word: str, value: Any, node: dict[str, Any], path: str) -> Any:
    if not isinstance(value, str):
        raise _wrong(word, "a text", value, path)
    return _portable(word, value, path)


def _portable(word: str, pattern: str, path: str) -> str:
    try:
        return portable(pattern)
    except BadPattern as error:
        raise refuse(
            f'has a regular expression under "{word}" at {path} that is wrong: {error}', keyword=word, path=path
        ) from None


def _format(word: str, value: Any, node: dict[str, Any], path: str) -> Any:
    if not isinstance(value, str):
        raise _wrong(word, "a text", value, path)
    if value in words.FORMATS:
        return value
    if value in words.NUMBER_FORMATS and node.get("type") in ("integer", "number"):
        return None
    raise refuse(
        f'asks for the format "{value[:60]}" at {path}, which cannot be enforced',
        keyword=word,
        path=path,
        hint=f"Known are {', '.join(words.FORMATS)}. A pattern can describe others.",
    )


_CHECKS = {
    "type": _type,
    "enum": _enum,
    "const": _const,
    "required": _required,
    "pattern": _pattern,
    "format": _format,
}
