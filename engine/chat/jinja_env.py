"""The sandbox in which chat templates run.

Conventions are those of transformers (`utils/chat_template_utils.py`), so that templates written for it render the
same: blocks trimmed, loop controls, a `generation` tag, `raise_exception`, `strftime_now`, `tojson` without HTML
escaping. A template comes with a model file and is hostile until shown otherwise. Beyond Jinja's own sandbox: only
known methods of known types can be reached, and everything that could make a large value out of a small one is
counted by a `Meter` before it happens. Time is limited from outside (`time_limit`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from jinja2 import nodes, pass_context
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.runtime import BlockReference, Context, LoopContext, Macro, TemplateReference, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter
from jinja2.utils import Cycler, Joiner, Namespace

from engine.chat import jinja_filters
from engine.chat import jinja_guards as guards
from engine.chat.jinja_guards import Meter, TemplateLimit

_STR_METHODS = frozenset(
    [
        "capitalize",
        "casefold",
        "center",
        "count",
        "endswith",
        "expandtabs",
        "find",
        "format",
        "format_map",
        "index",
        "isalnum",
        "isalpha",
        "isascii",
        "isdecimal",
        "isdigit",
        "isidentifier",
        "islower",
        "isnumeric",
        "isprintable",
        "isspace",
        "istitle",
        "isupper",
        "join",
        "ljust",
        "lower",
        "lstrip",
        "partition",
        "removeprefix",
        "removesuffix",
        "replace",
        "rfind",
        "rindex",
        "rjust",
        "rpartition",
        "rsplit",
        "rstrip",
        "split",
        "splitlines",
        "startswith",
        "strip",
        "swapcase",
        "title",
        "upper",
        "zfill",
    ]
)
_METHODS: tuple[tuple[type, frozenset[str]], ...] = (
    (str, _STR_METHODS),
    (dict, frozenset({"get", "items", "keys", "values", "copy"})),
    (list, frozenset({"count", "index", "copy"})),
    (tuple, frozenset({"count", "index"})),
    (float, frozenset({"is_integer"})),
)
_OPEN_TYPES = (Namespace, LoopContext, Macro, TemplateReference, BlockReference, Cycler, Joiner, Undefined)


class RefusedByTemplate(TemplateError):
    """The template called `raise_exception`; the message holds its own words."""


class GenerationTag(Extension):
    """`{% generation %}...{% endgeneration %}` marks what the assistant wrote, for training; here it does nothing."""

    tags = {"generation"}  # noqa: RUF012 (the base class declares it so)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _Generator(CodeGenerator):
    """Sends string joins, comparisons and every piece of output through the environment.

    Nothing is computed while compiling: a constant like `'a' * 10**9` must meet the same guards as a variable.
    """

    def _output_child_to_const(self, node: nodes.Expr, frame: Frame, finalize: Any) -> str:
        raise nodes.Impossible

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        self.write("environment.join_texts((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:  # noqa: N802
        self.write("(")
        self._visit_weighed(node.expr, frame)
        for operand in node.ops:
            self.visit(operand, frame)
        self.write(")")

    def visit_Operand(self, node: nodes.Operand, frame: Frame) -> None:  # noqa: N802
        self.write(f" {_COMPARISONS[node.op]} ")
        self._visit_weighed(node.expr, frame)

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:  # noqa: N802
        self.write("{")
        for pair in node.items:
            self._visit_weighed(pair.key, frame)
            self.write(": ")
            self.visit(pair.value, frame)
            self.write(", ")
        self.write("}")

    def _visit_weighed(self, node: nodes.Expr, frame: Frame) -> None:
        self.write("environment.weighed(")
        self.visit(node, frame)
        self.write(")")


_COMPARISONS = {
    "eq": "==",
    "ne": "!=",
    "gt": ">",
    "gteq": ">=",
    "lt": "<",
    "lteq": "<=",
    "in": "in",
    "notin": "not in",
}


class _Formatter(SandboxedFormatter):
    """`str.format` with the sandbox's attribute rules, limited field widths and limited total size."""

    def __init__(self, environment: ChatEnvironment) -> None:
        super().__init__(environment)
        self._meter = environment.meter
        self._size = 0

    def format_field(self, value: Any, format_spec: str) -> str:
        self._meter.check_width(format_spec)
        self._size += self._meter.weigh(value) + len(format_spec)
        self._meter.check_size(self._size)
        text: str = super().format_field(value, format_spec)
        return text


