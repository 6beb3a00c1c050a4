"""Executes blobs in this process, with PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch

from delegatekit_api import Availability, DelegatePayload, ExecutionError
from delegatekit_api.profiling import OperatorTime
from delegatekit_toolkit.content import load_constant
from delegatekit_toolkit.interpreting import InterpretingRuntime
from delegatekit_toolkit.signature import Signature, aligned, check_call, check_payload, check_tensors, store_results

from ..blob import SEAL, read_blob
from ..ir.graph import Graph
from .interpreter import Interpreter

_WHERE: Final = "ReferenceBackend"


@dataclass
class Handle:
    """A loaded delegate; without interpreter after it was destroyed."""

    signature: Signature
    interpreter: Interpreter | None


class ReferenceRuntime(InterpretingRuntime[Handle]):
    """A `DelegateRuntime` on PyTorch. Subclasses may replace `interpreter`, which makes a graph runnable."""

    def is_available(self) -> Availability:
        """Always: it needs nothing but PyTorch."""
        return Availability(True)

    def init(self, payload: DelegatePayload) -> Handle:
        """Check the blob and its constants, bit for bit. Raises FormatError."""
        graph = read_blob(payload.blob)
        check_payload(payload, graph.signature, SEAL.name)
        constants = [
            load_constant(payload.named_data, item.key, item.dtype, item.shape, where=SEAL.name)
            for item in graph.constants
        ]
        # The program's largest call may be smaller than the blob's.
        outputs = Signature.of_payload(payload).outputs
        return Handle(Signature(graph.inputs, outputs), self.interpreter(graph, constants))

    def interpreter(self, graph: Graph, constants: Sequence[torch.Tensor]) -> Interpreter:
        """The interpreter of a graph."""
        return Interpreter(graph, constants)

    def run(
        self,
        handle: Handle,
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
        times: list[OperatorTime] | None,
    ) -> None:
        """Run once with this call's sizes; append what each operator took to `times`. Raises ExecutionError."""
        if handle.interpreter is None:
            raise ExecutionError("was destroyed", where=_WHERE)
        sizes = check_call(handle.signature, inputs, outputs, _WHERE)
        results = handle.interpreter.run([aligned(tensor) for tensor in inputs], times)
        check_tensors("result", handle.interpreter.graph.results, results, sizes, _WHERE)
        store_results(outputs, results)

    def destroy(self, handle: Handle) -> None:
        """Release the delegate; calling twice is harmless."""
        handle.interpreter = None
