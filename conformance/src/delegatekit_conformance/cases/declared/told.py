"""A backend's reports against facts: times of operators, debug handles, estimates, operators of blobs, availability.

Nothing here needs a quiet machine: the least of several times counts, an operator is hundreds of times as large as
the others where it must be the slowest, and no time is compared with one that was measured elsewhere.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from delegatekit.lowering import Delegate
from delegatekit.plugins.answers import operator_times
from delegatekit_api import DelegateKitError, PreprocessResult
from delegatekit_api.devices import Estimate
from delegatekit_api.nodes import operator_name
from delegatekit_api.profiling import ProfilingRuntime

from ...context import Context
from ...insides import operators_of
from ...recipe import Recipe, Ref
from ...trial import words
from ..base import Broken, Case, NotApplicable, Rule
from ..kinds import calls_of, kinds, lower_kind
from ..quantized_operators import other_targets
from ..specimens import (
    SPECIMENS,
    Sample,
    backend_of,
    compiles,
    delegates,
    lower,
    partitions,
    preprocess,
    recipe_of,
    runs,
    sample,
    take_down,
    taken,
    tensor_of,
)
from ..traced import untrue

#: Calls of which the least time of each operator counts.
_CALLS = 5
#: An operator hundreds of times as large as any other takes at least this many times as long as each of them.
_SLOWER = 2.0
#: The least share of a call that its operators account for, where one of them is nearly all of the work.
_SHARE = 0.02
#: Clock rates that a device may have, in Hz.
_CLOCKS = (1e6, 2e10)
#: Multiplications in a second that no device reaches, and that the slowest one does.
_RATES = (1e4, 1e16)
_WIDE, _NARROW = 640, 8


# -- programs with one large operator ----------------------------------------------------------------------------------


def large_at(place: int) -> Recipe:
    """Three products of matrices one after the other, of which the one at `place` (0, 1, 2) is by far the largest.

    The others are at the narrow end: their share of the multiplications is a hundredth at most.
    """
    sizes = {0: (_WIDE, _WIDE, _NARROW, _NARROW), 1: (_NARROW, _WIDE, _WIDE, _NARROW)}.get(
        place, (_NARROW, _NARROW, _WIDE, _WIDE)
    )
    tensors = {"x": tensor_of(128, sizes[0])}
    steps: list[tuple[Any, ...]] = []
    last = "x"
    for number, (before, after) in enumerate(itertools.pairwise(sizes)):
        tensors[f"w{number}"] = tensor_of(after, before, constant=True, seed=number + 1)
        steps.append((f"l{number}", "aten.linear.default", Ref(last), Ref(f"w{number}")))
        last = f"l{number}"
    return recipe_of(tensors, *steps, reduction_length=_WIDE, depth=3)


@dataclass(frozen=True)
class _Times:
    """The least times of the operators of one delegate, in order, and of the calls."""

    names: Sequence[str]
    keys: Sequence[Any]
    seconds: Sequence[float]
    #: Of whole calls: those that were profiled, one by one with the sum of their operators, and the least of others.
    calls: Sequence[tuple[float, float]]
    plain: float


def _whole(recipe: Recipe, context: Context) -> tuple[Sample, Delegate, Any]:
    """The delegate that has all of a program, with its partition. Raises NotApplicable if it is not one."""
    try:
        program = lower(recipe, context)
    except Exception as error:
        raise NotApplicable(f"the program cannot be lowered: {words(error)}") from error
    found = delegates(program, context.backend)
    if len(found) != 1 or len(program.methods["forward"].steps) != 1:
        raise NotApplicable("the backend does not take the whole program as one delegate")
    (item,) = take_down("a large operator", recipe, program, context)
    return item, found[0], partitions(program, context.backend)[0][0]


def _times(item: Sample, context: Context) -> _Times:
    runtime = runs(context).create_runtime()
    if not isinstance(runtime, ProfilingRuntime):
        raise NotApplicable("the runtime does not report operator times")
    handle = runtime.init(item.payload)
    try:
        inputs = [tensor.clone() for tensor in item.inputs]
        plain, calls, rows = [], [], []
        for _ in range(_CALLS):
            start = time.perf_counter()
            runtime.execute(handle, inputs, item.blank())
            middle = time.perf_counter()
            rows.append(list(operator_times(runtime, handle, inputs, item.blank())))
            plain.append(middle - start)
            calls.append((time.perf_counter() - middle, sum(row.seconds for row in rows[-1])))
    finally:
        runtime.destroy(handle)
    kinds = {tuple((row.name, row.key) for row in call) for call in rows}
    if len(kinds) != 1:
        raise Broken("two profiled calls with the same inputs report other operators, or in another order")
    if not rows[0]:
        raise NotApplicable("the runtime reports no operator of this delegate")
    seconds = [min(call[index].seconds for call in rows) for index in range(len(rows[0]))]
    return _Times([row.name for row in rows[0]], [row.key for row in rows[0]], seconds, calls, min(plain))


def times_add_up(context: Context) -> str:
    """The times of operators are seconds: together no more than their call, and not a tiny part of it."""
    item, _, _ = _whole(large_at(1), context)
    found = _times(item, context)
    for whole, parts in found.calls:
        if parts > whole * 1.01 + 1e-4:
            raise Broken(f"the operators of a call take {parts:.3g} s together, and the call {whole:.3g} s")
    parts = sum(found.seconds)
    if not backend_of(context).description.isolated_runtime and parts < _SHARE * found.plain:
        raise Broken(
            f"the operators of a call take {parts:.3g} s together, though it takes {found.plain:.3g} s at least"
        )
    return f"{parts:.3g} of {found.plain:.3g} s"


def largest_is_slowest(context: Context) -> str:
    """If one operator has nearly all of the work, it is reported as the slowest, by its debug handle."""
    said = []
    for place in range(3):
        item, delegate, partition = _whole(large_at(place), context)
        found = _times(item, context)
        told = _of_products(found, delegate, partition)
        if told is None:
            told = list(found.seconds) if len(found.seconds) == 3 else None
        if told is None:
            raise NotApplicable("the reported operators cannot be traced to those of the program")
        if any(seconds * _SLOWER > told[place] for index, seconds in enumerate(told) if index != place):
            shown = ", ".join(f"{seconds:.3g} s" for seconds in told)
            raise Broken(
                f"of three products, number {place + 1} is a hundred times as large as the others; reported, by their "
                f"debug handles: {shown}"
            )
        said.append(f"{told[place]:.3g} s")
    return ", ".join(said)


def _of_products(found: _Times, delegate: PreprocessResult | Delegate, partition: Any) -> list[float] | None:
    """The seconds of each of the three products, with all pieces of it; None if there are no debug handles of them."""
    nodes = [node for node in partition.exported_program.graph.nodes if node.op == "call_function"]
    names = [operator_name(node) for node in nodes]
    products = [node for node, name in zip(nodes, names, strict=True) if "linear" in name or "mm" in name]
    if len(products) != 3:
        return None
    handles = [node.meta.get("debug_handle") for node in products]
    told = [0.0, 0.0, 0.0]
    traced = 0
    for key, seconds in zip(found.keys, found.seconds, strict=True):
        of = delegate.debug_handle_map.get(key, ()) if key is not None else ()
        mine = [index for index, handle in enumerate(handles) if handle in of]
        if len(mine) == 1:
            told[mine[0]] += seconds
            traced += 1
    return told if traced else None


def handles_are_those_of_the_operators(context: Context) -> str:
    """In a program of each kind, the times of a delegate have the debug handles of its own operators."""
    runtime = runs(context).create_runtime()
    if not isinstance(runtime, ProfilingRuntime):
        raise NotApplicable("the runtime does not report operator times")
    told = []
    for kind in kinds(context):
        try:
            program = lower_kind(kind, context)
            wrong = untrue(program, calls_of(kind), context)
        except Exception:  # other rooms report it
            continue
        if wrong:
            raise Broken(f"{kind.describe()}: {wrong}")
        told.append(kind.describe())
    if not told:
        raise NotApplicable("the backend runs no program of any kind")
    return f"{len(told)} programs"


# -- estimates ---------------------------------------------------------------------------------------------------------


def _layer(rows: int, width: int = 64) -> Recipe:
    tensors = {"x": tensor_of(rows, width), "w": tensor_of(width, width, constant=True, seed=1)}
    return recipe_of(tensors, ("l", "aten.linear.default", Ref("x"), Ref("w")), reduction_length=width)


def _integer_layer(rows: int, width: int = 64) -> Recipe:
    """The same on int8, for backends that take nothing else."""
    import torch

    kind, ends = "quantized_decomposed", (-128, 127, torch.int8)
    tensors = {
        "x": tensor_of(rows, width, dtype="int8", values=("integers", -100, 100)),
        "w": tensor_of(width, width, dtype="int8", values=("integers", -127, 127), constant=True, seed=1),
    }
    return recipe_of(
        tensors,
        ("xf", f"{kind}.dequantize_per_tensor.default", Ref("x"), 1 / 64, 0, *ends),
        ("wf", f"{kind}.dequantize_per_tensor.default", Ref("w"), 1 / 64, 0, *ends),
        ("l", "aten.linear.default", Ref("xf"), Ref("wf")),
        ("lq", f"{kind}.quantize_per_tensor.default", Ref("l"), 1 / 4, 0, *ends),
        reduction_length=width,
    )


def _estimate(recipe: Recipe, context: Context) -> Estimate | None:
    """The estimate of the delegate that has the layer; None if there is none."""
    try:
        program = lower(recipe, context)
    except Exception:
        return None
    found = delegates(program, context.backend)
    told = [preprocess(partition, context).estimate for partition, _ in partitions(program, context.backend)]
    return told[0] if len(found) == 1 else None


def estimates_grow(context: Context) -> str:
    """Estimates follow the work: twice the batch is twice the products and more time; weights and results need bytes.

    The same holds for the last of the other targets, which may have other memories.
    """
    compiles(context)
    chosen = [context, *(context.beside(dict(options)) for options in other_targets(context)[-1:])]
    told = [said for said in map(_grown, chosen) if said]
    if not told:
        raise NotApplicable("the backend estimates nothing of a linear layer")
    return "; ".join(told)


def _grown(context: Context) -> str:
    """Estimates of a layer and of one with twice the batch; nothing if the backend gives none."""
    for build, size in ((_layer, 2), (_integer_layer, 1)):  # bytes of a number, at least
        small, large = _estimate(build(128), context), _estimate(build(256), context)
        if small is None or large is None:
            continue
        _check_growth(small, large)
        stored = sum(small.storage.values())
        needed = 64 * 64 * size // 2
        if small.storage and stored < needed:
            raise Broken(f"it estimates {stored} bytes that a layer keeps; its weights alone need {needed}, compressed")
        used = sum(large.memory.values())
        needed = 256 * 64 * size
        if large.memory and used < needed:
            raise Broken(f"it estimates {used} bytes of memory for a layer; its results alone are {needed} bytes")
        _check_units(small)
        return f"{small.latency} s and {large.latency} s, {stored} bytes"
    return ""


def _check_growth(small: Estimate, large: Estimate) -> None:
    if small.macs and large.macs and not 1.6 <= large.macs / small.macs <= 2.5:
        raise Broken(f"twice the batch changes the estimated multiplications from {small.macs} to {large.macs}")
    for name in ("latency", "cycles"):
        before, after = getattr(small, name), getattr(large, name)
        if before is not None and after is not None and not before * 1.05 <= after <= 4 * before:
            raise Broken(f"twice the batch changes the estimated {name} from {before} to {after}")
    for name, size in small.storage.items():
        if large.storage.get(name, size) > 2.5 * size + 4096:
            raise Broken(f"twice the batch changes what is kept in {name} from {size} to {large.storage[name]} bytes")


def _check_units(told: Estimate) -> None:
    if not told.latency:
        return
    if told.cycles and not _CLOCKS[0] <= told.cycles / told.latency <= _CLOCKS[1]:
        raise Broken(f"{told.cycles} cycles in {told.latency} s are a clock of {told.cycles / told.latency:.3g} Hz")
    if told.macs and not _RATES[0] <= told.macs / told.latency <= _RATES[1]:
        raise Broken(f"{told.macs} multiplications in {told.latency} s are no device's: times are seconds")
    parts = sum(layer.latency for layer in told.layers)
    if told.layers and not 0.1 * told.latency <= parts <= 10 * told.latency:
        raise Broken(f"the steps take {parts:.3g} s together, and all of them {told.latency:.3g} s")


# -- what is in a blob -------------------------------------------------------------------------------------------------


def _chain(operators: Sequence[str]) -> Recipe:
    steps, last = [], "x"
    for number, operator in enumerate(operators):
        name = f"s{number}"
        arguments = (Ref("y"),) if operator.endswith("Tensor") else ()
        steps.append((name, operator, Ref(last), *arguments))
        last = name
    return recipe_of({"x": tensor_of(6, 10), "y": tensor_of(6, 10, seed=1)}, *steps, depth=len(operators))


_MUL, _SUB, _SIGMOID, _TANH = "aten.mul.Tensor", "aten.sub.Tensor", "aten.sigmoid.default", "aten.tanh.default"


def blob_operators_are_those_lowered(context: Context) -> str:
    """The reported operators of a blob are those lowered: more for a longer program, others for another one."""
    backend = compiles(context)
    if not backend.has("blob_operators"):
        raise NotApplicable("the plugin has no hook blob_operators")
    short = _told((_MUL, _SIGMOID), context)
    long = _told((_MUL, _SIGMOID, _SUB, _TANH, _MUL, _SIGMOID), context)
    if short is None or long is None:
        raise NotApplicable("the backend does not take a chain of products, differences and functions as one delegate")
    if len(long) <= len(short):
        raise Broken(f"a program of 2 operators has {len(short)} in its blob, one of 6 operators {len(long)}")
    other = _told((_SUB, _TANH), context)
    if other is not None and _kinds(other) == _kinds(short):
        raise Broken(
            f"two programs without a common operator have the same reported operators: {', '.join(_kinds(short))}"
        )
    unread = [name for operator in long[:-1] for name in operator.makes]
    read = {name for operator in long for name in operator.reads}
    lost = [name for name in unread if name not in read]
    if len(lost) > 2:
        raise Broken(f"of a chain, in which each operator reads the one before, nothing reads {', '.join(lost[:4])}")
    return f"{len(short)}, {len(long)} operators"


def _told(operators: Sequence[str], context: Context) -> Sequence[Any] | None:
    """The reported operators of the blob of a chain; None if the chain is not one delegate."""
    try:
        program = lower(_chain(operators), context)
    except Exception:
        return None
    found = delegates(program, context.backend)
    if len(found) != 1 or len(program.methods["forward"].steps) != 1:
        return None
    try:
        return operators_of(found[0])
    except DelegateKitError as error:
        raise Broken(f"the operators of a sound blob cannot be reported: {words(error)}") from error


def _kinds(operators: Sequence[Any]) -> list[str]:
    """Names with their facts, which distinguish operators of one class."""
    return sorted(f"{operator.name} {sorted(operator.facts.items())}" for operator in operators)


# -- availability ------------------------------------------------------------------------------------------------------


def availability_is_true(context: Context) -> str:
    """A compiler and a runtime reported as available work, and those reported as missing do not."""
    backend = compiles(context)
    compiler = backend.compiler_availability(backend.make_options(context.options))
    try:
        compiled = bool(taken(context))
    except NotApplicable as reason:
        if "fails" not in str(reason):
            raise
        if compiler.available:
            raise Broken(f"the compiler is said to be available, but nothing can be compiled: {reason}") from None
        compiled = False
    if compiled and not compiler.available:
        raise Broken(f"the compiler is said to be missing ({compiler.reason}), but it compiles")
    runtime = backend.runtime_availability()
    if compiled and backend.has("create_runtime"):
        _check_runtime(runtime.available, runtime.reason, context)
    return f"compiler {'available' if compiler.available else 'missing'}, runtime " + (
        "available" if runtime.available else "missing"
    )


def _check_runtime(available: bool, reason: str, context: Context) -> None:
    """Run something, even if it is reported as missing."""
    name = next(iter(taken(context)))
    if available:
        try:
            sample(name, context)
        except NotApplicable:
            return
        except Exception as error:
            raise Broken(f"the runtime is said to be available, but cannot run {name}: {words(error)}") from error
        return
    try:
        program = lower(SPECIMENS[name], context)
        found = [_Here(backend_of(context))]
        loaded = _load(program.buffer, found)
        loaded["forward"].run(SPECIMENS[name].inputs())
    except Exception:
        return
    raise Broken(f"the runtime is said to be missing ({reason}), but it runs {name}")


class _Here:
    """A backend that is reported as available."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def runtime_availability(self) -> Any:
        from delegatekit_api import Availability

        return Availability(True)


