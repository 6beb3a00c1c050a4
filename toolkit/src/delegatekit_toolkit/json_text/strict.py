"""JSON from outside: parsed with limits, and converted to dataclasses with checked types.

All JSON in files from outside is read here. Every fault is a FormatError with its place.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Annotated, Any, Final, TypeAlias, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from delegatekit_api import FormatError

_T = TypeVar("_T")

#: A number that may be NaN or infinite; `json_text` writes these as strings.
AnyFloat: TypeAlias = Annotated[float, "any"]

#: Limits of a text in bytes, and of its values.
LARGEST: Final = 128 << 20
_MOST: Final = 4_000_000
#: Limit of nesting. Programs of torch.export have some 20 levels, and readers may recurse.
_DEEPEST: Final = 200
#: Limit of a whole number's digits: those of 64 bits have at most 20.
_DIGITS: Final = 20
#: Characters of a value or place that errors show.
_SAID: Final = 80
_INFINITE: Final = ("NaN", "Infinity", "-Infinity")


def parse(data: bytes | memoryview, where: str, *, hint: str | None = None, constants: bool = False) -> Any:
    """The value of a JSON text in UTF-8.

    Args:
        data: the text.
        where: the file or member, for errors.
        hint: what to do, for errors.
        constants: accept NaN, Infinity and -Infinity, which are not JSON, as Python and PyTorch write them.

    Raises FormatError for invalid JSON, for duplicate keys, for numbers that exceed 64 bits, and for
    texts that are too large or too deep for any DelegateKit file.
    """
    text = bytes(data)
    try:
        _check_size(text)
        value = json.loads(
            text.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_int=_whole,
            parse_float=_number,
            parse_constant=_constant if constants else _no_constant,
        )
        _check_depth(value)
    except RecursionError:
        raise FormatError(f"is not JSON: {_TOO_DEEP}", where=where, hint=hint) from None
    except ValueError as error:
        raise FormatError(f"is not JSON: {error}", where=where, hint=hint) from None
    return value


def parse_object(
    data: bytes | memoryview, where: str, *, hint: str | None = None, constants: bool = False
) -> dict[str, Any]:
    """The object of a JSON text. Raises FormatError, also for anything but an object."""
    value = parse(data, where, hint=hint, constants=constants)
    if not isinstance(value, dict):
        raise FormatError(f"holds {said(value)}, not an object", where=where, hint=hint)
    return value


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """The objects in a parsed value, at any depth, the outer ones first.

    >>> list(objects([{"a": [{"b": 1}]}]))
    [{'a': [{'b': 1}]}, {'b': 1}]
    """
    if isinstance(value, dict):
        yield value
    for part in _parts(value):
        if isinstance(part, dict | list):
            yield from objects(part)


def read_object(data: bytes) -> dict[str, Any]:
    """The object in a part of a file as JSON; an empty one if the data is damaged or is something else.

    >>> read_object(b'{"producer": "x"}'), read_object(b"[1]"), read_object(b"{")
    ({'producer': 'x'}, {}, {})
    """
    try:
        return parse_object(data, "")
    except FormatError:
        return {}


def decoded(kind: type[_T], value: Any, where: str, *, what: str = "is damaged", hint: str | None = None) -> _T:
    """A parsed value converted to `kind`: a dataclass, Mapping[str, float], tuple[int, ...], an Enum, `str | None`, ...

    Fields of dataclasses are keys; those with a default may be missing, and others are not allowed. Numbers are
    finite, except those of type AnyFloat. Raises FormatError, which begins with `what`, with the place of a value of
    another type.

    >>> decoded(tuple[int, ...], [1, 2], "x.json")
    (1, 2)
    >>> decoded(dict[str, int], {"a": True}, "x.json")
    Traceback (most recent call last):
    delegatekit_api._errors.FormatError: x.json: is damaged: a is true, not a whole number
    """
    try:
        return cast(_T, _decoded(kind, value, ()))
    except _MisfitError as misfit:
        place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in misfit.path).removeprefix(".")
        said = f"{cut_off(place)} {misfit.what}" if place else misfit.what
        raise FormatError(f"{what}: {said}", where=where, hint=hint) from None


class _MisfitError(Exception):
    """A value of the wrong type, and the keys and positions that lead to it."""

    def __init__(self, what: str, path: tuple[str | int, ...]) -> None:
        super().__init__(what)
        self.what = what
        self.path = path


_Path: TypeAlias = tuple[str | int, ...]
_TOO_DEEP: Final = f"it has more than {_DEEPEST} objects and lists within each other"


# -- parsing ---------------------------------------------------------------------------------------------------------


def _check_size(text: bytes) -> None:
    if len(text) > LARGEST:
        raise ValueError(f"{len(text)} bytes are too many: {LARGEST} are the most that is read")
    # Each value but the first follows a comma or opens something: that bounds their number.
    values = 1 + sum(text.count(mark) for mark in (b",", b"[", b"{"))
    if values > _MOST:
        raise ValueError(f"it may have {values} values: {_MOST} are the most that is read")


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(_DEEPEST + 1):
        level = [item for whole in level for item in _parts(whole) if isinstance(item, dict | list)]
        if not level:
            return
    raise ValueError(_TOO_DEEP)


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {_short(twice)} appears twice")
    return found


def _whole(text: str) -> int:
    if len(text.lstrip("-")) > _DIGITS:
        raise ValueError(f"the number {text[:_DIGITS]}... has {len(text)} digits")
    return int(text)


def _number(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {_short(text)} is too large")
    return value


def _constant(text: str) -> float:
    return float(text)


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


# -- types -----------------------------------------------------------------------------------------------------------


def _decoded(kind: Any, value: Any, path: _Path) -> Any:
    origin = get_origin(kind)
    if kind is Any:
        return value
    if kind is float or origin is Annotated:
        return _float(value, path, any_value=origin is Annotated)
    if origin in (Union, types.UnionType):
        return _one_of(get_args(kind), value, path)
    if origin is not None:
        return _container(origin, get_args(kind), value, path)
    if dataclasses.is_dataclass(kind):
        return _instance(kind, value, path)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _member(kind, value, path)
    # True is an int in Python
    fits = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    if not fits:
        raise _MisfitError(f"is {said(value)}, not {_WORDS[kind]}", path)
    return value


_WORDS: Final = {int: "a whole number", str: "a text", bool: "true or false", type(None): "null"}


def _float(value: Any, path: _Path, *, any_value: bool) -> float:
    if any_value and value in _INFINITE:
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not (any_value or math.isfinite(value)):
        raise _MisfitError(f"is {said(value)}, not a number", path)
    return float(value)


def _one_of(kinds: tuple[Any, ...], value: Any, path: _Path) -> Any:
    """The value as the first of the types that it fits."""
    if value is None and type(None) in kinds:
        return None
    misfits = []
    for kind in kinds:
        if kind is not type(None):
            try:
                return _decoded(kind, value, path)
            except _MisfitError as misfit:
                misfits.append(misfit)
    # The fault of the alternative that fits furthest is the most relevant.
    raise max(misfits, key=lambda misfit: len(misfit.path))


def _container(origin: Any, kinds: tuple[Any, ...], value: Any, path: _Path) -> Any:
    if issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise _MisfitError(f"is {said(value)}, not an object", path)
        return {
            _decoded(kinds[0], key, (*path, str(key))): _decoded(kinds[1], item, (*path, str(key)))
            for key, item in value.items()
        }
    if not isinstance(value, list | tuple):
        raise _MisfitError(f"is {said(value)}, not a list", path)
    if origin is tuple and kinds[-1] is not Ellipsis:
        if len(value) != len(kinds):
            raise _MisfitError(f"has {len(value)} items, not {len(kinds)}", path)
        return tuple(
            _decoded(kind, item, (*path, place)) for place, (kind, item) in enumerate(zip(kinds, value, strict=True))
        )
    items = (_decoded(kinds[0], item, (*path, place)) for place, item in enumerate(value))
    return tuple(items) if issubclass(tuple, origin) else list(items)


def _instance(kind: Any, value: Any, path: _Path) -> Any:
    if not isinstance(value, Mapping):
        raise _MisfitError(f"is {said(value)}, not an object", path)
    hints = _fields(kind)
    unknown = next((key for key in value if key not in hints), None)
    if unknown is not None:
        raise _MisfitError(f"has the key {_short(str(unknown))}, which is not known", path)
    missing = next((name for name, (_, is_needed) in hints.items() if is_needed and name not in value), None)
    if missing is not None:
        raise _MisfitError(f"has no {missing}", path)
    return kind(**{key: _decoded(hints[key][0], item, (*path, key)) for key, item in value.items()})


@cache
def _fields(kind: Any) -> Mapping[str, tuple[Any, bool]]:
    """The type of each field of a dataclass, and True if it is required."""
    hints = get_type_hints(kind, include_extras=True)
    absent = dataclasses.MISSING
    return {
        field.name: (hints[field.name], field.default is absent and field.default_factory is absent)
        for field in dataclasses.fields(kind)
        if field.init
    }


def _member(kind: type[Enum], value: Any, path: _Path) -> Enum:
    try:
        return kind(value)
    except ValueError:
        raise _MisfitError(f"is {said(value)}, which is no {kind.__name__.lower()}", path) from None


def said(value: Any) -> str:
    """A short description of a parsed value, for errors: its text, truncated if long, or "a list"."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "a list"
    return _short(value)


def _short(value: Any) -> str:
    return cut_off(repr(value))


def cut_off(text: str) -> str:
    """A text for errors, truncated if it is long."""
    return text if len(text) <= _SAID else f"{text[: _SAID - 3]}..."
