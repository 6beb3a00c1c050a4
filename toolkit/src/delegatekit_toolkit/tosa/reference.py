"""Runs a TOSA file in Arm's reference model (tosa-tools, the toolkit's extra `tosa`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from delegatekit_api import Availability, ExecutionError, RuntimeUnavailableError
from delegatekit_toolkit.capture import quiet
from delegatekit_toolkit.installed import installed

from .graph import Graph
from .reader import read
from .reference_process import outputs
from .types import NUMPY_TYPES, Array

#: Without its version pins, which are older than the numpy and flatbuffers installed elsewhere.
_HINT = "pip install --no-deps tosa-tools ml_dtypes"
#: Lines that the model prints in each call.
_VERSION_WARNINGS = ("WARNING: Different TOSA spec", "WARNING: TOSA file created with version")


def installation() -> Availability:
    """Check that the reference model is installed, without loading it."""
    return installed("tosa_reference_model", "Arm's TOSA reference model", _HINT)


def availability() -> Availability:
    """Check that the reference model is installed and can be loaded."""
    try:
        import tosa_reference_model  # noqa: F401
    except ImportError as error:
        return Availability(False, f"Arm's TOSA reference model is not installed ({error}): {_HINT}")
    return Availability(True)


def run(tosa: bytes, inputs: Sequence[Array]) -> list[Array]:
    """The outputs of a TOSA file for inputs of its shapes and types, in the file's order.

    Raises RuntimeUnavailableError without tosa-tools, FormatError for a damaged file (the model itself would end the
    process), and ExecutionError for inputs that do not match or a program that the model refuses.
    """
    available = availability()
    if not available.available:
        raise RuntimeUnavailableError(available.reason)
    arrays = checked(read(tosa), inputs)
    try:
        with quiet(*_VERSION_WARNINGS):
            return outputs(bytes(tosa), arrays)
    except ValueError as error:
        raise ExecutionError(str(error), where="TOSA reference model") from error


def checked(graph: Graph, inputs: Sequence[Array]) -> list[Array]:
    """The inputs, contiguous. Raises ExecutionError if they are not those of the graph."""
    # (ascontiguousarray would add an axis to a number.)
    arrays = [np.asarray(item, order="C") for item in inputs]
    found = [(array.shape, array.dtype.newbyteorder("=")) for array in arrays]
    wanted = [(tensor.shape, NUMPY_TYPES[tensor.dtype].newbyteorder("=")) for tensor in graph.inputs]
    if found != wanted:
        given, expected = (", ".join(f"{type_}{list(shape)}" for shape, type_ in item) for item in (found, wanted))
        raise ExecutionError(f"takes {expected or 'nothing'}, not {given or 'nothing'}", where=f"graph {graph.name}")
    return arrays