def _load(data: bytes, found: Sequence[Any]) -> Any:
    import delegatekit

    return delegatekit.load(data, find_backend=lambda _: found[0])


def versions_stay(context: Context) -> str:
    """The compiler's version is a short text, and the same each time it is asked."""
    backend = compiles(context)
    options = backend.make_options(context.options)
    first, second = backend.compiler_version(options), backend.compiler_version(options)
    if first is None:
        raise NotApplicable("the plugin does not report the version of its compiler")
    if first != second:
        raise Broken(f"the version of its compiler is {first!r}, and then {second!r}")
    if not first.strip() or not first.isprintable():
        raise Broken(f"the version of its compiler is {first!r}")
    return first[:80]


def cases() -> Iterator[Case]:
    """The rules."""
    yield Rule("declared/times-add-up", times_add_up, cost=2.0)
    yield Rule("declared/the-largest-is-the-slowest", largest_is_slowest, cost=4.0)
    yield Rule("declared/handles-are-those-of-the-operators", handles_are_those_of_the_operators, cost=3.0)
    yield Rule("declared/estimates-grow", estimates_grow, cost=2.0)
    yield Rule("declared/blob-operators-are-those-lowered", blob_operators_are_those_lowered, cost=2.0)
    yield Rule("declared/availability-is-true", availability_is_true, cost=2.0)
    yield Rule("declared/versions-stay", versions_stay)
