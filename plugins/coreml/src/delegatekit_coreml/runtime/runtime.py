"""The delegate on the host: blob, program, tape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch

from delegatekit_api import Availability, DelegatePayload, ExecutionError, FormatError, TensorSpec
from delegatekit_toolkit.dtypes import dtype_of
from delegatekit_toolkit.signature import Signature, check_call, store_results

from ..blob.reader import read_blob
from ..ir.program import TensorType
from ..ir.types import DataType
from .preparation import prepare
from .tape import Tape

_WHERE: Final = "Core ML delegate"
_INT32: Final = torch.iinfo(torch.int32)


@dataclass
class _Handle:
    """A loaded delegate."""

    tape: Tape
    signature: Signature
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    features: tuple[TensorType, ...]
    closed: bool = False


class CoreMLRuntime:
    """A `DelegateRuntime` that executes MIL programs with PyTorch, in the precision that they declare."""

    def is_available(self) -> Availability:
        """Always: nothing else is needed."""
        return Availability(True)

    def init(self, payload: DelegatePayload) -> _Handle:
        """Check the blob and unpack its constants. Raises FormatError."""
        package, model = read_blob(payload)
        tape = prepare(model.function, len(payload.blob))
        features = tuple(model.inputs[name] for name in package.inputs)
        for name, spec, feature in zip(package.inputs, payload.inputs, features, strict=True):
            _check_shape(name, tape.types[name], spec)
            if feature.datatype is not tape.types[name].datatype:
                raise FormatError(f"{name[:60]} is {feature} outside and {tape.types[name]} inside", where=_WHERE)
        for name, spec in zip(package.outputs, payload.outputs, strict=True):
            _check_shape(name, tape.types[name], spec)
        return _Handle(tape, Signature.of_payload(payload), package.inputs, package.outputs, features)

    def execute(self, handle: _Handle, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
        """Run once and write the results into `outputs`. Raises ExecutionError."""
        if handle.closed:
            raise ExecutionError("was destroyed", where=_WHERE)
        check_call(handle.signature, inputs, outputs, _WHERE)
        given = {
            name: _taken(tensor, handle.tape.types[name], name)
            for name, tensor in zip(handle.inputs, inputs, strict=True)
        }
        results = handle.tape.run(given)
        store_results(
            outputs, [results[name].reshape(output.shape) for name, output in zip(handle.outputs, outputs, strict=True)]
        )

    def destroy(self, handle: _Handle) -> None:
        """Release the delegate; twice is harmless."""
        handle.closed = True
        handle.tape = Tape()


def _check_shape(name: str, kind: TensorType, spec: TensorSpec) -> None:
    """The caller's tensor is the model's; one without axes has one there."""
    dtype_of(spec.dtype, _WHERE)
    if kind.shape != (tuple(spec.shape) or (1,)):
        raise FormatError(f"{name[:60]} is {kind}, in the program {spec.dtype} {spec.shape}", where=_WHERE)


def _taken(tensor: torch.Tensor, kind: TensorType, name: str) -> torch.Tensor:
    """A caller's tensor as the model's input."""
    value = tensor.reshape(1) if tensor.dim() == 0 else tensor
    if kind.datatype is DataType.INT32 and value.dtype is torch.int64:
        low, high = (int(item) for item in value.aminmax()) if value.numel() else (0, 0)
        if low < _INT32.min or high > _INT32.max:
            number = low if low < _INT32.min else high
            raise ExecutionError(f"{name} has the number {number}: the device computes in 32 bits", where=_WHERE)
    if kind.datatype is DataType.FLOAT16:
        return value.to(torch.float16).to(torch.float32)
    return value.to(torch.float32 if kind.datatype.is_float else kind.datatype.torch)
