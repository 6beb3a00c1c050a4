"""Runs VGF files on the host: the graph in the file, in Arm's TOSA reference model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from delegatekit_api import Availability, DelegatePayload, ExecutionError, RuntimeUnavailableError
from delegatekit_toolkit.signature import Signature, TensorType, check_call, check_payload
from delegatekit_toolkit.tosa import DType, Tensor, reference, write
from delegatekit_toolkit.tosa.isolated import POOL, Isolated

from ..blob.container import unpack
from ..blob.spirv import read_graph

if TYPE_CHECKING:
    import torch

_WHERE: Final = "VgfBackend"
_NAMES: Final = {
    DType.BOOL: "bool",
    DType.INT8: "int8",
    DType.INT16: "int16",
    DType.INT32: "int32",
    DType.FP32: "float32",
    DType.FP16: "float16",
}


@dataclass
class _Handle:
    """A loaded delegate."""

    model: Isolated | None
    signature: Signature


class VgfRuntime:
    """A `DelegateRuntime` on the host: what the file says is computed, not what it was made from."""

    def __init__(self) -> None:
        POOL.hold()

    def is_available(self) -> Availability:
        """The availability of the reference model."""
        return reference.availability()

    def init(self, payload: DelegatePayload) -> _Handle:
        """Read a file. Raises FormatError for a damaged one, RuntimeUnavailableError without the reference model."""
        graph = read_graph(unpack(payload.blob))
        signature = Signature(tuple(map(_type, graph.inputs)), tuple(map(_type, graph.outputs)))
        check_payload(payload, signature, _WHERE)
        if not (known := self.is_available()).available:
            raise RuntimeUnavailableError(known.reason, where=_WHERE)
        # In a process of its own, which some programs crash.
        return _Handle(Isolated(write(graph)), signature)

    def execute(self, handle: _Handle, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
        """Run once. Raises ExecutionError."""
        if handle.model is None:
            raise ExecutionError("was destroyed", where=_WHERE)
        check_call(handle.signature, inputs, outputs, _WHERE)
        results = handle.model.run([tensor.detach().numpy() for tensor in inputs])
        for output, result in zip(outputs, results, strict=True):
            target = output.numpy()
            target[...] = np.asarray(result).reshape(target.shape).view(target.dtype)

    def destroy(self, handle: _Handle) -> None:
        """Release a handle; calling twice is harmless."""
        if handle.model is not None:
            handle.model.close()
            handle.model = None


def _type(tensor: Tensor) -> TensorType:
    return TensorType(_NAMES.get(tensor.dtype, tensor.dtype.name), tensor.shape)
