"""Building blocks and constraints that several families share, and the dialect of the compositions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import torch

from delegatekit_api import Call, Operand
from delegatekit_toolkit.composed import Dialect, Number, Primitive
from delegatekit_toolkit.quantized import numbers_of
from delegatekit_toolkit.sizes import Size, dynamic_count
from delegatekit_toolkit.support import Constraint

from ..ir.graph import Argument, Tensor
from ..ir.stock import MAX, MEAN, MIN, SUM
from ..ir.types import TEXTURE_RANK, DataType
from .program import Lower, Made, ProgramBuilder
from .reductions import reduced

if TYPE_CHECKING:
    from delegatekit_api.schemes import Quantization

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
    """The number of elements of a shape."""
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


def looked_up(b: ProgramBuilder, x: Tensor, axis: int, indices: Tensor) -> Tensor:
    """Slices of a tensor along an axis, at indices of any shape: the runtime takes a list of them."""
    flat = b.view(indices, (flattened(indices.shape),))
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    is_bool = x.datatype is DataType.BOOL
    source = converted(b, x, DataType.INT32) if is_bool else x
    found = b.call("aten.index.Tensor", [source, (*(None,) * axis, flat)], (*before, *flat.shape, *after))
    found = compared(b, "ne", found, 0) if is_bool else found

    def numbers() -> list[Argument]:
        places = b.sizes(indices, range(indices.rank))
        return [*b.sizes(x, range(axis)), *places, *b.sizes(x, range(axis + 1, x.rank))]

    return b.view(found, (*before, *indices.shape, *after), numbers)


def concatenated(b: ProgramBuilder, parts: list[Tensor], axis: int) -> Tensor:
    """Tensors one after the other along an axis; those of many axes are joined as tensors of three."""
    shape = list(parts[0].shape)
    shape[axis] = sum((part.shape[axis] for part in parts[1:]), parts[0].shape[axis])
    if len(shape) <= TEXTURE_RANK:
        return b.call("aten.cat.default", [tuple(parts), axis], shape, parts[0].datatype)
    flat = [b.view(part, _around(part, axis)) for part in parts]
    return b.view(concatenated(b, flat, 1), shape)


def _around(x: Tensor, axis: int) -> tuple[int, int, int]:
    """The sizes before an axis as one, the axis, the sizes after it as one."""
    return math.prod(x.sizes[:axis]), x.sizes[axis], math.prod(x.sizes[axis + 1 :])


# -- compositions ------------------------------------------------------------------------------------------------------


def _one(name: str) -> Primitive[Tensor]:
    return lambda b, x, *numbers: function(b, f"aten.{name}.default", x, *numbers)


def _two(operator: str, *rest: Argument) -> Primitive[Tensor]:
    return lambda b, left, right: binary(b, operator, left, right, *rest)


def _compared(name: str) -> Primitive[Tensor]:
    """With a number, or two tensors; the runtime compares no booleans, and has no `ne` of tensors."""

    def write(b: ProgramBuilder, left: Tensor, right: Term) -> Tensor:
        if left.datatype is DataType.BOOL:
            left = converted(b, left, DataType.INT32)
        if not isinstance(right, Tensor):
            return compared(b, name, left, int(right) if isinstance(right, bool) else right)
        right = converted(b, right, left.datatype)
        operator = f"aten.{'eq' if name == 'ne' else name}.Tensor"
        result = b.call(operator, [left, right], broadcast(left.shape, right.shape), DataType.BOOL)
        return logical_not(b, result) if name == "ne" else result

    return write


def _relu(b: ProgramBuilder, x: Tensor) -> Tensor:
    return function(b, "aten.relu.default", x) if x.datatype.is_float else clamp(b, x, 0, None)


def _absolute(b: ProgramBuilder, x: Tensor) -> Tensor:
    return function(b, "aten.abs.default", x) if x.datatype.is_float else _larger(b, x, sub(b, 0, x))


def _sign(b: ProgramBuilder, x: Tensor) -> Tensor:
    if not x.datatype.is_float:
        return clamp(b, x, -1, 1)
    above = where(b, compared(b, "gt", x, 0), 1, b.scalar(0, x.datatype))
    return where(b, compared(b, "lt", x, 0), -1, above)


def _smaller(b: ProgramBuilder, left: Tensor, right: Term) -> Tensor:
    if not isinstance(right, Tensor):
        return clamp(b, left, None, right)
    return binary(b, "aten.minimum.default", left, right)


def _larger(b: ProgramBuilder, left: Tensor, right: Term) -> Tensor:
    """The runtime has the minimum only."""
    if not isinstance(right, Tensor):
        return clamp(b, left, right, None)
    return _reversed(b, _smaller(b, _reversed(b, left), _reversed(b, right)))


def _reversed(b: ProgramBuilder, x: Tensor) -> Tensor:
    """The same numbers in the opposite order: of integers, the least of 32 bits has no negative, but -1 - x."""
    return function(b, "aten.neg.default", x) if x.datatype.is_float else sub(b, -1, x)


def _reduced(operator: str) -> Primitive[Tensor]:
    def write(b: ProgramBuilder, x: Tensor, axes: Sequence[int], keep: bool) -> Tensor:
        made = reduced(b, operator, x, axes)
        return made if keep else _dropped(b, made, axes)

    return write


def _dropped(b: ProgramBuilder, x: Tensor, axes: Sequence[int]) -> Tensor:
    shape = [size for axis, size in enumerate(x.shape) if axis not in axes]
    return b.call("aten.squeeze_copy.dims", [x, tuple(axes)], shape) if axes else x


def _inserted(b: ProgramBuilder, x: Tensor, axis: int) -> Tensor:
    return b.call("aten.unsqueeze_copy.default", [x, axis], (*x.shape[:axis], 1, *x.shape[axis:]))


def _sliced(b: ProgramBuilder, x: Tensor, axis: int, start: int, end: int) -> Tensor:
    return b.call(
        "aten.slice_copy.Tensor", [x, axis, start, end, 1], (*x.shape[:axis], end - start, *x.shape[axis + 1 :])
    )


def _places(b: ProgramBuilder, x: Tensor, axis: int) -> Tensor:
    along = torch.arange(x.sizes[axis], dtype=torch.int32).reshape([-1 if at == axis else 1 for at in range(x.rank)])
    return b.computed(b.constant(along.expand(x.sizes).contiguous()))


def _logarithm(factor: float) -> Primitive[Tensor]:
    """The runtime has the decimal one."""
    return lambda b, x: mul(b, function(b, "aten.log10.default", x), factor)


def _power(b: ProgramBuilder, left: Term, right: Term) -> Tensor:
    """By the runtime's operator for a known exponent, if there is one: some GPUs compute it for negative bases, too."""
    if isinstance(left, Tensor) and left.datatype.is_float and not isinstance(right, Tensor):
        return b.call("aten.pow.Tensor_Scalar", [left, right], left.shape)
    return binary(b, "aten.pow.Tensor_Tensor", left, right)


