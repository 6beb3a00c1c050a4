"""The delegate on this machine: an interpreter of the graph on MLX's arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
import torch

from delegatekit_api import Availability, DelegatePayload, ExecutionError, TensorSpec
from delegatekit_api.profiling import OperatorTime
from delegatekit_toolkit.blob import named_bytes
from delegatekit_toolkit.content import load_constant, shown
from delegatekit_toolkit.dataflow import element_count
from delegatekit_toolkit.dtypes import dtype_of
from delegatekit_toolkit.flatbuffer import Table
from delegatekit_toolkit.interpreting import InterpretingRuntime
from delegatekit_toolkit.signature import (
    Range,
    Signature,
    TensorType,
    check_call,
    check_payload,
    check_tensors,
    store_results,
)

from ..blob.container import WHERE
from ..blob.library import availability, computing, core
from ..blob.program import Constant, Program, kind_of, read_program
from ..blob.seal import check
from ..blob.types import key_of
from .functions import Machine
from .interpreter import check_operators, run_chain

#: Types that numpy lacks, as integers of the same size.
_BITS: Final = {torch.bfloat16: torch.int16}


@dataclass
class _Handle:
    """A loaded delegate."""

    program: Program
    signature: Signature
    #: Constants and buffers by their numbers; None when it is destroyed.
    tensors: dict[int, Any] | None


class MLXRuntime(InterpretingRuntime[_Handle]):
    """A `DelegateRuntime` that executes blobs with the installed MLX."""

    def is_available(self) -> Availability:
        """True if MLX of a fitting version is installed."""
        return availability()

    def init(self, payload: DelegatePayload) -> _Handle:
        """Check the blob, and run what it runs once.

        Raises FormatError, and RuntimeUnavailableError where MLX is missing.
        """
        signature = check(payload.blob, payload.compile_specs)
        program = read_program(payload.blob)
        if signature is None:
            signature = _signature(program, payload)
        check_payload(payload, signature, WHERE)
        check_operators(program)
        with computing() as library:
            machine = Machine({})
            for item in program.constants:
                machine.tensors[item.number] = _array(_constant(payload, item))
            for number, kind in program.buffers.items():
                element_count(kind.largest, WHERE, item_bytes=4, least=0)
                machine.tensors[number] = _array(torch.zeros(kind.largest, dtype=dtype_of(kind.dtype)))
            if program.first is not None:
                run_chain(program, program.first, machine)
            kept = {*program.buffers, *(item.number for item in program.constants)}
            tensors = {number: item for number, item in machine.tensors.items() if number in kept}
            library.eval(list(tensors.values()))
        return _Handle(program, signature, tensors)

    def run(
        self,
        handle: _Handle,
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
        times: list[OperatorTime] | None,
    ) -> None:
        """Run once and write the results into `outputs`. Raises ExecutionError."""
        if handle.tensors is None:
            raise ExecutionError("was destroyed", where=WHERE)
        program = handle.program
        sizes = check_call(handle.signature, inputs, outputs, WHERE)
        with computing() as library:
            machine = Machine(dict(handle.tensors))
            for number, item in zip(program.inputs, inputs, strict=True):
                machine.tensors[number] = _array(item)
            run_chain(program, program.main, machine, None if times is None else partial(_note, times))
            made = [machine.tensors[number] for number in program.outputs]
            kept = {number: machine.tensors[number] for number in program.buffers}
            try:
                library.eval([*made, *kept.values()])
                results = [_tensor(item, output.dtype) for item, output in zip(made, outputs, strict=True)]
            except (RuntimeError, ValueError, MemoryError) as error:
                raise ExecutionError(f"MLX fails: {error}", where=WHERE) from error
        check_tensors("result", handle.signature.outputs, results, sizes, WHERE)
        for number, kind in program.buffers.items():
            if tuple(kept[number].shape) != kind.shape:
                raise ExecutionError(f"buffer {number} becomes {kept[number].shape}, not {kind}", where=WHERE)
        handle.tensors.update(kept)
        store_results(outputs, results)

    def destroy(self, handle: _Handle) -> None:
        """Release the delegate; calling twice is harmless."""
        handle.tensors = None


def _note(times: list[OperatorTime], place: int, operator: Table, seconds: float) -> None:
    times.append(OperatorTime(kind_of(operator), seconds, place))


def _signature(program: Program, payload: DelegatePayload) -> Signature:
    """The signature of a blob of another maker: sizes that change have the program's bounds."""

    def bounded(kinds: Sequence[TensorType], specs: Sequence[TensorSpec]) -> tuple[TensorType, ...]:
        if len(kinds) != len(specs):
            return tuple(kinds)
        return tuple(
            replace(
                kind,
                shape=tuple(
                    replace(size, high=most) if isinstance(size, Range) and len(kind.shape) == len(spec.shape) else size
                    for size, most in zip(kind.shape, spec.shape, strict=False)
                ),
            )
            for kind, spec in zip(kinds, specs, strict=True)
        )

    return Signature(bounded(program.input_types, payload.inputs), bounded(program.output_types, payload.outputs))


def _constant(payload: DelegatePayload, item: Constant) -> torch.Tensor:
    """The data of a constant: those of ours are checked by the hash in their key."""
    dtype, shape = dtype_of(item.kind.dtype), item.kind.largest
    beginning = key_of(dtype, shape)
    if item.key.startswith(beginning):
        return load_constant(payload.named_data, item.key, item.kind.dtype, shape, prefix=beginning, where=WHERE)
    size = element_count(shape, WHERE, item_bytes=dtype.itemsize, least=0) * dtype.itemsize
    return shown(named_bytes(payload, item.key, size, WHERE), dtype, shape)


def _array(value: torch.Tensor) -> Any:
    """A tensor as an array of MLX, which copies."""
    data = value.detach().contiguous()
    if data.dtype in _BITS:
        return core().array(data.view(_BITS[data.dtype]).numpy()).view(core().bfloat16)
    return core().array(data.numpy())


def _tensor(value: Any, dtype: torch.dtype) -> torch.Tensor:
    """An array of MLX as a tensor of a type, to which it is converted, as on the device."""
    name = str(dtype).removeprefix("torch.")
    value = value.astype(getattr(core(), "bool_" if name == "bool" else name))
    if dtype in _BITS:
        return torch.from_numpy(np.array(value.view(core().int16))).view(dtype)
    return torch.from_numpy(np.array(value))
