"""Runs a blob: each step is one PyTorch call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from delegatekit_api import Availability, DelegatePayload, ExecutionError

from .blob import Blob, read_blob

_FUNCTIONS: dict[str, Callable[..., torch.Tensor]] = {"add": torch.add, "mul": torch.mul}


@dataclass
class _Handle:
    """A prepared blob; `blob` is None once it is destroyed."""

    blob: Blob | None
    constants: list[torch.Tensor]


class DemoRuntime:
    """The `DelegateRuntime` of the demo backend."""

    def is_available(self) -> Availability:
        """Always: it needs nothing but PyTorch. A real one looks for its library or device here."""
        return Availability(True)

    def init(self, payload: DelegatePayload) -> _Handle:
        """Check the blob and load its constants. Raises FormatError for a blob that it cannot take."""
        blob = read_blob(payload.blob, payload.named_data, len(payload.inputs), len(payload.outputs))
        # Copied: the file's bytes are read-only and perhaps not aligned.
        constants = [
            torch.frombuffer(bytearray(payload.named_data[key]), dtype=torch.float32).reshape(shape)
            for key, shape in blob.constants
        ]
        return _Handle(blob, constants)

    def execute(self, handle: _Handle, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
        """Run the steps and write the results into `outputs`. Raises ExecutionError for a destroyed handle."""
        if handle.blob is None:
            raise ExecutionError("was destroyed", where="DemoBackend delegate")
        values = [*inputs, *handle.constants]
        for name, first, second in handle.blob.steps:
            values.append(_FUNCTIONS[name](values[first], values[second]))
        for output, number in zip(outputs, handle.blob.outputs, strict=True):
            output.copy_(values[number])

    def destroy(self, handle: _Handle) -> None:
        """Release the handle; twice is harmless."""
        handle.blob = None
        handle.constants = []
