"""Verifies a compiled program on the host before it is shipped."""

from __future__ import annotations

import numpy as np

from delegatekit_api import ExecutionError, FormatError, LoweringError
from delegatekit_toolkit.tosa import reference
from delegatekit_toolkit.tosa.reader import read
from delegatekit_toolkit.tosa.types import INTEGER_RANGES, NUMPY_TYPES

from ..blob import unpack
from ..targets import Target
from .stream import Machine, NotExecutableError

_HINT = "Vela or the backend is at fault: please report it, and leave out the operators concerned"
#: Calls with numbers of the whole range, the same in each check.
_CALLS = 2


def check_commands(blob: bytes, target: Target) -> None:
    """Check that Ethos-U55 commands are valid and stay inside the program's memory; others are unchecked.

    Raises LoweringError.
    """
    if target.family != "u55":
        return
    try:
        Machine(unpack(blob))
    except NotExecutableError:
        return
    except FormatError as error:
        raise LoweringError(f"the compiled program is wrong: {error}", where=target.name, hint=_HINT) from error


def check_numbers(blob: bytes, tosa: bytes, target: Target) -> None:
    """Check that the compiled program returns, bit for bit, the results of its TOSA program in Arm's reference model.

    For an Ethos-U55 only. Raises RuntimeUnavailableError without the reference model, and LoweringError if the two
    differ or one of them cannot be run.
    """
    graph, numbers = read(tosa), np.random.default_rng(0)
    try:
        machine = Machine(unpack(blob))
        for _ in range(_CALLS):
            inputs = [
                numbers.integers(*INTEGER_RANGES[tensor.dtype], tensor.shape, NUMPY_TYPES[tensor.dtype], endpoint=True)
                for tensor in graph.inputs
            ]
            results, expected = machine.run(inputs), reference.run(tosa, inputs)
            for tensor, result, wanted in zip(graph.outputs, results, expected, strict=True):
                differing = int((result.reshape(wanted.shape) != wanted).sum())
                if differing:
                    what = f"{differing} of {wanted.size} numbers of {tensor.name} are not those of the TOSA program"
                    raise LoweringError(what, where=f"compiled for {target.name}", hint=_HINT)
    except (FormatError, ExecutionError) as error:
        raise LoweringError(f"cannot be verified: {error}", where=target.name, hint=_HINT) from error
