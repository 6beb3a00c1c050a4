"""A MIL program as the files of a package, by coremltools."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from delegatekit_api import LoweringError

from .blob.package import Package
from .targets import Target


def package_of(library: Any, program: Any, target: Target) -> Package:
    """What coremltools makes of a program: it is written as it is, without passes over it.

    Raises LoweringError for what coremltools refuses.
    """
    target_of = next(item for item in library.target if item.value == target.version)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = library.convert(
                program,
                source="milinternal",
                convert_to="mlprogram",
                minimum_deployment_target=target_of,
                compute_precision=library.precision.FLOAT32,
                pass_pipeline=library.PassPipeline.EMPTY,
                skip_model_load=True,
            )
    except (AssertionError, TypeError, ValueError, NotImplementedError) as error:
        raise LoweringError(f"coremltools refuses the program: {error}", where="Core ML") from error
    specification = model.get_spec()
    file = Path(model.weights_dir) / "weight.bin"
    return Package(
        memoryview(specification.SerializeToString(deterministic=True)),
        memoryview(file.read_bytes() if file.exists() else b""),
        tuple(item.name for item in specification.description.input),
        tuple(item.name for item in specification.description.output),
    )