@pass_context
def _write(context: Context, value: Any) -> str:
    """Turns every piece of output into text and counts it, template text included."""
    environment = context.environment
    assert isinstance(environment, ChatEnvironment)
    text = value if type(value) is str else environment.meter.text(value)
    environment.meter.wrote(text)
    return text


class ChatEnvironment(ImmutableSandboxedEnvironment):
    """One may be used by several threads; each render sets its own `meter` on its thread."""

    code_generator_class = _Generator
    intercepted_binops = frozenset({"+", "*", "%", "**"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[GenerationTag, LoopControlExtension],
            finalize=_write,
            optimized=False,
            cache_size=0,
        )
        self._local = threading.local()
        del self.globals["lipsum"]
        self.globals["range"] = _range
        self.globals["raise_exception"] = _raise_exception
        jinja_filters.install(self)
        for name in ("+", "*", "%", "**"):
            self.binop_table[name] = guards.BINOPS[name](self)

    @property
    def meter(self) -> Meter:
        """The meter of the render that runs on this thread; a small default one outside of any."""
        meter = getattr(self._local, "meter", None)
        if not isinstance(meter, Meter):
            meter = self._local.meter = Meter(0, 0)
        return meter

    @meter.setter
    def meter(self, meter: Meter) -> None:
        self._local.meter = meter

    # -------------------------------------------------- called by compiled templates

    def weighed(self, value: Any) -> Any:
        """The value, if comparing it cannot take long (nested lists can be exponentially large)."""
        if isinstance(value, list | tuple | dict):
            self.meter.weigh(value)
        return value

    def join_texts(self, parts: tuple[Any, ...]) -> str:
        texts = [part if type(part) is str else self.meter.text(part) for part in parts]
        self.meter.check_size(sum(map(len, texts)))
        joined = "".join(texts)
        self.meter.charge(joined)
        return joined

    # -------------------------------------------------- the sandbox's questions

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if not super().is_safe_attribute(obj, attr, value):
            return False
        for kind, methods in _METHODS:
            if isinstance(obj, kind):
                return attr in methods
        return isinstance(obj, _OPEN_TYPES)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        if super().wrap_str_format(value) is None:
            return None
        template = str(value.__self__)
        by_map = value.__name__ == "format_map"

        def formatted(*args: Any, **kwargs: Any) -> str:
            if by_map:
                if kwargs or len(args) != 1 or not isinstance(args[0], Mapping):
                    raise TypeError("format_map() takes exactly one mapping")
                return _Formatter(self).vformat(template, (), args[0])
            return _Formatter(self).vformat(template, args, kwargs)

        return formatted

    def getitem(self, obj: Any, argument: Any) -> Any:
        return super().getitem(obj, self.weighed(argument))

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        meter = __self.meter
        guards.check_call(meter, __obj, args, kwargs)
        result = super().call(__context, __obj, *args, **kwargs)
        meter.charge(result)
        return result


def _range(*args: int) -> range:
    steps = range(*args)
    if len(steps) > guards.MAX_RANGE:
        raise TemplateLimit(f"a range of more than {guards.MAX_RANGE:,} steps")
    return steps


def _raise_exception(message: object = "") -> None:
    raise RefusedByTemplate(str(message))


def strftime_now(now: datetime) -> Callable[[str], str]:
    """The template function of that name, for a given clock."""

    def strftime(format: str) -> str:
        if len(format) > 256:
            raise TemplateLimit("a date format of more than 256 characters")
        return now.strftime(format)

    return strftime


__all__ = ["ChatEnvironment", "RefusedByTemplate", "SecurityError", "TemplateLimit", "strftime_now"]
