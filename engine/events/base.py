"""The base of all events."""

from __future__ import annotations

import re

import msgspec


def _tag(class_name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", class_name).lower()


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag=_tag):
    """Base of all events. `request_id` is the id of the request that caused it."""

    request_id: str = ""
