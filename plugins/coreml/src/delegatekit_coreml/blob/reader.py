"""A blob as a program, and the checks that need no execution."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from delegatekit_api import DelegatePayload, FormatError, TensorSpec
from delegatekit_toolkit.dataflow import Dataflow

from ..ir.program import Feature, Model, Name
from .model import read_model
from .package import Package, read_package
from .reference import Reference, read_reference
from .weights import WeightFile

_WHERE: Final = "Core ML blob"


def read_blob(payload: DelegatePayload) -> tuple[Package, Model]:
    """The package and the program of a delegate. Constants are views of the file's own memory.

    Raises FormatError for damage, for values without or with two sources, and for inputs and outputs that differ from
    the caller's.
    """
    package, model = read_program(payload.blob, payload.named_data)
    _check_features(package.inputs, model.inputs, payload.inputs, "input")
    _check_features(package.outputs, model.outputs, payload.outputs, "output")
    return package, model


def read_program(blob: memoryview, named_data: Mapping[str, memoryview]) -> tuple[Package, Model]:
    """As `read_blob`, if the caller's inputs and outputs are not known."""
    reference = read_reference(blob)
    if reference is None:
        package = read_package(blob)
        if package.methods:
            raise FormatError("has several methods: a reference names one of them", where=_WHERE)
        model = read_model(package.model, WeightFile(package.weights))
    else:
        package = _named(named_data, reference)
        model = read_model(package.model, WeightFile(package.weights), reference.function)
    function = model.function
    if set(function.inputs) != set(package.inputs) or set(function.outputs) != set(package.outputs):
        raise FormatError("its names are not those of the program", where=_WHERE)
    _check_flow(model)
    return package, model


def _named(named_data: Mapping[str, memoryview], reference: Reference) -> Package:
    """The package among the named data, with the names of one method."""
    archive = named_data.get(reference.key)
    if archive is None:
        raise FormatError(f"the file has no named data {reference.key!r:.120}", where=_WHERE)
    package = read_package(archive)
    names = package.methods.get(reference.function)
    if names is None:
        raise FormatError(f"has no method {reference.function!r:.60}", where=_WHERE)
    return replace(package, inputs=names.inputs, outputs=names.outputs)


def _check_features(
    names: tuple[str, ...], features: Mapping[str, Feature], specs: tuple[TensorSpec, ...], what: str
) -> None:
    if len(names) != len(specs):
        raise FormatError(f"has {len(names)} {what}s, the program calls it with {len(specs)}", where=_WHERE)
    for name in names:
        if name not in features:
            raise FormatError(f"the model has no {what} {name!r:.60}", where=_WHERE)


def _check_flow(model: Model) -> None:
    function = model.function
    flow = Dataflow([*function.inputs, *function.states], (), _WHERE)
    for operation in function.operations:
        reads = [item.name for items in operation.arguments.values() for item in items if isinstance(item, Name)]
        flow.step(reads, [name for name, _ in operation.results], operation.where)
    flow.check_outputs(function.outputs)
