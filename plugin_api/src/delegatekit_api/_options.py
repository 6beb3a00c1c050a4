"""Backend options as frozen dataclasses: validation, `--option`, compile specs and docs come from the fields."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, TypeVar, Union, get_args, get_origin

from ._errors import OptionError

#: The command line's spellings of a bool.
_TRUTH: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}

_Options = TypeVar("_Options", bound="BackendOptions")


def option(
    default: Any,
    *,
    help: str,
    choices: tuple[Any, ...] | None = None,
    check: Callable[[Any], str | None] | None = None,
) -> Any:
    """Declare a field of a `BackendOptions` subclass.

    `help` is the field's docstring in the CLI and the docs; `choices` are the values allowed; `check` returns the
    reason why a value is refused, or None.
    """
    metadata = {"help": help, "choices": choices, "check": check}
    if isinstance(default, list | dict | set):
        raise TypeError("option defaults must be immutable: use a tuple or frozenset")
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True)
class OptionInfo:
    """One row of the documentation of a backend's options."""

    name: str
    type: str
    default: Any
    help: str
    choices: tuple[Any, ...] | None


@dataclass(frozen=True)
class BackendOptions:
    """Base of a backend's options; a backend without options uses it as it is.

    Subclasses are frozen dataclasses whose fields are declared with `option(...)`. Field types may be bool, int,
    float, str, tuple[T, ...] and frozenset[T] of these, and `T | None`.
    """

    @classmethod
    def describe(cls) -> tuple[OptionInfo, ...]:
        """The options in declaration order."""
        hints = typing.get_type_hints(cls)
        return tuple(
            OptionInfo(
                field.name,
                _type_name(hints[field.name]),
                field.default,
                field.metadata.get("help", ""),
                field.metadata.get("choices"),
            )
            for field in dataclasses.fields(cls)
        )

    @classmethod
    def from_mapping(cls: type[_Options], values: Mapping[str, Any], *, backend: str = "") -> _Options:
        """Build options from Python values or from the CLI's strings.

        Strings are converted to the field's type ("true", "3", "a,b"). Raises OptionError for what is no mapping, an
        unknown name, a wrong type, or a value that the field refuses; the message lists what is allowed.
        """
        hints = typing.get_type_hints(cls)
        fields = {field.name: field for field in dataclasses.fields(cls)}
        where = f"option of backend {backend}" if backend else "backend option"
        if not isinstance(values, Mapping):
            known = ", ".join(fields) or "none"
            raise OptionError(f"{values!r} is not {{option: value}}", where=where, hint=f"known options: {known}")
        converted: dict[str, Any] = {}
        for name, value in values.items():
            field = fields.get(name)
            if field is None:
                close = get_close_matches(str(name), fields, 1)
                known = f"known options: {', '.join(fields) or 'none'}"
                meant = f"did you mean {close[0]!r}? " if close else ""
                raise OptionError(f"unknown option {name!r}", where=where, hint=meant + known)
            try:
                converted[name] = _convert(value, hints[name])
            except (TypeError, ValueError, OverflowError) as error:
                choices = ", ".join(map(str, field.metadata.get("choices") or ()))
                hint = f"{field.metadata.get('help', '')} {choices and f'One of: {choices}'}".strip() or None
                what = f"{name} = {value!r} is not {_words(hints[name])}"
                raise OptionError(what, where=where, hint=hint) from error
            _validate(field, converted[name], where)
        return cls(**converted)

    def to_mapping(self) -> dict[str, Any]:
        """The options that differ from their defaults, as JSON-ready values."""
        return {
            field.name: _plain(getattr(self, field.name))
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default
        }

    def to_json(self) -> bytes:
        """Canonical JSON of `to_mapping`, for compile specs and cache keys."""
        return json.dumps(self.to_mapping(), sort_keys=True, separators=(",", ":")).encode()


def _validate(field: dataclasses.Field[Any], value: Any, where: str) -> None:
    choices, check = field.metadata.get("choices"), field.metadata.get("check")
    items = value if isinstance(value, tuple | frozenset) else (value,)
    if choices is not None:
        for item in items:
            if item not in choices:
                allowed = ", ".join(map(str, choices))
                raise OptionError(f"{field.name} = {item!r} is not one of the choices", where=where, hint=allowed)
    reason = check(value) if check is not None else None
    if reason:
        raise OptionError(f"{field.name} = {value!r}: {reason}", where=where, hint=field.metadata.get("help"))


def _convert(value: Any, hint: Any) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        inner = [argument for argument in arguments if argument is not type(None)]
        if value is None or (isinstance(value, str) and value.lower() == "none"):
            return None
        return _convert(value, inner[0])
    if origin in (tuple, frozenset):
        if isinstance(value, str):
            value = [item.strip() for item in value.split(",") if item.strip()]
        if not isinstance(value, list | tuple | set | frozenset):
            raise TypeError("not a sequence")
        return origin(_convert(item, arguments[0]) for item in value)
    if hint is bool:
        if isinstance(value, str):
            if value.lower() not in _TRUTH:
                raise ValueError("not a boolean")
            return _TRUTH[value.lower()]
        if not isinstance(value, bool):
            raise TypeError("not a bool")
        return value
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise TypeError("wrong type")
    if hint is str:
        if not isinstance(value, str):
            raise TypeError("not a string")
        return value
    if hint is int and isinstance(value, float):
        raise TypeError("not an integer")
    return hint(value)


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, frozenset) else list(value) if isinstance(value, tuple) else value


_WORDS: Final[Mapping[Any, str]] = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


def _words(hint: Any) -> str:
    """What a value of a type is, for errors: "a list, each item a text"."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(_words(argument) for argument in arguments if argument is not type(None)) + ", or none"
    if origin in (tuple, frozenset):
        return f"a list, each item {_words(arguments[0])}"
    return _WORDS.get(hint) or _type_name(hint)


def _type_name(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and get_origin(hint) is None else str(hint)
