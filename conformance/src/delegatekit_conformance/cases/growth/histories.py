"""Repeated uses of a backend: calls, sizes, sessions, loads, threads, failures and compilations."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any

import torch

import delegatekit
from delegatekit_api import DelegateRuntime
from delegatekit_api.profiling import ProfilingRuntime

from ...context import Context
from ...insides import bytes_of
from ...recipe import Recipe, Ref, Size
from ..base import Broken, NotApplicable
from ..specimens import (
    Sample,
    backend_of,
    changed,
    delegates,
    lower,
    partitions,
    preprocess,
    recipe_of,
    runs,
    same,
    samples,
    take_down,
    taken,
    tensor_of,
)
from .series import History

#: Places in memory, 64 bytes apart, of inputs, in turn.
_PLACES = 2048
#: Living sessions of one program at a time; and the most that live together.
_TOGETHER, _ALIVE = 8, 400
#: Programs that are compiled again and again, those that are loaded from files, and those with sessions.
_COMPILED, _LOADED, _OPENED = 4, 6, 10
#: Programs that are profiled again and again.
_PROFILED = 2
#: The largest size that changes, and calls of such a program before its sizes repeat.
_ROWS = 2048

_X, _Y = Ref("x"), Ref("y")
_BOUND = (Size("rows", 2, _ROWS, (("x", 0), ("y", 0))),)
#: Programs with a size that changes, far below its bound at most calls.
_CHANGING: Mapping[str, Recipe] = {
    "arithmetic with changing sizes": recipe_of(
        {"x": tensor_of(_ROWS, 4), "y": tensor_of(_ROWS, 4, seed=1)},
        ("m", "aten.mul.Tensor", _X, _Y),
        ("r", "aten.relu.default", Ref("m")),
        sizes=_BOUND,
        calls=((_ROWS,),),
    ),
    "linear with changing sizes": recipe_of(
        {"x": tensor_of(_ROWS, 8), "y": tensor_of(_ROWS, 4), "w": tensor_of(4, 8, constant=True, seed=1)},
        ("l", "aten.linear.default", _X, Ref("w")),
        ("s", "aten.add.Tensor", Ref("l"), _Y),
        sizes=_BOUND,
        calls=((_ROWS,),),
    ),
}

Opened = Iterator[History]


class Numbers:
    """A sample's inputs with the same numbers in another order, at another address, for each call."""

    def __init__(self, item: Sample) -> None:
        self._given = [tensor.contiguous() for tensor in item.inputs]
        self._pools = [torch.zeros(_size(tensor) + 64 * _PLACES, dtype=torch.uint8) for tensor in self._given]
        self._source = torch.Generator().manual_seed(len(item.payload.blob))

    def __call__(self, number: int) -> list[torch.Tensor]:
        """The inputs of one call."""
        found = []
        for tensor, pool in zip(self._given, self._pools, strict=True):
            start = 64 * (number * 7 % _PLACES)
            place = pool[start : start + _size(tensor)].view(tensor.dtype).view(tensor.shape)
            order = torch.randperm(tensor.numel(), generator=self._source)
            place.copy_(tensor.reshape(-1)[order].view(tensor.shape))
            found.append(place)
        return found


