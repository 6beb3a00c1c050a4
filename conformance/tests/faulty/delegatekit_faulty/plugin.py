"""The backend "faulty": a sound backend with the one fault that `DELEGATEKIT_FAULT` names, or none."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

from delegatekit_api import BackendDescription, CompileSpec, PreprocessResult, hookimpl

from .fault import Fault, all_faults, description_faults

NAME = os.environ.get("DELEGATEKIT_FAULT", "")
BASE: Any = import_module(f"delegatekit_{'xnnpack' if NAME.startswith('xnnpack-') else 'reference'}.plugin")


@functools.cache
def _fault() -> Fault | None:
    return all_faults()[NAME] if NAME else None


def _part(name: str, sound: Any) -> Any:
    fault = _fault()
    return sound if fault is None or fault.part != name else fault.change(sound)


def _described(part: str, sound: Any) -> Any:
    fault = description_faults().get(NAME)
    return sound if fault is None or fault.part != part else fault.change(sound)


@hookimpl
def describe_backend() -> BackendDescription:
    """The base's description under another name; its delegates keep their id where a stock runtime knows it."""
    base = BASE.describe_backend()
    own = "FaultyBackend" if base.delegate_id == "ReferenceBackend" else base.delegate_id
    description = replace(base, name="faulty", delegate_id=own, distribution="delegatekit-faulty", version="1.0")
    description = replace(description, options=_described("options", description.options))
    return _described("describe", description)  # type: ignore[no-any-return]


@hookimpl
def create_partitioner(options: Any) -> Any:
    """The base's partitioner."""
    return _part("partitioner", BASE.create_partitioner(options=options))


@hookimpl
def preprocess(partition: Any, options: Any) -> PreprocessResult:
    """The base's compiler."""
    return _part("preprocess", BASE.preprocess)(partition=partition, options=options)  # type: ignore[no-any-return]


@hookimpl
def create_runtime() -> Any:
    """The base's runtime; its interpreter computes some operators wrongly if the fault is in a call."""
    fault = _fault()
    if fault is None or fault.part != "call":
        return _part("runtime", BASE.create_runtime())
    from delegatekit_reference.runtime import Interpreter, ReferenceRuntime

    class FaultyInterpreter(Interpreter):
        def step(self, index: int, step: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return fault.change(step.operator, list(args), kwargs, self.functions[index])

    class FaultyRuntime(ReferenceRuntime):
        def interpreter(self, graph: Any, constants: Sequence[Any]) -> Interpreter:
            return FaultyInterpreter(graph, constants)

    return FaultyRuntime()


def with_remark(result: PreprocessResult, text: str) -> PreprocessResult:
    """A compile spec more, with a text that the runtime does not look at."""
    return replace(result, compile_specs=(*result.compile_specs, CompileSpec("remark", text.encode())))


def share_constants(result: PreprocessResult) -> PreprocessResult:
    """Of several constants of one shape and dtype only the first is written."""
    from delegatekit_reference.blob import read_blob, write_blob

    graph = read_blob(memoryview(bytes(result.blob)))  # type: ignore[arg-type]
    first: dict[Any, Any] = {}
    constants = tuple(first.setdefault((item.dtype, item.shape), item) for item in graph.constants)
    return replace(result, blob=write_blob(replace(graph, constants=constants)))
