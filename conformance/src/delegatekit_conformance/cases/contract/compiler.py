"""Compilation of partitions by a backend, and its effect on them."""

from __future__ import annotations

import itertools
from contextlib import suppress
from typing import Any

from delegatekit.lowering import Delegate
from delegatekit_api import DelegateKitError, FormatError, PreprocessResult

from ...context import Context
from ...insides import bytes_of
from ...trial import words
from ..base import Broken, NotApplicable
from ..look_alikes import CHAIN
from ..specimens import (
    SPECIMENS,
    backend_of,
    compiles,
    digest,
    lower,
    lowered,
    partitions,
    preprocess,
    sample,
    taken,
)
from .prints import difference, of_program, of_view
from .rules import Rules

RULES = Rules()


@RULES.costing(5.0)
def compiles_what_it_takes(context: Context) -> str:
    """All that the partitioner takes, the compiler compiles, and the runtime, if available here, loads and runs."""
    backend = compiles(context)
    here = backend.runtime_availability().available
    names = [*SPECIMENS, *(["dynamic"] if backend.description.supports_dynamic_shapes else [])]
    done = []
    for name in names:
        doing = "be lowered"
        try:
            lowered(name, context)
            if here:
                doing = "be loaded and run"
                sample(name, context)
            done.append(name)
        except NotApplicable:
            continue
        except Exception as error:
            raise Broken(f"the program {name} cannot {doing}: {words(error)}") from error
    if not done:
        raise NotApplicable(f"the backend takes no operator of {', '.join(names)}")
    return ", ".join(done)


@RULES.add
def compiling_changes_nothing(context: Context) -> str:
    """Compiling a partition changes neither its program nor the weights."""
    tried = 0
    for name, program in taken(context).items():
        for partition, _ in partitions(program, context.backend):
            before = {**of_program(partition.exported_program), **of_view(partition.view)}
            preprocess(partition, context)
            changed = difference(before, {**of_program(partition.exported_program), **of_view(partition.view)})
            if changed:
                raise Broken(f"{name}: compiling changes {changed}")
            tried += 1
    return f"{tried} partitions"


@RULES.add
def same_bytes(context: Context) -> str:
    """Compiling the same partition twice in one process gives the same bytes, and so does lowering the program anew."""
    tried = 0
    for name, program in taken(context).items():
        for partition, delegate in partitions(program, context.backend):
            again = content(preprocess(partition, context))
            wrong = differs(content(delegate), again)
            if wrong:
                raise Broken(f"{name}: compiling the same partition twice gives different {wrong}")
            tried += 1
        if lower(SPECIMENS[name], context).buffer != program.buffer:
            raise Broken(f"{name}: lowering the program twice gives different files")
    return f"{tried} partitions"


@RULES.add
def compile_specs(context: Context) -> str:
    """Compile specs have keys that are not empty, each once."""
    sizes = []
    for name, program in taken(context).items():
        for partition, delegate in partitions(program, context.backend):
            result = preprocess(partition, context)
            keys = [spec.key for spec in result.compile_specs]
            if not all(keys):
                raise Broken(f"{name}: a compile spec's key is empty")
            if len(set(keys)) != len(keys):
                raise Broken(f"{name}: a compile spec's key appears twice: {', '.join(keys)}")
            sizes.append(delegate.blob_size)
    return f"{len(sizes)} blobs of {min(sizes)} to {max(sizes)} bytes"


@RULES.add
def named_data(context: Context) -> str:
    """Named data is not empty, and equal keys mean equal bytes, in all programs."""
    known: dict[str, tuple[str, str]] = {}
    for name, program in taken(context).items():
        for partition, _ in partitions(program, context.backend):
            for item in preprocess(partition, context).named_data:
                data = bytes_of(item.data)
                if not data:
                    raise Broken(f"{name}: the named data {item.key} is empty")
                found = digest(data)
                first = known.setdefault(item.key, (name, found))
                if first[1] != found:
                    raise Broken(f"the key {item.key!r} has other bytes in {name} than in {first[0]}")
    return f"{len(known)} keys"


