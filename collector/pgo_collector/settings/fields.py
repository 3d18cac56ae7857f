"""Fields of a table of settings: the values that each takes, from the environment or a settings file.

pydantic does this, too. It would take 10 MiB in a server that has been asked no question.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType, UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

# Values of the fields above one in the table, by name.
Above = Mapping[str, Any]
# Returns what a value of the environment or a file stands for. Raises ValueError.
Reader = Callable[[Any], Any]

_TRUE, _FALSE = ("1", "on", "t", "true", "y", "yes"), ("0", "off", "f", "false", "n", "no")


class FieldsInvalid(ValueError):
    """Some values can't be taken; `faults` says why, by the names of their fields."""

    def __init__(self, faults: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name} {fault}" for name, fault in faults.items()))
        self.faults = faults


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """A field of a table: its help, its default or what makes it, and its bounds.

    `type` is its annotation, and `read` turns a value into one of that type.
    """

    description: str
    default: Any = None
    default_factory: Callable[[Above], Any] | None = None
    gt: float | None = None
    ge: float | None = None
    le: float | None = None
    pattern: str = ""
    type: Any = None
    read: Reader = str

    def value(self, given: Mapping[str, Any], name: str, above: Above) -> Any:
        """Return the value of the field with this name, which may be given. Raises ValueError."""
        if name in given:
            value = given[name]
        else:
            value = self.default if self.default_factory is None else self.default_factory(above)
        value = self.read(value)
        if value is None:
            return None
        # Not the other way round: nan is within no bounds.
        if self.gt is not None and not value > self.gt:
            raise ValueError(f"must be greater than {self.gt:.15g}")
        if self.ge is not None and not value >= self.ge:
            raise ValueError(f"must be {self.ge:.15g} or more")
        if self.le is not None and not value <= self.le:
            raise ValueError(f"must be {self.le:.15g} or less")
        if self.pattern and re.fullmatch(self.pattern, value) is None:
            raise ValueError(f"must match {self.pattern}")
        return value


def field(description: str, **others: Any) -> Any:
    """Return a field of a table, for type checkers a value of its type."""
    return Field(description, **others)


class FieldTable:
    """A table with a value for each field, in this order; `given_names` are those that weren't defaults.

    Subclasses have the fields as annotated attributes. All values are checked, defaults too.
    """

    fields: ClassVar[Mapping[str, Field]] = MappingProxyType({})

    def __init_subclass__(cls) -> None:
        own = {name: each for name, each in vars(cls).items() if isinstance(each, Field)}
        hints = get_type_hints(cls, include_extras=True) if own else {}
        typed = {
            name: replace(each, type=hints[name], read=reader_of(hints[name])) for name, each in own.items()
        }
        cls.fields = MappingProxyType({**cls.fields, **typed})

    def __init__(self, **given: Any) -> None:
        """Make the table from values of fields, by their names. Raises FieldsInvalid."""
        faults = {name: "isn't a field" for name in given if name not in self.fields}
        values: dict[str, Any] = {}
        for name, each in self.fields.items():
            if faults and name not in given:  # its default may follow a value that there isn't
                continue
            try:
                values[name] = each.value(given, name, values)
            except ValueError as error:
                faults[name] = str(error)
        if faults:
            raise FieldsInvalid(faults)
        self.given_names = frozenset(given)
        vars(self).update(values)


def reader_of(hint: Any) -> Reader:
    """Return what reads values of a type: text, a number, a path, one of some texts, or None beside these.

    `Annotated[str, check]` is a text that `check` returns as it is taken, or raises ValueError for.
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return partial(_checked, reader_of(arguments[0]), arguments[1])
    if origin in {Union, UnionType}:
        return partial(_optional, reader_of(arguments[0]))
    return partial(_one_of, arguments) if origin is Literal else _READERS[hint]


def _checked(read: Reader, check: Reader, value: object) -> Any:
    return check(read(value))


def _optional(read: Reader, value: object) -> Any:
    return None if value is None else read(value)


def _one_of(texts: Sequence[str], value: object) -> str:
    if value not in texts:
        raise ValueError(f"must be {', '.join(texts[:-1])} or {texts[-1]}")
    return str(value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("must be a text")  # noqa: TRY004 - as all that is wrong with a value
    return value


def _path(value: object) -> Path:
    return value if isinstance(value, Path) else Path(_text(value))


def _truth(value: object) -> bool:
    text = str(value).lower()
    if text not in {*_TRUE, *_FALSE}:
        raise ValueError("must be true or false")
    return text in _TRUE


def _number(value: object) -> float:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        with suppress(ValueError, OverflowError):
            return float(value)
    raise ValueError("must be a number")


def _whole_number(value: object) -> int:
    if isinstance(value, str):
        with suppress(ValueError):
            return int(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        return value
    if not (number := _number(value)).is_integer():
        raise ValueError("must be a whole number")
    return int(number)


_READERS: dict[Any, Reader] = {str: _text, Path: _path, bool: _truth, float: _number, int: _whole_number}