def _size(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _by_program(items: list[Sample]) -> dict[str, Sample]:
    """The first delegate of each program."""
    found: dict[str, Sample] = {}
    for item in items:
        found.setdefault(item.name, item)
    return found


@contextmanager
def calls(context: Context) -> Opened:
    """One session that is called again and again, with other numbers each time, at other addresses."""
    runtime = runs(context).create_runtime()
    items = _by_program(samples(context))
    with ExitStack() as stack:
        handles = {name: _opened(runtime, item, stack) for name, item in items.items()}

        def part(item: Sample, handle: Any) -> Callable[[int], None]:
            inputs = Numbers(item)
            return lambda number: runtime.execute(handle, inputs(number), item.blank())

        yield History("call", {name: part(item, handles[name]) for name, item in items.items()})
        for name, item in items.items():
            outputs = item.blank()
            runtime.execute(handles[name], item.inputs, outputs)
            wrong = same(outputs, item.outputs)
            if wrong:
                raise Broken(f"{name}: after many calls with other numbers, {wrong}")


def _opened(runtime: DelegateRuntime, item: Sample, stack: ExitStack) -> Any:
    handle = runtime.init(item.payload)
    stack.callback(runtime.destroy, handle)
    return handle


@contextmanager
def profiles(context: Context) -> Opened:
    """One session that is profiled again and again."""
    runtime = runs(context).create_runtime()
    if not isinstance(runtime, ProfilingRuntime):
        raise NotApplicable("the runtime cannot profile")
    with ExitStack() as stack:

        def part(item: Sample) -> Callable[[int], None]:
            handle = _opened(runtime, item, stack)

            def unit(_: int) -> None:
                runtime.profile(handle, item.inputs, item.blank())

            return unit

        some = list(_by_program(samples(context)).items())[:_PROFILED]
        yield History("profile", {name: part(item) for name, item in some})


@contextmanager
def sizes(context: Context) -> Opened:
    """One session that is called with other sizes each time, far below their bound, in no order."""
    backend = runs(context)
    if not backend.description.supports_dynamic_shapes:
        raise NotApplicable("the backend takes static shapes only")
    runtime = backend.create_runtime()
    order = random.Random(7).sample(range(2, _ROWS // 2), _ROWS // 2 - 2)
    with ExitStack() as stack:
        parts, tried = {}, []
        for name, recipe in _CHANGING.items():
            with suppress(Exception):  # the rule contract/changing-sizes and the room dynamic report it
                program = lower(recipe, context)
                for item in take_down(name, recipe, program, context) if delegates(program, context.backend) else ():
                    if any(spec.dynamic for spec in item.payload.outputs):
                        parts[name] = _resized(runtime, _opened(runtime, item, stack), item, order)
                        tried.append(item)
        if not parts:
            raise NotApplicable("the backend takes no operator of the programs with changing sizes")
        yield History("size", parts, most=len(order), control=_resized(None, None, tried[0], order))


def _resized(runtime: DelegateRuntime | None, handle: Any, item: Sample, order: list[int]) -> Callable[[int], None]:
    def call(number: int) -> None:
        rows = order[number % len(order)]
        inputs = [
            tensor[:rows] if spec.dynamic else tensor
            for tensor, spec in zip(item.inputs, item.payload.inputs, strict=True)
        ]
        outputs = item.blank()
        if runtime is not None:
            runtime.execute(handle, inputs, outputs)

    return call


@contextmanager
def sessions(context: Context) -> Opened:
    """Sessions that are made, called once and destroyed, one after another."""
    runtime = runs(context).create_runtime()

    def part(item: Sample) -> Callable[[int], None]:
        def unit(_: int) -> None:
            handle = runtime.init(item.payload)
            try:
                runtime.execute(handle, item.inputs, item.blank())
            finally:
                runtime.destroy(handle)

        return unit

    some = list(_by_program(samples(context)).items())[:_OPENED]
    yield History("session", {name: part(item) for name, item in some})


@contextmanager
def sessions_together(context: Context) -> Opened:
    """Groups of sessions that live together, are called in turn, and are destroyed in another order."""
    runtime = runs(context).create_runtime()
    source = random.Random(3)

    def part(item: Sample) -> Callable[[int], None]:
        def unit(_: int) -> None:
            handles = []
            try:
                handles += [runtime.init(item.payload) for _ in range(_TOGETHER)]
                for handle in (*handles, handles[0]):
                    runtime.execute(handle, item.inputs, item.blank())
            finally:
                for handle in source.sample(handles, len(handles)):
                    runtime.destroy(handle)

        return unit

    some = list(_by_program(samples(context)).items())[:_LOADED]
    yield History(f"group of {_TOGETHER} session", {name: part(item) for name, item in some})


@contextmanager
def sessions_alive(context: Context) -> Opened:
    """Sessions of one program that all stay: making and calling one more does not take longer."""
    runtime = runs(context).create_runtime()
    name, item = next(iter(_by_program(samples(context)).items()))
    with ExitStack() as stack:

        def unit(_: int) -> None:
            handle = _opened(runtime, item, stack)
            for _ in range(4):
                runtime.execute(handle, item.inputs, item.blank())

        yield History("living session", {name: unit}, keeps=True, most=_ALIVE)


@contextmanager
def loads(context: Context) -> Opened:
    """Files that are loaded, run once and closed."""
    runs(context)

    def part(item: Sample) -> Callable[[int], None]:
        inputs = item.recipe.inputs()

        def unit(_: int) -> None:
            program = delegatekit.load(item.data)
            try:
                program["forward"].run(inputs)
            finally:
                program.close()

        return unit

    some = list(_by_program(samples(context)).items())[:_LOADED]
    yield History("load", {name: part(item) for name, item in some})


@contextmanager
def threads(context: Context) -> Opened:
    """Threads that start, call a session once, and end."""
    runtime = runs(context).create_runtime()
    with ExitStack() as stack:

        def part(item: Sample) -> Callable[[int], None]:
            handle = _opened(runtime, item, stack)
            errors: list[Exception] = []

            def call() -> None:
                try:
                    runtime.execute(handle, item.inputs, item.blank())
                except Exception as error:
                    errors.append(error)

            def unit(_: int) -> None:
                thread = threading.Thread(target=call)
                thread.start()
                thread.join()
                if errors:
                    raise errors[0]

            return unit

        some = _by_program(samples(context))
        control = next(iter(some.values()))

        def without(_: int) -> None:
            thread = threading.Thread(target=control.blank)
            thread.start()
            thread.join()

        parts = {name: part(item) for name, item in list(some.items())[:_LOADED]}
        yield History("thread", parts, control=without)


@contextmanager
def refusals(context: Context) -> Opened:
    """Blobs that end too early, and calls with too few tensors: refused data is not kept."""
    runtime = runs(context).create_runtime()
    with ExitStack() as stack:

        def part(item: Sample) -> Callable[[int], None]:
            handle = _opened(runtime, item, stack)
            short = [changed(item.payload, bytes(item.payload.blob)[:cut]) for cut in _cuts(item)]

            def unit(number: int) -> None:
                with suppress(Exception):  # the contract and robustness check the kind of error
                    runtime.destroy(runtime.init(short[number % len(short)]))
                with suppress(Exception):
                    runtime.execute(handle, item.inputs[:-1], item.blank())

            return unit

        some = list(_by_program(samples(context)).items())[:_LOADED]
        yield History("refusal", {name: part(item) for name, item in some})


def _cuts(item: Sample) -> list[int]:
    length = len(item.payload.blob)
    return [length * part // 8 for part in range(8)]


@contextmanager
def compilations(context: Context) -> Opened:
    """The same programs, compiled again and again."""
    yield History("compilation", {name: _compiled(name, context) for name in list(taken(context))[:_COMPILED]})


def _compiled(name: str, context: Context) -> Callable[[int], None]:
    program = taken(context)[name]
    # Made once: torch's memory for each program that it writes is not the backend's.
    found = [partition for partition, _ in partitions(program, context.backend)]

    def unit(_: int) -> None:
        for partition in found:
            preprocess(partition, context)

    return unit


@contextmanager
def programs(context: Context) -> Opened:
    """Programs with other weights each time: compiled, and where that is possible, loaded, run and destroyed.

    A session of another program stays open: resources freed with the last session stay.
    """
    runtime = backend_of(context).create_runtime() if backend_of(context).runtime_availability().available else None
    items = _by_program(samples(context)) if runtime is not None else {}
    parts = {
        name: _another(name, items.get(name), runtime, context)
        for name, program in taken(context).items()
        if any(partition.view.constants for partition, _ in partitions(program, context.backend))
    }
    if not parts:
        raise NotApplicable("the backend takes no program with constants")
    with ExitStack() as stack:
        chosen = dict(list(parts.items())[:2])
        others = [item for name, item in items.items() if name not in chosen]
        if runtime is not None and others:
            _opened(runtime, max(others, key=lambda item: len(item.payload.named_data)), stack)
        yield History("program", chosen)


def _another(
    name: str, item: Sample | None, runtime: DelegateRuntime | None, context: Context
) -> Callable[[int], None]:
    program = taken(context)[name]
    known = partitions(program, context.backend)
    partition = known[0][0]

    def unit(number: int) -> None:
        constants = [tensor for tensor in partition.view.constants.values() if tensor.numel() and not tensor.is_meta]
        with _nudged(constants[0] if constants else None, number):
            result = preprocess(partition, context)
            named = {entry.key: bytes_of(entry.data) for entry in result.named_data}
        if item is None or runtime is None or len(known) != 1:
            return
        blob = result.blob
        parts = [blob] if isinstance(blob, bytes | bytearray | memoryview) else blob
        payload = replace(
            changed(item.payload, b"".join(map(bytes, parts)), named), compile_specs=tuple(result.compile_specs)
        )
        handle = runtime.init(payload)
        try:
            runtime.execute(handle, item.inputs, item.blank())
        finally:
            runtime.destroy(handle)

    return unit


@contextmanager
def _nudged(tensor: torch.Tensor | None, number: int) -> Iterator[None]:
    """The tensor with some bits of its first elements set to those of a number, within the block."""
    if tensor is None:
        yield
        return
    flat = tensor.detach().view(-1) if tensor.is_contiguous() else tensor.detach().flatten()
    view = flat.view(torch.uint8)[: flat.element_size() * min(4, flat.numel())]
    before = view.clone()
    low = view[:: flat.element_size()]
    for index in range(low.numel()):
        low[index] = number >> (8 * index) & 0xFF if flat.element_size() > 1 else (number >> (2 * index)) & 3
    try:
        yield
    finally:
        view.copy_(before)


#: By the case's name.
HISTORIES: Mapping[str, Any] = {
    "calls": calls,
    "profiles": profiles,
    "sizes": sizes,
    "sessions": sessions,
    "sessions-together": sessions_together,
    "sessions-alive": sessions_alive,
    "loads": loads,
    "threads": threads,
    "refusals": refusals,
    "compilations": compilations,
    "programs": programs,
}
