"""Executes blobs in this process, with PyTorch."""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import torch

from delegatekit_api import Availability, DelegatePayload, ExecutionError, FormatError, TensorSpec

from .blob import read_blob
from .graph import Constant, Graph, Range, Tensor
from .interpreter import Interpreter

_WHERE: Final = "ReferenceBackend"


@dataclass
class Handle:
    """A loaded delegate; without interpreter once it was destroyed."""

    graph: Graph
    interpreter: Interpreter | None
    outputs: tuple[TensorSpec, ...]


class ReferenceRuntime:
    """A `DelegateRuntime` on PyTorch. Subclasses may replace `interpreter`, which makes a graph runnable."""

    def is_available(self) -> Availability:
        """Always: it needs nothing but PyTorch."""
        return Availability(True)

    def init(self, payload: DelegatePayload) -> Handle:
        """Check the blob and its constants, bit for bit. Raises FormatError."""
        graph = read_blob(payload.blob)
        _agree("input", graph.inputs, payload.inputs)
        _agree("output", graph.results, payload.outputs)
        constants = [_load(constant, payload.named_data) for constant in graph.constants]
        return Handle(graph, self.interpreter(graph, constants), payload.outputs)

    def interpreter(self, graph: Graph, constants: Sequence[torch.Tensor]) -> Interpreter:
        """What runs a graph."""
        return Interpreter(graph, constants)

    def execute(self, handle: Handle, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
        """Run once with this call's sizes and write the results into `outputs`. Raises ExecutionError."""
        if handle.interpreter is None:
            raise ExecutionError("was destroyed", where=_WHERE)
        sizes: dict[int, int] = {}
        _check_all("input", handle.graph.inputs, inputs, sizes)
        if len(outputs) != len(handle.outputs):
            _fail(f"is called with {len(outputs)} outputs: it has {len(handle.outputs)}")
        for number, (output, spec) in enumerate(zip(outputs, handle.outputs, strict=True)):
            if _name(output.dtype) != spec.dtype or tuple(output.shape) != spec.shape:
                _fail(f"output {number} is {_name(output.dtype)} {tuple(output.shape)}, not {spec.dtype} {spec.shape}")
        results = handle.interpreter.run(inputs)
        _check_all("result", handle.graph.results, results, sizes)
        for output, result in zip(outputs, results, strict=True):
            if output.shape != result.shape:
                # Only sizes that change from call to call differ, and they are within their bounds.
                output.resize_(result.shape)
            output.copy_(result)

    def destroy(self, handle: Handle) -> None:
        """Release the delegate; twice is harmless."""
        handle.interpreter = None


def _fail(what: str) -> None:
    raise ExecutionError(what, where=_WHERE)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _agree(what: str, wanted: Sequence[Tensor], given: Sequence[TensorSpec]) -> None:
    """Raise FormatError unless the program calls the delegate with what the blob was made for."""
    where = "reference blob"
    if len(wanted) != len(given):
        raise FormatError(f"has {len(wanted)} {what}s, the program calls it with {len(given)}", where=where)
    for number, (tensor, spec) in enumerate(zip(wanted, given, strict=True)):
        fits = len(tensor.shape) == len(spec.shape) and all(
            size.low <= most <= size.high and spec.dynamic if isinstance(size, Range) else size == most
            for size, most in zip(tensor.shape, spec.shape, strict=True)
        )
        if tensor.dtype != spec.dtype or not fits:
            raise FormatError(
                f"{what} {number} is {tensor.dtype} {_shape(tensor)}, in the program {spec.dtype} {spec.shape}",
                where=where,
            )


def _check_all(what: str, wanted: Sequence[Tensor], given: Sequence[object], sizes: dict[int, int]) -> None:
    """Raise ExecutionError unless the tensors are as described. `sizes` collects the sizes of this call by symbol."""
    if len(wanted) != len(given):
        _fail(f"is called with {len(given)} {what}s: it has {len(wanted)}")
    for number, (tensor, value) in enumerate(zip(wanted, given, strict=True)):
        if not isinstance(value, torch.Tensor) or value.device.type != "cpu":
            _fail(f"{what} {number} is no CPU tensor")
        elif _name(value.dtype) != tensor.dtype or not _fits(value.shape, tensor.shape, sizes):
            found = f"{_name(value.dtype)} {tuple(value.shape)}"
            _fail(f"{what} {number} is {found}, not {tensor.dtype} {_shape(tensor)}")


def _fits(shape: Sequence[int], wanted: Sequence[int | Range], sizes: dict[int, int]) -> bool:
    if len(shape) != len(wanted):
        return False
    for size, want in zip(shape, wanted, strict=True):
        if isinstance(want, Range):
            if not want.low <= size <= want.high or sizes.setdefault(want.symbol, size) != size:
                return False
        elif size != want:
            return False
    return True


def _shape(tensor: Tensor) -> str:
    sizes = [
        f"s{size.symbol}={size.low}..{size.high}" if isinstance(size, Range) else str(size) for size in tensor.shape
    ]
    return f"({', '.join(sizes)})"


def _load(constant: Constant, named_data: Mapping[str, memoryview]) -> torch.Tensor:
    """The constant on the file's own memory, after a look at every byte of it. Raises FormatError."""
    dtype: torch.dtype = getattr(torch, constant.dtype)
    size = math.prod(constant.shape) * dtype.itemsize
    if not size:
        return torch.empty(constant.shape, dtype=dtype)
    data = named_data.get(constant.key)
    if data is None:
        raise FormatError(f"the file has no data {constant.key!r:.80}", where="reference blob")
    if data.nbytes != size:
        raise FormatError(f"has {data.nbytes} bytes instead of {size}", where=f"named data {constant.key}")
    if hashlib.sha256(data).hexdigest() != constant.key:
        raise FormatError("is damaged: the checksum is wrong", where=f"named data {constant.key}")
    with warnings.catch_warnings():
        # The memory is read-only: no operator of the list writes.
        warnings.filterwarnings("ignore", message="The given buffer is not writable")
        tensor = torch.frombuffer(data, dtype=torch.uint8)
        if tensor.data_ptr() % dtype.itemsize:
            tensor = tensor.clone()
        return tensor.view(dtype).reshape(constant.shape)
