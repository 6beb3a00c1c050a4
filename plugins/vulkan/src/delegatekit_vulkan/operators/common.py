"""What lowering functions of several families share: arithmetic on tensors of the graph, and constraints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from delegatekit_api import Call, Operand
from delegatekit_toolkit.quantized import numbers_of
from delegatekit_toolkit.sizes import Size
from delegatekit_toolkit.support import Constraint

from ..ir.graph import Argument, Tensor
from ..ir.types import TEXTURE_RANK, DataType
from .program import Lower, ProgramBuilder

if TYPE_CHECKING:
    import torch

    from delegatekit_api.quantization import Quantization

#: A tensor of the graph, or a number that becomes one of its type.
Term: TypeAlias = "Tensor | float"

FLOATS: Final = ("float32", "float16")
INTEGERS: Final = ("int32", "int64")

# -- building ----------------------------------------------------------------------------------------------------------


def as_numbers(data: torch.Tensor, own: Quantization | None) -> torch.Tensor:
    """Known data, as `known_data` gives it, without integers."""
    return data if own is None else numbers_of(data, own)


def function(b: ProgramBuilder, operator: str, x: Tensor, *numbers: Argument) -> Tensor:
    """A function of each element, for tensors of any rank: those of more axes than its operator takes are viewed."""
    if x.rank <= TEXTURE_RANK:
        return b.call(operator, [x, *numbers], x.shape)
    flat = b.view(x, (flattened(x.shape[:-1]), x.shape[-1]))
    return b.view(b.call(operator, [flat, *numbers], flat.shape), x.shape)


def flattened(shape: Sequence[Size]) -> Size:
    """How many elements a shape has."""
    count: Size = 1
    for size in shape:
        count = count * size
    return count


def binary(b: ProgramBuilder, operator: str, left: Term, right: Term, *rest: Argument) -> Tensor:
    """A function of two tensors or numbers that broadcast."""
    first, second = _terms(b, left, right)
    return b.call(operator, [first, second, *rest], broadcast(first.shape, second.shape))


def _terms(b: ProgramBuilder, *terms: Term) -> list[Tensor]:
    datatype = next(item.datatype for item in terms if isinstance(item, Tensor))
    return [item if isinstance(item, Tensor) else b.scalar(item, datatype) for item in terms]


def broadcast(*shapes: Sequence[Size]) -> tuple[Size, ...]:
    """The common shape of some that PyTorch broadcasts."""
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    return tuple(next((size for size in sizes if size != 1), 1) for sizes in zip(*padded, strict=True))


def add(b: ProgramBuilder, left: Term, right: Term) -> Tensor:
    """left + right"""
    return binary(b, "aten.add.Tensor", left, right, 1)


def sub(b: ProgramBuilder, left: Term, right: Term) -> Tensor:
    """left - right"""
    return binary(b, "aten.sub.Tensor", left, right, 1)


def mul(b: ProgramBuilder, left: Term, right: Term) -> Tensor:
    """left * right"""
    return binary(b, "aten.mul.Tensor", left, right)


def div(b: ProgramBuilder, left: Term, right: Term) -> Tensor:
    """left / right"""
    return binary(b, "aten.div.Tensor", left, right)


def negative(b: ProgramBuilder, x: Tensor) -> Tensor:
    """-x; the runtime's operator is for floating-point numbers."""
    return function(b, "aten.neg.default", x) if x.datatype.is_float else sub(b, 0, x)


def clamp(b: ProgramBuilder, x: Tensor, low: float | None, high: float | None) -> Tensor:
    """x between two numbers."""
    return function(b, "aten.clamp.default", x, low, high)


def compared(b: ProgramBuilder, name: str, x: Tensor, number: float) -> Tensor:
    """x compared ("lt") with a number."""
    return b.call(f"aten.{name}.Scalar", [x, number], x.shape, DataType.BOOL)


def logical_not(b: ProgramBuilder, x: Tensor) -> Tensor:
    """not x"""
    return b.call("aten.logical_not.default", [x], x.shape)


def both(b: ProgramBuilder, left: Tensor, right: Tensor) -> Tensor:
    """left and right, of booleans"""
    return binary(b, "aten.logical_and.default", left, right)


def either(b: ProgramBuilder, left: Tensor, right: Tensor) -> Tensor:
    """left or right, of booleans"""
    return binary(b, "aten.logical_or.default", left, right)


def where(b: ProgramBuilder, condition: Tensor, left: Term, right: Term) -> Tensor:
    """One of two, of any type; the runtime's own operator is for floating-point numbers."""
    first, second = _terms(b, left, right)
    shape = broadcast(condition.shape, first.shape, second.shape)
    if first.datatype is DataType.BOOL:
        return either(b, both(b, condition, first), both(b, logical_not(b, condition), second))
    if not first.datatype.is_float:
        # Exact also where the difference leaves 32 bits: adding it comes back.
        chosen = mul(b, converted(b, condition, first.datatype), sub(b, first, second))
        return add(b, second, chosen)
    return b.call("aten.where.self", [condition, first, second], shape, first.datatype)


def converted(b: ProgramBuilder, x: Tensor, datatype: DataType) -> Tensor:
    """x in another type; itself if it has it."""
    if x.datatype is datatype:
        return x
    if datatype is DataType.BOOL:
        return compared(b, "ne", x, 0)
    return b.call("aten._to_copy.default", [x, None, None, None, None, False, None], x.shape, datatype)


def truth(b: ProgramBuilder, x: Tensor) -> Tensor:
    """Where x is not 0."""
    return converted(b, x, DataType.BOOL)


def floating(b: ProgramBuilder, call: Call, name: str = "self") -> Tensor:
    """An operand in the result's floating-point type: PyTorch takes integers, too."""
    return converted(b, b.tensor(call[name]), b.result_type(call))


def lowered_by(make: Callable[[ProgramBuilder, Tensor], Tensor]) -> Lower:
    """A function of the operand `self`, in the result's type."""

    def lower(b: ProgramBuilder, call: Call) -> Tensor:
        return make(b, floating(b, call))

    return lower


# -- constraints -------------------------------------------------------------------------------------------------------


def types(*allowed: str, of: Sequence[str] = ()) -> Constraint:
    """The named operands (or all tensors) have one of these types."""

    def check(call: Call) -> str | None:
        items = [call[name] for name in of] if of else call.tensors
        for item in items:
            if isinstance(item, Operand) and item.dtype_name not in allowed:
                return f"{item.name} is {item.dtype_name}: {words} are taken"
        return None

    words = " and ".join(filter(None, (", ".join(allowed[:-1]), allowed[-1])))
    check.__doc__ = f"{'Tensors' if not of else ' and '.join(of)}: {words}."
    return check


def flat_rank(call: Call) -> str | None:
    """Tensors with sizes that change have at most 4 axes."""
    for item in call.tensors:
        if item.is_dynamic and item.rank > TEXTURE_RANK:
            return f"{item.name} {item.shape} has {item.rank} axes and sizes that change: {TEXTURE_RANK} are taken"
    return None


def four_axes(call: Call) -> str | None:
    """At most 4 axes: the runtime keeps operands in textures."""
    for item in call.tensors:
        if item.rank > TEXTURE_RANK:
            return f"{item.name} has {item.rank} axes: the runtime takes {TEXTURE_RANK}"
    return None
