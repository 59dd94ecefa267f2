"""Where a `$ref` leads inside one schema."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

from engine.formats.schema_text import refuse


class Document:
    """A whole schema, to look references up in."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self._anchors: dict[str, str] | None = None

    def find(self, reference: str, path: str) -> tuple[str, Any]:
        """Pointer and value that a reference at `path` names; the pointer of the root is "#".

        Raises:
            InvalidRequest: another document, or a place that is not there.
        """
        head, mark, fragment = reference.partition("#")
        own = str(self.root.get("$id", "")).rstrip("#") if isinstance(self.root, dict) else ""
        if not mark or (head and head != own):
            raise refuse(
                f'refers to another document ("$ref": "{reference[:200]}" at {path}); only "#/..." can be used',
                keyword="$ref",
                path=path,
            )
        fragment = unquote(fragment)
        if fragment and not fragment.startswith("/"):
            pointer = self._anchor(fragment)
            if pointer is None:
                raise refuse(f'has no anchor "{fragment[:200]}" ($ref at {path})', keyword="$ref", path=path)
            fragment = pointer
        value, steps = self.root, []
        for step in fragment.split("/")[1:] if fragment else ():
            name = step.replace("~1", "/").replace("~0", "~")
            try:
                value = value[int(name)] if isinstance(value, list) else value[name]
            except (KeyError, IndexError, ValueError, TypeError):
                raise refuse(f"has nothing at {reference[:200]} ($ref at {path})", keyword="$ref", path=path) from None
            steps.append(step)
        return "/".join(["#", *steps]), value

    def _anchor(self, name: str) -> str | None:
        if self._anchors is None:
            self._anchors = {}
            waiting: list[tuple[str, Any]] = [("", self.root)]
            while waiting:
                pointer, value = waiting.pop()
                children: Iterable[tuple[Any, Any]] = enumerate(value) if isinstance(value, list) else ()
                if isinstance(value, dict):
                    children = value.items()
                    for word in ("$anchor", "$dynamicAnchor"):
                        if isinstance(value.get(word), str):
                            self._anchors.setdefault(value[word], pointer)
                waiting += [(f"{pointer}/{step_of(key)}", child) for key, child in children]
        return self._anchors.get(name)


def step_of(key: object) -> str:
    """A name as one step of a pointer."""
    return str(key).replace("~", "~0").replace("/", "~1")
