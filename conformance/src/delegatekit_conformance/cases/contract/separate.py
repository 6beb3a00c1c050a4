"""Independence of lowerings: programs that look alike, other options, other methods, other threads, many in a row."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch

import delegatekit
from delegatekit_api import BackendOptions, OptionError
from delegatekit_toolkit.accuracy import compare

from ...context import Context
from ...insides import bytes_of
from ...outcome import Verdict
from ...trial import Subject, try_recipe
from ..base import Broken, NotApplicable
from ..look_alikes import look_alikes
from ..specimens import (
    SPECIMENS,
    backend_of,
    compiles,
    delegates,
    digest,
    lower,
    partitions,
    preprocess,
    taken,
)
from .compiler import content, differs
from .options import values_of
from .rules import Rules

RULES = Rules()

#: Programs that are lowered with each value of each option, and the number of values tried.
_PROGRAMS = 2
_VALUES = 16


@RULES.costing(3.0)
def programs_that_look_alike(context: Context) -> str:
    """Programs that differ only in a number, a dtype or a late row of a constant each get their own results."""
    compiles(context)
    tried = 0
    for name, recipe in look_alikes().items():
        outcome = try_recipe(recipe, replace(context, stock=False))
        if outcome.verdict.is_fault and outcome.blame == "backend":
            raise Broken(f"{name}: {outcome.verdict.value}: {outcome.detail}")
        tried += bool(outcome.delegates)
    if not tried:
        raise NotApplicable(f"the backend takes none of {', '.join(look_alikes())}")
    return f"{tried} programs"


@RULES.costing(2.0)
def other_weights(context: Context) -> str:
    """The same program with other weights is compiled to something else."""
    tried = 0
    for name, program in taken(context).items():
        recipe = SPECIMENS[name]
        if not any(tensor.constant for _, tensor in recipe.tensors):
            continue
        other = lower(recipe.reseeded(), context)
        pairs = zip(partitions(program, context.backend), partitions(other, context.backend), strict=True)
        for (partition, first), (_, second) in pairs:
            if not partition.view.constants:
                continue
            if not differs(content(first), content(second)):
                raise Broken(f"{name}: other weights are compiled to the same bytes")
            known = {item.key: digest(bytes_of(item.data)) for item in first.named_data}
            for item in second.named_data:
                if known.get(item.key, digest(bytes_of(item.data))) != digest(bytes_of(item.data)):
                    raise Broken(f"{name}: the key {item.key!r} stays the same with other weights")
            tried += 1
    if not tried:
        raise NotApplicable("the backend takes no program with constants")
    return f"{tried} partitions"


@RULES.costing(6.0)
def options_compile(context: Context) -> str:
    """With every value of every option, programs are refused with a reason, or compiled and run with right results."""
    tried = 0
    prevented: dict[str, str] = {}
    for name, value in _other_values(context):
        chosen = replace(context.beside({name: value}), stock=False)
        missing = _missing_tool(chosen)
        for program in list(taken(context))[: 0 if missing else _PROGRAMS]:
            outcome = try_recipe(SPECIMENS[program], chosen)
            if outcome.verdict.is_fault and outcome.blame == "backend":
                raise Broken(f"{program} with {name} = {value!r}: {outcome.verdict.value}: {outcome.detail}")
            if outcome.verdict is Verdict.NOT_APPLICABLE:
                missing = outcome.detail
                break
            tried += outcome.verdict is not Verdict.NOT_EXPORTABLE
        if missing:
            prevented[f"{name} = {value!r}"] = missing
    left = "; ".join(f"not tried: {option} ({reason})" for option, reason in prevented.items())
    if not tried:
        raise NotApplicable(left or "there are no options with other values")
    return f"{tried} lowerings" + (f"; {left}" if left else "")


def _missing_tool(context: Context) -> str:
    """The part missing here for compiling with the context's options; empty if there is none."""
    backend = backend_of(context)
    found = backend.compiler_availability(backend.make_options(context.options))
    return "" if found.available else found.reason or "the compiler is not available"


