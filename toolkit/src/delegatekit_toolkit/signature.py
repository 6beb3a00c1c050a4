"""The signature of a delegate: dtypes and sizes of its inputs and outputs, and the checks that a runtime must make.

A backend writes a `Signature` into its blob. Its runtime compares it with the program's (`check_payload`), each call's
tensors with it (`check_call`), and stores the results (`store_results`). Without one in the blob, the program's is
used: `Signature.of_payload(payload)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from delegatekit_api import DelegatePayload, ExecutionError, FormatError, TensorSpec
from delegatekit_api.versions import moved

from .dtypes import dtype_name

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Range:
    """A size that changes from call to call: from `low` to `high`; sizes of one `symbol` are equal in each call.

    >>> Range(1, 8, symbol=0)
    s0=1..8
    """

    low: int
    high: int
    symbol: int

    def __repr__(self) -> str:
        return f"s{self.symbol}={self.low}..{self.high}"


#: Bytes; PyTorch's own allocator aligns tensors to multiples of this.
_ALIGNMENT: Final = 64
#: A size in a blob.
Extent: TypeAlias = int | Range


@dataclass(frozen=True)
class TensorType:
    """Dtype (torch's name) and sizes of an input or a result.

    >>> print(TensorType("float32", (Range(1, 8, 0), 3)))
    float32 (s0=1..8, 3)
    """

    dtype: str
    shape: tuple[Extent, ...]

    def __str__(self) -> str:
        return f"{self.dtype} ({', '.join(map(repr, self.shape))})"

    @property
    def largest(self) -> tuple[int, ...]:
        """The shape with the largest size on each axis.

        >>> TensorType("float32", (Range(1, 8, 0), 3)).largest
        (8, 3)
        """
        return tuple(size.high if isinstance(size, Range) else size for size in self.shape)

    @property
    def is_dynamic(self) -> bool:
        """True if a size changes from call to call."""
        return any(isinstance(size, Range) for size in self.shape)

    @property
    def spec(self) -> TensorSpec:
        """The description that the core passes to the runtime.

        >>> TensorType("float32", (Range(1, 8, 0), 3)).spec
        TensorSpec(dtype='float32', shape=(8, 3), dynamic=True)
        """
        return TensorSpec(self.dtype, self.largest, self.is_dynamic)


@dataclass(frozen=True)
class Signature:
    """The inputs and the results of a delegate, in order."""

    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]

    @classmethod
    def of_payload(cls, payload: DelegatePayload) -> Signature:
        """The program's signature: a tensor that is `dynamic` may be smaller on any axis."""
        count = 0

        def described(spec: TensorSpec) -> TensorType:
            nonlocal count
            shape: list[Extent] = []
            for size in spec.shape:
                shape.append(Range(0, size, count) if spec.dynamic else size)
                count += spec.dynamic
            return TensorType(spec.dtype, tuple(shape))

        return cls(tuple(map(described, payload.inputs)), tuple(map(described, payload.outputs)))


def check_payload(payload: DelegatePayload, signature: Signature, where: str = "blob") -> None:
    """Raise FormatError unless the program's inputs and outputs match those of its blob.

    >>> wanted = Signature((TensorType("float32", (2, 3)),), ())
    >>> payload = DelegatePayload("Mine", memoryview(b""), (), (TensorSpec("float32", (2, 4)),), (), {}, bytes)
    >>> check_payload(payload, wanted, where="my blob")
    Traceback (most recent call last):
    ...
    delegatekit_api._errors.FormatError: my blob: input 0 is float32 (2, 3), in the program float32 (2, 4)
    """
    both = (("input", signature.inputs, payload.inputs), ("output", signature.outputs, payload.outputs))
    for what, wanted, given in both:
        if len(wanted) != len(given):
            raise FormatError(f"has {len(wanted)} {what}s, the program calls it with {len(given)}", where=where)
        for number, (tensor, spec) in enumerate(zip(wanted, given, strict=True)):
            fits = len(tensor.shape) == len(spec.shape) and all(
                size.low <= most <= size.high and spec.dynamic if isinstance(size, Range) else size == most
                for size, most in zip(tensor.shape, spec.shape, strict=True)
            )
            if tensor.dtype != spec.dtype or not fits:
                found = f"{spec.dtype} {spec.shape}"
                raise FormatError(f"{what} {number} is {tensor}, in the program {found}", where=where)


def check_call(
    signature: Signature, inputs: Sequence[object], outputs: Sequence[torch.Tensor], where: str = "delegate"
) -> dict[int, int]:
    """Raise ExecutionError unless a call's tensors match the signature; return the sizes of this call by symbol.

    Inputs have the sizes of the call, outputs the largest ones.

    >>> import torch
    >>> signature = Signature(*[(TensorType("float32", (Range(0, 4, 0), 3)),)] * 2)
    >>> check_call(signature, [torch.ones(2, 3)], [torch.empty(4, 3)])
    {0: 2}
    >>> check_call(signature, [torch.ones(5, 3)], [torch.empty(4, 3)], where="MyBackend")
    Traceback (most recent call last):
    ...
    delegatekit_api._errors.ExecutionError: MyBackend: input 0 is float32 (5, 3), not float32 (s0=0..4, 3)
    """
    sizes: dict[int, int] = {}
    check_tensors("input", signature.inputs, inputs, sizes, where)
    if len(outputs) != len(signature.outputs):
        raise ExecutionError(f"is called with {len(outputs)} outputs: it has {len(signature.outputs)}", where=where)
    for number, (output, tensor) in enumerate(zip(outputs, signature.outputs, strict=True)):
        found = dtype_name(output.dtype), tuple(output.shape)
        if found != (tensor.dtype, tensor.largest):
            wanted = f"{tensor.dtype} {tensor.largest}"
            raise ExecutionError(f"output {number} is {found[0]} {found[1]}, not {wanted}", where=where)
    return sizes


def check_tensors(
    what: str, wanted: Sequence[TensorType], given: Sequence[object], sizes: dict[int, int], where: str = "delegate"
) -> None:
    """Raise ExecutionError unless `given` are CPU tensors of these types; `what` names one of them in the message.

    `sizes` has the sizes of this call by symbol, and receives those that occur first here.

    >>> import torch
    >>> sizes = {0: 2}
    >>> check_tensors("result", [TensorType("float32", (Range(0, 4, 0),))], [torch.ones(3)], sizes)
    Traceback (most recent call last):
    ...
    delegatekit_api._errors.ExecutionError: delegate: result 0 is float32 (3,), not float32 (s0=0..4)
    """
    import torch

    if len(wanted) != len(given):
        raise ExecutionError(f"is called with {len(given)} {what}s: it has {len(wanted)}", where=where)
    for number, (tensor, value) in enumerate(zip(wanted, given, strict=True)):
        if not isinstance(value, torch.Tensor) or value.device.type != "cpu":
            raise ExecutionError(f"{what} {number} is not a CPU tensor", where=where)
        if dtype_name(value.dtype) != tensor.dtype or not _fits(value.shape, tensor.shape, sizes):
            found = f"{dtype_name(value.dtype)} {tuple(value.shape)}"
            raise ExecutionError(f"{what} {number} is {found}, not {tensor}", where=where)


def aligned(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor at an address aligned like PyTorch's own: some of its kernels round differently at other addresses.

    >>> import torch
    >>> x = torch.arange(20.0)
    >>> aligned(x) is x, aligned(x[1:]).data_ptr() % 64
    (True, 0)
    """
    return tensor if tensor.data_ptr() % _ALIGNMENT == 0 else tensor.clone()


def store_results(outputs: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> None:
    """Write results into the caller's outputs, which are resized to the results.

    Check the results first (`check_tensors`) if their source is not trusted.

    >>> import torch
    >>> output = torch.empty(4, 3)
    >>> store_results([output], [torch.ones(2, 3)])
    >>> output.shape
    torch.Size([2, 3])
    """
    for output, result in zip(outputs, results, strict=True):
        if output.shape != result.shape:
            output.resize_(result.shape)
        output.copy_(result)


def _fits(shape: Sequence[int], wanted: Sequence[Extent], sizes: dict[int, int]) -> bool:
    if len(shape) != len(wanted):
        return False
    for size, want in zip(shape, wanted, strict=True):
        if isinstance(want, Range):
            if not want.low <= size <= want.high or sizes.setdefault(want.symbol, size) != size:
                return False
        elif size != want:
            return False
    return True


if not TYPE_CHECKING:
    __getattr__ = moved(__name__)
