"""Checks a plugin's answers against the declared types of the API's dataclasses, field by field.

The types determine all checks, so that a new field needs nothing here. Strings must be encodable (they go into files)
and floats finite (they go into JSON).
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from delegatekit_api import DelegateRuntime, PluginError
from delegatekit_api.blobs import BlobOperator
from delegatekit_api.profiling import OperatorTime, ProfilingRuntime

from .blame import blaming, shown


def check_answer(value: Any, kind: Any, what: str, where: str | None = None) -> None:
    """Raise PluginError, naming the field, for an answer that is not of a type: "targets[0].options is 7, not ..."."""
    with blaming(lambda fault: PluginError(f"{what} cannot be read: {fault}", where=where)):
        found = wrong(value, kind, what)
    if found is not None:
        raise PluginError(found, where=where)


def operator_times(
    runtime: DelegateRuntime, handle: Any, inputs: Sequence[Any], outputs: Sequence[Any], where: str | None = None
) -> Sequence[OperatorTime]:
    """Run once; returns the operators' times, none if the runtime does not report them.

    Raises what the runtime raises, and PluginError for an answer of another form.
    """
    if not isinstance(runtime, ProfilingRuntime):
        runtime.execute(handle, inputs, outputs)
        return ()
    found = runtime.profile(handle, inputs, outputs)
    check_answer(found, Sequence[OperatorTime], "what profile returned", where)
    return found


def check_flow(operators: Sequence[BlobOperator], what: str, where: str | None = None) -> None:
    """Raise PluginError unless each value is made once, and read only after that."""
    makers: dict[str, int] = {}
    for number, operator in enumerate(operators):
        for value in operator.makes:
            if makers.setdefault(value, number) != number or operator.makes.count(value) > 1:
                raise PluginError(f"{what}[{number}] makes {shown(value)}, which is made twice", where=where)
    for number, operator in enumerate(operators):
        for value in operator.reads:
            if makers.get(value, -1) >= number:
                raise PluginError(f"{what}[{number}] reads {shown(value)}, which is made later", where=where)


def wrong(value: Any, kind: Any, what: str) -> str | None:
    """The part of a value that is not of the declared type; None if all is. Raises whatever the value's parts raise."""
    if kind is Any:
        return None
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _wrong_option(value, arguments, what)
    if origin is tuple and arguments[1:] == (...,):
        return _wrong_items(value, (tuple, list), arguments[0], what)
    if origin in (Sequence, list):
        return _wrong_items(value, (tuple, list), arguments[0], what)
    if origin is Collection:
        return _wrong_items(value if not isinstance(value, str | bytes) else None, (Collection,), arguments[0], what)
    if origin is Mapping:
        return _wrong_mapping(value, arguments, what)
    if origin is type:
        fits = isinstance(value, type) and issubclass(value, arguments[0])
        return None if fits else _not(value, f"a subclass of {arguments[0].__name__}", what)
    if origin is Callable:
        return None if callable(value) else _not(value, "a function", what)
    return _wrong_class(value, type(None) if kind is None else kind, what)


def _wrong_class(value: Any, kind: Any, what: str) -> str | None:
    number = kind in (int, float) and not isinstance(value, bool) and isinstance(value, int)
    if not number and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
        return _not(value, named(kind), what)
    if kind is str:
        try:
            value.encode()
        except UnicodeEncodeError:
            return f"{what} is {shown(value)}, which has no UTF-8 encoding"
    if kind is float and not math.isfinite(value):
        return f"{what} is {value}, not a finite number"
    if is_dataclass(kind):
        of_class: Any = type(value)
        hints = _hints(of_class)
        for field in fields(value):
            found = wrong(getattr(value, field.name), hints[field.name], f"{what}.{field.name}")
            if found is not None:
                return found
    return None


def _wrong_option(value: Any, options: Sequence[Any], what: str) -> str | None:
    """The fault of an answer of one of several types: that of the closest alternative, if there is one."""
    # A message about a value of another type shows the value, which for a large weight takes longer than all else.
    found = [wrong(value, option, what) for option in options if not _is_of_another_class(value, option)]
    if None in found:
        return None
    inside = [fault for fault in found if fault is not None and not fault.startswith(f"{what} is ")]
    return inside[0] if inside else _not(value, " or ".join(map(named, options)), what)


def _is_of_another_class(value: Any, kind: Any) -> bool:
    """True if a type is a class, and the value is not an instance."""
    if get_origin(kind) is not None or not isinstance(kind, type):
        return False
    return not isinstance(value, (float, int) if kind is float else kind)


def _wrong_items(value: Any, kinds: tuple[Any, ...], item: Any, what: str) -> str | None:
    if not isinstance(value, kinds):
        return _not(value, f"a list of {_bare_name(item)}", what)
    found = (wrong(inner, item, f"{what}[{index}]") for index, inner in enumerate(value))
    return next((fault for fault in found if fault is not None), None)


def _wrong_mapping(value: Any, arguments: tuple[Any, ...], what: str) -> str | None:
    if not isinstance(value, Mapping):
        return _not(value, "a mapping", what)
    for key, inner in value.items():
        found = wrong(key, arguments[0], f"a key of {what}") or wrong(inner, arguments[1], f"{what}[{shown(key)}]")
        if found is not None:
            return found
    return None


def _not(value: Any, kind: str, what: str) -> str:
    return f"{what} is {shown(value)}, not {kind}"


def named(kind: Any) -> str:
    """A type in words: "a str", "an Availability"."""
    bare = _bare_name(kind)
    return bare if bare == "None" else f"{'an' if bare[0] in 'AEIOUaeiou' else 'a'} {bare}"


def _bare_name(kind: Any) -> str:
    return "None" if kind in (None, type(None)) else getattr(get_origin(kind) or kind, "__name__", str(kind))


@cache
def _hints(kind: type) -> dict[str, Any]:
    """The types of a dataclass's fields; names that the API imports for type checkers only are resolved here."""
    import delegatekit_api
    from delegatekit_api import devices

    names = {**vars(delegatekit_api), **vars(devices), "torch": _Torch()}
    return get_type_hints(kind, localns=names)


class _Torch:
    """torch, imported when a field names one of its types."""

    def __getattr__(self, name: str) -> Any:
        import torch

        return getattr(torch, name)