def _floor_divided(b: ProgramBuilder, left: Term, right: Term) -> Tensor:
    return binary(b, "aten.div.Tensor_mode", left, right, "floor")


_DIGITS: Final = {DataType.FLOAT32: 24, DataType.FLOAT16: 11, DataType.BOOL: -1}

#: The runtime's operators by the names of the compositions.
DIALECT: Final[Dialect[Tensor]] = Dialect(
    {
        **{
            name: _one(name)
            for name in (
                *("cos", "exp", "hardshrink", "hardswish", "log10", "neg", "round", "rsqrt", "sigmoid", "sin"),
                *("sqrt", "tanh"),
            )
        },
        **{name: _compared(name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
        "add": _two("aten.add.Tensor", 1),
        "sub": _two("aten.sub.Tensor", 1),
        "mul": _two("aten.mul.Tensor"),
        "div": _two("aten.div.Tensor"),
        "pow": _power,
        "exp2": lambda b, x: _power(b, 2.0, x),
        "floor": lambda b, x: _floor_divided(b, x, 1),
        "floor_divide": _floor_divided,
        "abs": _absolute,
        "sign": _sign,
        "minimum": _smaller,
        "maximum": _larger,
        "clamp": clamp,
        "relu": _relu,
        "log": _logarithm(math.log(10)),
        "log2": _logarithm(math.log2(10)),
        "truth": lambda b, x: converted(b, x, DataType.BOOL),
        "and": both,
        "or": either,
        "not": logical_not,
        "where": where,
        "slice": _sliced,
        "concat": concatenated,
        "insert": _inserted,
        "drop": _dropped,
        "places": _places,
        "integers": lambda b, x: converted(b, x, DataType.INT32),
        **{
            f"reduce_{name}": _reduced(operator)
            for name, operator in {"sum": SUM, "mean": MEAN, "max": MAX, "min": MIN}.items()
        },
    },
    lambda x: _DIGITS.get(x.datatype, 0),
)

#: Of two tensors, of which one may be a number.
add, sub, mul, div = (DIALECT.primitives[name] for name in ("add", "sub", "mul", "div"))


def number(b: ProgramBuilder, call: Call, name: str = "self") -> Number[Tensor] | float | None:
    """An argument for a composition: an operand in the result's floating-point type, a number as it is."""
    item, wanted = call[name], b.result_type(call)
    if item is None or isinstance(item, int | float):
        return item
    if isinstance(item, Operand):
        x = b.tensor(item)
        return DIALECT.number(b, converted(b, x, wanted) if wanted.is_float and name != "condition" else x)
    return DIALECT.number(b, b.term(call, name, wanted if wanted.is_float else b.tensor(call["self"]).datatype))


def composed(
    make: Callable[..., Any], operands: str = "self", arguments: str = "", *, elementwise: bool = True
) -> Lower:
    """A composition of operands, followed by arguments as they are; both named with spaces between them.

    One operand may have any number of axes: more than textures have are viewed as two, if their sizes do not change.
    """

    def lower(b: ProgramBuilder, call: Call) -> Made:
        numbers = [number(b, call, name) for name in operands.split()]
        rest = [call[name] for name in arguments.split()]
        match numbers:
            case [Number(value=x)] if x.rank > TEXTURE_RANK and elementwise and not dynamic_count(x.shape):
                flat = b.view(x, (flattened(x.shape[:-1]), x.shape[-1]))
                return b.view(make(DIALECT.number(b, flat), *rest).value, x.shape)
        made = make(*numbers, *rest)
        return tuple(item.value for item in made) if isinstance(made, tuple) else made.value

    return lower


def composed_along(make: Callable[..., Any], operands: str = "self", arguments: str = "") -> Lower:
    """The same of a composition along axes, which sees all of them."""
    return composed(make, operands, arguments, elementwise=False)


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
