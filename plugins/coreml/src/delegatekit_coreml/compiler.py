"""A MIL program as the files of a model, by coremltools."""

from __future__ import annotations

import importlib
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from delegatekit_api import LoweringError

from .ir.program import Feature
from .targets import Target

_EXPORTER = "coremltools.converters.mil.backend.mil.load"


def model_of(program: Any, target: Target, features: Mapping[str, Mapping[str, Feature]]) -> tuple[bytes, bytes]:
    """What coremltools makes of a program: its file, and that of its weights (empty if it has none).

    The program is written as it is, without passes over it. `features` are the inputs of each function.

    Raises LoweringError for what coremltools refuses.
    """
    exporter = importlib.import_module(_EXPORTER)
    with tempfile.TemporaryDirectory(prefix="delegatekit-coreml-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = exporter.load(program, weights_dir=folder, specification_version=target.version)
        except (AssertionError, TypeError, ValueError, NotImplementedError) as error:
            raise LoweringError(f"coremltools refuses the program: {error}", where="Core ML") from error
        file = Path(folder) / "weight.bin"
        weights = file.read_bytes() if file.exists() else b""
    described = {item.name: item.input for item in model.description.functions}
    for name, inputs in features.items():
        for item in described.get(name, model.description.input):
            _write_shapes(item.type.multiArrayType, inputs[item.name])
    return model.SerializeToString(deterministic=True), weights


def _write_shapes(array: Any, feature: Feature) -> None:
    """Shapes in their order: those of several inputs belong together, and coremltools moves the first of equal ones."""
    if feature.shapes:
        del array.enumeratedShapes.shapes[:]
        for shape in feature.shapes:
            array.enumeratedShapes.shapes.add().shape.extend(shape)
