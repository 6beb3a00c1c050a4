"""The backend "faulty": a sound backend with the faults that `DELEGATEKIT_FAULT` names, separated by commas.

`DELEGATEKIT_FAULT_BASE` names the sound backend that it is built on: "reference" if it is not set.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

from delegatekit_api import BackendDescription, CompileSpec, PreprocessResult, hookimpl

from .fault import Fault, all_faults, description_faults

NAMES = tuple(filter(None, os.environ.get("DELEGATEKIT_FAULT", "").split(",")))
BASE: Any = import_module(f"delegatekit_{os.environ.get('DELEGATEKIT_FAULT_BASE', 'reference')}.plugin")


@functools.cache
def _faults(part: str) -> Sequence[Fault]:
    """The seeded faults of one part of the backend."""
    known = description_faults() if part in ("describe", "options", "precision") else all_faults()
    return tuple(known[name] for name in NAMES if name in known and part in known[name].part.split(" and "))


def _part(name: str, sound: Any) -> Any:
    for fault in _faults(name):
        sound = fault.change(sound, name) if " and " in fault.part else fault.change(sound)
    return sound


@hookimpl
def describe_backend() -> BackendDescription:
    """The base's description under another name; its delegates keep their id where a stock runtime knows it."""
    base = BASE.describe_backend()
    own = "FaultyBackend" if base.delegate_id == "ReferenceBackend" else base.delegate_id
    description = replace(base, name="faulty", delegate_id=own, distribution="delegatekit-faulty", version="1.0")
    description = replace(description, options=_part("options", description.options))
    return _part("describe", description)  # type: ignore[no-any-return]


@hookimpl
def create_partitioner(options: Any) -> Any:
    """The base's partitioner."""
    return _part("partitioner", BASE.create_partitioner(options=options))


@hookimpl
def preprocess(partition: Any, options: Any) -> PreprocessResult:
    """The base's compiler."""
    return _part("preprocess", BASE.preprocess)(partition=partition, options=options)  # type: ignore[no-any-return]


@hookimpl
def compiler_version(options: Any) -> str | None:
    """The base's, if it has one."""
    return _part("version", getattr(BASE, "compiler_version", lambda options: None)(options=options))  # type: ignore[no-any-return]


@hookimpl
def quantization_schemes() -> Any:
    """The base's schemes."""
    return _part("schemes", BASE.quantization_schemes)()


@hookimpl
def compute_precision(options: Any) -> str:
    """The base's."""
    if not hasattr(BASE, "compute_precision"):
        sound = lambda options: describe_backend().compute_precision  # noqa: E731
        return _part("precision", sound)(options)  # type: ignore[no-any-return]
    return _part("precision", BASE.compute_precision)(options)  # type: ignore[no-any-return]


@hookimpl
def blob_operators(blob: memoryview) -> Any:
    """The base's."""
    return _part("operators of blobs", BASE.blob_operators)(blob)


@hookimpl
def documentation() -> Any:
    """The base's page."""
    return _part("documentation", BASE.documentation)()


@hookimpl
def targets() -> Any:
    """The base's devices, if it has any."""
    return _part("targets", getattr(BASE, "targets", tuple))()


@hookimpl
def create_runtime() -> Any:
    """The base's runtime; its interpreter computes some operators wrongly if the fault is in a call."""
    runtime, faults = _part("runtime", BASE.create_runtime()), _faults("call")
    if not faults:
        return runtime
    from delegatekit_reference.runtime import Interpreter, ReferenceRuntime

    class FaultyInterpreter(Interpreter):
        def step(self, index: int, step: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            compute = self.functions[index]
            for fault in faults:
                compute = functools.partial(_intercepted, fault, step.operator, compute)
            return compute(*args, **kwargs)

    class FaultyRuntime(ReferenceRuntime):
        def interpreter(self, graph: Any, constants: Sequence[Any]) -> Interpreter:
            return FaultyInterpreter(graph, constants)

    return FaultyRuntime()


def _intercepted(fault: Fault, operator: str, compute: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return fault.change(operator, list(args), kwargs, compute)


def with_remark(result: PreprocessResult, text: str) -> PreprocessResult:
    """One more compile spec, with a text that the runtime ignores."""
    return replace(result, compile_specs=(*result.compile_specs, CompileSpec("remark", text.encode())))


def share_constants(result: PreprocessResult) -> PreprocessResult:
    """Of several constants with the same shape and dtype, only the first is written."""
    from delegatekit_reference.blob import read_blob, write_blob

    graph = read_blob(memoryview(bytes(result.blob)))  # type: ignore[arg-type]
    first: dict[Any, Any] = {}
    constants = tuple(first.setdefault((item.dtype, item.shape), item) for item in graph.constants)
    return replace(result, blob=write_blob(replace(graph, constants=constants)))