@RULES.add
def debug_handles_in_order(context: Context) -> str:
    """The debug handles of consecutive operators, where they are numbers, are in the order of execution."""
    try:
        program = lower(CHAIN, context)
    except Exception as error:
        raise NotApplicable(f"the long program cannot be lowered: {words(error)}") from error
    mapped = 0
    for partition, _ in partitions(program, context.backend):
        handles = preprocess(partition, context).debug_handle_map
        found = [(key, min(value)) for key, value in handles.items() if isinstance(key, int) and value]
        for (key, handle), (after, next_handle) in itertools.pairwise(sorted(found)):
            if handle > next_handle:
                raise Broken(
                    f"in a chain of operators, {key} has the debug handle {handle} and {after}, which comes later, "
                    f"{next_handle}: they are those of other operators"
                )
        mapped += len(found)
    if not mapped:
        raise NotApplicable("the backend numbers nothing in the long program")
    return f"{mapped} operators"


@RULES.add
def estimates(context: Context) -> str:
    """Estimates are not negative, the whole is not quicker than a step of it, and they name their source."""
    found = 0
    for name, program in taken(context).items():
        for partition, _ in partitions(program, context.backend):
            estimate = preprocess(partition, context).estimate
            if estimate is None:
                continue
            latencies = [layer.latency for layer in estimate.layers]
            figures = [*estimate.memory.values(), *estimate.storage.values(), *latencies]
            figures += [figure for figure in (estimate.latency, estimate.cycles, estimate.macs) if figure is not None]
            if any(not figure >= 0 for figure in figures):
                raise Broken(f"{name}: an estimate is {min(figures)}")
            if not estimate.source.strip():
                raise Broken(f"{name}: an estimate does not say where it comes from")
            if estimate.latency is not None and max(latencies, default=0.0) > estimate.latency * 1.01:
                raise Broken(f"{name}: one step takes {max(latencies)} s, but all together {estimate.latency} s")
            found += 1
    if not found:
        raise NotApplicable("the backend estimates nothing")
    return f"{found} estimates"


@RULES.add
def debug_handles(context: Context) -> str:
    """The debug handles of a delegate's operators are those of nodes of its partition."""
    mapped = 0
    for name, program in taken(context).items():
        for partition, _ in partitions(program, context.backend):
            handles = {node.meta.get("debug_handle") for node in partition.exported_program.graph.nodes}
            for key, found in preprocess(partition, context).debug_handle_map.items():
                if not isinstance(key, int | str) or isinstance(found, int | str):
                    raise Broken(f"{name}: the debug handle map has {key!r}: {found!r}")
                strangers = [handle for handle in found if handle not in handles]
                if strangers:
                    raise Broken(f"{name}: operator {key!r} has the debug handle {strangers[0]!r}, which no node has")
                mapped += 1
    return f"{mapped} operators" if mapped else "the backend gives none"


@RULES.add
def operators_are_told(context: Context) -> str:
    """The operators of every compiled blob are reported; a truncated one is refused with a FormatError, or reported."""
    backend = backend_of(context)
    if not backend.has("blob_operators"):
        raise NotApplicable("the plugin has no hook blob_operators")
    told = 0
    for name, program in taken(context).items():
        for _, delegate in partitions(program, context.backend):
            blob = memoryview(b"".join(delegate.blob))
            named = {item.key: memoryview(bytes_of(item.data)) for item in delegate.named_data}
            try:
                # The border checks producers, and that nothing is read before it is made.
                found = backend.blob_operators(blob, delegate.compile_specs, named, "forward") or ()
                with suppress(FormatError):
                    backend.blob_operators(blob[: len(blob) // 2], delegate.compile_specs, named, "forward")
            except DelegateKitError as error:
                raise Broken(f"{name}: {words(error)}") from error
            if not any(operator.makes for operator in found):
                raise Broken(f"{name}: no operator of {len(found)} makes anything")
            told += len(found)
    return f"{told} operators"


def content(result: PreprocessResult | Delegate) -> dict[str, Any]:
    """All results of a compiler, by their names in words."""
    blob = result.blob
    parts = [blob] if isinstance(blob, bytes | bytearray | memoryview) else blob
    return {
        "blobs": b"".join(map(bytes, parts)),
        "compile specs": [(spec.key, spec.value) for spec in result.compile_specs],
        "named data": [(item.key, item.alignment, digest(bytes_of(item.data))) for item in result.named_data],
        "debug handles": sorted((str(key), tuple(value)) for key, value in result.debug_handle_map.items()),
    }


def differs(first: dict[str, Any], second: dict[str, Any]) -> str:
    """The name of the first difference of two contents; empty if there is none."""
    return next((key for key in first if first[key] != second[key]), "")
