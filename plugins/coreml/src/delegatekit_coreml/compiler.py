"""A MIL program as the files of a model, by coremltools."""

from __future__ import annotations

import gc
import importlib
import warnings
from collections.abc import Mapping
from typing import Any

from delegatekit_api import LoweringError
from delegatekit_toolkit.scratch import scratch
from delegatekit_toolkit.spilling import mapped

from .ir.builder import program_of
from .ir.program import Feature
from .targets import Target

_EXPORTER = "coremltools.converters.mil.backend.mil.load"
#: Constants of this many bytes justify a garbage collection, which takes a third of a second.
_MUCH = 1 << 26
#: Bytes of a message of protobuf.
_MOST_MODEL = (1 << 31) - 1


def model_of(
    functions: dict[str, Any], target: Target, features: Mapping[str, Mapping[str, Feature]]
) -> tuple[bytes, memoryview]:
    """The files that coremltools writes for a program of functions: model and weights (empty if it has none).

    The program is written without passes over it. `features` are the inputs of each function. The functions are
    consumed: without other references to them, their constants are freed when the weights are written. These stay on
    their file, which has no name any more.

    Raises LoweringError if coremltools refuses the program.
    """
    exporter = importlib.import_module(_EXPORTER)
    program = program_of(functions)
    functions.clear()
    with scratch() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = exporter.load(program, weights_dir=str(folder), specification_version=target.version)
        except (AssertionError, TypeError, ValueError, NotImplementedError) as error:
            raise LoweringError(f"coremltools refuses the program: {error}", where="Core ML") from error
        del program
        file = folder / "weight.bin"
        size = file.stat().st_size if file.exists() else 0
        if size > _MUCH:
            gc.collect()  # operations and values refer to each other
        weights = mapped(file, size).numpy().data if size else memoryview(b"")
    described = {item.name: item.input for item in model.description.functions}
    for name, inputs in features.items():
        for item in described.get(name, model.description.input):
            _write_shapes(item.type.multiArrayType, inputs[item.name])
    if model.ByteSize() > _MOST_MODEL:
        raise LoweringError(
            f"the description of the model has {model.ByteSize()} bytes: {_MOST_MODEL} are the most, without weights",
            where="Core ML",
            hint="constants of integers stand in it below target=ios18",
        )
    return model.SerializeToString(deterministic=True), weights


def _write_shapes(array: Any, feature: Feature) -> None:
    """Shapes in their order: those of several inputs correspond, and coremltools moves the first of equal ones."""
    if feature.shapes:
        del array.enumeratedShapes.shapes[:]
        for shape in feature.shapes:
            array.enumeratedShapes.shapes.add().shape.extend(shape)
