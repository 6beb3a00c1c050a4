"""A backend's runtime with handles, tensors and blobs. The runtime is called directly, without the engine."""

from __future__ import annotations

import gc
import random
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any, TypeAlias, TypeVar

import torch

import delegatekit
from delegatekit_api import (
    Availability,
    CompileSpec,
    DelegateKitError,
    DelegatePayload,
    DelegateRuntime,
    ExecutionError,
    FormatError,
)
from delegatekit_api.profiling import OperatorTime, ProfilingRuntime
from delegatekit_toolkit.accuracy import compare

from ...context import Context
from ...insides import bits
from ...recipe import Recipe
from ...trial import Subject, try_recipe
from ..base import Broken, NotApplicable
from ..keeping import keeping
from ..kinds import calls_of, kinds, lower_kind
from ..sessions.programs import KINDS
from ..specimens import (
    DYNAMIC,
    LONG,
    Sample,
    backend_of,
    blank,
    by_blob,
    changed,
    compiles,
    observed,
    runs,
    same,
    sample,
    samples,
)
from .rules import Rules

RULES = Rules()

_T = TypeVar("_T")

#: Handles that are alive at the same time.
_MANY = 32
#: Seconds that no operator of a small delegate can take.
_LONGEST = 3600.0
#: Results up to this one are numbers of every dtype.
_MODERATE = 1e4
#: Calls of each of two threads: at most, and at least where they take as long as these seconds together.
_CALLS, _FEWEST, _TOGETHER = 40, 4, 0.3


def runtime_of(context: Context) -> DelegateRuntime:
    """A new runtime of the backend. Raises NotApplicable if its blobs do not run here."""
    return runs(context).create_runtime()


def some(context: Context, most: int = 4) -> list[Sample]:
    """A few delegates, of different programs as far as there are."""
    found = samples(context)
    names = {item.name: item for item in reversed(found)}
    return list(reversed(names.values()))[:most]


def run(runtime: DelegateRuntime, handle: Any, item: Sample, fill: str = "zero") -> list[torch.Tensor]:
    """One call with new tensors."""
    outputs = item.blank(fill)
    runtime.execute(handle, [tensor.clone() for tensor in item.inputs], outputs)
    return outputs


@contextmanager
def handle_of(runtime: DelegateRuntime, payload: DelegatePayload) -> Iterator[Any]:
    """A handle that is destroyed afterwards."""
    handle = runtime.init(payload)
    try:
        yield handle
    finally:
        runtime.destroy(handle)


def expect(results: Sequence[torch.Tensor], item: Sample, where: str) -> None:
    """Raise Broken unless the results are the sample's, bit by bit."""
    wrong = same(results, item.outputs)
    if wrong:
        raise Broken(f"{item.name}: {where}, {wrong}")


@RULES.add
def available(context: Context) -> str:
    """`is_available` answers without an error, the same each time, and gives a reason if it is false."""
    backend = backend_of(context)
    if not backend.has("create_runtime"):
        raise NotApplicable("the plugin has no runtime")
    runtime = backend.create_runtime()
    try:
        answers: list[Any] = [runtime.is_available(), runtime.is_available()]
    except BaseException as error:
        raise Broken(f"is_available raises {type(error).__name__}: {error}") from error
    if not all(isinstance(answer, Availability) for answer in answers):
        raise Broken(f"is_available returns {answers[0]!r}, not an Availability")
    if answers[0] != answers[1]:
        raise Broken(f"is_available says {answers[0]}, and then {answers[1]}")
    if not answers[0].available and len(str(answers[0].reason).split()) < 2:
        raise Broken(f"the runtime is not available, and the reason is {answers[0].reason!r}")
    return "available" if answers[0].available else f"not available: {answers[0].reason}"


@RULES.add
def kernels_of_operators(context: Context) -> str:
    """A library of operators has a kernel for each of them, and refuses others with FormatError."""
    backend = compiles(context)
    if not backend.is_library:
        raise NotApplicable("the backend makes delegates")
    found = backend.runtime_availability()
    if not found.available:
        raise NotApplicable(f"its kernels are not here: {found.reason}")
    runtime: Any = backend.create_runtime()
    names = [text.partition("(")[0] for text in backend.runtime_operators()]
    for name in names:
        if not callable(runtime.kernel(name)):
            raise Broken(f"the kernel of {name} is no function")
    try:
        runtime.kernel(f"{backend.description.delegate_id}::no_such_operator.out")
    except FormatError:
        return f"{len(names)} operators"
    raise Broken("it has a kernel for an operator that it does not list")


