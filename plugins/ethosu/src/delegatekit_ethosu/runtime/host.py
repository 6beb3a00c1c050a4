"""Runs a delegate's blob on the host: the compiled Ethos-U55 program itself, or the TOSA program it was made from."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from delegatekit_api import (
    Availability,
    DelegatePayload,
    ExecutionError,
    FormatError,
    LoweringError,
    RuntimeUnavailableError,
    TensorSpec,
)
from delegatekit_toolkit.blob import compile_spec, named_bytes
from delegatekit_toolkit.signature import Signature, check_call
from delegatekit_toolkit.tosa import reference
from delegatekit_toolkit.tosa.isolated import Isolated
from delegatekit_toolkit.tosa.reader import read
from delegatekit_toolkit.tosa.types import NUMPY_TYPES, Array
from delegatekit_toolkit.tosa.writer import write

from ..blob import DELEGATE_ID, TOSA_SPEC, Blob, tosa_key, unpack
from .stream import Machine, NotExecutableError, decompressor

if TYPE_CHECKING:
    import torch

_SIZES: Final = {"bool": 1, "int8": 1, "uint8": 1, "int16": 2, "int32": 4}
_LOG = logging.getLogger(__name__)
_Run = Callable[[Sequence[Array]], list[Array]]
_Close = Callable[[], None]


@dataclass
class _Handle:
    """A loaded delegate: its engine and the data to run it with."""

    run: _Run | None
    close: _Close
    #: "command stream" or "TOSA reference model".
    engine: str
    signature: Signature


class EthosURuntime:
    """A `DelegateRuntime` on the host.

    An Ethos-U55's command stream is executed directly. For other accelerators, whose streams are not supported here,
    the TOSA program runs in Arm's reference model, if the file contains it (the backend's option `keep_tosa`). The
    choice is logged, and recorded in a handle's `engine`.
    """

    def is_available(self) -> Availability:
        """Check that anything can be run: the decoder of compressed weights, or the reference model, is installed."""
        decoder = decompressor.availability()
        return decoder if decoder.available or not reference.availability().available else Availability(True)

    def init(self, payload: DelegatePayload) -> _Handle:
        """Load a blob.

        Raises FormatError for a damaged one, and RuntimeUnavailableError if no engine can run it.
        """
        blob = unpack(payload.blob, payload.named_data)
        _check(payload, blob)
        run, close, engine = _engine(payload, blob)
        _LOG.info("%s runs by its %s", payload.delegate_id, engine)
        decompressor.hold()
        return _Handle(run, close, engine, Signature.of_payload(payload))

    def execute(self, handle: _Handle, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
        """Run once. Raises ExecutionError."""
        if handle.run is None:
            raise ExecutionError("was destroyed", where=DELEGATE_ID)
        check_call(handle.signature, inputs, outputs, DELEGATE_ID)
        results = handle.run([tensor.numpy() for tensor in inputs])
        for output, result in zip(outputs, results, strict=True):
            target = output.numpy()
            target[...] = result.reshape(target.shape).view(target.dtype)

    def destroy(self, handle: _Handle) -> None:
        """Release a handle; calling twice is harmless."""
        if handle.run is not None:
            handle.run = None
            handle.close()
            decompressor.release()


def _engine(payload: DelegatePayload, blob: Blob) -> tuple[_Run, _Close, str]:
    """The engine for the blob, the function that closes it, and its name.

    Raises RuntimeUnavailableError with the reasons if it cannot.
    """
    # Checked even if not needed: a file is refused for its damage, not for its target.
    program = _sidecar(payload)
    try:
        machine = Machine(blob)
    except NotExecutableError as error:
        reason = str(error)
    else:
        decoder = decompressor.availability()
        if decoder.available:
            return machine.run, _nothing, "command stream"
        reason = decoder.reason
    if program is None:
        raise RuntimeUnavailableError(
            f"cannot be run here: {reason}",
            where=DELEGATE_ID,
            hint="lower with keep_tosa=True: the TOSA program then runs in Arm's reference model",
        )
    model = reference.availability()
    if not model.available:
        raise RuntimeUnavailableError(f"cannot be run here: {reason}; {model.reason}", where=DELEGATE_ID)
    return *_by_reference(program, payload), "TOSA reference model"


def _by_reference(program: memoryview, payload: DelegatePayload) -> tuple[_Run, _Close]:
    """Raises FormatError for a program that violates TOSA's rules: the model trusts it, and may crash."""
    graph = read(program)
    try:
        graph.verify()
    except LoweringError as error:
        raise FormatError(error.what, where=f"TOSA program, {error.where}") from error
    for name, tensors, specs in (("inputs", graph.inputs, payload.inputs), ("outputs", graph.outputs, payload.outputs)):
        found = [(NUMPY_TYPES[tensor.dtype].itemsize, tensor.shape) for tensor in tensors]
        _check_tensors(name, found, specs, "TOSA program")
    # Written anew, as the model reads fields of the file that were not read here; and in a process of its own, which
    # some programs crash.
    model = Isolated(write(graph))
    shapes = [tensor.shape for tensor in graph.inputs]

    def run(inputs: Sequence[Array]) -> list[Array]:
        if [value.size for value in inputs] != [*map(math.prod, shapes)]:
            raise ExecutionError(f"takes inputs of {shapes}", where="TOSA program")
        shaped = [value.reshape(shape) for value, shape in zip(inputs, shapes, strict=True)]
        return model.run(shaped)

    return run, model.close


def _nothing() -> None:
    """Close a command stream: nothing to do."""


def _sidecar(payload: DelegatePayload) -> memoryview | None:
    """The TOSA program in the file. Raises FormatError if it is named, but missing or damaged.

    Some damaged programs would crash the reference model.
    """
    spec = compile_spec(payload, TOSA_SPEC, DELEGATE_ID)
    if spec is None:
        return None
    key = spec.decode("ascii", errors="replace")
    program = named_bytes(payload, key, where=f"TOSA program of {DELEGATE_ID}")
    if tosa_key(program) != key:
        raise FormatError("the TOSA program is damaged: its hash is not its name", where=DELEGATE_ID)
    return program


def _check(payload: DelegatePayload, blob: Blob) -> None:
    """Check that the call and the blob agree in number, element size and count of inputs and outputs."""
    for name, specs, bindings in (
        ("inputs", payload.inputs, blob.inputs),
        ("outputs", payload.outputs, blob.outputs),
    ):
        found = [(binding.element_size, binding.shape) for binding in bindings]
        _check_tensors(name, found, specs, f"{DELEGATE_ID} blob")


def _check_tensors(
    name: str, found: Sequence[tuple[int, Sequence[int]]], specs: Sequence[TensorSpec], where: str
) -> None:
    """Check that tensors, given by element bytes and shape, are as large as those of the call."""
    wanted = [None if spec.dynamic else (_SIZES.get(spec.dtype), math.prod(spec.shape)) for spec in specs]
    if [(size, math.prod(shape)) for size, shape in found] == wanted:
        return
    own = ", ".join(f"{tuple(shape)} of {size} bytes" for size, shape in found)
    call = ", ".join(f"{spec.dtype} {spec.shape}" for spec in specs)
    raise FormatError(f"has the {name} [{own}], and the call [{call}]", where=where)
