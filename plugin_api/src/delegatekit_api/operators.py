"""Programs of runtime operators: for backends that are no delegate, but a library of operators linked to the runtime.

Such a backend has the hooks `runtime_operators` and `replace_operators` instead of `preprocess`. The core writes the
calls of its programs into the file among those of the runtime's own operators, and plans the memory of their results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, Union, runtime_checkable

from ._runtime import Availability, TensorSpec

if TYPE_CHECKING:
    import torch

__all__ = ["Argument", "OperatorCall", "OperatorProgram", "OperatorRuntime", "RuntimeNumber", "RuntimeTensor"]


@dataclass(frozen=True, eq=False)
class RuntimeTensor:
    """A tensor of an operator program: an input, a constant, a result of a call, or scratch memory of one.

    Sizes are fixed, except those of inputs and outputs: where these change from call to call, the spec has the largest,
    and is `dynamic`. A kernel resizes its result. Two are the same tensor if they are the same object.
    """

    spec: TensorSpec
    #: The elements of a constant, contiguous; they go into the file.
    data: torch.Tensor | None = None
    #: The tensor whose bytes it has under other sizes: nothing is computed. Neither a constant nor an output.
    view_of: RuntimeTensor | None = None


@dataclass(frozen=True)
class RuntimeNumber:
    """The number that an argument is in each call: the only element of an integer tensor."""

    tensor: RuntimeTensor


#: An argument of a call. A tuple has tensors or numbers of one type; a dtype is its number in ExecuTorch's ScalarType.
Argument: TypeAlias = Union["RuntimeTensor", "RuntimeNumber", bool, int, float, str, tuple[Any, ...], None]


@dataclass(frozen=True)
class OperatorCall:
    """A call of an out-variant: one of the backend's own operators, or one of the runtime's.

    >>> tensor = RuntimeTensor(TensorSpec("int8", (2, 3)))
    >>> result = RuntimeTensor(TensorSpec("int8", (3, 2)))
    >>> OperatorCall("cortex_m::transpose.out", (tensor, (1, 0)), (result,)).operator
    'cortex_m::transpose.out'
    """

    #: The full name: "cortex_m::transpose.out".
    operator: str
    #: The arguments in the order of the schema, all of them except the results.
    arguments: tuple[Argument, ...]
    results: tuple[RuntimeTensor, ...]
    #: The tensors among the arguments that are memory for this call alone, of any content.
    scratch: tuple[RuntimeTensor, ...] = ()
    #: The debug handles of the calls that it computes.
    debug_handles: tuple[int, ...] = ()


@dataclass(frozen=True)
class OperatorProgram:
    """The calls that replace a partition, in order.

    `inputs` are those of the partition's view, and `outputs` its outputs: results of calls, contiguous.
    """

    inputs: tuple[RuntimeTensor, ...]
    calls: tuple[OperatorCall, ...]
    outputs: tuple[RuntimeTensor, ...]


@runtime_checkable
class OperatorRuntime(Protocol):
    """The kernels of a backend's operators in this process: what `create_runtime` returns for such a backend."""

    def is_available(self) -> Availability:
        """The availability of the kernels in this process. Must not raise."""
        ...

    def kernel(self, operator: str) -> Callable[..., None]:
        """The kernel of an operator by its full name. Raises FormatError for one that it lacks.

        It is called with the arguments in the order of the schema, results last, and writes into these; tensors have
        their `dim_order` as strides. Several threads may call it at the same time.
        """
        ...