@RULES.add
def repeated_calls(context: Context) -> str:
    """The same inputs give the same bits in every call, for any inputs of the calls in between."""
    runtime = runtime_of(context)
    for item in samples(context):
        with handle_of(runtime, item.payload) as handle:
            for number in range(4):
                expect(run(runtime, handle, item), item, f"in call {2 * number + 1}")
                runtime.execute(handle, [_other(tensor) for tensor in item.inputs], item.blank())
    return f"{len(samples(context))} delegates"


def _other(tensor: torch.Tensor) -> torch.Tensor:
    """Other numbers of the same kind and range."""
    return tensor.flip(tuple(range(tensor.dim()))).contiguous() if tensor.dim() else tensor.clone()


@RULES.add
def profiles(context: Context) -> str:
    """A profiled call gives the same bits; its operators have names and times, and their keys are the debug map's."""
    runtime = runtime_of(context)
    if not isinstance(runtime, ProfilingRuntime):
        raise NotApplicable("the runtime does not report operator times")
    told = 0
    for item in samples(context):
        with handle_of(runtime, item.payload) as handle:
            for number in range(2):
                outputs = item.blank()
                found = runtime.profile(handle, [tensor.clone() for tensor in item.inputs], outputs)
                expect(outputs, item, f"in profiled call {number + 1}")
                _check_times(found, item)
                told += len(found)
            expect(run(runtime, handle, item), item, "in a call after profiled ones")
    return f"{told} times of operators in {len(samples(context))} delegates"


def _check_times(found: Sequence[Any], item: Sample) -> None:
    for time in found:
        if not isinstance(time, OperatorTime) or not time.name:
            raise Broken(f"{item.name}: profile returns {time!r}, not an OperatorTime with a name")
        if not 0 <= time.seconds < _LONGEST:
            raise Broken(f"{item.name}: {time.name} took {time.seconds!r} seconds")
    # Operators that the compiler added at borders may be in no map.
    keys = [time.key for time in found if time.key is not None]
    if keys and item.handles.isdisjoint(keys):
        raise Broken(
            f"{item.name}: no key of {keys} is in debug_handle_map, which has {sorted(map(str, item.handles))}"
        )


@RULES.add
def inputs_unwritten(context: Context) -> str:
    """Execute does not write into its inputs."""
    runtime = runtime_of(context)
    for item in samples(context):
        inputs = [tensor.clone() for tensor in item.inputs]
        with handle_of(runtime, item.payload) as handle:
            runtime.execute(handle, inputs, item.blank())
            runtime.execute(handle, inputs, item.blank())
        wrong = same(inputs, item.inputs)
        if wrong:
            raise Broken(f"{item.name}: execute writes into its inputs ({wrong.replace('output', 'input')})")
    return f"{len(samples(context))} delegates"


@RULES.add
def outputs_written(context: Context) -> str:
    """Execute writes every element of every output, over any former contents: zeros, NaN or garbage."""
    runtime = runtime_of(context)
    for item in samples(context):
        with handle_of(runtime, item.payload) as handle:
            for fill in ("zero", "nan", "garbage"):
                expect(run(runtime, handle, item, fill), item, f"into tensors full of {fill}")
    return f"{len(samples(context))} delegates"


@RULES.add
def tensors_anywhere(context: Context) -> str:
    """Inputs and outputs may begin at any address, and memory around the outputs is left alone."""
    runtime = runtime_of(context)
    overread = backend_of(context).description.overread_bytes
    for item in samples(context):
        with handle_of(runtime, item.payload) as handle:
            for offset in (1, 3):
                inputs = [_inside(tensor, offset, overread)[0] for tensor in item.inputs]
                placed = [_inside(torch.zeros_like(tensor), offset, overread) for tensor in item.outputs]
                outputs = [view for view, _ in placed]
                for view, given in zip(inputs, item.inputs, strict=True):
                    view.copy_(given)
                runtime.execute(handle, inputs, outputs)
                where = f"with tensors that begin {offset} elements after an aligned address"
                for index, (view, (_, around)) in enumerate(zip(outputs, placed, strict=True)):
                    if view.shape == item.outputs[index].shape and not _untouched(view, around, offset):
                        raise Broken(f"{item.name}: {where}, memory around output {index} is written to")
                expect(outputs, item, where)
    return f"{len(samples(context))} delegates"


