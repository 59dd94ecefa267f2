"""Counting what a template makes, so that a few characters of template cannot fill the memory."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.chat.jinja_env import ChatEnvironment

MIB = 1024 * 1024
MAX_ITEMS = 1_000_000
MAX_RANGE = 100_000
MAX_BITS = 4096
MAX_WIDTH = 1000
MAX_DEPTH = 100
MAX_PATTERN_INPUT = 64 * 1024
LINE_ENDS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
_PERCENT = re.compile(r"%(?:\([^)]*\))?[-+ #0]*(\*|\d+)?(?:\.(\*|\d+))?[a-zA-Z%]")


class TemplateLimit(Exception):
    """The template wanted more than it may have; the message says what."""


class Meter:
    """What one render has used.

    Attributes:
        max_size: characters that one text may have, and items or characters in one nested value.
        budget: bytes of texts and lists that may be made in all. They are counted when made and not given back,
            so this bounds the memory whatever the template keeps.
        max_written: characters that may be written, macros and captured blocks included.
    """

    def __init__(self, input_chars: int, n_messages: int) -> None:
        self.max_size = 8 * MIB + 4 * input_chars
        self.budget = 64 * MIB + 4 * input_chars * max(64, n_messages)
        self.max_written = 4 * self.max_size
        self._written = 0

    def check_size(self, size: int) -> None:
        if size > self.max_size:
            raise TemplateLimit("a text or list of more than its share of memory")

    def check_items(self, count: int) -> None:
        if count > MAX_ITEMS:
            raise TemplateLimit(f"a list of more than {MAX_ITEMS:,} items")

    def check_width(self, format_spec: str) -> None:
        if any(int(number[:10]) > MAX_WIDTH for number in re.findall(r"\d+", format_spec)):
            raise TemplateLimit(f"a field of more than {MAX_WIDTH} characters")

    def charge(self, value: Any) -> None:
        """Count a new value. Only the types that can be large are looked at, and only their own size."""
        if isinstance(value, str):
            self.check_size(len(value))
        elif not isinstance(value, list | tuple | dict):
            return
        self.spend(sys.getsizeof(value))

    def spend(self, size_bytes: int) -> None:
        self.budget -= size_bytes
        if self.budget < 0:
            raise TemplateLimit("more memory in all than it may use")

    def wrote(self, text: str) -> None:
        self._written += len(text) + 8
        if self._written > self.max_written:
            raise TemplateLimit("a longer prompt than it may make")

    def weigh(self, value: Any) -> int:
        """Characters and items in a nested value, each counted as often as it would be printed or compared."""
        if isinstance(value, str):
            size = len(value)
            self.check_size(size)
            return size
        if not isinstance(value, list | tuple | dict):
            return 32
        size = 0
        stack: list[tuple[Any, int]] = [(value, 0)]
        while stack:
            item, depth = stack.pop()
            if isinstance(item, str):
                size += len(item)
            elif isinstance(item, list | tuple | dict):
                if depth > MAX_DEPTH:
                    raise TemplateLimit(f"lists nested more than {MAX_DEPTH} deep")
                if isinstance(item, dict):
                    stack.extend((key, depth + 1) for key in item)
                    stack.extend((each, depth + 1) for each in item.values())
                else:
                    stack.extend((each, depth + 1) for each in item)
            size += 4
            self.check_size(size + len(stack))
        return size

    def text(self, value: Any) -> str:
        """`str(value)`, refused if that would be too long."""
        self.weigh(value)
        text = str(value)
        if len(text) > 1024:
            self.charge(text)
        return text


# ------------------------------------------------------------------ operators


def _add(environment: ChatEnvironment) -> Callable[[Any, Any], Any]:
    def add(left: Any, right: Any) -> Any:
        meter = environment.meter
        if isinstance(left, str | list | tuple) and isinstance(right, str | list | tuple):
            meter.check_size(len(left) + len(right))
            if not isinstance(left, str):
                meter.check_items(len(left) + len(right))
        result = left + right
        meter.charge(result)
        return result

    return add


def _multiply(environment: ChatEnvironment) -> Callable[[Any, Any], Any]:
    def multiply(left: Any, right: Any) -> Any:
        meter = environment.meter
        for sequence, times in ((left, right), (right, left)):
            if isinstance(sequence, str | list | tuple) and isinstance(times, int):
                size = len(sequence) * max(0, times)
                meter.check_size(size)
                if not isinstance(sequence, str):
                    meter.check_items(size)
        if isinstance(left, int) and isinstance(right, int):
            _check_bits(left.bit_length() + right.bit_length())
        result = left * right
        meter.charge(result)
        return result

    return multiply


def _power(_environment: ChatEnvironment) -> Callable[[Any, Any], Any]:
    def power(left: Any, right: Any) -> Any:
        if isinstance(left, int) and isinstance(right, int):
            _check_bits(left.bit_length() * abs(right))
        return left**right

    return power


def _modulo(environment: ChatEnvironment) -> Callable[[Any, Any], Any]:
    def modulo(left: Any, right: Any) -> Any:
        if isinstance(left, str):
            return percent(environment, left, right)
        return left % right

    return modulo


def _check_bits(bits: int) -> None:
    if bits > MAX_BITS:
        raise TemplateLimit(f"a number of more than {MAX_BITS} bits")


def percent(environment: ChatEnvironment, template: str, values: Any) -> str:
    meter = environment.meter
    fields = 0
    for match in _PERCENT.finditer(template):
        fields += 1
        for width in match.groups():
            if width is not None and (width == "*" or len(width) > 5 or int(width) > MAX_WIDTH):
                raise TemplateLimit(f"a field of more than {MAX_WIDTH} characters")
    # every field can show the largest value once more
    parts = values.values() if isinstance(values, dict) else values if isinstance(values, tuple) else (values,)
    largest = max((meter.weigh(part) for part in parts), default=0)
    meter.check_size(len(template) + fields * max(largest, meter.weigh(values) if fields == 1 else 0, MAX_WIDTH))
    result: str = template % values
    meter.charge(result)
    return result


BINOPS = {"+": _add, "*": _multiply, "%": _modulo, "**": _power}

# ------------------------------------------------------------------ method calls


def check_pad(meter: Meter, text: str, width: Any = 0, *_: Any) -> None:
    if isinstance(width, int):
        meter.check_size(max(len(text), width))


def check_replace(meter: Meter, text: str, old: Any, new: Any, count: Any = -1, **_: Any) -> None:
    if isinstance(old, str) and isinstance(new, str):
        found = text.count(old)
        times = found if not isinstance(count, int) or count < 0 else min(found, count)
        meter.check_size(len(text) + times * max(0, len(new) - len(old)))


def _check_join(meter: Meter, separator: str, values: Any = (), *_: Any) -> None:
    if isinstance(values, list | tuple | dict):
        meter.check_size(meter.weigh(values) + len(separator) * len(values))
    elif isinstance(values, str):
        meter.check_size(len(values) * (1 + len(separator)))
    else:
        raise TemplateLimit("joining something whose length is not known; put `| list` before it")


def _check_split(meter: Meter, text: str, sep: Any = None, maxsplit: Any = -1) -> None:
    pieces = text.count(sep) + 1 if isinstance(sep, str) and sep else len(text) // 2 + 1
    if isinstance(maxsplit, int) and 0 <= maxsplit < pieces:
        pieces = maxsplit + 1
    meter.check_items(pieces)
    meter.spend(64 * pieces)


def check_lines(meter: Meter, text: str, *_: Any, **__: Any) -> None:
    lines = sum(text.count(end) for end in LINE_ENDS)
    meter.check_items(lines)
    meter.spend(64 * lines)


def _check_tabs(meter: Meter, text: str, tabsize: Any = 8) -> None:
    if isinstance(tabsize, int):
        meter.check_size(len(text) + text.count("\t") * max(0, tabsize))


_METHOD_CHECKS: dict[str, Callable[..., None]] = {
    "center": check_pad,
    "ljust": check_pad,
    "rjust": check_pad,
    "zfill": check_pad,
    "replace": check_replace,
    "join": _check_join,
    "split": _check_split,
    "rsplit": _check_split,
    "splitlines": check_lines,
    "expandtabs": _check_tabs,
}


def check_call(meter: Meter, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Refuses a call whose result would be too large, before it is made."""
    owner = getattr(function, "__self__", None)
    if isinstance(owner, str):
        check = _METHOD_CHECKS.get(getattr(function, "__name__", ""))
        if check is not None:
            try:
                check(meter, owner, *args, **kwargs)
            except TypeError:
                return  # wrong arguments: the call itself will say so
    elif function is dict or isinstance(owner, list | tuple | dict):
        for value in (*args, *kwargs.values()):
            meter.weigh(value)
