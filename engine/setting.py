"""One declared setting: its type, limits and help, and the checks of values that a file or a caller gives."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import msgspec

from engine import engine_options
from engine import sampling as sampling_rules
from engine.engine_options import EngineOptions
from engine.errors import InvalidRequest
from engine.sampling import SamplingParams

if TYPE_CHECKING:
    from engine.settings import Settings

MAX_TEXT = 1 << 20
T = TypeVar("T")


class Setting(Generic[T]):
    """One declared setting, a descriptor of `Settings`.

    Attributes:
        name: attribute and JSON key.
        default: value where the file says nothing.
        doc: one or two sentences for tooltips and help.
        choices: the allowed values, empty if they cannot be listed.
        low, high: limits of a number, both included.
    """

    def __init__(
        self,
        default: T,
        check: Callable[[Any], T],
        doc: str,
        *,
        choices: tuple[T, ...] = (),
        low: float | None = None,
        high: float | None = None,
        dump: Callable[[T], Any] = lambda value: value,
    ) -> None:
        self.name = ""
        self.default = default
        self.doc = doc
        self.choices = choices
        self.low = low
        self.high = high
        self.dump = dump
        self._check = check

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Setting[T]: ...
    @overload
    def __get__(self, instance: Settings, owner: type) -> T: ...
    def __get__(self, instance: Settings | None, owner: type) -> Setting[T] | T:
        if instance is None:
            return self
        value: T = instance._values[self.name]
        # a list handed out must not be a back door past check, save and subscribers
        return copy.copy(value) if isinstance(value, list | dict) else value

    def __set__(self, instance: Settings, value: T) -> None:
        instance._set(self.name, self.check(value))

    def check(self, value: Any) -> T:
        """The value in its own type.

        Raises:
            InvalidRequest: wrong type or not allowed; `details["field"]` names the setting.
        """
        try:
            checked = self._check(value)
            if self.choices and checked not in self.choices:
                raise ValueError(f"must be one of {', '.join(str(c) for c in self.choices)}")
            if isinstance(checked, int | float) and not isinstance(checked, bool):
                low = -math.inf if self.low is None else self.low
                high = math.inf if self.high is None else self.high
                if not low <= checked <= high:
                    raise ValueError(f"must be between {low:g} and {high:g}, not {checked:g}")
        except (ValueError, TypeError) as error:
            raise InvalidRequest(f"The setting {self.name} {error}.", details={"field": self.name}) from error
        except InvalidRequest as error:
            details = {**error.details, "field": self.name, "option": error.details.get("field", "")}
            words = f"The setting {self.name}: {error.message}."
            raise InvalidRequest(words, hint=error.hint, details=details) from error
        return checked


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"must be a text, not {_short(value)}")
    if len(value) > MAX_TEXT:
        raise ValueError(f"may have at most {MAX_TEXT} characters")
    return value


def flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"must be true or false, not {_short(value)}")
    return value


def number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TypeError(f"must be a number, not {_short(value)}")
    return float(value)


def whole_or_none(value: Any) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise TypeError(f"must be a whole number or empty, not {_short(value)}")


def texts(value: Any) -> list[str]:
    if not isinstance(value, list | tuple):
        raise TypeError(f"must be a list of texts, not {_short(value)}")
    return [text(item) for item in value]


def sampling(value: Any) -> SamplingParams:
    if isinstance(value, SamplingParams):
        return sampling_rules.validate(value)
    if not isinstance(value, Mapping):
        raise TypeError(f"must be sampling parameters, not {_short(value)}")
    return sampling_rules.from_mapping(dict(value))


def dump_sampling(params: SamplingParams) -> Any:
    # JSON has no infinity; sampling.py reads -1e9 as a ban
    bias = {token: max(number, -1e9) for token, number in params.logit_bias.items()}
    return msgspec.to_builtins(msgspec.structs.replace(params, logit_bias=bias), str_keys=True)


def engine(value: Any) -> EngineOptions:
    if isinstance(value, EngineOptions):
        value = msgspec.to_builtins(value)
    if not isinstance(value, Mapping):
        raise TypeError(f"must be options of a load, not {_short(value)}")
    return engine_options.from_mapping(value)


def engine_by_model(value: Any) -> dict[str, EngineOptions]:
    """Options by the path of a model; a model for which nothing is chosen is left out."""
    if not isinstance(value, Mapping):
        raise TypeError(f"must be options by model, not {_short(value)}")
    checked = {text(path): engine(options) for path, options in value.items()}
    return {path: options for path, options in checked.items() if options != EngineOptions()}


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