#: Fill value of the memory around a tensor.
_GUARD = 0x7B


def _inside(tensor: torch.Tensor, offset: int, overread: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A contiguous tensor of the same kind that begins `offset` elements inside a larger memory, and that memory."""
    size = tensor.element_size()
    after = overread // size + 16
    memory = torch.full(((offset + tensor.numel() + after) * size,), _GUARD, dtype=torch.uint8)
    flat = memory.view(tensor.dtype)
    return flat[offset : offset + tensor.numel()].view(tensor.shape), memory


def _untouched(view: torch.Tensor, memory: torch.Tensor, offset: int) -> bool:
    size = view.element_size()
    start, end = offset * size, (offset + view.numel()) * size
    return bool((memory[:start] == _GUARD).all() and (memory[end:] == _GUARD).all())


# Handles


@RULES.add
def many_handles(context: Context) -> str:
    """32 handles that are alive at the same time do not disturb each other, in any order of use."""
    runtime, items = runtime_of(context), some(context)
    order = random.Random(context.seed_of("contract/many-handles"))
    alive = [(item, runtime.init(item.payload)) for _, item in zip(range(_MANY), _cycle(items), strict=False)]
    try:
        for _ in range(2):
            order.shuffle(alive)
            for item, handle in alive:
                expect(run(runtime, handle, item), item, f"with {len(alive)} handles")
        while alive:
            runtime.destroy(alive.pop(order.randrange(len(alive)))[1])
            for item, handle in order.sample(alive, min(2, len(alive))):
                expect(run(runtime, handle, item), item, "after another handle was destroyed")
    finally:
        for _, handle in alive:
            runtime.destroy(handle)
    return f"{_MANY} handles of {', '.join(item.name for item in items)}"


def _cycle(items: Sequence[_T]) -> Iterator[_T]:
    while True:
        yield from items


@RULES.add
def destroy_twice(context: Context) -> str | None:
    """Destroying a handle twice is harmless, to it and to others."""
    runtime = runtime_of(context)
    for item in some(context):
        first, second = runtime.init(item.payload), runtime.init(item.payload)
        run(runtime, first, item)
        for number in range(2):
            try:
                runtime.destroy(first)
            except Exception as error:
                which = "the second destroy" if number else "destroy"
                raise Broken(f"{item.name}: {which} raises {type(error).__name__}: {error}") from error
        expect(run(runtime, second, item), item, "after another handle was destroyed twice")
        runtime.destroy(second)
    return None


@RULES.add
def execute_after_destroy(context: Context) -> str:
    """To execute a destroyed handle is an ExecutionError, not a crash and no result."""
    runtime = runtime_of(context)
    said = ""
    for item in some(context):
        for used in (False, True):
            handle = runtime.init(item.payload)
            if used:
                run(runtime, handle, item)
            runtime.destroy(handle)
            said = _refused(partial(run, runtime, handle, item), item, "a destroyed handle")
    return said


@RULES.add
def init_again(context: Context) -> str | None:
    """A payload can be initialized again after its handle was destroyed, and by another runtime object."""
    for item in some(context):
        runtime = runtime_of(context)
        for number in range(3):
            with handle_of(runtime, item.payload) as handle:
                expect(run(runtime, handle, item), item, f"initialized {number + 1} times")
            if number:
                runtime = runtime_of(context)
    return None


@RULES.add
def never_executed(context: Context) -> str | None:
    """A handle that was never executed can be destroyed."""
    runtime = runtime_of(context)
    for item in some(context):
        handles = [runtime.init(item.payload) for _ in range(4)]
        for handle in handles:
            runtime.destroy(handle)
    return None


@RULES.costing(3.0)
def two_threads(context: Context) -> str:
    """Two threads with a handle and inputs each, at the same time, get the results of one thread alone."""
    items = some(context)
    with suppress(NotApplicable):
        # Calls of microseconds are over before the other thread's begin.
        items += sample(LONG, context)
    told = []
    for item in items:
        runtime = runtime_of(context)
        other = [_other(tensor) for tensor in item.inputs]
        with handle_of(runtime, item.payload) as handle:
            alone = item.blank("zero")
            began = perf_counter()
            runtime.execute(handle, [tensor.clone() for tensor in other], alone)
            took = perf_counter() - began
        number = max(_FEWEST, min(_CALLS, int(_TOGETHER / max(took, 1e-6))))
        told.append(f"{number} of {item.name}")
        gate = threading.Barrier(2, timeout=30)
        # Two handles made at once, of short calls, may differ from two made one after the other.
        making = threading.Lock() if item.name == LONG else nullcontext()
        faults: list[str] = []
        calls = ((item.inputs, item.outputs), (other, alone))
        threads = [
            threading.Thread(target=_calls, args=(item, runtime, *call, number, gate, making, faults)) for call in calls
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if faults:
            raise Broken(f"{item.name}: with two threads, {faults[0]}")
    return f"calls of each thread: {', '.join(told)}"


def _calls(
    item: Sample,
    runtime: DelegateRuntime,
    inputs: Sequence[torch.Tensor],
    expected: Sequence[torch.Tensor],
    calls: int,
    gate: threading.Barrier,
    making: AbstractContextManager[Any],
    faults: list[str],
) -> None:
    """The work of one of the threads."""
    try:
        with torch.no_grad(), ExitStack() as stack:
            with making:
                handle = stack.enter_context(handle_of(runtime, item.payload))
            gate.wait()
            for number in range(calls):
                outputs = item.blank("zero")
                runtime.execute(handle, [tensor.clone() for tensor in inputs], outputs)
                wrong = same(outputs, expected)
                if wrong:
                    faults.append(f"in call {number + 1} {wrong}")
                    return
    except Exception as error:
        faults.append(f"{type(error).__name__}: {error}")


@RULES.add
def nothing_kept(context: Context) -> str | None:
    """A destroyed handle keeps neither its payload nor the tensors of the calls."""
    runtime = runtime_of(context)
    for item in some(context):
        payload = replace(item.payload)
        inputs, outputs = [tensor.clone() for tensor in item.inputs], item.blank()
        watched: list[Any] = [weakref.ref(payload), *(weakref.ref(tensor) for tensor in (*inputs, *outputs))]
        handle = runtime.init(payload)
        runtime.execute(handle, inputs, outputs)
        runtime.destroy(handle)
        del payload, inputs, outputs, handle
        gc.collect()
        kept = [index for index, reference in enumerate(watched) if reference() is not None]
        if kept:
            raise Broken(
                f"{item.name}: the {'payload' if kept[0] == 0 else 'tensors of a call'} are kept after destroy"
            )
    return None


# Refusals required of a runtime


def _refused(
    action: Callable[[], Any], item: Sample, what: str, family: type[DelegateKitError] = ExecutionError
) -> str:
    """The message of the refusal. Raises Broken if there is none, or one of another family or without a message."""
    try:
        action()
    except family as error:
        if len(error.what.split()) < 2:
            raise Broken(f"{item.name}: {what}: the error has no message: {error}") from None
        if not error.where and not error.hint:
            raise Broken(f"{item.name}: {what}: the error says neither where nor what to do: {error}") from None
        return str(error).splitlines()[0]
    except Exception as error:
        kind = type(error).__name__
        raise Broken(f"{item.name}: {what}: raises {kind} ({error}), not {family.__name__}") from error
    raise Broken(f"{item.name}: {what}: no error")


def _refuse_calls(
    context: Context, calls: Callable[[Sample], Iterator[tuple[str, list[torch.Tensor], list[torch.Tensor]]]]
) -> str:
    runtime = runtime_of(context)
    tried = 0
    for item in some(context):
        with handle_of(runtime, item.payload) as handle:
            for what, inputs, outputs in calls(item):
                _refused(partial(runtime.execute, handle, inputs, outputs), item, what)
                expect(run(runtime, handle, item), item, f"in the call after one with {what}")
                tried += 1
    if not tried:
        raise NotApplicable("no delegate has such arguments")
    return f"{tried} calls refused"


@RULES.add
def wrong_count(context: Context) -> str:
    """Too few or too many inputs or outputs are an ExecutionError, and the next call is right."""

    def calls(item: Sample) -> Iterator[tuple[str, list[torch.Tensor], list[torch.Tensor]]]:
        inputs, outputs = list(item.inputs), item.blank()
        if inputs:
            yield "too few inputs", inputs[:-1], outputs
        yield "too many inputs", [*inputs, torch.zeros(2)], outputs
        yield "too few outputs", inputs, outputs[:-1]
        yield "too many outputs", inputs, [*outputs, torch.zeros_like(outputs[0])]

    return _refuse_calls(context, calls)


@RULES.add
def wrong_shape(context: Context) -> str:
    """An input or output of another shape than the delegate was compiled for is an ExecutionError."""

    def calls(item: Sample) -> Iterator[tuple[str, list[torch.Tensor], list[torch.Tensor]]]:
        for index, (tensor, spec) in enumerate(zip(item.inputs, item.payload.inputs, strict=True)):
            if spec.dynamic:
                continue
            for what, other in _misshapen(tensor):
                yield f"input {index} {what}", _with(item.inputs, index, other), item.blank()
        for index, (tensor, spec) in enumerate(zip(item.outputs, item.payload.outputs, strict=True)):
            if spec.dynamic:
                continue
            for what, other in _misshapen(tensor):
                yield f"output {index} {what}", list(item.inputs), _with(item.blank(), index, other)

    return _refuse_calls(context, calls)


def _misshapen(tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    shape = tuple(tensor.shape)
    if not shape:
        yield "of rank 1", torch.ones(2, dtype=tensor.dtype)
        return
    yield "too small", torch.ones(shape[0] - 1, *shape[1:], dtype=tensor.dtype)
    yield "too large", torch.ones(*shape[:-1], shape[-1] + 1, dtype=tensor.dtype)
    yield "of another rank", torch.ones(1, 1, *shape, dtype=tensor.dtype)
    if shape[::-1] != shape:
        yield "with its sizes reversed", torch.ones(shape[::-1], dtype=tensor.dtype)


def _with(tensors: Sequence[torch.Tensor], index: int, tensor: torch.Tensor) -> list[torch.Tensor]:
    return [*tensors[:index], tensor, *tensors[index + 1 :]]


@RULES.add
def wrong_dtype(context: Context) -> str:
    """An input or output of another dtype than the delegate was compiled for is an ExecutionError."""

    def calls(item: Sample) -> Iterator[tuple[str, list[torch.Tensor], list[torch.Tensor]]]:
        for index, tensor in enumerate(item.inputs):
            for dtype in (torch.float64, torch.int32, torch.float16):
                if tensor.dtype != dtype:
                    yield f"input {index} as {dtype}", _with(item.inputs, index, tensor.to(dtype)), item.blank()
        for index, tensor in enumerate(item.outputs):
            for dtype in (torch.float64, torch.int32):
                if tensor.dtype != dtype:
                    other = torch.zeros_like(tensor, dtype=dtype)
                    yield f"output {index} as {dtype}", list(item.inputs), _with(item.blank(), index, other)

    return _refuse_calls(context, calls)


@RULES.add
def another_program(context: Context) -> str:
    """A program that gives a delegate another dtype than it was compiled for is refused, or gets correct results.

    A blob used for such a program reads other numbers than are given, and beyond their end.
    """
    runtime = runtime_of(context)
    refused = tried = 0
    for item in some(context):
        if item.payload.numbers:
            continue
        # Whole numbers, which all dtypes have.
        whole = replace(item, inputs=tuple(map(_whole, item.inputs)))
        with handle_of(runtime, item.payload) as handle:
            wanted = run(runtime, handle, whole)
        arguments = [*whole.inputs, *wanted]
        for place, tensor in enumerate(arguments):
            for dtype in (torch.int32, torch.float16):
                if tensor.dtype != dtype:
                    tried += 1
                    refused += _is_refused(runtime, whole, wanted, place, dtype)
    if not tried:
        raise NotApplicable("no delegate has tensors only")
    return f"{refused} of {tried} programs refused"


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.nan_to_num(0.0, 3.0, -3.0).clamp(-100, 100).round() if tensor.is_floating_point() else tensor


def _is_refused(
    runtime: DelegateRuntime, item: Sample, wanted: Sequence[torch.Tensor], place: int, dtype: torch.dtype
) -> bool:
    """True if a program with another dtype at a place is refused. Raises Broken if it gets other numbers."""
    arguments = [*item.inputs, *map(torch.zeros_like, wanted)]
    arguments[place] = arguments[place].to(dtype)
    count = len(item.inputs)
    what = f"a program with {'an input' if place < count else 'an output'} of {dtype} instead"
    try:
        with handle_of(runtime, changed(item.payload, dtypes={place: dtype})) as handle:
            runtime.execute(handle, arguments[:count], arguments[count:])
    except DelegateKitError:
        return True
    except Exception as error:
        raise Broken(f"{item.name}: {what}: raises {type(error).__name__} ({error})") from error
    for found, right in zip(arguments[count:], wanted, strict=True):
        size = right.double().abs()
        apart = (found.double() - right.double()).abs()
        # Conversion to integers truncates or rounds; numbers too large for a dtype may become anything.
        if bool(((size <= _MODERATE) & ~(apart <= 1 + 0.01 * size)).any()):
            raise Broken(f"{item.name}: {what}: no error, and other numbers")
    return False


#: A program in words, with the differing shapes by their places, and the places of inputs and outputs.
_Program: TypeAlias = tuple[str, dict[int, Sequence[int]], tuple[list[int], list[int]]]


@RULES.add
def another_size(context: Context) -> str:
    """A program that gives a delegate other sizes than it was compiled for is refused, or the same elements count."""

    def programs(item: Sample) -> Iterator[_Program]:
        count = len(item.inputs)
        places = list(range(count)), list(range(count, count + len(item.outputs)))
        specs = (*item.payload.inputs, *item.payload.outputs)
        for place, (tensor, spec) in enumerate(zip((*item.inputs, *item.outputs), specs, strict=True)):
            if not spec.dynamic:
                kind = "input" if place < count else "output"
                for what, other in _misshapen(tensor):
                    yield f"an {kind} {what}", {place: other.shape}, places

    return _try_programs(context, programs)


@RULES.add
def other_arguments(context: Context) -> str:
    """A program that gives a delegate more or fewer inputs or outputs, or these in place of those, is refused.

    Not if its results are computed nevertheless: an input that nothing reads, an output that is not needed.
    """

    def programs(item: Sample) -> Iterator[_Program]:
        count = len(item.inputs)
        given, made = list(range(count)), list(range(count, count + len(item.outputs)))
        yield "one input more", {}, ([*given, *given[:1]], made)
        yield "one input less", {}, (given[:-1], made)
        yield "one output more", {}, (given, [*made, made[0]])
        yield "one output less", {}, (given, made[:-1])
        yield "inputs and outputs exchanged", {}, (made, given)
        yield "an output as its last input", {}, ([*given[:-1], made[0]], made)
        yield "its last input as an output", {}, (given[:-1], [*made, given[-1]])

    return _try_programs(context, programs)


def _try_programs(context: Context, programs: Callable[[Sample], Iterator[_Program]]) -> str:
    """Try programs that differ from their blobs. Raises Broken for one that is not refused and gets other numbers."""
    runtime = runtime_of(context)
    refused = tried = 0
    for item in some(context):
        if item.payload.numbers or not item.inputs:
            continue
        blob = item.payload
        for what, shapes, places in programs(item):
            other = changed(blob, shapes=shapes, arguments=places)
            if (other.inputs, other.outputs) == (blob.inputs, blob.outputs):
                continue  # nothing tells the tensors apart: it is the same program
            tried += 1
            refused += _refuses(runtime, item, other, what, shapes, places)
    if not tried:
        raise NotApplicable("no delegate has tensors only")
    return f"{refused} of {tried} programs refused"


def _refuses(
    runtime: DelegateRuntime,
    item: Sample,
    payload: DelegatePayload,
    what: str,
    shapes: dict[int, Sequence[int]],
    places: tuple[list[int], list[int]],
) -> bool:
    """True if a program is refused. Raises Broken if it is not, and results differ or depend on memory beyond."""
    known = [*item.inputs, *item.outputs]
    found: list[list[torch.Tensor]] = []
    for around in (_GUARD, 0x3C):
        memories: list[torch.Tensor] = []

        def room(place: int, fill: int = around, memories: list[torch.Tensor] = memories) -> torch.Tensor:
            """A tensor of the program's size, in a larger memory full of a number."""
            tensor = known[place]
            shape = torch.Size(shapes.get(place, tensor.shape))
            size, used = tensor.element_size(), shape.numel() * tensor.element_size()
            beyond = max(0, tensor.numel() * size - used) + 64
            memories.append(torch.full((used + beyond + -(used + beyond) % size,), fill, dtype=torch.uint8))
            return memories[-1].view(tensor.dtype)[: shape.numel()].view(shape)

        inputs, outputs = ([room(place) for place in some_places] for some_places in places)
        for view, place in zip(inputs, places[0], strict=True):
            flat, source = view.view(-1), known[place].reshape(-1)
            flat.zero_()[: source.numel()] = source[: flat.numel()]
        ends = [view.numel() * view.element_size() for view in outputs]
        try:
            with handle_of(runtime, payload) as handle:
                runtime.execute(handle, inputs, outputs)
        except DelegateKitError:
            return True
        except Exception as error:
            raise Broken(f"{item.name}: a program with {what}: raises {type(error).__name__} ({error})") from error
        for memory, end in zip(memories[len(inputs) :], ends, strict=True):
            if not bool((memory[end:] == around).all()):
                raise Broken(f"{item.name}: a program with {what}: no error, and memory beyond an output is written to")
        found.append(outputs)
    wanted = [known[place] for place in places[1]]
    for first, second, right in zip(*found, wanted, strict=True):
        if bits(first) != bits(second):
            raise Broken(f"{item.name}: a program with {what}: no error, and results depend on memory beyond an input")
        if bits(first) != bits(right):
            raise Broken(f"{item.name}: a program with {what}: no error, and other numbers")
    return False


@RULES.add
def foreign_blobs(context: Context) -> str:
    """A blob that is empty, of another format or of zeros is refused at init, with a FormatError."""
    runtime = runtime_of(context)
    said = ""
    for item in some(context, 2):
        size = len(item.payload.blob)
        blobs = {
            "an empty blob": b"",
            "one byte": b"\0",
            "a text as blob": b"This is no blob of any backend. " * 8,
            "a blob of zeros": bytes(size),
            "a blob of ones": b"\xff" * size,
            "the .pte file as blob": item.data,
        }
        for what, blob in blobs.items():
            payload = changed(item.payload, blob)
            said = _refused(partial(runtime.init, payload), item, what, FormatError)
    return said


@RULES.add
def missing_named_data(context: Context) -> str:
    """A blob whose named data is missing is refused at init, with a FormatError; one of several methods, too."""
    runtime = runtime_of(context)
    tried = 0
    of_methods = [item for chosen in _with_kept_state(context) for item in _of_methods(chosen)]
    for item in (*samples(context), *of_methods):
        if item.keys:
            payload = replace(item.payload, named_data={}, as_program=_no_program)
            _refused(partial(runtime.init, payload), item, "no named data", FormatError)
            tried += 1
    if not tried:
        raise NotApplicable("the blobs need no named data")
    return f"{tried} blobs"


def _with_kept_state(context: Context) -> Iterator[Context]:
    """The run's options, and those with which more state is kept, if any: for devices that have more."""
    yield context
    with suppress(NotApplicable):
        yield keeping(context)


def _of_methods(context: Context) -> list[Sample]:
    """The delegates of a program of several methods; none if the backend takes nothing of it, or it cannot be tried."""
    kind = next(kind for kind in kinds(context) if kind.program and "methods" in KINDS[kind.program].traits)
    try:
        program = lower_kind(kind, context)
        found = observed(program.buffer, calls_of(kind), context)
    except Exception:  # the rules about methods report it
        return []
    lowered = by_blob(program, context.backend)
    made = []
    for payload, tensors in found:
        keys = tuple(item.key for item in lowered[bytes(payload.blob)].named_data)
        made.append(Sample(kind.describe(), Recipe((), (), ()), program.buffer, payload, *tensors, keys))
    return made


def _no_program(keys: Any) -> bytes:
    raise FormatError("the named data is missing", where=", ".join(keys))


@RULES.add
def unknown_compile_spec(context: Context) -> str:
    """A compile spec that the runtime does not know is refused with a FormatError, or does no harm."""
    runtime = runtime_of(context)
    refused = 0
    for item in some(context):
        strange = CompileSpec("delegatekit_conformance_unknown", b"\xff\0\x01")
        payload = replace(item.payload, compile_specs=(*item.payload.compile_specs, strange))
        try:
            handle = runtime.init(payload)
        except FormatError:
            refused += 1
            continue
        except Exception as error:
            raise Broken(f"{item.name}: raises {type(error).__name__} ({error}), not FormatError") from error
        try:
            expect(run(runtime, handle, item), item, "with an unknown compile spec")
        finally:
            runtime.destroy(handle)
    return "refused" if refused else "the runtime ignores it"


@RULES.costing(3.0)
def changing_sizes(context: Context) -> str:
    """If the description says so, sizes may change from call to call: outputs are resized to those of the result."""
    backend = runs(context)
    if not backend.description.supports_dynamic_shapes:
        raise NotApplicable("the backend takes static shapes only")
    outcome = try_recipe(DYNAMIC, context)
    if outcome.verdict.is_fault:
        raise Broken(f"{outcome.verdict.value}: {outcome.detail}")
    runtime = backend.create_runtime()
    shapes = set()
    for item in sample("dynamic", context):
        if not any(spec.dynamic for spec in item.payload.outputs):
            continue
        with handle_of(runtime, item.payload) as handle:
            largest = [torch.empty(spec.shape, dtype=getattr(torch, spec.dtype)) for spec in item.payload.outputs]
            for rows in (4, 9, 2, 9, 3):
                inputs = [_rows(tensor, rows) for tensor in item.inputs]
                outputs = blank(largest, "nan")
                runtime.execute(handle, inputs, outputs)
                for output, largest_one in zip(outputs, largest, strict=True):
                    if output.shape[0] != rows or output.shape[1:] != largest_one.shape[1:]:
                        raise Broken(f"with {rows} rows the output has the shape {tuple(output.shape)}")
                    if output.is_floating_point() and output.isnan().any():
                        raise Broken(f"with {rows} rows a part of the output is not written")
                shapes.add(rows)
            # Beyond the bounds that the program was exported with; and within them, of inputs that share a size.
            wrong = {"out of bounds": [_rows(tensor, 40) for tensor in item.inputs]}
            if len(item.inputs) > 1:
                wrong["that differ"] = [_rows(item.inputs[0], 9), *(_rows(tensor, 4) for tensor in item.inputs[1:])]
            for what, inputs in wrong.items():
                _refused(partial(runtime.execute, handle, inputs, blank(largest)), item, f"sizes {what}")
    # Below them, where a window is larger than what it looks at: no number of results is negative.
    with suppress(NotApplicable):
        for item in sample("windows", context):
            with handle_of(runtime, item.payload) as handle:
                inputs = [tensor[:, :, :1].contiguous() for tensor in item.inputs]
                _refused(partial(runtime.execute, handle, inputs, item.blank()), item, "fewer rows than a window has")
    if not shapes:
        raise NotApplicable("the backend takes no operator of the program with changing sizes")
    return f"{len(shapes)} sizes"


def _rows(tensor: torch.Tensor, rows: int) -> torch.Tensor:
    return tensor.repeat(-(-rows // tensor.shape[0]), *([1] * (tensor.dim() - 1)))[:rows].contiguous()


@RULES.costing(2.0)
def right_results(context: Context) -> str:
    """The results that the other rules compare with are right, and so are those of further calls with other numbers."""
    items = {item.name: item for item in samples(context)}
    for item in items.values():
        wrong = _wrong_call(item, context)
        if wrong:
            raise Broken(f"{item.name}: {wrong}")
    return ", ".join(items)


def _wrong_call(item: Sample, context: Context) -> str:
    """The difference of the first wrong call of the file; empty if all are right."""
    subject = Subject.of_recipe(item.recipe)
    first = subject.calls[0]
    subject = replace(subject, calls=(first, tuple(map(_other, first)), first))
    precision = backend_of(context).compute_precision(context.options)
    method = delegatekit.load(item.data)["forward"]
    references = subject.references(subject.accuracy.roundoff(precision))
    for number, (inputs, (expected, dtypes, moved)) in enumerate(zip(subject.calls, references, strict=True)):
        compared = compare(method.run(inputs), expected, dtypes, precision, subject.accuracy, moved)
        if not compared.agrees:
            return f"call {number + 1}: {compared.difference}"
    return ""
