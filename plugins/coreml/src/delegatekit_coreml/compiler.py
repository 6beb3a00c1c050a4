"""A MIL program as the files of a package, by coremltools."""

from __future__ import annotations

import importlib
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from delegatekit_api import LoweringError

from .blob.package import Package
from .ir.program import Feature
from .targets import Target

_EXPORTER = "coremltools.converters.mil.backend.mil.load"


def package_of(program: Any, target: Target, features: Mapping[str, Feature]) -> Package:
    """What coremltools makes of a program: it is written as it is, without passes over it. `features` are its inputs.

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
    for item in model.description.input:
        _write_shapes(item.type.multiArrayType, features[item.name])
    return Package(
        memoryview(model.SerializeToString(deterministic=True)),
        memoryview(weights),
        tuple(item.name for item in model.description.input),
        tuple(item.name for item in model.description.output),
    )


def _write_shapes(array: Any, feature: Feature) -> None:
    """Shapes in their order: those of several inputs belong together, and coremltools moves the first of equal ones."""
    if feature.shapes:
        del array.enumeratedShapes.shapes[:]
        for shape in feature.shapes:
            array.enumeratedShapes.shapes.add().shape.extend(shape)
