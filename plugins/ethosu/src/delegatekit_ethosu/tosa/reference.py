"""Runs a TOSA file in Arm's reference model (tosa-tools, the extra `reference`)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence

import numpy as np

from delegatekit_api import Availability, ExecutionError, RuntimeUnavailableError

from .graph import Graph
from .reader import read
from .types import NUMPY_TYPES, Array

_HINT = 'pip install "delegatekit-ethosu[reference]"'
#: The model prints to file descriptor 1, which belongs to the whole process: one call at a time.
_LOCK = threading.Lock()
_VERSION_WARNINGS = ("WARNING: Different TOSA spec", "WARNING: TOSA file created with version")


def availability() -> Availability:
    """Whether the reference model is installed."""
    try:
        import tosa_reference_model  # noqa: F401
    except ImportError as error:
        return Availability(False, f"Arm's TOSA reference model is not installed ({error}): {_HINT}")
    return Availability(True)


def run(tosa: bytes, inputs: Sequence[Array]) -> list[Array]:
    """The outputs of a TOSA file for inputs of its shapes and types, in the file's order.

    Raises RuntimeUnavailableError without tosa-tools, FormatError for a damaged file (the model itself would end the
    process), and ExecutionError for inputs that do not fit or a program that the model refuses.
    """
    try:
        import tosa_reference_model as model
    except ImportError as error:
        raise RuntimeUnavailableError(f"Arm's TOSA reference model is not installed: {error}", hint=_HINT) from error
    arrays = _checked(read(tosa), inputs)
    try:
        with _quiet():
            outputs, status = model.run(bytes(tosa), arrays, verbosity="NONE")
    except (ValueError, RuntimeError, TypeError) as error:
        raise ExecutionError(f"refuses to run: {error}", where="TOSA reference model") from error
    if status != model.GraphStatus.TOSA_VALID:
        raise ExecutionError(f"says {status.name}", where="TOSA reference model")
    return [np.asarray(output) for output in outputs]


def _checked(graph: Graph, inputs: Sequence[Array]) -> list[Array]:
    """The inputs, contiguous. Raises ExecutionError if they are not those of the graph."""
    # (ascontiguousarray would give a number an axis.)
    arrays = [np.asarray(item, order="C") for item in inputs]
    found = [(array.shape, array.dtype.newbyteorder("=")) for array in arrays]
    wanted = [(tensor.shape, NUMPY_TYPES[tensor.dtype].newbyteorder("=")) for tensor in graph.inputs]
    if found != wanted:
        given, expected = (", ".join(f"{type_}{list(shape)}" for shape, type_ in item) for item in (found, wanted))
        raise ExecutionError(f"takes {expected or 'nothing'}, not {given or 'nothing'}", where=f"graph {graph.name}")
    return arrays


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps warnings about versions, which the model prints in each call, out of stdout; other lines go to stderr."""
    with _LOCK, tempfile.TemporaryFile() as printed:
        _flush()
        kept = os.dup(1)
        try:
            os.dup2(printed.fileno(), 1)
            yield
        finally:
            _flush()
            os.dup2(kept, 1)
            os.close(kept)
            printed.seek(0)
            for line in printed.read().decode(errors="replace").splitlines():
                if not line.startswith(_VERSION_WARNINGS):
                    print(line, file=sys.stderr)


def _flush() -> None:
    """Write out what Python and the C library still hold back."""
    if sys.stdout is not None:
        sys.stdout.flush()
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).fflush(None)
