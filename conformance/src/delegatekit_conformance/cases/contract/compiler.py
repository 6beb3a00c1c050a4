"""What a backend's compiler makes of partitions, and what it does to them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from delegatekit.lowering import Delegate
from delegatekit_api import CompileSpec, NamedData, PreprocessResult

from ...context import Context
from ...recipe import Recipe
from ...trial import words
from ..base import Broken, NotApplicable
from ..fresh import in_fresh_process
from ..specimens import (
    SPECIMENS,
    bits,
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
    """What the partitioner takes, the compiler compiles, and the runtime, if it is available here, loads and runs."""
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
            again = _content(preprocess(partition, context))
            wrong = _differs(_content(delegate), again)
            if wrong:
                raise Broken(f"{name}: compiling the same partition twice gives different {wrong}")
            tried += 1
        if lower(SPECIMENS[name], context).buffer != program.buffer:
            raise Broken(f"{name}: lowering the program twice gives different files")
    return f"{tried} partitions"


_LOWER = """
import hashlib
from delegatekit_conformance.cases.specimens import SPECIMENS, lower
for name in given["names"]:
    data = lower(SPECIMENS[name], given["context"]).buffer
    answer[name] = hashlib.sha256(data).hexdigest()
"""


@RULES.costing(12.0)
def same_bytes_elsewhere(context: Context) -> str:
    """Lowering in two fresh processes, in which sets are ordered differently, gives the same files."""
    names = list(taken(context))
    given = {"names": names, "context": context}
    first, second = (in_fresh_process(_LOWER, context, given, hash_seed=seed).answer for seed in (1, 4242))
    for name in names:
        if first[name] != second[name]:
            raise Broken(f"{name}: two processes with different hash seeds write different files")
    return f"{len(names)} programs"


@RULES.add
def results_are_bytes(context: Context) -> str:
    """A blob is made of bytes and not empty; compile specs have a text as key and bytes as value, each key once."""
    sizes = []
    for name, program in taken(context).items():
        for partition, delegate in partitions(program, context.backend):
            result = preprocess(partition, context)
            parts = [result.blob] if isinstance(result.blob, bytes | bytearray | memoryview) else list(result.blob)
            if not all(isinstance(part, bytes | bytearray | memoryview) for part in parts) or not any(map(len, parts)):
                raise Broken(f"{name}: the blob is {result.blob!r:.60}")
            keys = []
            for spec in result.compile_specs:
                fits = isinstance(spec, CompileSpec) and isinstance(spec.key, str) and spec.key
                if not fits or not isinstance(spec.value, bytes):
                    raise Broken(f"{name}: {spec!r:.80} is not a compile spec with a text and bytes")
                keys.append(spec.key)
            if len(set(keys)) != len(keys):
                raise Broken(f"{name}: a compile spec's key appears twice: {', '.join(keys)}")
            sizes.append(delegate.blob_size)
    return f"{len(sizes)} blobs of {min(sizes)} to {max(sizes)} bytes"


@RULES.add
def named_data(context: Context) -> str:
    """Named data has texts as keys, powers of two as alignment, and equal keys mean equal bytes, in all programs."""
    known: dict[str, tuple[str, str]] = {}
    for name, program in taken(context).items():
        for partition, _ in partitions(program, context.backend):
            for item in preprocess(partition, context).named_data:
                _check_named(name, item)
                found = digest(_bytes(item.data))
                first = known.setdefault(item.key, (name, found))
                if first[1] != found:
                    raise Broken(f"the key {item.key!r} has other bytes in {name} than in {first[0]}")
    # Other weights in the same places must not get the same keys.
    for name in taken(context):
        program = lower(_other_weights(name), context)
        for partition, _ in partitions(program, context.backend):
            for item in preprocess(partition, context).named_data:
                first = known.get(item.key, ("", digest(_bytes(item.data))))
                if first[1] != digest(_bytes(item.data)):
                    raise Broken(f"the key {item.key!r} of {first[0]} stays the same with other weights")
    return f"{len(known)} keys"


def _check_named(name: str, item: Any) -> None:
    if not isinstance(item, NamedData) or not isinstance(item.key, str) or not item.key:
        raise Broken(f"{name}: {item!r:.80} is not named data with a text as key")
    alignment = item.alignment
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise Broken(f"{name}: the alignment {alignment!r} of {item.key} is not a power of two")
    if not _bytes(item.data):
        raise Broken(f"{name}: the named data {item.key} is empty")


def _other_weights(name: str) -> Recipe:
    recipe = SPECIMENS[name]
    tensors = [
        (key, replace(tensor, seed=tensor.seed + 100) if tensor.constant else tensor) for key, tensor in recipe.tensors
    ]
    return replace(recipe, tensors=tuple(tensors))


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


def _bytes(data: Any) -> bytes:
    return bits(data) if isinstance(data, torch.Tensor) else bytes(data)


def _content(result: PreprocessResult | Delegate) -> dict[str, Any]:
    blob = result.blob
    parts = [blob] if isinstance(blob, bytes | bytearray | memoryview) else blob
    return {
        "blobs": b"".join(map(bytes, parts)),
        "compile specs": [(spec.key, spec.value) for spec in result.compile_specs],
        "named data": [(item.key, item.alignment, digest(_bytes(item.data))) for item in result.named_data],
        "debug handles": sorted((str(key), tuple(value)) for key, value in result.debug_handle_map.items()),
    }


def _differs(first: dict[str, Any], second: dict[str, Any]) -> str:
    return next((key for key in first if first[key] != second[key]), "")
