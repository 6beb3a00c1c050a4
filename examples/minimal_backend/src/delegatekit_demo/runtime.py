"""Runs a blob: each step is one PyTorch call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from delegatekit_api import Availability, DelegatePayload, ExecutionError, FormatError
from delegatekit_toolkit.content import load_constant
from delegatekit_toolkit.signature import Signature, TensorType, check_call, check_payload, check_tensors, store_results

from .blob import SEAL, Program, read_blob

_FUNCTIONS: dict[str, Callable[..., torch.Tensor]] = {"add": torch.add, "mul": torch.mul}


@dataclass
class _Handle:
    """A prepared blob; `program` is None once it is destroyed."""

    program: Program | None
    constants: list[torch.Tensor]
    signature: Signature


class DemoRuntime:
    """The `DelegateRuntime` of the demo backend."""

    def is_available(self) -> Availability:
        """Always: it needs nothing but PyTorch. A real one looks for its library or device here."""
        return Availability(True)

    def init(self, payload: DelegatePayload) -> _Handle:
        """Check the blob and load its constants. Raises FormatError for a blob that it cannot take."""
        program = read_blob(payload.blob)
        if (program.inputs, len(program.outputs)) != (len(payload.inputs), len(payload.outputs)):
            raise FormatError("is not for this call's inputs and outputs", where=SEAL.name)
        signature = Signature.of_payload(payload)
        if program.sizes:
            wanted = tuple(TensorType("float32", sizes) for sizes in program.sizes)
            check_payload(payload, Signature(wanted, signature.outputs), SEAL.name)
        constants = [
            load_constant(payload.named_data, key, "float32", shape, prefix="demo_", where=SEAL.name)
            for key, shape in program.constants
        ]
        return _Handle(program, constants, signature)

    def execute(self, handle: _Handle, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
        """Run the steps and write the results into `outputs`. Raises ExecutionError for a call that does not fit."""
        if handle.program is None:
            raise ExecutionError("was destroyed", where="DemoBackend delegate")
        check_call(handle.signature, inputs, outputs, "DemoBackend delegate")
        values = [*inputs, *handle.constants]
        for name, first, second in handle.program.steps:
            try:
                values.append(_FUNCTIONS[name](values[first], values[second]))
            except RuntimeError as error:  # the program gives other sizes than the blob was made for
                raise ExecutionError(f"cannot {name}: {error}", where="DemoBackend delegate") from error
        results = [values[number] for number in handle.program.outputs]
        check_tensors("result", handle.signature.outputs, results, {}, "DemoBackend delegate")
        store_results(outputs, results)

    def destroy(self, handle: _Handle) -> None:
        """Release the handle; twice is harmless."""
        handle.program = None
        handle.constants = []
