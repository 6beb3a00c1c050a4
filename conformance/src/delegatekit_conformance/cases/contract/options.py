"""The backend's options: their form on the command line and in the documents."""

from __future__ import annotations

import dataclasses
import pickle
import re
import typing
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from delegatekit_api import BackendOptions, DelegateKitError, OptionError
from delegatekit_api.nodes import operator_name
from delegatekit_api.schemes import DEQUANTIZE, QUANTIZE

from ...context import Context
from ..base import Broken, NotApplicable
from ..specimens import SPECIMENS, backend_of, compiles, delegates, lower, taken
from .rules import Rules

RULES = Rules()


def _options(context: Context) -> type[BackendOptions]:
    options = backend_of(context).description.options
    if not dataclasses.fields(options):
        raise NotApplicable("the backend has no options")
    return options


@RULES.add
def options_documented(context: Context) -> str:
    """The options are a frozen dataclass with a docstring, and every one has a help text in words and a type."""
    options = _options(context)
    if not options.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise Broken(f"{options.__name__} is not frozen")
    if not (options.__doc__ or "").strip() or (options.__doc__ or "").startswith(f"{options.__name__}("):
        raise Broken(f"{options.__name__} has no docstring")
    for row in options.describe():
        if len(row.help.split()) < 2:
            raise Broken(f"option {row.name} has no readable help text: {row.help!r}")
    return ", ".join(row.name for row in options.describe())


@RULES.add
def options_defaults(context: Context) -> str:
    """Every default is a value that the option itself accepts, and default options have an empty `to_mapping()`."""
    options = _options(context)
    plain = options()
    for row in options.describe():
        try:
            given = options.from_mapping({row.name: row.default})
        except OptionError as error:
            raise Broken(f"the default of {row.name} is refused: {error.what}") from None
        if given != plain:
            raise Broken(f"{row.name} = {row.default!r}, its default, gives other options than leaving it out")
    if plain.to_mapping():
        raise Broken(f"to_mapping of the default options is not empty: {plain.to_mapping()}")
    return f"{len(options.describe())} options"


@RULES.add
def options_strings(context: Context) -> str:
    """An option given as the command line gives it, as a text, is the same as given as a value; and all are kept."""
    options = _options(context)
    tried = 0
    for name, value in values_of(options):
        direct = options.from_mapping({name: value})
        typed = options.from_mapping({name: _text(value)})
        if direct != typed or getattr(direct, name) != value:
            raise Broken(f"{name} = {value!r} becomes {getattr(direct, name)!r}, as text {getattr(typed, name)!r}")
        if options.from_mapping(direct.to_mapping()) != direct:
            raise Broken(f"{name} = {value!r} is lost in to_mapping: {direct.to_mapping()}")
        if pickle.loads(pickle.dumps(direct)) != direct or hash(direct) != hash(typed):
            raise Broken(f"{name} = {value!r}: the options cannot be sent to another process, or hashed")
        if direct.to_json() != typed.to_json():
            raise Broken(f"{name} = {value!r} gives two forms of JSON")
        tried += 1
    return f"{tried} values"


@RULES.add
def options_refused(context: Context) -> str:
    """An unknown option and a value of another type are refused with an OptionError that names the option.

    So is a number below 0 where the default is none and the help says nothing of it.
    """
    options = backend_of(context).description.options
    _refuse(context, "there_is_no_such_option", "1")
    tried = 1
    for name, wrong in _wrong(options):
        _refuse(context, name, wrong)
        tried += 1
    return f"{tried} refused"


@RULES.add
def options_name_something(context: Context) -> str:
    """A name in an option of names that neither the program nor the backend has is refused."""
    compiles(context)
    options = _options(context)
    names = [
        row.name
        for row in options.describe()
        if typing.get_origin(_hint(options, row.name)[0]) is frozenset and not row.choices
    ]
    if not names:
        raise NotApplicable("no option is a set of names")
    program = next(iter(taken(context)))
    for name in names:
        try:
            lower(SPECIMENS[program], context.beside({name: [_NOTHING]}))
        except OptionError as error:
            _check_named(error, name, _NOTHING)
        else:
            raise Broken(f"{program} is lowered with {name} = {_NOTHING!r}, which names nothing")
    return ", ".join(names)


#: A name that does not exist.
_NOTHING = "there_is_no_such_name"


