"""Jinja's filters and tests with the guards of `jinja_guards` in front of them, and `tojson` as transformers has it."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from jinja2 import filters, pass_environment, pass_eval_context
from jinja2.exceptions import FilterArgumentError
from jinja2.nodes import EvalContext

from engine.chat.jinja_guards import (
    BINOPS,
    LINE_ENDS,
    MAX_PATTERN_INPUT,
    MAX_RANGE,
    Meter,
    TemplateLimit,
    check_lines,
    check_pad,
    check_replace,
    percent,
)

if TYPE_CHECKING:
    from engine.chat.jinja_env import ChatEnvironment

#: filters that look only at the outside of a value, or go through it lazily
_SHALLOW = frozenset(
    [
        "length",
        "count",
        "first",
        "last",
        "default",
        "d",
        "list",
        "map",
        "select",
        "reject",
        "selectattr",
        "rejectattr",
        "attr",
        "items",
        "reverse",
        "random",
        "abs",
        "int",
        "float",
        "round",
        "filesizeformat",
    ]
)
#: filters that make a list of a text's characters
_LISTING = frozenset(["list", "batch", "slice", "sort", "unique", "groupby", "join", "random", "sum", "min", "max"])
#: filters built on patterns: keep their input short, a pattern cannot be interrupted
_PATTERNS = frozenset(["striptags", "wordwrap", "title", "wordcount", "truncate", "xmlattr"])
_COMPARING = frozenset(
    ["==", "eq", "equalto", "!=", "ne", ">", "gt", "greaterthan", "ge", ">=", "<", "lt", "lessthan", "le", "<=", "in"]
)


def install(environment: ChatEnvironment) -> None:
    """Puts guarded versions of Jinja's filters and tests into an environment."""
    del environment.filters["urlize"]
    own: dict[str, Callable[..., Any]] = {
        "center": _center,
        "join": _join,
        "replace": _replace,
        "indent": _indent,
        "format": _format,
        "batch": _batch,
        "slice": _slice,
        "round": _round,
        "sum": _sum,
        "string": _string,
        "tojson": _tojson,
        "wordwrap": _wordwrap,
    }
    for name, original in list(environment.filters.items()):
        environment.filters[name] = _guarded(environment, name, own.get(name, original))
    for name in _COMPARING:
        environment.tests[name] = _weighing(environment, environment.tests[name])


def _guarded(environment: ChatEnvironment, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(*args: Any, **kwargs: Any) -> Any:
        meter = environment.meter
        for value in (*args, *kwargs.values()):
            if isinstance(value, str):
                if name in _LISTING:
                    meter.check_items(len(value))
                elif name in _PATTERNS and len(value) > MAX_PATTERN_INPUT:
                    raise TemplateLimit(f"the filter {name} on a text of more than 65,536 characters")
            elif name not in _SHALLOW:
                meter.weigh(value)
        result = function(*args, **kwargs)
        meter.charge(result)
        return result

    # carries Jinja's mark of what is passed as first argument; builtins have no __dict__ worth copying
    return functools.update_wrapper(guarded, function)


def _weighing(environment: ChatEnvironment, test: Any) -> Callable[..., Any]:
    def weighing(left: Any, right: Any) -> Any:
        return test(environment.weighed(left), environment.weighed(right))

    return weighing


def _meter(environment: Any) -> Meter:
    meter: Meter = environment.meter
    return meter


@pass_environment
def _center(environment: Any, value: str, width: int = 80) -> str:
    check_pad(_meter(environment), str(value), width)
    return filters.do_center(value, width)


@pass_eval_context
def _join(eval_ctx: EvalContext, value: Iterable[Any], d: str = "", attribute: str | int | None = None) -> str:
    meter = _meter(eval_ctx.environment)
    items: list[Any] = []
    size = 0
    for item in value:
        size += (meter.weigh(item) if isinstance(item, str | list | tuple | dict) else 32) + len(str(d))
        meter.check_size(size)
        items.append(item)
        meter.check_items(len(items))
    return filters.sync_do_join(eval_ctx, items, d, attribute)


@pass_eval_context
def _replace(eval_ctx: EvalContext, s: str, old: str, new: str, count: int | None = None) -> str:
    check_replace(_meter(eval_ctx.environment), str(s), str(old), str(new), -1 if count is None else count)
    return filters.do_replace(eval_ctx, s, old, new, count)


@pass_environment
def _indent(environment: Any, s: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    meter = _meter(environment)
    lines = sum(str(s).count(end) for end in LINE_ENDS) + 1
    check_lines(meter, str(s))
    meter.check_size(len(str(s)) + lines * (len(width) if isinstance(width, str) else max(0, int(width))))
    return filters.do_indent(s, width, first, blank)


@pass_environment
def _format(environment: Any, value: str, *args: Any, **kwargs: Any) -> str:
    if args and kwargs:
        raise FilterArgumentError("can't handle positional and keyword arguments at the same time")
    return percent(environment, str(value), kwargs or args)


def _check_count(count: Any) -> None:
    if isinstance(count, int) and count > MAX_RANGE:
        raise TemplateLimit(f"more than {MAX_RANGE:,} parts")


def _batch(value: Any, linecount: int, fill_with: Any = None) -> Any:
    _check_count(linecount)
    return filters.do_batch(value, linecount, fill_with)


def _slice(value: Any, slices: int, fill_with: Any = None) -> Any:
    _check_count(slices)
    return filters.sync_do_slice(value, slices, fill_with)


def _round(value: float, precision: int = 0, method: Any = "common") -> float:
    if isinstance(precision, int) and abs(precision) > 100:
        raise TemplateLimit("rounding to more than 100 digits")
    return filters.do_round(value, precision, method)


@pass_environment
def _sum(environment: Any, iterable: Iterable[Any], attribute: str | int | None = None, start: Any = 0) -> Any:
    get = filters.make_attrgetter(environment, attribute) if attribute is not None else None
    add = BINOPS["+"](environment)
    total = start
    for item in iterable:
        total = add(total, get(item) if get else item)
    return total


@pass_environment
def _string(environment: Any, value: Any) -> str:
    return value if isinstance(value, str) else _meter(environment).text(value)


@pass_environment
def _wordwrap(environment: Any, s: str, width: int = 79, *args: Any, **kwargs: Any) -> str:
    wrapstring = kwargs.get("wrapstring", args[1] if len(args) > 1 else None)
    if wrapstring is not None and len(str(wrapstring)) > 64:
        raise TemplateLimit("a line end of more than 64 characters")
    return filters.do_wordwrap(environment, s, width, *args, **kwargs)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """As transformers has it: plain JSON, no HTML escaping, keys in their own order."""
    if indent is not None and (len(indent) if isinstance(indent, str) else int(indent)) > 64:
        raise TemplateLimit("an indentation of more than 64 characters")
    if separators is not None and any(len(str(each)) > 64 for each in separators):
        raise TemplateLimit("a separator of more than 64 characters")
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
