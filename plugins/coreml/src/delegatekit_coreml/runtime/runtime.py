"""The delegate on the host: blob, program, tape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import torch

from delegatekit_api import Availability, DelegatePayload, ExecutionError, FormatError, TensorSpec
from delegatekit_api.profiling import OperatorTime
from delegatekit_toolkit.dataflow import element_count
from delegatekit_toolkit.interpreting import InterpretingRuntime
from delegatekit_toolkit.narrowing import wide_number
from delegatekit_toolkit.signature import Signature, aligned, check_call, store_results

from ..blob.reader import read_blob
from ..ir.program import Feature, TensorType
from ..ir.types import DataType
from .inference import check_types
from .preparation import prepare
from .tape import Tape

_WHERE: Final = "Core ML delegate"
#: The number of sets of sizes that are cached.
_MOST_KNOWN: Final = 256


@dataclass
class _Handle:
    """A loaded delegate."""

    tape: Tape
    signature: Signature
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    features: Mapping[str, Feature]
    closed: bool = False
    #: Sizes of earlier calls, which need no second check.
    known: set[tuple[tuple[int, ...], ...]] = field(default_factory=set)

    @property
    def is_flexible(self) -> bool:
        """True if sizes change from call to call."""
        return any(feature.is_flexible for feature in self.features.values())

    def check_sizes(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Raise ExecutionError for sizes that the program does not support."""
        key = tuple(shapes.values())
        if key in self.known:
            return
        for name, feature in self.features.items():
            if not feature.takes(shapes[name]):
                raise ExecutionError(f"{name} has the sizes {shapes[name]}, not {feature}", where=_WHERE)
        listed = [(feature.shapes, shapes[name]) for name, feature in self.features.items() if feature.shapes]
        if listed and not any(
            all(shape == given for shape, (_, given) in zip(call, listed, strict=True))
            for call in zip(*(found for found, _ in listed), strict=False)
        ):
            found = ", ".join(f"{name} {shapes[name]}" for name in shapes)
            raise ExecutionError(f"the sizes {found} do not belong together", where=_WHERE)
        try:
            check_types(self.tape, shapes)
        except FormatError as error:
            raise ExecutionError(f"cannot be called with {shapes}: {error.what}", where=error.where) from error
        if len(self.known) < _MOST_KNOWN:
            self.known.add(key)


class CoreMLRuntime(InterpretingRuntime[_Handle]):
    """A `DelegateRuntime` that executes MIL programs with PyTorch, in the precision that they declare."""

    def is_available(self) -> Availability:
        """Always: nothing else is needed."""
        return Availability(True)

    def init(self, payload: DelegatePayload) -> _Handle:
        """Check the blob and unpack its constants. Raises FormatError."""
        package, model = read_blob(payload)
        tape = prepare(model.function, len(package.model) + len(package.weights))
        features = {name: model.inputs[name] for name in package.inputs}
        for name, spec in zip(package.inputs, payload.inputs, strict=True):
            _check_input(name, features[name], tape.types[name], spec)
        for name, spec in zip(package.outputs, payload.outputs, strict=True):
            _check_output(name, tape.types[name], spec)
        check_types(tape, {name: feature.shape for name, feature in features.items()})
        return _Handle(tape, Signature.of_payload(payload), package.inputs, package.outputs, features)

    def run(
        self,
        handle: _Handle,
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
        times: list[OperatorTime] | None,
    ) -> None:
        """Run once with this call's sizes; append what each operator took to `times`. Raises ExecutionError."""
        if handle.closed:
            raise ExecutionError("was destroyed", where=_WHERE)
        check_call(handle.signature, inputs, outputs, _WHERE)
        given = {
            name: _taken(tensor, handle.tape.types[name], name)
            for name, tensor in zip(handle.inputs, inputs, strict=True)
        }
        if handle.is_flexible:
            handle.check_sizes({name: tuple(value.shape) for name, value in given.items()})
        results = handle.tape.run(given, times)
        found = []
        for name, kind, output in zip(handle.outputs, handle.signature.outputs, outputs, strict=True):
            result = results[name].reshape(()) if output.dim() == 0 else results[name]
            if any(size > most for size, most in zip(result.shape, output.shape, strict=True)):
                raise ExecutionError(
                    f"{name} has the shape {tuple(result.shape)}: {tuple(output.shape)} is the largest", where=_WHERE
                )
            if not kind.is_dynamic and result.shape != output.shape:
                raise ExecutionError(
                    f"{name} has the shape {tuple(result.shape)}, in the program {tuple(output.shape)}", where=_WHERE
                )
            found.append(result)
        store_results(outputs, found)

    def destroy(self, handle: _Handle) -> None:
        """Release the delegate; calling twice is harmless."""
        handle.closed = True
        handle.tape = Tape()


def _check_input(name: str, feature: Feature, kind: TensorType, spec: TensorSpec) -> None:
    """The caller's tensor matches the model's, and that of its function; one without axes has one there."""
    inside = len(kind.shape) == len(feature.shape) and all(
        known is None or (known == size and not changes)
        for known, size, changes in zip(kind.shape, feature.shape, feature.changes, strict=True)
    )
    if feature.datatype is not kind.datatype or not inside:
        raise FormatError(f"{name[:60]} is {feature} outside and {kind} inside", where=_WHERE)
    element_count(feature.shape, f"{_WHERE}, {name[:60]}", item_bytes=4, least=0)
    shape = tuple(spec.shape) or (1,)
    if spec.dynamic and feature.is_flexible:
        fits = len(shape) == len(feature.shape) and all(
            changes or size == usual for size, usual, changes in zip(shape, feature.shape, feature.changes, strict=True)
        )
    else:
        fits = feature.takes(shape)
    if not fits:
        raise FormatError(f"{name[:60]} is {feature}, in the program {spec.dtype} {spec.shape}", where=_WHERE)


def _check_output(name: str, kind: TensorType, spec: TensorSpec) -> None:
    """The caller's tensor matches the model's; one without axes has one there, or, as stock ExecuTorch writes it, none.

    Sizes unknown to the model are compared at run time (`run`).
    """
    shape = tuple(spec.shape) or (1,) * len(kind.shape[:1])
    fits = len(shape) == len(kind.shape) and all(
        known is None or known == size for size, known in zip(shape, kind.shape, strict=True)
    )
    if not fits:
        raise FormatError(f"{name[:60]} is {kind}, in the program {spec.dtype} {spec.shape}", where=_WHERE)


def _taken(tensor: torch.Tensor, kind: TensorType, name: str) -> torch.Tensor:
    """A caller's tensor as the model's input."""
    value = tensor.reshape(1) if tensor.dim() == 0 else tensor
    number = wide_number(value) if kind.datatype is DataType.INT32 else None
    if number is not None:
        raise ExecutionError(f"{name} has the number {number}: the device computes in 32 bits", where=_WHERE)
    if kind.datatype is DataType.FLOAT16:
        return value.to(torch.float16).to(torch.float32)
    return aligned(value.to(torch.float32 if kind.datatype.is_float else kind.datatype.torch))