@RULES.costing(3.0)
def options_stay_apart(context: Context) -> str:
    """A lowering with other options leaves no trace: after it, the first options give the first bytes again."""
    names = list(taken(context))[:_PROGRAMS]
    first = {name: lower(SPECIMENS[name], context).buffer for name in names}
    tried = 0
    for option, value in _other_values(context):
        chosen = context.beside({option: value})
        for name in names:
            try:
                lower(SPECIMENS[name], chosen).buffer  # noqa: B018  the file is made when it is asked for
            except Exception:
                continue
            if lower(SPECIMENS[name], context).buffer != first[name]:
                raise Broken(f"{name}: lowered with {option} = {value!r}, and then as before: the file is another")
            tried += 1
    if not tried:
        raise NotApplicable("there are no options with other values")
    return f"{tried} lowerings"


def _other_values(context: Context) -> Iterator[tuple[str, Any]]:
    """Values of options that the backend takes and that are not those of the run; the first of each option first."""
    options: type[BackendOptions] = backend_of(context).description.options
    chosen = backend_of(context).make_options(context.options)
    found: dict[str, list[Any]] = {}
    operators = ("add", "linear", "conv2d")
    for name, value in values_of(options, operators):
        if value not in (getattr(chosen, name), *found.get(name, [])) and _is_taken(context, name, value):
            found.setdefault(name, []).append(value)
    ordered = [
        (name, value) for turn in range(_VALUES) for name, some in found.items() for value in some[turn : turn + 1]
    ]
    yield from ordered[:_VALUES]


def _is_taken(context: Context, name: str, value: Any) -> bool:
    """True if the options are accepted: alone, and by the partitioner that they make."""
    backend = backend_of(context)
    try:
        backend.create_partitioner(backend.make_options({**context.options, name: value}))
    except Exception as error:
        return not isinstance(error, OptionError) and "OptionError" not in str(error) and "leave_out" not in str(error)
    return True


class _First(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


class _Second(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * y


@RULES.add
def methods(context: Context) -> str:
    """Two methods of one file with the same inputs each compute their own results."""
    compiles(context)
    inputs = (torch.linspace(-2, 2, 30).reshape(3, 10), torch.linspace(1, 3, 30).reshape(3, 10))
    exported: Mapping[str, Any] = {
        name: torch.export.export(module, inputs, strict=False)
        for name, module in (("sum", _First()), ("product", _Second()))
    }
    options = context.by_backend
    program = delegatekit.lower(exported, backends=[context.backend], options=options)
    if not delegates(program, context.backend):
        raise NotApplicable("the backend takes neither a sum nor a product")
    if not backend_of(context).runtime_availability().available:
        return "compiled"
    loaded = delegatekit.load(program.buffer)
    precision = backend_of(context).compute_precision(context.options)
    for name, wanted in (("sum", inputs[0] + inputs[1]), ("product", inputs[0] * inputs[1])):
        subject = Subject.of_recipe(SPECIMENS["arithmetic"])
        compared = compare(loaded[name].run(inputs), [wanted.double()], [wanted], precision, subject.accuracy)
        if not compared.agrees:
            raise Broken(f"method {name}: {compared.difference}")
    return "two methods"


@RULES.add
def any_thread(context: Context) -> str:
    """Programs are compiled in any thread, to the same bytes."""
    tried = 0
    for name, program in taken(context).items():
        for partition, delegate in partitions(program, context.backend):
            result, error = in_thread(partial(preprocess, partition, context))
            if error is not None:
                kind = type(error).__name__
                raise Broken(f"{name}: compiling in another thread than the main one raises {kind}: {error}")
            wrong = differs(content(delegate), content(result))
            if wrong:
                raise Broken(f"{name}: compiling in another thread than the main one gives different {wrong}")
            tried += 1
    return f"{tried} partitions"


def in_thread(action: Callable[[], Any]) -> tuple[Any, Exception | None]:
    """The result or the exception of an action in a thread of its own."""
    found: list[Any] = [None, None]

    def work() -> None:
        try:
            found[0] = action()
        except Exception as error:
            found[1] = error

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return found[0], found[1]