@RULES.add
def options_of_partitioners(context: Context) -> str:
    """An operator in `leave_out` is in no delegate, and with `whole_graph` a program that is not one is refused."""
    backend = compiles(context)
    known = {row.name for row in backend.description.options.describe()}
    if "leave_out" not in known:
        raise NotApplicable("the backend has no option leave_out")
    name, program = next(iter(taken(context).items()))
    names = [operator_name(node) for node in delegates(program, context.backend)[0].partition.nodes]
    # Where numbers become integers and come back is part of the operators in between.
    operator = next((found for found in names if found not in QUANTIZE | DEQUANTIZE), names[0])
    chosen = {**context.options, "leave_out": [operator]}
    less = lower(SPECIMENS[name], replace(context, options=chosen))
    left = [operator_name(node) for item in delegates(less, context.backend) for node in item.partition.nodes]
    if operator in left:
        raise Broken(f"{name}: with leave_out={operator}, a delegate has it")
    if "whole_graph" not in known:
        return f"{operator} is left out"
    try:
        lower(SPECIMENS[name], replace(context, options={**chosen, "whole_graph": True}))
    except DelegateKitError as error:
        return f"{operator} is left out; {str(error).splitlines()[0]}"
    raise Broken(f"{name}: with whole_graph and leave_out={operator}, it is still lowered")


def _refuse(context: Context, name: str, value: Any) -> None:
    try:
        backend_of(context).make_options({name: value})
    except OptionError as error:
        _check_named(error, name, value)
        if not error.hint:
            raise Broken(f"the refusal of {name} = {value!r} has no hint about what is allowed: {error}") from None
    except Exception as error:
        raise Broken(f"{name} = {value!r} raises {type(error).__name__}, not OptionError: {error}") from None
    else:
        raise Broken(f"{name} = {value!r} is accepted")


def _check_named(error: OptionError, name: str, value: Any) -> None:
    """Raise Broken if the refusal of an option's value does not name the option."""
    if name not in str(error):
        raise Broken(f"the refusal of {name} = {value!r} does not name it: {error}") from None


def _hint(options: type[BackendOptions], name: str) -> tuple[Any, bool]:
    """The type of an option without None, and whether it may be None."""
    hint = typing.get_type_hints(options)[name]
    inner = [item for item in typing.get_args(hint) if item is not type(None)]
    if type(None) in typing.get_args(hint):
        return inner[0], True
    return hint, False


def values_of(options: type[BackendOptions], words: Sequence[str] = ("name",)) -> Iterator[tuple[str, Any]]:
    """Values that an option takes: its default, its choices, and others of its type unless it refuses them.

    `words` are tried where the option takes any text.
    """
    for row in options.describe():
        hint, optional = _hint(options, row.name)
        several = typing.get_origin(hint) in (tuple, frozenset)
        simple: dict[Any, list[Any]] = {bool: [True, False], int: [0, 1, 7], float: [0.5, 2.0], str: list(words)}
        values: list[Any] = list(row.choices or simple.get(typing.get_args(hint)[0] if several else hint, []))
        if several:
            kind = typing.get_origin(hint)
            values = [kind(values[:1]), kind(values[:2]), kind(())]
        candidates = [row.default, *values, *([None] if optional else [])]
        for value in candidates:
            try:
                options.from_mapping({row.name: value})
            except OptionError:
                continue  # the option's own check: only defaults and choices must be taken, see the other rules
            yield row.name, value


def _text(value: Any) -> str:
    if isinstance(value, tuple | frozenset):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def _wrong(options: type[BackendOptions]) -> Iterator[tuple[str, Any]]:
    for row in options.describe():
        hint, _ = _hint(options, row.name)
        wrong: dict[Any, list[Any]] = {
            bool: ["perhaps", 2, 0.5],
            int: ["many", "1.5", 0.5, True],
            float: ["much", True],
            str: [3, 0.5],
        }
        # A text for a sequence is taken apart at commas; a number is not a sequence.
        for value in [*wrong.get(hint, [5, 0.5]), object(), {}]:
            yield row.name, value
        if hint in (int, float) and (row.default is None or row.default >= 0) and not _BELOW.search(row.help):
            yield row.name, hint(-1)


#: Forms of a help text for a number below 0.
_BELOW = re.compile(r"-\d|negative|below 0|below zero")
